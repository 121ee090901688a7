/* SPDX-License-Identifier: MIT
 *
 * A carrier copies, moves and fills bytes of one place: on the host at once, on a device in the
 * order of a stream. "Ours" is memory of that place.
 *
 * Nothing here waits but ga_carrier_end(). Statuses are the driver's; the host never fails.
 */
#ifndef GPUALLOC_ARENA_CARRIER_H
#define GPUALLOC_ARENA_CARRIER_H

#include "platform/cuda_driver.h"

typedef struct ga_carrier {
    ga_place place;
    int device;
    CUstream stream; /* NULL: the default stream, and ga_carrier_end() waits */
} ga_carrier;

/* `to` is ours; `from` is host memory or, where we are a device, any device's. They do not
 * overlap. */
ga_status ga_carrier_bring(const ga_carrier *carrier, void *to, const void *from, uint64_t size);

/* The other way. */
ga_status ga_carrier_take(const ga_carrier *carrier, void *to, const void *from, uint64_t size);

/* Both are ours and may overlap. A device copies no overlapping bytes, so it goes by pieces:
 * through the `room` bytes at `scratch`, which lie apart from both, or directly where the two are
 * far enough apart. `scratch` needs some room unless they do not overlap at all. */
ga_status ga_carrier_shift(const ga_carrier *carrier, void *to, const void *from, uint64_t size,
                           void *scratch, uint64_t room);

/* `count` times the `element` bytes at `value`, which is host memory. */
ga_status ga_carrier_fill(const ga_carrier *carrier, void *to, const void *value, size_t element,
                          uint64_t count);

/* All work so far is done. */
ga_status ga_carrier_wait(const ga_carrier *carrier);

/* What a call that gave us work ends with: wait, where the stream is the default one. Answers
 * `status`, what the work had, or the first failure since. */
ga_status ga_carrier_end(const ga_carrier *carrier, ga_status status);

#endif
