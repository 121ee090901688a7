/* SPDX-License-Identifier: MIT
 *
 * Append to a vector in a kernel; the vector grows while the kernel runs. The host lends the
 * vector, passes the view to kernels by value, and ends the loan once they have ended:
 *
 *     ga_vector_lend(v, 0, &view);
 *     produce<<<...>>>(view);
 *     cudaStreamSynchronize(stream);
 *     ga_vector_end_loan(v, &appended);           sets its size
 *
 *     __global__ void produce(ga_kernel_vector view)
 *     {
 *         pair *p = (pair *)ga_kernel_vector_append(view, 2);
 *         if (p) { p[0] = ...; p[1] = ...; }
 *     }
 *
 * Any lanes of a warp may call, also in divergent code. Lanes that call together are served by one
 * atomic: call from converged code where you can. All lanes of one call must pass the same view. A
 * call that finds no backed memory waits about 50 us for the host to back more. It waits for no
 * other lane, warp or block except one that communicates with the host, so do not hold a lock
 * during the call.
 *
 * Once a call has failed, all calls fail until the vector is lent again, so that the vector has no
 * holes. The order of elements is unspecified.
 *
 * Header only; compile with nvcc 13.0 or later for sm_75 or later, as C++17.
 */
#ifndef GPUALLOC_VECTOR_CUH
#define GPUALLOC_VECTOR_CUH

#include <gpualloc/vector.h>

#include "detail/arena/append.h"

/* Append `n` contiguous, uninitialised elements for each calling lane; each lane has its own n,
 * from 0 to 2^26. Returns the first, owned by the vector. NULL for n = 0, if the limit or memory
 * does not allow more, or if the view has another version than this header. */
static __device__ __forceinline__ void *ga_kernel_vector_append(ga_kernel_vector view, uint32_t n)
{
    if (view.abi != GA_KERNEL_VECTOR_ABI || !n || n > GA_APPEND_MAX) {
        return NULL;
    }
    ga_appended got = ga_append_take((ga_append *)view.state, ga_tile_present(), n);
    uint64_t at = got.first + got.before;
    return at + n <= got.room ? (char *)view.data + at * view.element : NULL;
}

/* Append one element for each calling lane; sizeof(T) must be the vector's element size. False in
 * the cases of NULL above. */
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
