/* SPDX-License-Identifier: MIT
 *
 * Exchanges of sharded slab hashes (gpualloc/slabhash_sharded.h) over NCCL, for memory of devices.
 * gpualloc/slabhash_nccl.cuh opens such a table in one call.
 *
 * The library does not need NCCL: it finds the program's at run time, among the libraries that are
 * loaded, or as libnccl.so.2, or as the library that GPUALLOC_NCCL names. NCCL 2.19 or later.
 *
 * With NCCL 2.28 or later, and if each rank reaches the memory of all others (one host, NVLink),
 * the engines of the devices copy requests and answers of ga_slabhash_sharded_run(), through
 * windows of NCCL; the multiprocessors are left to the tables. Otherwise kernels of NCCL do.
 */
#ifndef GPUALLOC_SLABHASH_NCCL_H
#define GPUALLOC_SLABHASH_NCCL_H

#include <gpualloc/slabhash_sharded.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of ga_nccl_options. */
typedef enum ga_nccl_flags {
    GA_NCCL_NO_WINDOWS = 1 /* messages by kernels of NCCL, also where copies are possible */
} ga_nccl_flags;

typedef struct ga_nccl_options {
    uint32_t options_size;  /* sizeof(ga_nccl_options) */
    uint32_t time_limit_ms; /* of one wait for other ranks: more than the longest piece takes on any
                             * of them. 0: 10 minutes, as PyTorch has */
    uint32_t flags;         /* of ga_nccl_flags, the same on all ranks */
    uint32_t reserved;      /* 0 */
} ga_nccl_options;

/* Makes an exchange among the ranks of `comm`, an ncclComm_t that stays the caller's: messages go
 * over a communicator of their own (ncclCommSplit), so that a failure does not abort the caller's.
 * Collective. NULL for `options` is {0}. `out->close` frees it.
 *
 * If a rank does not arrive in time, or NCCL reports an error, that communicator is aborted
 * (ncclCommAbort) and the call fails. If a rank does not arrive for this call, a thread stays in
 * ncclCommSplit() until `comm` is aborted. No collective call may be made within a group of the
 * caller's (ncclGroupStart).
 *
 * GA_ERR_ARGUMENT     no communicator; the options' size
 * GA_ERR_UNSUPPORTED  no NCCL, or an older one
 * GA_ERR_DEVICE       NCCL or the driver reported an error, which the message has */
GA_API ga_status ga_exchange_nccl(ga_exchange *out, void *comm, const ga_nccl_options *options);

#ifdef __cplusplus
}
#endif
#endif
