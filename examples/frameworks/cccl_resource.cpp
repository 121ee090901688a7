/* SPDX-License-Identifier: MIT
 *
 * CCCL's memory resources on a heap of gpualloc: what takes a cuda::mr::async_resource_ref takes the
 * heap. With the CUDA 13.0 toolkit where the compiler finds it:
 *
 *   nvcc -std=c++17 cccl_resource.cpp $(pkg-config --cflags --libs gpualloc)
 *   GPUALLOC_DEVICE=vmm ./a.out
 */
#include <gpualloc/cccl.hpp> // before all else of CCCL's

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

using resource_ref = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;

/* As containers of CCCL's are: it knows of no heap, only of the resource it was given. */
class bytes
{
  public:
    bytes(resource_ref resource, cudaStream_t stream, std::size_t size)
        : resource_(resource), stream_(stream), size_(size),
          data_(resource.allocate_async(size, 256, cuda::stream_ref(stream)))
    {
    }

    bytes(const bytes &) = delete;
    bytes &operator=(const bytes &) = delete;

    ~bytes()
    {
        resource_.deallocate_async(data_, size_, 256, cuda::stream_ref(stream_));
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
    void *block = resource_ref(resource).allocate(1 << 20, 256); // in no stream's order
    need(ga_owns(heap, block), "a block of another's");
    resource.deallocate(block, 1 << 20, 256);
    try {
        resource.allocate(std::size_t{1} << 50, 256);
        need(false, "more than there is");
    } catch (const std::bad_alloc &) {
        std::puts("cccl: 1");
    }
    gpualloc::check(ga_heap_close(heap));
    cudaStreamDestroy(stream);
}
