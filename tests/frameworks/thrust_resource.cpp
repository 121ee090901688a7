/* SPDX-License-Identifier: MIT
 *
 * gpualloc/thrust.hpp with a Thrust: that it compiles.
 */
#include <gpualloc/thrust.hpp>

int *taken(ga_heap *heap);

int *taken(ga_heap *heap)
{
    gpualloc::heap_resource resource(heap);
    gpualloc::heap_allocator<int> allocator(&resource);
    gpualloc::device_allocator<int> of_process;
    of_process.deallocate(of_process.allocate(64), 64);
    return allocator.allocate(64).get();
}
