/* SPDX-License-Identifier: MIT
 *
 * RMM on a heap of gpualloc. With RMM, from 26.02 on, and CUDA where the compiler finds them:
 *
 *   g++ -std=c++20 rmm_resource.cpp $(pkg-config --cflags --libs gpualloc) -lrmm -lcudart
 *   GPUALLOC_DEVICE=vmm ./a.out
 *
 * For all that RMM allocates on a device: rmm::mr::set_current_device_resource(resource) since
 * 26.06, rmm::mr::set_current_device_resource_ref(resource) before.
 */
#include <gpualloc/rmm.hpp>

#include <rmm/device_buffer.hpp>

#include <cstdio>

int main()
{
    ga_heap *heap = nullptr;
    gpualloc::check(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, nullptr));
    {
        const cuda::stream_ref stream{cudaStream_t{nullptr}};
        gpualloc::rmm_resource resource(heap);
        rmm::device_buffer buffer(1 << 20, stream, resource);
        bool ours = ga_owns(heap, buffer.data());
        try {
            rmm::device_buffer more(std::size_t{1} << 50, stream, resource);
            ours = false;
        } catch (const rmm::out_of_memory &) {
        }
        std::printf("rmm: %d\n", ours);
    }
    gpualloc::check(ga_heap_close(heap));
}
