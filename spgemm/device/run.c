/* SPDX-License-Identifier: MIT
 *
 * Driver calls of a product on a device.
 */
#include "run.h"

#include "arena/vector_state.h"
#include "platform/cuda_refused.h"

#include <gpualloc/backend.h>

#include <stddef.h>

ga_status ga_spgemm_run_begin(ga_spgemm_device_run *run, const ga_spgemm_product *product)
{
    int count = 0;
    CUdevice device = 0;
    run->device = product->offsets->carrier.device;
    run->stream = product->offsets->carrier.stream;
    ga_status status = ga_cuda_enter(&run->scope, run->device);
    if (status != GA_OK) {
        return status;
    }
    status = GA_CUDA_CALL(run->scope.driver, cuDeviceGet, &device, run->device);
    status = status ? status
                    : GA_CUDA_CALL(run->scope.driver, cuDeviceGetAttribute, &count,
                                   CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    run->multiprocessors = (unsigned)count;
    if (status != GA_OK) {
        ga_cuda_leave(&run->scope);
    }
    return status;
}

void ga_spgemm_run_end(ga_spgemm_device_run *run)
{
    for (size_t i = 0; i < sizeof run->blocks / sizeof *run->blocks; i++) {
        if (run->blocks[i]) {
            ga_cuda_drop_block(run->scope.driver, run->device, run->blocks[i]);
        }
    }
    ga_cuda_leave(&run->scope);
}

/* The driver refuses 0 bytes. */
ga_status ga_spgemm_run_allocate(ga_spgemm_device_run *run, ga_spgemm_scratch block, uint64_t bytes)
{
    ga_status status =
        GA_CUDA_CALL(run->scope.driver, cuMemAlloc, &run->blocks[block], bytes ? bytes : 1);
    run->scratch_bytes += status == GA_OK ? bytes : 0;
    return status == GA_ERR_MEMORY
               ? ga_fail(status, "spgemm: no scratch memory of %llu bytes on device %d",
                         (unsigned long long)bytes, run->device)
               : status;
}

ga_status ga_spgemm_run_clear(ga_spgemm_device_run *run, CUdeviceptr at, uint64_t bytes)
{
    return bytes ? GA_CUDA_CALL(run->scope.driver, cuMemsetD8Async, at, 0, bytes, run->stream)
                 : GA_OK;
}

/* Copy from the device, and wait. */
ga_status ga_spgemm_run_read_back(ga_spgemm_device_run *run, void *to, const void *from,
                                  uint64_t bytes)
{
    ga_status status = GA_CUDA_CALL(run->scope.driver, cuMemcpyDtoHAsync, to, (CUdeviceptr)from,
                                    bytes, run->stream);
    return status ? status : GA_CUDA_CALL(run->scope.driver, cuStreamSynchronize, run->stream);
}

/* The kernel, which may have `shared` bytes of dynamic shared memory. */
static ga_status find_kernel(ga_spgemm_device_run *run, const char *name, unsigned shared,
                             CUfunction *kernel)
{
    ga_status status = ga_device_function(kernel, run->device, name);
    if (status == GA_OK && shared) {
        /* One value for all launches, because threads may launch at a time. */
        status = GA_CUDA_CALL(run->scope.driver, cuFuncSetAttribute, *kernel,
                              CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              GA_SPGEMM_SLOTS_MAX * (int)(sizeof(uint32_t) + sizeof(double)));
        /* In percent. By itself the driver reserves shared memory for one block only. */
        status = status ? status
                        : GA_CUDA_CALL(run->scope.driver, cuFuncSetAttribute, *kernel,
                                       CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100);
    }
    return status;
}

/* `threads` in all, at most as many as the device can run at a time. */
ga_status ga_spgemm_run_kernel(ga_spgemm_device_run *run, const char *name, uint64_t threads,
                               unsigned shared, void **parameters)
{
    CUfunction kernel;
    uint64_t blocks = (threads + GA_SPGEMM_BLOCK - 1) / GA_SPGEMM_BLOCK;
    uint64_t most = (uint64_t)run->multiprocessors * GA_SPGEMM_BLOCKS_MAX;
    ga_status status = find_kernel(run, name, shared, &kernel);
    return status || !blocks
               ? status
               : GA_CUDA_CALL(run->scope.driver, cuLaunchKernel, kernel,
                              (unsigned)(blocks < most ? blocks : most), 1, 1, GA_SPGEMM_BLOCK, 1,
                              1, shared, run->stream, parameters, NULL);
}

/* Can the device run all blocks of a kernel at a time, as barriers require? */
static ga_status check_cooperative(ga_spgemm_device_run *run)
{
    CUdevice device;
    int can = 0;
    ga_status status = GA_CUDA_CALL(run->scope.driver, cuDeviceGet, &device, run->device);
    status = status ? status
                    : GA_CUDA_CALL(run->scope.driver, cuDeviceGetAttribute, &can,
                                   CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, device);
    return status || can
               ? status
               : ga_fail(GA_ERR_DEVICE,
                         "spgemm: device %d has no cooperative launches: expected a device that "
                         "has, for GA_SPGEMM_COOPERATIVE",
                         run->device);
}

ga_status ga_spgemm_run_together(ga_spgemm_device_run *run, const char *name, uint64_t threads,
                                 unsigned shared, void **parameters)
{
    CUfunction kernel;
    int each = 0; /* blocks of a multiprocessor */
    uint64_t blocks = (threads + GA_SPGEMM_BLOCK - 1) / GA_SPGEMM_BLOCK;
    ga_status status = check_cooperative(run);
    status = status ? status : find_kernel(run, name, shared, &kernel);
    status = status ? status
                    : GA_CUDA_CALL(run->scope.driver, cuOccupancyMaxActiveBlocksPerMultiprocessor,
                                   &each, kernel, GA_SPGEMM_BLOCK, shared);
    uint64_t most = (uint64_t)run->multiprocessors * (unsigned)each;
    if (status == GA_OK && !each) {
        return ga_fail(GA_ERR_DEVICE,
                       "spgemm: %s: no block of %d threads and %u bytes of shared "
                       "memory fits a multiprocessor of device %d: expected one",
                       name, GA_SPGEMM_BLOCK, shared, run->device);
    }
    return status ? status
                  : GA_CUDA_CALL(run->scope.driver, cuLaunchCooperativeKernel, kernel,
                                 (unsigned)(blocks < most ? blocks : most), 1, 1, GA_SPGEMM_BLOCK,
                                 1, 1, shared, run->stream, parameters);
}

ga_status ga_spgemm_run_reset_tickets(ga_spgemm_device_run *run)
{
    return ga_spgemm_run_clear(
        run, run->blocks[GA_SPGEMM_SCRATCH_TOTALS] + offsetof(ga_spgemm_totals, tickets),
        sizeof(uint64_t));
}
