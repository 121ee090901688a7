/* SPDX-License-Identifier: MIT
 *
 * Sharded tables over NCCL, with a driver and an NCCL of the host's memory: operations, and
 * failures of each call of NCCL and of the driver.
 */
#include "support/nccl_tables.h"

#include "platform/cuda_driver.h"

Test(slabhash_nccl, operations, .init = load)
{
    for (uint32_t count = 1; count <= VMM_DRIVER_DEVICES; count++) {
        work_through(count, 0);
        cr_assert_eq(windows_made(), count > 1 ? (int)count : 0);
        work_through(count, GA_NCCL_NO_WINDOWS);
        cr_assert_eq(windows_made(), 0);
    }
}

Test(slabhash_nccl, calls_of_nccl_that_fail, .init = load, .timeout = 240)
{
    let_calls_fail(GA_NCCL_NO_WINDOWS, 20);
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

Test(slabhash_nccl, calls_of_the_driver_that_fail, .init = load, .timeout = 240)
{
    let_driver_calls_fail(run_inserts);
}

Test(slabhash_nccl, calls_of_the_driver_that_fail_in_search_all, .init = load, .timeout = 240)
{
    let_driver_calls_fail(search_after_inserts);
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

/* A call of a shard lasted too long. The watch has ended the exchange, and a wait for a stream then
 * does not count as done. */
Test(slabhash_nccl, a_wait_beside_an_abort, .init = load)
{
    vmm_driver_options driver = {.devices = 1};
    ga_exchange exchange;
    ga_nccl_options limit = {.options_size = sizeof limit, .time_limit_ms = LIMIT_MS};
    ga_cuda_scope scope;
    void *comm;
    vmm_driver_start(&driver);
    nccl_begin(&comm, 1);
    assert_ok(ga_exchange_nccl(&exchange, comm, &limit));
    assert_ok(ga_cuda_enter(&scope, 0));
    assert_ok(exchange.wait(exchange.context, scope.stream));
    exchange.guard(exchange.context, true);
    sleep_ms(2 * LIMIT_MS);
    exchange.guard(exchange.context, false);
    cr_assert_eq(nccl_aborts(), 1);
    assert_fails_with(exchange.wait(exchange.context, scope.stream), GA_ERR_DEVICE,
                      "nccl: rank 0: work that waits for an exchange did not end within 200 ms");
    ga_cuda_leave(&scope);
    exchange.close(exchange.context);
    nccl_end();
    vmm_driver_stop();
}

static CUfunction find_none(const char *name)
{
    cr_log_info("%s", name);
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
