/* SPDX-License-Identifier: MIT
 *
 * Sharing blocks of a vmm heap on a device between processes: exporting the chunks behind a block
 * as file descriptors, and mapping such descriptors of another process.
 *
 * Chunks are shared whole: a process that maps a block can also access its neighbours in the same
 * chunks.
 */
#ifndef GPUALLOC_VMM_SHARE_H
#define GPUALLOC_VMM_SHARE_H

#include "blocks.h"

enum {
    GA_VMM_PIECES = 4096 /* most pieces of one block */
};

/* Adjacent chunks in the order of addresses. Owns the list and the descriptors. */
typedef struct ga_vmm_pieces {
    uint64_t before; /* bytes of the first chunk before the block */
    size_t count;
    struct ga_vmm_piece {
        uint64_t size; /* bytes */
        int fd;
    } * list;
} ga_vmm_pieces;

/* Export the chunks that contain the bytes [start, start + size) of a live block. The block owns
 * them as long as it lives; the memory then lives until every process has unmapped it.
 *
 * GA_ERR_UNSUPPORTED  the heap was opened without share=fd
 * GA_ERR_POINTER      the bytes do not lie in one live block
 * GA_ERR_MEMORY       no memory for the list, or more than GA_VMM_PIECES */
ga_status ga_vmm_export(ga_vmm *vmm, const void *start, uint64_t size, ga_vmm_pieces *out);

/* Append a piece. The list owns `fd` from then on; on failure `fd` is closed.
 *
 * GA_ERR_MEMORY  no memory for the list, or more than GA_VMM_PIECES */
ga_status ga_vmm_pieces_add(ga_vmm_pieces *pieces, uint64_t size, int fd);

/* Collect the pieces that a backend's export_memory() passes. Fails with its errors, or those of
 * ga_vmm_pieces_add(). */
ga_status ga_vmm_pieces_collect(const ga_backend *backend, void *state, const void *start,
                                uint64_t size, ga_vmm_pieces *out);

/* Close the descriptors and free the list. A descriptor of -1 has been passed on. */
void ga_vmm_pieces_drop(ga_vmm_pieces *pieces);

/* Another process's pieces, mapped side by side in this process. */
typedef struct ga_vmm_guest {
    ga_space space;
    uintptr_t base;
    uint64_t reserved, mapped; /* bytes from the base on */
    uint64_t *handles;         /* of pieces that the driver refused to release; room for all */
    size_t handle_count;
} ga_vmm_guest;

/* Map the pieces for a device. The caller keeps the descriptors. The memory may be of another
 * device that this one can access. Thread safe, and so is closing.
 *
 * On failure `guest` may still hold memory that the driver refused to take back: close it, too.
 *
 * GA_ERR_ARGUMENT     the sizes are not multiples of the granule
 * GA_ERR_UNSUPPORTED  the device cannot import file descriptors
 * GA_ERR_DEVICE, GA_ERR_MEMORY  the driver refuses, or there is no memory for the list */
ga_status ga_vmm_guest_open(ga_vmm_guest *guest, int device, const ga_vmm_pieces *pieces);

/* The memory must not be in use. Returns false if the driver refuses to take all of it back
 * (ga_error_text() has the reason); close `guest` again later. Closing a closed guest is
 * allowed. */
bool ga_vmm_guest_close(ga_vmm_guest *guest);

#endif
