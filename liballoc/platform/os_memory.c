/* SPDX-License-Identifier: MIT
 *
 * The C library's calls, as they are.
 */
#include "os_memory.h"

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
