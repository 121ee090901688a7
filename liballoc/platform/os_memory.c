/* SPDX-License-Identifier: MIT
 *
 * The C library's calls, as they are; and pages that the kernel would not unmap.
 *
 * STRUCTURE  a fixed table of refused pages; an entry is free, taken by a thread, or holds pages
 * ORDER      O1/O2 pass an entry from one owner to the next
 * PROGRESS   lock-free: an entry that another thread has taken is passed over
 */
#include "os_memory.h"

#include "log.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

/* A plain function: mremap() takes its last argument or not. */
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

static const ga_os_memory *stand_in; /* set by tests, while no other thread is in here */

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
    void *start; /* NULL: free; TAKEN: a thread has it */
    size_t size;
} refused[REFUSED];

#define TAKEN ((void *)(uintptr_t)1)

static unsigned refused_count; /* relaxed: a hint */

static bool claim(struct refused *entry, void *expected)
{
    /* O2: acquire. Pairs with O1. Relaxed on failure: nothing of the entry is read then. */
    return __atomic_compare_exchange_n(&entry->start, &expected, TAKEN, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

static void pass_on(struct refused *entry, void *start)
{
    /* O1: release. Pairs with O2: the size is seen with the start. */
    __atomic_store_n(&entry->start, start, __ATOMIC_RELEASE);
}

static void remember(void *start, size_t size)
{
    for (int i = 0; i < REFUSED; i++) {
        if (claim(&refused[i], NULL)) {
            refused[i].size = size;
            __atomic_fetch_add(&refused_count, 1, __ATOMIC_RELAXED);
            pass_on(&refused[i], start);
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
        pass_on(&refused[i], done ? NULL : start);
    }
    errno = saved;
}

void ga_os_memory_release(void *start, size_t size)
{
    int saved = errno;
    if (ga_os_memory_get()->munmap(start, size)) {
        remember(start, size);
    } else {
        ga_os_memory_retry();
    }
    errno = saved;
}
