/* SPDX-License-Identifier: MIT
 *
 * Slab hashes that grow by themselves (resize_tile.h), used by threads as the tiles of kernels
 * (slabhash_turns_tiles.c). It alternates between short histories (slabhash_turns_histories.c) and
 * tables that grow, shrink and are compacted (slabhash_turns_volumes.c).
 *
 * With a planted bug it must fail (meson.build).
 */
#include "slabhash_turns.h"

#include <stdio.h>

/* The number of calls that migrate a table is the number of runs of groups, for any keys. */
static void runs_are_all(uint64_t random, uint32_t groups)
{
    enum {
        BUCKETS = 64
    };
    ga_slabhash_operation to = {.key = 1, .op = GA_SLABHASH_DELETE};
    turns_open(GA_SLABHASH_MAP32, false, BUCKETS, NULL);
    turns.growing.least = BUCKETS;
    turns_tile t = turns_begin(0);
    turns_move_on(&t, random);
    turns_end(&t);
    t = turns_begin(0);
    for (uint32_t i = 0; i < groups / GA_SLABHASH_RUN; i++) {
        stress_need(turns_perform(&t, to).result == GA_SLABHASH_ABSENT, "a key that is nowhere");
    }
    stress_need(turns.growing.now == 1, "some buckets are in no run");
    turns_end(&t);
    turns_close();
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    turns.heap = stress_open("system");
    runs_are_all(1, 64); /* twice as many buckets */
    runs_are_all(5, 16); /* a quarter */
    while (stress_goes_on() || turns.tables < 24) {
        turns.random = turns.tables;
        turns.lanes = turns.tables / 4 % 2;
        (turns.tables % 2 ? turns_volumes : turns_histories)();
        turns.tables++;
    }
    stress_need(turns.stages > turns.tables, "tables have hardly grown");
    printf(
        "%llu histories, %llu tables, %llu stages; by themselves %llu of fewer buckets, %llu of as "
        "many\n",
        (unsigned long long)turns.histories, (unsigned long long)turns.tables,
        (unsigned long long)turns.stages, (unsigned long long)turns.shrunk,
        (unsigned long long)turns.compacted);
    NEED(ga_heap_close(turns.heap) == GA_OK);
    return 0;
}
