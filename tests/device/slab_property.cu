/* SPDX-License-Identifier: MIT
 *
 * No two live units overlap: each unit has a shadow word. The owner exchanges it for its own number
 * when it gets the unit, and must find 0; when it releases the unit it must find its number. Claims
 * by lanes, one or several at once, by tiles of each width a word at a time, and by tiles one unit
 * at a time, all at once, on heaps that are half full to full.
 */
#include "slab_gpu.h"

#include <time.h>

enum {
    ROUNDS = 64, /* of a launch */
    KEEP = 2,    /* units that a lane keeps from round to round */
    GROUP = 4,   /* units that it claims and frees together */
    LEVELS = 5
};

#define NOTHING GA_SLAB_FULL
#define LASTING 0x80000000u /* owners that keep their units all the time */

typedef struct churn {
    ga_kernel_heap heap;
    uint32_t *shadow;
    slab_tally *tally;
    uint32_t seed;
} churn;

/* The units of a lane. */
typedef struct holder {
    uint32_t me;
    uint32_t kept[KEEP];
    uint32_t given, released, full;
} holder;

/* ---- the shadow ------------------------------------------------------------------------- */

/* Relaxed, both: the bitmap's order makes the former owner's exchange come first. */
static __device__ void take_shadow(const churn *c, uint32_t unit, uint32_t me)
{
    uint32_t before = ga_exchange_relaxed(c->shadow + unit, me);
    if (before) {
        slab_note_wrong(c->tally, SLAB_OVERLAP, unit, me, before);
    }
}

static __device__ void leave_shadow(const churn *c, uint32_t unit, uint32_t me)
{
    uint32_t before = ga_exchange_relaxed(c->shadow + unit, 0);
    if (before != me) {
        slab_note_wrong(c->tally, SLAB_LOST, unit, before, me);
    }
}

static __device__ uint32_t note_given(const churn *c, holder *h, const void *unit)
{
    uint32_t number = NOTHING;
    if (unit) {
        number = slab_number(c->heap, unit, c->tally);
    }
    if (number != NOTHING) {
        take_shadow(c, number, h->me);
        h->given++;
    } else {
        h->full++;
    }
    return number;
}

static __device__ void release(const churn *c, holder *h, uint32_t number)
{
    leave_shadow(c, number, h->me);
    h->released++;
    ga_slab_release(c->heap, ga_slab_pointer(ga_slab_view_of_kernel(c->heap), number));
}

/* ---- the ways to claim ------------------------------------------------------------------ */

/* Each lane for itself, as its own dice say. */
static __device__ void by_lanes(const churn *c, holder *h, uint32_t dice)
{
#pragma unroll
    for (uint32_t k = 0; k < KEEP; k++) {
        uint32_t own = ga_bits_mix(dice + 32u * k + ga_warp_lane());
        if (h->kept[k] != NOTHING) {
            if (own & 1u) {
                release(c, h, h->kept[k]);
                h->kept[k] = NOTHING;
            }
        } else if (own & 6u) {
            h->kept[k] = note_given(c, h, ga_slab_claim(c->heap));
        }
    }
}

/* A unit for each lane of the tile, one lane after the other. */
template <uint32_t width> static __device__ void by_words(const churn *c, holder *h)
{
    uint32_t mine = NOTHING;
    ga_slab_tile_cache cache = ga_slab_tile_cache_begin(c->heap, width);
    for (uint32_t i = 0; i < width; i++) {
        void *unit = ga_slab_tile_cache_claim(&cache);
        if (cache.tile.lane == i) {
            mine = note_given(c, h, unit);
        }
        if (!unit) {
            break;
        }
    }
    ga_slab_tile_cache_end(&cache);
    if (mine != NOTHING) {
        release(c, h, mine);
    }
}

/* As above by the paper's method, where the tile also frees; a quarter each. */
template <uint32_t width> static __device__ void by_ones(const churn *c, holder *h, uint32_t dice)
{
    uint32_t mine = NOTHING;
    ga_tile tile = ga_tile_of(width);
    ga_slab_view slab = ga_slab_view_of_kernel(c->heap);
    ga_slab_resident resident;
    ga_slab_resident_begin(slab, tile, ga_bits_mix(dice + tile.base), &resident);
    for (uint32_t i = 0; i < width / 4u; i++) {
        uint32_t unit = ga_slab_claim_one(slab, tile, &resident);
        if (tile.lane == i) {
            mine = note_given(c, h, unit == NOTHING ? NULL : ga_slab_pointer(slab, unit));
        }
        if (unit == NOTHING) {
            break;
        }
    }
    for (uint32_t i = 0; i < width / 4u; i++) {
        uint32_t unit = ga_lanes_get(tile, mine, i);
        if (unit == NOTHING) {
            break;
        }
        if (tile.lane == i) {
            leave_shadow(c, unit, h->me);
            h->released++;
        }
        ga_slab_release_one(slab, tile, unit);
    }
}

/* Several units for each lane, which are freed together. */
static __device__ void by_groups(const churn *c, holder *h, uint32_t dice)
{
    uint32_t numbers[GROUP];
    void *units[GROUP];
#pragma unroll
    for (uint32_t k = 0; k < GROUP; k++) {
        units[k] = NULL;
        numbers[k] = NOTHING;
        if (ga_bits_mix(dice + 32u * k + ga_warp_lane()) % 4u) {
            units[k] = ga_slab_claim(c->heap);
            numbers[k] = note_given(c, h, units[k]);
        }
    }
#pragma unroll
    for (uint32_t k = 0; k < GROUP; k++) {
        if (numbers[k] != NOTHING) {
            leave_shadow(c, numbers[k], h->me);
            h->released++;
        }
    }
    slab_release_group(c->heap, units, GROUP);
}

static __device__ void one_round(const churn *c, holder *h, uint32_t dice)
{
    switch (dice % 12u) {
    case 0:
        by_words<4>(c, h);
        break;
    case 1:
        by_words<8>(c, h);
        break;
    case 2:
        by_words<16>(c, h);
        break;
    case 3:
        by_words<32>(c, h);
        break;
    case 4:
        by_ones<4>(c, h, dice);
        break;
    case 5:
        by_ones<8>(c, h, dice);
        break;
    case 6:
        by_ones<16>(c, h, dice);
        break;
    case 7:
        by_ones<32>(c, h, dice);
        break;
    case 8:
        by_groups(c, h, dice);
        break;
    default:
        by_lanes(c, h, dice);
    }
}

static __global__ void __launch_bounds__(SLAB_BLOCK) churn_kernel(churn c, uint32_t rounds)
{
    holder h = {};
    h.me = slab_thread() + 1u;
    h.kept[0] = h.kept[1] = NOTHING;
    for (uint32_t round = 0; round < rounds; round++) {
        one_round(&c, &h, ga_bits_mix(c.seed + ga_bits_mix(slab_thread() / 32u * 4099u + round)));
        __syncwarp();
    }
    for (uint32_t k = 0; k < KEEP; k++) {
        if (h.kept[k] != NOTHING) {
            release(&c, &h, h.kept[k]);
        }
    }
    ga_tile tile = ga_tile_of(32);
    uint32_t given = ga_lanes_sum(tile, h.given);
    uint32_t released = ga_lanes_sum(tile, h.released);
    uint32_t full = ga_lanes_sum(tile, h.full);
    if (tile.lane == 0) {
        slab_count(&c.tally->given, given);
        slab_count(&c.tally->released, released);
        slab_count(&c.tally->full, full);
    }
}

/* ---- levels ----------------------------------------------------------------------------- */

/* Claim every unit, then free those beyond `permille`, spread over the heap. */
static __global__ void fill_kernel(churn c, uint32_t units)
{
    uint32_t i = slab_thread();
    if (i < units) {
        void *unit = ga_slab_claim(c.heap);
        uint32_t number = unit ? slab_number(c.heap, unit, c.tally) : NOTHING;
        slab_count(unit ? &c.tally->given : &c.tally->full, 1);
        if (number != NOTHING) {
            take_shadow(&c, number, LASTING | i);
        }
    }
}

static __global__ void thin_kernel(churn c, uint32_t units, uint32_t permille)
{
    uint32_t i = slab_thread();
    if (i < units && c.shadow[i] && ga_bits_mix(i + c.seed) % 1000u >= permille) {
        leave_shadow(&c, i, LASTING | (c.shadow[i] & ~LASTING));
        slab_count(&c.tally->released, 1);
        ga_slab_release(c.heap, ga_slab_pointer(ga_slab_view_of_kernel(c.heap), i));
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

typedef struct level {
    uint32_t permille; /* of the units are claimed permanently */
    double share;      /* of the operations; the last level does the rest */
    double patience;   /* seconds: a full heap answers NULL more often than not */
} level;

static const level levels[LEVELS] = {
    {1000 - 1, 0.05, 3}, {990, 0.05, 3}, {900, 0.3, 5}, {750, 0.3, 5}, {500, 1, 60}};

/* Launches until `wanted` more operations are done; returns their number. */
static uint64_t churn_until(churn *c, const level *l, uint64_t wanted, uint32_t blocks)
{
    uint64_t done = 0;
    uint64_t full = 0;
    uint32_t launches = 0;
    double begin = seconds();
    while (done < wanted && seconds() - begin < l->patience) {
        c->seed = c->seed * 1664525u + 1013904223u;
        churn_kernel<<<blocks, SLAB_BLOCK>>>(*c, suite.quick ? 8 : ROUNDS);
        if (!KERNELS_DONE()) {
            break;
        }
        slab_tally found = READ_TALLY(c->tally);
        EXPECT_EQUAL("the units released", found.released, found.given);
        done += found.given + found.released;
        full += found.full;
        launches++;
        if (found.wrong) {
            break;
        }
    }
    double took = seconds() - begin;
    printf("    %u of 1000 taken: %llu operations and %llu times FULL in %u launches, %.2f s, "
           "%.2f G/s\n",
           l->permille, (unsigned long long)done, (unsigned long long)full, launches, took,
           (double)done / took * 1e-9);
    return done;
}

static bool fill_to(slab_test_heap *heap, churn *c, const level *l, uint64_t *lasting)
{
    uint32_t units = slab_units(heap);
    EXPECT_STATUS(ga_slab_kernel_reset(heap->slab), GA_OK);
    CUDA_DONE(cudaMemset(c->shadow, 0, (size_t)units * sizeof *c->shadow));
    fill_kernel<<<slab_grid(units), SLAB_BLOCK>>>(*c, units);
    thin_kernel<<<slab_grid(units), SLAB_BLOCK>>>(*c, units, l->permille);
    if (!KERNELS_DONE()) {
        return false;
    }
    slab_tally found = READ_TALLY(c->tally);
    *lasting = found.given - found.released;
    return EXPECT_EQUAL("the units that fill the heap", found.given, units) && !found.wrong;
}

static void property_of(int device, const slab_options *options, uint64_t wanted)
{
    cudaDeviceProp properties;
    slab_test_heap heap;
    churn c = {};
    uint64_t done = 0;
    if (!CUDA_DONE(cudaGetDeviceProperties(&properties, device)) ||
        !slab_open(&heap, device, options)) {
        return;
    }
    uint32_t blocks = suite.quick ? 8 : (uint32_t)properties.multiProcessorCount * 4u;
    c.heap = heap.view;
    c.seed = options->unit;
    c.shadow = (uint32_t *)suite_memory((size_t)slab_units(&heap) * sizeof *c.shadow);
    c.tally = slab_tally_new();
    for (uint32_t i = 0; c.shadow && c.tally && i < LEVELS; i++) {
        uint64_t lasting = 0;
        uint64_t share = (uint64_t)((double)wanted * levels[i].share);
        uint64_t left = wanted > done ? wanted - done : 0;
        if (!fill_to(&heap, &c, &levels[i], &lasting)) {
            break;
        }
        done += churn_until(&c, &levels[i], share < left ? share : left, blocks);
        EXPECT_LIVE(&heap, lasting);
    }
    printf("    units of %u bytes, %s: %llu operations\n", options->unit,
           options->light ? "light" : "two-level", (unsigned long long)done);
    if (done < wanted) {
        FAIL("%llu operations, got %llu", (unsigned long long)wanted, (unsigned long long)done);
    }
    cudaFree(c.tally);
    cudaFree(c.shadow);
    slab_close(&heap);
}

static void no_overlap(int device)
{
    static const slab_options all_options[] = {{16, 9, 3, 3, true, false, NULL},
                                               {48, 9, 3, 3, false, false, NULL}};
    static const slab_options small = {16, 2, 1, 1, true, false, NULL};
    uint64_t wanted = suite.operations ? suite.operations : suite.quick ? 20000 : 1000000000;
    if (suite.quick) {
        property_of(device, &small, wanted);
        return;
    }
    property_of(device, &all_options[0], wanted - wanted / 5);
    property_of(device, &all_options[1], wanted / 5);
}

extern const test_case slab_property_cases[] = {
    {"no two live units overlap", no_overlap},
};
extern const size_t slab_property_case_count =
    sizeof slab_property_cases / sizeof *slab_property_cases;
