/* SPDX-License-Identifier: MIT
 *
 * Vectors: elements of one size, one after the other, in an arena (vmm-spgemm-2023, §3.1 and §A.2).
 * A vector grows where it stands: what is missing is mapped behind what is there, nothing is copied
 * and nothing is held twice, and a pointer to an element stays good. New elements are
 * uninitialised.
 *
 *     data                size            capacity                 reserved
 *     | elements          | room          | addresses, nothing behind |
 *
 * Elements are bytes: they are copied as memcpy does. C++ has classes over this in vector.hpp.
 *
 * Positions (`at`) and counts (`n`) are in elements. A call that fails leaves size and elements as
 * they were, unless a device fails in the middle of moving them; the capacity may have grown.
 *
 * Thread safety: calls on different vectors never disturb each other; calls on one vector want one
 * thread at a time.
 *
 * Stream order: the work that a call gives to a device (copying, filling, moving a tail) runs on
 * the vector's stream. Growing is no such work: it waits for nothing, and kernels may run
 * meanwhile. A vector without a stream uses the default stream and waits for it, as cudaMemcpy
 * does.
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

/* An empty vector of elements of `element` bytes in an arena of its own with these options. With
 * GA_ARENA_EXACT it never takes more than is asked for; else what does not fit takes room for
 * max(size + max(size, n), 2 * capacity) elements, n being the new ones (§A.2.2), where memory and
 * limit allow that, and as much as is needed where they do not.
 *
 * `stream`: NULL, or where the work of a vector on a device goes from now on; it must outlive the
 * vector. Calls return once the work is on it. Host memory that they read or write must then stay
 * as it is until the work is done (ga_vector_wait), unless it is pageable, as with cudaMemcpyAsync.
 * Pass cudaStreamLegacy to have the default stream without the waiting.
 *
 * GA_ERR_ARGUMENT  no bytes an element, or a stream on the host; else as ga_arena_open() */
GA_API ga_status ga_vector_open(ga_vector **out, size_t element, const ga_arena_options *options,
                                ga_stream stream);

/* Waits for the vector's stream. Nobody else may be using the memory. NULL is ignored. */
GA_API void ga_vector_close(ga_vector *vector);

/* ---- what it is ------------------------------------------------------------------------ */

/* The first element. Constant over the vector's life (but see ga_arena_move()), also while it is
 * empty. */
GA_API void *ga_vector_data(const ga_vector *vector);
GA_API uint64_t ga_vector_size(const ga_vector *vector); /* elements */
GA_API uint64_t
ga_vector_capacity(const ga_vector *vector);              /* elements that memory is mapped for */
GA_API size_t ga_vector_element(const ga_vector *vector); /* bytes of one */

/* Where it stands: for statistics, sharing, and more addresses. Not to be shrunk or closed. */
GA_API ga_arena *ga_vector_arena(const ga_vector *vector);

/* Return when all work that the vector has put on its stream is done. */
GA_API ga_status ga_vector_wait(ga_vector *vector);

/* ---- room ------------------------------------------------------------------------------ */

/* Room for `n` elements in all, and for no more than chunks make it (Algorithm 2: the difference is
 * mapped). Where the addresses run out, more are reserved directly behind.
 *
 * GA_ERR_SIZE     more bytes than there can be
 * GA_ERR_NO_ROOM  no addresses behind: ga_arena_move() can get others, and moves the data
 * GA_ERR_MEMORY   out of memory, above the limit, or more than the machine has in all
 *
 * Every call below that makes the vector longer answers these, too. */
GA_API ga_status ga_vector_reserve(ga_vector *vector, uint64_t n);

/* `n` elements. Those that are new are uninitialised; room is kept when there are fewer. */
GA_API ga_status ga_vector_resize(ga_vector *vector, uint64_t n);

/* Give back the chunks that lie wholly behind the last element. Waits for the stream; nobody else
 * may be using them. */
GA_API ga_status ga_vector_shrink_to_fit(ga_vector *vector);

/* ---- elements -------------------------------------------------------------------------- */

/* `from` is host memory, for a vector on a device also memory of any device that this one has
 * access to; it may be the vector's own elements. Positions beyond the size are GA_ERR_ARGUMENT. */

/* `n` more at the end. A NULL `from` leaves them uninitialised. */
GA_API ga_status ga_vector_append(ga_vector *vector, uint64_t n, const void *from);

/* One more at the end. */
GA_API ga_status ga_vector_push_back(ga_vector *vector, const void *from);

/* `n` more before element `at`: the tail moves up, in place. A NULL `from` leaves them
 * uninitialised (ga_vector_fill() then makes it the fill_insert of §A.2.3). */
GA_API ga_status ga_vector_insert(ga_vector *vector, uint64_t at, uint64_t n, const void *from);

/* Elements at to at + n are gone: the tail moves down, in place.
 *
 * On a device insert and erase move tails by copies of pieces that do not overlap; a way of less
 * than 1 MiB takes room for as much behind the elements, and is refused where there is none. */
GA_API ga_status ga_vector_erase(ga_vector *vector, uint64_t at, uint64_t n);

/* Make elements at to at + n what `value`, in host memory, is. */
GA_API ga_status ga_vector_fill(ga_vector *vector, uint64_t at, uint64_t n, const void *value);

/* Overwrite elements at to at + n, or copy them out to memory as `from` above. */
GA_API ga_status ga_vector_write(ga_vector *vector, uint64_t at, uint64_t n, const void *from);
GA_API ga_status ga_vector_read(ga_vector *vector, uint64_t at, uint64_t n, void *to);

/* Make `to` hold the same elements as `from`, on whatever places they are. Where their streams
 * differ, both are waited for. GA_ERR_ARGUMENT for elements of different sizes. */
GA_API ga_status ga_vector_copy(ga_vector *to, ga_vector *from);

/* ---- in kernels ------------------------------------------------------------------------ */

#define GA_KERNEL_VECTOR_ABI 1u

/* What kernels of the vector's own device need to append, and the vector grows while they run:
 * vector.cuh. By value. */
typedef struct ga_kernel_vector {
    uint32_t abi;
    uint32_t element; /* bytes */
    void *data;
    void *state;
} ga_kernel_vector;

/* Lend the vector to kernels. They grow it by the rule of ga_vector_open(), but by at least `step`
 * bytes at once (0: 32 MiB; else 64 KiB or more) and by not much more than 1 GiB, so that nobody
 * waits for long; and to no more than whole steps within its limit.
 * Waits for the stream. Until it is taken back, only data, size (as it was), capacity, wait and
 * close can be called. A vector on the host is lent to threads, which append by the words of
 * arena/append.h.
 *
 * Whether memory grows under running kernels of a device is tried out once in a process. Where it
 * does not, the vector is lent all the same, with a warning in the log, but grows between launches
 * only: kernels fill the room that there is (ga_vector_reserve() before), and beyond it are refused
 * with the reason "it grows between launches only".
 *
 * GA_ERR_ARGUMENT  it is lent already
 * GA_ERR_MEMORY    no memory or thread for it */
GA_API ga_status ga_vector_lend(ga_vector *vector, uint64_t step, ga_kernel_vector *out);

typedef struct ga_vector_appended {
    uint64_t appended, refused;        /* elements */
    const char *reason;                /* of the refusals: "" for none */
    uint64_t growths;                  /* while it was lent */
    uint64_t grow_ns_p50, grow_ns_p99; /* one's time, from the wish seen until it was granted */
    uint64_t grow_ns_p999, grow_ns_most;
} ga_vector_appended;

/* Take it back from kernels that have all ended: its size is what they made it. `out` may be NULL.
 * On failure it is taken back, too, but with the size it had. */
GA_API ga_status ga_vector_take_back(ga_vector *vector, ga_vector_appended *out);

#ifdef __cplusplus
}
#endif
#endif
