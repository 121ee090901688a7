/* SPDX-License-Identifier: MIT
 *
 * The slab hash in device memory: what gpualloc/slabhash.h has, for kernels, and for batches of
 * arrays in device memory. docs/slabhash.md.
 *
 *     ga_slabhash_device table;
 *     ga_slabhash_options options = {.options_size = sizeof options, .mode = GA_SLABHASH_MAP32,
 *                                    .buckets = 1 << 20, .path = 4};
 *     ga_slabhash_device_open(&table, &options, 0, stream);
 *     ga_slabhash_device_run(&table, &batch, counts, stream);      arrays of the device's
 *     my_kernel<<<grid, 128, 0, stream>>>(table.view, ...);
 *     ga_slabhash_device_close(&table);
 *
 * In a kernel, 8 lanes are a tile that works on a slab together. Each lane brings an operation of
 * its own, whichever; the tile serves one lane after the other (slab-hash-2018, §IV-A), or, where
 * whole warps call, several at once:
 *
 *     ga_slabhash_turn turn = ga_slabhash_turn_begin(view);
 *     ga_slabhash_answer a = ga_slabhash_lanes<kind>(&turn, asks, op, key, value);
 *     ga_slabhash_turn_end(&turn);
 *
 * Operations of all kernels and streams may run beside each other, but for those that say that
 * they are alone. In tables of unique keys those on one key are linearizable. Values are data:
 * what a kernel wrote before it put a pair in is not promised to be seen by who finds it within
 * the same launch.
 *
 * The slabs come from a slab heap of 128-byte units for kernels. Where that cannot grow under
 * kernels it grows between calls of ga_slabhash_device_run(); what found it full has the result
 * GA_SLABHASH_FULL.
 *
 * With GA_SLABHASH_GROW there are as many buckets as the batches of ga_slabhash_device_run() need,
 * and ga_slabhash_device_reserve() makes room for what kernels put in by themselves. Both may give
 * the table another array, which is in table.view: views from before are no longer good, and no
 * kernel may be using one meanwhile. Such batches go on one stream, or wait for each other. All kinds
 * of tables grow so, with any path and all keys.
 *
 * With GA_SLABHASH_GROW_IN_KERNELS a table grows while kernels run, by what they put in, and shrinks
 * or is compacted by what they take out; it never has fewer buckets than it was opened with, or had
 * when it was last cleared, flushed or reserved. Path 1, keys below 2^31 - 2 in the 32-bit modes, in
 * the 64-bit mode keys below 2^64 - 2 and values below 2^63 - 3. Views stay good. `kind` in kernels is
 * GA_SLABHASH_KIND(mode, multi) | GA_SLABHASH_GROWING. Older arrays go back with their slabs while
 * kernels run, once no turn of a tile may know of them: a turn looks now and then whether one waits for
 * it, and keeps them meanwhile. Where
 * the device cannot get memory under kernels, or has no more, inserts chain slabs, and the table
 * grows in a later kernel. A program that has such tables defines GA_SLABHASH_GROWING_KINDS before it
 * includes this, in all that uses them: it takes as long again to compile. Arrays come from a kernel
 * heap of all sizes of the table's own: "slab/vmm", or what the program defines GA_SLABHASH_ARRAYS as.
 *
 * Where the options' seed is 0, each table draws one, which table.seed has: what gpualloc/slabhash.h
 * says about chosen keys holds here too. Kernels have a and b in the view.
 *
 * A program with a hash of its own defines GA_SLABHASH_HASH(table, key), 64 bits, the upper ones
 * of which choose the bucket; one with a way of its own to apply GA_SLABHASH_FUNCTION(there,
 * given), for `how` = GA_SLABHASH_HOW_COUNT; both before it includes this, the same wherever the
 * table is used.
 *
 * With GA_SLABHASH_CHECKED defined before it is included, wherever the table is used, turns of
 * tiles beside a flush or clear are noticed, for which a tile's turn takes two atomics more:
 * ga_slabhash_device_count(), _retrieve() and _close() answer GA_ERR_ARGUMENT once they have seen
 * it.
 *
 * A program whose tables are all of one kind, and do not grow in kernels, may define
 * GA_SLABHASH_ONLY_KIND as that before it includes this, and takes a part of the time to compile.
 *
 * Batches that change a table of more than four times the device's L2 cache, have a request for each
 * bucket or more, and want no answers, take memory for a copy of up to two requests a bucket meanwhile.
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

#include "device/kinds.h"

#ifndef GA_SLABHASH_HASH
#define GA_SLABHASH_HASH(table, key) ga_slabhash_seeded(table, key)
#endif

#ifndef GA_SLABHASH_ARRAYS
#define GA_SLABHASH_ARRAYS "slab/vmm"
#endif

#include "slabhash/file_host.cuh"   /* ga_slabhash_device_save, _load */
#include "slabhash/open_host.cuh"   /* ga_slabhash_device_open, _close, _count, _retrieve */
#include "slabhash/resize_host.cuh" /* ga_slabhash_device_reserve */
#include "slabhash/run_host.cuh"    /* ga_slabhash_device_run, _run_all, _flush, _clear */
#include "slabhash/turn_kernel.cuh" /* ga_slabhash_turn_begin, _turn_end, ga_slabhash_tile, _lanes */

#endif
