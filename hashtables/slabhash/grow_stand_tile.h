/* SPDX-License-Identifier: MIT
 *
 * What a tile knows of the arrays of a table that grows while kernels run (grow_gone_tile.h): its
 * stand. It may be as old as it likes; grow_turn_tile.h says why that does no harm, and has the
 * STRUCTURE and the ORDER of the record.
 */
#ifndef GPUALLOC_SLABHASH_GROW_STAND_TILE_H
#define GPUALLOC_SLABHASH_GROW_STAND_TILE_H

#include "grow_gone_tile.h"

enum {
    GA_SLABHASH_SELDOM = 16, /* requests between two looks at the record, */
    GA_SLABHASH_RARELY = 128 /* or calls of whole warps that only search */
};

/* What a tile knows of the record, the same in all its lanes, from ga_slabhash_stand_begin() to
 * _end(): so long it is in an epoch. */
typedef struct ga_slabhash_stand {
    uint32_t *rows, *next_rows; /* of stage `number`, and the next: NULL where there was none */
    uint32_t buckets, next_buckets;
    uint32_t number;
    /* Requests until it looks again, times 128; whether it has changed something; and the pin of its
     * epoch. */
    uint32_t clock;
} ga_slabhash_stand;

#define GA_SLABHASH_CHANGED (2u * GA_EPOCH_STRIPES) /* of `clock`: pins are less */
#define GA_SLABHASH_REQUEST (2u * GA_SLABHASH_CHANGED)

GA_SIMT uint32_t ga_slabhash_stand_pin(const ga_slabhash_stand *stand)
{
    return stand->clock % GA_SLABHASH_CHANGED;
}

/* The tile is asked to change something, or was. */
GA_SIMT void ga_slabhash_stand_changes(ga_slabhash_stand *stand, bool changes)
{
    stand->clock |= changes ? GA_SLABHASH_CHANGED : 0;
}

GA_SIMT bool ga_slabhash_stand_has_changed(const ga_slabhash_stand *stand)
{
    return (stand->clock & GA_SLABHASH_CHANGED) != 0;
}

/* It looks again after so many requests, */
GA_SIMT void ga_slabhash_stand_waits(ga_slabhash_stand *stand, uint32_t requests)
{
    stand->clock = requests * GA_SLABHASH_REQUEST | stand->clock % GA_SLABHASH_REQUEST;
}

/* with the next one, */
GA_SIMT bool ga_slabhash_stand_is_due(const ga_slabhash_stand *stand)
{
    return stand->clock < 2u * GA_SLABHASH_REQUEST;
}

/* with this one: there is another. */
GA_SIMT bool ga_slabhash_stand_counts(ga_slabhash_stand *stand)
{
    stand->clock -= GA_SLABHASH_REQUEST;
    return stand->clock < GA_SLABHASH_REQUEST;
}

/* `now` first: what it says is there. Behind T2. */
GA_SIMT void ga_slabhash_stand_take(ga_slabhash_growing *growing, ga_tile tile,
                                    ga_slabhash_stand *stand)
{
    uint32_t now = ga_slabhash_ask(tile, &growing->now);     /* H2. Pairs with H1 */
    uint32_t there = ga_slabhash_ask(tile, &growing->there); /* G2. Pairs with G1 */
    const ga_slabhash_stage *stage = ga_slabhash_stage_of(growing, now);
    const ga_slabhash_stage *next = ga_slabhash_stage_of(growing, now + 1u);
    bool moves = now + 1u < there;
    stand->number = now;
    stand->rows = stage->rows;
    stand->buckets = stage->buckets;
    stand->next_rows = moves ? next->rows : NULL;
    stand->next_buckets = moves ? next->buckets : 0;
    ga_slabhash_stand_waits(stand, GA_SLABHASH_SELDOM);
}

/* The tile enters an epoch, and reads the record. Neighbours have different numbers. */
GA_SIMT void ga_slabhash_stand_begin(ga_slabhash_growing *growing, ga_tile tile,
                                     ga_slabhash_stand *stand, uint32_t number)
{
    stand->clock =
        GA_SLABHASH_MUTANT == 29 ? 0 : ga_epoch_enter(&growing->epochs, tile, number); /* T2 */
    ga_slabhash_nap();
    ga_slabhash_stand_take(growing, tile, stand);
}

/* It leaves, and uses no array any more. */
GA_SIMT void ga_slabhash_stand_end(ga_slabhash_growing *growing, ga_tile tile,
                                   const ga_slabhash_stand *stand)
{
    if (GA_SLABHASH_MUTANT != 29 && GA_SLABHASH_MUTANT != 39) {
        ga_epoch_leave(&growing->epochs, tile, ga_slabhash_stand_pin(stand)); /* L1 */
    }
}

/* It reads the record anew, and where somebody waits for that enters another epoch before: what it
 * had from the stand until now it does not use any more. */
GA_SIMT void ga_slabhash_stand_read(ga_slabhash_growing *growing, ga_tile tile,
                                    ga_slabhash_stand *stand)
{
    uint32_t pin = ga_slabhash_stand_pin(stand);
    if (GA_SLABHASH_MUTANT != 29 && ga_epoch_is_closed(&growing->epochs, tile, pin)) {
        uint32_t number = pin >> 1; /* its stripe */
        bool changed = ga_slabhash_stand_has_changed(stand);
        if (GA_SLABHASH_MUTANT == 32) {
            ga_slabhash_stand_take(growing, tile, stand);
            ga_epoch_leave(&growing->epochs, tile, pin);
            for (uint32_t i = 0; i < 2048; i++) {
                ga_slabhash_nap();
            }
            stand->clock = ga_epoch_enter(&growing->epochs, tile, number);
            ga_slabhash_stand_waits(stand, GA_SLABHASH_SELDOM);
            return;
        }
        ga_epoch_leave(&growing->epochs, tile, pin);                   /* L1 */
        stand->clock = ga_epoch_enter(&growing->epochs, tile, number); /* T2 */
        ga_slabhash_stand_changes(stand, changed);
    }
    ga_slabhash_nap();
    ga_slabhash_stand_take(growing, tile, stand);
}

/* Something that was met says that there is a newer stage than the stand's newest: whoever did it
 * had read so, and what is read here says so at once, or as soon as that comes through. */
GA_SIMT void ga_slabhash_stand_on(ga_slabhash_growing *growing, ga_tile tile,
                                  ga_slabhash_stand *stand)
{
    uint32_t newest = stand->number + (stand->next_rows ? 1u : 0u);
    do {
        ga_slabhash_stand_read(growing, tile, stand);
    } while (stand->number + (stand->next_rows ? 1u : 0u) <= newest);
}

/* From where to where, for a table of which all but the array is said. */
GA_SIMT ga_slabhash_shift ga_slabhash_shift_of(ga_slabhash_view table, ga_slabhash_growing *growing,
                                               const ga_slabhash_stand *stand)
{
    ga_slabhash_shift shift;
    shift.from = table;
    shift.from.rows = stand->rows;
    shift.from.buckets = stand->buckets;
    shift.from.chained = &ga_slabhash_stage_of(growing, stand->number)->chained;
    shift.to = shift.from;
    shift.to.rows = stand->next_rows;
    shift.to.buckets = stand->next_buckets;
    shift.hash = NULL;
    shift.context = NULL;
    shift.chained = NULL;
    if (stand->next_rows) {
        shift.chained = &ga_slabhash_stage_of(growing, stand->number + 1u)->chained;
        shift.to.chained = shift.chained;
    }
#ifndef __CUDACC__
    shift.hash = growing->hash;
    shift.context = growing->context;
#endif
    return shift;
}

#endif
