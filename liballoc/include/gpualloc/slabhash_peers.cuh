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

/* For kernels: ga_slabhash_peers_begin, _lanes, _end, _owner */
#include "detail/sharded/peers_kernel.cuh"

/* For the host: ga_slabhash_peers_open, _refresh, _close */
#include "detail/sharded/peers_host.cuh"

#endif
