/* SPDX-License-Identifier: MIT
 *
 * CCCL's memory resources on a heap of gpualloc: a container that takes a cuda::mr::resource_ref
 * allocates from the heap. With CUDA 13.0 or later where the compiler finds it:
 *
 *   nvcc -std=c++17 cccl_resource.cpp $(pkg-config --cflags --libs gpualloc)
 *   GPUALLOC_DEVICE=vmm ./a.out
 */
#include <gpualloc/cccl.hpp> // before all else of CCCL's

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#if CCCL_VERSION >= 3001000
using resource_ref = cuda::mr::resource_ref<cuda::mr::device_accessible>;
#else
/* CCCL 3.0, by the names of later ones. */
using async_ref = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;

class resource_ref : public async_ref
{
  public:
    using async_ref::async_ref;

    void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment)
    {
        return allocate_async(bytes, alignment, stream);
    }

    void deallocate(cuda::stream_ref stream, void *block, std::size_t bytes, std::size_t alignment)
    {
        deallocate_async(block, bytes, alignment, stream);
    }

    void *allocate_sync(std::size_t bytes, std::size_t alignment)
    {
        return async_ref::allocate(bytes, alignment);
    }

    void deallocate_sync(void *block, std::size_t bytes, std::size_t alignment)
    {
        async_ref::deallocate(block, bytes, alignment);
    }
};
#endif

/* As containers of CCCL's are: it knows of no heap, only of the resource it was given. */
class bytes
{
  public:
    bytes(resource_ref resource, cudaStream_t stream, std::size_t size)
        : resource_(resource), stream_(stream), size_(size),
          data_(resource.allocate(cuda::stream_ref(stream), size, 256))
    {
    }

    bytes(const bytes &) = delete;
    bytes &operator=(const bytes &) = delete;

    ~bytes()
    {
        resource_.deallocate(cuda::stream_ref(stream_), data_, size_, 256);
    }

    void *data() const
    {
        return data_;
    }

  private:
    resource_ref resource_;
    cudaStream_t stream_;
    std::size_t size_;
    void *data_;
};

static void need(bool holds, const char *what)
{
    if (!holds) {
        std::fprintf(stderr, "cccl: %s\n", what);
        std::exit(1);
    }
}

static bool keeps(resource_ref resource, ga_heap *heap, cudaStream_t stream, std::size_t size)
{
    std::vector<unsigned char> back(size);
    bytes block(resource, stream, size);
    return ga_owns(heap, block.data()) &&
           cudaMemsetAsync(block.data(), 42, size, stream) == cudaSuccess &&
           cudaMemcpyAsync(back.data(), block.data(), size, cudaMemcpyDeviceToHost, stream) ==
               cudaSuccess &&
           cudaStreamSynchronize(stream) == cudaSuccess && back.front() == 42 && back.back() == 42;
}

int main()
{
    ga_heap *heap = nullptr;
    cudaStream_t stream = nullptr;
    need(cudaStreamCreate(&stream) == cudaSuccess, "no GPU");
    gpualloc::check(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, nullptr));
    gpualloc::memory_resource resource(heap);
    for (std::size_t size : {std::size_t{1}, std::size_t{100000}, std::size_t{1} << 28}) {
        need(keeps(resource, heap, stream, size), "a block does not hold what was written");
    }
    resource_ref ref(resource);
    void *block = ref.allocate_sync(1 << 20, 256); // in no stream's order
    need(ga_owns(heap, block), "a block of another's");
    ref.deallocate_sync(block, 1 << 20, 256);
    try {
        block = ref.allocate_sync(std::size_t{1} << 50, 256);
        need(false, "more than there is");
    } catch (const std::bad_alloc &) {
        std::puts("cccl: 1");
    }
    gpualloc::check(ga_heap_close(heap));
    cudaStreamDestroy(stream);
}
