/* SPDX-License-Identifier: MIT
 *
 *   base                      top                                        base + size
 *   | mapped, one after another | reserved: PROT_NONE, nothing committed   |
 *
 * STRUCTURE  one span, carved by moving `top`; past its end, plain mmap and the ownership map
 * INVARIANT  base <= top <= base + size; what lies above top is PROT_NONE
 * ORDER      P1/P2 publish the span, and P3/P4 for who asks without waiting. `top` is relaxed: it
 *            only deals out addresses, and the kernel orders what is done to the pages there.
 * PROGRESS   lock-free; the one-time reservation makes other threads wait for its mmap
 *
 * A range that is unmapped is given back to the span only where it is the topmost. jemalloc keeps
 * its address ranges (retain), so what is lost that way is the trimmings of aligned mappings; when
 * the span has run out all the same, plain mappings take over.
 */
#include "pages.h"
#include "log.h"
#include "pagemap.h"
#include "size.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

static const size_t SPAN_WANTED = (size_t)16 << 40;
static const size_t HUGE = (size_t)2 << 20;
static const size_t OUTSIDE_MOST = (size_t)1 << 40; /* more would take minutes to mark */

enum {
    UNTRIED = 0,
    TRYING,
    SETTLED
};

static int span_state;
static uintptr_t span_base; /* both set once, before SETTLED */
static size_t span_size;    /* 0 where there is no span */
static uintptr_t span_top;

static bool address_space_limited(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/* What to ask for first. None under a limit on address space, which the program means for its own
 * use; GPUALLOC_RESERVE has the last word, for emulators and checkers to which addresses are dear. */
static size_t span_wanted(void)
{
    uint64_t size = address_space_limited() ? 0 : SPAN_WANTED;
    const char *text = getenv("GPUALLOC_RESERVE");
    if (text && *text && !ga_size_parse(text, &size)) {
        ga_log(GA_LOG_ERROR, "GPUALLOC_RESERVE: expected a size such as 64G, or 0, got \"%.80s\"",
               text);
    }
    return size & ~(uint64_t)(HUGE - 1);
}

/* That size, or the first of its halves, quarters, ... that the machine grants. */
static void reserve(void)
{
    int saved = errno;
    size_t wanted = span_wanted();
    for (size_t size = wanted; size && size >= wanted / 1024; size /= 2) {
        void *start =
            mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (start != MAP_FAILED) {
            span_base = (uintptr_t)start;
            span_top = (span_base + HUGE - 1) & ~(HUGE - 1);
            /* P3: release. Pairs with P4: a size that is not 0 is seen with its base. */
            __atomic_store_n(&span_size, size, __ATOMIC_RELEASE);
            break;
        }
    }
    errno = saved;
}

static void settle(void)
{
    int expected = UNTRIED;
    /* relaxed: only elects the thread that reserves; P1/P2 publish what it did */
    if (__atomic_compare_exchange_n(&span_state, &expected, TRYING, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
        reserve();
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

/* Take [start, start + size), which is PROT_NONE again, back if nothing was carved after it. */
static void uncarve(uintptr_t start, size_t size)
{
    uintptr_t expected = start + size;
    __atomic_compare_exchange_n(&span_top, &expected, start, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED); /* relaxed, see ORDER */
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
    uintptr_t start = carve(size);
    if (!start) {
        return map_outside(size, prot, flags);
    }
    void *mapped = mmap((void *)start, size, prot, flags | MAP_FIXED, -1, 0);
    if (mapped == MAP_FAILED) {
        uncarve(start, size);
    }
    return mapped;
}

static int unmap(void *start, size_t size)
{
    if (!in_span((uintptr_t)start)) {
        return munmap(start, size);
    }
    void *dropped = mmap(start, size, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (dropped == MAP_FAILED) {
        return -1;
    }
    uncarve((uintptr_t)start, size);
    return 0;
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
