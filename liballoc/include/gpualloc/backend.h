/* SPDX-License-Identifier: MIT
 *
 * The interface of backends. To provide one, fill in a ga_backend and pass it to
 * ga_backend_register(), or export it from a shared object named in GPUALLOC_PLUGINS.
 * docs/reference/backends.md has an example.
 *
 * The runtime checks sizes, alignments and NULLs, and counts. It does not serialise calls: any
 * thread may call the members below at any time, unless a member says otherwise. A member that
 * fails calls ga_fail() and changes nothing. Sizes are in bytes.
 *
 * Compiles alone as C11, C++17 and under nvcc.
 */
#ifndef GPUALLOC_BACKEND_H
#define GPUALLOC_BACKEND_H

#include <gpualloc/gpualloc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a member of ga_backend, or of a struct that it points to, changes its meaning or
 * offset, or when the size of such a struct changes that stands in an array. */
#define GA_BACKEND_ABI 3u

/* ---- options --------------------------------------------------------------------------- */

typedef enum ga_option_type {
    GA_OPTION_SIZE = 0, /* bytes: digits, then K, M, G or T (powers of 1024) if any; or one of
                         * `choices`, if there are any: its value is UINT64_MAX - index */
    GA_OPTION_BOOL,     /* yes, no, true, false, on, off, 1, 0; a key without value means yes */
    GA_OPTION_INTEGER,  /* a decimal number within min and max */
    GA_OPTION_ENUM,     /* one of `choices`; its value is the index */
    GA_OPTION_STRING,   /* any text; quoted in the spec if it contains / , : " or a space */
    GA_OPTION_TYPE_COUNT
} ga_option_type;

/* One row of a backend's option table, which the parser, `gpualloc list` and the docs read.
 * Static. */
typedef struct ga_option {
    const char *name;
    ga_option_type type;
    const char *fallback;       /* the default, as text; NULL: the option is required */
    const char *help;           /* one line, lower case, no full stop */
    const char *const *choices; /* GA_OPTION_ENUM, or NULL for GA_OPTION_SIZE: NULL-terminated */
    int64_t min, max;           /* GA_OPTION_INTEGER and GA_OPTION_SIZE; both 0: no bound */
    bool expert; /* only reproduces a published experiment: `gpualloc list` leaves the row out,
                  * `gpualloc list --all` has it. No effect on specs */
} ga_option;

/* A parsed value. The option's type selects the member. */
typedef union ga_value {
    uint64_t size;
    bool flag;
    int64_t integer;
    int choice;
    const char *text; /* lives as long as the heap */
} ga_value;

typedef enum ga_parent_rule {
    GA_PARENT_NONE = 0, /* memory comes from the system; a parent in the spec is an error */
    GA_PARENT_OPTIONAL, /* `parent` may be NULL */
    GA_PARENT_REQUIRED  /* default if the spec names none: `system` on the host, `cuda` elsewhere */
} ga_parent_rule;

/* Memory of a device that grows while kernels use it: one address range, or two that grow together,
 * in steps of a fixed number of bytes for each range (gpualloc/device.cuh,
 * docs/internals/growth.md). Backed steps stay where they are. */
enum {
    GA_GROWING_PARTS = 2
};

typedef struct ga_growing {
    /* Set by the caller of growing_open(). */
    uint64_t step_bytes[GA_GROWING_PARTS]; /* bytes of one step in each range; 0: no second range */
    uint32_t steps_max;                    /* number of steps for which addresses are reserved */
    uint32_t ahead; /* one growth adds 1/ahead of the backed steps; 0: it doubles them */
    /* Set by the backend; the caller sets `steps` before growing_open() to the steps to begin
     * with. */
    uint32_t steps; /* backed steps that the host knows of */
    void *base[GA_GROWING_PARTS];
    void *mailbox; /* device address of the mailbox where kernels request steps; NULL: only the host
                    * can */
    void *own;     /* for the backend's use */
} ga_growing;

/* The runtime that opens a backend, as a table of functions. A plugin calls it through this table
 * and does not link libgpualloc, because a process may hold several runtimes (the preload has its
 * own), and a heap must be used with the runtime that opened it. New members are added only at the
 * end. */
typedef struct ga_runtime {
    uint32_t size; /* sizeof(ga_runtime) in the compiled runtime */
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

/* The arguments of open(). The struct is valid during the call, the objects that it points to until
 * the heap is closed. The runtime closes the parent, after `close`. */
typedef struct ga_open_args {
    ga_place place;
    int device;
    const ga_value *values; /* one value for each row of the option table, in the same order */
    ga_heap *parent;
    const ga_runtime *runtime; /* static */
} ga_open_args;

/* ---- the ops table --------------------------------------------------------------------- */

/* Entry points with malloc's signatures, for a backend that needs no state: the preload jumps
 * through them. They set errno as malloc(3) says. All blocks of this backend lie in [range_base,
 * range_base + range_size). range_size 0: only `owns` can tell. SIZE_MAX: every pointer that is not
 * known to belong to another allocator is passed to `free`. GA_MALLOC_ANY_POINTER: `free`,
 * `realloc` and `usable_size` accept any pointer, NULL included, and pass foreign ones to the C
 * library. */
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
    uint64_t live_bytes;  /* bytes in live blocks by the backend's own count; 0: unknown */
    uint64_t held_bytes;  /* bytes that the backend has obtained from its parent or the system */
    uint64_t growths;     /* times that it obtained more */
    uint64_t live_blocks; /* number of live blocks, if live_bytes is known */
} ga_backend_stats;

#define GA_PLACE_BIT(place) (1u << (place))

/* Capabilities: properties of a backend that callers cannot see from its members. The preload for
 * the driver decides by these and by the members that are set, never by a name. */
enum {
    /* Device: each block is an allocation of the driver, which knows its range. */
    GA_CAP_DRIVER_BLOCKS = 1u << 0,
    /* Device: free() waits until the device has finished the work that may use the block, unless
     * the heap's own options say otherwise. Without it the caller waits before it frees. */
    GA_CAP_FREE_WAITS = 1u << 1,
    /* Device: alloc_on() and free_on() pass the stream to the driver, so that the handle of the
     * per-thread default stream (2) means the calling thread's stream. Without it the backend
     * compares handles. */
    GA_CAP_THREAD_STREAM = 1u << 2,
    /* Device: free_on() accepts GA_EVERY_STREAM. */
    GA_CAP_EVERY_STREAM = 1u << 3,
    /* Kernels: its malloc is CUDA's own. A program whose in-kernel malloc is replaced by linking
     * cannot use this backend for it. */
    GA_CAP_CUDA_MALLOC = 1u << 4,
    GA_CAP_ALL = (1u << 5) - 1
};

/* For free_on(): the block may be reused after the work that is now on any stream of the device. */
#define GA_EVERY_STREAM ((ga_stream)UINTPTR_MAX)

/* Receives one piece of memory from export_memory(): `size` bytes behind the file descriptor `fd`,
 * which the callee then owns, also if it fails. The block begins `before` bytes into the first
 * piece. */
typedef ga_status ga_export_piece(void *context, uint64_t before, uint64_t size, int fd);

typedef struct ga_backend {
    uint32_t abi;     /* GA_BACKEND_ABI */
    uint32_t size;    /* sizeof(ga_backend) in the compiled backend */
    const char *name; /* letters, digits, '-' and '_'; static */
    const char *help; /* one line for `gpualloc list` */
    uint32_t places;  /* GA_PLACE_BIT() of each place that it serves */
    ga_parent_rule parent_rule;
    const ga_option *options;
    size_t option_count;
    const char *bare_option; /* option whose value is the bare rest of the spec if this is the last
                              * layer, or NULL */

    /* Every call is passed on to the parent as it is. The heap's statistics are then the parent's,
     * so that no call is counted twice. Only for a backend with a parent. */
    bool passes_through;

    uint32_t capabilities; /* GA_CAP_* */

    /* Required. `state` is the pointer that open() stored. alloc() returns blocks aligned to 16 on
     * the host, 256 on a device; free() never gets NULL. */
    ga_status (*open)(const ga_open_args *args, void **state);
    void (*close)(void *state); /* no other call runs at the same time */
    ga_status (*alloc)(void *state, size_t size, void **out);
    ga_status (*free)(void *state, void *block);
    bool (*owns)(void *state, const void *pointer);

    /* Optional: NULL if the backend cannot. "Else" names the behaviour of the runtime then. */

    /* usable bytes of a live block. Else sizes count as unknown, 0 */
    size_t (*usable_size)(void *state, const void *block);
    /* resize, `*out` may differ from `block`. Else the runtime allocates, copies and frees; only
     * for host blocks of known usable size */
    ga_status (*realloc)(void *state, void *block, size_t size, void **out);
    /* else the runtime allocates and clears; only on the host */
    ga_status (*alloc_zeroed)(void *state, size_t size, void **out);
    /* alignments above that of alloc(), powers of two. Else refused */
    ga_status (*alloc_aligned)(void *state, size_t size, size_t align, void **out);
    /* all blocks or none; sizes may be 0. Else the runtime allocates one by one */
    ga_status (*alloc_batch)(void *state, size_t n, const size_t *sizes, void **out);
    /* grow in place; `size` is above the usable size. Else GA_ERR_CANNOT_GROW */
    ga_status (*grow)(void *state, void *block, size_t size);
    /* else refused, as for all members down to kernel_view */
    ga_status (*trim)(void *state, size_t keep);
    ga_status (*retire)(void *state, void *block);
    /* set both or neither */
    ga_status (*alloc_on)(void *state, size_t size, size_t align, ga_stream stream, void **out);
    ga_status (*free_on)(void *state, void *block, ga_stream stream);
    ga_status (*each_live)(void *state, ga_visit *visit, void *context);
    ga_status (*kernel_view)(void *state, ga_kernel_heap *out);
    /* else zeros */
    void (*stats)(void *state, ga_backend_stats *out);
    /* host only; valid until close(). Else calls use the members above */
    const ga_malloc_table *(*malloc_table)(void *state);
    /* the place for which the parent is opened. Else the heap's own place */
    ga_place (*parent_place)(ga_place place);
    /* around fork(2): before it, after it in the parent, and after it in the child, which has no
     * other thread */
    void (*fork_prepare)(void *state);
    void (*fork_parent)(void *state);
    void (*fork_child)(void *state);
    /* in a thread that has used a heap, when it ends */
    void (*thread_exit)(void *state);
    /* free all blocks at once; no other call runs at the same time. Else refused */
    ga_status (*reset)(void *state);
    /* on a device: memory that grows while kernels use it. Set all three or none; else refused.
     * growing_to() backs at least `steps` steps. No kernel may be requesting steps at the same
     * time; kernels may request them afterwards */
    ga_status (*growing_open)(void *state, ga_growing *growing);
    ga_status (*growing_to)(void *state, ga_growing *growing, uint32_t steps);
    void (*growing_close)(void *state, ga_growing *growing);

    /* on a device: give the device `peer` access to all memory of the heap, present and future.
     * Else the preload leaves the device to the driver once the program enables peer access */
    ga_status (*enable_peer)(void *state, int peer);
    /* on a device whose memory the backend maps itself: whether an address lies in its
     * reservations, backed or not. Else only addresses in live blocks belong to the heap */
    bool (*reserves)(void *state, const void *pointer);
    /* on a device: pass the memory behind [start, start + size) of a live block to `piece`, in the
     * order of addresses and without gaps, so that another process can map it. A NULL `piece` only
     * queries. GA_ERR_UNSUPPORTED if the heap was not opened for that. Else blocks have no IPC
     * handles. Needs reserves() */
    ga_status (*export_memory)(void *state, const void *start, uint64_t size,
                               ga_export_piece *piece, void *context);
    /* on the host: the domain of hazard pointers to which free() retires blocks. Else
     * ga_heap_domain() is refused */
    struct ga_domain *(*domain)(void *state);
} ga_backend;

/* ---- the registry ---------------------------------------------------------------------- */

/* Register a backend under its name. The table must be static. GA_ERR_ABI for another
 * GA_BACKEND_ABI; GA_ERR_ARGUMENT for a missing member, an invalid name or option table, or a name
 * that exists. Thread safe. */
GA_API ga_status ga_backend_register(const ga_backend *backend);

/* The registered backends, plugins included, in the order of their registration; NULL after the
 * last. Thread safe. */
GA_API const ga_backend *ga_backend_at(size_t index);

/* A plugin exports this function under GA_PLUGIN_SYMBOL. It returns the plugin's backends in turn,
 * then NULL. Their ABI numbers are checked like those of any other backend. */
typedef const ga_backend *ga_plugin_backend_fn(size_t index);
#define GA_PLUGIN_SYMBOL "ga_plugin_backend"

/* ---- for use inside a backend ---------------------------------------------------------- */

/* Set the calling thread's error message from `format` and return `status`: `return
 * ga_fail(GA_ERR_MEMORY, ...)`. */
GA_API ga_status ga_fail(ga_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* For a backend over `parent`: memory that grows while kernels use it, as the growing_* members
 * describe. ga_growing_open() returns GA_ERR_UNSUPPORTED if the parent has none; with NULL for
 * `growing` it only queries. */
GA_API ga_status ga_growing_open(ga_heap *parent, ga_growing *growing);
GA_API ga_status ga_growing_to(ga_heap *parent, ga_growing *growing, uint32_t steps);
GA_API void ga_growing_close(ga_heap *parent, ga_growing *growing);

#ifdef __cplusplus
}
#endif
#endif
