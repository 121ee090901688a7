/* SPDX-License-Identifier: MIT
 *
 * Ways to get units of 128 bytes, and what one of them costs in this process.
 */
#ifndef BENCH_SLAB_WAYS_H
#define BENCH_SLAB_WAYS_H

#include <stdbool.h>

enum {
    SLAB_UNIT = 128,
    SLAB_THREADS_MAX = 256,
    SLAB_WAYS = 6,
    SLAB_FIRST_BASELINE = 3, /* the ways from there on */
    SLAB_FIRST_RIVAL = 4     /* those that the bars are about */
};

typedef enum slab_pattern {
    SLAB_BATCH = 0,
    SLAB_SINGLE,
    SLAB_HELD,
    SLAB_PATTERNS
} slab_pattern;

struct slab_worker;

typedef struct slab_way {
    const char *name;
    bool (*chunk[SLAB_PATTERNS])(struct slab_worker *); /* NULL: not in this pattern */
    const char *preload;       /* the library that must come with the process, or NULL */
    const char *symbol;        /* it has that, and nobody else */
    double bar[SLAB_PATTERNS]; /* times as fast as each rival at 1 and 2 threads; 0: none */
} slab_way;

typedef struct slab_cost {
    double wall; /* nanoseconds a pair by the clock, times the cores that the threads can use */
    double cpu;  /* of processor time */
} slab_cost;

extern const slab_way slab_ways[SLAB_WAYS];
extern const char *const slab_pattern_names[SLAB_PATTERNS];
extern const char *const slab_pattern_texts[SLAB_PATTERNS];

/* Whether what it needs has been preloaded. */
bool slab_way_is_there(const slab_way *way);

/* Once in a process. False where memory or threads are refused. */
bool slab_way_measure(const slab_way *way, slab_pattern pattern, unsigned threads, double seconds,
                      slab_cost *cost);

#endif
