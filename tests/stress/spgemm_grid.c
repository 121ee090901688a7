/* SPDX-License-Identifier: MIT
 *
 * The barrier of spgemm/grid_tile.h between threads: behind each barrier a thread reads what all
 * others wrote before it, and nothing of what they write behind the next one.
 */
#include "../../spgemm/grid_tile.h"
#include "stress.h"

#include <stdatomic.h>

enum {
    THREADS = 4,
    BARRIERS = 500
};

static uint64_t arrived;
static uint64_t written[THREADS]; /* by each thread: the number of the barrier that follows */

static void meet(size_t number)
{
    for (uint64_t barrier = 1; barrier < BARRIERS; barrier += 2) {
        written[number] = barrier;
        ga_spgemm_meet(&arrived, THREADS, barrier);
        for (size_t i = 0; i < THREADS; i++) {
            NEED(written[i] == barrier);
        }
        ga_spgemm_meet(&arrived, THREADS, barrier + 1);
    }
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    while (stress_goes_on()) {
        arrived = 0;
        stress_threads(THREADS, meet);
        NEED(arrived == (uint64_t)THREADS * BARRIERS);
    }
    return 0;
}
