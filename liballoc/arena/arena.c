/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a list of chunks and a list of the ranges that contain them, both by address
 * INVARIANT  chunks follow each other from the base on without gaps. A failed call leaves them as
 *            they were. The arena holds nothing that is not in the lists.
 * ORDER      AA1/AA2 publish the backed bytes, AA3/AA4 the reserved bytes
 * PROGRESS   a lock per arena, held during driver calls; sizes are read without it
 */
#include "sharing.h"

#include "../platform/libc.h"

#include <gpualloc/backend.h>

#include <time.h>

typedef unsigned long long ull; /* the type of %llu */

static const uint64_t RESERVE_BYTES_DEFAULT = (uint64_t)1 << 40;
/* The thread sanitizer leaves a program little more than 1 TiB of addresses, and ends it if the
 * kernel maps memory at others. */
static const uint64_t RESERVE_BYTES_SANITIZED = (uint64_t)1 << 34;
static const uint64_t RESERVE_BYTES_MIN = (uint64_t)1 << 30;
static const uint64_t CHUNK_BYTES_MAX_DEFAULT = (uint64_t)1 << 30;
/* Growths of this size and above are compared with the machine's memory first. */
static const uint64_t MACHINE_CHECK_BYTES = (uint64_t)1 << 30;
static const uint64_t SIZES_END = (uint64_t)1 << 56; /* more addresses than any machine has */

ga_status ga_arena_prefix_error(ga_status status)
{
    return status == GA_OK ? GA_OK : ga_fail(status, "arena: %s", ga_error_text());
}

static uint64_t round_up(uint64_t size, uint64_t granule)
{
    return (size + granule - 1) / granule * granule;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- opening ----------------------------------------------------------------------------- */

static ga_status check_sizes(const ga_arena_options *o)
{
    const struct {
        const char *name;
        uint64_t value;
    } sizes[] = {{"reserve", o->reserve},
                 {"limit", o->limit},
                 {"chunk", o->chunk},
                 {"chunk_max", o->chunk_max}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].value >= SIZES_END) {
            return ga_fail(GA_ERR_ARGUMENT, "arena: %s: expected less than 2^56 bytes, got %llu",
                           sizes[i].name, (ull)sizes[i].value);
        }
    }
    if (o->chunk_max && o->chunk > o->chunk_max) {
        return ga_fail(GA_ERR_ARGUMENT, "arena: chunk: %llu bytes are above chunk_max, %llu",
                       (ull)o->chunk, (ull)o->chunk_max);
    }
    if (o->limit && o->chunk > o->limit) {
        return ga_fail(GA_ERR_ARGUMENT, "arena: chunk: %llu bytes are above the limit, %llu",
                       (ull)o->chunk, (ull)o->limit);
    }
    return GA_OK;
}

static ga_status set_sizes(ga_arena *arena, const ga_arena_options *o)
{
    uint64_t granule = arena->space.granule;
    if (o->limit && o->limit < granule) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "arena: limit: %llu bytes are below the smallest chunk, %llu", (ull)o->limit,
                       (ull)granule);
    }
    arena->limit = o->limit ? o->limit : UINT64_MAX;
    arena->chunk_min = round_up(most(o->chunk, 1), granule);
    arena->chunk_max = most(
        round_up(o->chunk_max ? o->chunk_max : CHUNK_BYTES_MAX_DEFAULT, granule), arena->chunk_min);
    return GA_OK;
}

/* Not NULL in a program that has the thread sanitizer. */
extern void __tsan_init(void) __attribute__((weak));

/* An explicit size is reserved in full or not at all. The default size may be halved. */
static ga_status reserve(ga_arena *arena, const ga_arena_options *o)
{
    uint64_t explicit_size = o->reserve ? o->reserve : o->limit;
    uint64_t fallback = __tsan_init ? RESERVE_BYTES_SANITIZED : RESERVE_BYTES_DEFAULT;
    uint64_t size = round_up(explicit_size ? explicit_size : fallback, arena->space.granule);
    ga_status status = ga_space_reserve(&arena->space, size, 0, &arena->base);
    while (status != GA_OK && !explicit_size && size > RESERVE_BYTES_MIN) {
        size /= 2;
        status = ga_space_reserve(&arena->space, size, 0, &arena->base);
    }
    if (status == GA_OK) {
        arena->ranges[0] = (ga_arena_range){0, size};
        arena->range_count = 1;
        arena->reserved = size;
    }
    return ga_arena_prefix_error(status);
}

static ga_status open_space(ga_arena *arena, const ga_arena_options *o, bool guest)
{
    if (o->place == GA_PLACE_HOST && o->flags & GA_ARENA_SHARE_FD) {
        return ga_space_open_files(&arena->space, o);
    }
    return guest ? ga_space_open_guest(&arena->space, o->device) : ga_space_open(&arena->space, o);
}

static ga_status init_arena(ga_arena *arena, const ga_arena_options *o, bool guest)
{
    ga_status status = ga_arena_prefix_error(open_space(arena, o, guest));
    if (status == GA_OK) {
        status = set_sizes(arena, o);
    }
    if (status == GA_OK) {
        arena->ranges = ga_libc.calloc(1, sizeof *arena->ranges);
        status = arena->ranges ? GA_OK : ga_fail(GA_ERR_MEMORY, "arena: no memory for a range");
    }
    return status == GA_OK ? reserve(arena, o) : status;
}

static void free_record(ga_arena *arena)
{
    pthread_mutex_destroy(&arena->lock);
    ga_libc.free(arena->ranges);
    ga_libc.free(arena->chunks);
    ga_libc.free(arena);
}

static ga_status check_arguments(ga_arena **out, const ga_arena_options *options)
{
    if (!out || !options) {
        return ga_fail(GA_ERR_ARGUMENT, "arena: expected options and a place for the arena, got "
                                        "NULL");
    }
    if (options->options_size < sizeof *options) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "arena: options_size: expected sizeof(ga_arena_options), %zu, got %u",
                       sizeof *options, options->options_size);
    }
    return check_sizes(options);
}

static ga_status open_arena(ga_arena **out, const ga_arena_options *options, bool guest)
{
    ga_arena *arena = ga_libc.calloc(1, sizeof *arena);
    if (!arena) {
        return ga_fail(GA_ERR_MEMORY, "arena: no memory for an arena");
    }
    pthread_mutex_init(&arena->lock, NULL);
    ga_status status = init_arena(arena, options, guest);
    if (status != GA_OK) {
        free_record(arena);
        return status;
    }
    *out = arena;
    return GA_OK;
}

ga_status ga_arena_open(ga_arena **out, const ga_arena_options *options)
{
    if (out) {
        *out = NULL;
    }
    ga_status status = check_arguments(out, options);
    return status == GA_OK ? open_arena(out, options, false) : status;
}

ga_status ga_arena_open_guest(ga_arena **out, const ga_arena_options *options, bool read_only)
{
    ga_status status = open_arena(out, options, true);
    if (status == GA_OK && read_only) {
        ga_space_make_read_only(&(*out)->space);
    }
    return status;
}

/* False if the context is gone or belongs to another process: then there is nothing to release. */
static bool has_memory(const ga_arena *arena)
{
    return ga_arena_on_host(arena) || ga_cuda_has_context(arena->space.device);
}

void ga_arena_close(ga_arena *arena)
{
    if (!arena) {
        return;
    }
    if (arena->sharing) {
        ga_arena_unpublish(arena);
    }
    if (has_memory(arena)) {
        ga_arena_discard(arena);
    }
    ga_arena_end_sharing(arena); /* the opening counts until its memory is unmapped */
    free_record(arena);
}

/* ---- growing and shrinking --------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t ga_arena_max(const ga_arena *arena, uint64_t size)
{
    uint64_t backed = ga_arena_size(arena);
    uint64_t all;
    if (size < backed || size - backed < MACHINE_CHECK_BYTES ||
        ga_space_memory(&arena->space, &all) != GA_OK) {
        return UINT64_MAX;
    }
    /* Imported chunks may be another device's memory. */
    return ga_arena_on_host(arena) ? all : all + backed;
}

ga_status ga_arena_check_max(const ga_arena *arena, uint64_t size)
{
    uint64_t all = ga_arena_max(arena, size);
    if (size <= all) {
        return GA_OK;
    }
    return ga_arena_on_host(arena)
               ? ga_fail(GA_ERR_MEMORY,
                         "arena: %llu bytes: expected at most %llu, this machine's memory and swap",
                         (ull)size, (ull)all)
               : ga_fail(GA_ERR_MEMORY,
                         "arena: %llu bytes: expected at most %llu, by the memory of device %d",
                         (ull)size, (ull)all, arena->space.device);
}

static ga_status check_room(const ga_arena *arena, uint64_t size)
{
    if (size > arena->reserved) {
        return ga_fail(GA_ERR_CANNOT_GROW, "arena: %llu bytes are above the %llu that are reserved",
                       (ull)size, (ull)arena->reserved);
    }
    if (round_up(size, arena->space.granule) > arena->limit) {
        return ga_fail(GA_ERR_MEMORY,
                       "arena: %llu bytes, in whole chunks of %llu, are above the limit of %llu",
                       (ull)size, (ull)arena->space.granule, (ull)arena->limit);
    }
    return ga_arena_check_max(arena, size);
}

/* End of a growth that looks ahead: double the arena, within the chunk sizes that the options
 * set. */
static uint64_t ahead_end(const ga_arena *arena, uint64_t end)
{
    uint64_t granule = arena->space.granule;
    uint64_t backed = ga_arena_end(arena);
    uint64_t more = least(most(backed, arena->chunk_min), arena->chunk_max);
    uint64_t limit = arena->limit / granule * granule;
    uint64_t desired =
        least(most(end, round_up(backed + more, granule)), least(arena->reserved, limit));
    return least(desired, most(end, ga_arena_max(arena, desired) / granule * granule));
}

static ga_status grow_to(ga_arena *arena, uint64_t end)
{
    uint64_t end_ahead = arena->space.flags & GA_ARENA_EXACT ? end : ahead_end(arena, end);
    ga_status status = ga_arena_back(arena, end_ahead);
    if (status == GA_ERR_MEMORY && end_ahead > end) {
        status = ga_arena_back(arena, end);
    }
    ga_arena_set_backed(arena);
    return ga_arena_prefix_error(status);
}

static ga_status grow(ga_arena *arena, uint64_t size)
{
    if (size <= arena->backed) {
        return GA_OK;
    }
    uint64_t start = now_ns();
    ga_status status = ga_arena_check_own(arena);
    if (status == GA_OK) {
        status = check_room(arena, size);
    }
    if (status == GA_OK) {
        status = grow_to(arena, round_up(size, arena->space.granule));
    }
    if (status == GA_OK) {
        arena->growths++;
        ga_latency_add(&arena->growing, now_ns() - start);
    }
    return status;
}

/* The least end that can stay backed: that of the chunk with byte `size` - 1. */
static uint64_t kept_bytes(const ga_arena *arena, uint64_t size)
{
    if (ga_arena_joins_chunks(arena)) {
        return round_up(size, arena->space.granule);
    }
    for (size_t i = 0; i < arena->chunk_count; i++) {
        if (arena->chunks[i].start >= size) {
            return arena->chunks[i].start;
        }
    }
    return ga_arena_end(arena);
}

static ga_status shrink(ga_arena *arena, uint64_t size)
{
    uint64_t end = ga_arena_end(arena);
    if (size >= end || kept_bytes(arena, size) == end) {
        return GA_OK;
    }
    ga_status status = ga_arena_check_alone(arena);
    if (status != GA_OK) {
        return status;
    }
    status = ga_arena_cut(arena, kept_bytes(arena, size));
    arena->shrinks += status == GA_OK;
    ga_arena_set_backed(arena);
    return ga_arena_prefix_error(status);
}

ga_status ga_arena_missing(void)
{
    return ga_fail(GA_ERR_ARGUMENT, "arena: expected an arena, got NULL");
}

ga_status ga_arena_grow(ga_arena *arena, uint64_t size)
{
    if (!arena) {
        return ga_arena_missing();
    }
    pthread_mutex_lock(&arena->lock);
    ga_status status = grow(arena, size);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

ga_status ga_arena_shrink(ga_arena *arena, uint64_t size)
{
    if (!arena) {
        return ga_arena_missing();
    }
    pthread_mutex_lock(&arena->lock);
    ga_status status = shrink(arena, size);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

/* ---- queries ----------------------------------------------------------------------------- */

void *ga_arena_base(const ga_arena *arena)
{
    return arena ? (void *)arena->base : NULL;
}

uint64_t ga_arena_size(const ga_arena *arena)
{
    /* AA2: acquire. Pairs with AA1 (state.h). */
    return arena ? __atomic_load_n(&arena->backed,
                                   GA_PLANTED_ORDER(arena_backed_relaxed, __ATOMIC_ACQUIRE))
                 : 0;
}

uint64_t ga_arena_reserved(const ga_arena *arena)
{
    /* AA4: acquire. Pairs with AA3 (ranges.c). */
    return arena ? __atomic_load_n(&arena->reserved,
                                   GA_PLANTED_ORDER(arena_reserved_relaxed, __ATOMIC_ACQUIRE))
                 : 0;
}

static void read_stats(const ga_arena *arena, ga_arena_stats *out)
{
    const ga_latency *growing = &arena->growing;
    *out = (ga_arena_stats){
        .reserved = arena->reserved,
        .backed = arena->backed,
        .peak_backed = arena->peak,
        .granule = arena->space.granule,
        .chunks = arena->chunk_count,
        .growths = arena->growths,
        .shrinks = arena->shrinks,
        .moves = arena->moves,
        .grow_ns_p50 = ga_latency_quantile(growing, 500),
        .grow_ns_p99 = ga_latency_quantile(growing, 990),
        .grow_ns_p999 = ga_latency_quantile(growing, 999),
        .grow_ns_max = growing->max,
        .grow_ns_sum = growing->sum,
    };
}

void ga_arena_get_stats(ga_arena *arena, ga_arena_stats *out)
{
    if (!arena) {
        *out = (ga_arena_stats){0};
        return;
    }
    pthread_mutex_lock(&arena->lock);
    read_stats(arena, out);
    pthread_mutex_unlock(&arena->lock);
}
