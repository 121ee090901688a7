/* SPDX-License-Identifier: MIT
 *
 * A heap of the place `device` as a memory resource of CCCL 3.0 (CUDA 13.0) or later:
 *
 *     gpualloc::memory_resource resource(heap);
 *     cuda::mr::resource_ref<cuda::mr::device_accessible> ref(resource);            since 3.1
 *     cuda::mr::async_resource_ref<cuda::mr::device_accessible> ref(resource);      3.0
 *
 * CCCL renamed the interface between these versions: since 3.1 allocate() takes a stream and
 * allocate_sync() does not; in 3.0 they are allocate_async() and allocate().
 *
 * If the heap has no stream order (`cuda`, for example), a request on a stream returns a block that
 * may be used at once on every stream, and a free on a stream waits for that stream.
 *
 * CCCL 3.0 and 3.1 call the interface experimental: include this header before any other of CCCL,
 * or define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE.
 *
 * Failed requests throw (status.hpp). Sizes are in bytes. Thread safe, as heaps are.
 */
#ifndef GPUALLOC_CCCL_HPP
#define GPUALLOC_CCCL_HPP

#include <cuda/std/version>

#if CCCL_VERSION < 3000000
#error "gpualloc/cccl.hpp: expected CCCL 3.0 or later"
#endif

#if CCCL_VERSION < 3002000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#ifdef _CUDA__MEMORY_RESOURCE_PROPERTIES_H
#error "gpualloc/cccl.hpp: define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE before all else"
#endif
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif

#include <gpualloc/status.hpp>

#include <cuda/memory_resource>
#include <cuda/stream_ref>

namespace gpualloc
{

/* The caller owns the heap and closes it after the resource's end. Resources of the same heap are
 * equal. */
class memory_resource
{
  public:
    explicit memory_resource(ga_heap *heap) : heap_(heap)
    {
    }

    /* Each request returns a block of at least `bytes` bytes at a multiple of `alignment`. The
     * caller owns it until it is deallocated. Throws bad_alloc without memory, and error otherwise.
     * The functions with a stream are in stream order; the others wait as the heap's calls do. A
     * failed free is logged at most. */
#if CCCL_VERSION >= 3001000
    [[nodiscard]] void *allocate(cuda::stream_ref stream, std::size_t bytes,
                                 std::size_t alignment = natural)
    {
        return get_on(stream, bytes, alignment);
    }

    void deallocate(cuda::stream_ref stream, void *block, std::size_t,
                    std::size_t = natural) noexcept
    {
        give_on(stream, block);
    }

    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t alignment = natural)
    {
        return get(bytes, alignment);
    }

    void deallocate_sync(void *block, std::size_t, std::size_t = natural) noexcept
    {
        ga_free(heap_, block);
    }
#else
    void *allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream)
    {
        return get_on(stream, bytes, alignment);
    }

    void deallocate_async(void *block, std::size_t, std::size_t, cuda::stream_ref stream) noexcept
    {
        give_on(stream, block);
    }

    void *allocate(std::size_t bytes, std::size_t alignment)
    {
        return get(bytes, alignment);
    }

    void deallocate(void *block, std::size_t, std::size_t) noexcept
    {
        ga_free(heap_, block);
    }
#endif

    /* The heap, owned by the caller of the constructor. */
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
    static constexpr std::size_t natural = 256; /* bytes; alignment of every device heap */
    ga_heap *heap_;

    void *get(std::size_t bytes, std::size_t alignment)
    {
        void *block = nullptr;
        check(ga_alloc(heap_, bytes, alignment, &block));
        return block;
    }

    void *get_on(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment)
    {
        void *block = nullptr;
        const ga_status status = ga_alloc_on(heap_, bytes, alignment, stream.get(), &block);
        if (status == GA_ERR_UNSUPPORTED) {
            return get(bytes, alignment);
        }
        check(status);
        return block;
    }

    void give_on(cuda::stream_ref stream, void *block) noexcept
    {
        if (ga_free_on(heap_, block, stream.get()) == GA_ERR_UNSUPPORTED) {
            wait_for(stream);
            ga_free(heap_, block);
        }
    }

    static void wait_for(cuda::stream_ref stream) noexcept
    {
        try {
#if CCCL_VERSION >= 3001000
            stream.sync();
#else
            stream.wait();
#endif
        } catch (...) { /* the stream has failed, so no work of it runs any more */
        }
    }
};

#if CCCL_VERSION >= 3001000
static_assert(cuda::mr::resource_with<memory_resource, cuda::mr::device_accessible>,
              "gpualloc/cccl.hpp: this CCCL's resources are of another shape");
#else
static_assert(cuda::mr::async_resource_with<memory_resource, cuda::mr::device_accessible>,
              "gpualloc/cccl.hpp: this CCCL's resources are of another shape");
#endif

} // namespace gpualloc

#endif
