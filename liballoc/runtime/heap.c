/* SPDX-License-Identifier: MIT
 *
 * Opens and closes heaps.
 *
 * ga_heap_open
 *   open_text                parse the spec, open its layers, then the trace layer over them
 *     open_layers            look up the backend, then recurse for the parent
 *       open_parent          the next layer of the spec, or the default parent
 *       open_over            resolve the options, call the backend's open(), add to the list
 *     add_trace              if GPUALLOC_TRACE is set
 *
 * ga_heap_close              report blocks that are still live, then close_chain() from the top
 */
#include "heap.h"

#include "../platform/cuda_captures.h"
#include "../platform/cuda_driver.h"
#include "../platform/environment.h"
#include "../platform/error.h"
#include "../platform/forks.h"
#include "../platform/libc.h"
#include "../platform/log.h"
#include "../platform/thread.h"
#include "captures.h"
#include "options.h"
#include "registry.h"
#include "report.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *variable, *fallback, *parent;
    size_t natural_align;
} places[GA_PLACE_COUNT] = {
    [GA_PLACE_HOST] = {"GPUALLOC_HOST", "system", "system", 16},
    [GA_PLACE_DEVICE] = {"GPUALLOC_DEVICE", "cuda", "cuda", 256},
    [GA_PLACE_KERNEL] = {"GPUALLOC_KERNEL", "slab/vmm", "cuda", 16},
};

/* ---- the list of open layers: fork and thread exit reach them all ------------------------- */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static ga_heap *list; /* guarded by list_lock; a layer precedes its parents */

static void fork_prepare(void)
{
    pthread_mutex_lock(&list_lock);
    for (ga_heap *heap = list; heap; heap = heap->following) {
        if (heap->backend->fork_prepare) {
            heap->backend->fork_prepare(heap->state);
        }
    }
}

static void fork_parent(void)
{
    for (ga_heap *heap = list; heap; heap = heap->following) {
        if (heap->backend->fork_parent) {
            heap->backend->fork_parent(heap->state);
        }
    }
    pthread_mutex_unlock(&list_lock);
}

static void fork_child(void)
{
    for (ga_heap *heap = list; heap; heap = heap->following) {
        if (heap->backend->fork_child) {
            heap->backend->fork_child(heap->state);
        }
    }
    pthread_mutex_unlock(&list_lock);
}

static void thread_exit(void)
{
    pthread_mutex_lock(&list_lock);
    for (ga_heap *heap = list; heap; heap = heap->following) {
        if (heap->backend->thread_exit) {
            heap->backend->thread_exit(heap->state);
        }
    }
    pthread_mutex_unlock(&list_lock);
}

/* Runs as a constructor, and again from list_add(), because a heap that serves a process's malloc
 * is opened before most constructors run. */
__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, fork_prepare, fork_parent, fork_child);
}

static void watch_threads(void)
{
    ga_thread_on_exit(thread_exit);
}

static void list_add(ga_heap *heap)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    watch_forks();
    pthread_once(&once, watch_threads);
    pthread_mutex_lock(&list_lock);
    heap->following = list;
    list = heap;
    pthread_mutex_unlock(&list_lock);
}

static void list_remove(ga_heap *heap)
{
    pthread_mutex_lock(&list_lock);
    ga_heap **at = &list;
    while (*at && *at != heap) {
        at = &(*at)->following;
    }
    if (*at) {
        *at = heap->following;
    }
    pthread_mutex_unlock(&list_lock);
}

/* Visitors may take long, as reports at exit do. Signals are blocked, because a handler that forks
 * in this thread would deadlock on the lock that the thread holds. */
void ga_heap_each_root(void (*visit)(const ga_heap *heap))
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&list_lock);
    for (ga_heap *heap = list; heap; heap = heap->following) {
        if (heap->root) {
            visit(heap);
        }
    }
    pthread_mutex_unlock(&list_lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- one layer ---------------------------------------------------------------------------- */

static ga_status no_record(void)
{
    return ga_fail(GA_ERR_MEMORY, "no memory for a heap's record");
}

/* Append `before` and `key=value` at `put`, quoted if necessary. Returns the length, and writes
 * nothing if `put` is NULL. */
static size_t write_option(char *put, char before, const char *key, const char *value)
{
    bool quotes = ga_spec_needs_quotes(value);
    size_t length = 0;
    char one[2] = {before, '\0'};
    const char *head[] = {one, key, quotes ? "=\"" : "="};
    for (size_t i = 0; i < 3; i++) {
        size_t part = strlen(head[i]);
        if (put) {
            memcpy(put + length, head[i], part);
        }
        length += part;
    }
    for (const char *c = value; *c; c++) {
        bool escape = quotes && (*c == '"' || *c == '\\');
        if (put && escape) {
            put[length] = '\\';
        }
        length += escape;
        if (put) {
            put[length] = *c;
        }
        length++;
    }
    if (put && quotes) {
        put[length] = '"';
    }
    return length + quotes;
}

static size_t write_text(char *put, const ga_heap *heap, const char *const *values)
{
    const ga_backend *backend = heap->backend;
    size_t length = strlen(backend->name);
    if (put) {
        memcpy(put, backend->name, length);
    }
    for (size_t i = 0; i < backend->option_count; i++) {
        length += write_option(put ? put + length : NULL, i ? ',' : ':', backend->options[i].name,
                               values[i]);
    }
    const char *rest = heap->parent ? heap->parent->text : "";
    size_t rest_length = strlen(rest) + (heap->parent != NULL);
    if (put) {
        sprintf(put + length, "%s%s", heap->parent ? "/" : "", rest);
    }
    return length + rest_length;
}

static bool make_text(ga_heap *heap, const char *const *values)
{
    heap->text = ga_libc.malloc(write_text(NULL, heap, values) + 1);
    if (heap->text) {
        write_text(heap->text, heap, values);
    }
    return heap->text != NULL;
}

static void free_record(ga_heap *heap)
{
    ga_counters_delete(heap->counters);
    ga_libc.free(heap->spec);
    ga_libc.free(heap->text);
    ga_libc.free(heap);
}

static ga_status check_layer(const ga_backend *backend, ga_place place, bool has_parent)
{
    if (!(backend->places & GA_PLACE_BIT(place))) {
        char served[32] = "";
        for (int i = 0; i < GA_PLACE_COUNT; i++) {
            if (backend->places & GA_PLACE_BIT(i)) {
                strcat(served, *served ? ", " : "");
                strcat(served, ga_place_text((ga_place)i));
            }
        }
        return ga_fail(GA_ERR_PLACE, "%s: serves the place %s, not %s", backend->name, served,
                       ga_place_text(place));
    }
    if (has_parent && backend->parent_rule == GA_PARENT_NONE) {
        return ga_fail(GA_ERR_SPEC, "%s: takes no parent, but the spec goes on after it",
                       backend->name);
    }
    return GA_OK;
}

static bool make_counters(ga_heap *heap)
{
    bool parent_counts = heap->backend->passes_through && heap->parent;
    heap->counters = parent_counts ? NULL : ga_counters_new();
    return heap->counters || parent_counts;
}

static const ga_runtime runtime = {
    .size = sizeof(ga_runtime),
    .fail = ga_fail,
    .error_text = ga_error_text,
    .alloc = ga_alloc,
    .alloc_zeroed = ga_alloc_zeroed,
    .alloc_on = ga_alloc_on,
    .alloc_batch = ga_alloc_batch,
    .realloc = ga_realloc,
    .grow = ga_grow,
    .free = ga_free,
    .free_on = ga_free_on,
    .retire = ga_retire,
    .usable_size = ga_usable_size,
    .owns = ga_owns,
    .trim = ga_trim,
    .each_live = ga_heap_each_live,
    .stats = ga_heap_stats,
    .kernel_view = ga_heap_kernel_view,
    .reset = ga_heap_reset,
    .growing_open = ga_growing_open,
    .growing_to = ga_growing_to,
    .growing_close = ga_growing_close,
};

/* A plugin with a runtime of its own sets the error sentence there, so that ours may be unset: then
 * name at least the backend and the status. */
static ga_status open_backend(ga_heap *heap, const ga_open_args *args)
{
    unsigned before = ga_error_count();
    ga_status status = heap->backend->open(args, &heap->state);
    if (status != GA_OK && ga_error_count() == before) {
        ga_fail(status, "%s: %s", heap->backend->name, ga_status_text(status));
    }
    return status;
}

/* Open the backend over `parent` and make the heap's record. On failure the parent stays open. */
static ga_status open_over(ga_heap **out, const ga_backend *backend, const ga_spec_layer *layer,
                           ga_place place, int device, ga_heap *parent)
{
    ga_value values[GA_SPEC_OPTIONS];
    const char *texts[GA_SPEC_OPTIONS];
    ga_status status = ga_options_resolve(backend, layer, values, texts);
    if (status != GA_OK) {
        return status;
    }
    ga_heap *heap = ga_libc.calloc(1, sizeof *heap);
    if (!heap) {
        return no_record();
    }
    *heap = (ga_heap){.backend = backend,
                      .parent = parent,
                      .place = place,
                      .device = device,
                      .natural_align = places[place].natural_align};
    status = make_counters(heap) && make_text(heap, texts) ? GA_OK : no_record();
    if (status == GA_OK) {
        ga_open_args args = {place, device, values, parent, &runtime};
        status = open_backend(heap, &args);
    }
    if (status != GA_OK) {
        free_record(heap);
        return status;
    }
    list_add(heap);
    *out = heap;
    return GA_OK;
}

static void close_chain(ga_heap *heap)
{
    while (heap) {
        ga_heap *parent = heap->parent;
        list_remove(heap);
        heap->backend->close(heap->state);
        free_record(heap);
        heap = parent;
    }
}

/* ---- a whole spec ------------------------------------------------------------------------- */

static ga_status open_layers(ga_heap **out, const ga_spec *spec, size_t index, ga_place place,
                             int device);

/* The heap below layer `index`: the next layer, or the default parent where one is required. */
static ga_status open_parent(ga_heap **out, const ga_backend *backend, const ga_spec *spec,
                             size_t index, ga_place place, int device)
{
    ga_place below = backend->parent_place ? backend->parent_place(place) : place;
    if (index + 1 < spec->layer_count) {
        return open_layers(out, spec, index + 1, below, device);
    }
    *out = NULL;
    if (backend->parent_rule != GA_PARENT_REQUIRED) {
        return GA_OK;
    }
    const ga_spec_layer layer = {.name = places[below].parent};
    const ga_backend *parent = ga_registry_find(layer.name);
    if (!parent) {
        return ga_fail(GA_ERR_SPEC,
                       "%s: needs a parent, and its default \"%s\" is not in this build",
                       backend->name, layer.name);
    }
    ga_status status = check_layer(parent, below, false);
    return status == GA_OK ? open_over(out, parent, &layer, below, device, NULL) : status;
}

/* Every backend is looked up before the first parent is opened. */
static ga_status open_layers(ga_heap **out, const ga_spec *spec, size_t index, ga_place place,
                             int device)
{
    const ga_spec_layer *layer = &spec->layers[index];
    const ga_backend *backend = ga_registry_find(layer->name);
    if (!backend) {
        return GA_ERR_SPEC;
    }
    ga_heap *parent = NULL;
    ga_status status = check_layer(backend, place, index + 1 < spec->layer_count);
    if (status == GA_OK) {
        status = open_parent(&parent, backend, spec, index, place, device);
    }
    if (status == GA_OK) {
        status = open_over(out, backend, layer, place, device, parent);
    }
    if (status != GA_OK) {
        close_chain(parent);
    }
    return status;
}

/* As open_layers(), but no heap is opened. */
static ga_status check_layers(const ga_spec *spec, ga_place place)
{
    ga_value values[GA_SPEC_OPTIONS];
    const char *texts[GA_SPEC_OPTIONS];
    ga_status status = GA_OK;
    for (size_t i = 0; status == GA_OK && i < spec->layer_count; i++) {
        const ga_backend *backend = ga_registry_find(spec->layers[i].name);
        if (!backend) {
            return GA_ERR_SPEC;
        }
        status = check_layer(backend, place, i + 1 < spec->layer_count);
        if (status == GA_OK) {
            status = ga_options_resolve(backend, &spec->layers[i], values, texts);
        }
        place = backend->parent_place ? backend->parent_place(place) : place;
    }
    return status;
}

static const char *bare_option(const char *name)
{
    const ga_backend *backend = ga_registry_find(name);
    return backend ? backend->bare_option : NULL;
}

/* GPUALLOC_TRACE and GPUALLOC_TRACE_STACKS, or NULL. */
typedef struct trace_request {
    char *file, *stacks;
} trace_request;

/* Open a layer over `heap` that records. The layer is not inserted into the spec's text, so that
 * neither the limits of a spec nor the columns in messages count it. */
static ga_status open_trace_over(ga_heap **heap, const trace_request *request)
{
    const ga_spec_layer layer = {.name = "trace",
                                 .option_count = request->stacks ? 2 : 1,
                                 .options = {{.key = "file", .value = request->file},
                                             {.key = "stacks", .value = request->stacks}}};
    ga_heap *parent = *heap;
    const ga_backend *backend = ga_registry_find(layer.name);
    return backend ? open_over(heap, backend, &layer, parent->place, parent->device, parent)
                   : GA_ERR_SPEC;
}

/* A trace that cannot be written does not fail the program: it continues without one. */
static ga_status add_trace(ga_heap **heap, const trace_request *request)
{
    ga_status status = open_trace_over(heap, request);
    if (status == GA_ERR_IO || (status == GA_ERR_SPEC && request->stacks)) {
        ga_log(GA_LOG_ERROR, "%s: %s; going on without a trace",
               status == GA_ERR_IO ? "GPUALLOC_TRACE" : "GPUALLOC_TRACE_STACKS", ga_error_text());
        return GA_OK;
    }
    if (status != GA_OK) {
        close_chain(*heap);
    }
    return status;
}

/* `trace`: the trace to record, or NULL. */
static ga_status open_text(ga_heap **out, ga_place place, int device, const char *text,
                           const trace_request *trace)
{
    ga_spec *spec = ga_libc.malloc(sizeof *spec);
    ga_heap *heap = NULL;
    if (!spec) {
        return no_record();
    }
    ga_status status = ga_spec_parse(spec, text, bare_option);
    if (status == GA_OK) {
        status = open_layers(&heap, spec, 0, place, device);
    }
    if (status == GA_OK && trace) {
        status = add_trace(&heap, trace);
    }
    if (status != GA_OK) {
        ga_libc.free(spec);
        return status;
    }
    heap->spec = spec;
    heap->root = true;
    *out = heap;
    return GA_OK;
}

/* ---- settings that are copied: a program may clear its environment before its next heap ------ */

static trace_request trace; /* constant after it was read */

static void read_trace_request(void)
{
    trace.file = ga_environment_copy("GPUALLOC_TRACE");
    trace.stacks = ga_environment_copy("GPUALLOC_TRACE_STACKS");
}

static const trace_request *requested_trace(ga_place place)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_trace_request);
    return place != GA_PLACE_KERNEL && trace.file ? &trace : NULL;
}

void ga_heap_keep_settings(void)
{
    if (ga_environment("GPUALLOC_TRACE")) {
        requested_trace(GA_PLACE_HOST);
    }
    if (ga_environment("GPUALLOC_STATS")) {
        ga_report_wanted();
    }
}

/* ---- the interface ------------------------------------------------------------------------ */

const char *ga_heap_default_spec(ga_place place)
{
    return places[place].fallback;
}

void ga_heap_prepare(void)
{
    const ga_cuda_driver *driver;
    ga_backend_at(0);
    if (ga_cuda_driver_get(&driver) == GA_OK) {
        ga_cuda_captures_watched();
    }
}

ga_status ga_heap_open(ga_heap **out, ga_place place, int device, const char *spec)
{
    if (!out || (unsigned)place >= GA_PLACE_COUNT || device < 0) {
        if (out) {
            *out = NULL;
        }
        return ga_fail(
            GA_ERR_ARGUMENT,
            "ga_heap_open: expected a place from 0 to %d and a device from 0, got %d and %d",
            GA_PLACE_COUNT - 1, (int)place, device);
    }
    *out = NULL;
    const char *named = spec ? spec : ga_environment(places[place].variable);
    const char *text = named && (spec || *named) ? named : places[place].fallback;
    ga_report_wanted(); /* reads GPUALLOC_STATS */
    ga_status status = open_text(out, place, device, text, requested_trace(place));
    if (status != GA_OK) {
        return spec ? status : ga_fail(status, "%s: %s", places[place].variable, ga_error_text());
    }
    ga_report_when_exiting();
    return GA_OK;
}

ga_status ga_heap_check(ga_place place, const char *text)
{
    if ((unsigned)place >= GA_PLACE_COUNT || !text) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "ga_heap_check: expected a place from 0 to %d and a spec, got %d and %s",
                       GA_PLACE_COUNT - 1, (int)place, text ? text : "NULL");
    }
    ga_spec *spec = ga_libc.malloc(sizeof *spec);
    if (!spec) {
        return no_record();
    }
    ga_status status = ga_spec_parse(spec, text, bare_option);
    if (status == GA_OK) {
        status = check_layers(spec, place);
    }
    ga_libc.free(spec);
    return status;
}

ga_status ga_heap_close(ga_heap *heap)
{
    if (!heap) {
        return GA_OK;
    }
    ga_stats stats = {0};
    ga_captures_forget(heap, true);
    ga_heap_stats(heap, &stats);
    if (stats.live_blocks) {
        ga_log(GA_LOG_WARN, "%s: closed with %" PRIu64 " blocks of %" PRIu64 " bytes still held",
               heap->text, stats.live_blocks, stats.live_bytes);
    }
    ga_report(heap);
    close_chain(heap);
    return GA_OK;
}

ga_place ga_heap_place(const ga_heap *heap)
{
    return heap->place;
}

int ga_heap_device(const ga_heap *heap)
{
    return heap->device;
}

const char *ga_heap_spec(const ga_heap *heap)
{
    return heap->text;
}
