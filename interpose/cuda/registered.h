/* SPDX-License-Identifier: MIT
 *
 * Device memory that a communication library has registered. Peers and network cards access the
 * physical memory. So a registered block that the program frees stays as it is, neither reused nor
 * unmapped, until its last registration ends. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_REGISTERED_H
#define GPUALLOC_INTERPOSE_CUDA_REGISTERED_H

#include "blocks.h"

typedef struct ga_cuda_registration ga_cuda_registration;

/* Make a registration before the library's call, so that none that succeeds is left without one. It
 * counts from now on, so that the end of another one does not free the memory during the call, and
 * is not found until ga_cuda_registration_made(). NULL: out of memory. */
ga_cuda_registration *ga_cuda_registration_new(const void *owner, const void *start, size_t size);

/* True if its memory is a heap's, and free to the program: in no live block, and in none that is
 * kept. */
bool ga_cuda_registration_is_of_free_memory(const ga_cuda_registration *made);

/* The library has made it, under its handle; NULL: not known yet. Returns its number. If the call
 * failed, end it by ga_cuda_registration_end() instead. */
uint64_t ga_cuda_registration_made(ga_cuda_registration *made, const void *handle);

/* For one that was made without a handle: give the handle; or the place where the library stores
 * it by the time when the owner has no operation in progress. Both do nothing if it has ended. */
void ga_cuda_registration_name(uint64_t number, const void *handle);
void ga_cuda_registration_await(uint64_t number, void **handle);

/* Take registrations, to be ended or restored: by handle (of several the smallest range, because
 * the largest stays registered until all have ended), by number, or all of an owner. They count,
 * but are not found again. A list; NULL: there is none. Take them before the library's call,
 * because it may give a handle out again at once. */
ga_cuda_registration *ga_cuda_registration_take(const void *owner, const void *handle);
ga_cuda_registration *ga_cuda_registration_take_number(uint64_t number);
ga_cuda_registration *ga_cuda_registration_take_all(const void *owner);

/* The number of the last operation that began; 0: none is in progress. Ask for it before asking the
 * library whether the owner has an operation in progress. */
uint64_t ga_cuda_registration_begun(void);

/* Of the operations up to the number `begun` the owner has none in progress: read the handles that
 * were awaited. Another thread may have begun later ones meanwhile. */
void ga_cuda_registration_settle(const void *owner, uint64_t begun);

/* Take what had failed or was to end when the owner's were last settled. */
ga_cuda_registration *ga_cuda_registration_take_ended(const void *owner);

/* One list of two. */
ga_cuda_registration *ga_cuda_registration_join(ga_cuda_registration *taken,
                                                ga_cuda_registration *more);

/* Give back what was taken, after a call that failed; with `ends`, after one that the library
 * carries out later. */
void ga_cuda_registration_restore(ga_cuda_registration *taken, bool ends);

/* End a list of registrations that were taken, and free the blocks that stayed for them. */
void ga_cuda_registration_end(ga_cuda_registration *taken);

/* If a registration overlaps the removed block, keep it until none does. False: none does. */
bool ga_cuda_registered_hold(ga_cuda_block *block);

/* True if a block that starts there is kept, which is free to the program. */
bool ga_cuda_registered_has_held(CUdeviceptr start);

/* Forget the registrations of a device's memory, which is about to go. Returns the blocks that
 * stayed, to be freed by the caller. */
ga_cuda_blocks_list ga_cuda_registered_reset(int device);

/* Around fork(2). */
void ga_cuda_registered_lock(void);
void ga_cuda_registered_unlock(void);

#endif
