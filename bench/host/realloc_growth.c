/* SPDX-License-Identifier: MIT
 *
 * Workload `realloc-growth`: each thread grows 16 buffers in random order, by a half at a time,
 * from 16 bytes to the size, as programs do that read input of unknown length. A full buffer is
 * freed and begun again. One operation is one realloc.
 */
#include "team.h"
#include "workloads.h"

enum {
    BUFFERS = 16,
    FIRST = 16,
    STEP = 16
};

typedef struct buffer {
    void *block; /* NULL before its first realloc */
    size_t size;
} buffer;

static ga_status begin(ga_bench_worker *worker)
{
    worker->own = ga_bench_space(BUFFERS * sizeof(buffer));
    return worker->own ? GA_OK : GA_ERR_MEMORY;
}

static ga_status grow(ga_bench_worker *worker, buffer *b)
{
    size_t most = worker->run->size;
    size_t size = b->block ? b->size + b->size / 2 + 1 : FIRST;
    size = size < most ? size : most;
    ga_status status = ga_realloc(worker->run->heap, b->block, size, 0, &b->block);
    if (status != GA_OK) {
        b->block = NULL; /* the process ends with the failure, so the block is not freed */
        return status;
    }
    ga_bench_touch(b->block, b->size, size);
    b->size = size;
    return GA_OK;
}

static ga_status step(ga_bench_worker *worker)
{
    for (int i = 0; i < STEP; i++) {
        buffer *b = (buffer *)worker->own + (ga_bench_random(&worker->random) >> 20) % BUFFERS;
        ga_status status = GA_OK;
        if (b->size == worker->run->size) {
            status = ga_free(worker->run->heap, b->block);
            *b = (buffer){NULL, 0};
        }
        if (status == GA_OK) {
            status = grow(worker, b);
        }
        if (status != GA_OK) {
            return status;
        }
    }
    worker->done += STEP;
    return GA_OK;
}

static void end(ga_bench_worker *worker)
{
    buffer *buffers = worker->own;
    for (size_t i = 0; buffers && i < BUFFERS; i++) {
        ga_free(worker->run->heap, buffers[i].block);
    }
}

static ga_status run(const ga_bench_case *run, ga_bench_report *report)
{
    ga_bench_loop loop = {.begin = begin, .step = step, .end = end};
    double per_second = 0;
    ga_status status = ga_bench_loop_run(&loop, run, NULL, &per_second);
    report->values[0] = per_second / 1e6;
    return status;
}

static const ga_bench_metric metrics[] = {GA_BENCH_THROUGHPUT};

const ga_bench_workload ga_bench_realloc_growth = {
    .name = "realloc-growth",
    .help = "16 buffers grown by a half at a time up to the size",
    .place = GA_PLACE_HOST,
    .sizes = (const size_t[]){64 << 10, 1 << 20, 0},
    .metric_count = 1,
    .metrics = metrics,
    .run = run,
};
