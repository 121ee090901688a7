/* SPDX-License-Identifier: MIT
 *
 * The heap of each device that frameworks share, and the figures of it. Thread safe.
 */
#ifndef GPUALLOC_FRAMEWORKS_SLOTS_H
#define GPUALLOC_FRAMEWORKS_SLOTS_H

#include "../platform/cuda_driver.h"

#include <gpualloc/gpualloc.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct ga_slot {
    int state; /* changed once, under the lock of slots.c, by FF1 */
    ga_heap *heap;
    ga_status status; /* FAILED: the status and the sentence */
    char reason[512];
    bool streams;   /* the heap has stream order */
    bool limited;   /* `limit` is in force */
    uint64_t limit; /* bytes; relaxed, like `used`: figures */
    uint64_t used;
    /* Both guarded by the lock of frameworks.c; NULL until a block of several streams is freed. */
    CUstream free_stream;
    CUevent event;
} ga_slot;

/* The slot of a device, whose heap is opened at the first call. NULL: it could not be opened, for
 * the reason in ga_error_text(). */
ga_slot *ga_slot_open(int device);

/* The slot of a device if its heap is open. NULL and GA_OK: it was not opened yet. Else the error
 * of the opening, or GA_ERR_DEVICE: there can be no such device. */
ga_status ga_slot_find(ga_slot **out, int device);

/* Count a request of `size` bytes. False: the limit forbids it; ga_error_text() says so. */
bool ga_slot_charge(ga_slot *slot, uint64_t size);
void ga_slot_uncharge(ga_slot *slot, uint64_t size);

#endif
