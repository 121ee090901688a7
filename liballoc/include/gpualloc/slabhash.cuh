/* SPDX-License-Identifier: MIT
 *
 * The slab hash in device memory: the table of gpualloc/slabhash.h for kernels, and for batches of
 * arrays in device memory. docs/guide/hash-tables.md.
 *
 *     ga_slabhash_device table;
 *     ga_slabhash_options options = {.options_size = sizeof options, .mode = GA_SLABHASH_MAP32,
 *                                    .buckets = 1 << 20, .path = 4};
 *     ga_slabhash_device_open(&table, &options, 0, stream);
 *     ga_slabhash_device_run(&table, &batch, counts, stream);      arrays in device memory
 *     my_kernel<<<grid, 128, 0, stream>>>(table.view, ...);
 *     ga_slabhash_device_close(&table);
 *
 * In a kernel 8 lanes are a tile, which works on one slab together. Each lane passes an operation
 * of its own; the tile serves one lane after the other (slab-hash-2018, §IV-A), or several at once
 * if whole warps call:
 *
 *     ga_slabhash_session session = ga_slabhash_session_begin(view);
 *     ga_slabhash_answer a = ga_slabhash_lanes<kind>(&session, asks, op, key, value);
 *     ga_slabhash_session_end(&session);
 *
 * A session is the state that a tile holds from session_begin() to session_end(). Operations of all
 * kernels and streams may run concurrently, except for exclusive ones. In tables of unique keys
 * operations on one key are linearizable. Values are data and publish nothing: a kernel that finds
 * a pair within the same launch need not see other writes from before the insert.
 *
 * Slabs come from a slab heap of 128-byte units for kernels. A heap that cannot grow while kernels
 * run grows between calls of ga_slabhash_device_run(); requests that find it full have the result
 * GA_SLABHASH_FULL.
 *
 * GA_SLABHASH_GROW: the table has as many buckets as the batches of ga_slabhash_device_run() need,
 * and ga_slabhash_device_reserve() makes room for pairs that kernels insert by themselves. Both may
 * give the table another array, found in table.view. Older views are then invalid, and no kernel
 * may be using one during the call. Such batches go on one stream, or wait for each other. All
 * kinds of tables can grow so, with any path and all keys.
 *
 * GA_SLABHASH_GROW_IN_KERNELS: the table grows while kernels run, as they insert, and shrinks or is
 * compacted as they delete. It never has fewer buckets than when it was opened, or last cleared,
 * flushed or reserved. Path 1, keys below 2^31 - 2 in the 32-bit modes; in the 64-bit mode keys
 * below 2^64 - 2 and values below 2^63 - 3. Views stay valid. `kind` in kernels is
 * GA_SLABHASH_KIND(mode, multi) | GA_SLABHASH_GROWING. Older arrays are freed with their slabs
 * while kernels run, once no session can refer to them. Sessions check from time to time whether an
 * array waits for them; a session that makes no calls delays the free. If the device cannot
 * allocate while kernels run, or has no memory, inserts chain slabs, and the table grows in a later
 * kernel. A program with such tables defines GA_SLABHASH_GROWING_KINDS before it includes this
 * header, in all files that use them: they take twice as long to compile. Arrays come from a kernel
 * heap of all sizes that belongs to the table: "slab/vmm", or the program's GA_SLABHASH_ARRAYS.
 *
 * If the options' seed is 0 each table draws one, found in table.seed. gpualloc/slabhash.h says how
 * this protects against chosen keys. Kernels have a and b in the view.
 *
 * Macros, to be defined before this header is included, alike in all files that use the table:
 *
 *     GA_SLABHASH_HASH(table, key)         a hash of the program's own: 64 bits, of which the upper
 *                                          ones choose the bucket
 *     GA_SLABHASH_FUNCTION(there, given)   a combination of the program's own to apply, for `how` =
 *                                          GA_SLABHASH_HOW_COUNT
 *     GA_SLABHASH_CHECKED                  detects sessions that overlap a flush or clear, by two
 *                                          more atomics for each session.
 *                                          ga_slabhash_device_count(), _retrieve() and _close()
 *                                          then return GA_ERR_ARGUMENT
 *     GA_SLABHASH_ONLY_KIND                the one kind of all tables of the program, which do not
 *                                          grow in kernels: compiles faster
 *
 * A batch that changes a table of more than four times the device's L2 cache, has at least one
 * request a bucket, and needs no results, takes memory for a copy of up to two requests a bucket
 * while it runs.
 *
 * Header only; compile with nvcc 13.0 or later for sm_75 or later, as C++17. Host functions: one
 * thread at a time for a table.
 */
#ifndef GPUALLOC_SLABHASH_CUH
#define GPUALLOC_SLABHASH_CUH

#include <gpualloc/backend.h>
#include <gpualloc/slabhash.h>

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>

#include "detail/device/kinds.h"

#ifndef GA_SLABHASH_HASH
#define GA_SLABHASH_HASH(table, key) ga_slabhash_seeded(table, key)
#endif

#ifndef GA_SLABHASH_ARRAYS
#define GA_SLABHASH_ARRAYS "slab/vmm"
#endif

/* Tables that grow in kernels. First, because all other headers call these names. */
#ifdef GA_SLABHASH_GROWING_KINDS
#include "detail/slabhash/kernel_growth/hooks.cuh"
#else
#include "detail/slabhash/kernel_growth/no_hooks.cuh"
#endif

/* For the host: ga_slabhash_device_... */
#include "detail/slabhash/device/file_host.cuh"   /* _save, _load */
#include "detail/slabhash/device/open_host.cuh"   /* _open, _close, _count, _retrieve */
#include "detail/slabhash/device/resize_host.cuh" /* _reserve */
#include "detail/slabhash/device/run_host.cuh"    /* _run, _run_all, _flush, _clear */

/* For kernels: ga_slabhash_session_begin, _end, ga_slabhash_tile, ga_slabhash_lanes */
#include "detail/slabhash/device/session_kernel.cuh"

#endif
