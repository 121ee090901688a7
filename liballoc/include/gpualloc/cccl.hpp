/* SPDX-License-Identifier: MIT
 *
 * A heap of the place `device` as a memory resource of CCCL 3.0, the one of CUDA 13.0: it satisfies
 * cuda::mr::async_resource_with<cuda::mr::device_accessible>, and cuda::mr::resource_ref takes it.
 *
 *     gpualloc::memory_resource resource(heap);
 *     cuda::mr::async_resource_ref<cuda::mr::device_accessible> ref(resource);
 *
 * Where the heap has no stream order (`cuda`, say), allocate_async() gives a block that may be used
 * at once, on every stream, and deallocate_async() waits for the stream.
 *
 * CCCL calls its interface experimental: include this before any other of its headers, or define
 * LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE.
 *
 * Failures to allocate are thrown (status.hpp). Thread safety: that of heaps.
 */
#ifndef GPUALLOC_CCCL_HPP
#define GPUALLOC_CCCL_HPP

#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#ifdef _CUDA__MEMORY_RESOURCE_PROPERTIES_H
#error "gpualloc/cccl.hpp: define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE before all else"
#endif
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif

#include <gpualloc/status.hpp>

#include <cuda/memory_resource>
#include <cuda/std/version>
#include <cuda/stream_ref>

#if CCCL_MAJOR_VERSION != 3 || CCCL_MINOR_VERSION != 0
#error "gpualloc/cccl.hpp: this CCCL's resources are of another shape; expected CCCL 3.0"
#endif

namespace gpualloc
{

/* The heap stays the caller's, and outlives the resource. Two are equal that have the same heap. */
class memory_resource
{
  public:
    explicit memory_resource(ga_heap *heap) : heap_(heap)
    {
    }

    void *allocate(std::size_t bytes, std::size_t alignment)
    {
        void *block = nullptr;
        check(ga_alloc(heap_, bytes, alignment, &block));
        return block;
    }

    void deallocate(void *block, std::size_t, std::size_t) noexcept
    {
        ga_free(heap_, block);
    }

    void *allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream)
    {
        void *block = nullptr;
        const ga_status status = ga_alloc_on(heap_, bytes, alignment, stream.get(), &block);
        if (status == GA_ERR_UNSUPPORTED) {
            return allocate(bytes, alignment);
        }
        check(status);
        return block;
    }

    void deallocate_async(void *block, std::size_t bytes, std::size_t alignment,
                          cuda::stream_ref stream)
    {
        if (ga_free_on(heap_, block, stream.get()) == GA_ERR_UNSUPPORTED) {
            stream.wait();
            deallocate(block, bytes, alignment);
        }
    }

    ga_heap *heap() const noexcept
    {
        return heap_;
    }

    friend bool operator==(const memory_resource &a, const memory_resource &b) noexcept
    {
        return a.heap_ == b.heap_;
    }

    friend bool operator!=(const memory_resource &a, const memory_resource &b) noexcept
    {
        return !(a == b);
    }

    friend void get_property(const memory_resource &, cuda::mr::device_accessible) noexcept
    {
    }

  private:
    ga_heap *heap_;
};

} // namespace gpualloc

#endif
