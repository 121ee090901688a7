/* SPDX-License-Identifier: MIT
 *
 * The calls on a heap: check the request, let the backend serve it, count the result.
 */
#include "captures.h"
#include "heap.h"

#include <gpualloc/reclaim.h>

#include <stdint.h>
#include <string.h>

static bool power_of_two(size_t n)
{
    return n && !(n & (n - 1));
}

/* ---- shared by all requests --------------------------------------------------------------- */

static ga_status bad_request(ga_heap *heap, size_t size, size_t align)
{
    if (!heap) {
        return ga_fail(GA_ERR_ARGUMENT, "expected a heap, got NULL");
    }
    if (size > PTRDIFF_MAX) {
        return ga_fail(GA_ERR_SIZE, "%s: expected a size up to %td bytes, got %zu",
                       heap->backend->name, PTRDIFF_MAX, size);
    }
    return ga_fail(GA_ERR_ALIGN, "%s: expected an alignment that is a power of two, got %zu",
                   heap->backend->name, align);
}

static ga_status check_request(ga_heap *heap, size_t size, size_t align)
{
    bool good = heap && size <= PTRDIFF_MAX && (align == 0 || power_of_two(align));
    return __builtin_expect(good, 1) ? GA_OK : bad_request(heap, size, align);
}

static ga_status check_alloc(ga_heap *heap, size_t size, size_t align, void *const *out)
{
    if (__builtin_expect(!out, 0)) {
        return ga_fail(GA_ERR_ARGUMENT, "expected room for the block's address, got NULL");
    }
    return check_request(heap, size, align);
}

static ga_status unsupported(const ga_heap *heap, const char *operation)
{
    return ga_fail(GA_ERR_UNSUPPORTED, "%s: has no %s", heap->backend->name, operation);
}

static size_t usable(const ga_heap *heap, const void *block)
{
    return heap->backend->usable_size ? heap->backend->usable_size(heap->state, block) : 0;
}

/* The usable size of a block for the counters; 0 without a query if the parent counts. */
static size_t counted_size(const ga_heap *heap, const void *block)
{
    return heap->counters ? usable(heap, block) : 0;
}

/* Count a new block, or a failure; on failure `*out` becomes NULL. */
static ga_status count_alloc(ga_heap *heap, ga_status status, size_t size, void **out)
{
    if (__builtin_expect(status == GA_OK, 1)) {
        ga_counters_alloc(heap->counters, size, counted_size(heap, *out));
        return GA_OK;
    }
    if (out) {
        *out = NULL;
    }
    if (heap) {
        ga_counters_failure(heap->counters);
    }
    return status;
}

static ga_status count_failure(ga_heap *heap, ga_status status)
{
    if (status != GA_OK && heap) {
        ga_counters_failure(heap->counters);
    }
    return status;
}

/* ---- blocks ------------------------------------------------------------------------------- */

/* Free the blocks of destroyed graphs before the request, so that it can use their memory. */
static void flush_captures(const ga_heap *heap)
{
    if (__builtin_expect(heap->place == GA_PLACE_DEVICE, 0)) {
        ga_captures_flush();
    }
}

/* Backends see a request of 0 bytes as one of 1 byte. */
static size_t at_least_one(size_t size)
{
    return size + !size;
}

static ga_status serve(ga_heap *heap, size_t size, size_t align, void **out)
{
    const ga_backend *backend = heap->backend;
    if (__builtin_expect(align <= heap->natural_align, 1)) {
        return backend->alloc(heap->state, at_least_one(size), out);
    }
    if (!backend->alloc_aligned) {
        return ga_fail(GA_ERR_ALIGN, "%s: expected an alignment up to %zu, got %zu", backend->name,
                       heap->natural_align, align);
    }
    return backend->alloc_aligned(heap->state, at_least_one(size), align, out);
}

ga_status ga_memory_serve(ga_heap *heap, size_t size, size_t align, void **out)
{
    return serve(heap, size, align, out);
}

ga_status ga_alloc(ga_heap *heap, size_t size, size_t align, void **out)
{
    ga_status status = check_alloc(heap, size, align, out);
    if (__builtin_expect(status == GA_OK, 1)) {
        flush_captures(heap);
        status = serve(heap, size, align, out);
    }
    return count_alloc(heap, status, size, out);
}

static ga_status serve_zeroed(ga_heap *heap, size_t size, size_t align, void **out)
{
    if (heap->backend->alloc_zeroed && align <= heap->natural_align) {
        return heap->backend->alloc_zeroed(heap->state, at_least_one(size), out);
    }
    if (heap->place != GA_PLACE_HOST) {
        return unsupported(heap, "zeroed allocation"); /* the host cannot write there */
    }
    ga_status status = serve(heap, size, align, out);
    if (status == GA_OK) {
        memset(*out, 0, size);
    }
    return status;
}

ga_status ga_alloc_zeroed(ga_heap *heap, size_t size, size_t align, void **out)
{
    ga_status status = check_alloc(heap, size, align, out);
    if (status == GA_OK) {
        status = serve_zeroed(heap, size, align, out);
    }
    return count_alloc(heap, status, size, out);
}

ga_status ga_alloc_on(ga_heap *heap, size_t size, size_t align, ga_stream stream, void **out)
{
    ga_status status = check_alloc(heap, size, align, out);
    if (status == GA_OK && !heap->backend->alloc_on) {
        status = unsupported(heap, "stream-ordered allocation");
    }
    if (status == GA_OK) {
        flush_captures(heap);
        if (ga_captures_alloc(heap, size, align, stream, out, &status)) {
            return status;
        }
        status = heap->backend->alloc_on(heap->state, at_least_one(size), align, stream, out);
    }
    return count_alloc(heap, status, size, out);
}

static inline ga_status free_block(ga_heap *heap, void *block, const ga_stream *stream)
{
    size_t bytes = counted_size(heap, block);
    ga_status status = stream ? heap->backend->free_on(heap->state, block, *stream)
                              : heap->backend->free(heap->state, block);
    if (__builtin_expect(status == GA_OK, 1)) {
        ga_counters_free(heap->counters, bytes);
    }
    return count_failure(heap, status);
}

ga_status ga_memory_free(ga_heap *heap, void *block, const ga_stream *stream)
{
    return free_block(heap, block, stream);
}

/* Not inlined, so that frees on the host do not pay for the query of captures. */
__attribute__((noinline)) static ga_status free_device(ga_heap *heap, void *block,
                                                       const ga_stream *stream)
{
    ga_status status = GA_OK;
    ga_captures_flush();
    return ga_captures_free(heap, block, stream, true, &status)
               ? count_failure(heap, status)
               : ga_memory_free(heap, block, stream);
}

ga_status ga_free(ga_heap *heap, void *block)
{
    if (!block) {
        return GA_OK;
    }
    if (!heap) {
        return bad_request(heap, 0, 0);
    }
    return __builtin_expect(heap->place == GA_PLACE_DEVICE, 0) ? free_device(heap, block, NULL)
                                                               : free_block(heap, block, NULL);
}

ga_status ga_free_on(ga_heap *heap, void *block, ga_stream stream)
{
    if (!heap || !block) {
        return heap ? GA_OK : bad_request(heap, 0, 0);
    }
    if (!heap->backend->free_on) {
        return unsupported(heap, "stream-ordered free");
    }
    return free_device(heap, block, &stream);
}

ga_status ga_retire(ga_heap *heap, void *block)
{
    if (!heap || !block) {
        return heap ? GA_OK : bad_request(heap, 0, 0);
    }
    if (!heap->backend->retire) {
        return unsupported(heap, "retire; open it as hazard/...");
    }
    size_t bytes = counted_size(heap, block);
    ga_status status = heap->backend->retire(heap->state, block);
    if (status == GA_OK) {
        ga_counters_free(heap->counters, bytes);
    }
    return count_failure(heap, status);
}

ga_status ga_heap_domain(ga_heap *heap, ga_domain **out)
{
    if (!heap || !out) {
        return ga_fail(GA_ERR_ARGUMENT, "expected %s, got NULL",
                       heap ? "room for the domain's address" : "a heap");
    }
    *out = heap->backend->domain ? heap->backend->domain(heap->state) : NULL;
    return *out ? GA_OK : unsupported(heap, "domain; open it as hazard/...");
}

/* ---- batches ------------------------------------------------------------------------------ */

static ga_status serve_one_by_one(ga_heap *heap, size_t n, const size_t *sizes, void **out)
{
    for (size_t i = 0; i < n; i++) {
        ga_status status = serve(heap, sizes[i], 0, &out[i]);
        if (status != GA_OK) {
            while (i--) {
                heap->backend->free(heap->state, out[i]);
            }
            return status;
        }
    }
    return GA_OK;
}

static ga_status check_batch(ga_heap *heap, size_t n, const size_t *sizes, void *const *out)
{
    ga_status status = check_request(heap, 0, 0);
    if (status == GA_OK && n && (!sizes || !out)) {
        status = ga_fail(GA_ERR_ARGUMENT, "expected sizes and room for addresses, got NULL");
    }
    for (size_t i = 0; status == GA_OK && i < n; i++) {
        status = check_request(heap, sizes[i], 0);
    }
    return status;
}

ga_status ga_alloc_batch(ga_heap *heap, size_t n, const size_t *sizes, void **out)
{
    ga_status status = check_batch(heap, n, sizes, out);
    if (status == GA_OK) {
        status = heap->backend->alloc_batch ? heap->backend->alloc_batch(heap->state, n, sizes, out)
                                            : serve_one_by_one(heap, n, sizes, out);
    }
    for (size_t i = 0; out && i < n; i++) {
        if (status == GA_OK) {
            ga_counters_alloc(heap->counters, sizes[i], counted_size(heap, out[i]));
        } else {
            out[i] = NULL;
        }
    }
    return count_failure(heap, status);
}

/* ---- resizing ----------------------------------------------------------------------------- */

/* A backend reports size 0 for a foreign pointer, so owns() is called for size 0 only. Backends of
 * a device check pointers themselves, and recognise a pointer whose driver has shut down. */
static ga_status check_block(ga_heap *heap, const void *block, size_t bytes)
{
    if (bytes || heap->place != GA_PLACE_HOST || heap->backend->owns(heap->state, block)) {
        return GA_OK;
    }
    return ga_fail(GA_ERR_POINTER, "%s: %p is no block of its own", heap->backend->name, block);
}

/* Whether the block can serve the request in place. A block that would be less than half used is
 * moved, so that its memory is freed. */
static bool stays(ga_heap *heap, void *block, size_t before, size_t size, size_t align)
{
    const ga_backend *backend = heap->backend;
    if (align && (uintptr_t)block % align != 0) {
        return false;
    }
    return size <= before ? size >= before / 2
                          : backend->grow && backend->grow(heap->state, block, size) == GA_OK;
}

static ga_status move(ga_heap *heap, void *block, size_t size, size_t align, void **out)
{
    size_t before = usable(heap, block);
    if (heap->place != GA_PLACE_HOST || !before) {
        return unsupported(heap, "reallocation");
    }
    if (stays(heap, block, before, size, align)) {
        *out = block;
        return GA_OK;
    }
    ga_status status = serve(heap, size, align, out);
    if (status == GA_OK) {
        memcpy(*out, block, before < size ? before : size);
        heap->backend->free(heap->state, block);
    }
    return status;
}

/* A block of a captured graph, and any block during a capture, is resized in place or not at all.
 * It keeps its size if the request is smaller. */
static ga_status resize_in_capture(ga_heap *heap, void *block, size_t size, size_t align,
                                   void **out)
{
    size_t before = usable(heap, block);
    *out = block;
    return stays(heap, block, before, size < before ? before : size, align)
               ? GA_OK
               : ga_fail(GA_ERR_UNSUPPORTED,
                         "%s: %p cannot move to %zu bytes while a stream captures, or while the "
                         "graph is there that uses it",
                         heap->backend->name, block, size);
}

static ga_status resize(ga_heap *heap, void *block, size_t size, size_t align, void **out)
{
    flush_captures(heap);
    if (__builtin_expect(heap->place == GA_PLACE_DEVICE, 0) && ga_captures_pin(heap, block)) {
        return resize_in_capture(heap, block, size, align, out);
    }
    return heap->backend->realloc && align <= heap->natural_align
               ? heap->backend->realloc(heap->state, block, at_least_one(size), out)
               : move(heap, block, size, align, out);
}

ga_status ga_realloc(ga_heap *heap, void *block, size_t size, size_t align, void **out)
{
    if (!block) {
        return ga_alloc(heap, size, align, out);
    }
    ga_status status = check_alloc(heap, size, align, out);
    void *moved = NULL;
    size_t before = status == GA_OK ? usable(heap, block) : 0;
    if (status == GA_OK) {
        status = check_block(heap, block, before);
    }
    if (status == GA_OK) {
        status = resize(heap, block, size, align, &moved);
    }
    if (out) {
        *out = status == GA_OK ? moved : block;
    }
    if (status == GA_OK) {
        ga_counters_resize(heap->counters, size, before, usable(heap, moved));
    }
    return count_failure(heap, status);
}

ga_status ga_grow(ga_heap *heap, void *block, size_t size)
{
    ga_status status = check_request(heap, size, 0);
    if (status != GA_OK || !block) {
        return status != GA_OK ? count_failure(heap, status)
                               : ga_fail(GA_ERR_ARGUMENT, "ga_grow: expected a block, got NULL");
    }
    size_t before = usable(heap, block);
    status = check_block(heap, block, before);
    if (status != GA_OK || before >= size) {
        return count_failure(heap, status);
    }
    if (heap->backend->grow) {
        status = heap->backend->grow(heap->state, block, size);
    } else {
        status =
            ga_fail(GA_ERR_CANNOT_GROW, "%s: cannot grow a block in place", heap->backend->name);
    }
    if (status == GA_OK) {
        ga_counters_resize(heap->counters, size, before, usable(heap, block));
    }
    return count_failure(heap, status);
}

/* ---- questions ---------------------------------------------------------------------------- */

size_t ga_usable_size(ga_heap *heap, const void *block)
{
    return heap && block ? usable(heap, block) : 0;
}

bool ga_owns(ga_heap *heap, const void *pointer)
{
    return heap && pointer && heap->backend->owns(heap->state, pointer);
}

ga_status ga_trim(ga_heap *heap, size_t keep)
{
    ga_status status = check_request(heap, 0, 0);
    if (status != GA_OK) {
        return status;
    }
    flush_captures(heap);
    return heap->backend->trim ? heap->backend->trim(heap->state, keep) : unsupported(heap, "trim");
}

ga_status ga_growing_open(ga_heap *heap, ga_growing *growing)
{
    ga_status status = check_request(heap, 0, 0);
    if (status != GA_OK) {
        return status;
    }
    if (!heap->backend->growing_open) {
        return unsupported(heap, "growth under kernels");
    }
    return growing ? heap->backend->growing_open(heap->state, growing) : GA_OK;
}

ga_status ga_growing_to(ga_heap *heap, ga_growing *growing, uint32_t steps)
{
    return heap->backend->growing_to(heap->state, growing, steps);
}

void ga_growing_close(ga_heap *heap, ga_growing *growing)
{
    heap->backend->growing_close(heap->state, growing);
}

ga_status ga_heap_enable_peer(ga_heap *heap, int peer)
{
    ga_status status = check_request(heap, 0, 0);
    if (status != GA_OK) {
        return status;
    }
    if (heap->place == GA_PLACE_HOST || heap->device == peer) {
        return GA_OK;
    }
    ga_heap *lowest = heap;
    while (lowest->parent) {
        lowest = lowest->parent;
    }
    return lowest->backend->enable_peer ? lowest->backend->enable_peer(lowest->state, peer)
                                        : unsupported(lowest, "access by other devices");
}

ga_status ga_heap_reset(ga_heap *heap)
{
    ga_status status = check_request(heap, 0, 0);
    if (status != GA_OK) {
        return status;
    }
    if (!heap->backend->reset) {
        return unsupported(heap, "reset");
    }
    status = heap->backend->reset(heap->state);
    if (status == GA_OK) {
        ga_captures_forget(heap, false);
        ga_counters_free_all(heap->counters);
    }
    return status;
}

ga_status ga_heap_each_live(ga_heap *heap, ga_visit *visit, void *context)
{
    ga_status status = check_request(heap, 0, 0);
    if (status != GA_OK || !visit) {
        return status != GA_OK ? status : ga_fail(GA_ERR_ARGUMENT, "expected a visitor, got NULL");
    }
    return heap->backend->each_live ? heap->backend->each_live(heap->state, visit, context)
                                    : unsupported(heap, "list of its live blocks");
}

ga_status ga_heap_kernel_view(ga_heap *heap, ga_kernel_heap *out)
{
    ga_status status = check_request(heap, 0, 0);
    if (status != GA_OK || !out) {
        return status != GA_OK ? status
                               : ga_fail(GA_ERR_ARGUMENT, "expected room for the view, got NULL");
    }
    if (heap->place != GA_PLACE_KERNEL || !heap->backend->kernel_view) {
        return unsupported(heap, "view for kernels; open it for the place kernel");
    }
    return heap->backend->kernel_view(heap->state, out);
}
