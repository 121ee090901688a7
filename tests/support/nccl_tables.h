/* SPDX-License-Identifier: MIT
 *
 * Sharded tables over NCCL, with a driver and an NCCL of the host's memory: ranks that are threads,
 * their shards, and calls of which one fails.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_NCCL_TABLES_H
#define GPUALLOC_TESTS_SUPPORT_NCCL_TABLES_H

#include <gpualloc/backend.h>
#include <gpualloc/slabhash_nccl.h>

#include "expect.h"
#include "nccl.h"
#include "ranks.h"
#include "vmm_driver.h"

#include "../hashtables/sharded/sharded.h"
#include "device/device.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    KEYS = 3000,
    PIECE = 1000,
    LIMIT_MS = 200,
    PATIENT_MS = 30000 /* where no rank is to be late */
};

static uint32_t limit_ms = LIMIT_MS;
static bool is_old_driver;   /* without waits for values on streams */
static uint64_t shard_bytes; /* as the shards say */
static uint64_t slice_least; /* requests of a slice; 0: so many that there is one slice */

static nccl_begin_fn *nccl_begin;
static nccl_end_fn *nccl_end;
static nccl_fail_fn *nccl_fail;
static nccl_calls_fn *nccl_calls;
static nccl_aborts_fn *nccl_aborts;
static nccl_set_windows_fn *nccl_set_windows;
static nccl_windows_fn *nccl_windows;
static nccl_is_on_device_fn *nccl_is_on_device;
static nccl_set_waiting_fn *nccl_set_waiting;

/* Each test is a process of its own. */
static inline void load(void)
{
    setenv("GPUALLOC_NCCL", NCCL_STAND_IN, 1);
    void *library = dlopen(NCCL_STAND_IN, RTLD_NOW);
    cr_assert_not_null(library, "%s", dlerror());
    *(void **)&nccl_begin = dlsym(library, "nccl_begin");
    *(void **)&nccl_end = dlsym(library, "nccl_end");
    *(void **)&nccl_fail = dlsym(library, "nccl_fail");
    *(void **)&nccl_calls = dlsym(library, "nccl_calls");
    *(void **)&nccl_aborts = dlsym(library, "nccl_aborts");
    *(void **)&nccl_set_windows = dlsym(library, "nccl_set_windows");
    *(void **)&nccl_windows = dlsym(library, "nccl_windows");
    *(void **)&nccl_is_on_device = dlsym(library, "nccl_is_on_device");
    *(void **)&nccl_set_waiting = dlsym(library, "nccl_set_waiting");
    nccl_set_waiting(vmm_driver_waiting);
}

/* ---- a shard: a table of the host, as this driver's memory is the host's --------------------- */

static inline ga_status shard_run(void *table, const ga_slabhash_batch *batches, uint32_t count,
                                  uint64_t *counts, void *stream)
{
    ga_status status = GA_OK;
    (void)stream;
    for (uint32_t i = 0; status == GA_OK && i < count; i++) {
        status = ga_slabhash_run(table, batches + i, NULL);
        if (counts && status == GA_ERR_MEMORY) {
            counts[GA_SLABHASH_FULL]++;
        }
        status = status == GA_ERR_MEMORY || status == GA_ERR_ARGUMENT ? GA_OK : status;
    }
    return status;
}

static inline ga_status shard_run_all(void *table, const ga_slabhash_all *all, bool removes,
                                      uint64_t *totals, void *stream)
{
    uint64_t total = 0;
    (void)stream;
    ga_status status = removes ? ga_slabhash_run_delete_all(table, all, &total)
                               : ga_slabhash_run_search_all(table, all, &total);
    totals[0] += total;
    return status;
}

static inline ga_status shard_fails(void *table, const ga_slabhash_batch *batches, uint32_t count,
                                    uint64_t *counts, void *stream)
{
    (void)table;
    (void)batches;
    (void)count;
    (void)counts;
    (void)stream;
    return ga_fail(GA_ERR_DEVICE, "told to fail");
}

static int waits_of_shards, ended_waits; /* calls so far, and those that an abort has ended */
static int aborts_before;

/* As a call that waits for all work on the device, while another rank does not do its part. */
static inline ga_status shard_waits(void *table, const ga_slabhash_batch *batches, uint32_t count,
                                    uint64_t *counts, void *stream)
{
    __atomic_fetch_add(&waits_of_shards, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 20 && nccl_aborts() == aborts_before; i++) {
        nanosleep(&(struct timespec){0, LIMIT_MS * 1000000L / 4}, NULL);
    }
    __atomic_fetch_add(&ended_waits, nccl_aborts() != aborts_before, __ATOMIC_RELAXED);
    return shard_run(table, batches, count, counts, stream);
}

static inline ga_status shard_size(void *table, uint64_t *pairs, void *stream)
{
    (void)stream;
    return ga_slabhash_size(table, pairs);
}

static inline ga_status shard_close(void *table)
{
    return ga_slabhash_close(table);
}

static inline void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

typedef ga_status serve(void *table, const ga_slabhash_batch *batches, uint32_t count,
                        uint64_t *counts, void *stream);

typedef struct world {
    ranks all; /* threads alone */
    pthread_barrier_t openings;
    void *comms[RANKS_MOST];
    serve *serves;  /* of rank 1 */
    uint32_t flags; /* of ga_nccl_options */
    bool waits;     /* the shards */
    ga_status opened[RANKS_MOST], statuses[RANKS_MOST];
    ga_slabhash_sharded *tables[RANKS_MOST];
    uint64_t counts[RANKS_MOST][4];
    uint32_t keys[RANKS_MOST][KEYS], values[RANKS_MOST][KEYS], found[RANKS_MOST][KEYS];
    uint8_t results[RANKS_MOST][KEYS];
    uint64_t all_counts[RANKS_MOST][KEYS], all_firsts[RANKS_MOST][KEYS];
    uint64_t all_values[RANKS_MOST][KEYS], all_totals[RANKS_MOST];
    CUstream streams[RANKS_MOST];
    ga_slabhash_op op;
} world;

static inline void open_one(ranks *all, uint32_t rank, void *context)
{
    world *w = context;
    ga_exchange exchange;
    ga_nccl_options limit = {
        .options_size = sizeof limit, .time_limit_ms = limit_ms, .flags = w->flags};
    ga_sharded_options sharded = {.options_size = sizeof sharded, .piece = PIECE};
    ga_slabhash_options options = {
        .options_size = sizeof options, .mode = GA_SLABHASH_MAP32, .buckets = 500};
    ga_slabhash_plan plan;
    (void)all;
    w->tables[rank] = NULL;
    pthread_barrier_wait(&w->openings); /* the limit is for the communicator alone */
    w->opened[rank] = ga_exchange_nccl(&exchange, w->comms[rank], &limit);
    if (w->opened[rank] != GA_OK) {
        cr_log_info("rank %u: %s", rank, ga_error_text());
        return;
    }
    cr_assert_eq(exchange.device, (int)rank);
    ga_shard shard = {.shard_size = sizeof shard,
                      .mode = GA_SLABHASH_MAP32,
                      .run = w->waits                 ? shard_waits
                             : w->serves && rank == 1 ? w->serves
                                                      : shard_run,
                      .run_all = shard_run_all,
                      .size = shard_size,
                      .close = shard_close};
    w->opened[rank] = ga_sharded_seed(&exchange, &options.seed);
    if (w->opened[rank] != GA_OK) {
        cr_log_info("rank %u: %s", rank, ga_error_text());
        exchange.close(exchange.context);
        return;
    }
    cr_assert_eq(ga_slabhash_plan_of(&options, &plan), GA_OK);
    shard.a = plan.a;
    shard.b = plan.b;
    shard.bytes = shard_bytes;
    cr_assert_eq(ga_slabhash_open((ga_slabhash **)&shard.table, &options), GA_OK);
    w->opened[rank] = ga_slabhash_sharded_open(&w->tables[rank], &exchange, &shard, &sharded);
    if (w->opened[rank] != GA_OK) {
        cr_log_info("rank %u: %s", rank, ga_error_text());
    } else if (slice_least) {
        w->tables[rank]->slice_least = slice_least;
    }
}

static inline void run_one(ranks *all, uint32_t rank, void *context)
{
    world *w = context;
    ga_slabhash_batch batch = {.count = KEYS - 100 * rank,
                               .keys = w->keys[rank],
                               .values = w->op == GA_SLABHASH_INSERT ? w->values[rank] : NULL,
                               .results = w->results[rank],
                               .found = w->found[rank],
                               .op = w->op};
    (void)all;
    if (w->tables[rank]) {
        w->statuses[rank] = ga_slabhash_sharded_run(w->tables[rank], &batch, w->counts[rank], NULL);
    }
}

/* All pairs of the keys of the next rank. */
static inline void search_all_one(ranks *all, uint32_t rank, void *context)
{
    world *w = context;
    uint32_t of = (rank + 1) % all->count;
    ga_slabhash_all batch = {.count = KEYS - 100 * of,
                             .keys = w->keys[of],
                             .counts = w->all_counts[rank],
                             .firsts = w->all_firsts[rank],
                             .values = w->all_values[rank],
                             .room = KEYS};
    if (w->tables[rank]) {
        w->statuses[rank] =
            ga_slabhash_sharded_search_all(w->tables[rank], &batch, &w->all_totals[rank], NULL);
    }
}

static inline void delete_all_one(ranks *all, uint32_t rank, void *context)
{
    world *w = context;
    ga_slabhash_all batch = {.count = KEYS - 100 * rank, .keys = w->keys[rank]};
    (void)all;
    w->statuses[rank] =
        ga_slabhash_sharded_delete_all(w->tables[rank], &batch, &w->all_totals[rank], NULL);
}

/* `fails_at`: the call of rank 1 that fails while it opens; below 0: none. `serves`: what the shard
 * of rank 1 does; NULL: as the others. */
static inline world *begin_all(uint32_t count, uint32_t flags, int fails_at, serve *serves)
{
    vmm_driver_options options = {.devices = VMM_DRIVER_DEVICES,
                                  .kernels = VMM_KERNELS_GROW,
                                  .others = nccl_is_on_device,
                                  .no_stream_values = is_old_driver};
    world *w = calloc(1, sizeof *w);
    vmm_driver_start(&options);
    ranks_begin(&w->all, count);
    pthread_barrier_init(&w->openings, NULL, count);
    nccl_begin(w->comms, count);
    nccl_fail(1, fails_at, 6);
    w->flags = flags;
    w->serves = serves;
    for (uint32_t rank = 0; rank < count; rank++) {
        for (uint32_t i = 0; i < KEYS; i++) {
            w->keys[rank][i] = rank * KEYS + i;
            w->values[rank][i] = w->keys[rank][i] + 7;
        }
    }
    ranks_run(&w->all, open_one, w);
    nccl_fail(1, -1, 0);
    return w;
}

static inline world *begin_with(uint32_t count, uint32_t flags, int fails_at)
{
    return begin_all(count, flags, fails_at, NULL);
}

static inline world *begin(uint32_t count)
{
    return begin_with(count, 0, -1);
}

static inline void run(world *w, ga_slabhash_op op)
{
    w->op = op;
    memset(w->statuses, 0, sizeof w->statuses);
    ranks_run(&w->all, run_one, w);
}

static inline void end(world *w)
{
    for (uint32_t rank = 0; rank < w->all.count; rank++) {
        assert_ok(ga_slabhash_sharded_close(w->tables[rank]));
    }
    nccl_end();
    ranks_end(&w->all);
    pthread_barrier_destroy(&w->openings);
    vmm_driver_stop();
    free(w);
}

static inline void expect_found(const world *w)
{
    for (uint32_t rank = 0; rank < w->all.count; rank++) {
        for (uint32_t i = 0; i < KEYS - 100 * rank; i++) {
            cr_assert_eq(w->results[rank][i], GA_SLABHASH_FOUND);
            cr_assert_eq(w->found[rank][i], w->values[rank][i]);
        }
        cr_assert_eq(w->counts[rank][GA_SLABHASH_FOUND], KEYS - 100 * rank);
    }
}

static inline void expect_all_found(const world *w)
{
    for (uint32_t rank = 0; rank < w->all.count; rank++) {
        uint32_t of = (rank + 1) % w->all.count;
        assert_ok(w->statuses[rank]);
        cr_assert_eq(w->all_totals[rank], KEYS - 100 * of);
        for (uint32_t i = 0; i < KEYS - 100 * of; i++) {
            cr_assert_eq(w->all_counts[rank][i], 1);
            cr_assert_eq(w->all_values[rank][w->all_firsts[rank][i]], w->values[of][i]);
        }
    }
}

static inline void expect_deleted(const world *w)
{
    for (uint32_t rank = 0; rank < w->all.count; rank++) {
        assert_ok(w->statuses[rank]);
        cr_assert_eq(w->all_totals[rank], KEYS - 100 * rank);
    }
}

/* Inserts, searches and deletes of `count` ranks. */
static inline void work_through(uint32_t count, uint32_t flags)
{
    limit_ms = PATIENT_MS;
    world *w = begin_with(count, flags, -1);
    limit_ms = LIMIT_MS;
    for (uint32_t rank = 0; rank < count; rank++) {
        assert_ok(w->opened[rank]);
    }
    run(w, GA_SLABHASH_INSERT);
    run(w, GA_SLABHASH_SEARCH);
    for (uint32_t rank = 0; rank < count; rank++) {
        assert_ok(w->statuses[rank]);
    }
    expect_found(w);
    ranks_run(&w->all, search_all_one, w);
    expect_all_found(w);
    ranks_run(&w->all, delete_all_one, w);
    expect_deleted(w);
    cr_assert_eq(nccl_aborts(), 0);
    vmm_driver_counts counts = vmm_driver_count();
    int made = 0;
    cr_assert_leq(nccl_windows(&made), 2 * (int)count); /* a block and a window of each */
    cr_assert_eq(counts.streams, 2 * count);
    for (uint32_t rank = 0; rank < count; rank++) {
        assert_ok(ga_slabhash_sharded_close(w->tables[rank]));
        w->tables[rank] = NULL;
    }
    counts = vmm_driver_count();
    cr_assert_eq(counts.blocks + counts.pinned + counts.streams + counts.events, 0);
    end(w);
}

/* Windows since the last call; none is left. */
static inline int windows_made(void)
{
    static int before;
    int made = 0;
    cr_assert_eq(nccl_windows(&made), 0);
    int since = made - before;
    before = made;
    return since;
}

/* Each call of NCCL, or every n-th one, fails once, with a table that is new each time. The rank
 * gets the reason, and the other one waits no longer than its limit. */
static inline void let_some_calls_fail(uint32_t flags, int least, int every)
{
    world *w = begin_with(2, flags, -1);
    int before = nccl_calls(1);
    run(w, GA_SLABHASH_INSERT);
    int made = nccl_calls(1) - before;
    assert_ok(w->statuses[1]);
    end(w);
    cr_assert_geq(made, least, "%d", made);
    for (int at = 0; at < made; at += every) {
        w = begin_with(2, flags, -1);
        assert_ok(w->opened[0]);
        assert_ok(w->opened[1]);
        nccl_fail(1, at, 6);
        run(w, GA_SLABHASH_INSERT);
        nccl_fail(1, -1, 0);
        cr_assert_eq(w->statuses[1], GA_ERR_DEVICE, "call %d", at);
        cr_assert_eq(w->statuses[0], GA_ERR_DEVICE, "call %d", at);
        run(w, GA_SLABHASH_SEARCH);
        cr_assert_eq(w->statuses[1], GA_ERR_DEVICE);
        ga_slabhash_found found;
        assert_ok(ga_slabhash_search(ga_slabhash_sharded_table(w->tables[1]), 5, &found));
        end(w);
    }
}

static inline void let_calls_fail(uint32_t flags, int least)
{
    let_some_calls_fail(flags, least, 1);
}

/* Inserts; inserts, and then a search for all pairs. `fails_at`: the call of the driver from the
 * last of these on that fails; 0: none. Returns the calls so far before that. */
typedef uint64_t driver_calls(world *w, uint64_t fails_at);

static inline uint64_t run_inserts(world *w, uint64_t fails_at)
{
    uint64_t before = vmm_driver_calls(NULL);
    if (fails_at) {
        vmm_driver_fail(NULL, fails_at, CUDA_ERROR_MAP_FAILED);
    }
    run(w, GA_SLABHASH_INSERT);
    return before;
}

static inline uint64_t search_after_inserts(world *w, uint64_t fails_at)
{
    run(w, GA_SLABHASH_INSERT);
    uint64_t before = vmm_driver_calls(NULL);
    if (fails_at) {
        vmm_driver_fail(NULL, fails_at, CUDA_ERROR_MAP_FAILED);
    }
    ranks_run(&w->all, search_all_one, w);
    return before;
}

/* Each call of the driver fails once, of any rank. */
static inline void let_driver_calls_fail(driver_calls *work)
{
    world *w = begin(2);
    uint64_t before = work(w, 0);
    uint64_t made = vmm_driver_calls(NULL) - before;
    assert_ok(w->statuses[0]);
    assert_ok(w->statuses[1]);
    end(w);
    cr_assert_gt(made, 50);
    for (uint64_t at = 1; at <= made; at += 1 + at / 12) {
        w = begin(2);
        (void)work(w, at);
        cr_assert(w->statuses[0] != GA_OK || w->statuses[1] != GA_OK || !vmm_driver_has_failed(),
                  "call %lu", at);
        vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
        end(w);
    }
}

#endif
