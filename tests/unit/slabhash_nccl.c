/* SPDX-License-Identifier: MIT
 *
 * Sharded tables over NCCL, with a driver and an NCCL of the host's memory: operations, and
 * failures of each call of NCCL and of the driver.
 */
#include <gpualloc/backend.h>
#include <gpualloc/slabhash_nccl.h>

#include "support/expect.h"
#include "support/nccl.h"
#include "support/ranks.h"
#include "support/vmm_driver.h"

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

static nccl_begin_fn *nccl_begin;
static nccl_end_fn *nccl_end;
static nccl_fail_fn *nccl_fail;
static nccl_calls_fn *nccl_calls;
static nccl_aborts_fn *nccl_aborts;
static nccl_set_windows_fn *nccl_set_windows;
static nccl_windows_fn *nccl_windows;
static nccl_is_on_device_fn *nccl_is_on_device;

/* Each test is a process of its own. */
static void load(void)
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
}

/* ---- a shard: a table of the host, as this driver's memory is the host's --------------------- */

static ga_status shard_run(void *table, const ga_slabhash_batch *batches, uint32_t count,
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

static ga_status shard_run_all(void *table, const ga_slabhash_all *all, bool removes,
                               uint64_t *totals, void *stream)
{
    uint64_t total = 0;
    (void)stream;
    ga_status status = removes ? ga_slabhash_run_delete_all(table, all, &total)
                               : ga_slabhash_run_search_all(table, all, &total);
    totals[0] += total;
    return status;
}

static ga_status shard_fails(void *table, const ga_slabhash_batch *batches, uint32_t count,
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
static ga_status shard_waits(void *table, const ga_slabhash_batch *batches, uint32_t count,
                             uint64_t *counts, void *stream)
{
    __atomic_fetch_add(&waits_of_shards, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 20 && nccl_aborts() == aborts_before; i++) {
        nanosleep(&(struct timespec){0, LIMIT_MS * 1000000L / 4}, NULL);
    }
    __atomic_fetch_add(&ended_waits, nccl_aborts() != aborts_before, __ATOMIC_RELAXED);
    return shard_run(table, batches, count, counts, stream);
}

static ga_status shard_size(void *table, uint64_t *pairs, void *stream)
{
    (void)stream;
    return ga_slabhash_size(table, pairs);
}

static ga_status shard_close(void *table)
{
    return ga_slabhash_close(table);
}

static void sleep_ms(long ms)
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

static void open_one(ranks *all, uint32_t rank, void *context)
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
        cr_log_warn("rank %u: %s", rank, ga_error_text());
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
        cr_log_warn("rank %u: %s", rank, ga_error_text());
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
        cr_log_warn("rank %u: %s", rank, ga_error_text());
    }
}

static void run_one(ranks *all, uint32_t rank, void *context)
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
static void search_all_one(ranks *all, uint32_t rank, void *context)
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

static void delete_all_one(ranks *all, uint32_t rank, void *context)
{
    world *w = context;
    ga_slabhash_all batch = {.count = KEYS - 100 * rank, .keys = w->keys[rank]};
    (void)all;
    w->statuses[rank] =
        ga_slabhash_sharded_delete_all(w->tables[rank], &batch, &w->all_totals[rank], NULL);
}

/* `fails_at`: the call of rank 1 that fails while it opens; below 0: none. `serves`: what the shard
 * of rank 1 does; NULL: as the others. */
static world *begin_all(uint32_t count, uint32_t flags, int fails_at, serve *serves)
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

static world *begin_with(uint32_t count, uint32_t flags, int fails_at)
{
    return begin_all(count, flags, fails_at, NULL);
}

static world *begin(uint32_t count)
{
    return begin_with(count, 0, -1);
}

static void run(world *w, ga_slabhash_op op)
{
    w->op = op;
    memset(w->statuses, 0, sizeof w->statuses);
    ranks_run(&w->all, run_one, w);
}

static void end(world *w)
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

static void expect_found(const world *w)
{
    for (uint32_t rank = 0; rank < w->all.count; rank++) {
        for (uint32_t i = 0; i < KEYS - 100 * rank; i++) {
            cr_assert_eq(w->results[rank][i], GA_SLABHASH_FOUND);
            cr_assert_eq(w->found[rank][i], w->values[rank][i]);
        }
        cr_assert_eq(w->counts[rank][GA_SLABHASH_FOUND], KEYS - 100 * rank);
    }
}

static void expect_all_found(const world *w)
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

static void expect_deleted(const world *w)
{
    for (uint32_t rank = 0; rank < w->all.count; rank++) {
        assert_ok(w->statuses[rank]);
        cr_assert_eq(w->all_totals[rank], KEYS - 100 * rank);
    }
}

/* Inserts, searches and deletes of `count` ranks. */
static void work_through(uint32_t count, uint32_t flags)
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

static void let_calls_fail(uint32_t flags, int least);

/* Windows since the last call; none is left. */
static int windows_made(void)
{
    static int before;
    int made = 0;
    cr_assert_eq(nccl_windows(&made), 0);
    int since = made - before;
    before = made;
    return since;
}

Test(slabhash_nccl, operations, .init = load)
{
    for (uint32_t count = 1; count <= VMM_DRIVER_DEVICES; count++) {
        work_through(count, 0);
        cr_assert_eq(windows_made(), count > 1 ? (int)count : 0);
        work_through(count, GA_NCCL_NO_WINDOWS);
        cr_assert_eq(windows_made(), 0);
    }
}

/* A version that says where the memory of other ranks is. */
Test(slabhash_nccl, windows_of_a_later_version, .init = load)
{
    nccl_set_windows(22907, NCCL_NO_FAULT);
    work_through(3, 0);
    cr_assert_eq(windows_made(), 3);
}

/* Requests are sorted into more parts. */
Test(slabhash_nccl, large_tables, .init = load)
{
    for (shard_bytes = UINT64_C(1) << 30; shard_bytes <= UINT64_C(1) << 36; shard_bytes *= 4) {
        for (uint32_t count = 1; count <= VMM_DRIVER_DEVICES; count++) {
            work_through(count, 0);
        }
    }
}

/* Meetings are kernels of NCCL. */
Test(slabhash_nccl, an_old_driver, .init = load)
{
    is_old_driver = true;
    work_through(3, 0);
    cr_assert_eq(windows_made(), 3);
    let_calls_fail(0, 12);
}

Test(slabhash_nccl, a_version_without_windows, .init = load)
{
    nccl_set_windows(22705, NCCL_NO_FAULT);
    work_through(3, 0);
    cr_assert_eq(windows_made(), 0);
}

/* If one rank has no window, none uses its own. */
Test(slabhash_nccl, windows_that_cannot_be_had, .init = load)
{
    static const nccl_fault faults[] = {NCCL_NO_MEMORY, NCCL_NO_WINDOW, NCCL_WRONG_ADDRESS,
                                        NCCL_HOST_HANDLE};
    static const int versions[] = {22803, 22907};
    for (size_t version = 0; version < 2; version++) {
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
            nccl_set_windows(versions[version], faults[i]);
            work_through(3, 0);
            cr_assert_leq(windows_made(), 3);
        }
    }
}

/* Each call of NCCL fails once while the table is opened. If a rank waits for the window of the
 * other one until the time limit, its block stays. */
Test(slabhash_nccl, calls_of_nccl_that_fail_at_open, .init = load, .timeout = 240)
{
    int before = nccl_calls(1);
    end(begin(2));
    int made = nccl_calls(1) - before;
    cr_assert_geq(made, 7, "%d", made);
    int left = 0;
    for (int at = 0; at < made; at++) {
        world *w = begin_with(2, 0, at);
        cr_assert_eq(w->opened[0] == GA_OK, w->opened[1] == GA_OK, "call %d", at);
        if (w->opened[0] == GA_OK) { /* without a window */
            run(w, GA_SLABHASH_INSERT);
            run(w, GA_SLABHASH_SEARCH);
            expect_found(w);
        }
        end(w);
        int all = 0;
        int before_this = left;
        left = nccl_windows(&all);
        cr_assert_leq(left, before_this + 1, "call %d", at);
    }
    cr_assert_leq(left, 1); /* of one call */
}

/* Each call of NCCL fails once, with a table that is new each time. The rank gets the reason, and
 * the other one waits no longer than its limit. */
static void let_calls_fail(uint32_t flags, int least)
{
    world *w = begin_with(2, flags, -1);
    int before = nccl_calls(1);
    run(w, GA_SLABHASH_INSERT);
    int made = nccl_calls(1) - before;
    assert_ok(w->statuses[1]);
    end(w);
    cr_assert_geq(made, least, "%d", made);
    for (int at = 0; at < made; at++) {
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

Test(slabhash_nccl, calls_of_nccl_that_fail, .init = load, .timeout = 240)
{
    let_calls_fail(GA_NCCL_NO_WINDOWS, 20);
}

Test(slabhash_nccl, calls_of_nccl_that_fail_beside_copies, .init = load, .timeout = 240)
{
    let_calls_fail(0, 6); /* agreements */
}

/* Likewise in a search for all pairs. */
Test(slabhash_nccl, calls_of_nccl_that_fail_in_search_all, .init = load, .timeout = 240)
{
    world *w = begin(2);
    run(w, GA_SLABHASH_INSERT);
    int before = nccl_calls(1);
    ranks_run(&w->all, search_all_one, w);
    int made = nccl_calls(1) - before;
    expect_all_found(w);
    end(w);
    cr_assert_gt(made, 20);
    for (int at = 0; at < made; at++) {
        w = begin(2);
        run(w, GA_SLABHASH_INSERT);
        nccl_fail(1, at, 6);
        ranks_run(&w->all, search_all_one, w);
        nccl_fail(1, -1, 0);
        cr_assert_eq(w->statuses[1], GA_ERR_DEVICE, "call %d", at);
        cr_assert_eq(w->statuses[0], GA_ERR_DEVICE, "call %d", at);
        end(w);
    }
}

/* Each call of the driver fails once, of any rank: while the table is opened, and in a batch. */
Test(slabhash_nccl, calls_of_the_driver_that_fail, .init = load, .timeout = 240)
{
    world *w = begin(2);
    uint64_t before = vmm_driver_calls(NULL);
    run(w, GA_SLABHASH_INSERT);
    uint64_t made = vmm_driver_calls(NULL) - before;
    end(w);
    cr_assert_gt(made, 50);
    for (uint64_t at = 1; at <= made; at += 1 + at / 12) {
        w = begin(2);
        vmm_driver_fail(NULL, at, CUDA_ERROR_MAP_FAILED);
        run(w, GA_SLABHASH_INSERT);
        cr_assert(w->statuses[0] != GA_OK || w->statuses[1] != GA_OK || !vmm_driver_has_failed(),
                  "call %lu", at);
        vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
        end(w);
    }
}

Test(slabhash_nccl, calls_of_the_driver_that_fail_in_search_all, .init = load, .timeout = 240)
{
    world *w = begin(2);
    run(w, GA_SLABHASH_INSERT);
    uint64_t before = vmm_driver_calls(NULL);
    ranks_run(&w->all, search_all_one, w);
    uint64_t made = vmm_driver_calls(NULL) - before;
    end(w);
    cr_assert_gt(made, 50);
    for (uint64_t at = 1; at <= made; at += 1 + at / 12) {
        w = begin(2);
        run(w, GA_SLABHASH_INSERT);
        vmm_driver_fail(NULL, at, CUDA_ERROR_MAP_FAILED);
        ranks_run(&w->all, search_all_one, w);
        cr_assert(w->statuses[0] != GA_OK || w->statuses[1] != GA_OK || !vmm_driver_has_failed(),
                  "call %lu", at);
        vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
        end(w);
    }
}

Test(slabhash_nccl, a_shard_that_fails, .init = load)
{
    limit_ms = PATIENT_MS;
    world *w = begin_all(3, 0, -1, shard_fails);
    run(w, GA_SLABHASH_INSERT);
    for (uint32_t rank = 0; rank < 3; rank++) {
        uint64_t full = 0;
        cr_assert_eq(w->statuses[rank], GA_ERR_DEVICE);
        for (uint32_t i = 0; i < PIECE; i++) {
            full += w->results[rank][i] == GA_SLABHASH_FULL;
        }
        cr_assert(full > 0 && full < PIECE, "%lu", full); /* those of rank 1 */
    }
    cr_assert_eq(nccl_aborts(), 0); /* the exchange went on */
    end(w);
}

/* A call of a shard that waits for the exchange ends by the time limit. */
Test(slabhash_nccl, a_shard_that_waits, .init = load)
{
    world *w = begin(1);
    end(w);
    w = begin(2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_ok(ga_slabhash_sharded_close(w->tables[rank]));
    }
    w->waits = true;
    ranks_run(&w->all, open_one, w);
    aborts_before = nccl_aborts();
    run(w, GA_SLABHASH_INSERT);
    cr_assert_gt(ended_waits, 0);
    cr_assert_eq(ended_waits, waits_of_shards);
    for (uint32_t rank = 0; rank < 2; rank++) {
        cr_assert_eq(w->statuses[rank], GA_ERR_DEVICE);
        ga_slabhash_found found;
        assert_ok(ga_slabhash_search(ga_slabhash_sharded_table(w->tables[rank]), 5, &found));
    }
    end(w);
}

static CUfunction find_none(const char *name)
{
    cr_log_warn("%s", name);
    return NULL;
}

/* Once tables are open, batches ask for no kernel by its name: the driver would load it. */
Test(slabhash_nccl, kernels_are_loaded_before, .init = load)
{
    world *w = begin(2);
    ga_device_code_set(find_none);
    run(w, GA_SLABHASH_INSERT);
    for (uint32_t i = 0; i < KEYS; i++) {
        w->keys[0][i] = w->keys[1][i] = 17; /* combined */
    }
    run(w, GA_SLABHASH_SEARCH);
    ranks_run(&w->all, search_all_one, w);
    assert_ok(w->statuses[0]);
    ranks_run(&w->all, delete_all_one, w);
    assert_ok(w->statuses[0]);
    assert_ok(w->statuses[1]);
    end(w);
}

/* Rank 1 does not come. */
static void leave_out(ranks *all, uint32_t rank, void *context)
{
    world *w = context;
    if (rank == 0) {
        run_one(all, rank, w);
    }
}

Test(slabhash_nccl, a_rank_that_is_gone, .init = load)
{
    world *w = begin_with(2, GA_NCCL_NO_WINDOWS, -1);
    ranks_run(&w->all, leave_out, w);
    cr_assert_eq(w->statuses[0], GA_ERR_DEVICE);
    cr_assert_eq(nccl_aborts(), 1);
    end(w);
}

/* The shard of rank 1 takes longer than the limit, so that the others wait at a meeting. */
static ga_status stop_serving(void *table, const ga_slabhash_batch *batches, uint32_t count,
                              uint64_t *counts, void *stream)
{
    (void)stream;
    sleep_ms(4 * LIMIT_MS);
    return shard_run(table, batches, count, counts, NULL);
}

Test(slabhash_nccl, a_rank_that_is_late_for_a_meeting, .init = load)
{
    world *w = begin_all(3, 0, -1, stop_serving);
    run(w, GA_SLABHASH_INSERT);
    for (uint32_t rank = 0; rank < 3; rank++) {
        cr_assert_eq(w->statuses[rank], GA_ERR_DEVICE, "rank %u", rank);
    }
    end(w);
}

/* Rank 1 comes late. Its communicator has lost a rank by then. */
static void split_late(ranks *all, uint32_t rank, void *context)
{
    world *w = context;
    ga_exchange exchange;
    ga_nccl_options limit = {.options_size = sizeof limit, .time_limit_ms = LIMIT_MS};
    (void)all;
    if (rank == 1) {
        sleep_ms(3 * LIMIT_MS);
    }
    w->statuses[rank] = ga_exchange_nccl(&exchange, w->comms[rank], &limit);
    if (rank == 0) {
        cr_assert(strstr(ga_error_text(), "ncclCommSplit"), "%s", ga_error_text());
    } else if (w->statuses[rank] == GA_OK) {
        exchange.close(exchange.context);
    }
}

Test(slabhash_nccl, a_rank_that_is_late_for_the_split, .init = load)
{
    world *w = begin(2);
    ranks_run(&w->all, split_late, w);
    cr_assert_eq(w->statuses[0], GA_ERR_DEVICE);
    assert_ok(w->statuses[1]);
    for (int waits = 0; nccl_aborts() == 0 && waits < 1000; waits++) {
        sleep_ms(5); /* for the thread that was left behind */
    }
    cr_assert_eq(nccl_aborts(), 1);
    end(w);
}

Test(slabhash_nccl, arguments, .init = load)
{
    vmm_driver_options driver = {.devices = 1};
    ga_exchange exchange;
    ga_nccl_options options = {.options_size = 3};
    void *comm;
    vmm_driver_start(&driver);
    nccl_begin(&comm, 1);
    assert_fails_with(ga_exchange_nccl(&exchange, NULL, NULL), GA_ERR_ARGUMENT,
                      "nccl: no communicator");
    assert_fails_with(ga_exchange_nccl(&exchange, comm, &options), GA_ERR_ARGUMENT,
                      "nccl: a communicator, options of 3 bytes");
    options = (ga_nccl_options){.options_size = sizeof options, .flags = 2};
    assert_fails_with(ga_exchange_nccl(&exchange, comm, &options), GA_ERR_ARGUMENT,
                      "nccl: a communicator, options of 16 bytes, flags=0x2");
    nccl_end();
    vmm_driver_stop();
}

Test(slabhash_nccl, no_nccl)
{
    ga_exchange exchange;
    setenv("GPUALLOC_NCCL", "/nonexistent/libnccl.so.2", 1);
    assert_fails_with(ga_exchange_nccl(&exchange, &exchange, NULL), GA_ERR_UNSUPPORTED,
                      "nccl: /nonexistent/libnccl.so.2");
}
