/* SPDX-License-Identifier: MIT
 *
 * Queries over tables. Each stream has one table at a time, and each operator makes the next one
 * from it.
 */
#include "trace.h"

enum {
    QUERIES = 4, /* a stream each */
    OPERATORS = 700,
    COLUMNS_MAX = 24, /* with the masks of those that have nulls */
    LOOSE = 64,       /* small blocks of random life */
    LEAST = 256,
    BIGGEST_SHARE = 24 /* no block is more than this part of the budget */
};

typedef struct piece {
    uint64_t size; /* 0: none */
    uint32_t block;
    unsigned born; /* on this stream */
} piece;

typedef struct table {
    uint64_t rows;
    unsigned count;
    piece columns[COLUMNS_MAX];
} table;

typedef struct world {
    trace *t;
    uint64_t random;
    uint64_t budget, live, most; /* bytes; `most` of one block */
    table tables[QUERIES];
    piece loose[LOOSE];
} world;

/* ---- pieces ------------------------------------------------------------------------------ */

/* Never more than half of the remaining budget, so that it lasts. */
static piece get(world *w, uint64_t size, unsigned stream)
{
    uint64_t left = w->live < w->budget ? (w->budget - w->live) / 2 : 0;
    size = size < LEAST ? LEAST : size;
    size = size > w->most ? w->most : size;
    size = size > left ? left + !left : size;
    w->live += size;
    return (piece){size, trace_alloc(w->t, size, stream), stream};
}

/* Free on the block's own stream, or on one that has waited for it. */
static void drop(world *w, piece *p, unsigned stream)
{
    if (p->size) {
        trace_free(w->t, p->block, stream);
        w->live -= p->size;
        p->size = 0;
    }
}

static void drop_table(world *w, table *of, unsigned stream)
{
    for (unsigned i = 0; i < of->count; i++) {
        drop(w, &of->columns[i], stream);
    }
    of->count = 0;
}

/* ---- operators --------------------------------------------------------------------------- */

/* Columns of 1 to 32 bytes a row; every second one has a bit for each row that marks nulls. */
static void scan(world *w, unsigned stream)
{
    static const uint64_t widths[] = {1, 2, 4, 4, 8, 8, 8, 16, 32};
    table *now = &w->tables[stream];
    unsigned columns = 1 + (unsigned)trace_below(&w->random, COLUMNS_MAX / 2);
    now->rows = trace_log_size(&w->random, 6, 28);
    for (unsigned i = 0; i < columns; i++) {
        uint64_t width = widths[trace_below(&w->random, sizeof widths / sizeof *widths)];
        now->columns[now->count++] = get(w, now->rows * width, stream);
        if (i % 2) {
            now->columns[now->count++] = get(w, now->rows / 8, stream);
        }
    }
}

/* The next table: every column num/den as long, made one by one, with scratch beside it or not. */
static void rebuild(world *w, unsigned stream, uint64_t num, uint64_t den, bool scratch)
{
    table *before = &w->tables[stream];
    table after = {before->rows * num / den + 1, before->count, {{0}}};
    for (unsigned i = 0; i < before->count; i++) {
        piece beside = scratch ? get(w, before->columns[i].size, stream) : (piece){0};
        after.columns[i] = get(w, before->columns[i].size * num / den, stream);
        drop(w, &beside, stream);
    }
    drop_table(w, before, stream);
    *before = after;
}

static void filter(world *w, unsigned stream)
{
    uint64_t rows = w->tables[stream].rows;
    piece mask = get(w, rows, stream);
    piece map = get(w, 4 * rows, stream);
    rebuild(w, stream, 1 + trace_below(&w->random, 15), 16, false);
    drop(w, &map, stream);
    drop(w, &mask, stream);
}

static void join(world *w, unsigned stream)
{
    uint64_t rows = w->tables[stream].rows;
    piece hash = get(w, 16 * rows, stream);
    piece left = get(w, 4 * rows, stream);
    piece right = get(w, 4 * rows, stream);
    drop(w, &hash, stream);
    rebuild(w, stream, 8 + trace_below(&w->random, 16), 16, false);
    drop(w, &right, stream);
    drop(w, &left, stream);
}

static void sort(world *w, unsigned stream)
{
    piece order = get(w, 4 * w->tables[stream].rows, stream);
    rebuild(w, stream, 1, 1, true);
    drop(w, &order, stream);
}

static void aggregate(world *w, unsigned stream)
{
    uint64_t rows = w->tables[stream].rows;
    uint64_t groups = trace_log_size(&w->random, 4, 16);
    piece hash = get(w, 8 * rows, stream);
    rebuild(w, stream, groups, rows > groups ? rows : groups, false);
    drop(w, &hash, stream);
}

/* The result goes to the host, which waits for it. */
static void finish(world *w, unsigned stream)
{
    trace_sync(w->t, stream);
    drop_table(w, &w->tables[stream], stream);
}

/* Pass the table to a query without one, whose stream waits for every stream that made a column. */
static void hand_over(world *w, unsigned stream)
{
    unsigned to = (unsigned)trace_below(&w->random, QUERIES);
    table *now = &w->tables[stream];
    unsigned makers = 1u << stream;
    if (w->tables[to].count) {
        filter(w, stream);
        return;
    }
    for (unsigned i = 0; i < now->count; i++) {
        makers |= 1u << now->columns[i].born;
    }
    for (unsigned i = 0; i < QUERIES; i++) {
        if (i != to && makers & 1u << i) {
            trace_wait(w->t, to, i);
        }
    }
    w->tables[to] = *now;
    now->count = 0;
}

/* ---- the run ----------------------------------------------------------------------------- */

/* Free one small block, sometimes on another stream than its own, and allocate one. */
static void churn_loose(world *w, unsigned stream)
{
    piece *p = &w->loose[trace_below(&w->random, LOOSE)];
    bool elsewhere = p->size && p->born != stream && trace_below(&w->random, 4) == 0;
    if (elsewhere) {
        trace_wait(w->t, stream, p->born);
    }
    drop(w, p, elsewhere ? stream : p->born);
    bool large = trace_below(&w->random, 8) == 0;
    uint64_t size = trace_log_size(&w->random, large ? 22 : 8, large ? 26 : 22);
    uint64_t most = w->budget / LOOSE / 4;
    *p = get(w, size < most ? size : most, stream);
}

static void operate(world *w, unsigned stream)
{
    static void (*const operators[])(world *, unsigned) = {
        filter, filter, join, sort, aggregate, hand_over, finish,
    };
    churn_loose(w, stream);
    if (!w->tables[stream].count) {
        scan(w, stream);
    } else if (w->live > w->budget / 2) {
        finish(w, stream);
    } else {
        operators[trace_below(&w->random, sizeof operators / sizeof *operators)](w, stream);
    }
}

void trace_make_rmm(trace *t, uint64_t seed, uint64_t budget)
{
    world w = {.t = t, .random = seed, .budget = budget, .most = budget / BIGGEST_SHARE};
    w.most = w.most > UINT64_C(2) << 30 ? UINT64_C(2) << 30 : w.most;
    w.most = w.most < LEAST ? LEAST : w.most;
    for (unsigned i = 0; i < OPERATORS; i++) {
        operate(&w, (unsigned)trace_below(&w.random, QUERIES));
    }
    for (unsigned i = 0; i < QUERIES; i++) {
        finish(&w, i);
    }
    for (unsigned i = 0; i < LOOSE; i++) {
        drop(&w, &w.loose[i], w.loose[i].born);
    }
}
