/* SPDX-License-Identifier: MIT
 *
 * Arenas under threads: some grow a shared arena, some use its committed part, some open, move and
 * close their own arenas on the same device. Committed memory keeps its address and contents, and
 * nothing is left at the end. Runs on a device made of host memory, and on the host.
 *
 * Two more threads poll until an arena has grown or has more addresses, and then read its records
 * plainly. Only their load of the size, AA2 or AA4, orders these reads: the thread sanitizer must
 * report one that is relaxed (tests/planted).
 */
#include "stress.h"

#include "arena/state.h"
#include "support/vmm_driver.h"

#include <gpualloc/arena.h>

#include <sched.h>
#include <string.h>

enum {
    GROWERS = 2,
    USERS = 2,
    OTHERS = 2,
    LOOKERS = 3, /* one thread grows, one extends an arena of its own */
    STEP = 2 << 20,
    STEPS = 64
};

static ga_place place;
static ga_arena *shared;
static ga_arena *extended; /* set by the thread that extends it, read by one that polls its limit */
static int not_extended;   /* relaxed: the driver had no addresses; a flag that ends the round and
                            * orders nothing */
static int growers_left;   /* acq_rel: the growers' work is done, and users stop afterwards */

static ga_arena *open_one(uint64_t steps)
{
    ga_arena *arena;
    ga_arena_options options = {.options_size = sizeof options,
                                .flags = GA_ARENA_EXACT,
                                .place = place,
                                .reserve = steps * STEP};
    stress_need(ga_arena_open(&arena, &options) == GA_OK, "an arena");
    return arena;
}

/* Growers race: each requests steps that another one may have committed already. */
static void grow(void)
{
    for (uint64_t step = 1; step <= STEPS; step++) {
        NEED(ga_arena_grow(shared, step * STEP) == GA_OK);
        NEED(ga_arena_size(shared) >= step * STEP);
    }
    /* acq_rel. Pairs with the load in use(): the growths are done. */
    __atomic_fetch_sub(&growers_left, 1, __ATOMIC_ACQ_REL);
}

/* Write a count to each step as soon as the step is committed. */
static void use(void)
{
    uint64_t max = 0;
    bool again = true;
    while (again) {
        /* Acquire. Pairs with the subtraction in grow(). */
        again = __atomic_load_n(&growers_left, __ATOMIC_ACQUIRE) != 0;
        uint64_t size = ga_arena_size(shared);
        NEED(size >= max && size <= ga_arena_reserved(shared));
        for (uint64_t at = max; at < size; at += STEP) {
            __atomic_fetch_add((int *)((char *)ga_arena_base(shared) + at + 4096), 1,
                               __ATOMIC_RELAXED);
        }
        max = size;
    }
    NEED(max == STEPS * (uint64_t)STEP);
}

static void come_and_go(size_t number)
{
    for (uint64_t round = 1; round <= 8; round++) {
        ga_arena_stats stats;
        ga_arena *own = open_one(2);
        NEED(ga_arena_grow(own, STEP) == GA_OK && ga_arena_grow(own, 2 * STEP) == GA_OK);
        memset((char *)ga_arena_base(own) + STEP, (int)number, 100);
        ga_status moved = ga_arena_move(own, 8 * STEP);
        NEED(moved == GA_OK || (moved == GA_ERR_UNSUPPORTED && place == GA_PLACE_HOST));
        NEED(((char *)ga_arena_base(own))[STEP + 99] == (char)number);
        NEED(ga_arena_shrink(own, STEP) == GA_OK);
        ga_arena_get_stats(own, &stats);
        NEED(stats.backed == STEP && stats.reserved == (moved == GA_OK ? 8 : 2) * STEP);
        ga_arena_close(own);
    }
}

/* ---- readers of the records ---------------------------------------------------------------- */

/* No thread grows the arena any more: the chunks are those that the size covers. */
static void look_at_chunks(void)
{
    while (ga_arena_size(shared) < STEPS * (uint64_t)STEP) {
        sched_yield();
    }
    NEED(ga_arena_end(shared) == STEPS * (uint64_t)STEP);
}

static void extend(void)
{
    ga_status status = ga_arena_move(extended, 8 * STEP);
    NEED(status == GA_OK || (status == GA_ERR_UNSUPPORTED && place == GA_PLACE_HOST));
    __atomic_store_n(&not_extended, status != GA_OK, __ATOMIC_RELAXED);
}

/* Growth room is reserved behind the arena or elsewhere. */
static void look_at_ranges(void)
{
    uint64_t size = 0;
    while (ga_arena_reserved(extended) < 8 * STEP) {
        if (__atomic_load_n(&not_extended, __ATOMIC_RELAXED)) {
            return;
        }
        sched_yield();
    }
    for (size_t i = 0; i < extended->range_count; i++) {
        size += extended->ranges[i].size;
    }
    NEED(size == 8 * STEP);
}

static void look_on(size_t number)
{
    if (number == 0) {
        look_at_chunks();
    } else if (number == 1) {
        extend();
    } else {
        look_at_ranges();
    }
}

static void run(size_t number)
{
    if (number < GROWERS) {
        grow();
    } else if (number < GROWERS + USERS) {
        use();
    } else if (number < GROWERS + USERS + OTHERS) {
        come_and_go(number);
    } else {
        look_on(number - GROWERS - USERS - OTHERS);
    }
}

static void one_round(void)
{
    shared = open_one(STEPS);
    extended = open_one(2);
    growers_left = GROWERS;
    not_extended = 0;
    stress_threads(GROWERS + USERS + OTHERS + LOOKERS, run);
    for (uint64_t step = 0; step < STEPS; step++) {
        int count = 0;
        memcpy(&count, (char *)ga_arena_base(shared) + step * STEP + 4096, sizeof count);
        NEED(count == USERS);
    }
    ga_arena_close(extended);
    ga_arena_close(shared);
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    while (stress_goes_on()) {
        place = GA_PLACE_HOST;
        one_round();
        place = GA_PLACE_DEVICE;
        vmm_driver_start(&(vmm_driver_options){.addresses = (uint64_t)8 << 30});
        one_round();
        vmm_driver_counts left = vmm_driver_count();
        NEED(left.ranges == 0 && left.mappings == 0 && left.handles == 0 && left.chunks == 0);
        vmm_driver_stop();
    }
    return 0;
}
