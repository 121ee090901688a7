/* SPDX-License-Identifier: MIT
 *
 * Threads, as tiles, use the nodes that cells point to, replace them, and free the nodes that no
 * tile can be using any more (reclaim/epoch_tile.h). Each thread enters, uses cells for a while,
 * and enters anew or leaves. Any of them may close an epoch, or free the nodes that waited for one.
 * Nodes and notes are plain memory, so the thread sanitizer reports a missing order.
 *
 * With a planted bug it must fail, or the thread sanitizer must report it (meson.build here, and
 * that of tests/planted).
 */
#include <reclaim/epoch_tile.h>

#include "stress.h"

#include "support/random.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS = 4,
    CELLS = 3,
    WORDS = 6,     /* of a node */
    PERIOD = 2000, /* entries of a thread in a round */
    USES = 6       /* uses, at most, before a thread checks whether its epoch is closed */
};
#define SEAL UINT64_C(0x9e3779b97f4a7c15)

typedef struct node {
    uint64_t words[WORDS]; /* plain: its number times SEAL, each */
    struct node *later;    /* next on the list of unlinked nodes */
} node;

static struct {
    ga_epochs epochs;
    node *cells[CELLS]; /* C */
    node *retired;      /* R: unlinked since the last epoch was closed */
    node *waiting;      /* owned by the thread that owns the epochs: nodes that wait for the closed
                         * epoch */
    uint64_t notes[2];  /* plain: of the side that is not being closed; written before any thread
                      * enters it */
    uint64_t closed;    /* owned by the thread that owns the epochs */
    uint64_t made;      /* relaxed: a number */
    uint64_t freed;     /* owned by the thread that owns the epochs */
    uint32_t round;
} world __attribute__((aligned(128)));

static ga_tile tile_of(size_t number)
{
    return ga_tile_of(number % 2 ? 8 : 32);
}

static node *new_node(void)
{
    node *n = malloc(sizeof *n);
    stress_need(n != NULL, "memory");
    /* relaxed: a number */
    uint64_t number = __atomic_add_fetch(&world.made, 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < WORDS; i++) {
        n->words[i] = number * SEAL;
    }
    return n;
}

/* The node in a cell was there when this tile entered, or came later. */
static void use(uint64_t *random)
{
    /* C2: acquire. Pairs with C1: the node's contents are visible. */
    node *n = __atomic_load_n(world.cells + random_below(random, CELLS), __ATOMIC_ACQUIRE);
    uint64_t first = n->words[0];
    for (uint32_t i = 1; i < WORDS; i++) {
        ga_epoch_test_yield();
        stress_need(n->words[i] == first && first != 0, "a node is freed while it is used");
    }
}

static void put_another(uint64_t *random)
{
    node *fresh = new_node();
    /* C1: release, so that C2 sees the contents; acquire, so that this thread retires a complete
     * node. Pairs with C2. */
    node *old =
        __atomic_exchange_n(world.cells + random_below(random, CELLS), fresh, __ATOMIC_ACQ_REL);
    /* relaxed: a guess, which the compare-and-swap confirms */
    old->later = __atomic_load_n(&world.retired, __ATOMIC_RELAXED);
    /* R1: release. Pairs with R2: the node was unlinked before. */
    while (!__atomic_compare_exchange_n(&world.retired, &old->later, old, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
}

/* Tiles that enter the other side from now on see the note. They may read it until that side has
 * drained. */
static void close_epoch(ga_tile tile)
{
    if (ga_epochs_claim(&world.epochs, tile)) {
        stress_need(world.waiting == NULL, "two close an epoch at once");
        /* R2: acquire. Pairs with R1. */
        world.waiting = __atomic_exchange_n(&world.retired, NULL, __ATOMIC_ACQUIRE);
        world.closed++;
        world.notes[world.closed % 2] = world.closed;
        ga_epochs_close(&world.epochs, tile);
    }
}

static void free_waiting(ga_tile tile)
{
    if (ga_epochs_drained(&world.epochs, tile)) {
        for (node *n = world.waiting; n; world.freed++) {
            node *later = n->later;
            memset(n->words, 0, sizeof n->words);
            free(n);
            n = later;
        }
        world.waiting = NULL;
        ga_epochs_reopen(&world.epochs, tile);
    }
}

/* The note of a side belongs to its epoch, and does not change. */
static uint64_t read_note(uint32_t pin)
{
    uint64_t note = world.notes[pin & 1u];
    stress_need(note % 2 == (pin & 1u), "a note of another side");
    return note;
}

static void work(size_t number)
{
    ga_tile tile = tile_of(number);
    uint64_t random = world.round * THREADS + number + 1;
    uint32_t stripe = number == 0 ? GA_EPOCH_STRIPES - 1 : (uint32_t)number;
    uint32_t pin = ga_epoch_enter(&world.epochs, tile, stripe);
    uint64_t note = read_note(pin), last = note;
    for (uint32_t i = 0; i < PERIOD; i++) {
        for (uint64_t uses = random_below(&random, USES); uses; uses--) {
            random_below(&random, 4) ? use(&random) : put_another(&random);
        }
        stress_need(read_note(pin) == note, "an epoch is closed that has not drained");
        if (random_below(&random, 4) == 0 || ga_epoch_is_closed(&world.epochs, tile, pin)) {
            ga_epoch_leave(&world.epochs, tile, pin);
            if (random_below(&random, 8) == 0) {
                sched_yield();
            }
            pin = ga_epoch_enter(&world.epochs, tile, stripe);
            note = read_note(pin);
            stress_need(note >= last, "who enters behind a close does not see what was before it");
            last = note;
        }
        if (random_below(&random, 2)) {
            close_epoch(tile);
        } else {
            free_waiting(tile);
        }
    }
    ga_epoch_leave(&world.epochs, tile, pin);
}

/* No thread is in an epoch: after two epochs every unlinked node is freed. */
static void end_round(void)
{
    ga_tile tile = ga_tile_of(8);
    for (uint32_t i = 0; i < 3; i++) {
        close_epoch(tile);
        free_waiting(tile);
    }
    stress_need(!world.waiting && !world.retired, "something is never freed");
    stress_need(world.epochs.step % 4 == GA_EPOCH_OPEN, "an epoch does not drain");
    stress_need(world.freed + CELLS == world.made, "a node is lost, or freed twice");
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    for (uint32_t i = 0; i < CELLS; i++) {
        world.cells[i] = new_node();
    }
    while (stress_goes_on() || world.round < 5) {
        world.round++;
        stress_threads(THREADS, work);
        end_round();
    }
    stress_need(world.closed > world.round * 10, "few epochs were closed");
    printf("%u rounds, %llu epochs, %llu nodes\n", world.round, (unsigned long long)world.closed,
           (unsigned long long)world.made);
    for (uint32_t i = 0; i < CELLS; i++) {
        free(world.cells[i]);
    }
    return 0;
}
