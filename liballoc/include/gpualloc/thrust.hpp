/* SPDX-License-Identifier: MIT
 *
 * Heaps for thrust::device_vector, as Thrust's own kind of allocator:
 *
 *     thrust::device_vector<int, gpualloc::device_allocator<int>> v;        the process's device heap
 *
 *     gpualloc::heap_resource resource(heap);                               a heap of yours
 *     thrust::device_vector<int, gpualloc::heap_allocator<int>> w(&resource);
 *
 * The process's device heap is what GPUALLOC_DEVICE says (default: cuda), one for each device that
 * is current when memory is asked for; opened on first use and never closed.
 *
 * A thrust::device_vector still copies when it grows, and holds both blocks meanwhile: an allocator
 * cannot change that (vmm-spgemm-2023, §A.2, had to specialise the vector). gpualloc::device_vector
 * grows in place.
 *
 * Failures are thrown (status.hpp). Thread safety: that of heaps. Needs CUDA's Thrust; only for
 * nvcc.
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

/* A heap of the place `device`, which stays the caller's and outlives the vectors. */
class heap_resource : public thrust::mr::memory_resource<thrust::device_ptr<void>>
{
  public:
    explicit heap_resource(ga_heap *heap) : heap_(heap)
    {
    }

    pointer do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        void *block = nullptr;
        check(ga_alloc(heap_, bytes, alignment, &block));
        return pointer(block);
    }

    /* Thrust calls this from destructors: what fails is said in the log of gpualloc at most. */
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
    DEVICES = 64 /* as many as gpualloc serves */
};

/* The heaps of the process, by device. */
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

    /* Never destroyed: vectors may live as long as the process. */
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

/* The process's device heap. */
class device_resource : public thrust::mr::memory_resource<thrust::device_ptr<void>>
{
  public:
    pointer do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        int device = -1;
        void *block = nullptr;
        cudaGetDevice(&device);
        check(ga_alloc(detail::process_heaps::get().of(device), bytes, alignment, &block));
        return pointer(block);
    }

    /* To the heap of the block's device, which need not be the current one. */
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
