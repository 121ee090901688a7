/* SPDX-License-Identifier: MIT
 *
 * C++'s operator new in place of the library's own. mimalloc's ends the program when memory is
 * exhausted, instead of throwing, and misaligns blocks.
 *
 *   library defines them:  its malloc or memalign --NULL--> C++'s operator, which calls the new
 *                          handler and throws. The library's operator delete frees the block
 *   else:                  the next definition, as without this library
 *
 * The frees that get size and alignment are here, because aligned.c and the retry for alignment may
 * request another size of the library. jemalloc would put the block into that size's class.
 */
#include "../malloc/entry.h"
#include "library.h"

#include <stdatomic.h>
#include <stdlib.h>

enum {
    NEW = 0,
    NEW_ARRAY,
    NEW_NOTHROW,
    NEW_ARRAY_NOTHROW,
    NEW_ALIGNED,
    NEW_ARRAY_ALIGNED,
    NEW_ALIGNED_NOTHROW,
    NEW_ARRAY_ALIGNED_NOTHROW,
    DELETE_SIZED,
    DELETE_ARRAY_SIZED,
    OPERATORS
};

static const char *const names[OPERATORS] = {
    [NEW] = "_Znwm",
    [NEW_ARRAY] = "_Znam",
    [NEW_NOTHROW] = "_ZnwmRKSt9nothrow_t",
    [NEW_ARRAY_NOTHROW] = "_ZnamRKSt9nothrow_t",
    [NEW_ALIGNED] = "_ZnwmSt11align_val_t",
    [NEW_ARRAY_ALIGNED] = "_ZnamSt11align_val_t",
    [NEW_ALIGNED_NOTHROW] = "_ZnwmSt11align_val_tRKSt9nothrow_t",
    [NEW_ARRAY_ALIGNED_NOTHROW] = "_ZnamSt11align_val_tRKSt9nothrow_t",
    [DELETE_SIZED] = "_ZdlPvmSt11align_val_t",
    [DELETE_ARRAY_SIZED] = "_ZdaPvmSt11align_val_t",
};

/* Arguments that an operator does not have are not read. */
typedef void *plain_operator(size_t size, const void *nothrow);
typedef void *aligned_operator(size_t size, size_t align, const void *nothrow);
typedef void delete_operator(void *block, size_t size, size_t align);

EXPORT void *new_one(size_t size) __asm__("_Znwm");
EXPORT void *new_array(size_t size) __asm__("_Znam");
EXPORT void *new_one_nothrow(size_t size, const void *nothrow) __asm__("_ZnwmRKSt9nothrow_t");
EXPORT void *new_array_nothrow(size_t size, const void *nothrow) __asm__("_ZnamRKSt9nothrow_t");
EXPORT void *new_aligned(size_t size, size_t align) __asm__("_ZnwmSt11align_val_t");
EXPORT void *new_array_aligned(size_t size, size_t align) __asm__("_ZnamSt11align_val_t");
EXPORT void *new_aligned_nothrow(size_t size, size_t align,
                                 const void *nothrow) __asm__("_ZnwmSt11align_val_tRKSt9nothrow_t");
EXPORT void *
new_array_aligned_nothrow(size_t size, size_t align,
                          const void *nothrow) __asm__("_ZnamSt11align_val_tRKSt9nothrow_t");
EXPORT void delete_sized(void *block, size_t size, size_t align) __asm__("_ZdlPvmSt11align_val_t");
EXPORT void delete_array_sized(void *block, size_t size,
                               size_t align) __asm__("_ZdaPvmSt11align_val_t");
EXPORT void free_aligned_sized(void *block, size_t align, size_t size); /* C23 */

static _Atomic(void *) found[OPERATORS];

/* As early as possible, so that usually there is no second thread, and no object that can be
 * unloaded. */
static __attribute__((constructor)) void find_at_start(void)
{
    for (int i = 0; i < OPERATORS; i++) {
        void *next = ga_align_operator_behind(names[i]);
        atomic_store_explicit(&found[i], next, memory_order_relaxed);
    }
}

/* C++'s operator, or another replacement. It is searched for in each call if it was loaded late and
 * is rarely needed. */
static void *next_operator(int which)
{
    void *next = atomic_load_explicit(&found[which], memory_order_relaxed);
    if (!next) {
        next = ga_align_operator_behind(names[which]);
        if (!next) {
            abort(); /* nothing can be thrown */
        }
        if (!ga_align_behind()->has_operators) {
            atomic_store_explicit(&found[which], next, memory_order_relaxed);
        }
    }
    return next;
}

static void *no_block(size_t size)
{
    (void)size;
    return NULL;
}

static void *first_block(size_t size);

/* The library's malloc, or no_block(). */
static void *(*_Atomic plain_block)(size_t size) = first_block;

static void *first_block(size_t size)
{
    const ga_align_library *behind = ga_align_behind();
    void *(*block)(size_t size) = behind->has_operators ? behind->malloc : no_block;
    atomic_store_explicit(&plain_block, block, memory_order_relaxed);
    return block(size);
}

static void *allocate(int which, size_t size, const void *nothrow)
{
    void *block = atomic_load_explicit(&plain_block, memory_order_relaxed)(size);
    if (__builtin_expect(block != NULL, 1)) {
        return block;
    }
    plain_operator *next;
    *(void **)&next = next_operator(which);
    return next(size, nothrow);
}

static void *allocate_aligned(int which, size_t size, size_t align, const void *nothrow)
{
    void *block = ga_align_behind()->has_operators ? aligned_alloc(align, size) : NULL;
    if (__builtin_expect(block != NULL, 1)) {
        return block;
    }
    aligned_operator *next;
    *(void **)&next = next_operator(which);
    return next(size, align, nothrow);
}

void *new_one(size_t size)
{
    return allocate(NEW, size, NULL);
}

void *new_array(size_t size)
{
    return allocate(NEW_ARRAY, size, NULL);
}

void *new_one_nothrow(size_t size, const void *nothrow)
{
    return allocate(NEW_NOTHROW, size, nothrow);
}

void *new_array_nothrow(size_t size, const void *nothrow)
{
    return allocate(NEW_ARRAY_NOTHROW, size, nothrow);
}

void *new_aligned(size_t size, size_t align)
{
    return allocate_aligned(NEW_ALIGNED, size, align, NULL);
}

void *new_array_aligned(size_t size, size_t align)
{
    return allocate_aligned(NEW_ARRAY_ALIGNED, size, align, NULL);
}

void *new_aligned_nothrow(size_t size, size_t align, const void *nothrow)
{
    return allocate_aligned(NEW_ALIGNED_NOTHROW, size, align, nothrow);
}

void *new_array_aligned_nothrow(size_t size, size_t align, const void *nothrow)
{
    return allocate_aligned(NEW_ARRAY_ALIGNED_NOTHROW, size, align, nothrow);
}

static void release(int which, void *block, size_t size, size_t align)
{
    const ga_align_library *behind = ga_align_behind();
    if (behind->has_operators) {
        behind->free(block);
        return;
    }
    delete_operator *next;
    *(void **)&next = next_operator(which);
    next(block, size, align);
}

void delete_sized(void *block, size_t size, size_t align)
{
    release(DELETE_SIZED, block, size, align);
}

void delete_array_sized(void *block, size_t size, size_t align)
{
    release(DELETE_ARRAY_SIZED, block, size, align);
}

void free_aligned_sized(void *block, size_t align, size_t size)
{
    (void)align;
    (void)size;
    ga_align_behind()->free(block);
}
