/* SPDX-License-Identifier: MIT
 *
 * Prepares a device for a measurement, and cleans up after it.
 */
#include "client.h"

static ga_status hold_back(client *c, uint64_t card)
{
    uint64_t available;
    ga_status status = client_free_bytes(c, &available);
    if (status == GA_OK && card && available > card) {
        status = GA_CUDA_CALL(c->scope.driver, cuMemAlloc, &c->ballast, available - card);
    }
    return status;
}

static ga_status make_streams(client *c)
{
    ga_status status = GA_OK;
    for (unsigned i = 0; i < TRACE_STREAMS && status == GA_OK; i++) {
        status =
            GA_CUDA_CALL(c->scope.driver, cuStreamCreate, &c->streams[i], CU_STREAM_NON_BLOCKING);
    }
    return status == GA_OK
               ? GA_CUDA_CALL(c->scope.driver, cuEventCreate, &c->event, CU_EVENT_DISABLE_TIMING)
               : status;
}

ga_status client_enter(client *c, ga_heap *heap, uint64_t card)
{
    *c = (client){.heap = heap, .ordered = true};
    ga_status status = ga_cuda_enter(&c->scope, ga_heap_device(heap));
    if (status != GA_OK) {
        return status;
    }
    status = make_streams(c);
    if (status == GA_OK) {
        status = hold_back(c, card);
    }
    if (status != GA_OK) {
        client_leave(c);
    }
    return status;
}

/* Errors of the driver are ignored here, because the measurement is over. */
void client_leave(client *c)
{
    const ga_cuda_driver *driver = c->scope.driver;
    for (unsigned i = 0; i < TRACE_STREAMS && c->streams[i]; i++) {
        driver->cuStreamDestroy(c->streams[i]);
    }
    if (c->event) {
        driver->cuEventDestroy(c->event);
    }
    if (c->ballast) {
        driver->cuMemFree(c->ballast);
    }
    ga_cuda_leave(&c->scope);
}

ga_status client_free_bytes(const client *c, uint64_t *out)
{
    size_t available = 0, total = 0;
    ga_status status = GA_CUDA_CALL(c->scope.driver, cuMemGetInfo, &available, &total);
    *out = available;
    return status;
}

ga_status client_settle(const client *c)
{
    return ga_cuda_check(c->scope.driver, c->scope.driver->cuCtxSynchronize(), "cuCtxSynchronize");
}
