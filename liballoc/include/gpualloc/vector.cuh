/* SPDX-License-Identifier: MIT
 *
 * Append to a vector inside a kernel, which grows while it runs. The host lends the vector, hands the
 * view to kernels by value, and takes it back once they have ended:
 *
 *     ga_vector_lend(v, 0, &view);
 *     produce<<<...>>>(view);
 *     cudaStreamSynchronize(stream);
 *     ga_vector_take_back(v, &appended);           its size is what they made it
 *
 *     __global__ void produce(ga_kernel_vector view)
 *     {
 *         pair *p = (pair *)ga_kernel_vector_append(view, 2);
 *         if (p) { p[0] = ...; p[1] = ...; }
 *     }
 *
 * Any lanes of a warp may call, in divergent code as well; those that call together are served by
 * one atomic, so call where as many as possible are. Lanes that call together bring the same view. A
 * call that finds no room waits for the host to back more, some 50 us, and for no other lane, warp or
 * block but one that speaks to the host: do not call with a lock held.
 *
 * Once one call has been refused all others are, until the vector is lent again: so it has no holes.
 * Which element is whose is not determined.
 *
 * Header only; compile with nvcc 13.0 or later for sm_75 or later, as C++17.
 */
#ifndef GPUALLOC_VECTOR_CUH
#define GPUALLOC_VECTOR_CUH

#include <gpualloc/vector.h>

#include "arena/append.h"

/* `n` elements in a row at the end of the vector for each lane that calls, each with its own n from 0
 * to 2^26; they are uninitialised. NULL for none, where limit or memory do not allow more, or where
 * the view is not one of this header's version. */
static __device__ __forceinline__ void *ga_kernel_vector_append(ga_kernel_vector view, uint32_t n)
{
    if (view.abi != GA_KERNEL_VECTOR_ABI || !n || n > GA_APPEND_MOST) {
        return NULL;
    }
    ga_appended got = ga_append_take((ga_append *)view.state, ga_tile_present(), n);
    uint64_t at = got.first + got.before;
    return at + n <= got.room ? (char *)view.data + at * view.element : NULL;
}

/* One more element, of the vector's size, for each lane that calls. False as NULL above. */
template <class T>
static __device__ __forceinline__ bool ga_kernel_vector_push_back(ga_kernel_vector view,
                                                                  const T &value)
{
    T *at = (T *)ga_kernel_vector_append(view, 1);
    if (at) {
        *at = value;
    }
    return at;
}

#endif
