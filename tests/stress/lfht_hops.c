/* SPDX-License-Identifier: MIT
 *
 * The limit on hops (lfht-reclamation-2022, Figure 4.8): one thread looks up a key, and between any
 * two of its steps another thread moves the chain that it walks. The map calls this file's
 * lfht_aside() where threads yield otherwise, so the schedule is the same each time.
 *
 * The reader's chain moves down while the reader is at the first leaf, and the key goes into the
 * other bucket of the new node. In the reader's bucket the first leaf is removed and another is
 * appended, again and again: the chain is never longer than two, but the reader never reaches its
 * end. After two leaves the reader must return to its bucket, and from there find the key, without
 * a pause of the other thread. Without the limit (lfht_hops_not_limited) it continues as long as
 * the other thread.
 *
 * At the last level chains have any length, so there must be no limit: with one
 * (lfht_hops_limited_at_last_level) the reader would never arrive.
 */
#include "stress.h"

#include <gpualloc/lfht.h>

#include "support/hashes.h"

#include <semaphore.h>
#include <stdio.h>

enum {
    CHAIN = 2,
    TURNS = 1000,     /* changes that the writer makes, at most */
    ENOUGH = 40,      /* steps of the reader: 11 are needed */
    FAR = 1000000,    /* steps of one call at the last level; a call needs some thousands to get
                       * there */
    LONG = 5 * CHAIN, /* leaves of a chain there */
    FIRST = 1,        /* keys are their own hashes */
};
static const uint64_t wanted = UINT64_C(1) << 62;

static struct {
    ga_lfht *map;
    sem_t asked, done;
    uint64_t first, behind; /* keys of the chain: from `first` to before `behind` */
    uint64_t turns;         /* of the writer, so far */
    bool over;
} world;

/* Of a thread: steps since the call began. The writer does nothing between its own steps. */
static _Thread_local bool watched, last_level;
static _Thread_local uint64_t steps;

void lfht_aside(void);

/* Every second step reads a word, from a bucket or from the leaf that the previous step has
 * protected. */
void lfht_aside(void)
{
    if (!watched) {
        return;
    }
    steps++;
    stress_need(!last_level || steps < FAR, "a call goes round and round at the last level");
    if (!last_level && steps % 2 && steps > 1 && world.turns < TURNS) {
        sem_post(&world.asked);
        while (sem_wait(&world.done)) {
        }
    }
}

static void change(void)
{
    ga_lfht_found was;
    if (world.turns == 0) {
        NEED(ga_lfht_insert(world.map, wanted, 7, &was) == GA_OK && !was.found);
    } else {
        NEED(ga_lfht_remove(world.map, world.first++, &was) == GA_OK && was.found);
        NEED(ga_lfht_insert(world.map, world.behind++, 0, &was) == GA_OK && !was.found);
    }
    world.turns++;
}

static void look(void)
{
    ga_lfht_found found;
    watched = true;
    steps = 0;
    NEED(ga_lfht_lookup(world.map, wanted, &found) == GA_OK);
    watched = false;
    stress_need(found.found && found.value == 7, "the key that was put in was not found");
    stress_need(world.turns > CHAIN, "the reader has not followed the chain that moves on");
    stress_need(steps < ENOUGH, "a lookup follows a chain that others make longer, without end");
    world.over = true;
    sem_post(&world.asked);
}

static void take_part(size_t number)
{
    if (number == 0) {
        look();
        return;
    }
    for (;;) {
        while (sem_wait(&world.asked)) {
        }
        if (world.over) {
            return;
        }
        change();
        sem_post(&world.done);
    }
}

static uint64_t itself(void *context, uint64_t key)
{
    (void)context;
    return key;
}

static void open_map(ga_lfht_variant variant, ga_lfht_hash *hash)
{
    ga_lfht_options options = {.options_size = sizeof options,
                               .variant = variant,
                               .chunk = 1,
                               .chain = CHAIN,
                               .root = 1,
                               .hash = hash};
    NEED(ga_lfht_open(&world.map, &options) == GA_OK);
}

static void follow_a_chain(ga_lfht_variant variant)
{
    open_map(variant, itself);
    world.turns = 0;
    world.over = false;
    world.first = world.behind = FIRST;
    while (world.behind < FIRST + CHAIN) {
        NEED(ga_lfht_insert(world.map, world.behind++, 0, NULL) == GA_OK);
    }
    stress_threads(2, take_part);
    NEED(ga_lfht_close(world.map) == GA_OK);
}

static void pass_the_last_level(ga_lfht_variant variant)
{
    ga_lfht_found found;
    open_map(variant, hash_same);
    watched = last_level = true;
    for (uint64_t key = 0; key < LONG; key++) {
        steps = 0;
        NEED(ga_lfht_insert(world.map, key, key, NULL) == GA_OK);
    }
    for (uint64_t key = 0; key <= LONG; key++) {
        steps = 0;
        NEED(ga_lfht_lookup(world.map, key, &found) == GA_OK);
        stress_need(found.found == (key < LONG), "a key of the last level");
    }
    watched = last_level = false;
    NEED(ga_lfht_close(world.map) == GA_OK);
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    NEED(sem_init(&world.asked, 0, 0) == 0 && sem_init(&world.done, 0, 0) == 0);
    follow_a_chain(GA_LFHT_FHPA);
    follow_a_chain(GA_LFHT_FHP);
    pass_the_last_level(GA_LFHT_FHPA);
    return 0;
}
