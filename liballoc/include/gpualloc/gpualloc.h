/* SPDX-License-Identifier: MIT
 *
 * gpualloc: memory for a host, a device and its kernels from interchangeable backends.
 *
 * A heap is opened for a place (where memory is asked for) from a spec (text that names the
 * backends it is made of, `slab/jemalloc` reads "slab over jemalloc"), or from the
 * environment variable of that place. docs/reference/specs.md has the grammar; `gpualloc list`
 * has the backends and their options.
 *
 * Every call answers a status. A call that fails changes nothing, sets `*out` to NULL where it has
 * one (but see ga_realloc), and leaves a sentence for the calling thread in ga_error_text(). No
 * call aborts.
 *
 * Thread safety: every function here may be called from any thread at any time, on the same
 * heap too, except that ga_heap_close() wants a heap that no other thread is using. None is
 * async-signal-safe.
 *
 * Compiles alone as C11, C++17 and under nvcc.
 */
#ifndef GPUALLOC_GPUALLOC_H
#define GPUALLOC_GPUALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GA_VERSION_MAJOR 0
#define GA_VERSION_MINOR 1
#define GA_VERSION_PATCH 0

#ifndef GA_API
#define GA_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- statuses -------------------------------------------------------------------------- */

typedef enum ga_status {
    GA_OK = 0,
    GA_ERR_SPEC,        /* a spec, option or environment value that does not parse */
    GA_ERR_PLACE,       /* the backend does not serve that place */
    GA_ERR_DEVICE,      /* no such device, no driver, or the driver refused */
    GA_ERR_MEMORY,      /* out of memory */
    GA_ERR_SIZE,        /* a size that no heap can serve (near SIZE_MAX, overflow) */
    GA_ERR_ALIGN,       /* not a power of two, or more than the backend can align */
    GA_ERR_POINTER,     /* not a live block of this heap */
    GA_ERR_NO_ROOM,     /* ga_grow: the block cannot grow where it stands */
    GA_ERR_UNSUPPORTED, /* the backend has no such operation */
    GA_ERR_ARGUMENT,    /* NULL or out of range where the call does not allow it */
    GA_ERR_LIBRARY,     /* a library or plugin that cannot be loaded or lacks a symbol */
    GA_ERR_ABI,         /* a backend made for another version of backend.h */
    GA_ERR_IO,          /* a file that cannot be read or written, or is damaged */
    GA_STATUS_COUNT
} ga_status;

/* A few words for `status`; never NULL, also for values out of range. */
GA_API const char *ga_status_text(ga_status status);

/* What went wrong in this thread's last failed call: one sentence naming backend, option, value
 * and what was expected. Valid until the thread's next failing call; "" before the first. */
GA_API const char *ga_error_text(void);

/* "0.1.0": of the library that runs, where GA_VERSION_* are of the header compiled against. */
GA_API const char *ga_version_text(void);

/* ---- heaps ----------------------------------------------------------------------------- */

typedef enum ga_place {
    GA_PLACE_HOST = 0, /* malloc */
    GA_PLACE_DEVICE,   /* device memory asked for by the host: cudaMalloc */
    GA_PLACE_KERNEL,   /* device memory asked for inside a kernel */
    GA_PLACE_COUNT
} ga_place;

/* "host", "device" or "kernel"; "?" for values out of range. */
GA_API const char *ga_place_text(ga_place place);

typedef struct ga_heap ga_heap;

/* A CUstream or cudaStream_t, by value. NULL is the default stream. */
typedef void *ga_stream;

/* Open a heap of `spec` for `place`. `device` counts as the CUDA driver does; the host ignores
 * it. A NULL spec reads GPUALLOC_HOST, GPUALLOC_DEVICE or GPUALLOC_KERNEL, and where that is
 * unset or empty takes `system`, `cuda` or `coalesce/slab/vmm`.
 *
 * GA_ERR_SPEC     the text does not parse, or names an unknown backend or option
 * GA_ERR_PLACE    a backend in it does not serve the place
 * GA_ERR_DEVICE   no such device, or no driver on this machine
 * GA_ERR_LIBRARY  a library that the backend loads is missing or not an allocator
 * GA_ERR_MEMORY   the backend could not set itself up
 * GA_ERR_IO       a file that the backend writes cannot be made
 */
GA_API ga_status ga_heap_open(ga_heap **out, ga_place place, int device, const char *spec);

/* Close a heap and its parents. Blocks still held are reported to the log (GPUALLOC_LOG=warn, the
 * default) and must not be used any more; whether their memory returns to the system is the
 * backend's affair. NULL is ignored. */
GA_API ga_status ga_heap_close(ga_heap *heap);

GA_API ga_place ga_heap_place(const ga_heap *heap);
GA_API int ga_heap_device(const ga_heap *heap);

/* The heap's spec with every option and parent spelled out, as it is in force. Lives as long as
 * the heap. */
GA_API const char *ga_heap_spec(const ga_heap *heap);

/* ---- memory ---------------------------------------------------------------------------- */

/* One block of at least `size` bytes at a multiple of `align` (0: 16, or what the backend gives
 * where that is more; otherwise a power of two). Size 0 gives a block like any other. The caller
 * owns the block until ga_free(). Device memory is aligned to 256.
 *
 * GA_ERR_MEMORY   no memory    GA_ERR_SIZE  over PTRDIFF_MAX    GA_ERR_ALIGN  see above
 */
GA_API ga_status ga_alloc(ga_heap *heap, size_t size, size_t align, void **out);

/* The same, filled with zeros. */
GA_API ga_status ga_alloc_zeroed(ga_heap *heap, size_t size, size_t align, void **out);

/* The same in stream order: usable by work put on `stream` after the call. GA_ERR_UNSUPPORTED
 * where the backend has no stream order. */
GA_API ga_status ga_alloc_on(ga_heap *heap, size_t size, size_t align, ga_stream stream,
                             void **out);

/* `n` blocks of `sizes[i]` bytes, all or none: on failure every `out[i]` is NULL. */
GA_API ga_status ga_alloc_batch(ga_heap *heap, size_t n, const size_t *sizes, void **out);

/* `block` with `size` bytes, contents kept up to the smaller size, moved if it must be: `*out` is
 * the block from now on. A NULL block is ga_alloc(). On failure the block stays as it was and
 * `*out` is `block`, so that `&block` may be passed. `align` as in ga_alloc().
 *
 * GA_ERR_UNSUPPORTED  also for a device's block that would have to move while a captured graph uses
 *                     it, or while a stream that waits for the legacy stream captures */
GA_API ga_status ga_realloc(ga_heap *heap, void *block, size_t size, size_t align, void **out);

/* Make the block at least `size` bytes where it stands. Never moves it. GA_ERR_NO_ROOM where it
 * cannot, also where the backend has no growth in place. */
GA_API ga_status ga_grow(ga_heap *heap, void *block, size_t size);

/* Give a block back. NULL is ignored. GA_ERR_POINTER where the backend can tell that the block is
 * not its own; ga_owns() says whether it can. */
GA_API ga_status ga_free(ga_heap *heap, void *block);

/* In stream order: free once the work now on `stream` is done. */
GA_API ga_status ga_free_on(ga_heap *heap, void *block, ga_stream stream);

/* Free once no hazard pointer protects the block. GA_ERR_UNSUPPORTED without a `hazard` layer. */
GA_API ga_status ga_retire(ga_heap *heap, void *block);

/* How many bytes of the block may be used: what was asked for or more. 0 where it is unknown. */
GA_API size_t ga_usable_size(ga_heap *heap, const void *block);

/* Whether the pointer lies in memory of this heap's backend. Backends whose heaps share one
 * process-wide allocator (`system`, `jemalloc`, `dl`) answer for all of these heaps together;
 * `system` cannot tell and says true to all; `slab` knows a block that it passed on to its parent
 * (large ones) by its first byte alone. */
GA_API bool ga_owns(ga_heap *heap, const void *pointer);

/* Give free memory back to the parent or the system, keeping about `keep` bytes. */
GA_API ga_status ga_trim(ga_heap *heap, size_t keep);

/* Free every block of the heap at once; memory it holds stays with it. Waits for the device, if it is
 * on one. No other thread, stream or kernel may be using the heap. GA_ERR_UNSUPPORTED where the backend
 * keeps no list of its blocks. */
GA_API ga_status ga_heap_reset(ga_heap *heap);

/* Call `visit` for every live block. GA_ERR_UNSUPPORTED where the backend keeps no such list.
 * Blocks allocated or freed meanwhile may or may not be seen. */
typedef void ga_visit(void *context, void *block, size_t size);
GA_API ga_status ga_heap_each_live(ga_heap *heap, ga_visit *visit, void *context);

/* ---- in kernels ------------------------------------------------------------------------ */

/* What a kernel needs to allocate: handed to it by value. `kind` tells device code whose it is;
 * the words are the backend's. */
typedef struct ga_kernel_heap {
    uint32_t abi;
    uint32_t kind;
    uint64_t words[6];
} ga_kernel_heap;

/* GA_ERR_UNSUPPORTED for heaps of another place than `kernel`. The view dies with the heap. */
GA_API ga_status ga_heap_kernel_view(ga_heap *heap, ga_kernel_heap *out);

/* ---- statistics ------------------------------------------------------------------------ */

/* Counts since the heap was opened. Threads count apart and are added up here, so that figures
 * read while others allocate are each right for some recent moment, not all for the same one.
 * docs/reference/stats.md has the keys of the JSON form; they are the names of these members. */
typedef struct ga_stats {
    uint64_t allocs;          /* blocks handed out */
    uint64_t frees;           /* blocks given back or retired */
    uint64_t reallocs;        /* blocks resized by ga_realloc() or ga_grow(), moved or not */
    uint64_t failures;        /* requests answered with an error */
    uint64_t live_blocks;     /* allocs - frees */
    uint64_t live_bytes;      /* usable bytes of the live blocks */
    uint64_t peak_bytes;      /* highest live_bytes, exact to 64 KiB per thread */
    uint64_t requested_bytes; /* sum of all sizes asked for, over the heap's life */
    uint64_t granted_bytes;   /* sum of all usable sizes handed out for them */
    uint64_t held_bytes; /* bytes the backend holds from its parent or the system now; 0 unknown */
    uint64_t growths;    /* times the backend took more from its parent; 0 unknown */
} ga_stats;

GA_API ga_status ga_heap_stats(const ga_heap *heap, ga_stats *out);

/* The statistics of a heap as a table or as one line of JSON, cut to `size` bytes with the final
 * NUL. Returns the length of the whole text, as snprintf does. */
GA_API size_t ga_heap_stats_text(const ga_heap *heap, char *buffer, size_t size);
GA_API size_t ga_heap_stats_json(const ga_heap *heap, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif
#endif
