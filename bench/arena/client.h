/* SPDX-License-Identifier: MIT
 *
 * One who asks a heap for device memory: in stream order where the heap has it, by plain calls
 * where it has not. With it the device's streams and what the driver says of its memory.
 *
 * For one thread.
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
    CUdeviceptr ballast; /* what is held back of the card, or 0 */
} client;

/* Enter the heap's device and make its streams, which wait for no others. Where `card` is not 0
 * and more is free, the rest is held back, so that everybody sees a card of that size. Leave after
 * GA_OK only. */
ga_status client_enter(client *c, ga_heap *heap, uint64_t card);
void client_leave(client *c);

/* Bytes that the driver could still give. */
ga_status client_free_bytes(const client *c, uint64_t *out);

/* Wait for all work on the device. */
ga_status client_settle(const client *c);

/* `stream` is an index. */
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
