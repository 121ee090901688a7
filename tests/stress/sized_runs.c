/* SPDX-License-Identifier: MIT
 *
 * Threads, each as a tile, allocate runs of regions and units of classes, in a fixed heap and in a
 * growing one. The heaps are so small that all memory is reused all the time. The owner of a block
 * writes its mark plainly, so the thread sanitizer reports a missing order, and must find only its
 * own mark when it frees the block. At the end all free memory can be allocated in one piece.
 */
#include "backends/slab/classes/sized_runs.h"
#include "stress.h"
#include "support/random.h"
#include "support/sized_actor.h"
#include "support/sized_world.h"

#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BITS = 17,
    WORKERS = 6,
    REGIONS = 150,
    BLOCKS_MAX = 12, /* blocks that a worker holds */
    ROUNDS = 6000
};

typedef struct held {
    char *block;
    uint32_t first, n; /* a run of `n` regions; n is 0 for a unit */
} held;

typedef struct worker {
    pthread_t thread;
    sized_world *world;
    uint32_t number, seed, count;
    uint64_t claims, refusals;
    held mine[BLOCKS_MAX];
} worker;

/* Mark the beginning and the end of each region; with `check`, check the marks first. */
static void mark(worker *w, const held *h, bool check)
{
    uint64_t mark = (uint64_t)(w->number + 1) << 40 | (uintptr_t)h->block;
    for (uint32_t i = 0; i < (h->n ? h->n : 1); i++) {
        uint64_t *at = (uint64_t *)(h->block + ((size_t)i << BITS));
        if (check && *at != mark) {
            errx(1, "sized_runs: worker %u, region %u of %u: %llx, expected %llx", w->number, i,
                 h->n, (unsigned long long)*at, (unsigned long long)mark);
        }
        *at = mark;
    }
}

static void take_run(worker *w, uint64_t *random)
{
    ga_sized_heap *heap = w->world->heap;
    uint32_t n = 1 + (uint32_t)random_below(random, random_below(random, 4) ? 4 : 70);
    uint32_t align = random_below(random, 4) ? 1 : 4;
    uint32_t first = ga_sized_run_claim(heap, sized_tile(), n, align, 0);
    w->claims++;
    w->refusals += first == GA_SIZED_NONE;
    if (first != GA_SIZED_NONE) {
        held *h = &w->mine[w->count++];
        *h = (held){ga_sized_run_pointer(ga_sized_view_of(heap), first), first, n};
        mark(w, h, false);
    }
}

/* A unit of the largest class: two fit in a region. */
static void take_unit(worker *w)
{
    ga_sized_heap *heap = w->world->heap;
    uint32_t classes[32];
    char *blocks[32];
    for (int i = 0; i < 32; i++) {
        classes[i] = heap->classes - 1;
    }
    if (sized_claim(heap, 1, classes, w->number, blocks)) {
        w->mine[w->count] = (held){blocks[0], 0, 0};
        mark(w, &w->mine[w->count++], false);
    }
}

static void give(worker *w, uint32_t which)
{
    held *h = &w->mine[which];
    ga_sized_heap *heap = w->world->heap;
    mark(w, h, true);
    if (!h->n && !sized_release(heap, 1, &h->block)) {
        errx(1, "sized_runs: a unit was none");
    }
    if (h->n && !ga_sized_runs_free(heap, sized_tile(), 1, ga_lanes_all(h->first))) {
        errx(1, "sized_runs: a run was none");
    }
    *h = w->mine[--w->count];
}

/* Free half of a run. */
static void shorten(worker *w, uint32_t which)
{
    held *h = &w->mine[which];
    if (h->n > 1) {
        ga_sized_run run = ga_sized_run_find(ga_sized_view_of(w->world->heap), h->block);
        if (run.n != h->n || run.offset ||
            !ga_sized_run_shorten(w->world->heap, sized_tile(), run, h->n / 2)) {
            errx(1, "sized_runs: a run of %u, expected %u", run.n, h->n);
        }
        h->n /= 2;
    }
}

static void *work(void *argument)
{
    worker *w = argument;
    uint64_t random = w->seed + 17;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t what = random_below(&random, 100);
        if (what < 50 && w->count < BLOCKS_MAX) {
            take_run(w, &random);
        } else if (what < 52 && w->count < BLOCKS_MAX) {
            take_unit(w);
        } else if (what < 60 && w->count) {
            shorten(w, (uint32_t)random_below(&random, w->count));
        } else if (w->count) {
            give(w, (uint32_t)random_below(&random, w->count));
        }
    }
    while (w->count) {
        give(w, 0);
    }
    return NULL;
}

/* The pool holds the regions below `next` that no class has, and counts them. */
static void check_end(const sized_world *world)
{
    const ga_sized_heap *heap = world->heap;
    uint32_t free = 0;
    for (uint32_t region = 0; region < heap->next; region++) {
        bool is_class = ga_sized_owner_class(heap->owners[region]) != GA_SIZED_NONE;
        if (is_class == (heap->pool[region / 32] >> region % 32 & 1)) {
            errx(1, "sized_runs: region %u is %x, and its bit says else", region,
                 heap->owners[region]);
        }
        free += !is_class;
    }
    if (heap->pooled != free) {
        errx(1, "sized_runs: %u regions are free, and %u were counted", free, heap->pooled);
    }
}

static void run(const char *name, sized_world *world, uint32_t round)
{
    static worker workers[WORKERS];
    uint64_t claims = 0, refusals = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.world = world, .number = i, .seed = round * 64 + i};
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        claims += workers[i].claims;
        refusals += workers[i].refusals;
    }
    check_end(world);
    printf("%s: %llu runs wanted, %llu refused\n", name, (unsigned long long)claims,
           (unsigned long long)refusals);
    if (!refusals || refusals == claims) {
        errx(1, "sized_runs: nothing was scarce");
    }
    sized_world_delete(world);
}

/* No thread frees: all memory that fits is allocated, for any number of requests. Allocates runs of
 * three regions in a fragmented heap. */
static void *fill(void *argument)
{
    worker *w = argument;
    while (ga_sized_run_claim(w->world->heap, sized_tile(), 3, 1, 0) != GA_SIZED_NONE) {
        w->claims++;
    }
    return NULL;
}

static void exact(uint32_t round)
{
    static worker workers[WORKERS];
    sized_world *world = sized_world_new(BITS, REGIONS);
    uint64_t random = round + 1, claims = 0;
    uint32_t expected = 0, free = 0;
    bool kept[REGIONS + 1] = {[REGIONS] = true};
    for (uint32_t i = 0; i < REGIONS; i++) {
        ga_sized_run_claim(world->heap, sized_tile(), 1, 1, 0);
        kept[i] = random_below(&random, 12) == 0;
    }
    for (uint32_t i = 0; i <= REGIONS; i++) {
        expected += kept[i] ? free / 3 : 0;
        free = kept[i] ? 0 : free + 1;
    }
    for (uint32_t i = 0; i < REGIONS; i++) {
        if (!kept[i]) {
            ga_sized_runs_free(world->heap, sized_tile(), 1, ga_lanes_all(i));
        }
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.world = world, .number = i};
        pthread_create(&workers[i].thread, NULL, fill, &workers[i]);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        claims += workers[i].claims;
    }
    /* A run may cover parts of two free stretches. Each stretch is left with less than three
     * regions in a row, and no claim fails because of another claim's attempt. */
    for (uint32_t i = 0, row = 0; i < REGIONS; i++) {
        row = world->heap->pool[i / 32] >> i % 32 & 1 ? row + 1 : 0;
        if (row == 3) {
            errx(1, "sized_runs: three regions at %u are free, and were refused", i - 2);
        }
    }
    if (claims > expected) {
        errx(1, "sized_runs: %llu runs where %u have room", (unsigned long long)claims, expected);
    }
    sized_world_delete(world);
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    for (uint32_t round = 0; !round || stress_goes_on(); round++) {
        if (round % 40 == 0) {
            run("fixed", sized_world_new(BITS, REGIONS), round);
            run("growing", sized_world_growing(BITS, REGIONS), round);
        }
        exact(round);
    }
    return 0;
}
