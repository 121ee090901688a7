/* SPDX-License-Identifier: MIT */
#include "c10.h"

namespace c10
{
namespace cuda
{
namespace CUDACachingAllocator
{

namespace
{

struct native final : CUDAAllocator {
    void *allocate(size_t) override
    {
        return nullptr;
    }
};

native own;

} // namespace

std::atomic<CUDAAllocator *> allocator{nullptr};

void use_native()
{
    allocator = &own;
}

void refuse()
{
    throw OutOfMemoryError({__func__, __FILE__, __LINE__}, "CUDA out of memory.");
}

} // namespace CUDACachingAllocator
} // namespace cuda
} // namespace c10
