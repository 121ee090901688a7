/* SPDX-License-Identifier: MIT
 *
 * Vectors: elements of one size, stored contiguously in an arena (vmm-spgemm-2023, §3.1 and §A.2:
 * docs/sources.md). A vector grows in place: more memory is mapped behind the elements. Nothing is
 * copied, no memory is held twice, and pointers to elements stay valid. New elements are
 * uninitialised.
 *
 *     data                size            capacity                 reserved
 *     | elements          | room          | addresses, not backed     |
 *
 * Elements are bytes: they are copied as by memcpy. vector.hpp has C++ classes over this.
 *
 * Positions (`at`) and counts (`n`) are in elements. A call that fails leaves size and elements
 * unchanged, unless a device fails while it moves them; the capacity may have grown.
 *
 * Thread safety: calls on different vectors are independent; calls on one vector must not overlap.
 *
 * Stream order: the device work of a call (copying, filling, moving a tail) runs on the vector's
 * stream. Growing is not device work: it waits for nothing, and kernels may run during it. A vector
 * without a stream uses the default stream and waits for it, as cudaMemcpy does.
 *
 * Compiles alone as C11, C++17 and under nvcc.
 */
#ifndef GPUALLOC_VECTOR_H
#define GPUALLOC_VECTOR_H

#include <gpualloc/arena.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ga_vector ga_vector;

/* Open an empty vector of elements of `element` bytes, in an arena of its own with these options.
 * With GA_ARENA_EXACT it never takes more memory than requested. Otherwise an append that does not
 * fit makes room for max(size + max(size, n), 2 * capacity) elements, where n is the number of new
 * ones (§A.2.2), if memory and limit allow it, and for the needed ones if they do not.
 *
 * `stream`: NULL, or the stream of the vector's device work; it must outlive the vector. Calls
 * return once the work is queued. Host memory that they read or write must stay unchanged until the
 * work is done (ga_vector_wait), unless it is pageable, as with cudaMemcpyAsync. Pass
 * cudaStreamLegacy for the default stream without waiting.
 *
 * GA_ERR_ARGUMENT  elements of 0 bytes, or a stream on the host; else as ga_arena_open() */
GA_API ga_status ga_vector_open(ga_vector **out, size_t element, const ga_arena_options *options,
                                ga_stream stream);

/* Waits for the vector's stream. The memory must not be in use by others. NULL is ignored. */
GA_API void ga_vector_close(ga_vector *vector);

/* ---- properties ------------------------------------------------------------------------ */

/* The first element. Constant over the vector's life (except after ga_arena_move()), even while the
 * vector is empty. */
GA_API void *ga_vector_data(const ga_vector *vector);
GA_API uint64_t ga_vector_size(const ga_vector *vector); /* elements */
GA_API uint64_t
ga_vector_capacity(const ga_vector *vector);              /* elements that memory is mapped for */
GA_API size_t ga_vector_element(const ga_vector *vector); /* bytes of an element */

/* The vector's arena: for statistics, sharing, and more addresses. Do not shrink or close it. */
GA_API ga_arena *ga_vector_arena(const ga_vector *vector);

/* Wait until all work on the vector's stream is done. */
GA_API ga_status ga_vector_wait(ga_vector *vector);

/* ---- room ------------------------------------------------------------------------------ */

/* Make room for `n` elements in all, and for no more than chunks round it up to (Algorithm 2: the
 * difference is mapped). If the addresses run out, more are reserved directly behind.
 *
 * GA_ERR_SIZE         more bytes than addressable
 * GA_ERR_CANNOT_GROW  the addresses behind are in use: ga_arena_move() can reserve others, and
 *                     moves the data
 * GA_ERR_MEMORY       out of memory, above the limit, or more than the machine has in all
 *
 * All calls below that make the vector longer return these as well. */
GA_API ga_status ga_vector_reserve(ga_vector *vector, uint64_t n);

/* Set the size to `n` elements. New elements are uninitialised; the capacity does not shrink. */
GA_API ga_status ga_vector_resize(ga_vector *vector, uint64_t n);

/* Release the chunks that lie wholly behind the last element. Waits for the stream; the chunks must
 * not be in use by others. */
GA_API ga_status ga_vector_shrink_to_fit(ga_vector *vector);

/* ---- elements -------------------------------------------------------------------------- */

/* `from` is host memory, or for a vector on a device memory of any device that this one can access;
 * it may be part of the vector. Positions beyond the size are GA_ERR_ARGUMENT. */

/* Append `n` elements. With `from` NULL they stay uninitialised. */
GA_API ga_status ga_vector_append(ga_vector *vector, uint64_t n, const void *from);

/* Append one element. */
GA_API ga_status ga_vector_push_back(ga_vector *vector, const void *from);

/* Insert `n` elements before element `at`: the tail moves up, in place. With `from` NULL they stay
 * uninitialised (followed by ga_vector_fill() it is the fill_insert of §A.2.3). */
GA_API ga_status ga_vector_insert(ga_vector *vector, uint64_t at, uint64_t n, const void *from);

/* Remove the elements at to at + n: the tail moves down, in place.
 *
 * On a device, insert and erase move tails by copying pieces that do not overlap. Moving by less
 * than 1 MiB needs up to 1 MiB of room behind the elements, and fails if there is none. */
GA_API ga_status ga_vector_erase(ga_vector *vector, uint64_t at, uint64_t n);

/* Set the elements at to at + n to `value`, which is in host memory. */
GA_API ga_status ga_vector_fill(ga_vector *vector, uint64_t at, uint64_t n, const void *value);

/* Overwrite the elements at to at + n, or copy them out; memory as for `from` above. */
GA_API ga_status ga_vector_write(ga_vector *vector, uint64_t at, uint64_t n, const void *from);
GA_API ga_status ga_vector_read(ga_vector *vector, uint64_t at, uint64_t n, void *to);

/* Make `to` hold the elements of `from`; their places may differ. If their streams differ, the call
 * waits for both. GA_ERR_ARGUMENT for elements of different sizes. */
GA_API ga_status ga_vector_copy(ga_vector *to, ga_vector *from);

/* ---- in kernels ------------------------------------------------------------------------ */

#define GA_KERNEL_VECTOR_ABI 1u

/* The data that kernels of the vector's device need to append while the vector grows: see
 * vector.cuh. Passed by value. */
typedef struct ga_kernel_vector {
    uint32_t abi;
    uint32_t element; /* bytes */
    void *data;
    void *state;
} ga_kernel_vector;

/* Lend the vector to kernels. They grow it by the rule of ga_vector_open(), but by at least `step`
 * bytes at once (0: 32 MiB; else at least 64 KiB) and by little more than 1 GiB, so that no kernel
 * waits for long, and only in whole steps within its limit. Waits for the stream. Until the vector
 * is back, only data, size (the old one), capacity, wait and close may be called. A vector on
 * the host can be lent to threads in the library's own tests alone: they have no public call.
 *
 * Whether memory grows under running kernels of a device is tried once per process. If it does not,
 * the vector is lent nevertheless, with a warning in the log, and grows between launches only:
 * kernels fill the existing room (call ga_vector_reserve() before) and are refused beyond it, with
 * the reason "it grows between launches only".
 *
 * GA_ERR_ARGUMENT  it is lent already
 * GA_ERR_MEMORY    no memory or thread for it */
GA_API ga_status ga_vector_lend(ga_vector *vector, uint64_t step, ga_kernel_vector *out);

typedef struct ga_vector_appended {
    uint64_t appended, refused; /* elements */
    const char *reason;         /* of the refusals: "" for none */
    uint64_t growths;           /* while it was lent */
    /* Per growth, from the pager's poll of the request until it was granted. */
    uint64_t grow_ns_p50, grow_ns_p99;
    uint64_t grow_ns_p999, grow_ns_max;
} ga_vector_appended;

/* End the loan; all kernels that use the vector have ended. Their elements are now part of it.
 * `out` may be NULL. If the call fails, the loan ends too, but the vector keeps its old size. */
GA_API ga_status ga_vector_end_loan(ga_vector *vector, ga_vector_appended *out);

#ifdef __cplusplus
}
#endif
#endif
