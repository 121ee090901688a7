/* SPDX-License-Identifier: MIT
 *
 * In the order of time, each record is matched with the block that its address has then. A move is
 * recorded after it happens, when its old address may already belong to a new block, so an address
 * has a list of blocks: the newest is freed or resized, the oldest moves.
 */
#include "script.h"

#include "../../liballoc/backends/trace/reader.h"

#include <gpualloc/backend.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t NONE = UINT32_MAX;

typedef struct entry {
    uint64_t pointer; /* 0: no entry */
    uint32_t newest;  /* block, or NONE */
} entry;

typedef struct block {
    uint64_t size;
    uint32_t older; /* the next block at the same address */
    uint32_t turns; /* operations so far */
} block;

typedef struct timed_record {
    ga_trace_record record;
    uint32_t order; /* in the file */
} timed_record;

typedef struct builder {
    ga_script *script;
    timed_record *records;
    size_t count, room;
    entry *entries; /* a hash table */
    size_t mask;
    block *blocks;
    uint64_t live_bytes;
} builder;

/* ---- records ------------------------------------------------------------------------------- */

static ga_status no_memory(size_t count)
{
    return ga_fail(GA_ERR_MEMORY, "no memory for %zu records", count);
}

static ga_status keep(builder *b, const ga_trace_record *record)
{
    if (b->count == b->room) {
        size_t room = b->room ? 2 * b->room : 4096;
        timed_record *records =
            room <= UINT32_MAX / 2 ? realloc(b->records, room * sizeof *records) : NULL;
        if (!records) {
            return no_memory(room);
        }
        b->records = records;
        b->room = room;
    }
    b->records[b->count] = (timed_record){*record, (uint32_t)b->count};
    b->count++;
    return GA_OK;
}

static ga_status read_records(builder *b, const char *file)
{
    ga_trace_reader *reader;
    const ga_trace_record *record;
    ga_status status = ga_trace_reader_open(&reader, file);
    while (status == GA_OK && (record = ga_trace_reader_next(reader))) {
        status = keep(b, record);
    }
    ga_trace_reader_close(reader);
    return status;
}

/* Keep the records of the place, and of the device of the first of them. */
static void select_place(builder *b, ga_place place)
{
    size_t kept = 0;
    int device = 0;
    for (size_t i = 0; place == GA_PLACE_COUNT && i < b->count; i++) {
        place = b->records[i].record.place == GA_PLACE_HOST ? GA_PLACE_HOST : place;
    }
    b->script->place = place == GA_PLACE_COUNT ? GA_PLACE_DEVICE : place;
    for (size_t i = 0; i < b->count; i++) {
        const ga_trace_record *record = &b->records[i].record;
        device = kept == 0 ? record->device : device;
        if (record->place == b->script->place && record->device == device) {
            b->records[kept++] = b->records[i];
        }
    }
    b->script->elsewhere = b->count - kept;
    b->count = kept;
}

static int by_time(const void *left, const void *right)
{
    const timed_record *a = left;
    const timed_record *b = right;
    if (a->record.time_ns != b->record.time_ns) {
        return a->record.time_ns < b->record.time_ns ? -1 : 1;
    }
    return a->order < b->order ? -1 : a->order > b->order;
}

/* ---- blocks by address --------------------------------------------------------------------- */

static entry *find(builder *b, uint64_t pointer)
{
    size_t at = (size_t)(pointer * UINT64_C(0x9e3779b97f4a7c15) >> 20) & b->mask;
    while (b->entries[at].pointer && b->entries[at].pointer != pointer) {
        at = (at + 1) & b->mask;
    }
    if (!b->entries[at].pointer) {
        b->entries[at] = (entry){pointer, NONE};
    }
    return &b->entries[at];
}

static uint32_t pop_newest(builder *b, uint64_t pointer)
{
    entry *e = find(b, pointer);
    uint32_t found = e->newest;
    if (found != NONE) {
        e->newest = b->blocks[found].older;
    }
    return found;
}

static uint32_t pop_oldest(builder *b, uint64_t pointer)
{
    uint32_t *link = &find(b, pointer)->newest;
    if (*link == NONE) {
        return NONE;
    }
    while (b->blocks[*link].older != NONE) {
        link = &b->blocks[*link].older;
    }
    uint32_t found = *link;
    *link = NONE;
    return found;
}

static void push(builder *b, uint64_t pointer, uint32_t number)
{
    entry *e = find(b, pointer);
    b->blocks[number].older = e->newest;
    e->newest = number;
}

/* ---- operations ---------------------------------------------------------------------------- */

static void add(builder *b, const ga_trace_record *record, uint8_t kind, uint32_t number)
{
    ga_script *s = b->script;
    block *it = &b->blocks[number];
    s->ops[s->count++] = (ga_script_op){
        .size = record->size,
        .block = number,
        .turn = it->turns++,
        .thread = record->thread,
        .kind = kind,
        .align_log2 = record->align_log2,
        .in_order = record->stream != 0,
    };
    b->live_bytes += record->size - it->size;
    it->size = record->size;
    s->peak_bytes = b->live_bytes > s->peak_bytes ? b->live_bytes : s->peak_bytes;
}

static void begin(builder *b, const ga_trace_record *record, uint8_t kind)
{
    uint32_t number = b->script->blocks++;
    b->blocks[number] = (block){.older = NONE};
    push(b, record->pointer, number);
    add(b, record, kind, number);
}

static void resize(builder *b, const ga_trace_record *record)
{
    bool grown = record->operation == GA_TRACE_GROW;
    uint64_t old = grown ? record->pointer : record->previous;
    uint32_t number = old == record->pointer ? pop_newest(b, old) : pop_oldest(b, old);
    if (number == NONE) {
        b->script->left_out++;
        begin(b, record, GA_TRACE_ALLOC); /* from before the trace: known from here on */
        return;
    }
    push(b, record->pointer, number);
    add(b, record, record->operation, number);
}

static void end(builder *b, const ga_trace_record *record)
{
    uint32_t number = pop_newest(b, record->pointer);
    if (number == NONE) {
        b->script->left_out++;
    } else {
        add(b, record, GA_TRACE_FREE, number);
    }
}

static void translate(builder *b, const ga_trace_record *record)
{
    switch (record->operation) {
    case GA_TRACE_ALLOC:
    case GA_TRACE_ZEROED:
        begin(b, record, record->operation);
        return;
    case GA_TRACE_REALLOC:
        if (!record->previous) {
            begin(b, record, GA_TRACE_ALLOC);
            return;
        }
        resize(b, record);
        return;
    case GA_TRACE_GROW:
        resize(b, record);
        return;
    case GA_TRACE_FREE:
    case GA_TRACE_RETIRE:
        end(b, record);
        return;
    case GA_TRACE_FAILED:
        b->script->left_out++;
        return;
    default: /* stacks and modules */
        return;
    }
}

/* At most one operation and one block for each record. */
static ga_status translate_all(builder *b)
{
    size_t entries = 16;
    while (entries < 4 * b->count) { /* a move has two addresses */
        entries *= 2;
    }
    b->mask = entries - 1;
    b->entries = calloc(entries, sizeof *b->entries);
    b->blocks = calloc(b->count + 1, sizeof *b->blocks);
    b->script->ops = calloc(b->count + 1, sizeof *b->script->ops);
    if (!b->entries || !b->blocks || !b->script->ops) {
        return no_memory(b->count);
    }
    if (b->count) { /* else there is no array */
        qsort(b->records, b->count, sizeof *b->records, by_time);
    }
    for (size_t i = 0; i < b->count; i++) {
        translate(b, &b->records[i].record);
    }
    return GA_OK;
}

/* ---- threads ------------------------------------------------------------------------------- */

static int by_number(const void *left, const void *right)
{
    const uint32_t *a = left;
    const uint32_t *b = right;
    return *a < *b ? -1 : *a > *b;
}

/* Number the threads from 0 on. Returns their count, at most `most`. */
static unsigned number_threads(ga_script *s, uint32_t *ids, unsigned most)
{
    size_t count = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        ids[i] = s->ops[i].thread;
    }
    qsort(ids, s->count, sizeof *ids, by_number);
    for (uint32_t i = 0; i < s->count; i++) {
        if (count == 0 || ids[count - 1] != ids[i]) {
            ids[count++] = ids[i];
        }
    }
    for (uint32_t i = 0; i < s->count; i++) {
        const uint32_t *found = bsearch(&s->ops[i].thread, ids, count, sizeof *ids, by_number);
        s->ops[i].thread = (uint32_t)(found - ids) % most;
    }
    return count < most ? (unsigned)count : most;
}

static ga_status deal(ga_script *s, unsigned most)
{
    uint32_t *next;
    s->by_thread = calloc((size_t)s->count + 1, sizeof *s->by_thread);
    s->begins = calloc(GA_SCRIPT_THREADS_MAX + 1, sizeof *s->begins);
    next = calloc(GA_SCRIPT_THREADS_MAX + 1, sizeof *next);
    if (!s->by_thread || !s->begins || !next) {
        free(next);
        return no_memory(s->count);
    }
    s->threads = number_threads(s, s->by_thread, most);
    for (uint32_t i = 0; i < s->count; i++) {
        s->begins[s->ops[i].thread + 1]++;
    }
    for (unsigned i = 0; i < s->threads; i++) {
        s->begins[i + 1] += s->begins[i];
        next[i] = s->begins[i];
    }
    for (uint32_t i = 0; i < s->count; i++) {
        s->by_thread[next[s->ops[i].thread]++] = i;
    }
    free(next);
    return GA_OK;
}

/* ---- the interface ------------------------------------------------------------------------- */

ga_status ga_script_read(ga_script *out, const char *file, ga_place place, unsigned threads)
{
    builder b = {.script = out};
    bool all = threads == 0 || threads > GA_SCRIPT_THREADS_MAX;
    *out = (ga_script){0};
    ga_status status = read_records(&b, file);
    if (status == GA_OK) {
        select_place(&b, place);
        status = translate_all(&b);
    }
    if (status == GA_OK && out->count == 0) {
        status = ga_fail(GA_ERR_ARGUMENT, "\"%.300s\": expected allocations on the %s, found none",
                         file, ga_place_text(out->place));
    }
    status = status == GA_OK ? deal(out, all ? GA_SCRIPT_THREADS_MAX : threads) : status;
    free(b.records);
    free(b.entries);
    free(b.blocks);
    return status;
}

void ga_script_clear(ga_script *script)
{
    free(script->ops);
    free(script->by_thread);
    free(script->begins);
    *script = (ga_script){0};
}
