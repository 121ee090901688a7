/* SPDX-License-Identifier: MIT
 *
 * Sorted by pointer, a trace shows each address's life, and so how each event changes the live
 * bytes. Sorted by time, the running sum of these changes shows the peak.
 */
#include "replay.h"

#include <stdlib.h>

typedef enum event_kind {
    BEGINS,
    RESIZED,
    MOVED, /* ends because the block moved */
    ENDS
} event_kind;

struct ga_replay_event {
    uint64_t time_ns;
    uint64_t pointer;
    uint64_t bytes; /* BEGINS and RESIZED: the size; later the change, modulo 2^64 */
    uint32_t order; /* order of events with the same time */
    uint8_t kind;
    int8_t blocks; /* the change in the number of live blocks */
};

/* ---- adding records -------------------------------------------------------------------------- */

static bool make_room(ga_replay *replay)
{
    if (replay->count < replay->room) {
        return true;
    }
    size_t room = replay->room ? 2 * replay->room : 4096;
    ga_replay_event *events =
        room <= UINT32_MAX ? realloc(replay->events, room * sizeof *events) : NULL;
    if (!events) {
        return false;
    }
    replay->events = events;
    if (replay->keeps_stacks) {
        uint32_t *stacks = realloc(replay->stacks, room * sizeof *stacks);
        if (!stacks) {
            return false;
        }
        replay->stacks = stacks;
    }
    replay->room = room;
    return true;
}

static bool add(ga_replay *replay, const ga_trace_record *record, uint64_t pointer, event_kind kind)
{
    if (!make_room(replay)) {
        return false;
    }
    replay->events[replay->count] = (ga_replay_event){.time_ns = record->time_ns,
                                                      .pointer = pointer,
                                                      .bytes = record->size,
                                                      .order = (uint32_t)replay->count,
                                                      .kind = (uint8_t)kind};
    if (replay->keeps_stacks) {
        replay->stacks[replay->count] = record->stack;
    }
    replay->count++;
    return true;
}

bool ga_replay_add(ga_replay *replay, const ga_trace_record *record)
{
    switch (record->operation) {
    case GA_TRACE_ALLOC:
    case GA_TRACE_ZEROED:
        return add(replay, record, record->pointer, BEGINS);
    case GA_TRACE_REALLOC:
        if (record->previous == record->pointer) {
            return add(replay, record, record->pointer, RESIZED);
        }
        return (!record->previous || add(replay, record, record->previous, MOVED)) &&
               add(replay, record, record->pointer, BEGINS);
    case GA_TRACE_GROW:
        return add(replay, record, record->pointer, RESIZED);
    case GA_TRACE_FREE:
    case GA_TRACE_RETIRE:
        return add(replay, record, record->pointer, ENDS);
    default:
        return true;
    }
}

/* ---- by pointer: each address's life --------------------------------------------------------- */

/* A move is recorded after it happens, when its old address may already be allocated again. `owed`
 * counts the ends that such an address still has to receive. */
typedef struct address {
    bool live;
    uint64_t bytes;
    uint64_t owed;
} address;

static void begin(address *a, ga_replay_event *event)
{
    uint64_t size = event->bytes;
    event->bytes = size - (a->live ? a->bytes : 0);
    event->blocks = a->live ? 0 : 1;
    a->owed += a->live;
    a->live = true;
    a->bytes = size;
}

static void resize(address *a, ga_replay_event *event)
{
    uint64_t size = event->bytes;
    event->bytes = size - a->bytes;
    a->bytes = size;
}

static void end(address *a, ga_replay_event *event)
{
    event->bytes = 0 - a->bytes;
    event->blocks = -1;
    *a = (address){.owed = a->owed};
}

/* A block from before the trace, or from a lost part of it, is known from its first resize on. */
static void know(address *a, ga_replay_event *event)
{
    if (event->kind == RESIZED) {
        begin(a, event);
    } else {
        event->bytes = 0;
    }
}

static void live_through(address *a, ga_replay_event *event, ga_replay_result *out)
{
    if (event->kind == BEGINS) {
        begin(a, event);
    } else if (event->kind == MOVED && a->owed) {
        event->bytes = 0;
        a->owed--;
    } else if (!a->live) {
        out->unknown++;
        know(a, event);
    } else if (event->kind == RESIZED) {
        resize(a, event);
    } else {
        end(a, event);
    }
}

static void match(ga_replay *replay, ga_replay_result *out)
{
    address now = {0};
    for (size_t i = 0; i < replay->count; i++) {
        if (i > 0 && replay->events[i].pointer != replay->events[i - 1].pointer) {
            out->reused += now.owed;
            now = (address){0};
        }
        live_through(&now, &replay->events[i], out);
    }
    out->reused += now.owed;
}

/* ---- by time: the live bytes ----------------------------------------------------------------- */

static void sum_up(const ga_replay *replay, ga_replay_result *out)
{
    for (size_t i = 0; i < replay->count; i++) {
        const ga_replay_event *event = &replay->events[i];
        out->left_bytes += event->bytes;
        out->left_blocks += (uint64_t)(int64_t)event->blocks;
        if (out->left_bytes > out->peak_bytes) {
            out->peak_bytes = out->left_bytes;
            out->peak_blocks = out->left_blocks;
            out->peak_ns = event->time_ns;
            out->peak_order = event->order;
        }
    }
}

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_time(const void *left, const void *right)
{
    const ga_replay_event *a = left;
    const ga_replay_event *b = right;
    int order = compare(a->time_ns, b->time_ns);
    return order ? order : compare(a->order, b->order);
}

static int by_pointer(const void *left, const void *right)
{
    const ga_replay_event *a = left;
    const ga_replay_event *b = right;
    int order = compare(a->pointer, b->pointer);
    return order ? order : by_time(left, right);
}

void ga_replay_run(ga_replay *replay, ga_replay_result *out)
{
    *out = (ga_replay_result){0};
    if (replay->count) {
        qsort(replay->events, replay->count, sizeof *replay->events, by_pointer);
        match(replay, out);
        qsort(replay->events, replay->count, sizeof *replay->events, by_time);
        sum_up(replay, out);
    }
}

/* ---- by pointer again: the live blocks of two moments ---------------------------------------- */

/* What lives at an address, after the events so far. */
typedef struct block {
    uint64_t bytes;
    int64_t blocks;
    uint32_t stack;
} block;

static void apply(const ga_replay *replay, block *b, const ga_replay_event *event)
{
    b->bytes += event->bytes;
    b->blocks += event->blocks;
    if (event->kind == BEGINS || event->kind == RESIZED) {
        b->stack = replay->stacks[event->order];
    }
}

static bool is_after_peak(const ga_replay_event *event, const ga_replay_result *result)
{
    return event->time_ns > result->peak_ns ||
           (event->time_ns == result->peak_ns && event->order > result->peak_order);
}

/* Events [first, end) are those of an address. */
static void visit_address(const ga_replay *replay, size_t first, size_t end,
                          const ga_replay_result *result, ga_replay_visit *visit, void *context)
{
    block b = {0};
    size_t i = first;
    while (i < end && !is_after_peak(&replay->events[i], result)) {
        apply(replay, &b, &replay->events[i++]);
    }
    if (b.blocks > 0 && result->peak_blocks) {
        visit(context, GA_REPLAY_PEAK, b.stack, b.bytes);
    }
    while (i < end) {
        apply(replay, &b, &replay->events[i++]);
    }
    if (b.blocks > 0) {
        visit(context, GA_REPLAY_END, b.stack, b.bytes);
    }
}

void ga_replay_each_live(ga_replay *replay, const ga_replay_result *result, ga_replay_visit *visit,
                         void *context)
{
    if (replay->count) {
        qsort(replay->events, replay->count, sizeof *replay->events, by_pointer);
    }
    for (size_t first = 0, end; first < replay->count; first = end) {
        for (end = first;
             end < replay->count && replay->events[end].pointer == replay->events[first].pointer;) {
            end++;
        }
        visit_address(replay, first, end, result, visit, context);
    }
}

void ga_replay_clear(ga_replay *replay)
{
    free(replay->events);
    free(replay->stacks);
    *replay = (ga_replay){0};
}
