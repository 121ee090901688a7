/* SPDX-License-Identifier: MIT
 *
 * The host side of the probe kernel.
 */
#include "probe.h"

#include "../platform/cuda_refused.h"
#include "device.h"

#include <gpualloc/backend.h>

/* Copy in, run, copy out, all on the scope's stream. `block` holds the input and, behind it, the
 * output. */
static ga_status run_kernel(const ga_cuda_scope *scope, CUfunction kernel, CUdeviceptr block,
                            const uint32_t *input, uint32_t *output)
{
    const ga_cuda_driver *driver = scope->driver;
    const size_t size = GA_PROBE_LANES * sizeof *input;
    CUdeviceptr answers = block + size;
    uint32_t count = GA_PROBE_LANES;
    void *parameters[] = {&block, &answers, &count};
    ga_status status = GA_CUDA_CALL(driver, cuMemcpyHtoDAsync, block, input, size, scope->stream);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(driver, cuLaunchKernel, kernel, 1, 1, 1, GA_PROBE_LANES, 1, 1, 0,
                              scope->stream, parameters, NULL);
    }
    if (status == GA_OK) {
        status = GA_CUDA_CALL(driver, cuMemcpyDtoHAsync, output, answers, size, scope->stream);
    }
    return status == GA_OK ? GA_CUDA_CALL(driver, cuStreamSynchronize, scope->stream) : status;
}

static ga_status check_results(int device, const uint32_t *input, const uint32_t *output)
{
    for (uint32_t i = 0; i < GA_PROBE_LANES; i++) {
        uint32_t expected =
            ga_probe_join(ga_probe_mix(input[i], i), ga_probe_mix(input[i ^ 1], i ^ 1));
        if (output[i] != expected) {
            return ga_fail(GA_ERR_DEVICE,
                           "device %d: the probe kernel's lane %u answered 0x%08x, expected 0x%08x",
                           device, i, output[i], expected);
        }
    }
    return GA_OK;
}

static ga_status run_and_check(const ga_cuda_scope *scope, int device, CUfunction kernel)
{
    uint32_t input[GA_PROBE_LANES];
    uint32_t output[GA_PROBE_LANES] = {0};
    for (uint32_t i = 0; i < GA_PROBE_LANES; i++) {
        input[i] = 0x9e3779b9u * (i + 1);
    }
    CUdeviceptr block = 0;
    ga_status status =
        GA_CUDA_CALL(scope->driver, cuMemAlloc, &block, sizeof input + sizeof output);
    if (status != GA_OK) {
        return status;
    }
    status = run_kernel(scope, kernel, block, input, output);
    if (status == GA_OK) {
        status = check_results(device, input, output);
    }
    ga_cuda_drop_block(scope->driver, device, block);
    return status;
}

ga_status ga_device_probe(int device)
{
    CUfunction kernel;
    ga_cuda_scope scope;
    ga_status status = ga_device_function(&kernel, device, "ga_probe_kernel");
    if (status == GA_OK) {
        status = ga_cuda_enter(&scope, device);
    }
    if (status != GA_OK) {
        return status;
    }
    status = run_and_check(&scope, device, kernel);
    ga_cuda_leave(&scope);
    return status;
}
