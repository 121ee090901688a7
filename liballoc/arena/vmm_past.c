/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a ring of requests; those whose keys have one hash are a chain, the last one first
 * PROGRESS   under the heap's lock. While a program repeats itself the cursor moves along, and what
 *            is next costs one look.
 */
#include "vmm_past.h"

#include "../platform/libc.h"

enum {
    LOOKS = 8 /* at others of the same hash */
};

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ b >> 32 ^ b << 17) * UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

static uint64_t *chain_of(const ga_vmm_past *past)
{
    return &past->last[(past->key >> 20) % GA_VMM_PAST];
}

static bool is_like(const ga_vmm_past *past, uint64_t at)
{
    const ga_vmm_event *event = ga_vmm_past_at(past, at);
    return event && event->key == past->key;
}

void ga_vmm_past_ask(ga_vmm_past *past, uint64_t size, uint64_t what)
{
    past->key = mix(size, what);
    past->cursor = is_like(past, past->cursor) ? past->cursor : 0;
}

/* Others may have the same hash. */
uint64_t ga_vmm_past_look(const ga_vmm_past *past, uint64_t at)
{
    if (!past->events) {
        return 0;
    }
    const ga_vmm_event *event = ga_vmm_past_at(past, at);
    at = event ? event->same : *chain_of(past);
    for (int looks = LOOKS; looks-- && (event = ga_vmm_past_at(past, at)); at = event->same) {
        if (event->key == past->key) {
            return at;
        }
    }
    return 0;
}

bool ga_vmm_past_follows(const ga_vmm_past *past, uint64_t at)
{
    const ga_vmm_event *one = ga_vmm_past_at(past, at - 1);
    const ga_vmm_event *two = ga_vmm_past_at(past, at - 2);
    return one && two && one->key == past->keys[0] && two->key == past->keys[1];
}

static bool open_past(ga_vmm_past *past)
{
    if (!past->events) {
        past->events = ga_libc.calloc(GA_VMM_PAST, sizeof *past->events);
        past->last = ga_libc.calloc(GA_VMM_PAST, sizeof *past->last);
    }
    if (!past->events || !past->last) {
        ga_vmm_past_clear(past);
    }
    return past->events;
}

uint64_t ga_vmm_past_note(ga_vmm_past *past, uint64_t at, uintptr_t base, uint64_t size)
{
    if (!open_past(past)) {
        return 0;
    }
    uint64_t *chain = chain_of(past);
    uint64_t own = ++past->count;
    past->events[own % GA_VMM_PAST] =
        (ga_vmm_event){.key = past->key, .same = *chain, .base = base, .size = size};
    *chain = own;
    past->cursor = at ? at + 1 : past->cursor ? past->cursor + 1 : 0;
    past->keys[1] = past->keys[0];
    past->keys[0] = past->key;
    return own;
}

void ga_vmm_past_clear(ga_vmm_past *past)
{
    ga_libc.free(past->events);
    ga_libc.free(past->last);
    *past = (ga_vmm_past){0};
}
