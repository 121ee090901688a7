/* SPDX-License-Identifier: MIT
 *
 * In place of spgemm/device/run.c: device memory is host memory, and kernels are emulated.
 */
#include "device/run.h"

#include "launch.h"

#include "arena/vector_state.h"

#include <gpualloc/backend.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

emulated_limits emulated_most;

static CUresult fill(CUdeviceptr at, unsigned char byte, size_t bytes, CUstream stream)
{
    (void)stream;
    memset((void *)at, byte, bytes);
    return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    (void)stream;
    memcpy((void *)to, from, bytes);
    return CUDA_SUCCESS;
}

static CUresult wait(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

static CUresult ask(unsigned count, CUpointer_attribute *attributes, void **values,
                    CUdeviceptr pointer)
{
    (void)count;
    (void)attributes;
    (void)pointer;
    *(unsigned *)values[0] = CU_MEMORYTYPE_DEVICE;
    *(unsigned *)values[1] = 1; /* managed */
    return CUDA_SUCCESS;
}

static const ga_cuda_driver driver = {.cuMemsetD8Async = fill,
                                      .cuMemcpyHtoDAsync = copy,
                                      .cuStreamSynchronize = wait,
                                      .cuPointerGetAttributes = ask};

ga_status ga_spgemm_run_begin(ga_spgemm_device_run *run, const ga_spgemm_product *product)
{
    (void)product;
    run->scope.driver = &driver;
    run->multiprocessors = EMULATED_BLOCKS / GA_SPGEMM_BLOCKS_ROWS;
    return GA_OK;
}

void ga_spgemm_run_end(ga_spgemm_device_run *run)
{
    for (size_t i = 0; i < GA_SPGEMM_SCRATCH_COUNT; i++) {
        free((void *)run->blocks[i]);
    }
}

/* Not zeroed, as device memory. */
ga_status ga_spgemm_run_allocate(ga_spgemm_device_run *run, ga_spgemm_scratch block, uint64_t bytes)
{
    void *memory = aligned_alloc(256, (bytes + 256) / 256 * 256);
    if (!memory || run->blocks[block]) {
        abort();
    }
#ifdef __SANITIZE_ADDRESS__
    free(memory);
    if (posix_memalign(&memory, 256, bytes ? bytes : 1)) {
        abort();
    }
#endif
    memset(memory, 0xa5, bytes);
    run->blocks[block] = (CUdeviceptr)memory;
    run->scratch_bytes += bytes;
    return GA_OK;
}

ga_status ga_spgemm_run_clear(ga_spgemm_device_run *run, CUdeviceptr at, uint64_t bytes)
{
    (void)run;
    if (bytes) {
        memset((void *)at, 0, bytes);
    }
    return GA_OK;
}

ga_status ga_spgemm_run_read_back(ga_spgemm_device_run *run, void *to, const void *from,
                                  uint64_t bytes)
{
    (void)run;
    memcpy(to, from, bytes);
    return GA_OK;
}

static ga_status launch(const char *name, uint64_t threads, uint64_t most, unsigned shared,
                        void **parameters)
{
    uint64_t blocks = (threads + GA_SPGEMM_BLOCK - 1) / GA_SPGEMM_BLOCK;
    blocks = blocks < most ? blocks : most;
    if (blocks && !emulated_launch(name, (unsigned)blocks, GA_SPGEMM_BLOCK, shared, parameters)) {
        return ga_fail(GA_ERR_DEVICE, "no kernel %s", name);
    }
    return GA_OK;
}

static void limit(uint32_t *number, uint32_t most)
{
    *number = most && most < *number ? most : *number;
}

ga_status ga_spgemm_run_kernel(ga_spgemm_device_run *run, const char *name, uint64_t threads,
                               unsigned shared, void **parameters)
{
    if (strncmp(name, "ga_spgemm_rows_kernel", 21) == 0) {
        limit(&run->work.buffers.count, emulated_most.buffers);
        limit(&run->work.store.capacity, emulated_most.deferred);
    } else if (strcmp(name, "ga_spgemm_span_kernel") == 0) {
        limit(parameters[1], emulated_most.span);
    }
    return launch(name, threads, (uint64_t)run->multiprocessors * GA_SPGEMM_BLOCKS_MAX, shared,
                  parameters);
}

ga_status ga_spgemm_run_together(ga_spgemm_device_run *run, const char *name, uint64_t threads,
                                 unsigned shared, void **parameters)
{
    (void)run;
    return launch(name, threads, EMULATED_BLOCKS, shared, parameters);
}

ga_status ga_spgemm_run_reset_tickets(ga_spgemm_device_run *run)
{
    ((ga_spgemm_totals *)run->blocks[GA_SPGEMM_SCRATCH_TOTALS])->tickets = 0;
    return GA_OK;
}
