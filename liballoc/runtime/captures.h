/* SPDX-License-Identifier: MIT
 *
 * Blocks that belong to stream captures, for heaps on a device.
 *
 * A captured graph names memory by its address and uses it at each launch. So a block that was
 * allocated or freed on a capturing stream is in use until the graph, and everything instantiated
 * from it, has been destroyed. Only then does the block return to its heap. Until then it can serve
 * requests of the same capture on the same stream, because these run after the work that used it
 * before.
 *
 * All functions are thread safe. None waits for a stream.
 */
#ifndef GPUALLOC_RUNTIME_CAPTURES_H
#define GPUALLOC_RUNTIME_CAPTURES_H

#include "heap.h"

/* Serve a request on a capturing stream, and count it. Returns false and does nothing if the stream
 * does not capture; otherwise `*status` and `*out` hold the result, as ga_alloc_on() returns it. */
bool ga_captures_alloc(ga_heap *heap, size_t size, size_t align, ga_stream stream, void **out,
                       ga_status *status);

/* Free a block that a capture uses: it is kept until its graph is destroyed. `stream`: NULL for a
 * free without a stream; then the legacy stream of the heap's device is queried. `reusable`: later
 * requests of the same capture on that stream may use the block. Returns false and does nothing if
 * no capture is known to use the block; otherwise `*status` holds the result. */
bool ga_captures_free(ga_heap *heap, void *block, const ga_stream *stream, bool reusable,
                      ga_status *status);

/* Whether a block of a device heap must not move: a graph uses it, or the legacy stream of the
 * device is part of a capture, which the copy to another block would invalidate. */
bool ga_captures_pin(const ga_heap *heap, const void *block);

/* Free the blocks whose graphs have been destroyed. Two loads if there are none. */
void ga_captures_flush(void);

/* Remove the records of all blocks of a heap that is about to be closed or was reset. `freeing`:
 * first return freed blocks to the heap. */
void ga_captures_forget(ga_heap *heap, bool freeing);

#endif
