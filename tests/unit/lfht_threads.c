/* SPDX-License-Identifier: MIT
 *
 * Threads that end inside a call, in any number, or were stopped with claims in a line.
 */
#include "lfht_subject.h"

#include "../../hashtables/lfht/lines.h"
#include "support/expect.h"

#include <pthread.h>

/* ---- threads that end ----------------------------------------------------------------------- */

static bool ends_the_thread(void *context, uint64_t a, uint64_t b)
{
    if (context) {
        pthread_exit(NULL);
    }
    return a == b;
}

static void *insert_colliding(void *map)
{
    assert_ok(ga_lfht_insert(map, 2, 2, NULL));
    return NULL;
}

/* A thread ends in the middle of a call, with its nodes protected. */
Test(lfht_threads, survives_a_thread_that_ends_inside)
{
    for (int v = 0; v < GA_LFHT_VARIANT_COUNT; v++) {
        ga_lfht *map;
        pthread_t thread;
        ga_lfht_found found;
        ga_lfht_options options = small_options((ga_lfht_variant)v, NULL);
        options.hash = hash_same;
        options.equal = ends_the_thread;
        options.context = &options;
        assert_ok(ga_lfht_open(&map, &options));
        assert_ok(ga_lfht_insert(map, 1, 1, NULL));
        cr_assert_eq(pthread_create(&thread, NULL, insert_colliding, map), 0);
        pthread_join(thread, NULL);
        assert_ok(ga_lfht_lookup(map, 1, &found)); /* the key itself: no callback is called */
        cr_assert(found.found);
        assert_ok(ga_lfht_remove(map, 1, &found));
        cr_assert(found.found);
        assert_ok(ga_lfht_close(map));
    }
}

static void *insert_some(void *map)
{
    static uint64_t next;
    uint64_t first = __atomic_fetch_add(&next, 10, __ATOMIC_RELAXED); /* relaxed: a number */
    for (uint64_t i = first; i < first + 10; i++) {
        assert_ok(ga_lfht_insert(map, i, i, NULL));
    }
    return NULL;
}

/* More than have shards of their own. */
Test(lfht_threads, takes_any_number_of_threads)
{
    enum {
        THREADS = 150
    };
    ga_lfht *map;
    assert_ok(ga_lfht_open(&map, NULL));
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, insert_some, map), 0);
        pthread_join(thread, NULL);
    }
    cr_assert_eq(ga_lfht_size(map), 10 * THREADS);
    assert_ok(ga_lfht_close(map));
}

/* ---- claims of threads that are stopped ----------------------------------------------------- */

/* The line that the hash's pair is in, and how many bits of the hash lead to it. */
static lfht_line *line_of(const ga_lfht *map, uint64_t hash, uint32_t *used)
{
    lfht_word *place = &map->root_words[hash >> (64 - map->root_bits)];
    *used = map->root_bits;
    while (*place & LINE_LINK && line_node(*place) && !line_is_deep(*place)) {
        lfht_word link = *place;
        place = line_location_of(link, *used, hash);
        *used += line_hash_bits(link);
    }
    return *place & LINE_LINK ? NULL : (lfht_line *)place;
}

/* All free cells are claimed, as by threads that were stopped before they published their pairs. */
static void claim_all(lfht_line *line)
{
    while (line_free_cells(line->word)) {
        line->word = line_next_version(line_set_tag(
            line->word, line_first_cell(line_free_cells(line->word)), LINE_TAG_CLAIMED));
    }
}

/* The next insertion finds no free cell. The new node must not be as large as before: else all
 * threads could claim and retry forever, and none would publish its pair. In the end no bits are
 * left, and the pairs are in an array, which has no claims. */
Test(lfht_threads, claims_do_not_come_for_ever)
{
    ga_heap *heap = open_heap("slab/system");
    ga_lfht_options options = {.options_size = sizeof options,
                               .variant = GA_LFHT_INLINE,
                               .root = 1,
                               .chunk = 1,
                               .hash = hash_same,
                               .heap = heap};
    ga_lfht *map;
    ga_lfht_found was;
    uint32_t used, before = 0, rounds = 0;
    assert_ok(ga_lfht_open(&map, &options));
    assert_ok(ga_lfht_insert(map, 1, 1, NULL));
    uint64_t hash = hash_same(NULL, 1);
    for (lfht_line *line; (line = line_of(map, hash, &used)); rounds++) {
        cr_assert(rounds == 0 || used > before, "%u bits, and then %u", before, used);
        before = used;
        claim_all(line);
        assert_ok(ga_lfht_insert(map, 2, 2, &was));
        cr_assert_not(was.found);
        assert_ok(ga_lfht_remove(map, 2, &was));
        cr_assert(was.found);
    }
    cr_assert_eq(rounds, 64, "a bit each time, and an array: %u", rounds);
    assert_ok(ga_lfht_lookup(map, 1, &was));
    cr_assert(was.found && was.value == 1);
    assert_ok(ga_lfht_close(map));
    cr_assert_eq(blocks_of(heap), 0);
    assert_ok(ga_heap_close(heap));
}
