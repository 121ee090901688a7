/* SPDX-License-Identifier: MIT
 *
 *   base                start         top                                base + size
 *   | mark | never used  | mapped, one after another | nothing is mapped yet    |
 *
 * STRUCTURE  a span of addresses far from where the kernel puts mappings by itself, carved by moving
 *            `top`; past its end, plain mmap and the ownership map
 * INVARIANT  base <= start <= top <= base + size; what was not carved is not mapped by us
 * ORDER      P1/P2 publish the span, and P3/P4 for who asks without waiting. `top` is relaxed: it
 *            only deals out addresses, and the kernel orders what is done to the pages there.
 * PROGRESS   lock-free; choosing the span makes other threads wait for a system call
 *
 * Nothing is reserved: a large PROT_NONE mapping would count against a limit on address space that
 * the program sets later, and every mapping would fail from then on. Pages are mapped where we ask
 * for them, and where something else stands there, further up.
 *
 * A range that is unmapped is dealt out again only where it is the topmost. jemalloc keeps its
 * address ranges (retain), so what is lost that way is the trimmings of aligned mappings; when the
 * span has run out all the same, plain mappings take over.
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
#define MAP_FIXED_NOREPLACE 0x100000 /* kernels that do not know it take the address as a hint */
#endif

static const size_t SPAN_MOST = (size_t)16 << 40;
static const size_t HUGE = (size_t)2 << 20;
static const size_t OUTSIDE_MOST = (size_t)1 << 40; /* more would take minutes to mark */

enum {
    UNTRIED = 0,
    TRYING,
    SETTLED
};

enum {
    COPIES = 4, /* of this library in one process: a program's, a preload's, ... */
    TRIES = 64  /* places in the span to look at before a mapping goes elsewhere */
};

static int span_state;
static uintptr_t span_base; /* both set once, before SETTLED */
static size_t span_size;    /* 0 where there is no span */
static uintptr_t span_top;

/* ---- the span ----------------------------------------------------------------------------- */

/* An address where the kernel puts mappings: close below the top of what a process has. Emulators
 * that deal out from below get what they all allow. */
static uintptr_t usual_address(void)
{
    void *sample = mmap(NULL, HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sample == MAP_FAILED) {
        return 0;
    }
    munmap(sample, HUGE);
    uintptr_t least = (uintptr_t)1 << 38;
    return (uintptr_t)sample >= least ? (uintptr_t)sample : (uintptr_t)1 << 44;
}

/* Keep one huge page's addresses at `base` for ourselves. Fails where they are in use: another copy
 * of this library in the process has the span; and where they are not ours to have: the thread
 * sanitizer puts such requests elsewhere. Without MAP_FIXED_NOREPLACE, which makes it put them at
 * address 0. */
static bool claim(uintptr_t base)
{
    void *mark =
        mmap((void *)base, HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mark != MAP_FAILED && (uintptr_t)mark != base) {
        munmap(mark, HUGE);
    }
    return mark != MAP_FAILED && (uintptr_t)mark == base;
}

/* The first span that is free, from `base` down; 0: none. */
static uintptr_t claim_first_free(uintptr_t base, size_t size)
{
    for (int copy = 0; copy < COPIES && size && base > size; copy++, base -= size) {
        if (claim(base)) {
            return base;
        }
    }
    return 0;
}

/* GPUALLOC_RESERVE has the last word. */
static size_t most_wanted(size_t size)
{
    uint64_t wanted = size;
    const char *text = ga_environment("GPUALLOC_RESERVE");
    if (text && *text && !ga_size_parse(text, &wanted)) {
        ga_log(GA_LOG_ERROR, "GPUALLOC_RESERVE: expected a size such as 64G, or 0, got \"%.80s\"",
               text);
    }
    return wanted < size ? wanted & ~(uint64_t)(HUGE - 1) : size;
}

/* Where in its first half the span is begun, so that addresses cannot be guessed. */
static size_t random_offset(size_t size)
{
    uint64_t bits = 0;
    const void *random = (const void *)getauxval(AT_RANDOM);
    if (random) {
        memcpy(&bits, random, sizeof bits);
    }
    return size >= 4 * HUGE ? bits % (size / 2) & ~(HUGE - 1) : 0;
}

/* An eighth or less of the addresses, below their middle: on all systems we know, free of programs,
 * heaps, libraries and stacks. */
static void choose(void)
{
    int saved = errno;
    uintptr_t usual = usual_address();
    size_t size = SPAN_MOST;
    while (size > usual / 8) {
        size /= 2;
    }
    size_t wanted = most_wanted(size);
    span_base = wanted ? claim_first_free((usual / 2) & ~(size - 1), size) : 0;
    span_top = span_base + HUGE + random_offset(wanted);
    /* P3: release. Pairs with P4: a size that is not 0 is seen with its base. */
    __atomic_store_n(&span_size, span_base ? wanted : 0, __ATOMIC_RELEASE);
    errno = saved;
}

static void settle(void)
{
    int expected = UNTRIED;
    /* relaxed: only elects the thread that chooses; P1/P2 publish what it did */
    if (__atomic_compare_exchange_n(&span_state, &expected, TRYING, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
        choose();
        /* P1: release. Pairs with P2: base and size are seen with SETTLED. */
        __atomic_store_n(&span_state, SETTLED, __ATOMIC_RELEASE);
        return;
    }
    /* P2: acquire. Pairs with P1. */
    while (__atomic_load_n(&span_state, __ATOMIC_ACQUIRE) != SETTLED) {
        sched_yield();
    }
}

void ga_pages_span(uintptr_t *base, size_t *size)
{
    /* P2: acquire. Pairs with P1. */
    if (__atomic_load_n(&span_state, __ATOMIC_ACQUIRE) != SETTLED) {
        settle();
    }
    *base = span_base;
    *size = span_size;
}

/* Without waiting for the span: until it is there no address lies in it. */
static bool in_span(uintptr_t address)
{
    /* P4: acquire. Pairs with P3. */
    size_t size = __atomic_load_n(&span_size, __ATOMIC_ACQUIRE);
    return size != 0 && address - span_base < size;
}

bool ga_pages_owns(const void *pointer)
{
    return in_span((uintptr_t)pointer) || ga_pagemap_test(pointer);
}

/* ---- carving ------------------------------------------------------------------------------ */

/* Addresses for `size` bytes, 2 MiB aligned from 2 MiB on so that jemalloc finds its alignment at
 * the first try; 0 where the span has no room. */
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

/* Take [start, start + size), where nothing is mapped, back if nothing was carved after it. */
static void uncarve(uintptr_t start, size_t size)
{
    uintptr_t expected = start + size;
    __atomic_compare_exchange_n(&span_top, &expected, start, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED); /* relaxed, see ORDER */
}

/* At `start` or not at all: EEXIST where something stands there. */
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

/* NULL where the span has no place for it. */
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
    if (size > OUTSIDE_MOST) {
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
    if (flags & MAP_FIXED) { /* pages that came from here, to be committed or dropped */
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
