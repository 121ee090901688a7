/* SPDX-License-Identifier: MIT
 *
 * The live blocks of a CUDA program: whose an address is, whatever the order in which blocks come
 * and go.
 */
#include "../../interpose/cuda/blocks.h"
#include "support/random.h"

#include <criterion/criterion.h>

enum {
    PLACES = 512,
    PLACE_BYTES = 1000,
    STEPS = 100000
};

static size_t sizes[PLACES]; /* 0: nothing stands there */

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
    cr_assert(ga_cuda_blocks_put(&ga_cuda_live, &block));
    sizes[place] = size;
}

static void take(size_t place)
{
    ga_cuda_block found = {0};
    cr_assert_eq(ga_cuda_blocks_take(&ga_cuda_live, start_of(place), &found), sizes[place] != 0);
    cr_assert_eq(found.size, sizes[place]);
    cr_assert(!ga_cuda_blocks_take(&ga_cuda_live, start_of(place), &found));
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

/* In the order of addresses, which is the worst for a tree without ranks. */
Test(cuda_blocks, in_order)
{
    for (size_t i = 0; i < 100000; i++) {
        ga_cuda_block block = {.start = 0x1000 + i * 16, .size = 16, .generation = 1};
        cr_assert(ga_cuda_blocks_put(&ga_cuda_live, &block));
    }
    for (size_t i = 0; i < 100000; i++) {
        ga_cuda_block found;
        cr_assert(ga_cuda_blocks_take(&ga_cuda_live, 0x1000 + i * 16, &found));
    }
}

Test(cuda_blocks, of_a_device)
{
    ga_cuda_block found;
    size_t left = 0;
    for (size_t place = 0; place < PLACES; place++) {
        put(place, 1);
    }
    while (ga_cuda_blocks_take_any(&ga_cuda_live, 1, &found)) {
        cr_assert_eq(found.device, 1);
        left++;
    }
    cr_assert_eq(left, PLACES / 3 + 1);
    for (size_t place = 0; place < PLACES; place++) {
        cr_assert_eq(ga_cuda_blocks_take(&ga_cuda_live, start_of(place), &found), place % 3 != 1);
    }
}

/* One of the driver's is taken once, and known as going until it is gone or stands there anew. */
Test(cuda_blocks, going)
{
    const ga_cuda_block block = {.start = 0x1000, .size = 16, .generation = 1, .drivers = true};
    ga_cuda_block found;
    cr_assert(ga_cuda_blocks_put(&ga_cuda_live, &block));
    cr_assert(!ga_cuda_blocks_is_going(&ga_cuda_live, 0x1000));
    for (int round = 0; round < 2; round++) {
        cr_assert(ga_cuda_blocks_take(&ga_cuda_live, 0x1000, &found));
        cr_assert(!ga_cuda_blocks_take(&ga_cuda_live, 0x1000, &found));
        cr_assert(ga_cuda_blocks_is_going(&ga_cuda_live, 0x1000));
        cr_assert(ga_cuda_blocks_put(&ga_cuda_live, &block));
        ga_cuda_blocks_gone(&ga_cuda_live, &block); /* which came too late */
    }
    cr_assert(ga_cuda_blocks_take(&ga_cuda_live, 0x1000, &found));
    ga_cuda_blocks_gone(&ga_cuda_live, &block);
    cr_assert(!ga_cuda_blocks_is_going(&ga_cuda_live, 0x1000));
    cr_assert(!ga_cuda_blocks_take_any(&ga_cuda_live, 0, &found));
}

Test(cuda_blocks, none)
{
    ga_cuda_block found;
    cr_assert(!ga_cuda_blocks_find(&ga_cuda_live, 0, &found));
    cr_assert(!ga_cuda_blocks_take(&ga_cuda_live, 0, &found));
    cr_assert(!ga_cuda_blocks_take_any(&ga_cuda_live, 0, &found));
}
