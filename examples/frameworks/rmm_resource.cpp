/* SPDX-License-Identifier: MIT
 *
 * RMM on a heap of gpualloc. With RMM and CUDA where the compiler finds them:
 *
 *   g++ -std=c++20 rmm_resource.cpp $(pkg-config --cflags --libs gpualloc) -lrmm -lcudart
 *   GPUALLOC_DEVICE=vmm ./a.out
 */
#include <gpualloc/rmm.hpp>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/per_device_resource.hpp>

#include <cstdio>

int main()
{
    ga_heap *heap = nullptr;
    gpualloc::check(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, nullptr));
    {
        rmm::mr::set_current_device_resource(gpualloc::rmm_resource(heap));
        rmm::device_buffer buffer(1 << 20, rmm::cuda_stream_default);
        std::printf("rmm: %d\n", ga_owns(heap, buffer.data()));
    }
    rmm::mr::reset_current_device_resource();
    gpualloc::check(ga_heap_close(heap));
}
