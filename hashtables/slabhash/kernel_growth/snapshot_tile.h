/* SPDX-License-Identifier: MIT
 *
 * A tile's snapshot of the record of a table that grows while kernels run (arrays_tile.h). It may
 * be stale; resize_tile.h says why that is safe, and has the STRUCTURE and the ORDER of the record.
 */
#ifndef GPUALLOC_SLABHASH_KERNEL_GROWTH_SNAPSHOT_TILE_H
#define GPUALLOC_SLABHASH_KERNEL_GROWTH_SNAPSHOT_TILE_H

#include "arrays_tile.h"

enum {
    GA_SLABHASH_RENEW_REQUESTS = 16, /* requests between two reads of the record, */
    GA_SLABHASH_RENEW_SEARCHES = 128 /* or calls of whole warps that only search */
};

/* A tile's copy of the record's state, equal in all its lanes. From ga_slabhash_snapshot_begin() to
 * _end() the tile is in an epoch. */
typedef struct ga_slabhash_snapshot {
    uint32_t *rows, *next_rows; /* of version `number`, and the next; NULL: there was none */
    uint32_t buckets, next_buckets;
    uint32_t number;
    /* Three fields: the number of requests until the tile reads the record again, times 128; a bit
     * that says whether it has changed something; and the pin of its epoch. */
    uint32_t clock;
} ga_slabhash_snapshot;

#define GA_SLABHASH_CHANGED (2u * GA_EPOCH_STRIPES) /* of `clock`: pins are smaller */
#define GA_SLABHASH_REQUEST (2u * GA_SLABHASH_CHANGED)

GA_SIMT uint32_t ga_slabhash_snapshot_pin(const ga_slabhash_snapshot *snapshot)
{
    return snapshot->clock % GA_SLABHASH_CHANGED;
}

GA_SIMT void ga_slabhash_snapshot_set_pin(ga_slabhash_snapshot *snapshot, uint32_t pin)
{
    snapshot->clock = snapshot->clock / GA_SLABHASH_CHANGED * GA_SLABHASH_CHANGED | pin;
}

/* The tile has been asked to change something. */
GA_SIMT void ga_slabhash_snapshot_note_change(ga_slabhash_snapshot *snapshot, bool changes)
{
    snapshot->clock |= changes ? GA_SLABHASH_CHANGED : 0;
}

GA_SIMT bool ga_slabhash_snapshot_has_changed(const ga_slabhash_snapshot *snapshot)
{
    return (snapshot->clock & GA_SLABHASH_CHANGED) != 0;
}

/* The tile reads the record again after `requests` requests. */
GA_SIMT void ga_slabhash_snapshot_set_clock(ga_slabhash_snapshot *snapshot, uint32_t requests)
{
    snapshot->clock = requests * GA_SLABHASH_REQUEST | snapshot->clock % GA_SLABHASH_REQUEST;
}

/* The tile reads it with the next request. */
GA_SIMT bool ga_slabhash_snapshot_is_due(const ga_slabhash_snapshot *snapshot)
{
    return snapshot->clock < 2u * GA_SLABHASH_REQUEST;
}

/* Count a request. True: the tile reads the record now. Only this restarts the count: a tile that
 * loads the record for another reason does not do the work that comes with a check
 * (ga_slabhash_check_record), so that must not be put off. */
GA_SIMT bool ga_slabhash_snapshot_count_request(ga_slabhash_snapshot *snapshot)
{
    snapshot->clock -= GA_SLABHASH_REQUEST;
    bool reads = snapshot->clock < GA_SLABHASH_REQUEST;
    if (reads) {
        ga_slabhash_snapshot_set_clock(snapshot, GA_SLABHASH_RENEW_REQUESTS);
    }
    return reads;
}

/* Load the record. `now` first, so that its version exists. After T2. */
GA_SIMT void ga_slabhash_snapshot_load(ga_slabhash_growing *growing, ga_tile tile,
                                       ga_slabhash_snapshot *snapshot)
{
    uint32_t now = ga_slabhash_ask(tile, &growing->now);     /* H2. Pairs with H1 */
    uint32_t there = ga_slabhash_ask(tile, &growing->there); /* G2. Pairs with G1 */
    const ga_slabhash_version *version = ga_slabhash_version_of(growing, now);
    const ga_slabhash_version *next = ga_slabhash_version_of(growing, now + 1u);
    bool moves = now + 1u < there;
    snapshot->number = now;
    snapshot->rows = version->rows;
    snapshot->buckets = version->buckets;
    snapshot->next_rows = moves ? next->rows : NULL;
    snapshot->next_buckets = moves ? next->buckets : 0;
}

/* The tile enters an epoch and loads the record. Neighbouring tiles pass different numbers. */
GA_SIMT void ga_slabhash_snapshot_begin(ga_slabhash_growing *growing, ga_tile tile,
                                        ga_slabhash_snapshot *snapshot, uint32_t number)
{
    snapshot->clock = GA_PLANTED(slabhash_epoch_not_entered)
                          ? 0
                          : ga_epoch_enter(&growing->epochs, tile, number); /* T2 */
    ga_slabhash_snapshot_set_clock(snapshot, GA_SLABHASH_RENEW_REQUESTS);
    ga_slabhash_test_yield();
    ga_slabhash_snapshot_load(growing, tile, snapshot);
}

/* The tile leaves its epoch, and uses no array any more. */
GA_SIMT void ga_slabhash_snapshot_end(ga_slabhash_growing *growing, ga_tile tile,
                                      const ga_slabhash_snapshot *snapshot)
{
    if (!GA_PLANTED(slabhash_epoch_not_entered) && !GA_PLANTED(slabhash_epoch_not_left)) {
        ga_epoch_leave(&growing->epochs, tile, ga_slabhash_snapshot_pin(snapshot)); /* L1 */
    }
}

/* Load the record anew. If another tile waits for the epoch to drain, enter a new one first; then
 * nothing that was read through the old snapshot may be used any more. */
GA_SIMT void ga_slabhash_snapshot_renew(ga_slabhash_growing *growing, ga_tile tile,
                                        ga_slabhash_snapshot *snapshot)
{
    uint32_t pin = ga_slabhash_snapshot_pin(snapshot);
    if (!GA_PLANTED(slabhash_epoch_not_entered) &&
        ga_epoch_is_closed(&growing->epochs, tile, pin)) {
        uint32_t number = pin >> 1; /* its stripe */
        if (GA_PLANTED(slabhash_epoch_entered_late)) {
            ga_slabhash_snapshot_load(growing, tile, snapshot);
            ga_epoch_leave(&growing->epochs, tile, pin);
            for (uint32_t i = 0; i < 2048; i++) {
                ga_slabhash_test_yield();
            }
            ga_slabhash_snapshot_set_pin(snapshot, ga_epoch_enter(&growing->epochs, tile, number));
            return;
        }
        ga_epoch_leave(&growing->epochs, tile, pin); /* L1 */
        ga_slabhash_snapshot_set_pin(snapshot,
                                     ga_epoch_enter(&growing->epochs, tile, number)); /* T2 */
    }
    ga_slabhash_test_yield();
    ga_slabhash_snapshot_load(growing, tile, snapshot);
}

/* The tile has met a sign of a newer version than the snapshot knows: the tile that left the sign
 * had read of it. Load the record until it shows the newer version. */
GA_SIMT void ga_slabhash_snapshot_advance(ga_slabhash_growing *growing, ga_tile tile,
                                          ga_slabhash_snapshot *snapshot)
{
    uint32_t newest = snapshot->number + (snapshot->next_rows ? 1u : 0u);
    do {
        ga_slabhash_snapshot_renew(growing, tile, snapshot);
    } while (snapshot->number + (snapshot->next_rows ? 1u : 0u) <= newest);
}

/* The two versions of the move, for a table whose view has everything but the array. */
GA_SIMT ga_slabhash_shift ga_slabhash_shift_of(ga_slabhash_view table, ga_slabhash_growing *growing,
                                               const ga_slabhash_snapshot *snapshot)
{
    ga_slabhash_shift shift;
    shift.from = table;
    shift.from.rows = snapshot->rows;
    shift.from.buckets = snapshot->buckets;
    shift.from.chained = &ga_slabhash_version_of(growing, snapshot->number)->chained;
    shift.to = shift.from;
    shift.to.rows = snapshot->next_rows;
    shift.to.buckets = snapshot->next_buckets;
    shift.hash = NULL;
    shift.context = NULL;
    shift.chained = NULL;
    if (snapshot->next_rows) {
        shift.chained = &ga_slabhash_version_of(growing, snapshot->number + 1u)->chained;
        shift.to.chained = shift.chained;
    }
    ga_slabhash_array_hash(&growing->memory, &shift);
    return shift;
}

#endif
