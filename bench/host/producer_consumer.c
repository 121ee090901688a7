/* SPDX-License-Identifier: MIT
 *
 * Workload `producer-consumer`: every thread allocates blocks for the next one and frees those that
 * it gets from the one before; the last passes blocks to the first. One operation is a block that
 * is allocated, passed on and freed. A single thread passes blocks to itself: first in, first out.
 *
 *   thread 0 --queue 1--> thread 1 --queue 2--> thread 2 --queue 0--> thread 0
 *
 * STRUCTURE  a queue for each thread, 512 slots, written by the one before, read by its owner
 * INVARIANT  got <= put <= got + 512; slots from got to put hold blocks
 * ORDER      L1/L2 hand a block over, L3/L4 hand the emptied slot back
 * PROGRESS   a thread that can neither put nor get yields, so that more threads than cores move on
 */
#include "team.h"
#include "workloads.h"

#include <sched.h>

enum {
    SLOTS_MAX = 512,
    STEP = 32
};

static const size_t LANE_BYTES = (size_t)16 << 20;

typedef struct queue {
    _Alignas(128) size_t put; /* the thread before only */
    _Alignas(128) size_t got; /* owner only */
    _Alignas(128) void *slots[SLOTS_MAX];
} queue;

/* Number of blocks that a queue may hold: fewer if they are large. */
static size_t room_for(size_t size)
{
    size_t room = LANE_BYTES / size;
    return room < 1 ? 1 : room < SLOTS_MAX ? room : SLOTS_MAX;
}

/* Put up to STEP blocks into the next thread's queue; adds their number to *moved. */
static ga_status produce(ga_bench_worker *worker, queue *to, size_t *moved)
{
    size_t size = worker->run->size;
    size_t room = room_for(size);
    size_t put = to->put;
    /* L4: acquire. Pairs with L3: the reader is done with the slots before `got`. */
    size_t got = __atomic_load_n(&to->got, __ATOMIC_ACQUIRE);
    for (int i = 0; i < STEP && put - got < room; i++) {
        void *block;
        ga_status status = ga_alloc(worker->run->heap, size, 0, &block);
        if (status != GA_OK) {
            return status;
        }
        ga_bench_touch(block, 0, size);
        to->slots[put++ % SLOTS_MAX] = block;
        /* L1: release. Pairs with L2: the block and its contents are seen with the count. */
        __atomic_store_n(&to->put, put, __ATOMIC_RELEASE);
        ++*moved;
    }
    return GA_OK;
}

/* Free up to `most` blocks of the thread's own queue. */
static ga_status consume(ga_bench_worker *worker, queue *from, size_t most, size_t *moved)
{
    size_t got = from->got;
    /* L2: acquire. Pairs with L1. */
    size_t put = __atomic_load_n(&from->put, __ATOMIC_ACQUIRE);
    ga_status status = GA_OK;
    for (size_t i = 0; i < most && got != put && status == GA_OK; i++) {
        status = ga_free(worker->run->heap, from->slots[got++ % SLOTS_MAX]);
        /* L3: release. Pairs with L4. */
        __atomic_store_n(&from->got, got, __ATOMIC_RELEASE);
        worker->done++;
        ++*moved;
    }
    return status;
}

static ga_status step(ga_bench_worker *worker)
{
    queue *queues = worker->shared;
    size_t moved = 0;
    ga_status status = produce(worker, &queues[(worker->index + 1) % worker->run->threads], &moved);
    if (status == GA_OK) {
        status = consume(worker, &queues[worker->index], STEP, &moved);
    }
    if (moved == 0) {
        sched_yield();
    }
    return status;
}

static void end(ga_bench_worker *worker)
{
    queue *queues = worker->shared;
    size_t moved = 0;
    uint64_t done = worker->done;
    consume(worker, &queues[worker->index], SLOTS_MAX, &moved);
    worker->done = done; /* these were freed after the clock had stopped */
}

static ga_status run(const ga_bench_case *run, ga_bench_report *report)
{
    ga_bench_loop loop = {.step = step, .end = end};
    double per_second = 0;
    queue *queues = ga_bench_space(run->threads * sizeof *queues);
    if (!queues) {
        return GA_ERR_MEMORY;
    }
    ga_status status = ga_bench_loop_run(&loop, run, queues, &per_second);
    report->values[0] = per_second / 1e6;
    return status;
}

static const ga_bench_metric metrics[] = {GA_BENCH_THROUGHPUT};

const ga_bench_workload ga_bench_producer_consumer = {
    .name = "producer-consumer",
    .help = "blocks allocated by one thread and freed by the next",
    .place = GA_PLACE_HOST,
    .sizes = (const size_t[]){64, 4 << 10, 0},
    .metric_count = 1,
    .metrics = metrics,
    .run = run,
};
