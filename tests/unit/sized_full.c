/* SPDX-License-Identifier: MIT
 *
 * Size-class heaps without free memory: failing requests read little, for any size of the heap; a
 * freed unit is found; and a heap that is empty, or has empty regions, serves any other size,
 * without the host.
 */
#include "backends/slab/classes/sized_checked.h"
#include "support/expect.h"
#include "support/random.h"
#include "support/sized_shape.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum {
    BLOCKS_MAX = 1 << 20 /* blocks at a time */
};

static char *blocks[BLOCKS_MAX];
static uint32_t count;

/* Requests units of the class for some lanes. Returns the number of lanes that got one. */
static uint32_t ask(sized_world *world, uint32_t class, uint32_t lanes, uint32_t number)
{
    uint32_t classes[LANES];
    char *got[LANES];
    for (uint32_t lane = 0; lane < LANES; lane++) {
        classes[lane] = class;
    }
    uint32_t served = lanes == GA_ALL_BITS ? sized_claim_warp(world->heap, class, number, got)
                                           : sized_claim(world->heap, lanes, classes, number, got);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        if (got[lane]) {
            cr_assert_lt(count, BLOCKS_MAX);
            blocks[count++] = got[lane];
        }
    }
    return served;
}

/* Everything that the class can have. */
static uint32_t fill(sized_world *world, uint32_t class)
{
    uint32_t before = count;
    for (uint32_t number = 0; ask(world, class, GA_ALL_BITS, number) == LANES; number++) {
    }
    while (ask(world, class, 1, 0)) {
    }
    return count - before;
}

static void free_block(sized_world *world, uint32_t i)
{
    cr_assert(sized_release(world->heap, 1, &blocks[i]));
    blocks[i] = blocks[--count];
}

static void free_all(sized_world *world)
{
    while (count) {
        uint32_t n = count < LANES ? count : LANES;
        cr_assert(sized_release(world->heap, ga_bits_below(n), blocks + count - n));
        count -= n;
    }
    cr_assert_eq(sized_world_live(world, GA_SIZED_NONE), 0);
}

static uint32_t units_in(uint32_t class, uint32_t regions)
{
    return regions * (REGION / ga_sized_unit(class));
}

static int by_address(const void *a, const void *b)
{
    const char *left = *(char *const *)a, *right = *(char *const *)b;
    return left < right ? -1 : left > right;
}

/* No two blocks lie over each other. */
static void expect_apart(const sized_world *world)
{
    const char *end = world->heap->units;
    qsort(blocks, count, sizeof *blocks, by_address);
    for (uint32_t i = 0; i < count; i++) {
        ga_sized_found found = ga_sized_find(view_of(world), blocks[i]);
        cr_assert(found.class_ != GA_SIZED_NONE && !found.offset, "a block is one");
        cr_assert_geq(blocks[i], end, "blocks lie over each other");
        end = blocks[i] + ga_sized_unit(found.class_);
    }
}

/* ---- requests that fail ---------------------------------------------------------------------- */

/* Words that sweeps read while n requests fail. */
static uint64_t read_by(sized_world *world, uint32_t class, uint32_t n)
{
    uint64_t before = world->heap->sweep.words_read;
    for (uint32_t i = 0; i < n; i++) {
        cr_assert_eq(ask(world, class, i % 3 ? GA_ALL_BITS : 1u << i % 32, i), 0);
    }
    return world->heap->sweep.words_read - before;
}

/* For any number of failing requests, and of classes: once one has failed, no memory is read
 * again. */
Test(sized_full, requests_that_fail_after_one_has_failed_read_nothing)
{
    const uint32_t classes[] = {0, 7, 20, 36};
    for (uint32_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        for (uint32_t regions = 1; regions <= 64; regions *= 4) {
            sized_world *world = sized_world_new(BITS, regions);
            cr_assert_eq(fill(world, classes[i]), units_in(classes[i], regions));
            uint64_t read = world->heap->sweep.words_read;
            cr_assert_geq(read, regions * world->heap->of[classes[i]].map.words);
            for (uint32_t other = 0; other < world->heap->classes; other++) {
                cr_assert_eq(read_by(world, other, 100), 0);
            }
            cr_assert_eq(read_by(world, classes[i], 1000), 0);
            cr_assert_eq(ga_sized_run_claim(world->heap, sized_tile(), 1, 1, 0), GA_SIZED_NONE);
            cr_assert_eq(world->heap->sweep.words_read, read);
            free_all(world);
            sized_world_delete(world);
        }
    }
}

/* As above, where the heap has grown to its limit, or more memory was refused. */
Test(sized_full, failing_requests_of_a_heap_that_grew)
{
    for (uint32_t refuse = 0; refuse < 2; refuse++) {
        sized_world *world = sized_world_limited(BITS, 40, refuse ? 40 : 20, refuse * 4);
        uint32_t units = 0;
        for (uint32_t i = 0; i < 10; i++) { /* a refusal for lack of memory is requested again */
            units += fill(world, 12);
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        cr_assert_eq(units, units_in(12, world->limit));
        read_by(world, 12, 10);
        cr_assert_eq(read_by(world, 12, 1000), 0);
        free_all(world);
        sized_world_delete(world);
    }
}

/* After a refusal the next request finds a freed block, for each way of freeing it, and each
 * time. */
Test(sized_full, a_block_that_is_freed_after_refusals_is_found)
{
    uint64_t random = 1;
    for (uint32_t class = 0; class < ga_sized_class_count(BITS); class += 5) {
        sized_world *world = sized_world_new(BITS, 9);
        uint32_t units = fill(world, class);
        for (uint32_t i = 0; i < 300; i++) {
            uint32_t n = 1 + (uint32_t)random_below(&random, units < 5 ? units : 5);
            uint32_t lanes = random_below(&random, 2) ? 1 : GA_ALL_BITS, got = 0;
            cr_assert_eq(ask(world, class, lanes, i), 0);
            for (uint32_t j = 0; j < n; j++) {
                free_block(world, (uint32_t)random_below(&random, count));
            }
            while (got < n) {
                uint32_t more = ask(world, class, lanes, (uint32_t)random_next(&random));
                cr_assert_gt(more, 0, "class %u: %u of %u blocks are found", class, got, n);
                got += more;
            }
        }
        cr_assert_eq(count, units);
        expect_apart(world);
        free_all(world);
        sized_world_delete(world);
    }
}

/* A free ends the watch of its region: the next frees there are on the fast path again. */
Test(sized_full, a_free_ends_the_watch_of_its_region)
{
    sized_world *world = sized_world_new(BITS, 3);
    fill(world, 9);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert(world->heap->owners[i] & GA_SIZED_WATCH, "a sweep has watched region %u", i);
    }
    uint32_t given = world->heap->releases;
    free_block(world, 0);
    free_block(world, 0);
    uint32_t watched = 0;
    for (uint32_t i = 0; i < 3; i++) {
        watched += (world->heap->owners[i] & GA_SIZED_WATCH) != 0;
    }
    cr_assert(watched < 3 && world->heap->releases - given == 3 - watched,
              "%u regions are watched, and %u frees were told of", watched,
              world->heap->releases - given);
    free_all(world);
    sized_world_delete(world);
}

/* A thread that requests one unit of class 0. */
typedef struct asker {
    pthread_t thread;
    sized_world *world;
    uint32_t returned, got; /* `returned` is set last */
} asker;

static void *ask_for_one(void *context)
{
    asker *a = context;
    a->got = ask(a->world, 0, 1, 0);
    ga_store_release(&a->returned, 1);
    return NULL;
}

/* Set the bits of all units of the region but one. */
static void fill_but_one(ga_sized_heap *heap, uint32_t region, uint32_t word)
{
    uint32_t first = ga_sized_bitmap_index(heap->region_bits, region, heap->owners[region]);
    for (uint32_t i = 0; i < heap->of[0].map.words; i++) {
        ga_or_relaxed(heap->bits + first + i, i == word ? ~2u : GA_ALL_BITS);
    }
}

/* A sweep finds nothing while a region is on its way from the pool to the class. Then the class
 * gets the region. A request that waited for that does not rely on the sweep, even if its search
 * misses the unit. */
Test(sized_full, a_region_that_arrives_after_the_sweep_counts)
{
    for (uint32_t round = 0; round < 16; round++) {
        sized_world *world = sized_world_new(BITS, 4);
        ga_sized_heap *heap = world->heap;
        ga_sized_class *class = &heap->of[0];
        ga_sized_search none = ga_sized_search_of(GA_SIZED_NONE, 0, 0);
        uint32_t run = ga_sized_run_claim(heap, sized_tile(), 1, 1, 0), batch = 1;
        fill(world, 0);
        heap->releases++; /* the results of sweeps are not valid */
        uint32_t last = ga_sized_sweep_latest(heap, sized_tile());
        ga_sized_sweep_step step = ga_sized_sweep_next_step(heap, 0, last, 1);
        cr_assert_eq(step.action, GA_SIZED_SWEEP_HELP);

        asker a = {.world = world};
        pthread_create(&a.thread, NULL, ask_for_one, &a);
        while (ga_load_relaxed(&heap->sweep.wanted) != step.number + 1) { /* it waits */
            cr_assert(!ga_load_acquire(&a.returned), "the request waits for its sweep");
            sched_yield();
        }
        cr_assert_eq(ga_sized_grow_try_lock(class, sized_tile(), class->map.total_words),
                     GA_SIZED_GROW_LOCKED);
        ga_sized_runs_free(heap, sized_tile(), 1, ga_lanes_all(run));
        ga_sized_request request = {1, 1, 1, 0};
        ga_sized_extent region = ga_sized_regions_alloc_fast(heap, sized_tile(), request);
        cr_assert_eq(region.n, 1);
        ga_sized_sweep_help(view_of(world), sized_tile(), step, &batch, &none);
        while (ga_load_acquire(&heap->sweep.ended) == step.number) { /* its sweep ends */
            cr_assert(!ga_load_acquire(&a.returned), "the request waits for the region");
            sched_yield();
        }
        cr_assert_eq(class->empty_sweep, step.number + 1, "its sweep found nothing");
        cr_assert_eq(heap->sweep.undisturbed, step.number + 1, "its sweep was not disturbed");
        ga_sized_class_add_regions(heap, sized_tile(), 0, region.first, 1, true);
        fill_but_one(heap, region.first, 16 * round);
        ga_sized_grow_unlock(class);
        pthread_join(a.thread, NULL);
        cr_assert_eq(a.got, 1, "the last free unit is found");
        sized_world_delete(world);
        count = 0;
    }
}

/* After a free, the next sweep reads the bitmap of that region alone. The others are settled. */
Test(sized_full, a_sweep_reads_only_regions_with_a_new_free)
{
    enum {
        REGIONS = 9
    };
    uint64_t random = 1;
    for (uint32_t class = 0; class < ga_sized_class_count(BITS); class += 5) {
        sized_world *world = sized_world_new(BITS, REGIONS);
        uint64_t words = world->heap->of[class].map.words;
        fill(world, class);
        cr_assert_eq(ask(world, class, 1, 0), 0);
        for (uint32_t i = 0; i < 50; i++) {
            uint64_t before = world->heap->sweep.words_read;
            free_block(world, (uint32_t)random_below(&random, count));
            while (ask(world, class, 1, (uint32_t)random_next(&random))) {
            }
            uint64_t read = world->heap->sweep.words_read - before;
            cr_assert(read && read <= 2 * words, "class %u: %llu words", class,
                      (unsigned long long)read);
        }
        free_all(world);
        sized_world_delete(world);
    }
}

/* ---- another size ---------------------------------------------------------------------------- */

static void switch_classes(sized_world *(*make)(uint32_t, uint32_t), uint32_t regions)
{
    const uint32_t sizes[] = {0, 1, 7, 8, 13, 24, 36, 39};
    const uint32_t n = sizeof sizes / sizeof *sizes;
    for (uint32_t i = 0; i < n; i++) {
        sized_world *world = make(BITS, regions);
        for (uint32_t j = 0; j < n; j++) {
            uint32_t class = sizes[(i + j * 3) % n];
            cr_assert_eq(fill(world, class), units_in(class, regions), "class %u, as number %u",
                         class, j);
            cr_assert_eq(sized_world_regions(world, class), regions);
            expect_apart(world);
            free_all(world);
        }
        sized_world_delete(world);
    }
}

/* An empty heap serves every size, to the last unit, regardless of earlier sizes. */
Test(sized_full, an_empty_heap_serves_any_other_size)
{
    switch_classes(sized_world_new, 7);
    switch_classes(sized_world_new, 1);
}

Test(sized_full, an_empty_heap_that_grew_serves_any_other_size)
{
    switch_classes(sized_world_growing, 6);
}

/* After mixed sizes have been freed, all of the heap can be allocated in one size, and as runs. */
Test(sized_full, mixed_sizes_leave_nothing_behind)
{
    enum {
        REGIONS = 50
    };
    uint64_t random = 3;
    sized_world *world = sized_world_new(BITS, REGIONS);
    for (uint32_t round = 0; round < 12; round++) {
        uint32_t refused = 0;
        while (refused < 100) {
            uint32_t class = (uint32_t)random_below(&random, world->heap->classes);
            refused += ask(world, class, (uint32_t)random_next(&random) | 1,
                           (uint32_t)random_next(&random) % 64) == 0;
        }
        expect_apart(world);
        free_all(world);
        if (round % 3 == 0) {
            uint32_t first = ga_sized_run_claim(world->heap, sized_tile(), REGIONS, 1, 0);
            cr_assert_eq(first, 0, "a run of all regions");
            cr_assert(ga_sized_runs_free(world->heap, sized_tile(), 1, ga_lanes_all(first)));
        } else {
            uint32_t class = (uint32_t)random_below(&random, world->heap->classes);
            cr_assert_eq(fill(world, class), units_in(class, REGIONS));
            free_all(world);
        }
    }
    sized_world_delete(world);
}

/* Regions with a live unit keep their class; the others serve. */
Test(sized_full, regions_that_are_not_empty_stay)
{
    enum {
        REGIONS = 20
    };
    uint64_t random = 5;
    for (uint32_t class = 0; class < ga_sized_class_count(BITS); class += 6) {
        sized_world *world = sized_world_new(BITS, REGIONS);
        fill(world, class);
        uint32_t stay = (uint32_t)random_next(&random) & ga_bits_below(REGIONS), kept = 0;
        for (uint32_t i = count; i-- > 0;) {
            uint32_t region = (uint32_t)((blocks[i] - world->heap->units) >> BITS);
            bool keep = stay >> region & 1 && !(kept >> region & 1);
            kept |= keep ? 1u << region : 0;
            if (!keep) {
                free_block(world, i);
            }
        }
        uint32_t other = (class + 7) % world->heap->classes, empty = REGIONS - ga_bits_count(stay);
        cr_assert_eq(fill(world, other), units_in(other, empty), "class %u to %u", class, other);
        expect_apart(world);
        uint32_t rest = units_in(class, REGIONS - empty) - (REGIONS - empty);
        cr_assert_eq(fill(world, class), rest, "the rest of the regions that stayed");
        expect_apart(world);
        free_all(world);
        sized_world_delete(world);
    }
}

/* ---- lanes on their own ---------------------------------------------------------------------- */

/* Make the class's words hold `free` free units each, chosen at random. */
static void pierce(sized_world *world, uint32_t class, uint32_t free, uint64_t *random)
{
    ga_sized_view view = view_of(world);
    ga_sized_class_map map = ga_sized_load_class_map(world->heap->of + class);
    for (uint32_t word = 0; word < map.total_words; word++) {
        uint32_t tail = (word + 1) % map.words ? 0 : world->heap->of[class].tail;
        uint32_t holes = 0;
        while (ga_bits_count(holes) < free && holes != ~tail) {
            holes |= 1u << random_below(random, 32) & ~tail;
        }
        view.bits[ga_sized_word_index(view, map, word)] = ~holes;
    }
}

/* A word that a lane finds is in the bitmap that its class uses now. */
Test(sized_full, lanes_on_their_own_stay_in_their_class)
{
    enum {
        REGIONS = 40
    };
    uint64_t random = 11;
    sized_world *world = sized_world_new(BITS, REGIONS);
    ga_sized_view view = view_of(world);
    for (uint32_t turn = 0; turn < 12; turn++) {
        uint32_t class = (7 * turn + 3) % world->heap->classes, seen = 0;
        fill(world, class);
        ga_sized_class_map map = ga_sized_load_class_map(world->heap->of + class);
        pierce(world, class, 1, &random);
        for (uint32_t i = 0; i < 20000; i++) {
            uint32_t number = (uint32_t)random_below(&random, 2 * map.total_words), index;
            uint32_t attempt = 1 + (uint32_t)random_below(&random, GA_SIZED_LANE_ATTEMPTS);
            ga_sized_look look = (ga_sized_look)random_below(&random, GA_SIZED_LOOK_NEWEST + 1);
            uint32_t free = ga_sized_look_for_word(view, class, number, i % 32, i / 32 % 2, look,
                                                   attempt, &index);
            if (!free) {
                continue;
            }
            uint32_t region = index >> ga_sized_stride_bits(BITS);
            uint32_t within = index & ga_bits_below(ga_sized_bitmap_bits(BITS));
            cr_assert_lt(within, map.words, "class %u, attempt %u", class, attempt);
            cr_assert(ga_sized_class_owns(view, class, index));
            cr_assert_eq(ga_sized_owner_class(world->heap->owners[region]), class);
            cr_assert_eq(free, ~view.bits[index]);
            cr_assert_eq(ga_bits_count(free), 1);
            seen++;
        }
        cr_assert_gt(seen, 5000, "class %u", class);
        pierce(world, class, 0, &random);
        free_all(world);
    }
    sized_world_delete(world);
}

/* The units that the lanes of a tile get on their own, of words that have the bits `free`. Sets
 * `*words` to the number of different words that they are in. */
static uint32_t served_alone(sized_world *world, uint32_t class, uint32_t number, uint32_t free,
                             uint32_t *words)
{
    ga_sized_view view = view_of(world);
    ga_sized_units got =
        ga_sized_claim_by_lane(view, sized_tile(), GA_ALL_BITS, ga_lanes_all(class), true, number,
                               ga_lanes_all(ga_sized_home_word(
                                   view, ga_sized_load_class_map(world->heap->of + class), number)),
                               ga_lanes_all(0), ga_lanes_all(free));
    uint32_t served = 0;
    *words = 0;
    for (uint32_t lane = 0; lane < 32; lane++) {
        uint32_t index = ga_lane_read(got.word_indices, lane);
        bool first = index != GA_SIZED_NONE;
        served += first;
        for (uint32_t other = 0; other < lane && first; other++) {
            bool equal = ga_lane_read(got.word_indices, other) == index;
            cr_assert(!equal ||
                      ga_lane_read(got.bit_indices, other) != ga_lane_read(got.bit_indices, lane));
            first = first && !equal;
        }
        *words += first;
    }
    return served;
}

/* A heap with holes in each word serves a tile without a search. Of a word that is wholly free all
 * lanes get a unit. In a heap that was filled in order, the newest words and the one at the hint
 * are found. */
Test(sized_full, lanes_find_holes_on_their_own)
{
    enum {
        CLASS = 4,
        REGIONS = 40,
        NUMBER = 5
    };
    uint64_t random = 12;
    uint32_t words;
    sized_world *world = sized_world_new(BITS, REGIONS);
    ga_sized_view view = view_of(world);
    fill(world, CLASS);
    ga_sized_class_map map = ga_sized_load_class_map(world->heap->of + CLASS);
    pierce(world, CLASS, 2, &random);
    cr_assert_geq(served_alone(world, CLASS, NUMBER, 1, &words), 31);
    cr_assert_geq(words, 16);
    pierce(world, CLASS, 32, &random);
    cr_assert_eq(served_alone(world, CLASS, NUMBER, 0, &words), 32);
    cr_assert_eq(words, 1);
    pierce(world, CLASS, 0, &random);
    world->heap->of[CLASS].hint = 0;
    cr_assert_eq(served_alone(world, CLASS, NUMBER, 0, &words), 0);
    view.bits[ga_sized_word_index(view, map, map.total_words - 2)] = 0;
    world->heap->of[CLASS].hint = map.total_words - 2 - NUMBER;
    cr_assert_eq(served_alone(world, CLASS, NUMBER, 0, &words), 32);
    world->heap->of[CLASS].hint = 0;
    for (uint32_t word = map.total_words - map.words; word + 1 < map.total_words; word++) {
        view.bits[ga_sized_word_index(view, map, word)] = 0;
    }
    cr_assert_eq(served_alone(world, CLASS, NUMBER, 0, &words), 32);
    cr_assert_eq(words, 1);
    sized_world_delete(world);
}

/* ---- claims that come late ------------------------------------------------------------------- */

/* A tile with an old class map claims no unit of another class, neither on the fast path nor by its
 * old table. */
Test(sized_full, an_old_view_of_a_class_finds_nothing)
{
    enum {
        REGIONS = 5,
        OLD = 12,
        NEW = 25 /* two words, of the four that are stored together */
    };
    sized_world *world = sized_world_new(BITS, REGIONS);
    ga_sized_view view = view_of(world);
    for (uint32_t turn = 0; turn < 3; turn++) {
        fill(world, OLD);
        ga_sized_class_map map = ga_sized_load_class_map(world->heap->of + OLD);
        uint32_t keys[REGIONS * 64];
        cr_assert_leq(map.total_words, REGIONS * 64);
        for (uint32_t word = 0; word < map.total_words; word++) {
            keys[word] = ga_sized_word_index(view, map, word);
        }
        free_all(world);
        ask(world, NEW, 1, 0);
        for (uint32_t region = 1; region < REGIONS; region++) {
            for (uint32_t i = 0; i < units_in(NEW, 1); i++) {
                ask(world, NEW, 1, i);
            }
        }
        for (uint32_t word = 0; word < map.total_words; word++) {
            ga_sized_position home;
            if (ga_sized_home_position(map, word, &home)) {
                uint32_t taken =
                    ga_sized_try_set_lanes(view, sized_tile(), ga_sized_position_index(view, home));
                cr_assert_eq(taken, GA_ALL_BITS, "word %u is full for the fast path", word);
            }
            cr_assert_eq(ga_sized_try_set_verify(view, OLD, keys[word], GA_ALL_BITS), GA_ALL_BITS);
            uint32_t got = ga_sized_probe_bits(view, keys[word], GA_ALL_BITS);
            /* A bit behind the last word would not keep the region in its class. */
            uint32_t within = keys[word] & ga_bits_below(ga_sized_bitmap_bits(BITS));
            cr_assert(within < world->heap->of[NEW].map.words || !got, "word %u is full", word);
            cr_assert_eq(ga_sized_keep_bits(view, OLD, keys[word], got), 0);
        }
        fill(world, NEW);
        cr_assert_eq(count, units_in(NEW, REGIONS), "what a late claim had is back");
        expect_apart(world);
        free_all(world);
    }
    sized_world_delete(world);
}

/* With the checks a second free is noticed after its region has another class, too. */
Test(sized_full, checked_frees_know_the_class_that_a_region_has_now)
{
    sized_world *world = sized_world_new(BITS, 2);
    world->heap->check = 1;
    fill(world, 8);
    char *old = blocks[3];
    free_all(world);
    fill(world, 30);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t block = (uint64_t)blocks[i];
        ga_sized_free_lanes_checked(world->heap, sized_tile(), 1, ga_lanes_all((uint32_t)block),
                                    ga_lanes_all((uint32_t)(block >> 32)));
    }
    cr_assert_eq(world->heap->faults, 0);
    uint64_t block = (uint64_t)old;
    ga_sized_free_lanes_checked(world->heap, sized_tile(), 1, ga_lanes_all((uint32_t)block),
                                ga_lanes_all((uint32_t)(block >> 32)));
    cr_assert_eq(world->heap->faults, 1);
    count = 0;
    cr_assert_eq(fill(world, 8), units_in(8, 2));
    free_all(world);
    sized_world_delete(world);
}
