/* SPDX-License-Identifier: MIT
 *
 * Programs of CUDA: ranks are the threads of a block of one warp. Messages are words of a mailbox
 * that the receiver reads until there is one.
 */
#include "tree.h"

namespace fuzz
{

const char *const cuda_header =
    "#define __global__ __attribute__((global))\n"
    "#define __device__ __attribute__((device))\n"
    "typedef unsigned long size_t; struct index { unsigned x, y, z; }; "
    "extern const __device__ index threadIdx, blockIdx, blockDim; "
    "extern \"C\" __device__ void *malloc(size_t), *calloc(size_t, size_t); "
    "__device__ void __syncthreads(), __trap(); __device__ int __syncthreads_count(int), "
    "__shfl_sync(unsigned, int, int), atomicExch(int *, int); __device__ int box[1024];\n"
    "static const __device__ int fixed[4] = {3, 1, 4, 1};\n"
    "static __device__ void set(int *to, int value) { *to = value; }\n";

/* `rank`: the root of a broadcast, or the thread that gets or has sent a message. */
std::string in_cuda(const node &n, const std::string &to, const std::string &from,
                    const std::string &rank)
{
    switch (n.what) {
    case kind::BARRIER:
        return "__syncthreads();\n";
    case kind::BROADCAST:
        return to + " = __shfl_sync(~0u, " + from + ", " + rank + ");\n";
    case kind::REDUCE:
        return to + " = __syncthreads_count(" + from + ");\n";
    case kind::RANK:
        return to + " = threadIdx.x;\n";
    case kind::SIZE:
        return to + " = blockDim.x;\n";
    case kind::SEND:
        return "atomicExch(box + (" + rank + ") * 32 + threadIdx.x, " + from + " + 1);\n";
    default: /* RECEIVE */
        return "while ((" + to + " = atomicExch(box + threadIdx.x * 32 + (" + rank +
               "), 0)) == 0) {}\n" + to + "--;\n";
    }
}

} // namespace fuzz
