/* SPDX-License-Identifier: MIT
 *
 * A client of a heap for device memory. It allocates in stream order if the heap has it, else with
 * plain calls. Has the device's streams and queries the driver about its memory. For one thread.
 */
#ifndef BENCH_ARENA_CLIENT_H
#define BENCH_ARENA_CLIENT_H

#include "trace.h"

#include "platform/cuda_driver.h"

typedef struct client {
    ga_heap *heap;
    bool ordered; /* false once the heap has refused stream order */
    ga_cuda_scope scope;
    CUstream streams[TRACE_STREAMS];
    CUevent event;
    CUdeviceptr ballast; /* memory that is held back from the heap, or 0 */
} client;

/* Enter the heap's device and create streams that wait for no others. If `card` is not 0 and more
 * memory is free, the rest is held back, so that every allocator sees a card of that size. Call
 * client_leave() only after GA_OK. */
ga_status client_enter(client *c, ga_heap *heap, uint64_t card);
void client_leave(client *c);

/* Free bytes of the device, from the driver. */
ga_status client_free_bytes(const client *c, uint64_t *out);

/* Wait for all work on the device. */
ga_status client_settle(const client *c);

/* `stream`: an index into the client's streams. */
static inline ga_status client_get(client *c, uint64_t size, unsigned stream, void **out)
{
    if (c->ordered) {
        ga_status status = ga_alloc_on(c->heap, size, 0, c->streams[stream], out);
        if (status != GA_ERR_UNSUPPORTED) {
            return status;
        }
        c->ordered = false;
    }
    return ga_alloc(c->heap, size, 0, out);
}

static inline ga_status client_give(client *c, void *block, unsigned stream)
{
    return c->ordered ? ga_free_on(c->heap, block, c->streams[stream]) : ga_free(c->heap, block);
}

#endif
