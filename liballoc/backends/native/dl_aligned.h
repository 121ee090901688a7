/* SPDX-License-Identifier: MIT
 *
 * Aligned blocks of a malloc library that does not align all of them.
 */
#ifndef GPUALLOC_NATIVE_DL_ALIGNED_H
#define GPUALLOC_NATIVE_DL_ALIGNED_H

#include <stddef.h>
#include <stdint.h>

typedef void *ga_dl_memalign(size_t align, size_t size);
typedef void ga_dl_free(void *block);

/* An aligned block, or NULL. mimalloc 2.0.9 does not align sizes that are powers of two, so retry
 * with a larger one. */
static inline void *ga_dl_aligned(ga_dl_memalign *memalign, ga_dl_free *release, size_t align,
                                  size_t size)
{
    void *block = memalign(align, size);
    if ((uintptr_t)block % align != 0) {
        release(block);
        block = memalign(align, size + 16);
    }
    if ((uintptr_t)block % align != 0) {
        release(block);
        block = NULL;
    }
    return block;
}

#endif
