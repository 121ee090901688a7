/* SPDX-License-Identifier: MIT
 *
 * A kernel that maps no more memory, for callers of ga_os_memory.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_REFUSED_MAPS_H
#define GPUALLOC_TESTS_SUPPORT_REFUSED_MAPS_H

#include "platform/os_memory.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

static int maps_refused;

static inline void *mmap_refused(void *hint, size_t size, int prot, int flags, int fd, off_t offset)
{
    (void)hint, (void)size, (void)prot, (void)flags, (void)fd, (void)offset;
    maps_refused++;
    errno = ENOMEM;
    return MAP_FAILED;
}

static inline void refuse_maps(bool refuse)
{
    static ga_os_memory without;
    ga_os_memory_set(NULL);
    without = *ga_os_memory_get();
    without.mmap = mmap_refused;
    ga_os_memory_set(refuse ? &without : NULL);
}

#endif
