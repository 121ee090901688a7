/* SPDX-License-Identifier: MIT
 *
 * The `fail` backend: refuses the n-th request for memory and passes every other call on to its
 * parent. Frees never fail.
 */
#include "doubles.h"

#include "../../platform/libc.h"

enum {
    OPTION_NTH = 0,
    OPTION_EVERY
};

typedef struct fail_state {
    ga_heap *parent;
    uint64_t nth;
    bool every;
    uint64_t requests; /* relaxed: each request only needs a number of its own */
} fail_state;

static ga_status fail_open(const ga_open_args *args, void **state)
{
    fail_state *f = ga_libc.calloc(1, sizeof *f);
    if (!f) {
        return ga_fail(GA_ERR_MEMORY, "fail: no memory for the heap's record");
    }
    f->parent = args->parent;
    f->nth = (uint64_t)args->values[OPTION_NTH].integer;
    f->every = args->values[OPTION_EVERY].flag;
    *state = f;
    return GA_OK;
}

static void fail_close(void *state)
{
    ga_libc.free(state);
}

/* Count one request. Returns whether to refuse it. */
static bool due(fail_state *f)
{
    uint64_t number = __atomic_add_fetch(&f->requests, 1, __ATOMIC_RELAXED);
    return f->nth && (f->every ? number % f->nth == 0 : number == f->nth);
}

static ga_status refused(const fail_state *f, size_t size)
{
    return ga_fail(GA_ERR_MEMORY, "fail: refused as nth=%llu says; requested %zu bytes",
                   (unsigned long long)f->nth, size);
}

static ga_status fail_alloc(void *state, size_t size, void **out)
{
    fail_state *f = state;
    return due(f) ? refused(f, size) : ga_alloc(f->parent, size, 0, out);
}

static ga_status fail_alloc_zeroed(void *state, size_t size, void **out)
{
    fail_state *f = state;
    return due(f) ? refused(f, size) : ga_alloc_zeroed(f->parent, size, 0, out);
}

static ga_status fail_alloc_aligned(void *state, size_t size, size_t align, void **out)
{
    fail_state *f = state;
    return due(f) ? refused(f, size) : ga_alloc(f->parent, size, align, out);
}

static ga_status fail_alloc_on(void *state, size_t size, size_t align, ga_stream stream, void **out)
{
    fail_state *f = state;
    return due(f) ? refused(f, size) : ga_alloc_on(f->parent, size, align, stream, out);
}

static ga_status fail_realloc(void *state, void *block, size_t size, void **out)
{
    fail_state *f = state;
    return due(f) ? refused(f, size) : ga_realloc(f->parent, block, size, 0, out);
}

static ga_status fail_grow(void *state, void *block, size_t size)
{
    fail_state *f = state;
    return due(f) ? ga_fail(GA_ERR_CANNOT_GROW, "fail: refused as nth=%llu says",
                            (unsigned long long)f->nth)
                  : ga_grow(f->parent, block, size);
}

static ga_status fail_free(void *state, void *block)
{
    return ga_free(((fail_state *)state)->parent, block);
}

static ga_status fail_free_on(void *state, void *block, ga_stream stream)
{
    return ga_free_on(((fail_state *)state)->parent, block, stream);
}

static ga_status fail_retire(void *state, void *block)
{
    return ga_retire(((fail_state *)state)->parent, block);
}

static bool fail_owns(void *state, const void *pointer)
{
    return ga_owns(((fail_state *)state)->parent, pointer);
}

static size_t fail_usable_size(void *state, const void *block)
{
    return ga_usable_size(((fail_state *)state)->parent, block);
}

static ga_status fail_trim(void *state, size_t keep)
{
    return ga_trim(((fail_state *)state)->parent, keep);
}

static ga_status fail_each_live(void *state, ga_visit *visit, void *context)
{
    return ga_heap_each_live(((fail_state *)state)->parent, visit, context);
}

static const ga_option options[] = {
    [OPTION_NTH] = {.name = "nth",
                    .type = GA_OPTION_INTEGER,
                    .fallback = "1",
                    .help = "the request to refuse, counted from 1; 0: none",
                    .min = 0,
                    .max = INT64_MAX},
    [OPTION_EVERY] = {.name = "every",
                      .type = GA_OPTION_BOOL,
                      .fallback = "no",
                      .help = "refuse every nth request, not only the first such"},
};

const ga_backend ga_fail_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "fail",
    .help = "test double: refuses the n-th request, else passes on to its parent",
    .places = GA_PLACE_BIT(GA_PLACE_HOST) | GA_PLACE_BIT(GA_PLACE_DEVICE),
    .parent_rule = GA_PARENT_REQUIRED,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .open = fail_open,
    .close = fail_close,
    .alloc = fail_alloc,
    .free = fail_free,
    .owns = fail_owns,
    .usable_size = fail_usable_size,
    .realloc = fail_realloc,
    .alloc_zeroed = fail_alloc_zeroed,
    .alloc_aligned = fail_alloc_aligned,
    .grow = fail_grow,
    .trim = fail_trim,
    .retire = fail_retire,
    .alloc_on = fail_alloc_on,
    .free_on = fail_free_on,
    .each_live = fail_each_live,
};
