/* SPDX-License-Identifier: MIT
 *
 * Pages from one span of addresses, so that ownership is a range test.
 *
 *   base                start         top                                base + size
 *   | mark | never used  | mapped, one after another | nothing is mapped yet    |
 *
 * ga_pages_mmap
 *   map_inside           carve() addresses, map them; other mappings in the way: carve again
 *   map_outside          the span is full or absent: plain mmap(), marked in the ownership map
 *
 * STRUCTURE  a span of addresses far from the kernel's usual place for mappings, carved by moving
 *            `top`; past its end, plain mmap and the ownership map
 * INVARIANT  base <= start <= top <= base + size; addresses above `top` are not mapped by us
 * ORDER      PP1/PP2 publish the span, and PP3/PP4 for queries that do not wait. `top` is relaxed:
 *            it only hands out addresses, and the kernel orders the operations on the pages there.
 * PROGRESS   lock-free; the choice of the span makes other threads wait for a system call
 *
 * The span is not reserved: a large PROT_NONE mapping would count against a limit on address space
 * that the program sets later, and every mapping would fail from then on. Pages are mapped at the
 * carved address or, if another mapping is there, further up.
 *
 * An unmapped range is reused only if it is the topmost. jemalloc keeps its address ranges
 * (retain), so that only the trimmings of aligned mappings are lost. When the span is used up,
 * plain mappings take over.
 */
#include "pages.h"
#include "environment.h"
#include "log.h"
#include "pagemap.h"
#include "size.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000 /* older kernels treat the address as a hint */
#endif

static const size_t SPAN_MAX = (size_t)16 << 40;
static const size_t HUGE = (size_t)2 << 20;
static const size_t OUTSIDE_MAX = (size_t)1 << 40; /* marking more would take minutes */

enum {
    UNTRIED = 0,
    TRYING,
    SETTLED
};

enum {
    COPIES = 4, /* copies of this library in one process: a program's, a preload's, ... */
    TRIES = 64  /* positions in the span to try before a mapping is made outside */
};

static int span_state;
static uintptr_t span_base; /* base and size are set once, before SETTLED */
static size_t span_size;    /* bytes; 0: there is no span */
static uintptr_t span_top;

/* ---- the span ----------------------------------------------------------------------------- */

/* An address that the kernel chooses for a mapping: usually close below the top of the address
 * space. Emulators that choose from below get a value that all of them allow. */
static uintptr_t sample_address(void)
{
    void *sample = mmap(NULL, HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sample == MAP_FAILED) {
        return 0;
    }
    munmap(sample, HUGE);
    uintptr_t least = (uintptr_t)1 << 38;
    return (uintptr_t)sample >= least ? (uintptr_t)sample : (uintptr_t)1 << 44;
}

/* Map one inaccessible huge page at `base` as a mark. Fails if the addresses are in use, because
 * another copy of this library in the process has the span. Fails also under the thread sanitizer,
 * which moves such requests elsewhere. Without MAP_FIXED_NOREPLACE, with which the sanitizer would
 * map at address 0. */
static bool claim(uintptr_t base)
{
    void *mark =
        mmap((void *)base, HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mark != MAP_FAILED && (uintptr_t)mark != base) {
        munmap(mark, HUGE);
    }
    return mark != MAP_FAILED && (uintptr_t)mark == base;
}

/* The first free span from `base` downwards; 0: none. */
static uintptr_t claim_first_free(uintptr_t base, size_t size)
{
    for (int copy = 0; copy < COPIES && size && base > size; copy++, base -= size) {
        if (claim(base)) {
            return base;
        }
    }
    return 0;
}

/* The span's size in bytes: `size`, or less if GPUALLOC_RESERVE says so. */
static size_t requested_size(size_t size)
{
    uint64_t requested = size;
    const char *text = ga_environment("GPUALLOC_RESERVE");
    if (text && *text && !ga_size_parse(text, &requested)) {
        ga_log(GA_LOG_ERROR, "GPUALLOC_RESERVE: expected a size such as 64G, or 0, got \"%.80s\"",
               text);
    }
    return requested < size ? requested & ~(uint64_t)(HUGE - 1) : size;
}

/* A random offset within the first half of the span, so that addresses cannot be guessed. */
static size_t random_offset(size_t size)
{
    uint64_t bits = 0;
    const void *random = (const void *)getauxval(AT_RANDOM);
    if (random) {
        memcpy(&bits, random, sizeof bits);
    }
    return size >= 4 * HUGE ? bits % (size / 2) & ~(HUGE - 1) : 0;
}

/* Choose at most an eighth of the address space, below its middle. On all systems that we know,
 * programs, heaps, libraries and stacks are elsewhere. */
static void choose(void)
{
    int saved = errno;
    uintptr_t sample_at = sample_address();
    size_t size = SPAN_MAX;
    while (size > sample_at / 8) {
        size /= 2;
    }
    size_t requested = requested_size(size);
    span_base = requested ? claim_first_free((sample_at / 2) & ~(size - 1), size) : 0;
    span_top = span_base + HUGE + random_offset(requested);
    /* PP3: release. Pairs with PP4: a thread that sees a size other than 0 sees the base. */
    __atomic_store_n(&span_size, span_base ? requested : 0, __ATOMIC_RELEASE);
    errno = saved;
}

static void settle(void)
{
    int expected = UNTRIED;
    /* relaxed: elects the thread that chooses; PP1/PP2 publish the result */
    if (__atomic_compare_exchange_n(&span_state, &expected, TRYING, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
        choose();
        /* PP1: release. Pairs with PP2: base and size are seen with SETTLED. */
        __atomic_store_n(&span_state, SETTLED, __ATOMIC_RELEASE);
        return;
    }
    /* PP2: acquire. Pairs with PP1. */
    while (__atomic_load_n(&span_state, __ATOMIC_ACQUIRE) != SETTLED) {
        sched_yield();
    }
}

void ga_pages_span(uintptr_t *base, size_t *size)
{
    /* PP2: acquire. Pairs with PP1. */
    if (__atomic_load_n(&span_state, __ATOMIC_ACQUIRE) != SETTLED) {
        settle();
    }
    *base = span_base;
    *size = span_size;
}

/* Does not wait for the span: until it is chosen, no address lies in it. */
static bool in_span(uintptr_t address)
{
    /* PP4: acquire. Pairs with PP3. */
    size_t size = __atomic_load_n(&span_size, __ATOMIC_ACQUIRE);
    return size != 0 && address - span_base < size;
}

bool ga_pages_owns(const void *pointer)
{
    return in_span((uintptr_t)pointer) || ga_pagemap_test(pointer);
}

/* ---- carving ------------------------------------------------------------------------------ */

/* Addresses for `size` bytes; 0 if the span is full. Aligned to 2 MiB from 2 MiB on, so that
 * jemalloc finds its alignment at the first attempt. */
static uintptr_t carve(size_t size)
{
    uintptr_t base;
    size_t span;
    ga_pages_span(&base, &span);
    uintptr_t top = __atomic_load_n(&span_top, __ATOMIC_RELAXED); /* relaxed, see ORDER */
    for (;;) {
        uintptr_t start = size >= HUGE ? (top + HUGE - 1) & ~(HUGE - 1) : top;
        if (start - base > span || size > span - (start - base)) {
            return 0;
        }
        if (__atomic_compare_exchange_n(&span_top, &top, start + size, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            return start;
        }
    }
}

/* Undo carve() of [start, start + size), where nothing is mapped, if nothing was carved after
 * it. */
static void uncarve(uintptr_t start, size_t size)
{
    uintptr_t expected = start + size;
    __atomic_compare_exchange_n(&span_top, &expected, start, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED); /* relaxed, see ORDER */
}

/* Map at exactly `start`, or fail with EEXIST if another mapping is there. */
static void *map_at(uintptr_t start, size_t size, int prot, int flags)
{
    void *mapped = mmap((void *)start, size, prot, flags | MAP_FIXED_NOREPLACE, -1, 0);
    if (mapped != MAP_FAILED && (uintptr_t)mapped != start) {
        munmap(mapped, size);
        errno = EEXIST;
        return MAP_FAILED;
    }
    return mapped;
}

/* NULL if the span has no room; MAP_FAILED without memory. */
static void *map_inside(size_t size, int prot, int flags)
{
    for (int i = 0; i < TRIES; i++) {
        uintptr_t start = carve(size);
        void *mapped = start ? map_at(start, size, prot, flags) : NULL;
        if (mapped != MAP_FAILED) {
            return mapped;
        }
        if (errno == ENOMEM) {
            uncarve(start, size);
            return MAP_FAILED;
        }
    }
    return NULL;
}

static void *map_outside(size_t size, int prot, int flags)
{
    if (size > OUTSIDE_MAX) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *start = mmap(NULL, size, prot, flags, -1, 0);
    if (start != MAP_FAILED && !ga_pagemap_mark(start, size)) {
        munmap(start, size);
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return start;
}

void *ga_pages_mmap(void *hint, size_t size, int prot, int flags, int fd, off_t offset)
{
    if (flags & MAP_FIXED) { /* pages of ours that are to be committed or dropped */
        return mmap(hint, size, prot, flags, fd, offset);
    }
    void *mapped = map_inside(size, prot, flags);
    return mapped ? mapped : map_outside(size, prot, flags);
}

static int unmap(void *start, size_t size)
{
    int result = munmap(start, size);
    if (result == 0 && in_span((uintptr_t)start)) {
        uncarve((uintptr_t)start, size);
    }
    return result;
}

int ga_pages_munmap(void *start, size_t size)
{
    int saved = errno;
    int result = unmap(start, size);
    errno = saved;
    return result;
}

int ga_pages_madvise(void *start, size_t size, int advice)
{
    int saved = errno;
    int result = madvise(start, size, advice);
    errno = saved;
    return result;
}

int ga_pages_mprotect(void *start, size_t size, int prot)
{
    int saved = errno;
    int result = mprotect(start, size, prot);
    errno = saved;
    return result;
}
