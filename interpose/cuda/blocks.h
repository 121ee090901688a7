/* SPDX-License-Identifier: MIT
 *
 * The live blocks of a CUDA program, by address: who serves each, and whose an address within one
 * is. Thread safe; one lock for a set.
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
    size_t size; /* as asked for */
    int device;
    unsigned generation; /* of the device's heap; 0: the driver served it. Pinned: its flags */
    bool drivers;        /* freed by the driver, under this address */
    bool guest;          /* another process's, mapped here */
    bool streamed;       /* it was asked for with a stream, as of the current pool */
    bool synchronous;    /* synchronous work on it synchronizes (rdma.h) */
    uint64_t number;     /* CU_POINTER_ATTRIBUTE_BUFFER_ID; 0: the driver's */
    struct ga_cuda_blocks_node *note; /* memory to note it in; NULL: none, or it is in a set */
} ga_cuda_block;

/* A set of blocks that do not overlap. */
typedef struct ga_cuda_blocks {
    pthread_mutex_t lock;
    struct ga_cuda_blocks_node *root;
    uint32_t last_rank;
} ga_cuda_blocks;

#define GA_CUDA_BLOCKS_INIT                                                                        \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, NULL, 1                                                         \
    }

/* Those of device memory. */
extern ga_cuda_blocks ga_cuda_live;

/* Memory to note the block in, before the call that makes it: a block that cannot be noted is not
 * made. False: there is none. */
bool ga_cuda_blocks_reserve(ga_cuda_block *block);
void ga_cuda_blocks_unreserve(ga_cuda_block *block);

/* Note a block; one that stood there before is forgotten. Cannot fail for a block with memory for
 * the note, or one that was taken and is not gone. False: there is no memory. */
bool ga_cuda_blocks_put(ga_cuda_blocks *in, ga_cuda_block *block);

/* Strike out the block that starts there. False: none does. Until ga_cuda_blocks_gone() it can be
 * put again. A block of the driver's is going until then: a second free of it must not come to the
 * driver first. */
bool ga_cuda_blocks_take(ga_cuda_blocks *in, CUdeviceptr start, ga_cuda_block *out);
bool ga_cuda_blocks_is_going(ga_cuda_blocks *in, CUdeviceptr start);
void ga_cuda_blocks_gone(ga_cuda_blocks *in, ga_cuda_block *block);

/* Out of the set, with its note, which a block of the driver's leaves there when it is taken. */
void ga_cuda_blocks_withdraw(ga_cuda_blocks *in, ga_cuda_block *block);

/* A list of taken blocks, the last first, in the memory of their notes. Not thread safe. */
typedef struct ga_cuda_blocks_node *ga_cuda_blocks_list;

void ga_cuda_blocks_push(ga_cuda_blocks_list *list, ga_cuda_block *block);
bool ga_cuda_blocks_pop(ga_cuda_blocks_list *list, ga_cuda_block *out);
bool ga_cuda_blocks_lists(const ga_cuda_blocks_list *list, CUdeviceptr start);

/* Strike out any block of the device. False: it has none. */
bool ga_cuda_blocks_take_any(ga_cuda_blocks *in, int device, ga_cuda_block *out);

/* Strike out any block. False: there is none. */
bool ga_cuda_blocks_take_first(ga_cuda_blocks *in, ga_cuda_block *out);

/* Strike out a block that starts in [start, start + size). False: none does. */
bool ga_cuda_blocks_take_within(ga_cuda_blocks *in, CUdeviceptr start, size_t size,
                                ga_cuda_block *out);

/* The block that holds an address. */
bool ga_cuda_blocks_find(ga_cuda_blocks *in, CUdeviceptr address, ga_cuda_block *out);

/* Set or clear its mark `synchronous`; nothing where that block is gone. */
void ga_cuda_blocks_mark(ga_cuda_blocks *in, const ga_cuda_block *block, bool synchronous);

/* Whether a block of the device has that mark. */
bool ga_cuda_blocks_any_marked(ga_cuda_blocks *in, int device);

/* Around fork(2). */
void ga_cuda_blocks_lock(ga_cuda_blocks *in);
void ga_cuda_blocks_unlock(ga_cuda_blocks *in);

#endif
