/* SPDX-License-Identifier: MIT
 *
 * The host's side: the options, the heap's record on the device, the view, blocks for the host.
 *
 * STRUCTURE  `device_record` is one block of device memory: the ga_coalesce_heap, then the map's
 *            entries, then `spilled` of its buckets. `host_copy` is the ga_coalesce_heap as the
 *            host wrote it.
 * INVARIANT  The parent knows which blocks are live; the record holds only counts, and the map.
 * ORDER      The lock orders those calls for one heap that use its `answer`.
 * PROGRESS   Calls for single blocks launch a kernel and wait for it.
 */
#include "coalesce.h"

#include "../../device/device.h"
#include "../../device/kinds.h"
#include "../../platform/cuda_driver.h"
#include "../../platform/cuda_refused.h"
#include "../../platform/libc.h"
#include "../../platform/log.h"
#include "../slab/classes/sized_words.h"
#include "coalesce_heap.h"
#include "coalesce_words.h"

#include <pthread.h>
#include <stddef.h>

enum {
    HEADER = 0,
    STATIC,
    MAP,
    MAX,
    CHECK,
    OPTIONS
};

enum {
    HEADER_FIT = GA_COALESCE_FORMS, /* after the forms, the last choice of the option */
    RECORD_ALIGN = 256
};

enum {
    CHECK_AUTO = 0,
    CHECK_OFF,
    CHECK_FULL
};

typedef struct coalesce_state {
    int device;
    ga_heap *parent;
    ga_parent below;      /* except the words, which each view gets anew */
    uint32_t form;        /* GA_COALESCE_AUTO ... */
    uint32_t bare;        /* GA_COALESCE_NO_BARE ... */
    uint32_t static_kind; /* GA_COALESCE_HB ... */
    uint32_t max;
    bool single; /* check=full: the parent checks each free */
    char *device_record;
    bool is_written; /* `device_record` has been written */
    ga_coalesce_heap host_copy;
    uint64_t reported[GA_COALESCE_FAULTS]; /* faults that are in the log already */
    pthread_mutex_t lock;
} coalesce_state;

/* ---- options --------------------------------------------------------------------------------- */

static const char *const headers[] = {
    [GA_COALESCE_AUTO] = "auto",       [GA_COALESCE_EIGHT] = "8", [GA_COALESCE_SIXTEEN] = "16",
    [GA_COALESCE_HEADERLESS] = "none", [HEADER_FIT] = "fit",      NULL};
static const char *const statics[] = {[GA_COALESCE_HB] = "hb",
                                      [GA_COALESCE_NB] = "nb",
                                      [GA_COALESCE_HW] = "hw",
                                      [GA_COALESCE_NW] = "nw",
                                      NULL};

static const char *const checks[] = {
    [CHECK_AUTO] = "auto", [CHECK_OFF] = "off", [CHECK_FULL] = "full", NULL};

static const ga_option options[OPTIONS] = {
    [HEADER] =
        {.name = "header",
         .type = GA_OPTION_ENUM,
         .fallback = "fit",
         .help = "before each block: auto 8, 4 or 2 bytes, which weakens its alignment to that; 8; "
                 "16 aligns all to 16; none, as the parent finds; fit: none or 16",
         .choices = headers},
    [STATIC] = {.name = "static",
                .type = GA_OPTION_ENUM,
                .fallback = "hb",
                .help = "ga_coalesce_malloc(..., true): with Headers or Not, for a Block or a Warp",
                .choices = statics,
                .expert = true},
    [MAP] = {.name = "map",
             .type = GA_OPTION_INTEGER,
             .fallback = "0",
             .help = "nb and nw: so many blocks find their superblock by a hash map; 0: by address",
             .min = 0,
             .max = 1 << 28,
             .expert = true},
    [MAX] = {.name = "max",
             .type = GA_OPTION_SIZE,
             .fallback = "64M",
             .help = "largest request that is coalesced, up to 64M; larger ones are served alone",
             .min = 1,
             .max = GA_COALESCE_MAX},
    [CHECK] = {.name = "check",
               .type = GA_OPTION_ENUM,
               .fallback = "auto",
               .help =
                   "full: nothing is coalesced, so that slab:unit=classes,check=full below sees "
                   "each free; off; auto: full there without headers, else off",
               .choices = checks},
};

static bool parent_finds(const coalesce_state *s)
{
    return s->below.kind == GA_BELOW_SIZED;
}

static ga_status read_parent(coalesce_state *s, ga_kernel_heap *view)
{
    ga_status status = ga_heap_kernel_view(s->parent, view);
    if (status != GA_OK) {
        return ga_fail(status, "coalesce: the parent has nothing for kernels: %s", ga_error_text());
    }
    s->below.kind = view->kind == GA_KERNEL_KIND_CUDA    ? GA_BELOW_CUDA
                    : view->kind == GA_KERNEL_KIND_SIZED ? GA_BELOW_SIZED
                                                         : GA_BELOW_NONE;
    return s->below.kind != GA_BELOW_NONE
               ? GA_OK
               : ga_fail(GA_ERR_SPEC,
                         "coalesce: expected a parent that has blocks of all sizes in kernels, "
                         "cuda or slab:unit=classes");
}

static ga_status read_header(coalesce_state *s, uint32_t header)
{
    s->form = header != HEADER_FIT ? header
              : parent_finds(s)    ? GA_COALESCE_HEADERLESS
                                   : GA_COALESCE_SIXTEEN;
    return s->form != GA_COALESCE_HEADERLESS || parent_finds(s)
               ? GA_OK
               : ga_fail(GA_ERR_SPEC,
                         "coalesce: header: none: expected a parent that finds blocks by "
                         "their addresses, slab:unit=classes, got cuda");
}

static ga_status read_static(coalesce_state *s, int64_t entries)
{
    bool bare = s->static_kind == GA_COALESCE_NB || s->static_kind == GA_COALESCE_NW;
    s->bare = !bare || s->form == GA_COALESCE_HEADERLESS ? GA_COALESCE_NO_BARE
              : entries                                  ? GA_COALESCE_BY_MAP
                                                         : GA_COALESCE_BY_NOTE;
    s->below.noted = s->form == GA_COALESCE_HEADERLESS || s->bare == GA_COALESCE_BY_NOTE;
    if (s->bare == GA_COALESCE_BY_NOTE && !parent_finds(s)) {
        return ga_fail(GA_ERR_SPEC, "coalesce: static: %s over cuda: expected map=ENTRIES",
                       statics[s->static_kind]);
    }
    return !entries || s->bare == GA_COALESCE_BY_MAP
               ? GA_OK
               : ga_fail(GA_ERR_SPEC,
                         "coalesce: map: expected with static=nb or static=nw and "
                         "headers, got it with static=%s,header=%s",
                         statics[s->static_kind], headers[s->form]);
}

static ga_status read_check(coalesce_state *s, const ga_kernel_heap *below, int check)
{
    bool can = s->form == GA_COALESCE_HEADERLESS && GA_SIZED_WORDS_CHECK(below->words);
    s->single = can && check != CHECK_OFF;
    return can || check != CHECK_FULL
               ? GA_OK
               : ga_fail(GA_ERR_SPEC,
                         "coalesce: check: full: expected slab:unit=classes,check=full as "
                         "parent, and no headers");
}

static ga_status read_settings(coalesce_state *s, const ga_value *values)
{
    ga_kernel_heap below;
    ga_status status = read_parent(s, &below);
    s->static_kind = (uint32_t)values[STATIC].choice;
    s->max = (uint32_t)values[MAX].size;
    if (status == GA_OK) {
        status = read_header(s, (uint32_t)values[HEADER].choice);
    }
    if (status == GA_OK) {
        status = read_static(s, values[MAP].integer);
    }
    return status == GA_OK ? read_check(s, &below, values[CHECK].choice) : status;
}

/* ---- the record on the device --------------------------------------------------------------- */

static size_t round_up(size_t size)
{
    return (size + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

/* At least half of the map's entries stay free. */
static uint32_t buckets_for(int64_t entries)
{
    uint32_t buckets = 1;
    while (entries && (int64_t)buckets * GA_MAP_BUCKET < 2 * entries) {
        buckets *= 2;
    }
    return entries ? buckets : 0;
}

static ga_status synchronise(const ga_cuda_scope *scope, ga_status status)
{
    return status == GA_OK ? GA_CUDA_CALL(scope->driver, cuStreamSynchronize, scope->stream)
                           : status;
}

static ga_status write_record(const coalesce_state *s, const ga_cuda_scope *scope)
{
    return synchronise(scope,
                       GA_CUDA_CALL(scope->driver, cuMemcpyHtoDAsync, (CUdeviceptr)s->device_record,
                                    &s->host_copy, sizeof s->host_copy, scope->stream));
}

static ga_status read_back(const ga_cuda_scope *scope, void *to, const void *from, size_t size)
{
    return synchronise(scope, GA_CUDA_CALL(scope->driver, cuMemcpyDtoHAsync, to, (CUdeviceptr)from,
                                           size, scope->stream));
}

static size_t entries_size(const coalesce_state *s)
{
    return (size_t)s->host_copy.map.buckets * GA_MAP_BUCKET * sizeof(ga_map_entry);
}

static size_t record_size(const coalesce_state *s)
{
    return round_up(sizeof(ga_coalesce_heap)) + entries_size(s) +
           s->host_copy.map.buckets * sizeof(uint32_t);
}

static ga_status set_up(coalesce_state *s, const ga_cuda_scope *scope)
{
    CUdeviceptr device_record = 0;
    size_t size = record_size(s);
    ga_status status = GA_CUDA_CALL(scope->driver, cuMemAlloc, &device_record, size);
    if (status != GA_OK) {
        return ga_fail(status, "coalesce: no %zu bytes for the heap's record: %s", size,
                       ga_error_text());
    }
    s->device_record = (char *)device_record;
    s->host_copy.map.entries =
        (ga_map_entry *)(s->device_record + round_up(sizeof(ga_coalesce_heap)));
    s->host_copy.map.spilled = (uint32_t *)((char *)s->host_copy.map.entries + entries_size(s));
    status = ga_cuda_clear(scope, s->device_record, size);
    return status == GA_OK ? write_record(s, scope) : status;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static const char *const faults[GA_COALESCE_FAULTS] = {
    [GA_COALESCE_FREED_TWICE] = "were freed twice",
    [GA_COALESCE_NO_SEGMENT] = "were freed, but are none of this heap's",
};

/* Log the faults that kernels have noticed since the last report. Under the lock, or with no other
 * call beside it. */
static void report_faults(coalesce_state *s, const ga_cuda_scope *scope)
{
    ga_coalesce_heap current;
    if (read_back(scope, &current, s->device_record, sizeof current) != GA_OK) {
        return;
    }
    for (int i = 0; i < GA_COALESCE_FAULTS; i++) {
        if (current.faults[i] > s->reported[i]) {
            ga_log(GA_LOG_ERROR, "coalesce: device %d: %llu blocks %s", s->device,
                   (unsigned long long)(current.faults[i] - s->reported[i]), faults[i]);
            s->reported[i] = current.faults[i];
        }
    }
    if (current.left) {
        ga_log(GA_LOG_INFO, "coalesce: device %d: %llu blocks were left in the map", s->device,
               (unsigned long long)current.left);
    }
}

static void coalesce_close(void *state)
{
    coalesce_state *s = state;
    ga_cuda_scope scope;
    if (s->device_record && s->is_written && ga_cuda_enter(&scope, s->device) == GA_OK) {
        report_faults(s, &scope);
        ga_cuda_leave(&scope);
    }
    if (s->device_record) {
        ga_cuda_free_block(s->device, (CUdeviceptr)s->device_record);
    }
    pthread_mutex_destroy(&s->lock);
    ga_libc.free(s);
}

static ga_status coalesce_open(const ga_open_args *args, void **state)
{
    ga_cuda_scope scope;
    coalesce_state *s = ga_libc.calloc(1, sizeof *s);
    if (!s) {
        return ga_fail(GA_ERR_MEMORY, "coalesce: no memory for the heap's record");
    }
    s->device = args->device;
    s->parent = args->parent;
    pthread_mutex_init(&s->lock, NULL);
    ga_status status = read_settings(s, args->values);
    if (status == GA_OK) {
        status = ga_cuda_enter(&scope, s->device);
    }
    if (status == GA_OK) {
        s->host_copy.map.buckets = buckets_for(args->values[MAP].integer);
        status = set_up(s, &scope);
        ga_cuda_leave(&scope);
    }
    if (status != GA_OK) {
        coalesce_close(s);
        return status;
    }
    s->is_written = true;
    *state = s;
    return GA_OK;
}

/* ---- the view -------------------------------------------------------------------------------- */

static void fill_view(const coalesce_state *s, const ga_kernel_heap *below, ga_kernel_heap *out)
{
    uint64_t bits = (uint64_t)s->form << GA_COALESCE_AT_FORM |
                    (uint64_t)s->below.kind << GA_COALESCE_AT_PARENT |
                    (uint64_t)s->bare << GA_COALESCE_AT_BARE |
                    (uint64_t)s->below.noted << GA_COALESCE_AT_NOTED |
                    (uint64_t)s->static_kind << GA_COALESCE_AT_STATIC |
                    (uint64_t)s->single << GA_COALESCE_AT_SINGLE;
    *out = (ga_kernel_heap){.abi = GA_KERNEL_HEAP_ABI, .kind = GA_KERNEL_KIND_COALESCE};
    out->words[GA_COALESCE_WORD_HEAP] = (uint64_t)s->device_record;
    out->words[GA_COALESCE_WORD_SHAPE] = s->max | bits << 32;
    for (int i = 0; i < GA_PARENT_WORDS; i++) {
        out->words[GA_COALESCE_WORD_PARENT + i] = below->words[i];
    }
    if (s->form != GA_COALESCE_HEADERLESS) { /* each block has a header */
        out->words[GA_COALESCE_WORD_PARENT + GA_SIZED_WORD_SHAPE] &= ~(uint64_t)GA_SIZED_FLAG_PLAIN;
    }
}

/* Asks for the parent's view each time, because the parent grows when a view is made. */
static ga_status view_of(const coalesce_state *s, ga_kernel_heap *out)
{
    ga_kernel_heap below;
    ga_status status = ga_heap_kernel_view(s->parent, &below);
    if (status == GA_OK) {
        fill_view(s, &below, out);
    }
    return status;
}

static ga_status coalesce_kernel_view(void *state, ga_kernel_heap *out)
{
    coalesce_state *s = state;
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, s->device);
    if (status != GA_OK) {
        return status;
    }
    pthread_mutex_lock(&s->lock);
    report_faults(s, &scope);
    pthread_mutex_unlock(&s->lock);
    ga_cuda_leave(&scope);
    return view_of(s, out);
}

/* ---- blocks for the host: over slabs those of kernels, else ordinary device memory ---------- */

static ga_status launch(const coalesce_state *s, const ga_cuda_scope *scope, const char *name,
                        void **parameters)
{
    CUfunction function;
    ga_status status = ga_device_function(&function, s->device, name);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope->driver, cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0,
                              scope->stream, parameters, NULL);
    }
    return synchronise(scope, status);
}

static ga_status alloc_in_kernel(coalesce_state *s, const ga_kernel_heap *view, uint64_t size,
                                 void **out)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, s->device);
    if (status != GA_OK) {
        return status;
    }
    pthread_mutex_lock(&s->lock);
    char *answer = s->device_record + offsetof(ga_coalesce_heap, answer);
    void *parameters[] = {(void *)view, &size, &answer};
    status = launch(s, &scope, "ga_coalesce_alloc_kernel", parameters);
    if (status == GA_OK) {
        status = read_back(&scope, out, answer, sizeof *out);
    }
    pthread_mutex_unlock(&s->lock);
    ga_cuda_leave(&scope);
    return status;
}

static ga_status coalesce_alloc(void *state, size_t size, void **out)
{
    coalesce_state *s = state;
    ga_kernel_heap view;
    if (!parent_finds(s)) {
        return ga_alloc(s->parent, size, 0, out);
    }
    *out = NULL;
    ga_status status = view_of(s, &view);
    if (status == GA_OK) {
        status = alloc_in_kernel(s, &view, size, out);
    }
    return status == GA_OK && !*out
               ? ga_fail(GA_ERR_MEMORY, "coalesce: no more memory for %zu bytes", size)
               : status;
}

static ga_status free_in_kernel(coalesce_state *s, const ga_kernel_heap *view, void *block)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, s->device);
    if (status == GA_OK) {
        void *parameters[] = {(void *)view, &block};
        status = launch(s, &scope, "ga_coalesce_free_kernel", parameters);
        ga_cuda_leave(&scope);
    }
    return status;
}

static bool coalesce_owns(void *state, const void *pointer)
{
    return ga_owns(((coalesce_state *)state)->parent, pointer);
}

static ga_status coalesce_free(void *state, void *block)
{
    coalesce_state *s = state;
    ga_kernel_heap view;
    if (!parent_finds(s)) {
        return ga_free(s->parent, block);
    }
    if (!ga_owns(s->parent, block)) {
        return ga_fail(GA_ERR_POINTER, "coalesce: %p is no block of this heap", block);
    }
    ga_status status = view_of(s, &view);
    return status == GA_OK ? free_in_kernel(s, &view, block) : status;
}

/* ---- the whole heap ------------------------------------------------------------------------- */

static ga_status coalesce_reset(void *state)
{
    coalesce_state *s = state;
    ga_cuda_scope scope;
    ga_status status = ga_heap_reset(s->parent);
    if (status == GA_OK) {
        status = ga_cuda_enter(&scope, s->device);
    }
    if (status != GA_OK) {
        return status;
    }
    pthread_mutex_lock(&s->lock);
    report_faults(s, &scope);
    status = ga_cuda_clear(&scope, s->device_record, record_size(s));
    if (status == GA_OK) {
        status = write_record(s, &scope);
    }
    for (int i = 0; i < GA_COALESCE_FAULTS; i++) {
        s->reported[i] = 0;
    }
    pthread_mutex_unlock(&s->lock);
    ga_cuda_leave(&scope);
    return status;
}

static ga_status coalesce_trim(void *state, size_t keep)
{
    return ga_trim(((coalesce_state *)state)->parent, keep);
}

/* Statistics are the parent's: a superblock counts as one block. */
static void coalesce_stats(void *state, ga_backend_stats *out)
{
    ga_stats below;
    *out = (ga_backend_stats){0};
    if (ga_heap_stats(((coalesce_state *)state)->parent, &below) == GA_OK) {
        out->live_blocks = below.live_blocks;
        out->live_bytes = below.live_bytes;
        out->held_bytes = below.held_bytes;
        out->growths = below.growths;
    }
}

static void coalesce_fork_prepare(void *state)
{
    pthread_mutex_lock(&((coalesce_state *)state)->lock);
}

static void coalesce_fork_after(void *state)
{
    pthread_mutex_unlock(&((coalesce_state *)state)->lock);
}

const ga_backend ga_coalesce_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "coalesce",
    .help = "combines what lanes of a warp request together into one block",
    .places = GA_PLACE_BIT(GA_PLACE_KERNEL),
    .parent_rule = GA_PARENT_REQUIRED,
    .options = options,
    .option_count = OPTIONS,
    .open = coalesce_open,
    .close = coalesce_close,
    .alloc = coalesce_alloc,
    .free = coalesce_free,
    .owns = coalesce_owns,
    .trim = coalesce_trim,
    .stats = coalesce_stats,
    .kernel_view = coalesce_kernel_view,
    .fork_prepare = coalesce_fork_prepare,
    .fork_parent = coalesce_fork_after,
    .fork_child = coalesce_fork_after,
    .reset = coalesce_reset,
};
