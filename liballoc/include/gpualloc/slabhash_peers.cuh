/* SPDX-License-Identifier: MIT
 *
 * The shards of a sharded slab hash (gpualloc/slabhash_nccl.cuh) for kernels: single operations
 * directly in the memory of the owner's device, over NVLink. For ranks of one host, threads or
 * processes, with devices that can access each other's memory.
 *
 *     ga_slabhash_peers peers;
 *     ga_slabhash_peers_open(&peers, table, stream);                       on each rank
 *     my_kernel<<<grid, 128, 0, stream>>>(peers.view, ...);
 *     ga_slabhash_peers_close(&peers);                                     on each rank
 *
 * In a kernel, with the same kinds, operations and answers as ga_slabhash_lanes():
 *
 *     ga_slabhash_peers_session session = ga_slabhash_peers_begin(view);
 *     ga_slabhash_answer a = ga_slabhash_peers_lanes<kind>(&session, asks, op, key, value);
 *     ga_slabhash_peers_end(&session);
 *
 * Kernels of all ranks, and batches, may work on the table at the same time, and operations on one
 * key are linearizable. But no kernel may use a view during ga_slabhash_peers_refresh(), which must
 * follow on calls that move or reorder a shard, and none may use a shard that grows while it does:
 *
 *     clear, flush, reserve, load; batches with GA_SLABHASH_GROW   then refresh, on all ranks
 *     GA_SLABHASH_GROW_IN_KERNELS                                  refused
 *
 * With ranks of several processes tables with GA_SLABHASH_GROW are refused as well, and slabs come
 * from a heap that has all its memory from the start, over cuda: options.heap, opened as
 * slab:unit=128,addressing=light,capacity=8G/cuda. All views are closed before any of the tables.
 * The memory of a process that has ended may be gone: its keys must not be used any more.
 *
 * Include this header before the others of this library, in all files that use the table: it
 * defines GA_SIMT_PEERS, by which atomics have the scope of the system instead of the device. Else
 * it stops the compiler.
 *
 * Batches of millions of requests are faster by ga_slabhash_sharded_run(), which sends requests to
 * their owners. Kernels need no other rank for an operation, and no array.
 *
 * Header only, as gpualloc/slabhash.cuh. Host functions: one thread of a rank at a time.
 */
#ifndef GPUALLOC_SLABHASH_PEERS_CUH
#define GPUALLOC_SLABHASH_PEERS_CUH

#if defined GPUALLOC_SIMT_ATOMIC_H && !defined GA_SIMT_PEERS
#error "gpualloc/slabhash_peers.cuh: expected before the other headers, or -DGA_SIMT_PEERS"
#endif
#ifndef GA_SIMT_PEERS
#define GA_SIMT_PEERS
#endif

#include <gpualloc/slabhash.cuh>

#include <gpualloc/slabhash_sharded.h>

/* The shards of all ranks as kernels of this rank see them, passed by value. */
typedef struct ga_slabhash_peers_view ga_slabhash_peers_view;

/* A view of the host's, opened and closed by the functions below. `view` is for kernels; the other
 * fields belong to the functions. Not to be copied. */
typedef struct ga_slabhash_peers ga_slabhash_peers;

/* A tile's session with all shards, in registers of its lanes. */
typedef struct ga_slabhash_peers_session ga_slabhash_peers_session;

/* ---- for kernels --------------------------------------------------------------------------- */

/* Begin and end a tile's session, as ga_slabhash_session_begin() and _end() do. */
static __device__ __forceinline__ ga_slabhash_peers_session
ga_slabhash_peers_begin(ga_slabhash_peers_view peers);
static __device__ __forceinline__ void ga_slabhash_peers_end(ga_slabhash_peers_session *session);

/* ga_slabhash_lanes() on the shards of all ranks: one operation for each lane that `asks`, on the
 * shard of its key's owner. Operations that change a pair have the result GA_SLABHASH_REFUSED if
 * the devices have no atomics on each other's memory. A slab is taken from what the owner's heap
 * has ready: if that is used up, the result is GA_SLABHASH_FULL. */
template <uint32_t kind, uint32_t fixed = GA_SLABHASH_OP_COUNT, bool whole = false>
static __device__ __forceinline__ ga_slabhash_answer
ga_slabhash_peers_lanes(ga_slabhash_peers_session *session, bool asks, uint32_t op, uint64_t key,
                        uint64_t value, uint32_t how = GA_SLABHASH_ADD);

/* The rank that owns the key. Any lane may call. */
static __device__ __forceinline__ uint32_t
ga_slabhash_peers_owner(const ga_slabhash_peers_view &peers, uint64_t key);

/* ---- for the host -------------------------------------------------------------------------- */

/* Opens a view of the shards of all ranks, for kernels of this rank, and waits for the work on
 * `stream`. Collective. The shards are those of ga_slabhash_nccl_open(), or `shard.table` is a
 * ga_slabhash_device. The caller closes the view before the table; with ranks of several processes,
 * all views before any of the tables.
 *
 * GA_ERR_ARGUMENT     no table, one in memory of the host, or more than 16 ranks
 * GA_ERR_UNSUPPORTED  devices that cannot access each other's memory, or are not visible in a
 *                     process; shards that grow while kernels run; with ranks of several processes
 *                     also GA_SLABHASH_GROW, and slabs from a heap that grows or is not over cuda
 * GA_ERR_MEMORY       no memory on some rank
 * GA_ERR_DEVICE       the exchange failed, or CUDA reported an error */
static inline ga_status ga_slabhash_peers_open(ga_slabhash_peers *peers, ga_slabhash_sharded *table,
                                               cudaStream_t stream);

/* To be called after a clear, flush, reserve or load of any shard, and after batches on tables with
 * GA_SLABHASH_GROW: gets the shards of all ranks as they are after the work on `stream` of each
 * rank, for which it waits. Collective. No kernel may use a view during the call, and none
 * afterwards if it fails; the views stay at their addresses. Errors as ga_slabhash_peers_open(). */
static inline ga_status ga_slabhash_peers_refresh(ga_slabhash_peers *peers, cudaStream_t stream);

/* Frees the view of this rank; no other rank is needed, but no kernel may use the view. A shard
 * must not be closed while another rank's kernels use it. A second close does nothing.
 *
 * GA_ERR_DEVICE  CUDA reported an error; the view is closed */
static inline ga_status ga_slabhash_peers_close(ga_slabhash_peers *peers);

/* ---- definitions --------------------------------------------------------------------------- */

#include "detail/sharded/peers_host.cuh"
#include "detail/sharded/peers_kernel.cuh"

#endif
