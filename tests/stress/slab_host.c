/* SPDX-License-Identifier: MIT
 *
 * A slab heap of the host gets superblocks from its parent, one after the other, while threads look
 * up pointers in it. Some pointers are units, and one is not, for which all superblocks are
 * searched. Another thread waits for the flag that there is room, and then reads the new
 * superblock. Only that flag orders its reads.
 *
 * With SG7, of `super_count` or `sorted`, or SG10 relaxed the thread sanitizer must report it
 * (tests/planted).
 */
#include "stress.h"

#include "backends/slab/host/host.h"

#include <stdio.h>

enum {
    UNIT = 16, /* a small unit, so that superblocks are small and follow quickly */
    SUPERS = 48,
    LEAST = GA_PLANTED_ANY ? 2000 : 1 /* rounds, so that a busy machine does not miss the bug */
};

static const ga_slab_shape shape = {UNIT, 0, SUPERS, GA_SLAB_SPREAD_HOST, false};
static const char stranger[UNIT];

static ga_heap *parent;
static ga_slab_host slab;
static bool watching; /* this round */
static int done;      /* relaxed: a flag that ends the round and orders nothing */

static void grow(void)
{
    ga_status status = GA_OK;
    for (uint32_t i = 0; i < SUPERS && status == GA_OK; i++) {
        status = ga_slab_host_grow(&slab, ga_slab_host_room(&slab));
    }
    stress_need(status == GA_OK, "a super block");
    __atomic_store_n(&done, 1, __ATOMIC_RELAXED);
}

static void look_up(ga_slab_view view, uint32_t super)
{
    uint32_t unit = super * GA_SLAB_BLOCK_UNITS + 7;
    stress_need(ga_slab_unit(view, ga_slab_pointer(view, unit)) == unit, "a pointer's unit");
}

/* Look up the first and the last unit, and an invalid pointer. Before there are words, the other
 * thread writes the members of the heap that a view copies. */
static void find(void)
{
    do {
        uint32_t words = ga_slab_words(&slab.heap);
        ga_slab_view view = {.heap = &slab.heap};
        if (words) {
            view = ga_slab_view_with(&slab.heap, words);
            look_up(view, 0);
            look_up(view, words / GA_SLAB_ROW_WORDS - 1);
        }
        for (int i = 0; i < 8; i++) {
            stress_need(ga_slab_unit(view, stranger) == GA_SLAB_FULL, "no unit's pointer");
        }
    } while (!__atomic_load_n(&done, __ATOMIC_RELAXED));
}

/* No superblock is added any more: read those that were added, plainly. */
static void watch(void)
{
    uint64_t units = 0;
    while (ga_slab_host_room(&slab) < SUPERS) {
    }
    for (const ga_slab_region *region = slab.regions; region; region = region->next) {
        units += region->count;
    }
    stress_need(units == SUPERS * (uint64_t)GA_SLAB_BLOCK_UNITS, "all that room was told of");
}

static void work(size_t number)
{
    if (number == 0) {
        grow();
    } else if (watching) {
        watch();
    } else {
        find();
    }
}

static void one_round(bool watched)
{
    watching = watched;
    done = 0;
    slab = (ga_slab_host){.serial = 1};
    ga_slab_host_begin(&slab, &shape, parent);
    stress_threads(2, work);
    ga_slab_host_end(&slab);
}

int main(int argc, char **argv)
{
    uint32_t round = 0;
    stress_begin(argc, argv);
    parent = stress_open("system");
    for (; round < LEAST || stress_goes_on(); round++) {
        one_round(round % 4 == 3);
    }
    stress_need(ga_heap_close(parent) == GA_OK, "everything has gone back");
    printf("%u times %d super blocks\n", round, (int)SUPERS);
    return 0;
}
