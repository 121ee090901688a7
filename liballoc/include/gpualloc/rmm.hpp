/* SPDX-License-Identifier: MIT
 *
 * A heap of the place `device` as a memory resource of RMM 26.02 or later:
 *
 *     gpualloc::rmm_resource resource(heap);
 *     rmm::mr::set_current_device_resource(resource);         since 26.06
 *     rmm::mr::set_current_device_resource_ref(resource);     before
 *
 * It wraps gpualloc::memory_resource of gpualloc/cccl.hpp and throws RMM's exception: a request
 * without memory throws rmm::out_of_memory, which RMM's failure callbacks catch and which is a
 * std::bad_alloc. Needs CCCL 3.2 or later, which comes with RMM.
 *
 * Sizes are in bytes. Thread safe, as heaps are.
 */
#ifndef GPUALLOC_RMM_HPP
#define GPUALLOC_RMM_HPP

#include <gpualloc/cccl.hpp>

#if CCCL_VERSION < 3002000
#error "gpualloc/rmm.hpp: expected CCCL 3.2 or later; gpualloc/cccl.hpp is for those before"
#endif

#include <rmm/error.hpp>

namespace gpualloc
{

/* The caller owns the heap and closes it after the resource's end. Resources of the same heap are
 * equal. */
class rmm_resource
{
  public:
    explicit rmm_resource(ga_heap *heap) : resource_(heap)
    {
    }

    /* As memory_resource's functions; a request without memory throws rmm::out_of_memory. */
    [[nodiscard]] void *allocate(cuda::stream_ref stream, std::size_t bytes,
                                 std::size_t alignment = natural)
    {
        try {
            return resource_.allocate(stream, bytes, alignment);
        } catch (const bad_alloc &e) {
            throw rmm::out_of_memory(e.what());
        }
    }

    void deallocate(cuda::stream_ref stream, void *block, std::size_t bytes,
                    std::size_t alignment = natural) noexcept
    {
        resource_.deallocate(stream, block, bytes, alignment);
    }

    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t alignment = natural)
    {
        try {
            return resource_.allocate_sync(bytes, alignment);
        } catch (const bad_alloc &e) {
            throw rmm::out_of_memory(e.what());
        }
    }

    void deallocate_sync(void *block, std::size_t bytes, std::size_t alignment = natural) noexcept
    {
        resource_.deallocate_sync(block, bytes, alignment);
    }

    friend bool operator==(const rmm_resource &a, const rmm_resource &b) noexcept
    {
        return a.resource_ == b.resource_;
    }

    friend bool operator!=(const rmm_resource &a, const rmm_resource &b) noexcept
    {
        return !(a == b);
    }

    friend void get_property(const rmm_resource &, cuda::mr::device_accessible) noexcept
    {
    }

  private:
    static constexpr std::size_t natural = 256; /* bytes; alignment of every device heap */
    memory_resource resource_;
};

static_assert(cuda::mr::resource_with<rmm_resource, cuda::mr::device_accessible>,
              "gpualloc/rmm.hpp: this CCCL's resources are of another shape");

} // namespace gpualloc

#endif
