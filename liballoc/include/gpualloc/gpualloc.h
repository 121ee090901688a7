/* SPDX-License-Identifier: MIT
 *
 * gpualloc: memory for a host, a device and its kernels from interchangeable backends.
 *
 * A heap serves one place (host, device or kernel). It is opened from a spec, a text that names its
 * backends (`slab/jemalloc` reads "slab over jemalloc"), or from the environment variable of the
 * place. gpualloc-specs(7) has the grammar; `gpualloc list` prints the backends and
 * their options.
 *
 * Errors: calls that can fail return a ga_status. A failed call changes nothing, sets `*out` to
 * NULL if it has that parameter (except ga_realloc()), and stores a message for the calling thread
 * in ga_error_text(). No call aborts, except that the backend `hardened` ends the process on
 * misuse.
 *
 * Thread safety: all functions may be called from any thread at any time, also on the same heap.
 * ga_heap_close() and ga_heap_reset() need a heap that no other thread is using. No function is
 * async-signal-safe.
 *
 * Sizes and alignments are in bytes.
 *
 * Compiles alone as C11, C++17 and under nvcc.
 */
#ifndef GPUALLOC_GPUALLOC_H
#define GPUALLOC_GPUALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of this header; #if GA_VERSION >= 10203 asks for 1.2.3 or later. */
#define GA_VERSION_MAJOR 0
#define GA_VERSION_MINOR 1
#define GA_VERSION_PATCH 0
#define GA_VERSION       (GA_VERSION_MAJOR * 10000 + GA_VERSION_MINOR * 100 + GA_VERSION_PATCH)

#ifndef GA_API
#define GA_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- statuses -------------------------------------------------------------------------- */

typedef enum ga_status {
    GA_OK = 0,
    GA_ERR_SPEC,        /* invalid spec, option or environment value */
    GA_ERR_PLACE,       /* the backend does not serve the place */
    GA_ERR_DEVICE,      /* no such device, no driver, or an error of the driver */
    GA_ERR_MEMORY,      /* out of memory */
    GA_ERR_SIZE,        /* no heap can serve the size (above PTRDIFF_MAX, overflow) */
    GA_ERR_ALIGN,       /* not a power of two, or above the backend's limit */
    GA_ERR_POINTER,     /* not a live block of this heap */
    GA_ERR_CANNOT_GROW, /* ga_grow: the block cannot grow in place */
    GA_ERR_UNSUPPORTED, /* the backend has no such operation */
    GA_ERR_ARGUMENT,    /* invalid argument: NULL or out of range */
    GA_ERR_LIBRARY,     /* a library or plugin cannot be loaded, or has no such symbol */
    GA_ERR_ABI,         /* the backend was built for another version of backend.h */
    GA_ERR_IO,          /* a file cannot be read or written, or is damaged */
    GA_STATUS_COUNT
} ga_status;

/* A short text for `status`. Static, never NULL, also for values out of range. */
GA_API const char *ga_status_text(ga_status status);

/* The reason of this thread's last failed call: one message that names the backend, the option,
 * the value and the expected form. Valid until the thread's next failed call; "" before the first.
 * Owned by the library. */
GA_API const char *ga_error_text(void);

/* The status of this thread's last failed call, for calls that return a pointer; GA_OK before the
 * first. */
GA_API ga_status ga_error_status(void);

/* The version of the running library, such as "0.1.0". Static. */
GA_API const char *ga_version_text(void);

/* ---- heaps ----------------------------------------------------------------------------- */

typedef enum ga_place {
    GA_PLACE_HOST = 0, /* malloc */
    GA_PLACE_DEVICE,   /* device memory requested by the host: cudaMalloc */
    GA_PLACE_KERNEL,   /* device memory requested in a kernel: in-kernel malloc */
    GA_PLACE_COUNT
} ga_place;

/* "host", "device" or "kernel"; "?" for values out of range. Static. */
GA_API const char *ga_place_text(ga_place place);

typedef struct ga_heap ga_heap;

/* A CUstream or cudaStream_t by value. NULL is the default stream. */
typedef void *ga_stream;

/* Open a heap for `place`. The caller closes it with ga_heap_close().
 *
 * `device`  the device's ordinal as in the CUDA driver; ignored for the host
 * `spec`    the backends and their options; copied. NULL: the value of GPUALLOC_HOST,
 *           GPUALLOC_DEVICE or GPUALLOC_KERNEL, or, if that is unset or empty, `system`, `cuda` or
 *           `slab/vmm`
 *
 * May block: loads libraries, starts the CUDA driver, reserves memory.
 *
 * GA_ERR_SPEC      the spec does not parse, or names an unknown backend or option
 * GA_ERR_PLACE     a backend in it does not serve the place
 * GA_ERR_DEVICE    no such device, or no driver on this machine
 * GA_ERR_LIBRARY   a library that the backend loads is missing or not an allocator
 * GA_ERR_MEMORY    the backend has no memory for its setup
 * GA_ERR_IO        a file that the backend writes cannot be created
 * GA_ERR_ARGUMENT  `out` is NULL, or place or device is out of range */
GA_API ga_status ga_heap_open(ga_heap **out, ga_place place, int device, const char *spec);

/* Check the syntax, the backends, their places and the options of a spec. Neither the CUDA driver
 * nor a library that a backend serves from is loaded. Errors as ga_heap_open(): GA_ERR_SPEC,
 * GA_ERR_PLACE; GA_ERR_MEMORY; GA_ERR_ARGUMENT if `place` is out of range or `spec` is NULL. */
GA_API ga_status ga_heap_check(ga_place place, const char *spec);

/* Close a heap and its parents. Blocks that are still live are reported to the log
 * (GPUALLOC_LOG=warn, the default) and must not be used afterwards; whether their memory returns to
 * the system depends on the backend. NULL is ignored. No other thread may be using the heap. */
GA_API ga_status ga_heap_close(ga_heap *heap);

/* The place and the device's ordinal that the heap was opened with. */
GA_API ga_place ga_heap_place(const ga_heap *heap);
GA_API int ga_heap_device(const ga_heap *heap);

/* The effective spec: with every option and parent written out. Owned by the heap. */
GA_API const char *ga_heap_spec(const ga_heap *heap);

/* ---- memory ---------------------------------------------------------------------------- */

/* Allocate a block of at least `size` bytes. The caller owns it until ga_free().
 *
 * `size`   0 returns a block like any other
 * `align`  0: the backend's own alignment, at least 16 bytes on the host, 256 on a device;
 *          otherwise a power of two
 *
 * GA_ERR_MEMORY  out of memory
 * GA_ERR_SIZE    `size` is above PTRDIFF_MAX
 * GA_ERR_ALIGN   `align` is not a power of two, or above the backend's limit */
GA_API ga_status ga_alloc(ga_heap *heap, size_t size, size_t align, void **out);

/* As ga_alloc(); the block is filled with zeros. On a device GA_ERR_UNSUPPORTED if the backend
 * cannot. */
GA_API ga_status ga_alloc_zeroed(ga_heap *heap, size_t size, size_t align, void **out);

/* As ga_alloc(), in stream order: the block may be used by work that is enqueued on `stream` after
 * the call. GA_ERR_UNSUPPORTED if the backend has no stream order. */
GA_API ga_status ga_alloc_on(ga_heap *heap, size_t size, size_t align, ga_stream stream,
                             void **out);

/* Allocate `n` blocks, `out[i]` of at least `sizes[i]` bytes, all or none: on failure every
 * `out[i]` is NULL. Both arrays have `n` elements. Each block is freed by ga_free(). Errors as
 * ga_alloc(). */
GA_API ga_status ga_alloc_batch(ga_heap *heap, size_t n, const size_t *sizes, void **out);

/* Resize a block to at least `size` bytes. Its contents are kept up to the smaller of both sizes.
 * The block may move: `*out` is its address afterwards, and the old address is invalid. A NULL
 * block is ga_alloc(). On failure the block is unchanged and `*out` is `block`, so `&block` may be
 * passed. `align` as in ga_alloc().
 *
 * GA_ERR_UNSUPPORTED  the backend cannot; also for a device's block that would have to move while a
 *                     captured graph uses it, or while a stream that waits for the legacy stream
 *                     captures */
GA_API ga_status ga_realloc(ga_heap *heap, void *block, size_t size, size_t align, void **out);

/* Grow the block in place to at least `size` bytes; its address does not change. GA_ERR_CANNOT_GROW
 * if it cannot grow, also if the backend has no growth in place. */
GA_API ga_status ga_grow(ga_heap *heap, void *block, size_t size);

/* Free a block. NULL is ignored. GA_ERR_POINTER if the backend can tell that the block is not its
 * own; see ga_owns(). On a device it may wait for work that uses the block, as the backend's
 * options say. */
GA_API ga_status ga_free(ga_heap *heap, void *block);

/* Free in stream order: after the work that is now on `stream`. Does not wait for it.
 * GA_ERR_UNSUPPORTED if the backend has no stream order. */
GA_API ga_status ga_free_on(ga_heap *heap, void *block, ga_stream stream);

/* Free the block once no hazard pointer protects it (gpualloc/reclaim.h). GA_ERR_UNSUPPORTED
 * without a `hazard` layer. */
GA_API ga_status ga_retire(ga_heap *heap, void *block);

/* The usable bytes of a live block: the requested size or more. 0 if unknown. */
GA_API size_t ga_usable_size(ga_heap *heap, const void *block);

/* Whether the pointer lies in memory of this heap's backend. For backends that are one allocator
 * for the whole process (`system`, `jemalloc`, `dl`) this includes the blocks of their other heaps.
 * `system` cannot recognise blocks and returns true for every pointer outside the memory of other
 * backends. `slab` recognises a large block, which it obtains from its parent, only by its first
 * byte. */
GA_API bool ga_owns(ga_heap *heap, const void *pointer);

/* Give free memory back to the parent or the system, except about `keep` bytes. GA_ERR_UNSUPPORTED
 * if the backend cannot. */
GA_API ga_status ga_trim(ga_heap *heap, size_t keep);

/* Give the kernels of another device, of the ordinal `peer`, access to all memory of a heap on a
 * device, present and future, until the heap is closed. The backend cuda has nothing to do: its
 * memory is accessible once the program has called cudaDeviceEnablePeerAccess() on the peer.
 *
 * GA_ERR_UNSUPPORTED  the backend cannot, or the peer cannot access this device
 * GA_ERR_DEVICE       no such device */
GA_API ga_status ga_heap_enable_peer(ga_heap *heap, int peer);

/* Free all blocks of the heap at once; the heap keeps its memory. Waits for the device if the heap
 * is on one. No other thread, stream or kernel may be using the heap. GA_ERR_UNSUPPORTED if the
 * backend keeps no list of its blocks. */
GA_API ga_status ga_heap_reset(ga_heap *heap);

/* Call `visit` with `context` for every live block and its usable bytes. Blocks that are allocated
 * or freed during the call may or may not be visited. GA_ERR_UNSUPPORTED if the backend keeps no
 * list of its blocks. */
typedef void ga_visit(void *context, void *block, size_t size);
GA_API ga_status ga_heap_each_live(ga_heap *heap, ga_visit *visit, void *context);

/* ---- in kernels ------------------------------------------------------------------------ */

/* A view of a heap for kernels, passed to them by value. `kind` selects the device code; the
 * meaning of the words depends on it. The calls in kernels are in gpualloc/device.cuh. */
typedef struct ga_kernel_heap {
    uint32_t abi;
    uint32_t kind;
    uint64_t words[6];
} ga_kernel_heap;

/* The view of a heap that was opened for GA_PLACE_KERNEL; else GA_ERR_UNSUPPORTED. Valid until the
 * heap is closed. */
GA_API ga_status ga_heap_kernel_view(ga_heap *heap, ga_kernel_heap *out);

/* ---- statistics ------------------------------------------------------------------------ */

/* Counts since the heap was opened. Each thread has its own counters, and a read adds them up. So
 * each value read while other threads allocate is correct for some recent moment, but not all
 * values for the same one. docs/reference/stats.md lists the keys of the JSON form, which are
 * the names of these members. */
typedef struct ga_stats {
    uint64_t allocs;          /* blocks allocated */
    uint64_t frees;           /* blocks freed or retired */
    uint64_t reallocs;        /* blocks resized by ga_realloc() or ga_grow(), moved or not */
    uint64_t failures;        /* calls that returned an error */
    uint64_t live_blocks;     /* allocs - frees */
    uint64_t live_bytes;      /* usable bytes of the live blocks */
    uint64_t peak_bytes;      /* largest live_bytes, exact to 64 KiB per thread */
    uint64_t requested_bytes; /* sum of all requested sizes since the heap was opened */
    uint64_t granted_bytes;   /* sum of the usable sizes of the blocks allocated for them */
    uint64_t held_bytes; /* bytes that the backend has obtained from its parent or the system; 0:
                          * unknown */
    uint64_t growths;    /* times that the backend obtained more from its parent; 0: unknown */
} ga_stats;

/* Read the statistics. GA_ERR_ARGUMENT for NULL. On a device it may query the driver. */
GA_API ga_status ga_heap_stats(const ga_heap *heap, ga_stats *out);

/* Write the statistics of a heap as a table or as one line of JSON to `buffer`, cut to `size` bytes
 * including the NUL. Returns the length of the whole text, as snprintf() does. */
GA_API size_t ga_heap_stats_text(const ga_heap *heap, char *buffer, size_t size);
GA_API size_t ga_heap_stats_json(const ga_heap *heap, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif
#endif
