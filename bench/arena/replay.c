/* SPDX-License-Identifier: MIT
 *
 * Workloads `replay-torch`, `replay-rmm` and `replay-file`: replay a trace on a heap, without
 * kernels. Four passes: one on a separate heap, which queries the memory after each allocation; one
 * on a fresh heap, timed; one on that heap when it is warm, timed; and one in which each call is
 * timed by itself.
 */
#include "client.h"
#include "device.h"

#include "../device/name.h"
#include "../runner/clock.h"
#include "../runner/histogram.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct replay {
    const trace *t;
    client *client;
    void **blocks;                   /* by number */
    ga_bench_histogram *calls;       /* if not NULL, each allocation and free is timed */
    uint64_t free_at_first;          /* if not 0, memory is measured: free bytes of the driver at
                                      * the start */
    uint64_t driver_most, heap_most; /* largest number of held bytes, by the driver's and by the
                                      * heap's count */
} replay;

/* ---- traces ------------------------------------------------------------------------------ */

static bool read_file(trace *t, char why[TRACE_WHY])
{
    FILE *file = fopen(arena_set.file, "re");
    if (!file) {
        snprintf(why, TRACE_WHY, "%s", strerror(errno));
        return false;
    }
    bool good = trace_read(t, file, why);
    fclose(file);
    return good;
}

bool arena_trace_make(trace *t, const char *name, char why[TRACE_WHY])
{
    if (strcmp(name, "file") == 0) {
        return read_file(t, why) && trace_check(t, why);
    }
    void (*make)(trace *, uint64_t, uint64_t) =
        strcmp(name, "rmm") == 0 ? trace_make_rmm : trace_make_torch;
    make(t, arena_set.seed, arena_set.budget);
    return trace_check(t, why);
}

/* ---- one operation ----------------------------------------------------------------------- */

static ga_status write_block(const replay *r, const trace_op *op)
{
    CUdeviceptr start = (CUdeviceptr)r->blocks[op->block];
    return GA_CUDA_CALL(r->client->scope.driver, cuMemsetD8Async, start, 1, op->size,
                        r->client->streams[op->stream]);
}

static ga_status wait_for(const replay *r, const trace_op *op)
{
    const client *c = r->client;
    const ga_cuda_driver *driver = c->scope.driver;
    ga_status status = GA_CUDA_CALL(driver, cuEventRecord, c->event, c->streams[op->other]);
    return status == GA_OK
               ? GA_CUDA_CALL(driver, cuStreamWaitEvent, c->streams[op->stream], c->event, 0)
               : status;
}

static ga_status call(const replay *r, const trace_op *op)
{
    return op->kind == TRACE_ALLOC
               ? client_get(r->client, op->size, op->stream, &r->blocks[op->block])
               : client_give(r->client, r->blocks[op->block], op->stream);
}

static ga_status timed_call(const replay *r, const trace_op *op)
{
    if (!r->calls) {
        return call(r, op);
    }
    uint64_t start = ga_bench_now();
    ga_status status = call(r, op);
    ga_bench_histogram_add(r->calls, ga_bench_now() - start);
    return status;
}

static ga_status look(replay *r)
{
    uint64_t now;
    ga_stats stats;
    ga_status status = client_free_bytes(r->client, &now);
    status = status == GA_OK ? ga_heap_stats(r->client->heap, &stats) : status;
    if (status != GA_OK) {
        return status;
    }
    uint64_t held = r->free_at_first > now ? r->free_at_first - now : 0;
    r->driver_most = held > r->driver_most ? held : r->driver_most;
    r->heap_most = stats.held_bytes > r->heap_most ? stats.held_bytes : r->heap_most;
    return GA_OK;
}

static ga_status apply(replay *r, const trace_op *op)
{
    if (op->kind == TRACE_WAIT) {
        return wait_for(r, op);
    }
    if (op->kind == TRACE_SYNC) {
        return GA_CUDA_CALL(r->client->scope.driver, cuStreamSynchronize,
                            r->client->streams[op->stream]);
    }
    ga_status status = timed_call(r, op);
    if (status != GA_OK || op->kind == TRACE_FREE) {
        return status;
    }
    status = arena_set.fill ? write_block(r, op) : GA_OK;
    return status == GA_OK && r->free_at_first ? look(r) : status;
}

/* ---- passes ------------------------------------------------------------------------------ */

/* Replay the whole trace and wait for the device. Stores ns in *spent unless it is NULL. */
static ga_status pass(replay *r, uint64_t *spent)
{
    ga_status status = GA_OK;
    uint64_t start = ga_bench_now();
    for (size_t i = 0; i < r->t->count && status == GA_OK; i++) {
        status = apply(r, &r->t->ops[i]);
    }
    status = status == GA_OK ? client_settle(r->client) : status;
    if (spent) {
        *spent = ga_bench_now() - start;
    }
    return status;
}

/* Measure memory on a second, fresh heap of the same spec. */
static ga_status look_at_memory(replay *r, ga_heap *heap)
{
    ga_heap *own = r->client->heap;
    ga_heap *other;
    ga_status status = client_free_bytes(r->client, &r->free_at_first);
    status = status == GA_OK
                 ? ga_heap_open(&other, GA_PLACE_DEVICE, ga_heap_device(heap), ga_heap_spec(heap))
                 : status;
    if (status != GA_OK) {
        return status;
    }
    r->client->heap = other;
    status = pass(r, NULL);
    r->client->heap = own;
    r->free_at_first = 0;
    return status == GA_OK ? ga_heap_close(other) : status;
}

static ga_status measure(replay *r, double *values)
{
    static ga_bench_histogram calls;
    ga_bench_clock clock = ga_bench_clock_calibrate();
    uint64_t cold = 0, warm = 0;
    calls = (ga_bench_histogram){0};
    ga_status status = look_at_memory(r, r->client->heap);
    status = status == GA_OK ? pass(r, &cold) : status;
    status = status == GA_OK ? pass(r, &warm) : status;
    r->calls = &calls;
    status = status == GA_OK ? pass(r, NULL) : status;
    values[0] = (double)warm / 1e3 / (double)r->t->calls;
    values[1] = (double)cold / 1e3 / (double)r->t->calls;
    for (unsigned i = 0; i < 2; i++) {
        double ns = ga_bench_histogram_quantile(&calls, i ? 0.99 : 0.5, clock.step) - clock.cost;
        values[2 + i] = ns > 0 ? ns / 1e3 : 0;
    }
    values[4] = (double)r->driver_most / (double)r->t->peak;
    values[5] = (double)r->heap_most / (double)r->t->peak;
    values[6] = (double)r->t->peak / (1 << 30);
    return status;
}

static ga_status replay_on(const trace *t, const ga_bench_case *run, ga_bench_report *report)
{
    client c;
    replay r = {.t = t, .client = &c, .blocks = calloc(t->blocks, sizeof *r.blocks)};
    if (!r.blocks) {
        return ga_fail(GA_ERR_MEMORY, "no memory to replay a trace");
    }
    ga_status status = client_enter(&c, run->heap, arena_set.card);
    if (status == GA_OK) {
        ga_bench_name_device(ga_heap_device(run->heap), report);
        status = measure(&r, report->values);
        client_leave(&c);
    }
    free(r.blocks);
    return status;
}

static ga_status run_trace(const char *name, const ga_bench_case *run, ga_bench_report *report)
{
    trace t = {0};
    char why[TRACE_WHY];
    ga_status status = arena_trace_make(&t, name, why)
                           ? replay_on(&t, run, report)
                           : ga_fail(GA_ERR_IO, "the trace \"%s\" is of no use: %s", name, why);
    trace_clear(&t);
    return status;
}

static ga_status run_torch(const ga_bench_case *run, ga_bench_report *report)
{
    return run_trace("torch", run, report);
}

static ga_status run_rmm(const ga_bench_case *run, ga_bench_report *report)
{
    return run_trace("rmm", run, report);
}

static ga_status run_file(const ga_bench_case *run, ga_bench_report *report)
{
    return run_trace("file", run, report);
}

/* ---- workloads --------------------------------------------------------------------------- */

static const ga_bench_metric metrics[] = {
    {.name = "call", .unit = "us"},
    {.name = "first-call", .unit = "us"},
    {.name = "call-p50", .unit = "us"},
    {.name = "call-p99", .unit = "us"},
    {.name = "held", .unit = "of peak"},
    {.name = "held-by-stats", .unit = "of peak"},
    {.name = "peak", .unit = "GiB", .note = "live at once, as requested, in the trace"},
};

static const size_t no_sizes[] = {0}; /* the trace chooses */

#define REPLAY(trace_name, text)                                                                   \
    {                                                                                              \
        .name = "replay-" #trace_name, .help = text, .place = GA_PLACE_DEVICE, .one_thread = true, \
        .sizes = no_sizes, .metric_count = sizeof metrics / sizeof *metrics, .metrics = metrics,   \
        .run = run_##trace_name,                                                                   \
    }

const ga_bench_workload arena_replay_torch =
    REPLAY(torch, "a transformer in training, on two streams: time of all calls over their number, "
                  "and memory held over the most that was live");
const ga_bench_workload arena_replay_rmm =
    REPLAY(rmm, "queries over tables, on four streams: the same");
const ga_bench_workload arena_replay_file = REPLAY(file, "the trace of --trace: the same");
