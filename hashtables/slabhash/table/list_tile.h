/* SPDX-License-Identifier: MIT
 *
 * The slab list (slab-hash-2018, §III-A, §IV-C) over tiles and rows, for CPU and GPU: the probe
 * sequence of a key through slabs, and the operations that a whole tile does along it.
 *
 *     ga_slabhash_find     SEARCH      ga_slabhash_put         INSERT, REPLACE, APPLY
 *     ga_slabhash_remove   DELETE          put_existing        the key has a slot
 *     ga_slabhash_find_all, remove_all     fill, refill        the first vacant slot of the path
 *     ga_slabhash_append_all               append              no vacant slot: a new slab
 *                                              append_all: the same for many lanes at once
 *
 * STRUCTURE  A path begins at a bucket's slab, the key's home. With a path of K it goes on to the
 *            slabs of K - 1 other buckets, each time only if the slab's end bit of the key's class
 *            is cleared: some key of the class, of which there are 32, found the slab full. Then it
 *            goes to the chain of overflow slabs of the home. K = 1 is the paper's list.
 *
 *              home ----------> 2nd bucket ---> ... ---> Kth bucket
 *              | next   bit cleared      bit cleared      |
 *              v                                          |
 *              slab -> slab -> ...   <--------------------+
 *
 * HOW A SEARCH ENDS  A tile loads one slab of the path after the other. For each slab, in this
 * order:
 *
 *     FOUND    a slot has the key. set32, map32: that is enough. map64: and a value. An absent key
 *              of map64 keeps its slot, with the value UNSET (tables that grow: GONE). A multimap's
 *              search returns the first pair along the path. On the CPU the slot is loaded again
 *              (read_match), and this load decides.
 *     ABSENT   unique keys: a slot had the key, but no pair: the value of map64 is UNSET, or on the
 *              CPU the slot was deleted before it was loaded again. A multimap's search goes on.
 *     ABSENT   the slab is a bucket's, buckets of the path remain, and the slab's end bit of
 *              the key's class is still set: no key of the class was ever put further on.
 *     ABSENT   the slab is the last: it is the path's last bucket or a chained slab, and the next
 *              link of the chain is NO_SLAB.
 *     else     the search goes on to the next slab of the path (walk_next).
 *
 *     Before the first slab: REFUSED if the key is reserved or too wide (ga_slabhash_do).
 *
 *     Other searches decide by the same rules, a slab at a time:
 *       ops_search_fast (ops.h)          CPU, the home slab only; else ga_slabhash_find()
 *       decide_hit, decide_miss          lanes of a warp together (many_tile.h). In ordered tables
 *                                        a lane that searches by itself also ends at an empty slot:
 *                                        ABSENT (near_tile.h)
 *       decide_search                    batches of searches (search_tile.h)
 *       ga_slabhash_seek (grow_tile.h)   tables that grow. It chooses an array: the new one if the
 *                                        key's bucket there is OPEN, else the old one. It ends in
 *                                        that one. There a frozen slot of the key is FOUND, too
 *                                        (map64: ABSENT if its value is FROZEN_GONE), and the link
 *                                        SEALED ends a chain like NO_SLAB
 *       ga_slabhash_seek_from_snapshot   tables that grow in kernels (kernel_growth/). It chooses
 *                                        in this way by a snapshot, and starts again if the
 *                                        snapshot was too old
 *
 * INVARIANT  The path of a key is fixed and only grows longer; so is the order of its slots. A key
 *            is put into the first slot of its path that was seen empty, by a tile that has seen
 *            every slot of the path before, and the key in none of them. So with unique keys no two
 *            slots hold one key: docs/internals/slabhash.md has the argument. The end bit of
 *            the key's class is cleared before the key is put further on.
 *
 * ORDER      L1 and L2: a slab is initialised, empty but for its first pair, before any tile
 *            follows the link to it. End bits are relaxed: a search must find a key further on
 *            only if the key's insertion ended before the search began. The program has ordered the
 *            two calls then, and with them the cleared bit.
 *
 * PROGRESS   Lock-free: an attempt fails only because another tile's succeeded. Where a slab is
 *            needed and none is free, the result is FULL and nothing is changed.
 */
#ifndef GPUALLOC_SLABHASH_TABLE_LIST_TILE_H
#define GPUALLOC_SLABHASH_TABLE_LIST_TILE_H

#include "processor.h"
#include "slots.h"

/* Ways to combine values for APPLY. In kernels the caller's own function is a macro, defined
 * before this header is included; on the host it is a pointer in ga_slabhash_operation. */
#ifdef GA_SLABHASH_FUNCTION
#define GA_SLABHASH_HOWS (GA_SLABHASH_HOW_COUNT + 1)
#else
#define GA_SLABHASH_HOWS                   GA_SLABHASH_HOW_COUNT
#define GA_SLABHASH_FUNCTION(there, given) (given)
#endif

/* Fields of a view for tables that grow in kernels: in programs with such tables,
 * kernel_growth/hooks.cuh defines them before. */
#ifndef GA_SLABHASH_GROWTH_VIEW_FIELDS
#define GA_SLABHASH_GROWTH_VIEW_FIELDS
#endif

#define GA_SLABHASH_BEHIND_LINK 2u

/* A table as tiles see it, passed by value. A list is a table of one bucket. */
typedef struct ga_slabhash_view {
    uint32_t *rows;     /* the buckets' slabs, 32 words each */
    ga_slab_heap *heap; /* source of overflow slabs: units of 128 bytes */
    uint32_t buckets;
    uint32_t path;       /* K */
    uint32_t stride_max; /* largest distance of two consecutive buckets of a path: buckets /
                           * path */
    uint32_t kind;       /* for code that dispatches on it; algorithms take `kind` as a constant */
    uint64_t a, b;       /* of the hash: 8 a, and b, of ga_slabhash_seeded() */
    /* Points at nonzero: the table is ordered (near_tile.h), and no flush has moved a pair since
     * it was cleared. NULL: the table is never ordered. A plain word: only exclusive calls
     * change it. */
    const uint32_t *ordered;
    uint32_t exceeds_l2; /* not 0: the buckets exceed four times the L2 cache, so that memory
                          * requests are the limit; GA_SLABHASH_BEHIND_LINK: they may be in the
                          * memory of another device */
    /* Tables that grow, else NULL: number of slabs chained to these buckets (relaxed), and the
     * limit up to which calls chain more. Migration may exceed the limit, because it must be
     * able to finish. */
    const uint32_t *chained;
    uint32_t chained_max;
    GA_SLABHASH_GROWTH_VIEW_FIELDS
#ifdef GA_SLABHASH_CHECKED
    /* Kernels compiled with checks: word 0 counts the calls in progress (use_tile.h), word 1 the
     * conflicts that were found. NULL: not checked. */
    uint64_t *use;
#endif
} ga_slabhash_view;

/* The result of one operation. */
typedef struct ga_slabhash_answer {
    uint32_t result; /* ga_slabhash_result */
    uint64_t value;  /* value that the key had before the call, else 0 */
} ga_slabhash_answer;

/* Result of an operation on one array of a table that grows: nothing was done, because the key's
 * bucket is migrating to the next array. */
#define GA_SLABHASH_MOVES 4u

/* Value beside the result FULL if the limit of slabs is reached: more memory would not help. */
#define GA_SLABHASH_AT_LIMIT 1u

GA_SIMT ga_slabhash_answer ga_slabhash_answer_of(uint32_t result, uint64_t value)
{
    ga_slabhash_answer answer;
    answer.result = result;
    answer.value = value;
    return answer;
}

/* ---- slabs ---------------------------------------------------------------------------------- */

GA_SIMT uint32_t *ga_slabhash_row(ga_slabhash_view table, uint32_t unit)
{
    return (uint32_t *)ga_slab_pointer(ga_slab_view_with(table.heap, 0), unit);
}

/* A tile claims slabs one bitmap word at a time, up to 32, and uses them from `claimed`. Begin
 * with a different number in each tile, so that tiles claim different words; end releases unused
 * slabs. */
GA_SIMT ga_slab_claimed ga_slabhash_claim_begin(uint32_t number)
{
    ga_slab_claimed claimed;
    claimed.word = number;
    claimed.units = 0;
    return claimed;
}

GA_SIMT void ga_slabhash_claim_end(ga_slabhash_view table, ga_tile tile, ga_slab_claimed *claimed)
{
    if (claimed->units) {
        ga_slab_release_word(ga_slab_view_of(table.heap), tile, claimed);
    }
}

/* A word with free units, searched from `word` on; its mask is 0 if the heap is full. */
GA_SIMT_SLOW ga_slab_claimed ga_slabhash_claim_word(ga_slab_heap *heap, ga_tile tile, uint32_t word)
{
    uint32_t words = ga_slab_words(heap);
    ga_slab_claimed claimed = ga_slabhash_claim_begin(word);
    if (words) { /* on the CPU a heap has no words before its first superblock */
        claimed.word %= words;
        claimed = ga_slabhash_claim_from(heap, tile, words, claimed);
    }
    return claimed;
}

/* Claims one unit; GA_SLABHASH_NO_SLAB if there is none. */
GA_SIMT uint32_t ga_slabhash_claim(ga_slab_heap *heap, ga_tile tile, ga_slab_claimed *claimed)
{
    if (!claimed->units) {
        *claimed = ga_slabhash_claim_word(heap, tile, claimed->word);
        if (!claimed->units) {
            return GA_SLABHASH_NO_SLAB;
        }
    }
    uint32_t bit = ga_bits_lowest(claimed->units);
    claimed->units &= claimed->units - 1u;
    return claimed->word * 32u + bit;
}

/* The tile initialises a slab: empty but for the pair in its first slot; with the key EMPTY
 * empty altogether. Plain stores, because no other tile knows the slab yet. */
GA_SIMT void ga_slabhash_init_slab(uint32_t kind, ga_tile tile, uint32_t *row, uint64_t key,
                                   uint64_t value)
{
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        for (uint32_t i = own; i < GA_SLABHASH_WORDS; i += ga_tile_size(tile)) {
            row[i] = ga_slabhash_fresh_word(kind, i, key, value);
        }
    }
    ga_tile_sync(tile);
}

/* The calling lane links `unit` behind the slab `row`, unless a slab is linked there already.
 * Returns the unit that is linked then. */
GA_SIMT uint32_t ga_slabhash_lane_link(uint32_t kind, uint32_t *row, uint32_t unit)
{
    uint32_t before = GA_SLABHASH_NO_SLAB;
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        /* L1: release. Pairs with L2: a tile that follows the link sees
         * ga_slabhash_init_slab()'s stores. */
        before = GA_PLANTED(slabhash_link_relaxed)
                     ? ga_cas_relaxed(row + GA_SLABHASH_NEXT, before, unit)
                     : ga_cas_release(row + GA_SLABHASH_NEXT, before, unit);
    } else {
        uint64_t *both = (uint64_t *)(void *)(row + GA_SLABHASH_END_BITS);
        uint64_t seen = ga_load64_relaxed(both); /* relaxed: the compare-and-swap validates it */
        uint64_t now = seen;
        do { /* retries only if an end bit has changed: at most 32 times */
            seen = now;
            before = (uint32_t)(seen >> 32);
            if (before != GA_SLABHASH_NO_SLAB) {
                break;
            }
            uint64_t linked = (uint32_t)seen | (uint64_t)unit << 32;
            if (GA_PLANTED(slabhash_link_by_store)) {
                ga_slabhash_test_yield();
                ga_store64_release(both, linked); /* Pairs with L2 */
                break;
            }
            /* L1: release. Pairs with L2. */
            now = GA_PLANTED(slabhash_link_relaxed) ? ga_cas64_relaxed(both, seen, linked)
                                                    : ga_cas64_release(both, seen, linked);
        } while (now != seen);
    }
    return before == GA_SLABHASH_NO_SLAB ? unit : before;
}

/* Like ga_slabhash_lane_link(), by the tile's leader; all lanes get the result. */
GA_SIMT uint32_t ga_slabhash_tile_link(uint32_t kind, ga_tile tile, uint32_t *row, uint32_t unit)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes linked_unit = ga_lanes_all(unit);
    ga_slabhash_test_yield();
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&linked_unit, own, ga_slabhash_lane_link(kind, row, unit));
    }
    ga_tile_sync(tile); /* makes the leader's write visible to all lanes */
    return ga_lanes_get(tile, linked_unit, leader);
}

/* Clears the end bit of a class, because a key of it found the slab full: searches for keys
 * of the class go on from now on. By the calling lane; below by the tile's leader. */
GA_SIMT void ga_slabhash_lane_record_overflow(uint32_t kind, uint32_t *row, uint32_t class_bit)
{
    if (GA_PLANTED(slabhash_overflow_not_recorded)) {
        return;
    }
    /* relaxed: see ORDER. */
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        ga_post_and_relaxed(row + GA_SLABHASH_END_BITS, ~class_bit);
    } else {
        ga_post_and64_relaxed((uint64_t *)(void *)(row + GA_SLABHASH_END_BITS),
                              ~(uint64_t)class_bit);
    }
}

GA_SIMT void ga_slabhash_tile_record_overflow(uint32_t kind, ga_tile tile, uint32_t *row,
                                              uint32_t class_bit)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_slabhash_lane_record_overflow(kind, row, class_bit);
    }
    ga_tile_sync(tile);
}

/* ---- a path ---------------------------------------------------------------------------------- */

typedef struct ga_slabhash_walk {
    uint32_t *row;         /* the current slab */
    uint32_t *chain_end;   /* slab whose link is the chain's next: the home, then each chained
                            * slab */
    uint32_t link;         /* that link, once the slab was loaded */
    uint32_t bucket;       /* bucket of `row`, while that is a bucket's slab */
    uint32_t stride;       /* buckets from one bucket of the path to the next */
    uint32_t buckets_left; /* buckets of the path still to come */
    uint32_t class_bit;    /* end bit of the key's class */
    uint32_t order_hash;   /* 16 bits that choose where the key's slot order begins in `row`; 0
                            * behind the home */
} ga_slabhash_walk;

/* True if unique keys are inserted in their slot order, so that searches may rely on it. */
GA_SIMT bool ga_slabhash_is_ordered(ga_slabhash_view table)
{
    return table.ordered && *table.ordered;
}

/* The word at which a key's slot order begins: the first of a sector, chosen in proportion to
 * the sector's slots. The order goes to the last slot and continues with the first. */
GA_SIMT uint32_t ga_slabhash_order_start(uint32_t kind, uint32_t order_hash)
{
    uint32_t slots = GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32   ? 30u
                     : GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32 ? 15u
                                                                   : 7u;
    uint32_t width = GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32   ? 1u
                     : GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32 ? 2u
                                                                   : 4u;
    return (order_hash * slots >> 16) * width & ~7u;
}

/* The first slot of the mask in the key's order. The mask is not 0. Multimaps have no order. */
GA_SIMT uint32_t ga_slabhash_first_in_order(uint32_t kind, ga_slabhash_walk walk,
                                            uint32_t slot_mask)
{
    bool ordered = !GA_SLABHASH_IS_MULTI(kind) && !GA_PLANTED(slabhash_keys_out_of_order);
    uint32_t start = ordered ? ga_slabhash_order_start(kind, walk.order_hash) : 0;
    uint32_t behind = slot_mask & ~0u << start;
    return ga_bits_lowest(behind ? behind : slot_mask);
}

/* A walk along the chain of one bucket. */
GA_SIMT ga_slabhash_walk ga_slabhash_walk_chain(ga_slabhash_view table, uint32_t bucket)
{
    ga_slabhash_walk walk;
    walk.row = table.rows + (size_t)bucket * GA_SLABHASH_WORDS;
    walk.chain_end = walk.row;
    walk.link = GA_SLABHASH_NO_SLAB;
    walk.bucket = bucket;
    walk.stride = 0;
    walk.buckets_left = 0;
    walk.class_bit = 1u;
    walk.order_hash = 0;
    return walk;
}

/* Second hash of a key: its class, its stride, and its slot order. */
GA_SIMT uint32_t ga_slabhash_second_hash(uint64_t hash)
{
    return ga_bits_mix((uint32_t)hash ^ (uint32_t)(hash >> 32));
}

/* The 16 bits that choose where the slot order begins at home (ga_slabhash_order_start). */
GA_SIMT uint32_t ga_slabhash_order_hash(uint32_t second_hash)
{
    return second_hash >> 8 & 0xffffu;
}

/* Distance from each bucket of the path to the next: 1 to `stride_max`. */
GA_SIMT uint32_t ga_slabhash_stride(ga_slabhash_view table, uint32_t second_hash)
{
    return 1u + (uint32_t)((uint64_t)second_hash * table.stride_max >> 32);
}

/* The slab of the path's next bucket. */
GA_SIMT uint32_t *ga_slabhash_next_bucket(ga_slabhash_view table, uint32_t *row,
                                          uint32_t second_hash)
{
    const size_t all = (size_t)table.buckets * GA_SLABHASH_WORDS;
    row += (size_t)ga_slabhash_stride(table, second_hash) * GA_SLABHASH_WORDS;
    return row < table.rows + all ? row : row - all;
}

/* `buckets_left` of lanes that walk the chain; with a path of one bucket from the beginning. */
#define GA_SLABHASH_IN_CHAIN 0xffffffffu

/* The link of a slab, by a lane that goes on to the linked slab. */
GA_SIMT uint32_t ga_slabhash_lane_load_link(uint32_t kind, uint32_t *row)
{
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        return ga_load_acquire(row + GA_SLABHASH_NEXT); /* L2: acquire. Pairs with L1 */
    }
    /* L2: acquire. Pairs with L1: for all lanes of the tile, after their next sync. */
    return (uint32_t)(ga_load64_acquire((uint64_t *)(void *)(row + GA_SLABHASH_END_BITS)) >> 32);
}

/* A walk along the path of a hash. The upper bits of the hash choose the home. Each other bucket
 * is one stride further on; a stride is at most buckets / path, so that all buckets of a path
 * differ. */
GA_SIMT ga_slabhash_walk ga_slabhash_walk_path(ga_slabhash_view table, uint64_t hash)
{
    ga_slabhash_walk walk =
        ga_slabhash_walk_chain(table, (uint32_t)ga_bits_high(hash, table.buckets));
    bool ordered = ga_slabhash_is_ordered(table);
    uint32_t second_hash = 0;
    if (ordered || table.path > 1u) {
        second_hash = ga_slabhash_second_hash(hash);
        walk.order_hash = ordered ? ga_slabhash_order_hash(second_hash) : 0;
    }
    if (table.path > 1u) {
        walk.stride = ga_slabhash_stride(table, second_hash);
        walk.buckets_left = table.path - 1u;
        walk.class_bit = 1u << second_hash % 32u;
    }
    return walk;
}

/* Goes to the slab behind the walk's chain end. False if the chain ends. */
GA_SIMT bool ga_slabhash_follow_link(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                     ga_slabhash_walk *walk, uint32_t link)
{
    if (link == GA_SLABHASH_NO_SLAB ||
        (GA_SLABHASH_IS_GROWING(kind) && link == GA_SLABHASH_SEALED)) {
        return false;
    }
    ga_tile_sync(tile); /* one lane loaded the link, before each lane acquires */
    /* L2: acquire. Pairs with L1: the slab as initialised or later. Each lane for itself. */
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        (void)ga_load_acquire(walk->chain_end + GA_SLABHASH_NEXT); /* L2. Pairs with L1 */
    } else {
        /* L2: acquire. Pairs with L1. */
        (void)ga_load64_acquire((uint64_t *)(void *)(walk->chain_end + GA_SLABHASH_END_BITS));
    }
    walk->row = ga_slabhash_row(table, link);
    walk->chain_end = walk->row;
    walk->order_hash = 0;
    return true;
}

/* Goes to the next slab of the path, given the loaded `row` of the current one; false at the end
 * of the path. From a bucket's slab to the next bucket only if the slab has overflowed for the
 * key's class, or `is_full` says that it does now. */
GA_SIMT bool ga_slabhash_walk_next(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                   ga_slabhash_walk *walk, ga_row row, bool is_full)
{
    if (walk->row == walk->chain_end) {
        walk->link = ga_row_get(tile, row, GA_SLABHASH_NEXT);
    }
    if (!walk->buckets_left) {
        return ga_slabhash_follow_link(kind, table, tile, walk, walk->link);
    }
    if (!is_full && ga_row_get(tile, row, GA_SLABHASH_END_BITS) & walk->class_bit) {
        return false;
    }
    ga_slabhash_test_yield();
    walk->buckets_left--;
    walk->bucket += walk->stride;
    walk->bucket -= walk->bucket >= table.buckets ? table.buckets : 0;
    walk->row = table.rows + (size_t)walk->bucket * GA_SLABHASH_WORDS;
    walk->order_hash = 0;
    return true;
}

/* ---- tables that grow (grow_tile.h) ---------------------------------------------------------- */

/* True if the key is frozen in the slab; `found` are its slots as for ga_slabhash_frozen_at(). */
GA_SIMT bool ga_slabhash_has_frozen(uint32_t kind, ga_tile tile, ga_row row, uint64_t key,
                                    uint32_t found)
{
    return GA_SLABHASH_IS_GROWING(kind) &&
           ga_slabhash_frozen_at(kind, tile, row, key, found) != GA_NONE;
}

/* True if the walk is at the end of a chain that is frozen as a whole. */
GA_SIMT bool ga_slabhash_is_sealed(uint32_t kind, ga_slabhash_walk walk)
{
    return GA_SLABHASH_IS_GROWING(kind) && walk.link == GA_SLABHASH_SEALED;
}

/* The result for a key that was not found: `result`, but MOVES if the chain is frozen as a
 * whole, because the key may have been inserted into the new array since. */
GA_SIMT uint32_t ga_slabhash_miss_result(uint32_t kind, ga_slabhash_walk walk, uint32_t result)
{
    return ga_slabhash_is_sealed(kind, walk) && !GA_PLANTED(slabhash_frozen_end_is_miss)
               ? GA_SLABHASH_MOVES
               : result;
}

/* ---- SEARCH, SEARCHALL ---------------------------------------------------------------------- */

GA_SIMT ga_slabhash_answer ga_slabhash_find(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                            ga_slabhash_walk walk, uint64_t key)
{
    ga_row row;
    do {
        row = ga_slabhash_load_slab(kind, tile, walk.row);
        uint32_t found = ga_slabhash_match_key(kind, tile, row, key);
        if (found) {
            uint64_t value;
            if (ga_slabhash_read_match(kind, tile, row, walk.row, found, key, &value) != GA_NONE) {
                return ga_slabhash_answer_of(GA_SLABHASH_FOUND, value);
            }
            /* unique: this is the key's only slot, or the key was deleted from it just now */
            if (!GA_SLABHASH_IS_MULTI(kind)) {
                break;
            }
        }
    } while (ga_slabhash_walk_next(kind, table, tile, &walk, row, false));
    return ga_slabhash_answer_of(GA_SLABHASH_ABSENT, 0);
}

/* Stores value number `number`, if there is room for it. */
GA_SIMT void ga_slabhash_write_value(ga_tile tile, uint64_t *values, uint64_t room, uint64_t number,
                                     uint64_t value)
{
    GA_EACH_LANE(tile, number < room ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        values[number] = value;
    }
}

/* Stores the first `room` values of the key and returns the number of all; 0 for keys that are
 * reserved or too wide. For a unique key one search is enough, and a full walk would be wrong: a
 * key that is deleted and inserted further on during the walk would count twice. */
GA_SIMT uint64_t ga_slabhash_find_all(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                      ga_slabhash_walk walk, uint64_t key, uint64_t *values,
                                      uint64_t room)
{
    uint64_t count = 0;
    ga_row row;
    if (!ga_slabhash_allowed(kind, GA_SLABHASH_SEARCH, key, 0)) {
        return 0;
    }
    if (!GA_SLABHASH_IS_MULTI(kind)) {
        ga_slabhash_answer one = ga_slabhash_find(kind, table, tile, walk, key);
        bool found = one.result == GA_SLABHASH_FOUND;
        ga_slabhash_write_value(tile, values, found ? room : 0, 0, one.value);
        return found ? 1 : 0;
    }
    do {
        row = ga_slabhash_load_slab(kind, tile, walk.row);
        for (uint32_t found = ga_slabhash_match_key(kind, tile, row, key); found;
             found &= found - 1u) {
            uint64_t value = ga_slabhash_value_at(kind, tile, row, ga_bits_lowest(found));
            if (!ga_slabhash_is_set(kind, value)) {
                continue;
            }
            ga_slabhash_acquire_slot(kind, walk.row + ga_bits_lowest(found));
            ga_slabhash_write_value(tile, values, room, count, value);
            count++;
        }
    } while (ga_slabhash_walk_next(kind, table, tile, &walk, row, false));
    return count;
}

/* ---- INSERT, REPLACE, insert-or-apply ------------------------------------------------------- */

/* One operation on one key. */
typedef struct ga_slabhash_operation {
    uint64_t key, value;
    uint32_t op;  /* ga_slabhash_op */
    uint32_t how; /* for APPLY, ga_slabhash_how; GA_SLABHASH_HOW_COUNT: `function` */
    ga_slabhash_function *function;
    void *context;
} ga_slabhash_operation;

GA_SIMT uint64_t ga_slabhash_combine(ga_slabhash_operation operation, uint64_t there)
{
    switch (operation.how) {
    case GA_SLABHASH_ADD:
        return there + operation.value;
    case GA_SLABHASH_MIN:
        return there < operation.value ? there : operation.value;
    case GA_SLABHASH_MAX:
        return there > operation.value ? there : operation.value;
    default:
        return GA_SLABHASH_CALL(operation, there);
    }
}

/* Operation on a key that has a slot in the loaded slab. False if the slot has changed since. */
GA_SIMT bool ga_slabhash_put_existing(uint32_t kind, ga_tile tile, uint32_t *at, ga_row row,
                                      uint32_t slot, ga_slabhash_operation operation,
                                      ga_slabhash_answer *answer)
{
    uint64_t there = ga_slabhash_value_at(kind, tile, row, slot);
    bool found = ga_slabhash_is_set(kind, there);
    uint64_t after = operation.value;
    *answer =
        ga_slabhash_answer_of(found ? GA_SLABHASH_FOUND : GA_SLABHASH_ABSENT, found ? there : 0);
    if (found && operation.op == GA_SLABHASH_INSERT) {
        ga_slabhash_acquire_slot(kind, at + slot);
        return true;
    }
    if (found && operation.op == GA_SLABHASH_APPLY) {
        after = ga_slabhash_combine(operation, there);
        if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 && after > ga_slabhash_value_max(kind)) {
            answer->result = GA_SLABHASH_REFUSED;
            return true;
        }
    }
    if (!ga_slabhash_change(kind, tile, at + slot, operation.key, there, after)) {
        return false;
    }
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        ga_slabhash_acquire_slot(kind, at + slot);
    }
    return true;
}

/* The path is at its end and has no vacant slot: links a new slab that holds the pair. False if
 * another tile linked one first; then the walk continues at that slab. */
GA_SIMT bool ga_slabhash_append(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                ga_slabhash_walk *walk, ga_slab_claimed *claimed,
                                ga_slabhash_operation operation, ga_slabhash_answer *answer)
{
    /* relaxed: a statistic that may be late */
    if (GA_SLABHASH_IS_GROWING(kind) && ga_load_relaxed(table.chained) >= table.chained_max) {
        *answer = ga_slabhash_answer_of(GA_SLABHASH_FULL, GA_SLABHASH_AT_LIMIT);
        return true;
    }
    uint32_t unit = ga_slabhash_claim(table.heap, tile, claimed);
    if (unit == GA_SLABHASH_NO_SLAB) {
        *answer = ga_slabhash_answer_of(GA_SLABHASH_FULL, 0);
        return true;
    }
    ga_slabhash_init_slab(kind, tile, ga_slabhash_row(table, unit), operation.key, operation.value);
    uint32_t linked_unit = ga_slabhash_tile_link(kind, tile, walk->chain_end, unit);
    if (linked_unit == unit) {
        *answer = ga_slabhash_answer_of(GA_SLABHASH_ABSENT, 0);
        return true;
    }
    claimed->units |= 1u << unit % 32u; /* still in the same bitmap word, so it is kept for later */
    ga_slabhash_follow_link(kind, table, tile, walk, linked_unit);
    return false;
}

/* Inserts of a tile's lanes that need a slab, one a lane; unique keys, arrays that do not grow.
 * Each lane has probed its key's whole path: `row` is the last slab, all slots are taken, and
 * the key is absent. That stays true as long as no slab is linked behind `row`. */
typedef struct ga_slabhash_pairs {
    ga_lanes key, key_high, value, value_high;
    ga_lanes row, row_high; /* address of the path's last slab */
} ga_slabhash_pairs;

/* Like ga_slabhash_init_slab(), by one lane. */
GA_SIMT void ga_slabhash_lane_init_slab(uint32_t kind, uint32_t *row, uint64_t key, uint64_t value)
{
    uint32_t *words = (uint32_t *)__builtin_assume_aligned(row, 4u * GA_SLABHASH_WORDS);
    GA_UNROLL
    for (uint32_t i = 0; i < GA_SLABHASH_WORDS; i++) {
        words[i] = ga_slabhash_fresh_word(kind, i, key, value);
    }
}

/* Each lane of the mask puts its pair into a new slab and links it; the tile has at least as
 * many units claimed as the mask has lanes. Returns the mask of the lanes that linked theirs.
 * The others lost to another tile, and their units stay claimed. */
GA_SIMT uint32_t ga_slabhash_append_some(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                         uint32_t lanes, const ga_slabhash_pairs *pairs,
                                         ga_slab_claimed *claimed)
{
    ga_lanes unit_bit = ga_lanes_all(0), linked = ga_lanes_all(0);
    uint32_t units = claimed->units;
    for (uint32_t left = lanes; left; left &= left - 1u, units &= units - 1u) {
        GA_EACH_LANE(tile, left & (0u - left), own)
        {
            ga_lane_write(&unit_bit, own, ga_bits_lowest(units));
        }
    }
    GA_EACH_LANE(tile, lanes, own)
    {
        uint32_t unit = claimed->word * 32u + ga_lane_read(unit_bit, own);
        uint32_t *last_slab =
            (uint32_t *)(uintptr_t)(ga_lane_read(pairs->row, own) |
                                    (uint64_t)ga_lane_read(pairs->row_high, own) << 32);
        ga_slabhash_lane_init_slab(
            kind, ga_slabhash_row(table, unit),
            ga_lane_read(pairs->key, own) | (uint64_t)ga_lane_read(pairs->key_high, own) << 32,
            ga_lane_read(pairs->value, own) | (uint64_t)ga_lane_read(pairs->value_high, own) << 32);
        ga_slabhash_test_yield();
        bool is = ga_slabhash_lane_link(kind, last_slab, unit) == unit;
        ga_lane_write(&linked, own, is ? 1u : 0u);
    }
    uint32_t done = ga_lanes_nonzero(tile, linked);
    for (uint32_t left = done; left; left &= left - 1u) {
        claimed->units &= ~(1u << ga_lanes_get(tile, unit_bit, ga_bits_lowest(left)));
    }
    return done;
}

/* Like ga_slabhash_append_some() for any number of lanes, claiming units as needed. Returns the
 * mask of the lanes that linked a slab; the others lost to another tile, or the heap is full. */
GA_SIMT uint32_t ga_slabhash_append_all(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                        uint32_t lanes, const ga_slabhash_pairs *pairs,
                                        ga_slab_claimed *claimed)
{
    uint32_t done = 0;
    while (lanes) {
        if (!claimed->units) {
            *claimed = ga_slabhash_claim_word(table.heap, tile, claimed->word);
        }
        uint32_t now = 0;
        for (uint32_t units = claimed->units; units && lanes; units &= units - 1u) {
            now |= lanes & (0u - lanes);
            lanes &= lanes - 1u;
        }
        if (!now) { /* the heap is full */
            break;
        }
        done |= ga_slabhash_append_some(kind, table, tile, now, pairs, claimed);
    }
    return done;
}

/* INSERT, REPLACE and APPLY. The walk goes through the whole path and remembers the first vacant
 * slot. At the end of the path the pair goes there. If that slot was filled by another tile, the
 * walk continues from it. */
GA_SIMT ga_slabhash_answer ga_slabhash_put(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                           ga_slabhash_walk walk, ga_slab_claimed *claimed,
                                           ga_slabhash_operation operation)
{
    bool multi = GA_SLABHASH_IS_MULTI(kind);
    ga_slabhash_answer answer;
    ga_slabhash_walk vacant_walk = walk;
    uint32_t vacant = GA_NONE;
    bool was_free = false;
    for (;;) {
        ga_row row = ga_slabhash_load_slab(kind, tile, walk.row);
        uint32_t found = ga_slabhash_match_key(kind, tile, row, operation.key);
        if (ga_slabhash_has_frozen(kind, tile, row, operation.key, found)) {
            return ga_slabhash_answer_of(GA_SLABHASH_MOVES, 0);
        }
        uint32_t slot = !found  ? GA_NONE
                        : multi ? ga_slabhash_first_slot(kind, tile, row, found, false)
                                : ga_bits_lowest(found);
        if (slot != GA_NONE && (!multi || GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64)) {
            if (ga_slabhash_put_existing(kind, tile, walk.row, row, slot, operation, &answer)) {
                return answer;
            }
            continue;
        }
        uint32_t empty = ga_slabhash_vacant_slots(kind, tile, row);
        if (empty && vacant == GA_NONE) {
            vacant = ga_slabhash_first_in_order(kind, walk, empty);
            vacant_walk = walk;
            was_free = ga_slabhash_deletes_to_free(kind) &&
                       ga_slabhash_key_at(kind, tile, row, vacant) == GA_SLABHASH_FREE;
        }
        if (!empty && walk.buckets_left &&
            ga_row_get(tile, row, GA_SLABHASH_END_BITS) & walk.class_bit) {
            ga_slabhash_tile_record_overflow(kind, tile, walk.row, walk.class_bit);
        }
        if (!(multi && vacant != GA_NONE) &&
            ga_slabhash_walk_next(kind, table, tile, &walk, row, !empty)) {
            continue;
        }
        if (vacant == GA_NONE && ga_slabhash_is_sealed(kind, walk)) {
            return ga_slabhash_answer_of(GA_SLABHASH_MOVES, 0);
        }
        if (vacant == GA_NONE) {
            if (ga_slabhash_append(kind, table, tile, &walk, claimed, operation, &answer)) {
                return answer;
            }
        } else if (was_free ? ga_slabhash_refill(kind, tile, vacant_walk.row + vacant,
                                                 operation.key, operation.value)
                            : ga_slabhash_fill(kind, tile, vacant_walk.row + vacant, operation.key,
                                               operation.value)) {
            return ga_slabhash_answer_of(GA_SLABHASH_ABSENT, 0);
        } else {
            walk = vacant_walk;
            vacant = GA_NONE;
        }
    }
}

/* ---- DELETE, DELETEALL ---------------------------------------------------------------------- */

GA_SIMT ga_slabhash_answer ga_slabhash_remove(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                              ga_slabhash_walk walk, uint64_t key)
{
    for (;;) {
        ga_row row = ga_slabhash_load_slab(kind, tile, walk.row);
        uint32_t found = ga_slabhash_match_key(kind, tile, row, key);
        if (ga_slabhash_has_frozen(kind, tile, row, key, found)) {
            return ga_slabhash_answer_of(GA_SLABHASH_MOVES, 0);
        }
        uint32_t slot = found ? ga_slabhash_first_slot(kind, tile, row, found, true) : GA_NONE;
        if (slot != GA_NONE) {
            uint64_t value = ga_slabhash_value_at(kind, tile, row, slot);
            if (ga_slabhash_erase(kind, tile, walk.row + slot, key, value)) {
                return ga_slabhash_answer_of(GA_SLABHASH_FOUND, value);
            }
            continue;
        }
        if ((found && !GA_SLABHASH_IS_MULTI(kind)) ||
            !ga_slabhash_walk_next(kind, table, tile, &walk, row, false)) {
            return ga_slabhash_answer_of(ga_slabhash_miss_result(kind, walk, GA_SLABHASH_ABSENT),
                                         0);
        }
    }
}

/* DELETEALL of an allowed key: FOUND, ABSENT or MOVES. `count` goes up by each deleted pair,
 * whatever the result. If a slot changes during the call its slab is loaded again. A unique key
 * is deleted once. */
GA_SIMT uint32_t ga_slabhash_remove_each(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                         ga_slabhash_walk walk, uint64_t key, uint64_t *count)
{
    uint64_t before = *count;
    if (!GA_SLABHASH_IS_MULTI(kind)) {
        ga_slabhash_answer one = ga_slabhash_remove(kind, table, tile, walk, key);
        *count += one.result == GA_SLABHASH_FOUND ? 1u : 0u;
        return one.result;
    }
    for (;;) {
        ga_row row = ga_slabhash_load_slab(kind, tile, walk.row);
        uint32_t found = ga_slabhash_match_key(kind, tile, row, key);
        bool changed = false;
        if (ga_slabhash_has_frozen(kind, tile, row, key, found)) {
            return GA_SLABHASH_MOVES;
        }
        for (; found; found &= found - 1u) {
            uint32_t slot = ga_bits_lowest(found);
            uint64_t value = ga_slabhash_value_at(kind, tile, row, slot);
            if (ga_slabhash_is_set(kind, value)) {
                bool done = ga_slabhash_erase(kind, tile, walk.row + slot, key, value);
                *count += done ? 1u : 0u;
                changed = changed || !done;
            }
        }
        if (!changed && !ga_slabhash_walk_next(kind, table, tile, &walk, row, false)) {
            return ga_slabhash_miss_result(
                kind, walk, *count == before ? GA_SLABHASH_ABSENT : GA_SLABHASH_FOUND);
        }
    }
}

/* Returns the number of deleted pairs; 0 for keys that are reserved or too wide. */
GA_SIMT uint64_t ga_slabhash_remove_all(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                        ga_slabhash_walk walk, uint64_t key)
{
    uint64_t count = 0;
    if (ga_slabhash_allowed(kind, GA_SLABHASH_DELETE, key, 0)) {
        (void)ga_slabhash_remove_each(kind, table, tile, walk, key, &count);
    }
    return count;
}

#endif
