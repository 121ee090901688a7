/* SPDX-License-Identifier: MIT
 *
 * Pages for an allocator whose blocks are to be recognised by their address. The functions have the
 * signatures of mmap, munmap, madvise and mprotect, but serve pages from one span of addresses, so
 * that "is this block ours" is a subtraction and a comparison. scripts/build-jemalloc compiles
 * jemalloc to call them. All but mmap keep errno, also on failure, as free() must.
 *
 * Thread safe. Never allocates. Called under jemalloc's locks and inside the program's malloc.
 */
#ifndef GPUALLOC_PLATFORM_PAGES_H
#define GPUALLOC_PLATFORM_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

void *ga_pages_mmap(void *hint, size_t size, int prot, int flags, int fd, off_t offset);
int ga_pages_munmap(void *start, size_t size);
int ga_pages_madvise(void *start, size_t size, int advice);
int ga_pages_mprotect(void *start, size_t size, int prot);

/* The span, chosen at the first call. Size 0: there is none (GPUALLOC_RESERVE=0); then every page
 * comes from plain mmap and is marked in the ownership map. */
void ga_pages_span(uintptr_t *base, size_t *size);

/* Whether the pointer lies in memory that ga_pages_mmap() has returned. */
bool ga_pages_owns(const void *pointer);

#endif
