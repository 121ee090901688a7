/* SPDX-License-Identifier: MIT
 *
 * To provide a backend: fill in a ga_backend and hand it to ga_backend_register(), or export it
 * from a shared object named in GPUALLOC_PLUGINS. docs/reference/backends.md walks through one.
 *
 * The runtime checks sizes, alignments and NULLs, counts, and serialises nothing: the members
 * below are called from any thread at once unless they say otherwise. A member that fails calls
 * ga_fail() and changes nothing.
 *
 * Compiles alone as C11, C++17 and under nvcc.
 */
#ifndef GPUALLOC_BACKEND_H
#define GPUALLOC_BACKEND_H

#include <gpualloc/gpualloc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a member of ga_backend, or of what it points to, changes its meaning or place. */
#define GA_BACKEND_ABI 2u

/* ---- options --------------------------------------------------------------------------- */

typedef enum ga_option_type {
    GA_OPTION_SIZE = 0, /* bytes: digits, then K, M, G or T (powers of 1024) if any; or one of
                         * `choices`, if there are any: its value is UINT64_MAX - index */
    GA_OPTION_BOOL,     /* yes, no, true, false, on, off, 1, 0; the bare key means yes */
    GA_OPTION_INTEGER,  /* a decimal number within min and max */
    GA_OPTION_ENUM,     /* one of `choices`; its value is the index */
    GA_OPTION_STRING,   /* any text; quoted in the spec where it holds / , : " or a space */
    GA_OPTION_TYPE_COUNT
} ga_option_type;

/* One row of a backend's option table: parsing, `gpualloc list` and the docs all read it. */
typedef struct ga_option {
    const char *name;
    ga_option_type type;
    const char *fallback;       /* the default, as text; NULL: the option must be given */
    const char *help;           /* one line, lower case, no full stop */
    const char *const *choices; /* GA_OPTION_ENUM, or NULL for GA_OPTION_SIZE: NULL-terminated */
    int64_t min, max;           /* GA_OPTION_INTEGER and GA_OPTION_SIZE; both 0: no bound */
} ga_option;

/* A parsed value; which member holds it follows from the option's type. */
typedef union ga_value {
    uint64_t size;
    bool flag;
    int64_t integer;
    int choice;
    const char *text; /* lives as long as the heap */
} ga_value;

typedef enum ga_parent_rule {
    GA_PARENT_NONE = 0, /* takes its memory from the system: a parent in the spec is an error */
    GA_PARENT_OPTIONAL, /* `parent` may be NULL */
    GA_PARENT_REQUIRED  /* where the spec names none: `system` on the host, `cuda` elsewhere */
} ga_parent_rule;

/* Memory of a device that grows while kernels use it: one range of addresses, or two that grow together, in
 * steps of so many bytes each (gpualloc/device.cuh, docs/growth.md). What is backed stays where it is. */
enum {
    GA_GROWING_PARTS = 2
};

typedef struct ga_growing {
    /* Set by who opens it. */
    uint64_t step_bytes[GA_GROWING_PARTS]; /* of each range; 0: there is no second one */
    uint32_t steps_most;                   /* addresses are reserved for so many */
    uint32_t ahead; /* back 1/ahead more than there is at a time; 0: as much again */
    /* Set by the backend; `steps` as it was asked for when it is opened. */
    uint32_t steps; /* backed, as far as the host has seen */
    void *base[GA_GROWING_PARTS];
    void *mailbox; /* where kernels ask for more, as they address it; NULL: the host alone can */
    void *own;     /* the backend's */
} ga_growing;

/* What a backend calls: the runtime that opens it. A plugin calls it through this table and links no
 * libgpualloc: a process may hold several runtimes (the preload has one of its own), and a heap is
 * to be used with the one that opened it. Members are added at the end only. */
typedef struct ga_runtime {
    uint32_t size; /* sizeof(ga_runtime) where it was compiled */
    ga_status (*fail)(ga_status status, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
    const char *(*error_text)(void);
    ga_status (*alloc)(ga_heap *heap, size_t size, size_t align, void **out);
    ga_status (*alloc_zeroed)(ga_heap *heap, size_t size, size_t align, void **out);
    ga_status (*alloc_on)(ga_heap *heap, size_t size, size_t align, ga_stream stream, void **out);
    ga_status (*alloc_batch)(ga_heap *heap, size_t n, const size_t *sizes, void **out);
    ga_status (*realloc)(ga_heap *heap, void *block, size_t size, size_t align, void **out);
    ga_status (*grow)(ga_heap *heap, void *block, size_t size);
    ga_status (*free)(ga_heap *heap, void *block);
    ga_status (*free_on)(ga_heap *heap, void *block, ga_stream stream);
    ga_status (*retire)(ga_heap *heap, void *block);
    size_t (*usable_size)(ga_heap *heap, const void *block);
    bool (*owns)(ga_heap *heap, const void *pointer);
    ga_status (*trim)(ga_heap *heap, size_t keep);
    ga_status (*each_live)(ga_heap *heap, ga_visit *visit, void *context);
    ga_status (*stats)(const ga_heap *heap, ga_stats *out);
    ga_status (*kernel_view)(ga_heap *heap, ga_kernel_heap *out);
    ga_status (*reset)(ga_heap *heap);
    ga_status (*growing_open)(ga_heap *heap, ga_growing *growing);
    ga_status (*growing_to)(ga_heap *heap, ga_growing *growing, uint32_t steps);
    void (*growing_close)(ga_heap *heap, ga_growing *growing);
} ga_runtime;

/* What a backend is opened with. The struct lives for the call only, what it points to as long as
 * the heap. The parent is closed by the runtime, after `close`. */
typedef struct ga_open_args {
    ga_place place;
    int device;
    const ga_value *values; /* one for each row of the option table, in its order */
    ga_heap *parent;
    const ga_runtime *runtime; /* lives for ever */
} ga_open_args;

/* ---- the ops table --------------------------------------------------------------------- */

/* malloc-shaped entry points for a backend that needs no state: the preload jumps through them.
 * They keep errno as malloc(3) says. A block of this backend lies in [range_base, range_base +
 * range_size); range_size 0 means that only `owns` can tell, SIZE_MAX that every pointer that is
 * not known to be another's is to be passed to `free`. GA_MALLOC_ANY_POINTER: `free`, `realloc` and
 * `usable_size` take any pointer, and pass on to the C library what is not theirs, NULL included. */
#define GA_MALLOC_ANY_POINTER (SIZE_MAX - 1)
typedef struct ga_malloc_table {
    void *(*malloc)(size_t size);
    void (*free)(void *block);
    void *(*calloc)(size_t count, size_t size);
    void *(*realloc)(void *block, size_t size);
    void *(*memalign)(size_t align, size_t size); /* align: a power of two */
    size_t (*usable_size)(void *block);
    uintptr_t range_base;
    size_t range_size;
} ga_malloc_table;

typedef struct ga_backend_stats {
    uint64_t live_bytes;  /* in live blocks now, by the backend's own count; 0 unknown */
    uint64_t held_bytes;  /* taken from the parent or the system now */
    uint64_t growths;     /* times more was taken */
    uint64_t live_blocks; /* how many, where live_bytes is known */
} ga_backend_stats;

#define GA_PLACE_BIT(place) (1u << (place))

/* Capabilities: properties of a backend that callers test, because its members do not show them. The
 * preload for the driver decides by these and by the members which are there, never by a name. */
enum {
    /* Device: each block is an allocation of the driver's, which knows its range. */
    GA_CAP_DRIVER_BLOCKS = 1u << 0,
    /* Device: free() waits until the device has finished the work that may use the block, unless the
     * heap's own options say otherwise. Without it the caller waits before it frees. */
    GA_CAP_FREE_WAITS = 1u << 1,
    /* Device: alloc_on() and free_on() pass the stream to the driver, so that the handle of the
     * per-thread default stream (2) means the calling thread's. Without it handles are compared. */
    GA_CAP_THREAD_STREAM = 1u << 2,
    /* Device: free_on() accepts GA_EVERY_STREAM. */
    GA_CAP_EVERY_STREAM = 1u << 3,
    /* Kernels: its malloc is CUDA's own. A program whose in-kernel malloc is replaced by linking cannot
     * have it served by this backend. */
    GA_CAP_CUDA_MALLOC = 1u << 4,
    GA_CAP_ALL = (1u << 5) - 1
};

/* For free_on(): the block may be reused after the work that all streams of the device have now. */
#define GA_EVERY_STREAM ((ga_stream)UINTPTR_MAX)

/* Receives one piece of memory of export_memory(): `size` bytes behind the file descriptor `fd`, which it
 * owns from then on, also if it fails. The block begins `before` bytes into the first piece. */
typedef ga_status ga_export_piece(void *context, uint64_t before, uint64_t size, int fd);

typedef struct ga_backend {
    uint32_t abi;     /* GA_BACKEND_ABI */
    uint32_t size;    /* sizeof(ga_backend) where it was compiled */
    const char *name; /* letters, digits, '-' and '_'; lives for ever */
    const char *help; /* one line for `gpualloc list` */
    uint32_t places;  /* GA_PLACE_BIT()s of the places it serves */
    ga_parent_rule parent_rule;
    const ga_option *options;
    size_t option_count;
    const char *bare_option; /* as last layer, takes the rest of the spec as it stands, or NULL */

    /* Each call becomes the same call to the parent, whose statistics are then the heap's: nothing is
     * counted twice. Only for a backend with a parent. */
    bool passes_through;

    uint32_t capabilities; /* GA_CAP_* */

    /* Required. `state` is whatever open() put in its out parameter. alloc() gives blocks aligned
     * to 16 on the host, 256 on a device; free() never sees NULL. */
    ga_status (*open)(const ga_open_args *args, void **state);
    void (*close)(void *state); /* no other call runs beside it */
    ga_status (*alloc)(void *state, size_t size, void **out);
    ga_status (*free)(void *state, void *block);
    bool (*owns)(void *state, const void *pointer);

    /* Optional: NULL where the backend cannot. What the runtime then does stands behind "else". */

    /* else sizes count as unknown, 0 */
    size_t (*usable_size)(void *state, const void *block);
    /* else allocate, copy, free; for host blocks whose usable size is known */
    ga_status (*realloc)(void *state, void *block, size_t size, void **out);
    /* else allocate and clear; on the host only */
    ga_status (*alloc_zeroed)(void *state, size_t size, void **out);
    /* for alignments above the natural one, powers of two; else refused */
    ga_status (*alloc_aligned)(void *state, size_t size, size_t align, void **out);
    /* all or none, sizes of 0 included; else one by one */
    ga_status (*alloc_batch)(void *state, size_t n, const size_t *sizes, void **out);
    /* in place, `size` above the usable size; else GA_ERR_NO_ROOM */
    ga_status (*grow)(void *state, void *block, size_t size);
    /* else refused, like all that follow down to kernel_view */
    ga_status (*trim)(void *state, size_t keep);
    ga_status (*retire)(void *state, void *block);
    /* both or neither */
    ga_status (*alloc_on)(void *state, size_t size, size_t align, ga_stream stream, void **out);
    ga_status (*free_on)(void *state, void *block, ga_stream stream);
    ga_status (*each_live)(void *state, ga_visit *visit, void *context);
    ga_status (*kernel_view)(void *state, ga_kernel_heap *out);
    /* else zeros */
    void (*stats)(void *state, ga_backend_stats *out);
    /* host only; lives as long as the state; else calls go through the members above */
    const ga_malloc_table *(*malloc_table)(void *state);
    /* the place that its parent is opened for; else the same */
    ga_place (*parent_place)(ga_place place);
    /* around fork(2): before it, after it in the parent, after it in the child, where no other
     * thread runs */
    void (*fork_prepare)(void *state);
    void (*fork_parent)(void *state);
    void (*fork_child)(void *state);
    /* in a thread that used a heap and is ending */
    void (*thread_exit)(void *state);
    /* every block is free at once; no other call runs beside it. Else refused */
    ga_status (*reset)(void *state);
    /* on a device; all three or none, else refused. growing_to() backs at least so many steps, which no
     * kernel may be asking for meanwhile, and tells that kernels may soon */
    ga_status (*growing_open)(void *state, ga_growing *growing);
    ga_status (*growing_to)(void *state, ga_growing *growing, uint32_t steps);
    void (*growing_close)(void *state, ga_growing *growing);

    /* on a device: let the device `peer` use all memory of the heap, as it is and will be. Else the preload
     * leaves the device to the driver once the program requests peer access */
    ga_status (*enable_peer)(void *state, int peer);
    /* on a device whose memory the backend maps itself: whether an address lies in its reservations, with
     * memory behind it or without. Else no address outside of live blocks is the heap's */
    bool (*reserves)(void *state, const void *pointer);
    /* on a device: pass what lies behind [start, start + size) of a live block to `piece`, in the order of
     * addresses and without gaps, so that another process can map it. GA_ERR_UNSUPPORTED if the heap was not
     * opened for that; a NULL `piece` only asks. Else blocks have no IPC handles. Needs reserves() */
    ga_status (*export_memory)(void *state, const void *start, uint64_t size,
                               ga_export_piece *piece, void *context);
    /* on the host: the domain of hazard pointers that free() retires to; else ga_heap_domain() is refused */
    struct ga_domain *(*domain)(void *state);
} ga_backend;

/* ---- the registry ---------------------------------------------------------------------- */

/* Add a backend under its name. The table must live for ever. GA_ERR_ABI for another
 * GA_BACKEND_ABI, GA_ERR_ARGUMENT for a missing member, a bad name or option table, or a name that
 * is taken. */
GA_API ga_status ga_backend_register(const ga_backend *backend);

/* The backends known now, plugins included, in the order of their registration; NULL past the
 * last. */
GA_API const ga_backend *ga_backend_at(size_t index);

/* A plugin exports this: its backends in turn, then NULL. Its ABI numbers are checked like those
 * of any other. */
typedef const ga_backend *ga_plugin_backend_fn(size_t index);
#define GA_PLUGIN_SYMBOL "ga_plugin_backend"

/* ---- for use inside a backend ---------------------------------------------------------- */

/* Set the thread's error sentence and return `status`: `return ga_fail(GA_ERR_MEMORY, ...)`. */
GA_API ga_status ga_fail(ga_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What a parent can do for a backend only: memory that grows while kernels run. GA_ERR_UNSUPPORTED where
 * the parent has none; with NULL for `growing` the first only asks. */
GA_API ga_status ga_growing_open(ga_heap *parent, ga_growing *growing);
GA_API ga_status ga_growing_to(ga_heap *parent, ga_growing *growing, uint32_t steps);
GA_API void ga_growing_close(ga_heap *parent, ga_growing *growing);

#ifdef __cplusplus
}
#endif
#endif
