/* SPDX-License-Identifier: MIT
 *
 * Blocks that belong to stream captures, for heaps on a device.
 *
 * A captured graph names memory by its address and uses it whenever it is launched. So a block that
 * was allocated on a stream that captured, or freed on one, is in use until the graph and all that
 * was instantiated from it are destroyed. Only then it goes back to its heap. Until then it serves
 * requests of the same capture on the same stream, behind the work that used it before.
 *
 * Thread safe. Nothing here waits for a stream.
 */
#ifndef GPUALLOC_RUNTIME_CAPTURES_H
#define GPUALLOC_RUNTIME_CAPTURES_H

#include "heap.h"

/* Serve a request on a stream that captures, and count it. False: the stream does not capture, and
 * nothing is done. */
bool ga_captures_alloc(ga_heap *heap, size_t size, size_t align, ga_stream stream, void **out,
                       ga_status *status);

/* Keep a block that is freed, until its graph is gone. `stream`: NULL for a free without a stream,
 * where the legacy stream of the heap's device is asked instead. `again`: later requests of the
 * capture on that stream may have it. False: no capture uses the block, as far as can be seen, and
 * nothing is done. */
bool ga_captures_free(ga_heap *heap, void *block, const ga_stream *stream, bool again,
                      ga_status *status);

/* Whether a block of a device's heap must stay where it is: a graph uses it, or the legacy stream of
 * the device is part of a capture, which the copy to another block would end. */
bool ga_captures_pin(const ga_heap *heap, const void *block);

/* Free blocks whose graphs are gone; cheap where there are none. */
void ga_captures_flush(void);

/* Forget all blocks of a heap that is about to close or to be reset; `freeing`: free them first. */
void ga_captures_forget(ga_heap *heap, bool freeing);

#endif
