/* SPDX-License-Identifier: MIT
 *
 * Blocks of a vmm heap on a device that other processes map: what lies behind them, as file
 * descriptors, and such memory of another process's in this one.
 *
 * A chunk is shared whole: whoever maps a block reaches its neighbours in the same chunks as well.
 */
#ifndef GPUALLOC_ARENA_VMM_SHARE_H
#define GPUALLOC_ARENA_VMM_SHARE_H

#include "vmm_blocks.h"

enum {
    GA_VMM_PIECES = 4096 /* the most */
};

/* Chunks in the order of addresses, as they follow each other without gaps. Owns the list and the
 * descriptors. */
typedef struct ga_vmm_pieces {
    uint64_t before; /* bytes of the first that stand before the block */
    size_t count;
    struct ga_vmm_piece {
        uint64_t size; /* bytes */
        int fd;
    } * list;
} ga_vmm_pieces;

/* What the bytes [start, start + size) of a live block lie in. They stay the block's as long as it
 * lives, and stay whoever's has mapped them when it does not.
 *
 * GA_ERR_UNSUPPORTED  the heap was opened without share=fd
 * GA_ERR_POINTER      they are not of one live block
 * GA_ERR_MEMORY       no memory for the list, or more than GA_VMM_PIECES */
ga_status ga_vmm_export(ga_vmm *vmm, const void *start, uint64_t size, ga_vmm_pieces *out);

/* Append a piece, which owns `fd` from then on; on failure `fd` is closed.
 *
 * GA_ERR_MEMORY  no memory for the list, or more than GA_VMM_PIECES */
ga_status ga_vmm_pieces_add(ga_vmm_pieces *pieces, uint64_t size, int fd);

/* All pieces that a backend's export_memory() passes; its errors, or those of ga_vmm_pieces_add(). */
ga_status ga_vmm_pieces_collect(const ga_backend *backend, void *state, const void *start,
                                uint64_t size, ga_vmm_pieces *out);

/* Close the descriptors and free the list. A descriptor of -1 belongs to somebody else by now. */
void ga_vmm_pieces_drop(ga_vmm_pieces *pieces);

/* The same pieces once more, with descriptors of their own. GA_ERR_MEMORY: there are none. */
ga_status ga_vmm_pieces_copy(const ga_vmm_pieces *from, ga_vmm_pieces *out);

/* Another process's pieces, mapped side by side in this one. */
typedef struct ga_vmm_guest {
    ga_space space;
    uintptr_t base;
    uint64_t reserved, mapped; /* bytes from the base on */
    uint64_t *handles; /* to pieces: room for all, those that the driver would not release */
    size_t handle_count;
} ga_vmm_guest;

/* Map them for a device; the caller keeps the descriptors. That device must reach the memory, which
 * may be another's. Thread safe, as is closing.
 *
 * Where it fails, what the driver would not take back at once is in `guest` yet: to be closed, too.
 *
 * GA_ERR_ARGUMENT     sizes that are none of chunks
 * GA_ERR_UNSUPPORTED  the device cannot take memory as file descriptors
 * GA_ERR_DEVICE, GA_ERR_MEMORY  the driver refuses, or there is no memory for the list */
ga_status ga_vmm_guest_open(ga_vmm_guest *guest, int device, const ga_vmm_pieces *pieces);

/* Nobody may be using it. False: the driver would not take all of it back, and ga_error_text() says
 * why; the rest is in `guest`, to be closed once more. One that is closed may be closed again. */
bool ga_vmm_guest_close(ga_vmm_guest *guest);

#endif
