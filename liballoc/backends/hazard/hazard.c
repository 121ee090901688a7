/* SPDX-License-Identifier: MIT
 *
 * The `hazard` backend: a block that is freed goes back to the parent once no slot of the heap's
 * domain holds its address. If a request finds no memory, retired blocks are freed and the
 * parent is asked once more.
 */
#include "hazard.h"

#include "../../platform/libc.h"
#include "../../platform/log.h"
#include "../../reclaim/state.h"

#include <string.h>

enum {
    OPTION_SLOTS = 0,
    OPTION_BATCH,
    OPTION_BYTES,
    OPTION_FENCES,
    OPTIONS
};

typedef struct hazard_state {
    ga_heap *parent;
    ga_domain *domain;
} hazard_state;

/* ---- open and close ------------------------------------------------------------------------ */

static ga_status hazard_open(const ga_open_args *args, void **state)
{
    const ga_value *values = args->values;
    ga_domain_options options = {
        .options_size = sizeof options,
        .flags = values[OPTION_FENCES].choice ? GA_DOMAIN_SEQ_CST : 0,
        .slots = (uint32_t)values[OPTION_SLOTS].integer,
        .batch = (uint32_t)values[OPTION_BATCH].integer,
        .batch_bytes = values[OPTION_BYTES].size,
    };
    hazard_state *s = ga_libc.calloc(1, sizeof *s);
    if (!s) {
        return ga_fail(GA_ERR_MEMORY, "hazard: no memory for the heap's record");
    }
    s->parent = args->parent;
    ga_status status = ga_domain_open(&s->domain, &options);
    if (status != GA_OK) {
        ga_libc.free(s);
        return status;
    }
    *state = s;
    return GA_OK;
}

/* Closes even if slots are set: the caller promises not to use the heap's blocks any more. */
static void hazard_close(void *state)
{
    hazard_state *s = state;
    uint64_t set = ga_domain_force_close(s->domain);
    if (set) {
        ga_log(GA_LOG_WARN, "hazard: closed while %llu slots were set", (unsigned long long)set);
    }
    ga_libc.free(s);
}

static ga_domain *hazard_domain(void *state)
{
    return ((hazard_state *)state)->domain;
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* True if retired blocks were freed, so that the parent is worth another request. */
static bool drained(const hazard_state *s, ga_status status)
{
    return status == GA_ERR_MEMORY && ga_domain_drain(s->domain) == GA_OK;
}

static ga_status alloc_or_drain(hazard_state *s, size_t size, size_t align, void **out)
{
    ga_status status = ga_alloc(s->parent, size, align, out);
    return drained(s, status) ? ga_alloc(s->parent, size, align, out) : status;
}

static ga_status hazard_alloc(void *state, size_t size, void **out)
{
    return alloc_or_drain(state, size, 0, out);
}

static ga_status hazard_alloc_aligned(void *state, size_t size, size_t align, void **out)
{
    return alloc_or_drain(state, size, align, out);
}

static ga_status hazard_alloc_zeroed(void *state, size_t size, void **out)
{
    hazard_state *s = state;
    ga_status status = ga_alloc_zeroed(s->parent, size, 0, out);
    return drained(s, status) ? ga_alloc_zeroed(s->parent, size, 0, out) : status;
}

/* There is no memory to retire the block with: free it now if no slot holds it. */
static ga_status free_now(hazard_state *s, void *block, ga_status status)
{
    return ga_scan_can_free(s->domain, block) ? ga_free(s->parent, block) : status;
}

static ga_status hazard_free(void *state, void *block)
{
    hazard_state *s = state;
    ga_member *me;
    bool leave;
    if (!ga_owns(s->parent, block)) {
        return ga_fail(GA_ERR_POINTER, "hazard: %p is no block of the parent's", block);
    }
    ga_status status = ga_member_join(s->domain, &me, &leave);
    if (status == GA_OK) {
        size_t size = ga_usable_size(s->parent, block);
        status = ga_hazard_retire_to(&me->hazards, block, size, s->parent);
    }
    if (status == GA_ERR_MEMORY) {
        status = free_now(s, block, status);
    }
    if (leave) {
        ga_domain_leave(s->domain);
    }
    return status;
}

/* ---- reallocation -------------------------------------------------------------------------- */

/* True if the block can stay where it is: the parent grew it, or it would still be at least half
 * used. */
static bool stays_in_place(const hazard_state *s, void *block, size_t old_size, size_t size)
{
    return size <= old_size ? size >= old_size / 2 : ga_grow(s->parent, block, size) == GA_OK;
}

/* A block that grows by little will grow again, and each time it has to be copied, because readers
 * may hold the old block and the parent cannot move its pages. A quarter of slack keeps repeated
 * growth from taking quadratic time. */
static ga_status alloc_with_slack(hazard_state *s, size_t old_size, size_t size, void **out)
{
    size_t larger = old_size + old_size / 4;
    if (size > old_size && size < larger && ga_alloc(s->parent, larger, 0, out) == GA_OK) {
        return GA_OK;
    }
    return alloc_or_drain(s, size, 0, out);
}

/* Copy to a new block and retire the old one. If it cannot be retired, the new block is freed and
 * nothing has changed. */
static ga_status move_block(hazard_state *s, void *block, size_t old_size, size_t size, void **out)
{
    void *new_block;
    ga_status status = alloc_with_slack(s, old_size, size, &new_block);
    if (status != GA_OK) {
        return size <= old_size ? GA_OK : status; /* a smaller block can stay */
    }
    memcpy(new_block, block, old_size < size ? old_size : size);
    status = hazard_free(s, block);
    if (status != GA_OK) {
        ga_free(s->parent, new_block);
        return status;
    }
    *out = new_block;
    return GA_OK;
}

static ga_status hazard_realloc(void *state, void *block, size_t size, void **out)
{
    hazard_state *s = state;
    size_t old_size = ga_usable_size(s->parent, block);
    if (!ga_owns(s->parent, block)) {
        return ga_fail(GA_ERR_POINTER, "hazard: %p is no block of the parent's", block);
    }
    if (!old_size) {
        return ga_fail(GA_ERR_UNSUPPORTED, "hazard: reallocation over a parent that does not know "
                                           "its blocks' sizes; expected one that does");
    }
    *out = block;
    return stays_in_place(s, block, old_size, size) ? GA_OK
                                                    : move_block(s, block, old_size, size, out);
}

/* ---- the rest ------------------------------------------------------------------------------ */

static bool hazard_owns(void *state, const void *pointer)
{
    return ga_owns(((hazard_state *)state)->parent, pointer);
}

static size_t hazard_usable_size(void *state, const void *block)
{
    return ga_usable_size(((hazard_state *)state)->parent, block);
}

static ga_status hazard_grow(void *state, void *block, size_t size)
{
    return ga_grow(((hazard_state *)state)->parent, block, size);
}

static ga_status hazard_trim(void *state, size_t keep)
{
    hazard_state *s = state;
    ga_status status = ga_domain_drain(s->domain);
    return status == GA_OK ? ga_trim(s->parent, keep) : status;
}

static void hazard_stats(void *state, ga_backend_stats *out)
{
    ga_stats below;
    *out = (ga_backend_stats){0};
    if (ga_heap_stats(((hazard_state *)state)->parent, &below) == GA_OK) {
        out->held_bytes = below.held_bytes;
        out->growths = below.growths;
    }
}

static const char *const fences[] = {"asymmetric", "seq_cst", NULL};

static const ga_option options[OPTIONS] = {
    [OPTION_SLOTS] = {.name = "slots",
                      .type = GA_OPTION_INTEGER,
                      .fallback = "8",
                      .help = "hazard pointers of each thread",
                      .min = 1,
                      .max = GA_DOMAIN_SLOTS_MAX},
    [OPTION_BATCH] = {.name = "batch",
                      .type = GA_OPTION_INTEGER,
                      .fallback = "4096",
                      .help = "blocks a thread collects before it scans",
                      .min = 1,
                      .max = GA_DOMAIN_BATCH_MAX},
    [OPTION_BYTES] = {.name = "bytes",
                      .type = GA_OPTION_SIZE,
                      .fallback = "32M",
                      .help = "bytes that all threads collect together",
                      .min = 1,
                      .max = INT64_MAX},
    [OPTION_FENCES] = {.name = "fences",
                       .type = GA_OPTION_ENUM,
                       .fallback = "asymmetric",
                       .help = "asymmetric: by membarrier(2) where there is one; seq_cst: without",
                       .choices = fences},
};

const ga_backend ga_hazard_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "hazard",
    .help = "frees a block once no hazard pointer protects it",
    .places = GA_PLACE_BIT(GA_PLACE_HOST),
    .parent_rule = GA_PARENT_REQUIRED,
    .options = options,
    .option_count = OPTIONS,
    .open = hazard_open,
    .close = hazard_close,
    .alloc = hazard_alloc,
    .free = hazard_free,
    .owns = hazard_owns,
    .usable_size = hazard_usable_size,
    .alloc_zeroed = hazard_alloc_zeroed,
    .alloc_aligned = hazard_alloc_aligned,
    .realloc = hazard_realloc,
    .grow = hazard_grow,
    .trim = hazard_trim,
    .retire = hazard_free,
    .stats = hazard_stats,
    .domain = hazard_domain,
};
