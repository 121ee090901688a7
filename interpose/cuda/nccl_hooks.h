/* SPDX-License-Identifier: MIT
 *
 * The functions of NCCL that the preload replaces. Exports and look-ups are generated from this
 * table. A version of NCCL that lacks one of them lacks it under the preload, too.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_NCCL_HOOKS_H
#define GPUALLOC_INTERPOSE_CUDA_NCCL_HOOKS_H

/* X(symbol, description) */
/* clang-format off */
#define GA_NCCL_HOOKS(X)                                                                           \
    X(ncclMemAlloc, "a block that NCCL can register, over vmm")                                    \
    X(ncclMemFree, "frees behind the work of all streams")                                         \
    X(ncclCommRegister, "a block that is freed meanwhile stays")                                   \
    X(ncclCommDeregister, "frees blocks that stayed")                                              \
    X(ncclCommWindowRegister, "a block that is freed meanwhile stays")                             \
    X(ncclCommWindowDeregister, "frees blocks that stayed")                                        \
    X(ncclCommDestroy, "ends the communicator's registrations")                                    \
    X(ncclCommAbort, "ends the communicator's registrations")                                      \
    X(ncclCommGetAsyncError, "calls that were in progress have ended")                             \
    X(ncclGroupStart, "registers and destroys when the group ends")                                \
    X(ncclGroupEnd, "registers and destroys when the group ends")                                  \
    X(ncclGroupSimulateEnd, "registers and destroys when the group ends")
/* clang-format on */

#define GA_NCCL_HOOK_INDEX(symbol, description) GA_HOOK_##symbol,

typedef enum ga_nccl_hook_index {
    GA_NCCL_HOOKS(GA_NCCL_HOOK_INDEX) GA_NCCL_HOOK_COUNT
} ga_nccl_hook_index;

#endif
