/* SPDX-License-Identifier: MIT
 *
 * A carrier copies, moves and fills bytes in one place: on the host at once, on a device in stream
 * order. "Its memory" is memory of that place.
 *
 * Only ga_carrier_wait() and ga_carrier_end() wait. Errors are the driver's; the host never fails.
 */
#ifndef GPUALLOC_ARENA_CARRIER_H
#define GPUALLOC_ARENA_CARRIER_H

#include "platform/cuda_driver.h"

typedef struct ga_carrier {
    ga_place place;
    int device;
    CUstream stream; /* NULL: the default stream, and ga_carrier_end() waits */
} ga_carrier;

/* Copy to its memory from the host or, on a device, from any device. The ranges must not
 * overlap. */
ga_status ga_carrier_copy_in(const ga_carrier *carrier, void *to, const void *from, uint64_t size);

/* Copy from its memory, likewise. */
ga_status ga_carrier_copy_out(const ga_carrier *carrier, void *to, const void *from, uint64_t size);

/* Move within its memory; the ranges may overlap. A device cannot copy overlapping ranges, so it
 * moves pieces: through the `room` bytes at `scratch`, which overlap neither range, or directly if
 * the distance is large enough. Overlapping ranges need some scratch. */
ga_status ga_carrier_move(const ga_carrier *carrier, void *to, const void *from, uint64_t size,
                          void *scratch, uint64_t room);

/* Write the `element` bytes at `value` (host memory) `count` times. */
ga_status ga_carrier_fill(const ga_carrier *carrier, void *to, const void *value, size_t element,
                          uint64_t count);

/* Wait for all work so far. */
ga_status ga_carrier_wait(const ga_carrier *carrier);

/* End a call that queued work: waits if the stream is the default stream. Returns `status`, the
 * result of queueing the work, or the first failure since. */
ga_status ga_carrier_end(const ga_carrier *carrier, ga_status status);

#endif
