/* SPDX-License-Identifier: MIT
 *
 * What PyTorch's plug-in gets for a request that fails, over libraries with PyTorch's classes
 * (torch/) and the driver for tests.
 */
#include "torch/c10.h"

#include <gpualloc/frameworks.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

using c10::cuda::CUDACachingAllocator::allocator;
using plugged = torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;

static const size_t too_much = size_t{1} << 42;

static void need(bool holds, const char *what)
{
    if (!holds) {
        std::fprintf(stderr, "torch_errors: %s\n", what);
        std::exit(1);
    }
}

static void *alloc_on_device(size_t size, int, cudaStream_t stream)
{
    return ga_torch_alloc(static_cast<ssize_t>(size), 0, reinterpret_cast<ga_stream>(stream));
}

static void *alloc_elsewhere(size_t size, int, cudaStream_t)
{
    return ga_torch_alloc(static_cast<ssize_t>(size), 99, nullptr);
}

/* Before PyTorch has an allocator, or with its own, which checks for NULL: a MemPool. */
static void own_allocator_gets_null()
{
    c10::cuda::CUDACachingAllocator::use_native();
    need(!ga_torch_alloc(static_cast<ssize_t>(too_much), 0, nullptr), "a block of 4 TiB");
    need(std::strlen(ga_error_text()) > 0, "no sentence");
}

static void plugin_gets_an_exception()
{
    plugged it(alloc_on_device);
    allocator = &it;
    for (int i = 0; i < 3; i++) { /* again: nothing is left behind by the first */
        try {
            it.allocate(too_much);
            need(false, "no exception: PyTorch would make a tensor at address 0");
        } catch (const c10::OutOfMemoryError &e) {
            need(std::strstr(e.what(), "CUDA out of memory. Tried to allocate 4096.00 GiB"),
                 e.what());
            need(c10::Error::alive == 1, "the exception is not one object");
        }
        need(c10::Error::alive == 0, "the exception was not destroyed");
    }
    void *block = it.allocate(1 << 20);
    need(block != nullptr, "no block behind the exception");
    ga_torch_free(block, 1 << 20, 0, nullptr);
}

/* The fraction is a limit of the library, and PyTorch's programs catch this error for it. */
static void fraction_is_out_of_memory()
{
    plugged it(alloc_on_device);
    allocator = &it;
    ga_torch_memory_fraction(0.001, 0);
    try {
        it.allocate(64 << 20);
        need(false, "more than the fraction");
    } catch (const c10::OutOfMemoryError &) {
    }
    ga_torch_memory_fraction(1, 0);
}

static void other_failures_are_errors()
{
    plugged it(alloc_elsewhere);
    allocator = &it;
    try {
        it.allocate(1);
        need(false, "a block of a device that is not there");
    } catch (const c10::OutOfMemoryError &) {
        need(false, "out of memory, where there is no device");
    } catch (const c10::Error &e) {
        need(std::strstr(e.what(), "no CUDA device 99"), e.what());
    }
}

static void subclass_is_a_plugin()
{
    struct adapter : plugged {
        using plugged::plugged;
    } it(alloc_on_device);
    allocator = &it;
    try {
        it.allocate(too_much);
        need(false, "no exception for a subclass of the plug-in allocator");
    } catch (const c10::OutOfMemoryError &) {
    }
}

int main()
{
    own_allocator_gets_null();
    plugin_gets_an_exception();
    fraction_is_out_of_memory();
    other_failures_are_errors();
    subclass_is_a_plugin();
    try { /* the program's own are caught as before */
        c10::cuda::CUDACachingAllocator::refuse();
    } catch (const c10::OutOfMemoryError &) {
        std::puts("torch: 1");
    }
}
