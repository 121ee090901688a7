/* SPDX-License-Identifier: MIT
 *
 * Threads, as tiles, claim units of growing memory; the pager runs beside them. The pager commits a
 * step by a plain write, and a tile prepares it by plain writes, so the thread sanitizer reports a
 * missing order. No claim fails while there is a free unit, no failure has a wrong reason, and at
 * the end every unit up to the limit has been claimed once.
 *
 * With a planted bug it must fail, or the thread sanitizer must report it (meson.build here, and
 * that of tests/planted).
 */
#include "growth/growth.h"
#include "growth/pager.h"

#include "stress.h"

#include "support/random.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum {
    STEPS = 24,
    STEP_UNITS = 64,
    THREADS = 6,
    BACKED = 0x5a5a,
    PREPARED = 0xa5a5
};

/* Two ranges, as a slab heap has: `backed` is the memory that the driver maps, `units` its
 * units. */
static struct {
    ga_growth growth;
    uint32_t backed[STEPS];            /* plain: written by the pager, read by the tile that
                                        * prepares the step */
    uint32_t units[STEPS][STEP_UNITS]; /* plain: prepared by one tile, then written by the unit's
                                        * owner */
    uint32_t next;                     /* relaxed: hands out units */
    uint32_t taken;                    /* relaxed: a sum */
    uint32_t limit;                    /* steps; set before the threads */
    uint32_t refuse;  /* of `refuse` requests all but one are refused at first; 0: none */
    uint32_t refused; /* of the pager: requests so far */
    uint32_t round;
    ga_pager_client *client;
} world __attribute__((aligned(128)));

/* ---- the two sides ------------------------------------------------------------------------ */

/* Commits at most a few steps ahead. Refuses now and then for lack of memory, after half of the
 * way. */
static ga_growth_reason back(void *context, uint32_t wanted, uint32_t *backed)
{
    bool short_of_memory = world.refuse && ++world.refused % world.refuse;
    uint32_t ahead = wanted + wanted % 3u;
    uint32_t reach = short_of_memory ? (*backed + wanted) / 2u : ahead;
    reach = reach < world.limit ? reach : world.limit;
    (void)context;
    for (; *backed < reach; ++*backed) {
        world.backed[*backed] = BACKED;
    }
    return *backed >= wanted                                ? GA_GROWTH_GRANTED
           : wanted > world.limit && *backed == world.limit ? GA_GROWTH_LIMIT
                                                            : GA_GROWTH_MEMORY;
}

static void prepare_step(uint32_t step)
{
    stress_need(world.backed[step] == BACKED, "a step is prepared that is not backed");
    for (uint32_t i = 0; i < STEP_UNITS; i++) {
        stress_need(world.units[step][i] == 0, "a step is prepared twice");
        world.units[step][i] = PREPARED;
        if (i == STEP_UNITS / 2) {
            sched_yield(); /* another tile may request growth now, but must not prepare */
        }
    }
}

static void prepare(ga_tile tile, void *context, uint32_t from, uint32_t to)
{
    (void)tile;
    (void)context;
    for (uint32_t step = from; step < to; step++) {
        prepare_step(step);
    }
}

static void begin(uint32_t limit, uint32_t refuse)
{
    memset(&world, 0, sizeof world);
    world.limit = limit;
    world.refuse = refuse;
    stress_need(ga_pager_add(&world.client, GA_PAGER_HOST, 0, back, NULL) == GA_OK, "a pager");
    world.growth = ga_growth_first(ga_pager_mailbox(world.client), 0);
    world.growth.refusal_ns = 20000; /* ns */
    world.growth.poll_ns = 1;
}

static void end(void)
{
    ga_pager_remove(world.client);
}

/* ---- all at once -------------------------------------------------------------------------- */

/* Claim a unit; false at the limit. A refusal for lack of memory is tried again. */
static bool take(uint32_t unit, size_t number)
{
    uint32_t want = unit / STEP_UNITS + 1u;
    uint32_t found;
    while ((found = ga_growth_await(ga_tile_of(32), &world.growth, want, prepare, NULL)) ==
           GA_GROWTH_MEMORY) {
        stress_need(world.refuse, "out of memory without reason");
        sched_yield();
    }
    stress_need(found == GA_GROWTH_GRANTED || found == GA_GROWTH_LIMIT, "no such reason");
    stress_need((found == GA_GROWTH_GRANTED) == (want <= world.limit),
                "refused what there is, or granted what there is not");
    if (found != GA_GROWTH_GRANTED) {
        return false;
    }
    uint32_t *at = &world.units[want - 1u][unit % STEP_UNITS];
    stress_need(*at == PREPARED, "a unit is used that is not prepared");
    *at = (uint32_t)number + 1u;
    return true;
}

static void work(size_t number)
{
    uint64_t random = world.round * THREADS + number + 1;
    bool goes_on = true;
    while (goes_on) {
        uint32_t unit = __atomic_fetch_add(&world.next, 1, __ATOMIC_RELAXED);
        goes_on = take(unit, number);
        __atomic_fetch_add(&world.taken, goes_on, __ATOMIC_RELAXED);
        if (random_below(&random, 8) == 0) {
            ga_growth_hint(ga_tile_of(32), &world.growth, unit / STEP_UNITS + 2u, prepare, NULL);
        }
    }
}

static void grow(uint32_t round)
{
    begin(round % 7 ? STEPS : round % STEPS, round % 3 ? 0 : 2 + round % 4);
    world.round = round;
    stress_threads(THREADS, work);
    stress_need(world.taken == world.limit * STEP_UNITS, "not all was taken");
    stress_need(ga_growth_ready(&world.growth) == world.limit, "more than the limit is ready");
    end();
}

/* ---- alone -------------------------------------------------------------------------------- */

static uint32_t await(uint32_t want)
{
    return ga_growth_await(ga_tile_of(32), &world.growth, want, prepare, NULL);
}

static void look(void)
{
    ga_growth_hint(ga_tile_of(32), &world.growth, 1, prepare, NULL);
}

/* The test acts as the pager: one request at a time, and an answer counts only for its own
 * request. */
static void ask_again(ga_mailbox *mailbox)
{
    look();
    uint64_t request = mailbox->request;
    look();
    stress_need(request == ga_mail_word(1, 1, 0), "it requests a step");
    stress_need(mailbox->request == request, "once");
    mailbox->answer = ga_mail_word(0, 1, GA_GROWTH_MEMORY);
    stress_need(await(1) == GA_GROWTH_MEMORY, "the answer is a refusal");
    while (mailbox->request == request) { /* until the refusal is old */
        look();
    }
    look();
    stress_need(mailbox->request == ga_mail_word(1, 2, 0), "which is asked anew, once");
    world.backed[0] = BACKED;
    mailbox->answer = ga_mail_word(1, 2, GA_GROWTH_GRANTED);
    stress_need(await(1) == GA_GROWTH_GRANTED, "and granted");
}

/* An answer may grant fewer steps than were requested, and refuse the others for lack of memory.
 * The granted ones may be used while the refusal lasts. */
static void grant_in_part(ga_mailbox *mailbox)
{
    world.growth.refusal_ns = 60000000000; /* ns: longer than this test */
    ga_growth_hint(ga_tile_of(32), &world.growth, 2, prepare, NULL);
    stress_need(mailbox->request == ga_mail_word(2, 1, 0), "it requests two steps");
    world.backed[0] = BACKED;
    mailbox->answer = ga_mail_word(1, 1, GA_GROWTH_MEMORY);
    stress_need(await(2) == GA_GROWTH_MEMORY, "the second is refused");
    stress_need(await(1) == GA_GROWTH_GRANTED, "the first is granted beside the refusal");
}

/* Without a pager no kernel waits forever. Once an answer arrives, growth works again. */
static void lose_the_pager(ga_mailbox *mailbox)
{
    world.growth.timeout_ns = 100000; /* ns */
    stress_need(await(1) == GA_GROWTH_GONE, "the pager is gone");
    world.backed[0] = BACKED;
    mailbox->answer = ga_mail_word(1, 1, GA_GROWTH_GRANTED);
    while (ga_growth_ready(&world.growth) == 0) {
        look();
    }
    stress_need(await(1) == GA_GROWTH_GRANTED, "it has come back");
}

static void by_hand(void (*body)(ga_mailbox *mailbox))
{
    static ga_mailbox mailbox;
    memset(&mailbox, 0, sizeof mailbox);
    begin(STEPS, 0);
    world.growth.mailbox = &mailbox;
    world.growth.poll_ns = 0;
    body(&mailbox);
    end();
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    uint32_t rounds = 0;
    by_hand(ask_again);
    by_hand(grant_in_part);
    by_hand(lose_the_pager);
    while (stress_goes_on() || rounds < 8) {
        grow(rounds++);
    }
    printf("%u rounds\n", rounds);
    return 0;
}
