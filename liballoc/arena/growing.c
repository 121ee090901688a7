/* SPDX-License-Identifier: MIT
 *
 * Arenas backed in step, by the host or the pager.
 */
#include "growing.h"

#include "../platform/libc.h"
#include "../platform/log.h"
#include "growth_probe.h"
#include "pager.h"

#include <gpualloc/arena.h>
#include <inttypes.h>

/* Bytes of a chunk, and of what is backed ahead at a time: one large chunk costs half of what four
 * cost, and nobody waits long for it. */
static const uint64_t CHUNK_MOST = UINT64_C(4) << 30;

/* Where less than as much again is wanted ahead, no less than this. */
static const uint64_t AHEAD_LEAST = UINT64_C(64) << 20;

typedef struct growing_own {
    ga_arena *arena[GA_GROWING_PARTS];
    uint64_t step_bytes[GA_GROWING_PARTS];
    uint32_t most; /* steps */
    uint32_t ahead;
    uint64_t limit;
    uint32_t steps; /* backed; the pager's while there is one, but see ga_growing_reach() */
    ga_pager_client *client;
} growing_own;

static uint64_t bytes_a_step(const growing_own *own)
{
    return own->step_bytes[0] + own->step_bytes[1];
}

/* Steps that limit and reservation have room for. */
static uint32_t most_steps(const growing_own *own)
{
    uint64_t most = own->limit ? own->limit / bytes_a_step(own) : own->most;
    return most < own->most ? (uint32_t)most : own->most;
}

/* Back all ranges up to that many steps. What one of them got and another did not stays there for
 * the next time. */
static ga_status back_to(growing_own *own, uint32_t steps)
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

/* As much again as there is, or the part of it that the opener wants, but no more at once than is
 * backed in a moment. */
static uint32_t ahead_of(const growing_own *own, uint32_t wanted)
{
    uint64_t piece = CHUNK_MOST / bytes_a_step(own);
    uint64_t more = own->steps;
    if (own->ahead) {
        uint64_t least = AHEAD_LEAST / bytes_a_step(own);
        more = more / own->ahead > least ? more / own->ahead : least;
    }
    more = more < piece ? more : piece;
    uint64_t ahead = own->steps + more;
    return ahead < wanted ? wanted : (uint32_t)(ahead < UINT32_MAX ? ahead : UINT32_MAX);
}

/* As far towards `steps` as memory goes. */
static void back_towards(growing_own *own, uint32_t steps)
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

static ga_growth_reason back(void *context, uint32_t wanted, uint32_t *backed)
{
    growing_own *own = context;
    uint32_t most = most_steps(own);
    uint32_t ahead = ahead_of(own, wanted);
    ahead = ahead < most ? ahead : most;
    if (ahead > own->steps && back_to(own, ahead) != GA_OK) {
        back_towards(own, wanted < most ? wanted : most);
    }
    *backed = own->steps;
    return own->steps >= wanted ? GA_GROWTH_GRANTED
           : wanted > most      ? GA_GROWTH_LIMIT
                                : GA_GROWTH_MEMORY;
}

/* ---- opening ------------------------------------------------------------------------------- */

static ga_status check(const ga_growing *growing, uint64_t limit)
{
    uint64_t step = growing->step_bytes[0] + growing->step_bytes[1];
    if (!growing->step_bytes[0] || !growing->steps || growing->steps > growing->steps_most) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "vmm: %" PRIu32 " to %" PRIu32 " steps of %" PRIu64 " bytes; expected some",
                       growing->steps, growing->steps_most, growing->step_bytes[0]);
    }
    return limit && limit / step < growing->steps
               ? ga_fail(GA_ERR_MEMORY,
                         "vmm: limit: %" PRIu64 " bytes; expected room for %" PRIu32
                         " steps of %" PRIu64 " bytes to begin with",
                         limit, growing->steps, step)
               : GA_OK;
}

static ga_status open_part(growing_own *own, int device, int part, void **base)
{
    ga_arena_options options = {.options_size = sizeof options,
                                .flags = GA_ARENA_EXACT,
                                .place = GA_PLACE_DEVICE,
                                .device = device,
                                .reserve = own->step_bytes[part] * own->most,
                                .chunk_most = CHUNK_MOST};
    ga_status status = ga_arena_open(&own->arena[part], &options);
    *base = status == GA_OK ? ga_arena_base(own->arena[part]) : NULL;
    return status;
}

/* Without the device's help, or the pager's, it grows between launches only; and says so. */
static void start_pager(ga_growing *growing, growing_own *own, int device)
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
    growing_own *own = ga_libc.calloc(1, sizeof *own);
    if (!own) {
        return ga_fail(GA_ERR_MEMORY, "vmm: no memory for a record");
    }
    own->most = growing->steps_most;
    own->ahead = growing->ahead;
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
    growing_own *own = growing->own;
    ga_status status = GA_OK;
    if (own->client && steps <= growing->steps) {
        ga_pager_wake(own->client);
        return GA_OK;
    }
    if (steps > most_steps(own)) {
        return ga_fail(GA_ERR_MEMORY, "vmm: limit: %" PRIu32 " steps; expected at most %" PRIu32,
                       steps, most_steps(own));
    }
    if (own->client) { /* a wish that nobody waits for any more may still be answered */
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

static void log_times(const growing_own *own)
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
               stats.p999 / 1000, stats.most / 1000, stats.sum / 1000);
    }
}

void ga_growing_end(ga_growing *growing)
{
    growing_own *own = growing->own;
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
    const growing_own *own = growing->own;
    if (own->client) {
        ga_pager_add_times(own->client, out);
    }
}

uint64_t ga_growing_held(const ga_growing *growing)
{
    const growing_own *own = growing->own;
    uint64_t held = 0;
    for (int i = 0; i < GA_GROWING_PARTS && own->arena[i]; i++) {
        held += ga_arena_size(own->arena[i]);
    }
    return held;
}
