/* SPDX-License-Identifier: MIT
 *
 * Records of a CUDA program's live blocks, by address: which heap or driver serves a block, and
 * which block holds an address. Thread safe; one lock per set.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_BLOCKS_H
#define GPUALLOC_INTERPOSE_CUDA_BLOCKS_H

#include "../../liballoc/platform/cuda_types.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct ga_cuda_blocks_node;

typedef struct ga_cuda_block {
    CUdeviceptr start;
    size_t size; /* as requested */
    int device;
    unsigned
        generation;    /* of the device's heap; 0: the driver served it. Pinned memory: its flags */
    bool driver_owned; /* the driver frees it, under this address */
    bool imported;     /* exported by another process and mapped here */
    bool is_buffer;    /* of ncclMemAlloc() (buffers.h) */
    bool streamed;     /* requested with a stream, as if from the current pool */
    bool synchronous;  /* SYNC_MEMOPS is set: synchronous work on it synchronises (rdma.h) */
    uint64_t number;   /* CU_POINTER_ATTRIBUTE_BUFFER_ID; 0: the driver has one */
    uint64_t removal;  /* of a driver's block: which removal from the set it is freed by; or 0 */
    struct ga_cuda_blocks_node *record; /* memory for its record; NULL: none, or in a set */
} ga_cuda_block;

/* A set of blocks that do not overlap. */
typedef struct ga_cuda_blocks {
    pthread_mutex_t lock;
    struct ga_cuda_blocks_node *root;
    uint64_t removals; /* of drivers' blocks */
    uint32_t last_rank;
} ga_cuda_blocks;

#define GA_CUDA_BLOCKS_INIT                                                                        \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, NULL, 0, 1                                                      \
    }

/* The blocks of device memory. */
extern ga_cuda_blocks ga_cuda_live;

/* Allocate the memory for a block's record, before the call that allocates the block, so that no
 * block is without a record. False: out of memory. */
bool ga_cuda_blocks_new_record(ga_cuda_block *block);
void ga_cuda_blocks_free_record(ga_cuda_block *block);

/* Add a block; replaces a record with the same start. Cannot fail for a block that has memory for
 * its record, or that was removed and not yet discarded. False: out of memory. */
bool ga_cuda_blocks_insert(ga_cuda_blocks *in, ga_cuda_block *block);

/* Remove the block that starts at `start`, before it is freed. False: there is none. Until
 * ga_cuda_blocks_discard() it can be added again, if the free fails. The record of a driver's block
 * stays in the set until then, marked as being freed, so that a second free does not reach the
 * driver first. */
bool ga_cuda_blocks_remove(ga_cuda_blocks *in, CUdeviceptr start, ga_cuda_block *out);
bool ga_cuda_blocks_is_being_freed(ga_cuda_blocks *in, CUdeviceptr start);
void ga_cuda_blocks_discard(ga_cuda_blocks *in, ga_cuda_block *block);

/* Take a removed block's record out of the set, where a driver's block leaves it. */
void ga_cuda_blocks_detach(ga_cuda_blocks *in, ga_cuda_block *block);

/* A list of removed blocks, last in first out, linked through their records. Not thread safe. */
typedef struct ga_cuda_blocks_node *ga_cuda_blocks_list;

void ga_cuda_blocks_push(ga_cuda_blocks_list *list, ga_cuda_block *block);
bool ga_cuda_blocks_pop(ga_cuda_blocks_list *list, ga_cuda_block *out);
bool ga_cuda_blocks_list_has(const ga_cuda_blocks_list *list, CUdeviceptr start);

/* True if a block of the list holds the address. */
bool ga_cuda_blocks_list_holds(const ga_cuda_blocks_list *list, CUdeviceptr address);

/* Remove any block of the device. False: it has none. */
bool ga_cuda_blocks_remove_of(ga_cuda_blocks *in, int device, ga_cuda_block *out);

/* Remove any block. False: there is none. */
bool ga_cuda_blocks_remove_any(ga_cuda_blocks *in, ga_cuda_block *out);

/* Remove a block that starts in [start, start + size). False: there is none. */
bool ga_cuda_blocks_remove_within(ga_cuda_blocks *in, CUdeviceptr start, size_t size,
                                  ga_cuda_block *out);

/* Find the block that holds an address. */
bool ga_cuda_blocks_find(ga_cuda_blocks *in, CUdeviceptr address, ga_cuda_block *out);

/* Set or clear the block's SYNC_MEMOPS mark; does nothing if the block is gone. */
void ga_cuda_blocks_set_synchronous(ga_cuda_blocks *in, const ga_cuda_block *block,
                                    bool synchronous);

/* True if a block of the device has the mark. */
bool ga_cuda_blocks_any_synchronous(ga_cuda_blocks *in, int device);

/* Around fork(2). */
void ga_cuda_blocks_lock(ga_cuda_blocks *in);
void ga_cuda_blocks_unlock(ga_cuda_blocks *in);

#endif
