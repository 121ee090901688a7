/* SPDX-License-Identifier: MIT */
#include "c10.h"

namespace torch
{
namespace cuda
{
namespace CUDAPluggableAllocator
{

CUDAPluggableAllocator::CUDAPluggableAllocator(
    std::function<void *(size_t, int, cudaStream_t)> function)
    : function_(std::move(function))
{
}

void *CUDAPluggableAllocator::allocate(size_t size)
{
    return function_(size, 0, nullptr);
}

} // namespace CUDAPluggableAllocator
} // namespace cuda
} // namespace torch
