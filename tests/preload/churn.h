/* SPDX-License-Identifier: MIT
 *
 * Threads that allocate, resize and free until they are told to stop: the load beside other tests.
 */
#ifndef GPUALLOC_TESTS_PRELOAD_CHURN_H
#define GPUALLOC_TESTS_PRELOAD_CHURN_H

#include "check.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum {
    CHURN_SLOTS = 200
};

static bool churn_stop; /* relaxed: a thread that sees it late makes one more round */

static inline uint32_t churn_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Mostly small, now and then up to a megabyte. */
static inline size_t churn_size(uint32_t *state)
{
    uint32_t shape = churn_random(state) % 100;
    uint32_t limit = shape < 90 ? 500 : shape < 99 ? 20000 : 1000000;
    return churn_random(state) % limit;
}

static inline void churn_step(unsigned char **slots, size_t *sizes, uint32_t *state)
{
    uint32_t i = churn_random(state) % CHURN_SLOTS;
    size_t size = churn_size(state);
    if (slots[i] && sizes[i]) {
        CHECK(slots[i][0] == (unsigned char)i && slots[i][sizes[i] - 1] == (unsigned char)i);
    }
    if (churn_random(state) % 4 == 0) {
        slots[i] = realloc(slots[i], size + 1);
    } else {
        free(slots[i]);
        slots[i] = churn_random(state) % 2 ? malloc(size + 1) : calloc(1, size + 1);
    }
    CHECK(slots[i]);
    sizes[i] = size + 1;
    slots[i][0] = (unsigned char)i;
    slots[i][size] = (unsigned char)i;
}

static inline void churn(uint32_t seed, int steps)
{
    unsigned char *slots[CHURN_SLOTS] = {0};
    size_t sizes[CHURN_SLOTS] = {0};
    for (int i = 0; i < steps && !__atomic_load_n(&churn_stop, __ATOMIC_RELAXED); i++) {
        churn_step(slots, sizes, &seed);
    }
    for (int i = 0; i < CHURN_SLOTS; i++) {
        free(slots[i]);
    }
}

static void *churn_thread(void *seed)
{
    churn((uint32_t)(uintptr_t)seed, 1 << 30);
    return NULL;
}

static inline void churn_begin(pthread_t *threads, int count)
{
    for (int i = 0; i < count; i++) {
        CHECK(pthread_create(&threads[i], NULL, churn_thread, (void *)(uintptr_t)(i + 1)) == 0);
    }
}

static inline void churn_end(const pthread_t *threads, int count)
{
    __atomic_store_n(&churn_stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < count; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

#endif
