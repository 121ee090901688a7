/* SPDX-License-Identifier: MIT
 *
 * Slab hashes that grow by themselves (resize_tile.h), used by threads as the tiles of kernels
 * (slabhash_sessions_tiles.c). It alternates between short histories
 * (slabhash_sessions_histories.c) and tables that grow, shrink and are compacted
 * (slabhash_sessions_volumes.c).
 *
 * With a planted bug it must fail (meson.build).
 */
#include "slabhash_sessions.h"

#include <stdio.h>

/* The number of calls that migrate a table is the number of runs of groups, for any keys. */
static void runs_are_all(uint64_t random, uint32_t groups)
{
    enum {
        BUCKETS = 64
    };
    ga_slabhash_operation to = {.key = 1, .op = GA_SLABHASH_DELETE};
    sessions_open(GA_SLABHASH_MAP32, false, BUCKETS, NULL);
    sessions.growing.least = BUCKETS;
    sessions_tile t = sessions_begin(0);
    sessions_move_on(&t, random);
    sessions_end(&t);
    t = sessions_begin(0);
    for (uint32_t i = 0; i < groups / GA_SLABHASH_RUN; i++) {
        stress_need(sessions_perform(&t, to).result == GA_SLABHASH_ABSENT, "a key that is nowhere");
    }
    stress_need(sessions.growing.now == 1, "some buckets are in no run");
    sessions_end(&t);
    sessions_close();
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    sessions.heap = stress_open("system");
    runs_are_all(1, 64); /* twice as many buckets */
    runs_are_all(5, 16); /* a quarter */
    while (stress_goes_on() || sessions.tables < 24) {
        sessions.random = sessions.tables;
        sessions.lanes = sessions.tables / 4 % 2;
        (sessions.tables % 2 ? sessions_volumes : sessions_histories)();
        sessions.tables++;
    }
    stress_need(sessions.stages > sessions.tables, "tables have hardly grown");
    printf(
        "%llu histories, %llu tables, %llu stages; by themselves %llu of fewer buckets, %llu of as "
        "many\n",
        (unsigned long long)sessions.histories, (unsigned long long)sessions.tables,
        (unsigned long long)sessions.stages, (unsigned long long)sessions.shrunk,
        (unsigned long long)sessions.compacted);
    NEED(ga_heap_close(sessions.heap) == GA_OK);
    return 0;
}
