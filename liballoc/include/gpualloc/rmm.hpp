/* SPDX-License-Identifier: MIT
 *
 * A heap of the place `device` as a memory resource of CCCL from 3.2 on, which is what RMM from
 * 26.02 on takes: it satisfies cuda::mr::resource_with<cuda::mr::device_accessible>.
 *
 *     gpualloc::rmm_resource resource(heap);
 *     rmm::mr::set_current_device_resource(resource);
 *
 * For the CCCL of CUDA 13.0, whose resources are of another shape, there is gpualloc/cccl.hpp.
 *
 * Where the heap has no stream order (`cuda`, say), allocate() gives a block that may be used at
 * once, on every stream, and deallocate() waits for the stream.
 *
 * Failures to allocate are thrown (status.hpp). Thread safety: that of heaps.
 */
#ifndef GPUALLOC_RMM_HPP
#define GPUALLOC_RMM_HPP

#include <gpualloc/status.hpp>

#include <cuda/memory_resource>
#include <cuda/std/version>
#include <cuda/stream_ref>

#if CCCL_VERSION < 3002000
#error "gpualloc/rmm.hpp: expected CCCL 3.2 or later; gpualloc/cccl.hpp is for 3.0"
#endif

namespace gpualloc
{

/* The heap stays the caller's, and outlives the resource. Two are equal that have the same heap. */
class rmm_resource
{
  public:
    explicit rmm_resource(ga_heap *heap) : heap_(heap)
    {
    }

    [[nodiscard]] void *allocate(cuda::stream_ref stream, std::size_t bytes,
                                 std::size_t alignment = natural)
    {
        void *block = nullptr;
        ga_status status = ga_alloc_on(heap_, bytes, alignment, stream.get(), &block);
        return status == GA_ERR_UNSUPPORTED ? allocate_sync(bytes, alignment)
                                            : (check(status), block);
    }

    void deallocate(cuda::stream_ref stream, void *block, std::size_t,
                    std::size_t = natural) noexcept
    {
        if (ga_free_on(heap_, block, stream.get()) == GA_ERR_UNSUPPORTED) {
            try {
                stream.sync();
            } catch (...) { // the stream has failed: nothing runs there any more
            }
            ga_free(heap_, block);
        }
    }

    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t alignment = natural)
    {
        void *block = nullptr;
        check(ga_alloc(heap_, bytes, alignment, &block));
        return block;
    }

    void deallocate_sync(void *block, std::size_t, std::size_t = natural) noexcept
    {
        ga_free(heap_, block);
    }

    friend bool operator==(const rmm_resource &a, const rmm_resource &b) noexcept
    {
        return a.heap_ == b.heap_;
    }

    friend bool operator!=(const rmm_resource &a, const rmm_resource &b) noexcept
    {
        return !(a == b);
    }

    friend void get_property(const rmm_resource &, cuda::mr::device_accessible) noexcept
    {
    }

  private:
    static constexpr std::size_t natural = 256; /* what every device heap aligns to */
    ga_heap *heap_;
};

static_assert(cuda::mr::resource_with<rmm_resource, cuda::mr::device_accessible>,
              "gpualloc/rmm.hpp: this CCCL's resources are of another shape");

} // namespace gpualloc

#endif
