/* SPDX-License-Identifier: MIT
 *
 * Builds sequences of operations, and checks that they can be replayed.
 */
#include "trace.h"

#include <stdlib.h>

void trace_clear(trace *t)
{
    free(t->ops);
    *t = (trace){0};
}

/* ---- building ---------------------------------------------------------------------------- */

static bool make_room(trace *t)
{
    if (t->count < t->room) {
        return true;
    }
    size_t room = t->room ? 2 * t->room : 1024;
    trace_op *ops = realloc(t->ops, room * sizeof *ops);
    if (ops) {
        t->ops = ops;
        t->room = room;
    }
    return ops != NULL;
}

static void note_stream(trace *t, unsigned stream)
{
    t->streams = stream >= t->streams ? stream + 1 : t->streams;
}

static void append(trace *t, const trace_op *op)
{
    if (!make_room(t)) {
        t->lost = true;
        return;
    }
    t->ops[t->count++] = *op;
    note_stream(t, op->stream);
    note_stream(t, op->other);
    t->calls += op->kind == TRACE_ALLOC || op->kind == TRACE_FREE;
}

uint32_t trace_alloc(trace *t, uint64_t size, unsigned stream)
{
    uint32_t block = t->blocks++;
    append(t, &(trace_op){size, block, TRACE_ALLOC, (uint8_t)stream, 0});
    return block;
}

void trace_free(trace *t, uint32_t block, unsigned stream)
{
    append(t, &(trace_op){0, block, TRACE_FREE, (uint8_t)stream, 0});
}

void trace_wait(trace *t, unsigned stream, unsigned other)
{
    append(t, &(trace_op){0, 0, TRACE_WAIT, (uint8_t)stream, (uint8_t)other});
}

void trace_sync(trace *t, unsigned stream)
{
    append(t, &(trace_op){0, 0, TRACE_SYNC, (uint8_t)stream, 0});
}

/* ---- checking ---------------------------------------------------------------------------- */

typedef struct live_block {
    uint64_t size; /* 0: not live */
    size_t born;   /* index of the operation */
    unsigned stream;
} live_block;

typedef struct check {
    const trace *t;
    live_block *blocks;
    size_t waited[TRACE_STREAMS][TRACE_STREAMS]; /* the last wait of the first stream for the
                                                  * second: index plus 1 */
    uint64_t live, peak;
} check;

/* Whether the operation's stream is ordered after the block's allocation. */
static bool is_ordered(const check *c, const trace_op *op, const live_block *block)
{
    return op->stream == block->stream || c->waited[op->stream][block->stream] > block->born;
}

/* NULL, or the reason for which the operation is invalid. */
static const char *apply(check *c, size_t index)
{
    const trace_op *op = &c->t->ops[index];
    live_block *block = &c->blocks[op->block];
    switch (op->kind) {
    case TRACE_ALLOC:
        if (block->size || !op->size || __builtin_add_overflow(c->live, op->size, &c->live)) {
            return block->size ? "gets a block that is live" : "gets a block of a bad size";
        }
        *block = (live_block){op->size, index, op->stream};
        c->peak = c->live > c->peak ? c->live : c->peak;
        return NULL;
    case TRACE_FREE:
        if (!block->size || !is_ordered(c, op, block)) {
            return block->size ? "frees a block on a stream that has not waited for its own"
                               : "frees a block that is not live";
        }
        c->live -= block->size;
        block->size = 0;
        return NULL;
    case TRACE_WAIT:
        c->waited[op->stream][op->other] = index + 1;
        return NULL;
    default:
        return NULL;
    }
}

static bool check_all(check *c, char why[TRACE_WHY])
{
    for (size_t i = 0; i < c->t->count; i++) {
        const char *wrong = apply(c, i);
        if (wrong) {
            snprintf(why, TRACE_WHY, "operation %zu %s: %u", i + 1, wrong, c->t->ops[i].block);
            return false;
        }
    }
    if (c->live) {
        snprintf(why, TRACE_WHY, "%llu bytes are never freed", (unsigned long long)c->live);
    }
    return !c->live;
}

bool trace_check(trace *t, char why[TRACE_WHY])
{
    if (t->lost || t->streams > TRACE_STREAMS || !t->calls) {
        snprintf(why, TRACE_WHY, "%s",
                 t->lost    ? "no memory for it"
                 : t->calls ? "it has too many streams"
                            : "it gets no block");
        return false;
    }
    check c = {.t = t, .blocks = calloc((size_t)t->blocks + 1, sizeof *c.blocks)};
    if (!c.blocks) {
        snprintf(why, TRACE_WHY, "no memory to check it");
        return false;
    }
    bool good = check_all(&c, why);
    t->peak = c.peak;
    free(c.blocks);
    return good;
}
