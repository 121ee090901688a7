/* SPDX-License-Identifier: MIT
 *
 * The kernel's memory calls as a table of functions, so that tests can fail them. They are what the
 * manual pages say: errno, MAP_FAILED and all.
 *
 * Thread safe but for ga_os_memory_set().
 */
#ifndef GPUALLOC_PLATFORM_OS_MEMORY_H
#define GPUALLOC_PLATFORM_OS_MEMORY_H

#include <stddef.h>
#include <sys/types.h>

typedef struct ga_os_memory {
    void *(*mmap)(void *hint, size_t size, int prot, int flags, int fd, off_t offset);
    int (*munmap)(void *start, size_t size);
    int (*mprotect)(void *start, size_t size, int prot);
    int (*madvise)(void *start, size_t size, int advice);
    void *(*mremap)(void *start, size_t size, size_t new_size, int flags, void *new_start);
} ga_os_memory;

const ga_os_memory *ga_os_memory_get(void);

/* Unmap pages that nobody uses. Where the kernel refuses (it splits no mapping beyond a number of
 * them), they are remembered and unmapped by a later call; where too many are remembered already,
 * the loss is logged as a warning. errno stays as it was. Thread safe. */
void ga_os_memory_release(void *start, size_t size);

/* Unmap what is remembered. */
void ga_os_memory_retry(void);

/* Put `table` in the kernel's place; NULL undoes it. For tests, while nobody else is in here. */
void ga_os_memory_set(const ga_os_memory *table);

#endif
