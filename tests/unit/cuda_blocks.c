/* SPDX-License-Identifier: MIT
 *
 * The live blocks of a CUDA program: an address leads to its block, in any order of allocations and
 * frees.
 */
#include "../../interpose/cuda/blocks.h"
#include "support/random.h"

#include <criterion/criterion.h>

enum {
    PLACES = 512,
    PLACE_BYTES = 1000,
    STEPS = 100000
};

static size_t sizes[PLACES]; /* 0: no block begins there */

static CUdeviceptr start_of(size_t place)
{
    return 0x10000 + place * PLACE_BYTES;
}

static void check(size_t place, size_t offset)
{
    ga_cuda_block found = {0};
    bool inside = offset < sizes[place];
    cr_assert_eq(ga_cuda_blocks_find(&ga_cuda_live, start_of(place) + offset, &found), inside);
    cr_assert(!inside || (found.start == start_of(place) && found.size == sizes[place] &&
                          found.device == (int)(place % 3)));
}

static void put(size_t place, size_t size)
{
    ga_cuda_block block = {
        .start = start_of(place), .size = size, .device = (int)(place % 3), .generation = 1};
    cr_assert(ga_cuda_blocks_insert(&ga_cuda_live, &block));
    sizes[place] = size;
}

static void take(size_t place)
{
    ga_cuda_block found = {0};
    cr_assert_eq(ga_cuda_blocks_remove(&ga_cuda_live, start_of(place), &found), sizes[place] != 0);
    cr_assert_eq(found.size, sizes[place]);
    ga_cuda_blocks_discard(&ga_cuda_live, &found);
    cr_assert(!ga_cuda_blocks_remove(&ga_cuda_live, start_of(place), &found));
    sizes[place] = 0;
}

Test(cuda_blocks, like_a_list)
{
    uint64_t seed = 1;
    for (int i = 0; i < STEPS; i++) {
        size_t place = random_below(&seed, PLACES);
        if (random_below(&seed, 2)) {
            put(place, 1 + random_below(&seed, PLACE_BYTES));
        } else {
            take(place);
        }
        check(random_below(&seed, PLACES), random_below(&seed, PLACE_BYTES));
    }
    for (size_t place = 0; place < PLACES; place++) {
        check(place, 0);
        check(place, PLACE_BYTES - 1);
        take(place);
    }
}

/* In order of addresses, which is the worst case for a tree without ranks. */
Test(cuda_blocks, in_order)
{
    for (size_t i = 0; i < 100000; i++) {
        ga_cuda_block block = {.start = 0x1000 + i * 16, .size = 16, .generation = 1};
        cr_assert(ga_cuda_blocks_insert(&ga_cuda_live, &block));
    }
    for (size_t i = 0; i < 100000; i++) {
        ga_cuda_block found;
        cr_assert(ga_cuda_blocks_remove(&ga_cuda_live, 0x1000 + i * 16, &found));
        ga_cuda_blocks_discard(&ga_cuda_live, &found);
    }
}

Test(cuda_blocks, of_a_device)
{
    ga_cuda_block found;
    size_t left = 0;
    for (size_t place = 0; place < PLACES; place++) {
        put(place, 1);
    }
    while (ga_cuda_blocks_remove_of(&ga_cuda_live, 1, &found)) {
        cr_assert_eq(found.device, 1);
        left++;
    }
    cr_assert_eq(left, PLACES / 3 + 1);
    for (size_t place = 0; place < PLACES; place++) {
        cr_assert_eq(ga_cuda_blocks_remove(&ga_cuda_live, start_of(place), &found), place % 3 != 1);
        if (place % 3 != 1) {
            ga_cuda_blocks_discard(&ga_cuda_live, &found);
        }
    }
}

/* A block of the driver is taken for freeing once, and counts as going until it is gone or its
 * address is recorded anew. */
Test(cuda_blocks, going)
{
    ga_cuda_block block = {.start = 0x1000, .size = 16, .generation = 1, .driver_owned = true};
    ga_cuda_block found;
    cr_assert(ga_cuda_blocks_insert(&ga_cuda_live, &block));
    cr_assert(!ga_cuda_blocks_is_being_freed(&ga_cuda_live, 0x1000));
    for (int round = 0; round < 2; round++) {
        cr_assert(ga_cuda_blocks_remove(&ga_cuda_live, 0x1000, &found));
        cr_assert(!ga_cuda_blocks_remove(&ga_cuda_live, 0x1000, &found));
        cr_assert(ga_cuda_blocks_is_being_freed(&ga_cuda_live, 0x1000));
        cr_assert(ga_cuda_blocks_insert(&ga_cuda_live, &block));
        ga_cuda_blocks_discard(&ga_cuda_live, &found); /* which came too late */
    }
    cr_assert(ga_cuda_blocks_remove(&ga_cuda_live, 0x1000, &found));
    ga_cuda_blocks_discard(&ga_cuda_live, &found);
    cr_assert(!ga_cuda_blocks_is_being_freed(&ga_cuda_live, 0x1000));
    cr_assert(!ga_cuda_blocks_remove_of(&ga_cuda_live, 0, &found));
}

/* The driver may hand out the address of a block that it has freed, before that block is discarded;
 * and the new block may be on its way to be freed by then. It keeps its record. */
Test(cuda_blocks, discarded_late)
{
    ga_cuda_block block = {.start = 0x1000, .size = 16, .generation = 1, .driver_owned = true};
    ga_cuda_block first, second;
    cr_assert(ga_cuda_blocks_insert(&ga_cuda_live, &block));
    cr_assert(ga_cuda_blocks_remove(&ga_cuda_live, 0x1000, &first));
    cr_assert(ga_cuda_blocks_insert(&ga_cuda_live, &block));
    cr_assert(ga_cuda_blocks_remove(&ga_cuda_live, 0x1000, &second));
    ga_cuda_blocks_discard(&ga_cuda_live, &first);
    cr_assert(ga_cuda_blocks_is_being_freed(&ga_cuda_live, 0x1000));
    ga_cuda_blocks_detach(&ga_cuda_live, &second);
    cr_assert_not_null(second.record);
    ga_cuda_blocks_discard(&ga_cuda_live, &second);
    cr_assert(!ga_cuda_blocks_is_being_freed(&ga_cuda_live, 0x1000));
}

/* What was taken, or has memory for its record, is noted without memory. */
Test(cuda_blocks, without_memory)
{
    ga_cuda_block block = {.start = 0x1000, .size = 16, .generation = 1};
    ga_cuda_block found;
    cr_assert(ga_cuda_blocks_new_record(&block));
    struct ga_cuda_blocks_node *record = block.record;
    cr_assert(ga_cuda_blocks_insert(&ga_cuda_live, &block));
    cr_assert_null(block.record);
    cr_assert(ga_cuda_blocks_remove(&ga_cuda_live, 0x1000, &found));
    cr_assert_eq(found.record, record);
    cr_assert(!ga_cuda_blocks_find(&ga_cuda_live, 0x1000, &block));
    cr_assert(ga_cuda_blocks_insert(&ga_cuda_live, &found));
    cr_assert(ga_cuda_blocks_remove(&ga_cuda_live, 0x1000, &found));
    cr_assert_eq(found.record, record);
    ga_cuda_blocks_discard(&ga_cuda_live, &found);
}

Test(cuda_blocks, within)
{
    ga_cuda_block found;
    for (size_t place = 0; place < 6; place++) {
        put(place, 1);
    }
    for (size_t i = 0; i < 3; i++) {
        cr_assert(
            ga_cuda_blocks_remove_within(&ga_cuda_live, start_of(1) + 1, 3 * PLACE_BYTES, &found));
        cr_assert(found.start >= start_of(2) && found.start <= start_of(4));
    }
    cr_assert(
        !ga_cuda_blocks_remove_within(&ga_cuda_live, start_of(1) + 1, 3 * PLACE_BYTES, &found));
    cr_assert(ga_cuda_blocks_remove_within(&ga_cuda_live, 0, start_of(1), &found));
    cr_assert_eq(found.start, start_of(0));
}

Test(cuda_blocks, none)
{
    ga_cuda_block found;
    cr_assert(!ga_cuda_blocks_find(&ga_cuda_live, 0, &found));
    cr_assert(!ga_cuda_blocks_remove(&ga_cuda_live, 0, &found));
    cr_assert(!ga_cuda_blocks_remove_of(&ga_cuda_live, 0, &found));
}
