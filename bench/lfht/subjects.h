/* SPDX-License-Identifier: MIT
 *
 * The maps that are measured, behind one small table of functions.
 */
#ifndef GPUALLOC_BENCH_LFHT_SUBJECTS_H
#define GPUALLOC_BENCH_LFHT_SUBJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Keys are numbers that spread over 64 bits, each put in once. */
typedef struct subject {
    const char *name;
    void *(*open)(const struct subject *self, const char *heap, uint64_t keys);
    void (*close)(void *map);
    void (*enter)(void); /* once in each thread, before and after its calls */
    void (*leave)(void);
    bool (*insert)(void *map, uint64_t key);
    bool (*remove)(void *map, uint64_t key);
    bool (*lookup)(void *map, uint64_t key);
    int argument; /* of open */
} subject;

extern const subject subjects[];
extern const size_t subject_count;

#endif
