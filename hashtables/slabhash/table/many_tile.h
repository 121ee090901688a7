/* SPDX-License-Identifier: MIT
 *
 * Requests of a tile's lanes, one each, served together: the loads of several requests are in
 * flight at once, then each lane makes the one change that its request needs, all lanes at once.
 *
 *     ga_slabhash_serve_many
 *       ordered tables       serve_by_lanes -> serve_step -> step_by_sectors, until no lane has a
 *                            request: each lane probes the first sector of its own slab, then the
 *                            other three
 *       ordered tables that  peek: each lane probes one sector only;
 *       exceed L2, SEARCH    step_by_slabs for the lanes that need more
 *       other tables         step_by_slabs: the tile loads GA_SLABHASH_AT_ONCE whole slabs at once
 *     in each step, for each lane:
 *       decide               hit, miss, or on to the next slab (decide_next)
 *       apply_changes        one compare-and-swap for each lane that has decided on a change
 *     DEFERRED, NEEDS_SLAB   left to the caller: ga_slabhash_do() for each, from the beginning; or
 *                            ga_slabhash_append_all(), if only a slab is missing
 *
 * A caller with more requests than lanes uses serve_step() itself and gives a lane that is done its
 * next request between two steps (batch_kernel.cuh).
 *
 * HOW A SEARCH ENDS  The rules of list_tile.h, on the lane's knowledge of one slab (the probe):
 *
 *     FOUND      decide_hit: a slot has the key, and in map64 a value
 *     ABSENT     decide_hit: unique keys of map64, a slot has the key but the value is UNSET
 *     ABSENT     decide_miss: an empty slot ended the key's order (`ended`, ordered tables only)
 *     ABSENT     decide_miss: at a bucket's slab whose end bit of the key's class is still
 *                set, while buckets of the path remain; or at the end of the home's chain
 *     DEFERRED   tables that grow: the key is frozen, or the chain is SEALED. Multimaps of 64 bits:
 *                the first slot of the key has no pair. The caller's operation by the whole tile
 *                decides then
 *
 * INVARIANT  A lane makes the changes that ga_slabhash_put() and ga_slabhash_remove() would make,
 *            by the same compare-and-swap: it fills the path's first empty slot, after the whole
 *            path was probed, or changes the key's own slot.
 *
 * In kernels the tiles of a warp run in step: no collective operation below is in a branch that
 * only some of the tiles take.
 */
#ifndef GPUALLOC_SLABHASH_TABLE_MANY_TILE_H
#define GPUALLOC_SLABHASH_TABLE_MANY_TILE_H

#include "near_tile.h"

/* Slabs that a tile loads at once. */
#ifndef GA_SLABHASH_AT_ONCE
#define GA_SLABHASH_AT_ONCE 4u
#endif

/* State of a request, beside the results of ga_slabhash_result. */
enum {
    GA_SLABHASH_TO_FILL = 8, /* decided: fill an empty slot */
    GA_SLABHASH_TO_CHANGE,   /* decided: change the key's own slot */
    GA_SLABHASH_DEFERRED,    /* from here on the request is not served: DEFERRED to the caller */
    GA_SLABHASH_NEEDS_SLAB   /* the whole path is full: a slab must be linked behind `row` */
};

/* In place of the slot in `found`, tables that grow: the key is frozen, so the request is
 * deferred. */
#define GA_SLABHASH_IS_FROZEN (GA_NONE - 1u)

/* One request a lane. The `_high` fields are the upper halves of 64-bit keys and values. */
typedef struct ga_slabhash_requests {
    ga_lanes key, key_high, value, value_high; /* set by the caller, as is `op` */
    ga_lanes op;
    ga_lanes row, row_high; /* address of the current slab */
    ga_lanes home;          /* first bucket of the path */
    ga_lanes second_hash;   /* the key's class, and the stride of its path */
    ga_lanes buckets_left;  /* buckets of the path still to come; then GA_SLABHASH_IN_CHAIN */
    ga_lanes order_hash;    /* chooses where the slot order begins at home; 0 behind it */
    ga_lanes slot;
    ga_lanes result;
    ga_lanes was, was_high; /* value that the key had, else 0 */
    /* Searches of ordered tables that exceed the L2 cache. `no_peek`: load whole slabs at once;
     * the same in all tiles of a warp. `peek_missed`: mask of the lanes whose peek did not
     * decide. */
    bool no_peek;
    uint32_t peek_missed;
} ga_slabhash_requests;

/* True for the operations of a kind that are served here; all others are deferred. */
GA_SIMT bool ga_slabhash_is_served(uint32_t kind, uint32_t op)
{
    bool multi = GA_SLABHASH_IS_MULTI(kind);
    return op == GA_SLABHASH_SEARCH || (!multi && op == GA_SLABHASH_REPLACE) ||
           ((op == GA_SLABHASH_INSERT || op == GA_SLABHASH_DELETE) &&
            !(multi && GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64));
}

/* True if a request may insert or change a pair. `fixed` is the operation of all requests, or
 * GA_SLABHASH_OP_COUNT if they differ. */
GA_SIMT bool ga_slabhash_may_put(uint32_t fixed)
{
    return fixed >= GA_SLABHASH_OP_COUNT || ga_slabhash_puts(fixed);
}

/* True if a request may change the table. */
GA_SIMT bool ga_slabhash_may_change(uint32_t fixed)
{
    return fixed != GA_SLABHASH_SEARCH;
}

/* Lane `own` goes to the slab `row`. */
GA_SIMT void ga_slabhash_requests_move_to(ga_slabhash_requests *requests, uint32_t own,
                                          uint32_t *row)
{
    ga_lane_write(&requests->row, own, (uint32_t)(uintptr_t)row);
    ga_lane_write(&requests->row_high, own, (uint32_t)((uint64_t)(uintptr_t)row >> 32));
}

/* Lane `own` begins at its key's home, as ga_slabhash_walk_path() does. */
GA_SIMT void ga_slabhash_requests_begin(ga_slabhash_view table, bool ordered,
                                        ga_slabhash_requests *requests, uint32_t own, uint64_t hash)
{
    uint32_t home = (uint32_t)ga_bits_high(hash, table.buckets);
    uint32_t second_hash = ordered || table.path > 1u ? ga_slabhash_second_hash(hash) : 0;
    ga_slabhash_requests_move_to(requests, own, table.rows + (size_t)home * GA_SLABHASH_WORDS);
    ga_lane_write(&requests->home, own, home);
    ga_lane_write(&requests->second_hash, own, second_hash);
    ga_lane_write(&requests->buckets_left, own,
                  table.path > 1u ? table.path - 1u : GA_SLABHASH_IN_CHAIN);
    ga_lane_write(&requests->order_hash, own, ordered ? ga_slabhash_order_hash(second_hash) : 0);
}

GA_SIMT uint32_t *ga_slabhash_requests_row(const ga_slabhash_requests *requests, uint32_t own)
{
    return (uint32_t *)(uintptr_t)ga_slabhash_lane64(requests->row, requests->row_high, own);
}

/* The tile probes a loaded slab for the request of lane `lane`; for none if that is GA_NONE. */
GA_SIMT void ga_slabhash_probe_slab(uint32_t kind, uint32_t fixed, ga_tile tile, ga_row row,
                                    uint64_t key, uint32_t lane, ga_slabhash_probe *probe)
{
    uint32_t slot_mask = ga_slabhash_slot_mask(kind);
    bool wide = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64;
    uint32_t found = wide ? ga_row_first64(tile, row, slot_mask, key)
                          : ga_row_first(tile, row, slot_mask, (uint32_t)key);
    uint32_t empty = !ga_slabhash_may_put(fixed) ? GA_NONE
                     : wide ? ga_row_first64(tile, row, slot_mask, GA_SLABHASH_EMPTY)
                            : ga_row_first(tile, row, slot_mask, (uint32_t)GA_SLABHASH_EMPTY);
    uint32_t low = 0, high = 0;
    if (GA_SLABHASH_IS_GROWING(kind) && !wide && !GA_PLANTED(slabhash_lanes_miss_frozen_pair)) {
        uint32_t frozen = ga_row_first(tile, row, slot_mask, (uint32_t)key | GA_SLABHASH_FROZEN32);
        found = frozen != GA_NONE ? GA_SLABHASH_IS_FROZEN : found;
    }
    if (GA_SLABHASH_MODE(kind) != GA_SLABHASH_SET32) {
        low = ga_row_behind(tile, row, slot_mask, (uint32_t)key, found, wide ? 2u : 1u);
    }
    if (wide) {
        high = ga_row_behind(tile, row, slot_mask, (uint32_t)key, found, 3u);
    }
    uint32_t end_bits = ga_row_get(tile, row, GA_SLABHASH_END_BITS);
    uint32_t next = ga_row_get(tile, row, GA_SLABHASH_NEXT);
    GA_EACH_LANE(tile, lane != GA_NONE ? 1u << lane : 0, own)
    {
        ga_lane_write(&probe->found, own, found);
        ga_lane_write(&probe->empty, own, empty);
        ga_lane_write(&probe->value, own, low);
        ga_lane_write(&probe->value_high, own, high);
        ga_lane_write(&probe->end_bits, own, end_bits);
        ga_lane_write(&probe->next, own, next);
    }
}

/* ---- decide: what a lane does with a probed slab --------------------------------------------- */

/* The key has a slot in the slab: the result, or the change to make. */
GA_SIMT uint32_t ga_slabhash_decide_hit(uint32_t kind, uint32_t op, uint64_t value)
{
    bool is_set = ga_slabhash_is_set(kind, value);
    bool set32 = GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32;
    if (op == GA_SLABHASH_DELETE || (op == GA_SLABHASH_REPLACE && !set32)) {
        return is_set || op == GA_SLABHASH_REPLACE ? GA_SLABHASH_TO_CHANGE : GA_SLABHASH_ABSENT;
    }
    return is_set                     ? GA_SLABHASH_FOUND
           : op == GA_SLABHASH_SEARCH ? GA_SLABHASH_ABSENT /* this is its only slot */
                                      : GA_SLABHASH_TO_CHANGE;
}

/* The path ends without the key: ABSENT, but an insert needs a slab. Always false: the lane is
 * done. */
GA_SIMT bool ga_slabhash_decide_end(uint32_t kind, ga_slabhash_requests *requests, uint32_t own,
                                    bool puts)
{
    uint32_t needs_slab =
        GA_SLABHASH_IS_UNIQUE_FIXED(kind) ? GA_SLABHASH_NEEDS_SLAB : GA_SLABHASH_DEFERRED;
    ga_lane_write(&requests->result, own, puts ? needs_slab : (uint32_t)GA_SLABHASH_ABSENT);
    return false;
}

/* Goes to the path's next bucket, from the last one to the home's chain, or down the chain,
 * where `next` is the link of the slab. False if the path ends there. */
GA_SIMT bool ga_slabhash_decide_next(uint32_t kind, ga_slabhash_view table,
                                     ga_slabhash_requests *requests, uint32_t own, uint32_t *row,
                                     uint32_t next, bool puts)
{
    uint32_t left = ga_lane_read(requests->buckets_left, own);
    ga_lane_write(&requests->order_hash, own, 0);
    if (left && left != GA_SLABHASH_IN_CHAIN) {
        ga_lane_write(&requests->buckets_left, own, left - 1u);
        ga_slabhash_requests_move_to(
            requests, own,
            ga_slabhash_next_bucket(table, row, ga_lane_read(requests->second_hash, own)));
        return true;
    }
    if (left) {
        (void)ga_slabhash_lane_load_link(kind, row);
    } else {
        row = table.rows + (size_t)ga_lane_read(requests->home, own) * GA_SLABHASH_WORDS;
        next = ga_slabhash_lane_load_link(kind, row);
        ga_lane_write(&requests->buckets_left, own, GA_SLABHASH_IN_CHAIN);
    }
    if (next == GA_SLABHASH_NO_SLAB) {
        ga_slabhash_requests_move_to(requests, own, row);
        return ga_slabhash_decide_end(kind, requests, own, puts);
    }
    ga_slabhash_requests_move_to(requests, own, ga_slabhash_row(table, next));
    return true;
}

/* The key has no slot in the slab. True if the lane goes on. */
GA_SIMT bool ga_slabhash_decide_miss(uint32_t kind, ga_slabhash_view table,
                                     ga_slabhash_requests *requests, uint32_t own, uint32_t op,
                                     uint32_t *row, const ga_slabhash_probe *probe)
{
    uint32_t left = ga_lane_read(requests->buckets_left, own);
    uint32_t next = ga_lane_read(probe->next, own);
    uint32_t class_of = ga_lane_read(requests->second_hash, own) % 32u;
    bool in_chain = left == GA_SLABHASH_IN_CHAIN;
    bool ends_at_bucket = left && (ga_lane_read(probe->end_bits, own) >> class_of & 1u);
    bool sealed = GA_SLABHASH_IS_GROWING(kind) && next == GA_SLABHASH_SEALED;
    bool ends = ga_lane_read(probe->ended, own) ||
                (in_chain ? next == GA_SLABHASH_NO_SLAB || sealed : ends_at_bucket);
    bool puts = ga_slabhash_puts(op);
    if (sealed && !GA_PLANTED(slabhash_lanes_miss_sealed_end)) { /* the bucket has migrated */
        ga_lane_write(&requests->result, own, GA_SLABHASH_DEFERRED);
        return false;
    }
    if (puts && ga_lane_read(probe->empty, own) != GA_NONE) {
        bool first = ends || GA_SLABHASH_IS_MULTI(kind); /* no slot further on can hold the key */
        ga_lane_write(&requests->slot, own, ga_lane_read(probe->empty, own));
        ga_lane_write(&requests->result, own, first ? GA_SLABHASH_TO_FILL : GA_SLABHASH_DEFERRED);
        return false;
    }
    if (ends && (in_chain || !puts)) {
        return ga_slabhash_decide_end(kind, requests, own, puts);
    }
    if (ends) {
        ga_slabhash_lane_record_overflow(kind, row, 1u << class_of);
    }
    return ga_slabhash_decide_next(kind, table, requests, own, row, next, puts);
}

/* Decides on the probed slab. True if lane `own` goes on to another slab. */
GA_SIMT bool ga_slabhash_decide(uint32_t kind, uint32_t fixed, ga_slabhash_view table,
                                ga_slabhash_requests *requests, uint32_t own,
                                const ga_slabhash_probe *probe)
{
    bool multi = GA_SLABHASH_IS_MULTI(kind);
    uint32_t op = fixed < GA_SLABHASH_OP_COUNT ? fixed : ga_lane_read(requests->op, own);
    uint32_t found = ga_lane_read(probe->found, own);
    uint32_t *row = ga_slabhash_requests_row(requests, own);
    if (found == GA_NONE || (multi && ga_slabhash_puts(op))) { /* frozen pairs do not matter */
        return ga_slabhash_decide_miss(kind, table, requests, own, op, row, probe);
    }
    uint64_t value = ga_slabhash_lane64(probe->value, probe->value_high, own);
    bool wide = GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64;
    if (GA_SLABHASH_IS_GROWING(kind) &&
        (found == GA_SLABHASH_IS_FROZEN || (wide && ga_slabhash_is_frozen64(value)))) {
        ga_lane_write(&requests->result, own, GA_SLABHASH_DEFERRED);
        return false;
    }
    uint32_t result = multi && !ga_slabhash_is_set(kind, value)
                          ? (uint32_t)GA_SLABHASH_DEFERRED
                          : ga_slabhash_decide_hit(kind, op, value);
    if (result == GA_SLABHASH_FOUND) {
        ga_slabhash_acquire_slot(kind, row + found);
    }
    value = result == GA_SLABHASH_ABSENT ? 0 : value;
    ga_lane_write(&requests->slot, own, found);
    ga_lane_write(&requests->result, own, result);
    ga_lane_write(&requests->was, own, (uint32_t)value);
    ga_lane_write(&requests->was_high, own, (uint32_t)(value >> 32));
    return false;
}

/* ---- load whole slabs, by the tile ----------------------------------------------------------- */

/* Loads and probes the slabs of the next `n` (a constant) lanes of the queue. Returns the rest
 * of the queue. */
GA_SIMT uint32_t ga_slabhash_probe_some_slabs(uint32_t kind, uint32_t fixed, ga_tile tile,
                                              uint32_t n, uint32_t queue,
                                              const ga_slabhash_requests *requests,
                                              ga_slabhash_probe *probe)
{
    uint64_t spare = ga_lanes_pick(tile, queue, requests->row) |
                     (uint64_t)ga_lanes_pick(tile, queue, requests->row_high) << 32;
    uint32_t lanes[GA_SLABHASH_AT_ONCE];
    ga_row rows[GA_SLABHASH_AT_ONCE];
    GA_UNROLL
    for (uint32_t i = 0; i < n; i++) {
        lanes[i] = queue ? ga_bits_lowest(queue) : GA_NONE;
        queue &= queue - 1u;
        uint32_t lane = lanes[i] % ga_tile_size(tile);
        uint64_t row = ga_lanes_get(tile, requests->row, lane) |
                       (uint64_t)ga_lanes_get(tile, requests->row_high, lane) << 32;
        row = lanes[i] != GA_NONE ? row : spare; /* a slab that another tile loads costs nothing */
        rows[i] = ga_slabhash_load_slab(kind, tile, (const uint32_t *)(uintptr_t)row);
    }
    ga_tile_gate(tile); /* issues all loads before the first value is used */
    GA_UNROLL
    for (uint32_t i = 0; i < n; i++) {
        uint32_t lane = lanes[i] % ga_tile_size(tile);
        uint64_t key = ga_lanes_get(tile, requests->key, lane);
        if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64) {
            key |= (uint64_t)ga_lanes_get(tile, requests->key_high, lane) << 32;
        }
        ga_slabhash_probe_slab(kind, fixed, tile, rows[i], key, lanes[i], probe);
    }
    return queue;
}

/* One slab for each request of the mask, `n` at once. Returns the mask of the requests that go
 * on. */
GA_SIMT uint32_t ga_slabhash_step_by_slabs(uint32_t kind, uint32_t fixed, ga_slabhash_view table,
                                           ga_tile tile, uint32_t n, uint32_t asking,
                                           ga_slabhash_requests *requests)
{
    ga_slabhash_probe probe;
    ga_lanes again = ga_lanes_all(0);
    uint32_t queue = asking;
    probe.found = probe.empty = probe.value = probe.value_high = ga_lanes_all(0);
    probe.end_bits = probe.next = probe.ended = ga_lanes_all(0);
    do {
        queue = ga_slabhash_probe_some_slabs(kind, fixed, tile, n, queue, requests, &probe);
    } while (ga_lanes_any(tile, ga_lanes_all(queue)));
    ga_tile_sync(tile); /* one lane loaded a link, before each lane acquires: L2 */
    GA_EACH_LANE(tile, asking, own)
    {
        bool ongoing = ga_slabhash_decide(kind, fixed, table, requests, own, &probe);
        ga_lane_write(&again, own, ongoing ? 1u : 0u);
    }
    ga_tile_sync(tile); /* makes each lane's acquire one of all lanes */
    return ga_lanes_nonzero(tile, again);
}

/* ---- apply the decided changes --------------------------------------------------------------- */

/* The compare-and-swap that lane `own` has decided on. True if it succeeded. */
GA_SIMT bool ga_slabhash_apply_change(uint32_t kind, uint32_t op, ga_slabhash_requests *requests,
                                      uint32_t own, uint32_t *slot)
{
    bool fills = ga_lane_read(requests->result, own) == GA_SLABHASH_TO_FILL;
    bool erases = op == GA_SLABHASH_DELETE;
    uint32_t key = ga_lane_read(requests->key, own);
    uint64_t wide = ga_slabhash_lane64(requests->key, requests->key_high, own);
    uint64_t was = ga_slabhash_lane64(requests->was, requests->was_high, own);
    uint64_t value = ga_slabhash_lane64(requests->value, requests->value_high, own);
    uint32_t deleted = ga_slabhash_deletes_to_free(kind) ? GA_SLABHASH_FREE
                       : GA_SLABHASH_IS_MULTI(kind)      ? 0xffffffffu
                                                         : GA_SLABHASH_DELETED;
    uint64_t gone = GA_SLABHASH_IS_GROWING(kind) ? GA_SLABHASH_GONE : GA_SLABHASH_UNSET;
    switch (GA_SLABHASH_MODE(kind)) {
    case GA_SLABHASH_SET32:
        return ga_slabhash_lane_cas32(slot, fills ? 0xffffffffu : key, fills ? key : deleted);
    case GA_SLABHASH_MAP32:
        return ga_slabhash_lane_cas64(slot, fills ? GA_SLABHASH_EMPTY : ga_slabhash_pair(key, was),
                                      erases ? ga_slabhash_pair(deleted, UINT32_MAX)
                                             : ga_slabhash_pair(key, value));
    default:
        was = fills ? GA_SLABHASH_UNSET : was;
        value = erases ? gone : value;
        if (ga_slabhash_has_cas128(kind)) { /* also for changes, so that all lanes wait once */
            return ga_slabhash_lane_cas128(slot, fills ? GA_SLABHASH_EMPTY : wide, was, wide,
                                           value);
        }
        if (fills && !ga_slabhash_lane_cas64(slot, GA_SLABHASH_EMPTY, wide)) {
            return false;
        }
        ga_slabhash_test_yield();
        return ga_slabhash_lane_cas64(slot + 2, was, value);
    }
}

/* Each lane makes the change that it has decided on and completes its result. Returns the mask
 * of the lanes whose compare-and-swap failed; these are DEFERRED. */
GA_SIMT uint32_t ga_slabhash_apply_changes(uint32_t kind, uint32_t fixed, ga_tile tile,
                                           uint32_t asking, ga_slabhash_requests *requests)
{
    ga_lanes failed = ga_lanes_all(0);
    GA_EACH_LANE(tile, asking, own)
    {
        uint32_t result = ga_lane_read(requests->result, own);
        bool fills = result == GA_SLABHASH_TO_FILL;
        bool is_set =
            !fills &&
            ga_slabhash_is_set(kind, ga_slabhash_lane64(requests->was, requests->was_high, own));
        if (fills || result == GA_SLABHASH_TO_CHANGE) {
            uint32_t *row = ga_slabhash_requests_row(requests, own);
            uint32_t op = fixed < GA_SLABHASH_OP_COUNT ? fixed : ga_lane_read(requests->op, own);
            bool done = ga_slabhash_apply_change(kind, op, requests, own,
                                                 row + ga_lane_read(requests->slot, own));
            result = !done    ? (uint32_t)GA_SLABHASH_DEFERRED
                     : is_set ? (uint32_t)GA_SLABHASH_FOUND
                              : (uint32_t)GA_SLABHASH_ABSENT;
            ga_lane_write(&failed, own, done ? 0 : 1u);
        }
        if (result != GA_SLABHASH_FOUND) {
            ga_lane_write(&requests->was, own, 0);
            ga_lane_write(&requests->was_high, own, 0);
        }
        ga_lane_write(&requests->result, own, result);
    }
    ga_tile_sync(tile); /* orders a lane's change before later work for it */
    return ga_lanes_nonzero(tile, failed);
}

/* ---- ordered tables: each lane probes by itself ---------------------------------------------- */

/* Loads the sectors at which the slot orders of the mask's lanes begin. */
GA_SIMT ga_sectors ga_slabhash_load_first_sectors(uint32_t kind, ga_tile tile, uint32_t lanes,
                                                  const ga_slabhash_requests *requests)
{
    ga_lanes low = ga_lanes_all(0), high = ga_lanes_all(0);
    GA_EACH_LANE(tile, lanes, own)
    {
        const uint32_t *at = ga_slabhash_requests_row(requests, own) +
                             ga_slabhash_order_start(kind, ga_lane_read(requests->order_hash, own));
        ga_lane_write(&low, own, (uint32_t)(uintptr_t)at);
        ga_lane_write(&high, own, (uint32_t)((uint64_t)(uintptr_t)at >> 32));
    }
    return ga_slabhash_load_sectors(kind, tile, lanes, low, high);
}

/* One slab for each request of the mask, each lane its own: the first sector, and if that does
 * not decide the other three at once. Returns the mask of the requests that go on to the next
 * slab. In tables that exceed the L2 cache memory requests are the limit, and neighbours load
 * their first sectors together; in smaller ones instructions are the limit. */
GA_SIMT uint32_t ga_slabhash_step_by_sectors(uint32_t kind, uint32_t fixed, ga_slabhash_view table,
                                             ga_tile tile, uint32_t asking,
                                             ga_slabhash_requests *requests)
{
    ga_slabhash_probe probe;
    ga_sectors firsts;
    ga_lanes again = ga_lanes_all(0);
    probe.end_bits = probe.next = ga_lanes_all(0xffffffffu);
    GA_UNROLL
    for (uint32_t i = 0; i < 8u; i++) {
        firsts.word[i] = ga_lanes_all(0);
    }
    if (table.exceeds_l2) {
        firsts = ga_slabhash_load_first_sectors(kind, tile, asking, requests);
    }
    GA_EACH_LANE(tile, asking, own)
    {
        const uint32_t *row = ga_slabhash_requests_row(requests, own);
        uint64_t key = ga_slabhash_lane64(requests->key, requests->key_high, own);
        uint32_t start = ga_slabhash_order_start(kind, ga_lane_read(requests->order_hash, own));
        ga_sector first = table.exceeds_l2 ? ga_slabhash_lane_sector(&firsts, own)
                                           : ga_slabhash_load_sector(kind, row + start);
        if (!ga_slabhash_probe_sector(kind, first, start, key, own, &probe)) {
            ga_sector rest[3];
            ga_slabhash_load_other_sectors(kind, row, start, rest);
            ga_slabhash_probe_other_sectors(kind, rest, start, key, own, &probe);
        }
        ga_slabhash_set_ended(own, &probe);
        bool ongoing = ga_slabhash_decide(kind, fixed, table, requests, own, &probe);
        ga_lane_write(&again, own, ongoing ? 1u : 0u);
    }
    ga_tile_sync(tile); /* makes each lane's acquire one of all lanes */
    return ga_lanes_nonzero(tile, again);
}

/* One slab for each request of the mask, and the changes decided on. Returns the mask of those
 * that go on to the next slab. `failed`: lanes whose compare-and-swap failed because another
 * tile's succeeded; they probe the slab again. */
GA_SIMT uint32_t ga_slabhash_serve_step(uint32_t kind, uint32_t fixed, ga_slabhash_view table,
                                        ga_tile tile, uint32_t asking,
                                        ga_slabhash_requests *requests, uint32_t *failed)
{
    uint32_t ongoing = ga_slabhash_step_by_sectors(kind, fixed, table, tile, asking, requests);
    *failed = ga_slabhash_may_change(fixed)
                  ? ga_slabhash_apply_changes(kind, fixed, tile, asking & ~ongoing, requests)
                  : 0;
    return ongoing;
}

/* Steps until all lanes are done. In tables that exceed the L2 cache lanes that leave their home
 * are not done here but returned as a mask: a whole slab is one memory request of a tile, but
 * four of a lane. */
GA_SIMT uint32_t ga_slabhash_serve_by_lanes(uint32_t kind, uint32_t fixed, ga_slabhash_view table,
                                            ga_tile tile, uint32_t asking,
                                            ga_slabhash_requests *requests)
{
    uint32_t past_home = 0;
    while (ga_lanes_any(tile, ga_lanes_all(asking))) {
        uint32_t failed;
        uint32_t ongoing =
            ga_slabhash_serve_step(kind, fixed, table, tile, asking, requests, &failed);
        past_home |= table.exceeds_l2 ? ongoing : 0;
        asking = failed | (table.exceeds_l2 ? 0 : ongoing);
    }
    return past_home;
}

/* ---- searches in ordered tables that exceed the L2 cache ------------------------------------- */

/* True if the tile's requests are such searches. A slab is one memory request of a tile and four
 * of a lane, so a whole slab costs hardly more than a sector. */
GA_SIMT bool ga_slabhash_peeks(uint32_t kind, uint32_t fixed, ga_slabhash_view table)
{
    return ga_slabhash_may_be_ordered(kind) && !ga_slabhash_may_change(fixed) && table.exceeds_l2 &&
           ga_slabhash_is_ordered(table);
}

/* Each request of the mask probes the first sector of its order. Returns the mask of those that
 * it did not decide; they probe the whole slab next. */
GA_SIMT uint32_t ga_slabhash_peek(uint32_t kind, uint32_t fixed, ga_slabhash_view table,
                                  ga_tile tile, uint32_t asking, ga_slabhash_requests *requests)
{
    ga_slabhash_probe probe;
    ga_lanes peek_missed = ga_lanes_all(0);
    probe.end_bits = probe.next = ga_lanes_all(0xffffffffu);
    ga_sectors firsts = ga_slabhash_load_first_sectors(kind, tile, asking, requests);
    GA_EACH_LANE(tile, asking, own)
    {
        uint64_t key = ga_slabhash_lane64(requests->key, requests->key_high, own);
        uint32_t start = ga_slabhash_order_start(kind, ga_lane_read(requests->order_hash, own));
        ga_sector first = ga_slabhash_lane_sector(&firsts, own);
        bool seen = ga_slabhash_probe_sector(kind, first, start, key, own, &probe);
        ga_slabhash_set_ended(own, &probe);
        bool ongoing = !seen || ga_slabhash_decide(kind, fixed, table, requests, own, &probe);
        ga_lane_write(&peek_missed, own, ongoing ? 1u : 0u);
    }
    requests->peek_missed = ga_lanes_nonzero(tile, peek_missed);
    return requests->peek_missed;
}

/* ---- the entry ------------------------------------------------------------------------------- */

/* Serves the lanes of the mask. Their operations are supported, keys and values are allowed, and
 * requests_begin() was called. Returns the mask of the deferred lanes; the others have their
 * result and `was`. */
GA_SIMT uint32_t ga_slabhash_serve_many(uint32_t kind, uint32_t fixed, ga_slabhash_view table,
                                        ga_tile tile, uint32_t asking,
                                        ga_slabhash_requests *requests)
{
    bool ordered = ga_slabhash_may_be_ordered(kind) && ga_slabhash_is_ordered(table);
    bool peeks = ga_slabhash_peeks(kind, fixed, table);
    ga_lanes later = ga_lanes_all(0);
    uint32_t ongoing = asking;
    uint32_t to_act = asking;
    if (peeks && !requests->no_peek) {
        ongoing = ga_slabhash_peek(kind, fixed, table, tile, ongoing, requests);
    } else if (ordered && !peeks) {
        ongoing = ga_slabhash_serve_by_lanes(kind, fixed, table, tile, ongoing, requests);
        to_act = ga_slabhash_may_change(fixed) ? ongoing : asking;
    } else if (ga_lanes_any(tile, ga_lanes_all(ongoing))) {
        ongoing = ga_slabhash_step_by_slabs(kind, fixed, table, tile, GA_SLABHASH_AT_ONCE, ongoing,
                                            requests);
    }
    while (ga_lanes_any(tile, ga_lanes_all(ongoing))) {
        ongoing = ga_slabhash_step_by_slabs(kind, fixed, table, tile, GA_SLABHASH_AT_ONCE / 2u,
                                            ongoing, requests);
    }
    (void)ga_slabhash_apply_changes(kind, fixed, tile, to_act, requests);
    GA_EACH_LANE(tile, asking, own)
    {
        ga_lane_write(&later, own,
                      ga_lane_read(requests->result, own) >= GA_SLABHASH_DEFERRED ? 1u : 0u);
    }
    return ga_lanes_nonzero(tile, later);
}

#endif
