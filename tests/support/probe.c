/* SPDX-License-Identifier: MIT
 *
 * The probe backend.
 */
#include "probe.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct probe_state {
    char tag[16];
} probe_state;

enum {
    SLACK = 64 /* room behind each block to grow into */
};

/* Precedes each block, and keeps it aligned. */
typedef struct head {
    void *start; /* the C library's block */
    size_t size;
} head;

probe_calls probe;
char probe_story[256];
ga_value probe_values[6];
ga_heap *probe_parent;

/* relaxed: counts, read by tests once the threads have been joined */
static void called(int *count)
{
    __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
}

static void tell(char what, const probe_state *state)
{
    size_t length = strlen(probe_story);
    snprintf(probe_story + length, sizeof probe_story - length, "%s%c%s", length ? " " : "", what,
             state->tag);
}

/* ---- lifetime ----------------------------------------------------------------------------- */

static ga_status probe_open(const ga_open_args *args, void **state)
{
    called(&probe.open);
    memcpy(probe_values, args->values, sizeof probe_values);
    probe_parent = args->parent;
    if (args->values[PROBE_FAIL].flag) {
        return ga_fail(GA_ERR_MEMORY, "probe: told to fail");
    }
    probe_state *fresh = calloc(1, sizeof *fresh);
    if (!fresh) {
        return ga_fail(GA_ERR_MEMORY, "probe: no memory");
    }
    snprintf(fresh->tag, sizeof fresh->tag, "%s", args->values[PROBE_TAG].text);
    *state = fresh;
    tell('o', fresh);
    return GA_OK;
}

static void probe_close(void *state)
{
    called(&probe.close);
    tell('c', state);
    free(state);
}

/* ---- blocks ------------------------------------------------------------------------------- */

static head *head_of(const void *block)
{
    return (head *)block - 1;
}

static void count_live(int64_t blocks, int64_t bytes)
{
    /* relaxed: read once the threads have been joined */
    __atomic_fetch_add(&probe.live_blocks, blocks, __ATOMIC_RELAXED);
    __atomic_fetch_add(&probe.live_bytes, bytes, __ATOMIC_RELAXED);
}

static ga_status hand_out(size_t size, size_t align, void **out)
{
    size_t room = align < sizeof(head) ? sizeof(head) : align;
    char *start = size > (size_t)1 << 40 ? NULL : memalign(room, room + size + SLACK);
    if (!start) {
        return ga_fail(GA_ERR_MEMORY, "probe: no memory for %zu bytes", size);
    }
    memset(start, 0xa5, room + size); /* so that only cleared memory is zero */
    *out = start + room;
    *head_of(*out) = (head){start, size};
    count_live(1, (int64_t)size);
    return GA_OK;
}

static void take_back(void *block)
{
    count_live(-1, -(int64_t)head_of(block)->size);
    free(head_of(block)->start);
}

static ga_status probe_alloc(void *state, size_t size, void **out)
{
    (void)state;
    called(&probe.alloc);
    return hand_out(size, 16, out);
}

static ga_status probe_free(void *state, void *block)
{
    (void)state;
    called(&probe.free);
    take_back(block);
    return GA_OK;
}

static bool probe_owns(void *state, const void *pointer)
{
    (void)state;
    return pointer != NULL;
}

static size_t probe_usable_size(void *state, const void *block)
{
    (void)state;
    return head_of(block)->size;
}

static ga_status probe_realloc(void *state, void *block, size_t size, void **out)
{
    (void)state;
    called(&probe.realloc);
    ga_status status = hand_out(size, 16, out);
    if (status == GA_OK) {
        size_t before = head_of(block)->size;
        memcpy(*out, block, before < size ? before : size);
        take_back(block);
    }
    return status;
}

static ga_status probe_alloc_zeroed(void *state, size_t size, void **out)
{
    (void)state;
    called(&probe.zeroed);
    ga_status status = hand_out(size, 16, out);
    if (status == GA_OK) {
        memset(*out, 0, size);
    }
    return status;
}

static ga_status probe_alloc_aligned(void *state, size_t size, size_t align, void **out)
{
    (void)state;
    called(&probe.aligned);
    return hand_out(size, align, out);
}

static ga_status probe_alloc_batch(void *state, size_t n, const size_t *sizes, void **out)
{
    (void)state;
    called(&probe.batch);
    for (size_t i = 0; i < n; i++) {
        ga_status status = hand_out(sizes[i], 16, &out[i]);
        if (status != GA_OK) {
            while (i--) {
                take_back(out[i]);
            }
            return status;
        }
    }
    return GA_OK;
}

static ga_status probe_grow(void *state, void *block, size_t size)
{
    (void)state;
    called(&probe.grow);
    head *h = head_of(block);
    if ((char *)block + size > (char *)h->start + malloc_usable_size(h->start)) {
        return ga_fail(GA_ERR_CANNOT_GROW, "probe: no room for %zu bytes", size);
    }
    count_live(0, (int64_t)(size - h->size));
    h->size = size;
    return GA_OK;
}

static ga_status probe_trim(void *state, size_t keep)
{
    (void)state;
    (void)keep;
    called(&probe.trim);
    return GA_OK;
}

static ga_status probe_alloc_on(void *state, size_t size, size_t align, ga_stream stream,
                                void **out)
{
    (void)state;
    (void)stream;
    called(&probe.alloc_on);
    return hand_out(size, align, out);
}

static ga_status probe_free_on(void *state, void *block, ga_stream stream)
{
    (void)state;
    (void)stream;
    called(&probe.free_on);
    take_back(block);
    return GA_OK;
}

static void probe_stats(void *state, ga_backend_stats *out)
{
    (void)state;
    called(&probe.stats);
    *out = (ga_backend_stats){.live_bytes = 11, .held_bytes = 22, .growths = 33};
}

/* ---- forks and threads -------------------------------------------------------------------- */

static void probe_fork_prepare(void *state)
{
    called(&probe.fork_prepare);
    tell('p', state);
}

static void probe_fork_parent(void *state)
{
    called(&probe.fork_parent);
    tell('P', state);
}

static void probe_fork_child(void *state)
{
    called(&probe.fork_child);
    tell('C', state);
}

static void probe_thread_exit(void *state)
{
    (void)state;
    called(&probe.thread_exit);
}

/* ---- the table ---------------------------------------------------------------------------- */

static const char *const colours[] = {"red", "green", "blue", NULL};

static const ga_option options[] = {
    [PROBE_TAG] = {.name = "tag", .type = GA_OPTION_STRING, .fallback = "", .help = "a name"},
    [PROBE_SIZE] = {.name = "size", .type = GA_OPTION_SIZE, .fallback = "4K", .help = "a size"},
    [PROBE_FLAG] = {.name = "flag", .type = GA_OPTION_BOOL, .fallback = "no", .help = "a flag"},
    [PROBE_NUMBER] = {.name = "number",
                      .type = GA_OPTION_INTEGER,
                      .fallback = "1",
                      .help = "a number",
                      .min = 1,
                      .max = 9},
    [PROBE_CHOICE] = {.name = "choice",
                      .type = GA_OPTION_ENUM,
                      .fallback = "red",
                      .help = "a colour",
                      .choices = colours},
    [PROBE_FAIL] = {.name = "fail", .type = GA_OPTION_BOOL, .fallback = "no", .help = "refuse"},
};

const ga_backend probe_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "probe",
    .help = "tells what was called",
    .places = GA_PLACE_BIT(GA_PLACE_HOST),
    .parent_rule = GA_PARENT_OPTIONAL,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .open = probe_open,
    .close = probe_close,
    .alloc = probe_alloc,
    .free = probe_free,
    .owns = probe_owns,
    .usable_size = probe_usable_size,
    .realloc = probe_realloc,
    .alloc_zeroed = probe_alloc_zeroed,
    .alloc_aligned = probe_alloc_aligned,
    .alloc_batch = probe_alloc_batch,
    .grow = probe_grow,
    .trim = probe_trim,
    .alloc_on = probe_alloc_on,
    .free_on = probe_free_on,
    .stats = probe_stats,
    .fork_prepare = probe_fork_prepare,
    .fork_parent = probe_fork_parent,
    .fork_child = probe_fork_child,
    .thread_exit = probe_thread_exit,
};
