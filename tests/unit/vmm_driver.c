/* SPDX-License-Identifier: MIT
 *
 * The driver made of host memory keeps the rules of the real one that tests rely on.
 */
#include "support/vmm_driver.h"

#include "support/expect.h"
#include "support/readable.h"

#include <string.h>
#include <unistd.h>

enum {
    GRANULE = 2 << 20
};

static const ga_cuda_driver *cuda;

static void begin(const vmm_driver_options *options)
{
    vmm_driver_start(options);
    assert_ok(ga_cuda_driver_get(&cuda));
}

static void enter(ga_cuda_scope *scope, int device)
{
    assert_ok(ga_cuda_enter(scope, device));
}

#define assert_cuda(call, wanted)                                                                  \
    do {                                                                                           \
        CUresult got_ = (call);                                                                    \
        cr_assert_eq(got_, (wanted), "%s: %d", #call, (int)got_);                                  \
    } while (0)

#define assert_done(call)    assert_cuda(call, CUDA_SUCCESS)
#define assert_invalid(call) assert_cuda(call, CUDA_ERROR_INVALID_VALUE)

static CUdeviceptr reserve(size_t size)
{
    CUdeviceptr base = 0;
    assert_done(cuda->cuMemAddressReserve(&base, size, 0, 0, 0));
    return base;
}

static CUmemAllocationProp prop_of(int types)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = types,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
}

static CUmemGenericAllocationHandle create(size_t size, int types)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop = prop_of(types);
    assert_done(cuda->cuMemCreate(&handle, size, &prop, 0));
    return handle;
}

static CUresult allow(CUdeviceptr start, size_t size)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuda->cuMemSetAccess(start, size, &access, 1);
}

static char *at(CUdeviceptr pointer)
{
    return (char *)(uintptr_t)pointer;
}

Test(vmm_driver, what_is_mapped_twice_is_one)
{
    begin(NULL);
    CUdeviceptr base = reserve(4 * (size_t)GRANULE);
    CUmemGenericAllocationHandle chunk = create(GRANULE, 0);
    assert_done(cuda->cuMemMap(base, GRANULE, 0, chunk, 0));
    assert_done(cuda->cuMemMap(base + GRANULE, GRANULE, 0, chunk, 0));
    assert_done(cuda->cuMemRelease(chunk));
    assert_done(allow(base, 2 * (size_t)GRANULE));
    strcpy(at(base), "twice");
    cr_assert_str_eq(at(base) + GRANULE, "twice");
    assert_done(cuda->cuMemUnmap(base, GRANULE));
    cr_assert_str_eq(at(base) + GRANULE, "twice");
    assert_done(cuda->cuMemUnmap(base + GRANULE, GRANULE));
    cr_assert_eq(vmm_driver_count().chunks, 0);
    assert_done(cuda->cuMemAddressFree(base, 4 * (size_t)GRANULE));
    cr_assert_eq(vmm_driver_count().ranges, 0);
    vmm_driver_stop();
}

Test(vmm_driver, access_is_given_and_taken)
{
    begin(NULL);
    CUdeviceptr base = reserve(GRANULE);
    cr_assert(!is_readable(at(base)));
    assert_done(cuda->cuMemMap(base, GRANULE, 0, create(GRANULE, 0), 0));
    cr_assert(!is_readable(at(base)));
    assert_done(allow(base, GRANULE));
    cr_assert(is_readable(at(base) + GRANULE - 1));
    assert_done(cuda->cuMemUnmap(base, GRANULE));
    cr_assert(!is_readable(at(base)));
    vmm_driver_stop();
}

Test(vmm_driver, mappings_are_whole)
{
    begin(NULL);
    size_t two = 2 * (size_t)GRANULE;
    CUdeviceptr base = reserve(4 * (size_t)GRANULE);
    CUmemGenericAllocationHandle chunk = create(two, 0);
    assert_invalid(cuda->cuMemMap(base, GRANULE, 0, chunk, 0));
    assert_invalid(cuda->cuMemMap(base, two, GRANULE, chunk, 0));
    assert_invalid(cuda->cuMemMap(base + 4096, two, 0, chunk, 0));
    assert_invalid(cuda->cuMemMap(base + 3 * (size_t)GRANULE, two, 0, chunk, 0));
    assert_invalid(cuda->cuMemMap(base, two, 0, chunk + 8, 0));
    assert_done(cuda->cuMemMap(base, two, 0, chunk, 0));
    assert_invalid(cuda->cuMemMap(base, two, 0, chunk, 0));
    assert_invalid(allow(base, GRANULE));
    assert_invalid(allow(base, 2 * two));
    assert_invalid(cuda->cuMemUnmap(base, GRANULE));
    assert_invalid(cuda->cuMemUnmap(base + GRANULE, GRANULE));
    assert_invalid(cuda->cuMemUnmap(base, 2 * two));
    assert_invalid(cuda->cuMemAddressFree(base, 2 * two));
    assert_done(cuda->cuMemUnmap(base, two));
    assert_invalid(cuda->cuMemAddressFree(base, two));
    assert_done(cuda->cuMemAddressFree(base, 2 * two));
    assert_done(cuda->cuMemRelease(chunk));
    assert_invalid(cuda->cuMemRelease(chunk));
    vmm_driver_stop();
}

Test(vmm_driver, memory_is_finite)
{
    begin(&(vmm_driver_options){.memory = 3 * (size_t)GRANULE});
    CUmemGenericAllocationHandle chunk = create(2 * (size_t)GRANULE, 0);
    CUmemGenericAllocationHandle none;
    CUmemAllocationProp prop = prop_of(0);
    assert_cuda(cuda->cuMemCreate(&none, 2 * (size_t)GRANULE, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    vmm_driver_take(0, GRANULE);
    assert_cuda(cuda->cuMemCreate(&none, GRANULE, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    vmm_driver_take(0, 0);
    CUmemGenericAllocationHandle last = create(GRANULE, 0);
    assert_done(cuda->cuMemRelease(last));
    assert_done(cuda->cuMemRelease(chunk));
    assert_done(cuda->cuMemRelease(create(3 * (size_t)GRANULE, 0)));
    vmm_driver_stop();
}

Test(vmm_driver, addresses_where_they_were_wanted)
{
    begin(&(vmm_driver_options){.addresses = 4 * (uint64_t)GRANULE});
    CUdeviceptr first = reserve(GRANULE);
    CUdeviceptr behind = 0;
    CUdeviceptr elsewhere = 0;
    assert_done(cuda->cuMemAddressReserve(&behind, GRANULE, 0, first + GRANULE, 0));
    cr_assert_eq(behind, first + GRANULE);
    assert_done(cuda->cuMemAddressReserve(&elsewhere, GRANULE, 0, first + GRANULE, 0));
    cr_assert_neq(elsewhere, first + GRANULE);
    assert_cuda(cuda->cuMemAddressReserve(&behind, 2 * (size_t)GRANULE, 0, 0, 0),
                CUDA_ERROR_OUT_OF_MEMORY);
    assert_done(cuda->cuMemAddressFree(first, GRANULE));
    cr_assert_eq(reserve(GRANULE), first);
    vmm_driver_stop();
}

Test(vmm_driver, calls_fail_as_planned)
{
    begin(NULL);
    CUdeviceptr base;
    vmm_driver_fail("cuMemAddressReserve", 2, CUDA_ERROR_NOT_PERMITTED);
    reserve(GRANULE);
    cr_assert(!vmm_driver_has_failed());
    assert_cuda(cuda->cuMemAddressReserve(&base, GRANULE, 0, 0, 0), CUDA_ERROR_NOT_PERMITTED);
    cr_assert(vmm_driver_has_failed());
    reserve(GRANULE);
    vmm_driver_fail_many(NULL, 1, 1, CUDA_ERROR_NOT_PERMITTED);
    assert_cuda(cuda->cuMemAddressReserve(&base, GRANULE, 0, 0, 0), CUDA_ERROR_NOT_PERMITTED);
    assert_cuda(cuda->cuMemAddressFree(base, GRANULE), CUDA_ERROR_NOT_PERMITTED);
    reserve(GRANULE);
    cr_assert_eq(vmm_driver_count().ranges, 3);
    cr_assert_eq(vmm_driver_calls("cuMemAddressReserve"), 5);
    cr_assert_eq(vmm_driver_calls(NULL), 6);
    vmm_driver_shut_down();
    assert_cuda(cuda->cuMemAddressFree(base, GRANULE), CUDA_ERROR_DEINITIALIZED);
    vmm_driver_stop();
}

Test(vmm_driver, events_follow_held_streams)
{
    CUstream streams[2];
    CUevent event;
    CUevent after;
    ga_cuda_scope scope;
    begin(NULL);
    enter(&scope, 0);
    cr_assert_eq(vmm_driver_count().streams, 0, "the library's own is not counted");
    assert_done(cuda->cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    assert_done(cuda->cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    assert_done(cuda->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    assert_done(cuda->cuEventCreate(&after, CU_EVENT_DISABLE_TIMING));
    assert_done(cuda->cuEventRecord(event, streams[0]));
    assert_done(cuda->cuEventQuery(event));
    vmm_driver_hold(streams[0]);
    assert_done(cuda->cuEventRecord(event, streams[0]));
    assert_cuda(cuda->cuEventQuery(event), CUDA_ERROR_NOT_READY);
    assert_done(cuda->cuEventRecord(after, streams[1]));
    assert_done(cuda->cuStreamWaitEvent(streams[1], event, 0));
    assert_done(cuda->cuEventQuery(after));
    assert_done(cuda->cuEventRecord(after, streams[1]));
    assert_cuda(cuda->cuEventQuery(after), CUDA_ERROR_NOT_READY);
    assert_cuda(cuda->cuStreamQuery(streams[1]), CUDA_ERROR_NOT_READY);
    vmm_driver_let_go(streams[0]);
    assert_done(cuda->cuEventQuery(event));
    assert_done(cuda->cuEventQuery(after));
    vmm_driver_hold(streams[1]);
    assert_done(cuda->cuEventRecord(after, streams[1]));
    cr_assert_eq(vmm_driver_count().waits, 0);
    assert_done(cuda->cuEventSynchronize(after));
    cr_assert_eq(vmm_driver_count().waits, 1);
    assert_done(cuda->cuEventQuery(after));
    assert_done(cuda->cuStreamDestroy(streams[0]));
    assert_done(cuda->cuStreamDestroy(streams[1]));
    assert_done(cuda->cuEventDestroy(event));
    assert_done(cuda->cuEventDestroy(after));
    ga_cuda_leave(&scope);
    cr_assert_eq(vmm_driver_count().streams + vmm_driver_count().events, 0);
    vmm_driver_stop();
}

Test(vmm_driver, heaps_run_on_it)
{
    ga_heap *heap;
    void *block;
    begin(NULL);
    assert_ok(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "cuda"));
    assert_ok(ga_alloc_zeroed(heap, 1000, 0, &block));
    cr_assert_eq(vmm_driver_count().block_bytes, 1000);
    cr_assert_eq(((char *)block)[999], 0);
    cr_assert(ga_owns(heap, block));
    assert_ok(ga_free(heap, block));
    cr_assert_eq(vmm_driver_count().blocks, 0);
    assert_ok(ga_heap_close(heap));
    vmm_driver_stop();
}

Test(vmm_driver, a_context_that_is_destroyed)
{
    ga_cuda_scope scope;
    begin(&(vmm_driver_options){.devices = 2});
    enter(&scope, 1);
    ga_cuda_leave(&scope);
    vmm_driver_destroy_context(1);
    assert_fails_with(ga_cuda_enter(&scope, 1), GA_ERR_DEVICE,
                      "cuCtxPushCurrent: CUDA_ERROR_CONTEXT_IS_DESTROYED");
    enter(&scope, 0);
    ga_cuda_leave(&scope);
    vmm_driver_stop();
}

Test(vmm_driver, chunks_are_shared_as_files)
{
    begin(NULL);
    int fd = -1;
    size_t size = GRANULE;
    CUmemGenericAllocationHandle chunk = create(size, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle again;
    CUmemGenericAllocationHandle closed = create(size, 0);
    assert_invalid(cuda->cuMemExportToShareableHandle(&fd, closed, 1, 0));
    assert_done(cuda->cuMemExportToShareableHandle(&fd, chunk, 1, 0));
    assert_done(cuda->cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, 1));
    close(fd);
    assert_invalid(cuda->cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, 1));
    CUdeviceptr base = reserve(2 * size);
    assert_done(cuda->cuMemMap(base, size, 0, chunk, 0));
    assert_done(cuda->cuMemMap(base + size, size, 0, again, 0));
    assert_done(allow(base, 2 * size));
    strcpy(at(base), "shared");
    cr_assert_str_eq(at(base) + size, "shared");
    cr_assert(vmm_driver_accessible(at(base), 2 * size, 1));
    cr_assert(!vmm_driver_accessible(at(base), 2 * size, 3));
    vmm_driver_stop();
}
