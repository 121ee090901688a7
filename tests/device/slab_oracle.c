/* SPDX-License-Identifier: MIT
 *
 * The CPU's run of a script. The next step depends on the units that the heap and the tiles hold
 * now, so that there are phases of filling and of emptying. Compiled with the spread of heaps for
 * kernels.
 */
#include "slab_oracle.h"

#include "backends/slab/units/shape.h"

#include <stdlib.h>
#include <string.h>

enum {
    WIDTHS = 4 /* 4, 8, 16 and 32 */
};

typedef struct author {
    slab_oracle *oracle;
    uint64_t random;
    uint32_t *held; /* units that a step may free */
    uint32_t held_count;
    uint32_t limit;    /* units there are */
    uint32_t emptying; /* steps that free more than they claim; then the heap fills */
    slab_player players[WIDTHS];
} author;

/* SplitMix64 (Sebastiano Vigna, public domain). */
static uint32_t dice(author *by, uint32_t below)
{
    uint64_t z = by->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32) % below;
}

static uint32_t any_bits(author *by)
{
    return dice(by, 1u << 16) | dice(by, 1u << 16) << 16;
}

/* ---- the heap --------------------------------------------------------------------------- */

static bool make_heap(slab_oracle *oracle)
{
    const slab_plot *plot = &oracle->plot;
    ga_slab_shape shape = {.unit = plot->unit,
                           .super_bits = plot->super_bits,
                           .supers = plot->supers,
                           .spread = GA_SLAB_SPREAD,
                           .light = plot->light};
    oracle->rows_size = ga_slab_super_rows_bytes(&shape) * plot->supers;
    oracle->counts_size = ga_slab_counts_bytes(&shape);
    oracle->rows = aligned_alloc(128, oracle->rows_size);
    oracle->rows_before = malloc(oracle->rows_size);
    oracle->counts = aligned_alloc(128, oracle->counts_size);
    oracle->counts_before = malloc(oracle->counts_size);
    oracle->steps = calloc(plot->count, sizeof *oracle->steps);
    oracle->heap.supers = calloc(plot->supers, sizeof(ga_slab_super));
    ga_slab_heap_shape(&oracle->heap, &shape);
    oracle->heap.super_count = plot->supers;
    oracle->heap.words = (uint32_t)(oracle->rows_size / sizeof(uint32_t));
    oracle->heap.free = oracle->counts;
    return oracle->rows && oracle->rows_before && oracle->counts && oracle->counts_before &&
           oracle->steps && oracle->heap.supers;
}

/* No unit is accessed: only bitmaps and counts exist. */
static void address_rows(slab_oracle *oracle)
{
    size_t each = oracle->rows_size / oracle->plot.supers / sizeof(uint32_t);
    for (uint32_t i = 0; i < oracle->plot.supers; i++) {
        oracle->heap.supers[i].rows = oracle->rows + i * each;
    }
    oracle->heap.rows = oracle->plot.light ? oracle->rows : NULL;
}

static void fill(author *by)
{
    slab_oracle *oracle = by->oracle;
    memset(oracle->rows, 0, oracle->rows_size);
    memset(oracle->counts, 0, oracle->counts_size);
    for (uint32_t unit = 0; unit < by->limit; unit++) {
        if (dice(by, 1000) < oracle->plot.filled) {
            oracle->rows[unit / 32] |= 1u << (unit % 32);
            by->held[by->held_count++] = unit;
        }
    }
    for (uint32_t word = 0; word < oracle->heap.words; word++) {
        uint32_t place = ga_slab_count_index(GA_SLAB_SPREAD, word / GA_SLAB_ROW_WORDS);
        oracle->counts[place] += 32u - ga_bits_count(oracle->rows[word]);
    }
    memcpy(oracle->rows_before, oracle->rows, oracle->rows_size);
    memcpy(oracle->counts_before, oracle->counts, oracle->counts_size);
}

/* ---- steps ------------------------------------------------------------------------------ */

static void note_given(author *by, uint32_t unit)
{
    if (unit == GA_SLAB_FULL) {
        by->oracle->full++;
        by->emptying = 10 + dice(by, 60);
    } else {
        by->oracle->served++;
        by->held[by->held_count++] = unit;
    }
}

/* One of the held units, or the last one: units of one word are freed together. */
static uint32_t hand_over(author *by, bool last)
{
    uint32_t at = last ? by->held_count - 1 : dice(by, by->held_count);
    uint32_t unit = by->held[at];
    by->held[at] = by->held[--by->held_count];
    return unit;
}

static void plan_release(author *by, slab_step *step)
{
    bool last = dice(by, 2);
    uint32_t mask = dice(by, 3) ? GA_ALL_BITS : any_bits(by);
    step->kind = SLAB_RELEASE_LANES;
    step->mask = ga_bits_take(mask, by->held_count);
    for (uint32_t lane = 0; lane < 32; lane++) {
        step->units[lane] = step->mask >> lane & 1 ? hand_over(by, last) : 0;
    }
    if (!step->mask) {
        step->kind = SLAB_CLAIM_LANES;
        step->mask = 1;
    }
}

static void plan(author *by, slab_step *step)
{
    static const uint32_t giving[] = {SLAB_CLAIM_LANES, SLAB_CLAIM_LANES, SLAB_CLAIM_LANES,
                                      SLAB_CLAIM_ONE,   SLAB_CLAIM_ONE,   SLAB_CLAIM_NEXT,
                                      SLAB_CLAIM_NEXT,  SLAB_BEGIN,       SLAB_AIM};
    bool emptying = by->emptying && by->held_count;
    bool one_goes_back = by->held_count && !dice(by, 12);
    step->width = 4u << dice(by, WIDTHS);
    step->start = dice(by, by->oracle->heap.words);
    by->emptying -= by->emptying ? 1 : 0;
    if (one_goes_back) {
        step->kind = SLAB_RELEASE_ONE;
        step->units[0] = hand_over(by, dice(by, 2));
    } else if (dice(by, 16) < (emptying ? 12u : 1u)) {
        plan_release(by, step);
    } else {
        step->kind = giving[dice(by, sizeof giving / sizeof *giving)];
        step->mask = dice(by, 2) ? GA_ALL_BITS : any_bits(by) | 1u;
    }
}

static void play_lanes(author *by, slab_step *step, ga_slab_view slab)
{
    ga_lanes units = slab_play_lanes(slab, step);
    for (uint32_t lane = 0; step->kind == SLAB_CLAIM_LANES && lane < 32; lane++) {
        step->units[lane] = units[lane];
        if (step->mask >> lane & 1) {
            note_given(by, units[lane]);
        }
    }
}

static void play(author *by, slab_step *step)
{
    ga_slab_view slab = ga_slab_view_of(&by->oracle->heap);
    if (step->kind == SLAB_CLAIM_LANES || step->kind == SLAB_RELEASE_LANES) {
        play_lanes(by, step, slab);
        return;
    }
    uint32_t which = ga_bits_lowest(step->width) - 2u;
    uint32_t unit = slab_play_tile(slab, ga_tile_of(step->width), &by->players[which], step);
    if (step->kind == SLAB_CLAIM_ONE || step->kind == SLAB_CLAIM_NEXT) {
        step->units[0] = unit;
        note_given(by, unit);
    }
}

static void play_all(author *by)
{
    slab_oracle *oracle = by->oracle;
    for (uint32_t i = 0; i < oracle->plot.count; i++) {
        slab_step *step = &oracle->steps[i];
        if (i < 2 * WIDTHS) { /* each tile gets its home word before any other step */
            step->kind = i % 2 ? SLAB_AIM : SLAB_BEGIN;
            step->width = 4u << i / 2;
            step->start = dice(by, oracle->heap.words);
        } else {
            plan(by, step);
        }
        play(by, step);
    }
}

/* ---- the oracle ------------------------------------------------------------------------- */

bool slab_oracle_make(slab_oracle *oracle, const slab_plot *plot)
{
    author by = {.oracle = oracle, .random = plot->seed};
    memset(oracle, 0, sizeof *oracle);
    oracle->plot = *plot;
    bool made = make_heap(oracle);
    by.limit = oracle->heap.words * 32u;
    by.held = malloc(by.limit * sizeof *by.held);
    if (made && by.held) {
        address_rows(oracle);
        fill(&by);
        play_all(&by);
    }
    made = made && by.held;
    free(by.held);
    return made;
}

void slab_oracle_free(slab_oracle *oracle)
{
    free(oracle->heap.supers);
    free(oracle->steps);
    free(oracle->counts_before);
    free(oracle->counts);
    free(oracle->rows_before);
    free(oracle->rows);
}

const char *slab_step_name(uint32_t kind)
{
    static const char *const names[SLAB_STEP_KINDS] = {
        "claim lanes", "release lanes", "begin", "claim one", "release one", "aim", "claim next"};
    return kind < SLAB_STEP_KINDS ? names[kind] : "no step";
}
