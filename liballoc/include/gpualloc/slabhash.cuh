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

/* ---- types --------------------------------------------------------------------------------- */

/* A table as kernels see it, passed by value. It must not be used after the table is closed, or has
 * another array (GA_SLABHASH_GROW). */
typedef struct ga_slabhash_view ga_slabhash_view;

/* A table of the host's, opened and closed by the functions below. `view` is for kernels, `seed`
 * that of the hash; the other fields belong to the functions. Not to be copied. */
typedef struct ga_slabhash_device ga_slabhash_device;

/* The answer to one operation in a kernel:
 *
 *     uint32_t result      ga_slabhash_result
 *     uint64_t value       value that the key had before, else 0 */
typedef struct ga_slabhash_answer ga_slabhash_answer;

/* Counts of a table, each a uint64_t: `live` pairs; `deleted` slots, which a flush makes usable
 * again; `chained` overflow slabs; buckets that have `overflowed`, so that searches go on behind
 * them. */
typedef struct ga_slabhash_census ga_slabhash_census;

/* A tile's session, in registers of its lanes. */
typedef struct ga_slabhash_session ga_slabhash_session;

/* ---- for kernels ---------------------------------------------------------------------------
 *
 * All 8 lanes of a tile call together. Thread blocks have one dimension and whole tiles. `kind` is
 * GA_SLABHASH_KIND(mode, multi), where `multi` says that the table has GA_SLABHASH_MULTI, as in
 * GA_SLABHASH_KIND(GA_SLABHASH_MAP32, false). The result is GA_SLABHASH_REFUSED if the table is of
 * another kind, or has no such operation, key or value. `op`, `key`, `value` and `how` are as in
 * ga_slabhash_batch; values of SEARCH and DELETE, and of sets, are ignored. */

/* Begin and end a tile's session. If it is not ended, up to 31 slabs stay allocated, and all arrays
 * of a table that grows in kernels. */
static __device__ __forceinline__ ga_slabhash_session
ga_slabhash_session_begin(ga_slabhash_view table);
static __device__ __forceinline__ void ga_slabhash_session_end(ga_slabhash_session *session);

/* One operation by the whole tile, with equal arguments in each lane. All lanes get the answer. */
template <uint32_t kind>
static __device__ __forceinline__ ga_slabhash_answer
ga_slabhash_tile(ga_slabhash_session *session, uint32_t op, uint64_t key, uint64_t value,
                 uint32_t how = GA_SLABHASH_ADD);

/* One operation for each lane that `asks`, each of any kind; the other lanes only help. If all
 * lanes have one operation, pass it as `fixed`, which takes fewer registers. If all tiles of every
 * warp call together, pass `whole`, which saves a test. Fastest if whole warps call. */
template <uint32_t kind, uint32_t fixed = GA_SLABHASH_OP_COUNT, bool whole = false>
static __device__ __forceinline__ ga_slabhash_answer
ga_slabhash_lanes(ga_slabhash_session *session, bool asks, uint32_t op, uint64_t key,
                  uint64_t value, uint32_t how = GA_SLABHASH_ADD);

/* ---- for the host --------------------------------------------------------------------------
 *
 * Templates, because their kernels are compiled only in programs that call them. `stream` is a
 * stream of the table's device. Also returned: GA_ERR_ARGUMENT if there is no table, or it is
 * closed; GA_ERR_DEVICE if CUDA reports an error. With GA_SLABHASH_GROW_IN_KERNELS, _count(),
 * _retrieve() and _save() return GA_ERR_MEMORY if the table is migrating and finds no slab to
 * finish that. */

/* Opens a table on `device`, which need not be the current one. It is empty for work that is
 * enqueued on `stream` after the call. Options as for ga_slabhash_open(), but:
 *
 *   heap     a slab heap of unit=128 for kernels, without check=full; it outlives the table. NULL:
 *            one is opened as slab:unit=128/vmm
 *   limit    ignored: the heap has its own
 *   hash     NULL; define GA_SLABHASH_HASH instead
 *   buckets  with GA_SLABHASH_GROW or _GROW_IN_KERNELS the fewest buckets; 0: 16384
 *   seed     0: one is drawn, as for a host table; table->seed has it
 *
 * GA_ERR_ARGUMENT     an option is out of range; the heap is of another kind or another device
 * GA_ERR_UNSUPPORTED  _GROW_IN_KERNELS with a path, or without GA_SLABHASH_GROWING_KINDS; a kind
 *                     other than GA_SLABHASH_ONLY_KIND, if that is defined
 * GA_ERR_PLACE, GA_ERR_DEVICE, GA_ERR_MEMORY  as ga_heap_open() and ga_alloc() */
template <typename unused = void>
static inline ga_status ga_slabhash_device_open(ga_slabhash_device *table,
                                                const ga_slabhash_options *options, int device,
                                                cudaStream_t stream);

/* Closes the table: all slabs go back to the slab heap. No kernel may use the table; the call waits
 * for the device. A second close does nothing. */
template <typename unused = void>
static inline ga_status ga_slabhash_device_close(ga_slabhash_device *table);

/* Carries out all operations of the batch, in no order, after the work on `stream`. The batch's
 * arrays and `counts` are in device memory, and stay until that work is done. `counts` is NULL, or
 * has four numbers, to which the results ABSENT, FOUND, FULL and REFUSED are added: set them to 0
 * before. ABSENT and FOUND were carried out; FULL may be tried again. The call does not wait,
 * except when the heap or the table has to grow. The host does not read `ops`: an operation of a
 * map that needs a value is REFUSED if there are no `values`.
 *
 * GA_ERR_ARGUMENT  no batch or keys; no values, and `op` needs them; `op` or `how` is out of range:
 *                  GA_SLABHASH_HOW_COUNT is valid if GA_SLABHASH_FUNCTION is defined */
template <typename unused = void>
static inline ga_status ga_slabhash_device_run(ga_slabhash_device *table,
                                               const ga_slabhash_batch *batch, uint64_t *counts,
                                               cudaStream_t stream);

/* ga_slabhash_run_search_all() and, if it `removes`, ga_slabhash_run_delete_all() for device
 * arrays, after the work on `stream`; does not wait. The values of a key are contiguous; different
 * keys are in no order. If the table changes during the call fewer values may be written than were
 * counted; all->counts then has the number written. `totals` are two numbers in device memory: all
 * pairs, and refused keys. Set them to 0 before.
 *
 * GA_ERR_ARGUMENT  no batch, keys or totals; room without values */
template <typename unused = void>
static inline ga_status ga_slabhash_device_run_all(ga_slabhash_device *table,
                                                   const ga_slabhash_all *all, bool removes,
                                                   uint64_t *totals, cudaStream_t stream);

/* Makes room for `pairs` in all, in a table that grows, for kernels that insert by themselves.
 * Waits; the view is another one afterwards if there was not enough room.
 *
 * GA_ERR_MEMORY       no memory for the buckets, or a slab; the table is as it was
 * GA_ERR_UNSUPPORTED  a table without GA_SLABHASH_GROW */
template <typename unused = void>
static inline ga_status ga_slabhash_device_reserve(ga_slabhash_device *table, uint64_t pairs,
                                                   cudaStream_t stream);

/* FLUSH and clear, like ga_slabhash_flush() and ga_slabhash_clear(): exclusive, after the work on
 * `stream`. After a flush searches load whole slabs, until the table is cleared. A flush of a table
 * that grows waits, and migrates it to as many buckets as its pairs need, if there is memory. */
template <typename unused = void>
static inline ga_status ga_slabhash_device_flush(ga_slabhash_device *table, cudaStream_t stream);
template <typename unused = void>
static inline ga_status ga_slabhash_device_clear(ga_slabhash_device *table, cudaStream_t stream);

/* Counts the table as it is after the work on `stream`, for which the call waits. `census` is in
 * host memory and is set. */
template <typename unused = void>
static inline ga_status ga_slabhash_device_count(ga_slabhash_device *table,
                                                 ga_slabhash_census *census, cudaStream_t stream);

/* Copies all pairs to device arrays of `room` elements, each of which may be NULL, and sets
 * `*count`, in host memory, to the number of pairs; waits. */
template <typename unused = void>
static inline ga_status ga_slabhash_device_retrieve(ga_slabhash_device *table, void *keys,
                                                    void *values, uint64_t room, uint64_t *count,
                                                    cudaStream_t stream);

/* Writes all pairs to a file, like ga_slabhash_save(); device and host tables read each other's
 * files. The state saved is that after the work on `stream`, for which the call waits. No kernel
 * may change the table during the call. Needs memory for all pairs, on the device once and on the
 * host twice.
 *
 * GA_ERR_IO, GA_ERR_ARGUMENT  as ga_slabhash_save()
 * GA_ERR_MEMORY               no memory for the pairs; the file is unchanged */
template <typename unused = void>
static inline ga_status ga_slabhash_device_save(ga_slabhash_device *table, const char *path,
                                                cudaStream_t stream);

/* Inserts the pairs of such a file, like ga_slabhash_load(), after the work on `stream`; waits. The
 * whole file is checked before the first pair is inserted. Needs memory like
 * ga_slabhash_device_save().
 *
 * GA_ERR_IO, GA_ERR_ARGUMENT  as ga_slabhash_load()
 * GA_ERR_MEMORY               no memory for the pairs, or not all pairs were inserted */
template <typename unused = void>
static inline ga_status ga_slabhash_device_load(ga_slabhash_device *table, const char *path,
                                                cudaStream_t stream);

/* Loads the kernels of all batches on the table's device. CUDA loads a kernel when it is first used
 * and may wait for all work on the device then, so a program whose kernels wait for each other, or
 * for another device, loads them before. */
template <typename unused = void>
static inline ga_status ga_slabhash_device_load(const ga_slabhash_device *table);

/* ---- definitions --------------------------------------------------------------------------- */

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

#include "detail/slabhash/device/file_host.cuh"
#include "detail/slabhash/device/open_host.cuh"
#include "detail/slabhash/device/resize_host.cuh"
#include "detail/slabhash/device/run_host.cuh"
#include "detail/slabhash/device/session_kernel.cuh"

#endif
