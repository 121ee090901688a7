/* SPDX-License-Identifier: MIT
 *
 * To preload before the allocator under test: the calls that it makes for memory, of which the n-th
 * fails, or all from the n-th on.
 *
 *   nth_arm(kind, n, all)   begin to count calls of the kind (a bit mask)
 *   nth_disarm()            returns the number of calls
 *   nth_left()              memory that has not been freed
 *
 * NTH_FROM_START=KIND:N:ALL in the environment arms it from the first call on that finds it. The C
 * library's malloc is reached by glibc's own names for it, which the preload uses; built with
 * NTH_MALLOC also by the public names, for programs that call ga_*.
 */
#undef _FILE_OFFSET_BITS /* it would give mmap() the name of mmap64() */

#include "nth_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static unsigned armed; /* kinds that are counted; relaxed, and so are the others: a test's switch */
static long due, counted;
static int every;
static long mapped, blocks; /* as the others */

EXPORT nth_arm_fn nth_arm;
EXPORT nth_disarm_fn nth_disarm;
EXPORT nth_left_fn nth_left;

void nth_arm(unsigned kinds, long n, int all)
{
    due = n;
    every = all;
    __atomic_store_n(&counted, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&armed, kinds, __ATOMIC_RELAXED);
}

long nth_disarm(void)
{
    __atomic_store_n(&armed, 0, __ATOMIC_RELAXED);
    return __atomic_load_n(&counted, __ATOMIC_RELAXED);
}

nth_amounts nth_left(void)
{
    return (nth_amounts){__atomic_load_n(&mapped, __ATOMIC_RELAXED),
                         __atomic_load_n(&blocks, __ATOMIC_RELAXED)};
}

/* The environment is there once the C library has begun. */
static void arm_from_environment(void)
{
    static bool looked;
    if (!looked && environ) {
        const char *text = getenv("NTH_FROM_START");
        unsigned kinds;
        long n;
        int all;
        looked = true;
        if (text && sscanf(text, "%u:%ld:%d", &kinds, &n, &all) == 3) {
            nth_arm(kinds, n, all);
        }
    }
}

static bool fails(unsigned kind)
{
    arm_from_environment();
    if (!(__atomic_load_n(&armed, __ATOMIC_RELAXED) & kind)) {
        return false;
    }
    long number = __atomic_add_fetch(&counted, 1, __ATOMIC_RELAXED);
    bool failing = every ? number >= due : number == due;
    errno = failing ? ENOMEM : errno;
    return failing;
}

/* ---- the kernel's calls --------------------------------------------------------------------- */

EXPORT void *mmap(void *hint, size_t size, int prot, int flags, int fd, off_t offset)
{
    void *start = fails(NTH_MMAP) ? MAP_FAILED
                                  : (void *)syscall(SYS_mmap, hint, size, prot, flags, fd, offset);
    if (start != MAP_FAILED && !(flags & MAP_FIXED)) {
        __atomic_fetch_add(&mapped, (long)size, __ATOMIC_RELAXED);
    }
    return start;
}

EXPORT void *mmap64(void *hint, size_t size, int prot, int flags, int fd, off_t offset)
{
    return mmap(hint, size, prot, flags, fd, offset);
}

EXPORT int munmap(void *start, size_t size)
{
    int failed = fails(NTH_MUNMAP) ? -1 : (int)syscall(SYS_munmap, start, size);
    __atomic_fetch_sub(&mapped, failed ? 0 : (long)size, __ATOMIC_RELAXED);
    return failed;
}

EXPORT int mprotect(void *start, size_t size, int prot)
{
    return fails(NTH_MPROTECT) ? -1 : (int)syscall(SYS_mprotect, start, size, prot);
}

EXPORT int madvise(void *start, size_t size, int advice)
{
    return fails(NTH_MADVISE) ? -1 : (int)syscall(SYS_madvise, start, size, advice);
}

EXPORT void *mremap(void *start, size_t size, size_t new_size, int flags, ...)
{
    __builtin_va_list rest;
    __builtin_va_start(rest, flags);
    void *to = flags & MREMAP_FIXED ? __builtin_va_arg(rest, void *) : NULL;
    __builtin_va_end(rest);
    return fails(NTH_MREMAP) ? MAP_FAILED
                             : (void *)syscall(SYS_mremap, start, size, new_size, flags, to);
}

/* ---- the C library's malloc ------------------------------------------------------------------ */

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

#define FIND(name)                                                                                 \
    static __typeof__(name) *found;                                                                \
    if (!found) {                                                                                  \
        *(void **)&found = next(#name);                                                            \
    }

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t align, size_t size);

EXPORT void *__libc_malloc(size_t size)
{
    FIND(__libc_malloc)
    return fails(NTH_MALLOC_CALLS) ? NULL : found(size);
}

EXPORT void *__libc_calloc(size_t count, size_t size)
{
    FIND(__libc_calloc)
    return fails(NTH_MALLOC_CALLS) ? NULL : found(count, size);
}

EXPORT void *__libc_realloc(void *block, size_t size)
{
    FIND(__libc_realloc)
    return fails(NTH_MALLOC_CALLS) ? NULL : found(block, size);
}

EXPORT void *__libc_memalign(size_t align, size_t size)
{
    FIND(__libc_memalign)
    return fails(NTH_MALLOC_CALLS) ? NULL : found(align, size);
}

#ifdef NTH_MALLOC
void __libc_free(void *block);

static void *counted_block(void *block)
{
    __atomic_fetch_add(&blocks, block != NULL, __ATOMIC_RELAXED);
    return block;
}

EXPORT void *malloc(size_t size)
{
    return counted_block(__libc_malloc(size));
}

EXPORT void *calloc(size_t count, size_t size)
{
    return counted_block(__libc_calloc(count, size));
}

EXPORT void *realloc(void *block, size_t size)
{
    void *moved = __libc_realloc(block, size);
    return block ? moved : counted_block(moved);
}

EXPORT void *memalign(size_t align, size_t size)
{
    return counted_block(__libc_memalign(align, size));
}

EXPORT void free(void *block)
{
    __atomic_fetch_sub(&blocks, block != NULL, __ATOMIC_RELAXED);
    __libc_free(block);
}
#endif
