/* SPDX-License-Identifier: MIT
 *
 * A map to measure, behind a small table of functions: the variants of ours, and maps of other
 * projects if they are installed.
 */
#ifndef BENCH_LFHT_SUBJECT_H
#define BENCH_LFHT_SUBJECT_H

#include <gpualloc/lfht.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Settings of our map; zero: the library's default. */
typedef struct ga_bench_shape {
    uint32_t chain, chunk, root, batch;
    bool count; /* count path lengths and expansions as well */
} ga_bench_shape;

/* Keys are numbers that spread over 64 bits, each put in once, with itself as its value. */
typedef struct ga_bench_subject {
    const char *name;
    bool on_heap; /* its nodes come from the heap passed to open(); else that is NULL */
    /* Open a map for about `keys` keys. NULL with an error sentence (ga_fail()) on failure. */
    void *(*open)(const struct ga_bench_subject *self, ga_heap *heap, const ga_bench_shape *shape,
                  uint64_t keys);
    void (*close)(void *map);
    void (*enter)(void); /* in each thread before its calls and after them; or NULL */
    void (*leave)(void);
    bool (*insert)(void *map, uint64_t key);
    bool (*remove)(void *map, uint64_t key);
    bool (*lookup)(void *map, uint64_t key);
    void (*drain)(void *map); /* free removed nodes; no thread uses the map. NULL: nothing is
                               * deferred */
    void (*stats)(void *map, ga_lfht_stats *out); /* or NULL */
    int argument;                                 /* of open() */
} ga_bench_subject;

/* The variants of ours: `GA_LFHT_VARIANT_COUNT` of them, in that order. */
const ga_bench_subject *ga_bench_lfht_variant(ga_lfht_variant variant);

/* Others' maps; each is linked only where it was installed. */
typedef struct ga_bench_peers {
    const ga_bench_subject *list;
    size_t count;
} ga_bench_peers;

extern const ga_bench_peers ga_bench_peers_urcu, ga_bench_peers_tbb, ga_bench_peers_cds;

/* The number 0, 1, ... as a key: all are different. */
static inline uint64_t ga_bench_key(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The hash function for other projects' maps; ours has it built in. */
static inline uint64_t ga_bench_hash(uint64_t key)
{
    key = (key ^ (key >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    key = (key ^ (key >> 27)) * UINT64_C(0x94d049bb133111eb);
    return key ^ (key >> 31);
}

#ifdef __cplusplus
}
#endif
#endif
