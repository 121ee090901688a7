/* SPDX-License-Identifier: MIT
 *
 * Heaps for thrust::device_vector, as allocators of Thrust:
 *
 *     thrust::device_vector<int, gpualloc::device_allocator<int>> v;    the process's device heap
 *
 *     gpualloc::heap_resource resource(heap);                           a heap of yours
 *     thrust::device_vector<int, gpualloc::heap_allocator<int>> w(&resource);
 *
 * The process's device heap is opened from GPUALLOC_DEVICE (default: cuda), one for each device
 * that is current at a request; it is opened at the first use and never closed.
 *
 * A thrust::device_vector copies when it grows, and holds both blocks during the copy. An allocator
 * cannot change that (vmm-spgemm-2023, §A.2 (docs/sources.md), had to specialise the vector).
 * gpualloc::device_vector grows in place.
 *
 * Failed requests throw (status.hpp). Sizes are in bytes. Thread safe, as heaps are. Needs CUDA's
 * Thrust and nvcc.
 */
#ifndef GPUALLOC_THRUST_HPP
#define GPUALLOC_THRUST_HPP

#include <gpualloc/status.hpp>

#include <mutex>

#include <thrust/device_ptr.h>
#include <thrust/mr/allocator.h>
#include <thrust/mr/memory_resource.h>

namespace gpualloc
{

/* A resource over a heap of the place `device`. The caller owns the heap and closes it after the
 * last vector's end. */
class heap_resource : public thrust::mr::memory_resource<thrust::device_ptr<void>>
{
  public:
    explicit heap_resource(ga_heap *heap) : heap_(heap)
    {
    }

    /* A block of at least `bytes` bytes at a multiple of `alignment`; throws on failure. */
    pointer do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        void *block = nullptr;
        check(ga_alloc(heap_, bytes, alignment, &block));
        return pointer(block);
    }

    /* Thrust calls this from destructors, so it does not throw; a failure is logged at most. */
    void do_deallocate(pointer block, std::size_t, std::size_t) override
    {
        ga_free(heap_, block.get());
    }

    ga_heap *heap() const
    {
        return heap_;
    }

  private:
    ga_heap *heap_;
};

namespace detail
{

enum {
    DEVICES = 64 /* GA_CUDA_DEVICES of the library */
};

/* The heaps of the process, one for each device. */
class process_heaps
{
  public:
    ga_heap *of(int device)
    {
        const std::lock_guard<std::mutex> hold(lock_);
        if (device < 0 || device >= DEVICES) {
            throw error(GA_ERR_DEVICE, "gpualloc/thrust.hpp: no current CUDA device");
        }
        if (!heaps_[device]) {
            check(ga_heap_open(&heaps_[device], GA_PLACE_DEVICE, device, nullptr));
        }
        return heaps_[device];
    }

    /* Never destroyed, because vectors may live until the process ends. */
    static process_heaps &get()
    {
        static process_heaps *heaps = new process_heaps;
        return *heaps;
    }

  private:
    std::mutex lock_;
    ga_heap *heaps_[DEVICES] = {};
};

} // namespace detail

/* A resource over the process's heap of the current device. */
class device_resource : public thrust::mr::memory_resource<thrust::device_ptr<void>>
{
  public:
    /* Allocates on the current device. Throws on failure, also without a current device. */
    pointer do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        int device = -1;
        void *block = nullptr;
        cudaGetDevice(&device);
        check(ga_alloc(detail::process_heaps::get().of(device), bytes, alignment, &block));
        return pointer(block);
    }

    /* Frees to the heap of the block's device, which need not be the current one. */
    void do_deallocate(pointer block, std::size_t, std::size_t) override
    {
        cudaPointerAttributes what = {};
        if (cudaPointerGetAttributes(&what, block.get()) == cudaSuccess) {
            ga_free(detail::process_heaps::get().of(what.device), block.get());
        }
    }
};

template <class T>
using device_allocator = thrust::mr::stateless_resource_allocator<T, device_resource>;

template <class T> using heap_allocator = thrust::mr::allocator<T, heap_resource>;

} // namespace gpualloc

#endif
