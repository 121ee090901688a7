/* SPDX-License-Identifier: MIT
 *
 * Pages mapped and unmapped by many threads, within the span and beyond its end. It would catch two
 * threads that get the same addresses, pages that come back with old contents, mappings outside the
 * memory that was mapped, and a span that is handed out past its end.
 *
 * GPUALLOC_RESERVE gives the span's size; a short one soon runs out, and plain mappings take over.
 *
 * Each mapping is stamped with its owner at both ends of every page it has, and checked before it
 * is unmapped: an overlapping mapping overwrites the stamps of another.
 */
#include "stress.h"

#include "support/random.h"

#include <platform/pages.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

enum {
    THREADS = 4,
    PAIR = 2,
    MEETINGS = 2000,
    HELD = 24, /* mappings of each thread at a time */
    PAGE = 4096,
    PAGES_MAX = 16,
    LARGE = 2 << 20,
    SHORT = 256 << 20
};

typedef struct mapping {
    char *start;
    size_t size;
    uint64_t stamp;
} mapping;

static unsigned long inside, outside; /* relaxed: counts, read when the threads have ended */

static uint64_t *stamp_at(char *where)
{
    return (uint64_t *)(void *)where;
}

/* The first and the last word of each page; of large mappings, only of every 32nd. */
static size_t stride(const mapping *m)
{
    return m->size >= LARGE ? 32 * PAGE : PAGE;
}

static void stamp(const mapping *m)
{
    for (size_t at = 0; at < m->size; at += stride(m)) {
        uint64_t *first = stamp_at(m->start + at);
        uint64_t *last = stamp_at(m->start + at + PAGE - sizeof *last);
        NEED(*first == 0 && *last == 0);
        *first = *last = m->stamp + at;
    }
}

static void check_stamps(const mapping *m)
{
    for (size_t at = 0; at < m->size; at += stride(m)) {
        NEED(*stamp_at(m->start + at) == m->stamp + at);
        NEED(*stamp_at(m->start + at + PAGE - sizeof(uint64_t)) == m->stamp + at);
    }
}

static void count_place(const mapping *m)
{
    uintptr_t base;
    size_t span;
    ga_pages_span(&base, &span);
    uintptr_t offset = (uintptr_t)m->start - base;
    NEED(offset >= span || m->size <= span - offset);
    NEED(offset >= span || m->size < LARGE || (uintptr_t)m->start % LARGE == 0);
    __atomic_fetch_add(offset < span ? &inside : &outside, 1, __ATOMIC_RELAXED);
}

static void map_one(mapping *m, uint64_t *random)
{
    bool large = random_below(random, 64) == 0;
    m->size = large ? LARGE + random_below(random, 4) * PAGE
                    : (1 + random_below(random, PAGES_MAX)) * PAGE;
    m->stamp = random_next(random) | 1;
    void *start =
        ga_pages_mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(start != MAP_FAILED && (uintptr_t)start % PAGE == 0);
    m->start = start;
    NEED(ga_pages_owns(m->start) && ga_pages_owns(m->start + m->size - 1));
    count_place(m);
    stamp(m);
}

static void unmap_one(mapping *m)
{
    check_stamps(m);
    NEED(ga_pages_munmap(m->start, m->size) == 0);
    m->start = NULL;
}

/* Let all threads continue at nearly the same time, without a system call. */
static void meet(size_t *met)
{
    static size_t arrived;
    *met += PAIR;
    /* M1: acquire and release. Pairs with M2: writes before the meeting are visible after it. */
    __atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL);
    /* M2: acquire. Pairs with M1. */
    for (int i = 1; __atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < *met; i++) {
        if (i % 1000 == 0) {
            sched_yield();
        }
    }
}

/* Two threads map at once, from the first call on, which reserves the span. A thread that finds the
 * time over says so before the next meeting, so that no thread waits there alone. */
static void map_at_once(uint64_t *random)
{
    static int last = MEETINGS;
    size_t met = 0;
    /* relaxed: M1/M2 carry it to the other */
    for (int i = 0; i < __atomic_load_n(&last, __ATOMIC_RELAXED); i++) {
        mapping m;
        if (!stress_goes_on()) {
            __atomic_store_n(&last, i + 1, __ATOMIC_RELAXED);
        }
        meet(&met);
        map_one(&m, random);
        meet(&met);
        unmap_one(&m);
    }
}

static void churn(size_t number)
{
    mapping held[HELD] = {0};
    uint64_t random = number;
    if (number < PAIR) {
        map_at_once(&random);
    }
    while (stress_goes_on()) {
        mapping *m = &held[random_below(&random, HELD)];
        if (m->start) {
            unmap_one(m);
        } else {
            map_one(m, &random);
        }
    }
    for (mapping *m = held; m < held + HELD; m++) {
        if (m->start) {
            unmap_one(m);
        }
    }
}

int main(int argc, char **argv)
{
    static char foreign;
    uintptr_t base;
    size_t span;
    stress_begin(argc, argv);
    stress_threads(THREADS, churn);
    ga_pages_span(&base, &span);
    NEED(!ga_pages_owns(&foreign) && !ga_pages_owns(NULL));
    NEED(!span || (ga_pages_owns((void *)base) && ga_pages_owns((void *)(base + span - 1))));
    NEED(inside + outside > 0 && (inside == 0) == (span == 0));
    /* A short span must have run out; otherwise the test did not reach the plain mappings. */
    NEED(span > SHORT || outside > 0);
    printf("pages: %lu mappings within a span of %zu MiB, %lu outside\n", inside, span >> 20,
           outside);
    return 0;
}
