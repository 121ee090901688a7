/* SPDX-License-Identifier: MIT
 *
 * The slab list (slab-hash-2018, §III-A, §IV-C) over tiles and rows, for CPU and GPU: the slabs
 * that a key may stand in, one after the other, and what is done with them.
 *
 * STRUCTURE  A path begins at a bucket's slab, its home. With a path of K it goes on to K - 1 other
 *            buckets' slabs, each time only if the one before is marked: a key of the same class,
 *            of which there are 32, found it full. Then to the chain of slabs that hangs on the
 *            home. K = 1 is the paper's list.
 *
 *              home ----------> 2nd bucket ---> ... ---> Kth bucket
 *              | next    marked            marked         |
 *              v                                          |
 *              slab -> slab -> ...   <--------------------+
 *
 * INVARIANT  The path of a key is fixed, and only becomes longer; so is the order of its places. A
 *            key is put into the first place on it that was seen empty, by somebody who has seen
 *            every place of the path, the key in none of them, before it. So with unique keys no
 *            two places hold one key: docs/slabhash.md has the argument. The mark of
 *            its class is set before a key is put further on.
 *
 * ORDER      L1 and L2: a slab is empty, but for its first pair, before anybody follows the link to
 *            it. Marks are relaxed: who is to find what stands further on has seen its mark, or
 *            somebody before him has.
 *
 * PROGRESS   Lock-free: an attempt fails because another tile's has succeeded. Where a slab is
 * wanted
 *            and there is none, the answer is FULL and nothing is done.
 */
#ifndef GPUALLOC_SLABHASH_LIST_TILE_H
#define GPUALLOC_SLABHASH_LIST_TILE_H

#include "slots.h"

#ifdef __CUDACC__
#include <gpualloc/slab/slab_kernel.h>
#else
#include <gpualloc/slab/slab_tile.h>
#endif

/* In kernels the caller's own way is a macro, defined before the header is included. */
#ifdef GA_SLABHASH_FUNCTION
#define GA_SLABHASH_HOWS (GA_SLABHASH_HOW_COUNT + 1)
#else
#define GA_SLABHASH_HOWS                   GA_SLABHASH_HOW_COUNT
#define GA_SLABHASH_FUNCTION(there, given) (given)
#endif

/* A table as tiles see it, by value: a list is a table of one bucket. */
typedef struct ga_slabhash_view {
    uint32_t *rows;     /* a slab for each bucket */
    ga_slab_heap *heap; /* where the others come from: units of 128 bytes */
    uint32_t buckets;
    uint32_t path;        /* K */
    uint32_t stride_most; /* the most that two bucket slabs of a path are apart: buckets / path */
    uint32_t kind;        /* for those who dispatch */
    uint64_t a, b;        /* the hash: 8 a and b of ga_slabhash_seeded() */
    /* Not 0: keys stand in their order at home (near_tile.h), and no flush has moved any since.
     * NULL: they never do. Plain: changed by who is alone. */
    const uint32_t *ordered;
    uint32_t exceeds_l2; /* not 0: more than four times the L2 cache, so that each request counts */
    /* Of tables that grow: slabs behind these buckets, relaxed, and the most that calls chain
     * there; moving goes on beyond that, or it might never end. Else NULL. */
    const uint32_t *chained;
    uint32_t most;
#ifdef GA_SLABHASH_GROWING_KINDS
    struct ga_slabhash_growing *growing; /* grow_turn_tile.h; NULL: it does not grow in kernels */
#endif
#ifdef GA_SLABHASH_CHECKED
    /* In kernels that are compiled with checks: who uses the table (use_tile.h), and behind it how
     * many tiles have met whom they must not. NULL: not looked for. */
    uint64_t *use;
#endif
} ga_slabhash_view;

/* What the operations answer. */
typedef struct ga_slabhash_answer {
    uint32_t result; /* ga_slabhash_result */
    uint64_t value;  /* what was there, else 0 */
} ga_slabhash_answer;

/* A result of tables that grow, from one generation: nothing done, the key's bucket moves on. */
#define GA_SLABHASH_MOVES 4u

/* The value beside the result FULL where that is for the limit, and more slabs would not help. */
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

/* A tile claims slabs a bitmap word at a time, and hands them out of `claimed`: begin with any
 * number that is another for each tile, and give back what is left at the end. */
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
#ifdef __CUDACC__
        if (table.heap->growth) { /* its estimate has them for taken */
            ga_slab_weigh(table.heap, tile, 0u - ga_bits_count(claimed->units));
        }
#endif
        ga_slab_give_word(ga_slab_view_of(table.heap), tile, claimed);
    }
}

/* A word with free units, from `word` on; without any where the heap is full. */
GA_SIMT_SLOW ga_slab_claimed ga_slabhash_claim_word(ga_slab_heap *heap, ga_tile tile, uint32_t word)
{
    uint32_t words = ga_slab_words(heap);
    ga_slab_claimed claimed = ga_slabhash_claim_begin(word);
    if (words) { /* on the CPU there are none before the first super block */
        claimed.word %= words;
#ifdef __CUDACC__
        claimed = ga_slab_claim_word_general(heap, ga_tile_members(tile), claimed.word);
#else
        ga_slab_claim_word(ga_slab_view_with(heap, words), tile, &claimed);
#endif
    }
    return claimed;
}

/* One slab's unit, or GA_SLABHASH_NO_SLAB. */
GA_SIMT uint32_t ga_slabhash_claim(ga_slab_heap *heap, ga_tile tile, ga_slab_claimed *claimed)
{
    if (!claimed->units) {
        *claimed = ga_slabhash_claim_word(heap, tile, claimed->word);
        if (!claimed->units) {
            return GA_SLABHASH_NO_SLAB;
        }
    }
    uint32_t slot = ga_bits_lowest(claimed->units);
    claimed->units &= claimed->units - 1u;
    return claimed->word * 32u + slot;
}

/* The tile writes the slab anew: empty, but for the pair in its first place. Plain: nobody else
 * knows of it. The key EMPTY makes it empty altogether. */
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

/* Make `unit` the slab behind `row`, which has none, by the calling lane. Answers what stands there
 * then, if anybody else was faster: his. */
GA_SIMT uint32_t ga_slabhash_lane_link(uint32_t kind, uint32_t *row, uint32_t unit)
{
    uint32_t before = GA_SLABHASH_NO_SLAB;
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        /* L1: release. Pairs with L2: whoever follows finds what ga_slabhash_init_slab() wrote. */
        before = GA_SLABHASH_MUTANT == 7 ? ga_cas_relaxed(row + GA_SLABHASH_NEXT, before, unit)
                                         : ga_cas_release(row + GA_SLABHASH_NEXT, before, unit);
    } else {
        uint64_t *both = (uint64_t *)(void *)(row + GA_SLABHASH_OVERFLOW_BITS);
        uint64_t seen = ga_load64_relaxed(both); /* relaxed: the compare-and-swap asks again */
        uint64_t now = seen;
        do { /* again where the mark alone has changed: at most once for each class */
            seen = now;
            before = (uint32_t)(seen >> 32);
            if (before != GA_SLABHASH_NO_SLAB) {
                break;
            }
            uint64_t linked = (uint32_t)seen | (uint64_t)unit << 32;
            if (GA_SLABHASH_MUTANT == 4) {
                ga_slabhash_test_yield();
                ga_store64_release(both, linked); /* Pairs with L2 */
                break;
            }
            /* L1: release. Pairs with L2. */
            now = GA_SLABHASH_MUTANT == 7 ? ga_cas64_relaxed(both, seen, linked)
                                          : ga_cas64_release(both, seen, linked);
        } while (now != seen);
    }
    return before == GA_SLABHASH_NO_SLAB ? unit : before;
}

/* The same by the tile. */
GA_SIMT uint32_t ga_slabhash_tile_link(uint32_t kind, ga_tile tile, uint32_t *row, uint32_t unit)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes linked_unit = ga_lanes_all(unit);
    ga_slabhash_test_yield();
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&linked_unit, own, ga_slabhash_lane_link(kind, row, unit));
    }
    ga_tile_sync(tile); /* what the leader did is seen by all */
    return ga_lanes_get(tile, linked_unit, leader);
}

/* The slab was full, and whoever looks in vain for a key of the class goes on from now on. By the
 * calling lane, or the tile's leader. */
GA_SIMT void ga_slabhash_lane_set_overflow(uint32_t kind, uint32_t *row, uint32_t class_bit)
{
    if (GA_SLABHASH_MUTANT == 5) {
        return;
    }
    /* relaxed: see ORDER. */
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        ga_post_and_relaxed(row + GA_SLABHASH_OVERFLOW_BITS, ~class_bit);
    } else {
        ga_post_and64_relaxed((uint64_t *)(void *)(row + GA_SLABHASH_OVERFLOW_BITS),
                              ~(uint64_t)class_bit);
    }
}

GA_SIMT void ga_slabhash_tile_set_overflow(uint32_t kind, ga_tile tile, uint32_t *row,
                                           uint32_t class_bit)
{
    GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
    {
        (void)own;
        ga_slabhash_lane_set_overflow(kind, row, class_bit);
    }
    ga_tile_sync(tile);
}

/* ---- a path --------------------------------------------------------------------------------- */

typedef struct ga_slabhash_walk {
    uint32_t *row;         /* where it is */
    uint32_t *chain_end;   /* the slab whose link is the path's next behind the buckets' */
    uint32_t link;         /* what stands there, once that was loaded */
    uint32_t bucket;       /* whose slab `row` is, while it is a bucket's */
    uint32_t stride;       /* from there to the next bucket */
    uint32_t buckets_left; /* buckets still to come */
    uint32_t class_bit;    /* of the mark: the key's class */
    uint32_t order_hash;   /* 16 bits: where in `row` the key's order begins; 0 behind its home */
} ga_slabhash_walk;

/* Whether keys of unique tables are put in, and so may be looked for, in their order. */
GA_SIMT bool ga_slabhash_is_ordered(ga_slabhash_view table)
{
    return table.ordered && *table.ordered;
}

/* The word at which the order begins: a sector's first, each chosen as often as it has places. From
 * there it goes to the last place, and on from the first. */
GA_SIMT uint32_t ga_slabhash_order_start(uint32_t kind, uint32_t order_hash)
{
    uint32_t slot_mask = GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32   ? 30u
                         : GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32 ? 15u
                                                                       : 7u;
    uint32_t width = GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32   ? 1u
                     : GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP32 ? 2u
                                                                   : 4u;
    return (order_hash * slot_mask >> 16) * width & ~7u;
}

/* The first place of the mask, which is not 0, in the key's order; multimaps have none. */
GA_SIMT uint32_t ga_slabhash_first_in_order(uint32_t kind, ga_slabhash_walk walk,
                                            uint32_t slot_mask)
{
    bool ordered = !GA_SLABHASH_IS_MULTI(kind) && GA_SLABHASH_MUTANT != 19;
    uint32_t start = ordered ? ga_slabhash_order_start(kind, walk.order_hash) : 0;
    uint32_t behind = slot_mask & ~0u << start;
    return ga_bits_lowest(behind ? behind : slot_mask);
}

/* The chain of one bucket alone. */
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

/* What a hash says beside the home. */
GA_SIMT uint32_t ga_slabhash_second_hash(uint64_t hash)
{
    return ga_bits_mix((uint32_t)hash ^ (uint32_t)(hash >> 32));
}

/* By that, where the order of the home's places begins (ga_slabhash_order_start). */
GA_SIMT uint32_t ga_slabhash_order_hash(uint32_t second_hash)
{
    return second_hash >> 8 & 0xffffu;
}

/* How far each bucket of the path is from the one before. */
GA_SIMT uint32_t ga_slabhash_stride(ga_slabhash_view table, uint32_t second_hash)
{
    return 1u + (uint32_t)((uint64_t)second_hash * table.stride_most >> 32);
}

/* From a bucket's slab to the next of the path. */
GA_SIMT uint32_t *ga_slabhash_next_bucket(ga_slabhash_view table, uint32_t *row,
                                          uint32_t second_hash)
{
    const size_t all = (size_t)table.buckets * GA_SLABHASH_WORDS;
    row += (size_t)ga_slabhash_stride(table, second_hash) * GA_SLABHASH_WORDS;
    return row < table.rows + all ? row : row - all;
}

/* What is left of a path behind its buckets, and from the beginning where it has but one. */
#define GA_SLABHASH_IN_CHAIN 0xffffffffu

/* The link of a slab, by a lane which goes where it leads. */
GA_SIMT uint32_t ga_slabhash_lane_load_link(uint32_t kind, uint32_t *row)
{
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        return ga_load_acquire(row + GA_SLABHASH_NEXT); /* L2: acquire. Pairs with L1 */
    }
    /* L2: acquire. Pairs with L1: for all lanes, once they have met. */
    return (uint32_t)(ga_load64_acquire((uint64_t *)(void *)(row + GA_SLABHASH_OVERFLOW_BITS)) >>
                      32);
}

/* The path of a hash. Its upper bits choose the home; all others are a number from 1 to `apart`
 * further on each, so that no two are one. The class is that of a path of several. */
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

/* Follow a link that was read at the walk's end. */
GA_SIMT bool ga_slabhash_follow_link(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                     ga_slabhash_walk *walk, uint32_t link)
{
    if (link == GA_SLABHASH_NO_SLAB ||
        (GA_SLABHASH_IS_GROWING(kind) && link == GA_SLABHASH_SEALED)) {
        return false;
    }
    ga_tile_sync(tile); /* the link was read, by whichever lane, before each lane acquires */
    /* L2: acquire. Pairs with L1: the slab as it was made, or later. Each lane for itself. */
    if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_SET32) {
        (void)ga_load_acquire(walk->chain_end + GA_SLABHASH_NEXT); /* L2. Pairs with L1 */
    } else {
        /* L2: acquire. Pairs with L1. */
        (void)ga_load64_acquire((uint64_t *)(void *)(walk->chain_end + GA_SLABHASH_OVERFLOW_BITS));
    }
    walk->row = ga_slabhash_row(table, link);
    walk->chain_end = walk->row;
    walk->order_hash = 0;
    return true;
}

/* On to the next slab of the path behind the one that was loaded, if there is one; from a bucket's
 * slab to the next bucket's if it is marked for the class, or `marked` says so. */
GA_SIMT bool ga_slabhash_walk_next(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                   ga_slabhash_walk *walk, ga_row row, bool is_full)
{
    if (walk->row == walk->chain_end) {
        walk->link = ga_row_get(tile, row, GA_SLABHASH_NEXT);
    }
    if (!walk->buckets_left) {
        return ga_slabhash_follow_link(kind, table, tile, walk, walk->link);
    }
    if (!is_full && ga_row_get(tile, row, GA_SLABHASH_OVERFLOW_BITS) & walk->class_bit) {
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

/* ---- tables that grow (grow_tile.h) -----------------------------------------------------------
 * */

/* Whether the key, at the places `found`, is frozen in the slab. */
GA_SIMT bool ga_slabhash_has_frozen(uint32_t kind, ga_tile tile, ga_row row, uint64_t key,
                                    uint32_t found)
{
    return GA_SLABHASH_IS_GROWING(kind) &&
           ga_slabhash_frozen_at(kind, tile, row, key, found) != GA_NONE;
}

/* Whether the walk came to the end of a chain that is frozen to its end. */
GA_SIMT bool ga_slabhash_is_sealed(uint32_t kind, ga_slabhash_walk walk)
{
    return GA_SLABHASH_IS_GROWING(kind) && walk.link == GA_SLABHASH_SEALED;
}

/* What is said of a key that is not here, or not here any more: `result`, unless the chain is frozen
 * to its end, so that it may have come back in the newer generation. */
GA_SIMT uint32_t ga_slabhash_miss_result(uint32_t kind, ga_slabhash_walk walk, uint32_t result)
{
    return ga_slabhash_is_sealed(kind, walk) && GA_SLABHASH_MUTANT != 22 ? GA_SLABHASH_MOVES
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
            /* The key's own place: it is nowhere else. Or one that it was taken out of now. */
            if (!GA_SLABHASH_IS_MULTI(kind)) {
                break;
            }
        }
    } while (ga_slabhash_walk_next(kind, table, tile, &walk, row, false));
    return ga_slabhash_answer_of(GA_SLABHASH_ABSENT, 0);
}

/* Write the `number`th value down, where there is room for it. */
GA_SIMT void ga_slabhash_write_value(ga_tile tile, uint64_t *values, uint64_t room, uint64_t number,
                                     uint64_t value)
{
    GA_EACH_LANE(tile, number < room ? 1u << ga_tile_leader(tile) : 0, own)
    {
        (void)own;
        values[number] = value;
    }
}

/* All values of the key, the first `room` of them written down. Answers how many; 0 for keys that
 * are reserved or too wide. A unique key is looked for once: taken out and put in again further on
 * meanwhile, it would be counted twice. */
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

/* What is to be put in, and how where the key is there. */
typedef struct ga_slabhash_operation {
    uint64_t key, value;
    uint32_t op;  /* GA_SLABHASH_INSERT, _REPLACE or _APPLY */
    uint32_t how; /* of the last; GA_SLABHASH_HOW_COUNT: `function` */
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
#ifdef __CUDACC__
        return GA_SLABHASH_FUNCTION(there, operation.value);
#else
        return operation.function(operation.context, there, operation.value);
#endif
    }
}

/* The key's place is `place` of the slab, as loaded. False where it has changed since. */
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
        if (GA_SLABHASH_MODE(kind) == GA_SLABHASH_MAP64 && after > ga_slabhash_value_most(kind)) {
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

/* The path is at its end, and has no empty place: another slab, with the pair in it. False where
 * somebody else was faster, and the walk is at his slab. */
GA_SIMT bool ga_slabhash_append(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                ga_slabhash_walk *walk, ga_slab_claimed *claimed,
                                ga_slabhash_operation operation, ga_slabhash_answer *answer)
{
    /* relaxed: a figure */
    if (GA_SLABHASH_IS_GROWING(kind) && ga_load_relaxed(table.chained) >= table.most) {
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
    claimed->units |= 1u << unit % 32u; /* the word is still the one it came from */
    ga_slabhash_follow_link(kind, table, tile, walk, linked_unit);
    return false;
}

/* Pairs of a tile's lanes, one each, in tables of unique keys that stay in one array. Each lane has seen
 * all of its key's path, which ended with `row`, full and without the key: as long as no slab is behind
 * that nothing of the path has changed, as far as the key goes. */
typedef struct ga_slabhash_pairs {
    ga_lanes key, key_high, value, value_high;
    ga_lanes row, row_high; /* the slab's address */
} ga_slabhash_pairs;

/* The lane writes the slab anew, as ga_slabhash_init_slab() does. */
GA_SIMT void ga_slabhash_lane_init_slab(uint32_t kind, uint32_t *row, uint64_t key, uint64_t value)
{
    uint32_t *words = (uint32_t *)__builtin_assume_aligned(row, 4u * GA_SLABHASH_WORDS);
    GA_UNROLL
    for (uint32_t i = 0; i < GA_SLABHASH_WORDS; i++) {
        words[i] = ga_slabhash_fresh_word(kind, i, key, value);
    }
}

/* Each lane of the mask puts its pair in a slab of its own and links that, with the lowest units that
 * the tile has, of which there are as many. Answers the mask of those who have; of the others somebody
 * was faster, and their units are left. */
GA_SIMT uint32_t ga_slabhash_append_some(uint32_t kind, ga_slabhash_view table, ga_tile tile,
                                         uint32_t lanes, const ga_slabhash_pairs *pairs,
                                         ga_slab_claimed *claimed)
{
    ga_lanes slot = ga_lanes_all(0), linked = ga_lanes_all(0);
    uint32_t units = claimed->units;
    for (uint32_t left = lanes; left; left &= left - 1u, units &= units - 1u) {
        GA_EACH_LANE(tile, left & (0u - left), own)
        {
            ga_lane_write(&slot, own, ga_bits_lowest(units));
        }
    }
    GA_EACH_LANE(tile, lanes, own)
    {
        uint32_t unit = claimed->word * 32u + ga_lane_read(slot, own);
        uint32_t *end = (uint32_t *)(uintptr_t)(ga_lane_read(pairs->row, own) |
                                                (uint64_t)ga_lane_read(pairs->row_high, own) << 32);
        ga_slabhash_lane_init_slab(
            kind, ga_slabhash_row(table, unit),
            ga_lane_read(pairs->key, own) | (uint64_t)ga_lane_read(pairs->key_high, own) << 32,
            ga_lane_read(pairs->value, own) | (uint64_t)ga_lane_read(pairs->value_high, own) << 32);
        ga_slabhash_test_yield();
        bool is = ga_slabhash_lane_link(kind, end, unit) == unit;
        ga_lane_write(&linked, own, is ? 1u : 0u);
    }
    uint32_t done = ga_lanes_nonzero(tile, linked);
    for (uint32_t left = done; left; left &= left - 1u) {
        claimed->units &= ~(1u << ga_lanes_get(tile, slot, ga_bits_lowest(left)));
    }
    return done;
}

/* The same for any number of them, as far as there is memory: no other lanes are answered. */
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
        if (!now) { /* no memory */
            break;
        }
        done |= ga_slabhash_append_some(kind, table, tile, now, pairs, claimed);
    }
    return done;
}

/* Put the pair in. The walk goes through the whole path, remembers the first empty place, and fills
 * it; where that fails it goes on from there. */
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
            ga_row_get(tile, row, GA_SLABHASH_OVERFLOW_BITS) & walk.class_bit) {
            ga_slabhash_tile_set_overflow(kind, tile, walk.row, walk.class_bit);
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

/* All pairs of the key, which is allowed: FOUND or ABSENT, or MOVES; `count` goes up by each that
 * was taken out, whatever the result. A place that changes meanwhile is looked at again, with its
 * slab. A unique key is taken out once, as it is found once. */
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

/* Answers how many were taken out; 0 for keys that are reserved or too wide. */
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
