/* SPDX-License-Identifier: MIT
 *
 * The kernel's memory calls as a table of functions, so that tests can make them fail. They behave
 * as their manual pages say, with errno and MAP_FAILED.
 *
 * Thread safe except ga_os_memory_set().
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

/* Unmap pages that are no longer used. The kernel refuses to split a mapping beyond a limit on
 * their number; such pages are stored and unmapped by a later call. If 1024 ranges are stored
 * already, the loss is logged as a warning. Keeps errno. */
void ga_os_memory_unmap(void *start, size_t size);

/* Try again to unmap the stored pages. */
void ga_os_memory_retry(void);

/* Replace the kernel's calls by `table`; NULL restores them. For tests, while no other thread uses
 * this file. */
void ga_os_memory_set(const ga_os_memory *table);

#endif
