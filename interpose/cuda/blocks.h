/* SPDX-License-Identifier: MIT
 *
 * The live blocks of a CUDA program, by address: who serves each, and whose an address within one
 * is. Thread safe; one lock.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_BLOCKS_H
#define GPUALLOC_INTERPOSE_CUDA_BLOCKS_H

#include "../../liballoc/platform/cuda_types.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ga_cuda_block {
    CUdeviceptr start;
    size_t size; /* as asked for */
    int device;
    unsigned generation; /* of the device's heap; 0: the driver served it */
} ga_cuda_block;

/* Note a block; one that stood there before is forgotten. False: there is no memory for the note.
 */
bool ga_cuda_blocks_put(const ga_cuda_block *block);

/* Strike out the block that starts there. False: none does. */
bool ga_cuda_blocks_take(CUdeviceptr start, ga_cuda_block *out);

/* Strike out any block of the device. False: it has none. */
bool ga_cuda_blocks_take_any(int device, ga_cuda_block *out);

/* The block that holds an address. */
bool ga_cuda_blocks_find(CUdeviceptr address, ga_cuda_block *out);

/* Around fork(2). */
void ga_cuda_blocks_lock(void);
void ga_cuda_blocks_unlock(void);

#endif
