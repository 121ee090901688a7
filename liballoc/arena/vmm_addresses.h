/* SPDX-License-Identifier: MIT
 *
 * The addresses of a vmm heap: reserved a great many at a time, taken and given in granules, with a
 * note of whose each granule is. Nothing is mapped here.
 *
 * Free pieces are kept in order and joined, and the smallest that is large enough is taken. Sizes
 * are bytes, multiples of the space's granule. Not thread safe: the heap's lock.
 */
#ifndef GPUALLOC_ARENA_VMM_ADDRESSES_H
#define GPUALLOC_ARENA_VMM_ADDRESSES_H

#include "space.h"

typedef struct ga_vmm_piece {
    uintptr_t base;
    uint64_t size;
} ga_vmm_piece;

typedef struct ga_vmm_range ga_vmm_range; /* one reservation */

typedef struct ga_vmm_addresses {
    const ga_space *space;
    uint64_t reserve; /* bytes to reserve at a time */
    ga_vmm_range *ranges;
    size_t range_count;
    ga_vmm_piece *free; /* in the order of addresses */
    size_t free_count, free_room;
    size_t taken; /* pieces: there are never more free ones than these and the ranges */
} ga_vmm_addresses;

/* The first reservation: of `reserve` bytes or, where the system refuses, half, and so on down to
 * 1 GiB. GA_ERR_MEMORY where there is not even that. */
ga_status ga_vmm_addresses_open(ga_vmm_addresses *addresses, const ga_space *space,
                                uint64_t reserve);
void ga_vmm_addresses_close(ga_vmm_addresses *addresses);

/* A free piece at a multiple of `align` (a power of two); reserves more where none is that large.
 * GA_ERR_MEMORY where that is refused. */
ga_status ga_vmm_addresses_take(ga_vmm_addresses *addresses, uint64_t size, uint64_t align,
                                uintptr_t *base);

/* Those directly behind a taken piece, as a part of it. False: they are not free. */
bool ga_vmm_addresses_take_behind(ga_vmm_addresses *addresses, uintptr_t base, uint64_t size);

/* A whole piece as it was taken. Nobody's any more. */
void ga_vmm_addresses_give(ga_vmm_addresses *addresses, uintptr_t base, uint64_t size);

/* Note that they are `owner`'s, a part of a piece or all of it; NULL: nobody's, of a whole piece,
 * which cannot fail. False: no memory for the note. */
bool ga_vmm_addresses_note(ga_vmm_addresses *addresses, uintptr_t base, uint64_t size, void *owner);

/* What can fail in a note: so that notes which begin or end there cannot. False: no memory. */
bool ga_vmm_addresses_prepare(ga_vmm_addresses *addresses, uintptr_t base);

/* Whose that byte is, any pointer; NULL: nobody's. */
void *ga_vmm_addresses_owner(const ga_vmm_addresses *addresses, const void *pointer);

/* ---- taken pieces, cut and joined ---------------------------------------------------------- */

/* Two pieces instead of one. False: no memory for what may come of that. */
bool ga_vmm_addresses_split(ga_vmm_addresses *addresses);

/* One piece instead of two that touch. */
void ga_vmm_addresses_join(ga_vmm_addresses *addresses);

/* Whether pieces may touch there: not from one reservation to the next. */
bool ga_vmm_addresses_may_join(const ga_vmm_addresses *addresses, uintptr_t base);

/* One chunk is mapped there. */
void ga_vmm_addresses_mark(ga_vmm_addresses *addresses, uintptr_t base, uint64_t size);

/* Whether a chunk begins there, where one is mapped. */
bool ga_vmm_addresses_is_mark(const ga_vmm_addresses *addresses, uintptr_t base);

#endif
