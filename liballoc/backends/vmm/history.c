/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a ring of placements; those whose keys have the same hash form a chain, newest first
 * PROGRESS   under the heap's lock. While a program repeats itself the cursor advances by one for
 *            each request, so that the next placement is found with one comparison.
 */
#include "history.h"

#include "../../platform/libc.h"

enum {
    CHAIN_PROBES_MAX = 8 /* placements of one chain that are compared */
};

/* Sizes and addresses are multiples of powers of two. The first product spreads the bits of b, so
 * that a difference of addresses rarely makes up for one of sizes. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a ^ b * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static uint64_t *chain_of(const ga_vmm_history *history)
{
    return &history->chains[(history->key >> 20) % GA_VMM_HISTORY_LENGTH];
}

static bool matches_key(const ga_vmm_history *history, uint64_t at)
{
    const ga_vmm_placement *placement = ga_vmm_history_at(history, at);
    return placement && placement->key == history->key;
}

void ga_vmm_history_begin_request(ga_vmm_history *history, uint64_t size, uint64_t stream_key)
{
    history->key = mix(size, stream_key);
    history->cursor = matches_key(history, history->cursor) ? history->cursor : 0;
}

/* A chain also contains other keys with the same hash. */
uint64_t ga_vmm_history_find(const ga_vmm_history *history, uint64_t at)
{
    if (!history->placements) {
        return 0;
    }
    const ga_vmm_placement *placement = ga_vmm_history_at(history, at);
    at = placement ? placement->previous : *chain_of(history);
    for (int probes = CHAIN_PROBES_MAX; probes-- && (placement = ga_vmm_history_at(history, at));
         at = placement->previous) {
        if (placement->key == history->key) {
            return at;
        }
    }
    return 0;
}

bool ga_vmm_history_context_matches(const ga_vmm_history *history, uint64_t at)
{
    const ga_vmm_placement *one = ga_vmm_history_at(history, at - 1);
    const ga_vmm_placement *two = ga_vmm_history_at(history, at - 2);
    return one && two && one->key == history->recent_keys[0] && two->key == history->recent_keys[1];
}

static bool make_history(ga_vmm_history *history)
{
    if (!history->placements) {
        history->placements = ga_libc.calloc(GA_VMM_HISTORY_LENGTH, sizeof *history->placements);
        history->chains = ga_libc.calloc(GA_VMM_HISTORY_LENGTH, sizeof *history->chains);
    }
    if (!history->placements || !history->chains) {
        ga_vmm_history_clear(history);
    }
    return history->placements;
}

uint64_t ga_vmm_history_append(ga_vmm_history *history, uint64_t at, uintptr_t base, uint64_t size)
{
    if (!make_history(history)) {
        return 0;
    }
    uint64_t *chain = chain_of(history);
    uint64_t own = ++history->count;
    history->placements[own % GA_VMM_HISTORY_LENGTH] =
        (ga_vmm_placement){.key = history->key, .previous = *chain, .base = base, .size = size};
    *chain = own;
    history->cursor = at ? at + 1 : history->cursor ? history->cursor + 1 : 0;
    history->recent_keys[1] = history->recent_keys[0];
    history->recent_keys[0] = history->key;
    return own;
}

void ga_vmm_history_clear(ga_vmm_history *history)
{
    ga_libc.free(history->placements);
    ga_libc.free(history->chains);
    *history = (ga_vmm_history){0};
}
