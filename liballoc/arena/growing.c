/* SPDX-License-Identifier: MIT
 *
 * Arenas that are backed in equal steps, by the host or by the pager.
 */
#include "growing.h"

#include "state.h"

#include "../growth/growth_probe.h"
#include "../growth/pager.h"
#include "../platform/libc.h"
#include "../platform/log.h"

#include <gpualloc/arena.h>
#include <inttypes.h>

/* Most bytes of a chunk, and most bytes that are backed ahead at once: one large chunk takes half
 * the driver time of four, and kernels do not wait long for it. */
static const uint64_t CHUNK_BYTES_MAX = UINT64_C(4) << 30;

/* Least bytes to back ahead, if the opener limits the part backed ahead. */
static const uint64_t AHEAD_BYTES_MIN = UINT64_C(64) << 20;

typedef struct growing_state {
    ga_arena *arena[GA_GROWING_PARTS];
    uint64_t step_bytes[GA_GROWING_PARTS];
    uint32_t max;           /* most steps */
    uint32_t ahead_divisor; /* 1/ahead_divisor of the steps are backed ahead; 0: as many again */
    uint64_t limit;
    /* Backed; written by the pager while there is one, except in ga_growing_reach(). */
    uint32_t steps;
    ga_pager_client *client;
} growing_state;

static uint64_t bytes_per_step(const growing_state *own)
{
    return own->step_bytes[0] + own->step_bytes[1];
}

/* Steps within the limit and the reservation. */
static uint32_t steps_max(const growing_state *own)
{
    uint64_t max = own->limit ? own->limit / bytes_per_step(own) : own->max;
    return max < own->max ? (uint32_t)max : own->max;
}

/* Back all ranges up to that many steps. If one of them fails, the others keep the memory for the
 * next call. */
static ga_status back_to(growing_state *own, uint32_t steps)
{
    ga_status status = GA_OK;
    for (int i = 0; i < GA_GROWING_PARTS && own->arena[i] && status == GA_OK; i++) {
        status = ga_arena_grow(own->arena[i], own->step_bytes[i] * steps);
    }
    if (status == GA_OK && steps > own->steps) {
        own->steps = steps;
    }
    return status;
}

/* ---- the pager's side ---------------------------------------------------------------------- */

/* Steps to back for a request: double the memory, or add the part that the opener asked for, but at
 * most CHUNK_BYTES_MAX at once. */
static uint32_t steps_ahead(const growing_state *own, uint32_t requested)
{
    uint64_t piece = CHUNK_BYTES_MAX / bytes_per_step(own);
    uint64_t more = own->steps;
    if (own->ahead_divisor) {
        uint64_t least = AHEAD_BYTES_MIN / bytes_per_step(own);
        more = more / own->ahead_divisor > least ? more / own->ahead_divisor : least;
    }
    more = more < piece ? more : piece;
    uint64_t ahead = own->steps + more;
    return ahead < requested ? requested : (uint32_t)(ahead < UINT32_MAX ? ahead : UINT32_MAX);
}

/* Back as many steps up to `steps` as memory allows. */
static void back_towards(growing_state *own, uint32_t steps)
{
    uint32_t more = steps - own->steps;
    while (more) {
        if (back_to(own, own->steps + more) != GA_OK) {
            more /= 2;
        } else if (more > steps - own->steps) {
            more = steps - own->steps;
        }
    }
}

static ga_growth_reason back(void *context, uint32_t requested, uint32_t *backed)
{
    growing_state *own = context;
    uint32_t max = steps_max(own);
    uint32_t ahead = steps_ahead(own, requested);
    ahead = ahead < max ? ahead : max;
    if (ahead > own->steps && back_to(own, ahead) != GA_OK) {
        back_towards(own, requested < max ? requested : max);
    }
    *backed = own->steps;
    return own->steps >= requested ? GA_GROWTH_GRANTED
           : requested > max       ? GA_GROWTH_LIMIT
                                   : GA_GROWTH_MEMORY;
}

/* ---- opening ------------------------------------------------------------------------------- */

static ga_status check(const ga_growing *growing, uint64_t limit)
{
    uint64_t step = growing->step_bytes[0] + growing->step_bytes[1];
    if (!growing->step_bytes[0] || !growing->steps || growing->steps > growing->steps_max) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "vmm: %" PRIu32 " to %" PRIu32 " steps of %" PRIu64 " bytes; expected some",
                       growing->steps, growing->steps_max, growing->step_bytes[0]);
    }
    return limit && limit / step < growing->steps
               ? ga_fail(GA_ERR_MEMORY,
                         "vmm: limit: %" PRIu64 " bytes; expected room for %" PRIu32
                         " steps of %" PRIu64 " bytes to begin with",
                         limit, growing->steps, step)
               : GA_OK;
}

static ga_status open_part(growing_state *own, int device, int part, void **base)
{
    ga_arena_options options = {.options_size = sizeof options,
                                .flags = GA_ARENA_EXACT,
                                .place = GA_PLACE_DEVICE,
                                .device = device,
                                .reserve = own->step_bytes[part] * own->max,
                                .chunk_max = CHUNK_BYTES_MAX};
    ga_status status = ga_arena_open(&own->arena[part], &options);
    *base = status == GA_OK ? ga_arena_base(own->arena[part]) : NULL;
    return status;
}

/* If the device or the pager does not support growth, memory grows between launches only, and the
 * log says so. */
static void start_pager(ga_growing *growing, growing_state *own, int device)
{
    ga_status status = ga_growth_try(device);
    if (status == GA_OK) {
        status = ga_pager_add(&own->client, device, own->steps, back, own);
    }
    if (status == GA_OK) {
        growing->mailbox = ga_pager_mailbox(own->client);
    } else {
        ga_log(GA_LOG_WARN, "vmm: device %d: memory grows between launches only: %s", device,
               ga_error_text());
    }
}

ga_status ga_growing_start(ga_growing *growing, int device, uint64_t limit)
{
    ga_status status = check(growing, limit);
    if (status != GA_OK) {
        return status;
    }
    growing_state *own = ga_libc.calloc(1, sizeof *own);
    if (!own) {
        return ga_fail(GA_ERR_MEMORY, "vmm: no memory for a record");
    }
    own->max = growing->steps_max;
    own->ahead_divisor = growing->ahead;
    own->limit = limit;
    growing->own = own;
    growing->mailbox = NULL;
    for (int i = 0; i < GA_GROWING_PARTS && status == GA_OK && growing->step_bytes[i]; i++) {
        own->step_bytes[i] = growing->step_bytes[i];
        status = open_part(own, device, i, &growing->base[i]);
    }
    if (status == GA_OK) {
        status = back_to(own, growing->steps);
    }
    if (status != GA_OK) {
        ga_growing_end(growing);
        return status;
    }
    start_pager(growing, own, device);
    return GA_OK;
}

ga_status ga_growing_reach(ga_growing *growing, uint32_t steps)
{
    growing_state *own = growing->own;
    ga_status status = GA_OK;
    if (own->client && steps <= growing->steps) {
        ga_pager_wake(own->client);
        return GA_OK;
    }
    if (steps > steps_max(own)) {
        return ga_fail(GA_ERR_MEMORY, "vmm: limit: %" PRIu32 " steps; expected at most %" PRIu32,
                       steps, steps_max(own));
    }
    if (own->client) { /* a request whose tile has ended may still be answered */
        ga_pager_restart(own->client, growing->steps);
    }
    if (steps > own->steps) {
        status = back_to(own, steps);
    }
    growing->steps = own->steps;
    if (own->client) {
        ga_pager_restart(own->client, own->steps);
    }
    return status;
}

static void log_times(const growing_state *own)
{
    ga_pager_stats stats = {0};
    if (own->client) {
        ga_pager_get_stats(own->client, &stats);
    }
    if (stats.granted) {
        ga_log(GA_LOG_INFO,
               "vmm: kernels grew it %" PRIu64 " times, %" PRIu64 " refused, to %" PRIu32
               " steps; us: p50 %" PRIu64 ", p99 %" PRIu64 ", p99.9 %" PRIu64 ", longest %" PRIu64
               ", together %" PRIu64,
               stats.granted, stats.refused, own->steps, stats.p50 / 1000, stats.p99 / 1000,
               stats.p999 / 1000, stats.max / 1000, stats.sum / 1000);
    }
}

void ga_growing_end(ga_growing *growing)
{
    growing_state *own = growing->own;
    log_times(own);
    ga_pager_remove(own->client);
    for (int i = 0; i < GA_GROWING_PARTS; i++) {
        ga_arena_close(own->arena[i]);
    }
    ga_libc.free(own);
    growing->own = NULL;
}

void ga_growing_add_times(const ga_growing *growing, ga_latency *out)
{
    const growing_state *own = growing->own;
    if (own->client) {
        ga_pager_add_times(own->client, out);
    }
}

ga_status ga_growing_add_peer(const ga_growing *growing, int peer)
{
    const growing_state *own = growing->own;
    ga_status status = GA_OK;
    for (int i = 0; i < GA_GROWING_PARTS && own->arena[i] && status == GA_OK; i++) {
        status = ga_arena_add_peer(own->arena[i], peer);
    }
    return status;
}

uint64_t ga_growing_held(const ga_growing *growing)
{
    const growing_state *own = growing->own;
    uint64_t held = 0;
    for (int i = 0; i < GA_GROWING_PARTS && own->arena[i]; i++) {
        held += ga_arena_size(own->arena[i]);
    }
    return held;
}
