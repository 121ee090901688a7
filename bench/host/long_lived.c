/* SPDX-License-Identifier: MIT
 *
 * Workload `long-lived`: a program that runs for long. Its threads fill a table with blocks of
 * random sizes, then replace them in random order, with short-lived blocks in between. The sizes
 * grow over time, so that memory of small blocks must serve large ones. At the end half of the
 * blocks, in random order, are freed.
 *
 * Every spec gets equal requests, counted and not timed, so that the held memory can be compared:
 * the growth of the process's resident memory divided by the bytes of the live blocks, when the
 * table is full, and again when half of it is freed. One operation is one free and one malloc.
 */
#include "../runner/clock.h"
#include "../runner/machine.h"
#include "team.h"
#include "workloads.h"

enum {
    BRIEF = 4,    /* of five blocks, how many are freed at once */
    TURNOVER = 3, /* times that each table slot is replaced, on average */
    ENTRIES_MAX = 1 << 20
};

static const size_t TABLE_BYTES = (size_t)48 << 20; /* of all threads together */

typedef struct entry {
    void *block;
    size_t size;
} entry;

typedef struct store {
    size_t count;
    size_t live_bytes;
    entry entries[];
} store;

static ga_status put(ga_bench_worker *worker, entry *e, size_t most)
{
    size_t size = ga_bench_random_size(&worker->random, most ? most : 1);
    ga_status status = ga_alloc(worker->run->heap, size, 0, &e->block);
    if (status == GA_OK) {
        ga_bench_touch(e->block, 0, size);
        e->size = size;
    }
    return status;
}

static ga_status drop(ga_bench_worker *worker, entry *e)
{
    ga_status status = ga_free(worker->run->heap, e->block);
    *e = (entry){NULL, 0};
    return status;
}

static ga_status fill(ga_bench_worker *worker, store *s)
{
    ga_status status = GA_OK;
    for (size_t i = 0; i < s->count && status == GA_OK; i++) {
        status = put(worker, &s->entries[i], worker->run->size / 4);
    }
    return status;
}

/* One slot replaced, after blocks that lived for a moment. */
static ga_status turn_over(ga_bench_worker *worker, store *s, size_t most)
{
    for (int i = 0; i < BRIEF; i++) {
        entry brief;
        ga_status status = put(worker, &brief, most);
        if (status == GA_OK) {
            status = drop(worker, &brief);
        }
        if (status != GA_OK) {
            return status;
        }
    }
    entry *e = &s->entries[(ga_bench_random(&worker->random) >> 20) % s->count];
    ga_status status = drop(worker, e);
    worker->done += BRIEF + 1;
    return status == GA_OK ? put(worker, e, most) : status;
}

static ga_status churn(ga_bench_worker *worker, store *s)
{
    size_t turns = s->count * TURNOVER;
    ga_status status = GA_OK;
    for (size_t i = 0; i < turns && status == GA_OK; i++) {
        size_t quarters = 1 + 4 * i / turns; /* the largest size grows from a quarter to all */
        status = turn_over(worker, s, worker->run->size * (quarters < 4 ? quarters : 4) / 4);
    }
    return status;
}

static ga_status thin_out(ga_bench_worker *worker, store *s)
{
    ga_status status = GA_OK;
    for (size_t i = 0; i < s->count && status == GA_OK; i++) {
        if (ga_bench_random(&worker->random) >> 63) {
            status = drop(worker, &s->entries[i]);
        }
    }
    return status;
}

static void count_live(store *s)
{
    s->live_bytes = 0;
    for (size_t i = 0; i < s->count; i++) {
        s->live_bytes += s->entries[i].size;
    }
}

/* Do one part of the work between two barriers; a worker that has failed only waits at the
 * barriers. */
static void part(ga_bench_worker *worker, ga_status (*work)(ga_bench_worker *, store *))
{
    store *s = worker->own;
    if (worker->status == GA_OK) {
        ga_status status = work(worker, s);
        if (status != GA_OK) {
            ga_bench_worker_failed(worker, status);
        }
        count_live(s);
    }
    pthread_barrier_wait(worker->meet); /* the part is done */
}

static void duty(ga_bench_worker *worker)
{
    store *const *stores = worker->shared;
    store *s = stores[worker->index];
    worker->own = s;
    part(worker, fill);
    part(worker, churn);
    pthread_barrier_wait(worker->meet); /* the full table has been measured */
    part(worker, thin_out);
    pthread_barrier_wait(worker->meet); /* the remaining blocks have been measured */
    for (size_t i = 0; i < s->count; i++) {
        ga_free(worker->run->heap, s->entries[i].block);
    }
}

/* Bytes of resident memory that were added since before the heap was opened, for each live byte. */
static double held_per_live(const ga_bench_case *run, store *const *stores)
{
    size_t live = 0;
    for (unsigned i = 0; i < run->threads; i++) {
        live += stores[i]->live_bytes;
    }
    size_t resident = ga_bench_resident();
    return resident > run->resident ? (double)(resident - run->resident) / (double)live : 0;
}

static void direct(ga_bench_team *team, const ga_bench_case *run, store *const *stores,
                   double *values)
{
    ga_bench_team_meet(team); /* filled */
    uint64_t from = ga_bench_now();
    ga_bench_team_meet(team); /* churned */
    uint64_t to = ga_bench_now();
    values[1] = held_per_live(run, stores);
    ga_bench_team_meet(team);
    ga_bench_team_meet(team); /* thinned out */
    values[2] = held_per_live(run, stores);
    ga_bench_team_meet(team);
    uint64_t done = 0;
    for (unsigned i = 0; i < team->count; i++) {
        done += team->workers[i].done;
    }
    values[0] = (double)done * 1e3 / (double)(to - from);
}

/* The mean of a doubling from L is 1.5 L, so that of all of them together 1.5 times the size over
 * their number. */
static size_t entries_for(const ga_bench_case *run)
{
    size_t doublings = 1;
    while ((size_t)32 << doublings <= run->size) {
        doublings++;
    }
    size_t mean = run->size * 3 / (2 * doublings);
    size_t count = TABLE_BYTES / (mean ? mean : 1);
    count = (count < ENTRIES_MAX ? count : ENTRIES_MAX) / run->threads;
    return count ? count : 1;
}

static ga_status make_stores(ga_bench_case *run, store **stores)
{
    size_t count = entries_for(run);
    size_t before = ga_bench_resident();
    for (unsigned i = 0; i < run->threads; i++) {
        stores[i] = ga_bench_space(sizeof *stores[i] + count * sizeof *stores[i]->entries);
        if (!stores[i]) {
            return GA_ERR_MEMORY;
        }
        stores[i]->count = count;
    }
    run->resident += ga_bench_resident() - before; /* the workload's own arrays do not count */
    return GA_OK;
}

static ga_status run(const ga_bench_case *asked, ga_bench_report *report)
{
    ga_bench_case run = *asked;
    ga_bench_team team;
    store **stores = ga_bench_space(run.threads * sizeof *stores);
    if (!stores) {
        return GA_ERR_MEMORY;
    }
    ga_status status = make_stores(&run, stores);
    if (status == GA_OK) {
        status = ga_bench_team_start(&team, &run, duty, stores);
    }
    if (status != GA_OK) {
        return status;
    }
    direct(&team, &run, stores, report->values);
    return ga_bench_team_join(&team);
}

static const ga_bench_metric metrics[] = {
    GA_BENCH_THROUGHPUT,
    {.name = "held", .unit = "byte/byte"},
    {.name = "held_after_half_freed", .unit = "byte/byte"},
};

const ga_bench_workload ga_bench_long_lived = {
    .name = "long-lived",
    .help = "a table of blocks turned over while sizes grow; memory held for each live byte",
    .place = GA_PLACE_HOST,
    .sizes = (const size_t[]){8 << 10, 0},
    .metric_count = sizeof metrics / sizeof *metrics,
    .metrics = metrics,
    .run = run,
};
