/* SPDX-License-Identifier: MIT
 *
 * Claims and frees beside a thread that gives empty memory blocks back to the system all the time,
 * in a heap at its limit. A unit keeps what was written to it while it is live, and nobody else
 * gets it; a claim never fails as long as a unit is free or away. Weakened (tests/stress/
 * meson.build): 11 a block is taken though somebody has a unit of it, 12 one that has come back
 * counts as away still, 13 nobody says that room has come.
 */
#include "stress.h"
#include "support/random.h"

#include "runtime/heap.h"
#include "slab/slab.h"

enum {
    UNIT = 64,
    ASKED = 40, /* so that a block of the parent's has another usable size */
    WORDS = UNIT / 8,
    HOLDERS = 4,
    HELD = 1300,      /* by each of them at most: with what caches hold, fewer than there are */
    LIMIT = 8 * 1024, /* units, eight memory blocks */
    STEPS = 4000
};

static ga_heap *heap;
static uint32_t working = HOLDERS;

static void write_unit(uint64_t *unit, uint64_t mark)
{
    for (size_t i = 0; i < WORDS; i++) {
        unit[i] = mark + i;
    }
}

static void check_unit(const uint64_t *unit, uint64_t mark)
{
    for (size_t i = 0; i < WORDS; i++) {
        NEED(unit[i] == mark + i);
    }
}

/* Fills up and empties again, so that blocks become empty; a few units stay meanwhile. */
static void hold(size_t number)
{
    static uint64_t *units[HOLDERS][HELD];
    uint64_t **mine = units[number];
    uint64_t random = number;
    uint64_t mark = (number + 1) << 48;
    while (stress_goes_on()) {
        bool filling = random_below(&random, 2);
        for (size_t step = 0; step < STEPS; step++) {
            size_t i = random_below(&random, HELD);
            if (!mine[i] && filling) {
                NEED(ga_alloc(heap, ASKED, 0, (void **)&mine[i]) == GA_OK);
                NEED(ga_usable_size(heap, mine[i]) == UNIT); /* else it is the parent's */
                write_unit(mine[i], mark + i * WORDS);
            } else if (mine[i] && !filling && i % 500) {
                check_unit(mine[i], mark + i * WORDS);
                NEED(ga_free(heap, mine[i]) == GA_OK);
                mine[i] = NULL;
            }
        }
    }
    for (size_t i = 0; i < HELD; i++) {
        if (mine[i]) {
            check_unit(mine[i], mark + i * WORDS);
            NEED(ga_free(heap, mine[i]) == GA_OK);
        }
    }
    /* relaxed: an end, which threads that are joined order. */
    __atomic_fetch_sub(&working, 1, __ATOMIC_RELAXED);
}

static void count_one(void *context, void *block, size_t size)
{
    (void)block;
    (void)size;
    ++*(size_t *)context;
}

static void trim(void)
{
    uint64_t random = 99;
    while (__atomic_load_n(&working, __ATOMIC_RELAXED)) {
        ga_backend_stats stats;
        NEED(ga_trim(heap, random_below(&random, 2) * 2 * 1024 * UNIT) == GA_OK);
        ga_slab_backend.stats(heap->state, &stats);
        NEED(stats.held_bytes <= LIMIT * UNIT);
        NEED(stats.live_bytes <= stats.held_bytes);
    }
}

static void work(size_t number)
{
    if (number < HOLDERS) {
        hold(number);
    } else {
        trim();
    }
}

int main(int argc, char **argv)
{
    size_t live = 0;
    ga_backend_stats stats;
    stress_begin(argc, argv);
    heap = stress_open("slab:unit=64,blocks=2,limit=512K,keep=64K/system");
    stress_threads(HOLDERS + 1, work);
    NEED(ga_heap_each_live(heap, count_one, &live) == GA_OK);
    NEED(live == 0);
    NEED(ga_trim(heap, 0) == GA_OK);
    ga_slab_backend.stats(heap->state, &stats);
    NEED(stats.held_bytes == 0);
    NEED(ga_heap_close(heap) == GA_OK);
    return 0;
}
