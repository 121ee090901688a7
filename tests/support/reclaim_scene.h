/* SPDX-License-Identifier: MIT
 *
 * Shared by the tests of hazard-pointer domains: a domain, and objects to retire, which count their
 * frees.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_RECLAIM_SCENE_H
#define GPUALLOC_TESTS_SUPPORT_RECLAIM_SCENE_H

#include <gpualloc/reclaim.h>

#include "expect.h"

#include <pthread.h>

enum {
    OBJECTS = 4096
};

/* An object to retire: it counts its frees. */
typedef struct object {
    uint64_t freed;
    struct object *child; /* retired when this one is freed */
} object;

static object objects[OBJECTS];
static ga_domain *domain;
static uint64_t frees; /* relaxed: counted by all threads */

static inline void free_object(void *context, void *retired)
{
    object *o = retired;
    (void)context;
    /* relaxed: counts, read when the threads are gone. */
    __atomic_fetch_add(&o->freed, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&frees, 1, __ATOMIC_RELAXED);
    if (o->child) {
        ga_hazards *mine;
        assert_ok(ga_domain_join(domain, &mine));
        assert_ok(ga_hazard_retire(mine, o->child, sizeof *o, free_object, NULL));
    }
}

static inline uint64_t freed_so_far(void)
{
    return __atomic_load_n(&frees, __ATOMIC_RELAXED); /* relaxed: a count */
}

#define OPTIONS(...) (&(ga_domain_options){.options_size = sizeof(ga_domain_options), __VA_ARGS__})

static inline ga_hazards *join(ga_domain *which)
{
    ga_hazards *mine;
    assert_ok(ga_domain_join(which, &mine));
    return mine;
}

static inline void retire(uint64_t from, uint64_t to)
{
    ga_hazards *mine = join(domain);
    for (uint64_t i = from; i < to; i++) {
        assert_ok(ga_hazard_retire(mine, &objects[i], sizeof *objects, free_object, NULL));
    }
}

static inline ga_domain_stats stats_of(const ga_domain *which)
{
    ga_domain_stats stats;
    ga_domain_get_stats(which, &stats);
    return stats;
}

static inline void in_a_thread(void *(*body)(void *), void *context)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, body, context), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

#endif
