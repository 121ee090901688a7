/* SPDX-License-Identifier: MIT
 *
 * The kernel's memory calls through the C library, and pages that the kernel refused to unmap.
 *
 * STRUCTURE  a fixed table of refused pages; an entry is free, TAKEN by a thread, or holds pages
 * ORDER      PO1/PO2 pass an entry from one owner to the next
 * PROGRESS   lock-free: a thread skips an entry that another thread has
 */
#include "os_memory.h"

#include "log.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

/* A plain function, because mremap() is variadic. */
static void *move(void *start, size_t size, size_t new_size, int flags, void *new_start)
{
    return mremap(start, size, new_size, flags, new_start);
}

static const ga_os_memory kernel = {
    .mmap = mmap,
    .munmap = munmap,
    .mprotect = mprotect,
    .madvise = madvise,
    .mremap = move,
};

static const ga_os_memory *stand_in; /* set by tests, while no other thread uses this file */

const ga_os_memory *ga_os_memory_get(void)
{
    return stand_in ? stand_in : &kernel;
}

void ga_os_memory_set(const ga_os_memory *table)
{
    stand_in = table;
}

/* ---- pages that the kernel would not unmap ------------------------------------------------- */

enum {
    REFUSED = 1024
};

static struct refused {
    void *start; /* NULL: free; TAKEN: claimed by a thread */
    size_t size;
} refused[REFUSED];

#define TAKEN ((void *)(uintptr_t)1)

static unsigned refused_count; /* relaxed: a hint */

static bool claim(struct refused *entry, void *expected)
{
    /* PO2: acquire. Pairs with PO1. Relaxed on failure: nothing of the entry is read then. */
    return __atomic_compare_exchange_n(&entry->start, &expected, TAKEN, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

static void hand_over(struct refused *entry, void *start)
{
    /* PO1: release. Pairs with PO2: the size is seen with the start. */
    __atomic_store_n(&entry->start, start, __ATOMIC_RELEASE);
}

static void store_refused(void *start, size_t size)
{
    for (int i = 0; i < REFUSED; i++) {
        if (claim(&refused[i], NULL)) {
            refused[i].size = size;
            __atomic_fetch_add(&refused_count, 1, __ATOMIC_RELAXED);
            hand_over(&refused[i], start);
            return;
        }
    }
    ga_log(GA_LOG_WARN, "%zu bytes at %p are lost: munmap() refuses them", size, start);
}

void ga_os_memory_retry(void)
{
    int saved = errno;
    bool any = __atomic_load_n(&refused_count, __ATOMIC_RELAXED);
    for (int i = 0; any && i < REFUSED; i++) {
        void *start = __atomic_load_n(&refused[i].start, __ATOMIC_RELAXED); /* relaxed: a guess */
        if (!start || start == TAKEN || !claim(&refused[i], start)) {
            continue;
        }
        bool done = ga_os_memory_get()->munmap(start, refused[i].size) == 0;
        if (done) {
            __atomic_fetch_sub(&refused_count, 1, __ATOMIC_RELAXED);
        }
        hand_over(&refused[i], done ? NULL : start);
    }
    errno = saved;
}

void ga_os_memory_unmap(void *start, size_t size)
{
    int saved = errno;
    if (ga_os_memory_get()->munmap(start, size)) {
        store_refused(start, size);
    } else {
        ga_os_memory_retry();
    }
    errno = saved;
}
