/* SPDX-License-Identifier: MIT */
#include "cudart.h"

#include <string.h>

test_runtime runtime;

/* A device's life ends with cudaDeviceReset(). */
static struct {
    unsigned long long life;
    ga_kernel_heap variable;
} devices[RUNTIME_DEVICES];

static unsigned launches;
static _Thread_local int current;
static _Thread_local bool started; /* a context is current */
static _Thread_local int mode;
static _Thread_local cudaError_t last_error;

enum {
    BROKEN = 1,
    NO_SYMBOL = 13, /* cudaErrorInvalidSymbol */
    NO_DRIVER = 35  /* cudaErrorInsufficientDriver */
};

void runtime_start(const vmm_driver_options *options)
{
    vmm_driver_start(options);
    memset(devices, 0, sizeof devices);
    devices[0].life = 1;
    devices[1].life = 2;
    launches = 0;
}

void runtime_use(int device)
{
    current = device;
    started = true;
}

ga_kernel_heap runtime_view(int device)
{
    return devices[device].variable;
}

unsigned runtime_launches(void)
{
    return __atomic_load_n(&launches, __ATOMIC_RELAXED); /* relaxed: a count */
}

int runtime_capture_mode(void)
{
    return mode;
}

void runtime_set_error(cudaError_t error)
{
    last_error = error;
}

/* ---- functions that init.c calls ---------------------------------------------------------- */

int ga_kernel_linked_address(void **out)
{
    if (mode != cudaStreamCaptureModeRelaxed) {
        return BROKEN; /* as during a capture */
    }
    if (runtime.no_driver) {
        last_error = NO_DRIVER;
        return NO_DRIVER;
    }
    started = true;
    if (runtime.no_variable) {
        last_error = NO_SYMBOL;
        return NO_SYMBOL;
    }
    *out = &devices[current].variable;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return runtime.no_device ? BROKEN : cudaSuccess;
}

cudaError_t cudaFree(void *block)
{
    return block || runtime.no_driver ? BROKEN : cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(int *exchanged)
{
    int before = mode;
    mode = *exchanged;
    *exchanged = before;
    return cudaSuccess;
}

/* cuCtxGetId, as far as it is known: each context has a number that no other ever has. */
static int context_id(void *context, unsigned long long *out)
{
    *out = devices[current].life;
    return !context && started ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags, int *result)
{
    int (*found)(void *, unsigned long long *) = context_id;
    (void)flags;
    *result = 0;
    if (runtime.no_numbers || version != 12000 || strcmp(symbol, "cuCtxGetId") != 0) {
        return BROKEN;
    }
    memcpy(function, &found, sizeof found);
    return cudaSuccess;
}

/* ---- functions that launch.c passes on ---------------------------------------------------- */

static cudaError_t launched(bool intact)
{
    __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED); /* relaxed: a count */
    return intact ? cudaSuccess : BROKEN;
}

/* Arguments as the tests pass them, so that a wrong one shows. */
#define KERNEL_LAUNCH(name, type)                                                                  \
    cudaError_t __real_##name(type kernel, dim3 grid, dim3 block, void **arguments, size_t shared, \
                              cudaStream_t stream);                                                \
    cudaError_t __real_##name(type kernel, dim3 grid, dim3 block, void **arguments, size_t shared, \
                              cudaStream_t stream)                                                 \
    {                                                                                              \
        return launched((size_t)kernel == 1 && grid.x == 2 && grid.y == 3 && grid.z == 4 &&        \
                        block.x == 5 && block.y == 6 && block.z == 7 && (size_t)arguments == 8 &&  \
                        shared == 9 && (size_t)stream == 10);                                      \
    }

#define CONFIG_LAUNCH(name)                                                                        \
    cudaError_t __real_##name(const void *config, const void *kernel, void **arguments);           \
    cudaError_t __real_##name(const void *config, const void *kernel, void **arguments)            \
    {                                                                                              \
        return launched((size_t)config == 1 && (size_t)kernel == 2 && (size_t)arguments == 3);     \
    }

#define GRAPH_LAUNCH(name)                                                                         \
    cudaError_t __real_##name(cudaGraphExec_t graph, cudaStream_t stream);                         \
    cudaError_t __real_##name(cudaGraphExec_t graph, cudaStream_t stream)                          \
    {                                                                                              \
        return launched((size_t)graph == 1 && (size_t)stream == 2);                                \
    }

KERNEL_LAUNCH(__cudaLaunchKernel, cudaKernel_t)
KERNEL_LAUNCH(__cudaLaunchKernel_ptsz, cudaKernel_t)
KERNEL_LAUNCH(cudaLaunchKernel, const void *)
KERNEL_LAUNCH(cudaLaunchKernel_ptsz, const void *)
KERNEL_LAUNCH(cudaLaunchCooperativeKernel, const void *)
KERNEL_LAUNCH(cudaLaunchCooperativeKernel_ptsz, const void *)
CONFIG_LAUNCH(cudaLaunchKernelExC)
CONFIG_LAUNCH(cudaLaunchKernelExC_ptsz)
GRAPH_LAUNCH(cudaGraphLaunch)
GRAPH_LAUNCH(cudaGraphLaunch_ptsz)

cudaError_t __real_cudaDeviceReset(void);

/* The context is destroyed with the module's variable; the next call of the runtime makes new
 * ones. */
cudaError_t __real_cudaDeviceReset(void)
{
    vmm_driver_destroy_context(current);
    memset(&devices[current].variable, 0, sizeof devices[current].variable);
    devices[current].life += RUNTIME_DEVICES;
    started = false;
    return cudaSuccess;
}
