/* SPDX-License-Identifier: MIT
 *
 * The requests of a program for device memory in stream order: blocks that are allocated and freed
 * on streams, streams that wait for one another, and a host that waits for a stream. Traces come
 * from the generators below, which give equal traces for equal seeds on every machine, or from
 * text.
 *
 * As text, one operation a line, `#` begins a comment:
 *
 *     a BLOCK SIZE STREAM    allocate: a number that no live block has, bytes
 *     f BLOCK STREAM         free
 *     w STREAM OTHER         STREAM waits for the work that is now on OTHER
 *     s STREAM               the host waits for STREAM
 *
 * Not thread safe.
 */
#ifndef BENCH_ARENA_TRACE_H
#define BENCH_ARENA_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    TRACE_STREAMS = 8,          /* at most, from 0 on */
    TRACE_BLOCKS_MAX = 1 << 24, /* numbers of blocks are below this */
    TRACE_WHY = 160             /* bytes of a sentence with a reason */
};

typedef enum trace_kind {
    TRACE_ALLOC = 0,
    TRACE_FREE,
    TRACE_WAIT,
    TRACE_SYNC
} trace_kind;

typedef struct trace_op {
    uint64_t size;  /* TRACE_ALLOC: bytes, at least 1 */
    uint32_t block; /* TRACE_ALLOC, TRACE_FREE */
    uint8_t kind;
    uint8_t stream;
    uint8_t other; /* TRACE_WAIT: the stream that is waited for */
} trace_op;

/* Zeros are an empty trace. The owner of `ops` calls trace_clear(). */
typedef struct trace {
    trace_op *ops;
    size_t count, room;
    uint32_t blocks;  /* one more than the highest number of a block */
    unsigned streams; /* one more than the highest stream */
    size_t calls;     /* allocations and frees */
    uint64_t peak;    /* set by trace_check(): most requested bytes that are live at once */
    bool lost;        /* there was no memory for an operation */
} trace;

void trace_clear(trace *t);

/* ---- building ---------------------------------------------------------------------------- */

/* Append one operation. Without memory the trace becomes `lost`, which trace_check() reports. */
uint32_t trace_alloc(trace *t, uint64_t size, unsigned stream); /* the new block's number */
void trace_free(trace *t, uint32_t block, unsigned stream);
void trace_wait(trace *t, unsigned stream, unsigned other);
void trace_sync(trace *t, unsigned stream);

/* Whether the trace can be replayed repeatedly: it frees live blocks only, each on the stream that
 * allocated it or on one that has waited for that stream since, and leaves none live. Sets `peak`,
 * or the reason in `why`. */
bool trace_check(trace *t, char why[TRACE_WHY]);

/* ---- text -------------------------------------------------------------------------------- */

/* Append the operations of a file. False with the first invalid line in `why`. Does not call
 * trace_check(). */
bool trace_read(trace *t, FILE *file, char why[TRACE_WHY]);

/* False if the file cannot be written. */
bool trace_write(const trace *t, FILE *file);

/* ---- generators -------------------------------------------------------------------------- */

/* The training of a transformer as PyTorch does it: a forward pass that keeps activations, with
 * temporary workspaces; a backward pass that frees them in reverse order and gets gradients, which
 * a second stream reduces; an optimizer; the length of sequences differs in each iteration. At
 * most about `budget` bytes live at once; all sizes shrink for that. */
void trace_make_torch(trace *t, uint64_t seed, uint64_t budget);

/* Queries on four streams as RAPIDS runs them over RMM: operators that allocate columns from 256
 * bytes to 2 GiB, masks, hash tables and maps, and free their input; tables passed to other
 * streams; small blocks of random lifetime. At most about `budget` bytes are live at once: near
 * that limit sizes shrink down to a byte. */
void trace_make_rmm(trace *t, uint64_t seed, uint64_t budget);

/* ---- chance ------------------------------------------------------------------------------ */

/* splitmix64 */
static inline uint64_t trace_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t trace_below(uint64_t *state, uint64_t bound)
{
    return trace_random(state) % bound;
}

/* From 2^low to 2^high (at most 62), each doubling as likely as the next: whole numbers only, so
 * that machines agree. */
static inline uint64_t trace_log_size(uint64_t *state, unsigned low, unsigned high)
{
    uint64_t least = UINT64_C(1) << (low + trace_below(state, high - low));
    return least + trace_below(state, least) + 1;
}

#endif
