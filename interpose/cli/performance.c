/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  A slot for each block, with its pointer and the number of operations that were
 *            performed on it.
 * INVARIANT  A slot belongs to the thread whose operation has the number `done`.
 * ORDER      `done` is stored with release after the operation and loaded with acquire before the
 *            next one, so the pointer and size of the slot are visible with it.
 * PROGRESS   An operation waits only for earlier ones of the script, and each thread performs its
 *            own in their order, so the earliest that is left can always be performed. After a
 *            failure all threads stop waiting.
 */
#include "performance.h"

#include "host/team.h"
#include "runner/clock.h"
#include "runner/machine.h"

#include <gpualloc/backend.h>

#include <sched.h>
#include <sys/resource.h>

enum {
    SECONDS_MAX = 600, /* of one performance */
    LOOKS = 64         /* at `done` before the thread yields */
};

/* The legacy default stream of the driver. */
static const uintptr_t ONE_STREAM = 1;

typedef struct slot {
    void *pointer;
    uint64_t size;
    uint32_t done;
} slot;

typedef struct stage {
    const ga_script *script;
    const char *spec;
    ga_heap *heap;
    slot *slots;
    int failed;    /* relaxed: only ends the waits of other threads */
    uint64_t held; /* the most, by the heap's figures */
} stage;

/* ---- one operation ------------------------------------------------------------------------- */

static void touch(const stage *on, const slot *it, uint64_t from)
{
    if (on->script->place == GA_PLACE_HOST && it->size > from) {
        ga_bench_touch(it->pointer, from, it->size);
    }
}

static ga_status allocate(const stage *on, const ga_script_op *op, void **out)
{
    size_t align = op->align_log2 ? (size_t)1 << op->align_log2 : 0;
    ga_status status = GA_ERR_UNSUPPORTED;
    if (op->in_order) {
        status = ga_alloc_on(on->heap, op->size, align, (ga_stream)ONE_STREAM, out);
    }
    if (status != GA_ERR_UNSUPPORTED) {
        return status;
    }
    return op->kind == GA_TRACE_ZEROED ? ga_alloc_zeroed(on->heap, op->size, align, out)
                                       : ga_alloc(on->heap, op->size, align, out);
}

static ga_status release(const stage *on, const ga_script_op *op, void *pointer)
{
    ga_status status = GA_ERR_UNSUPPORTED;
    if (op->in_order) {
        status = ga_free_on(on->heap, pointer, (ga_stream)ONE_STREAM);
    }
    return status == GA_ERR_UNSUPPORTED ? ga_free(on->heap, pointer) : status;
}

/* A block that cannot be resized so on this heap is replaced. */
static ga_status resize(const stage *on, const ga_script_op *op, slot *it)
{
    void *other;
    ga_status status = op->kind == GA_TRACE_GROW
                           ? ga_grow(on->heap, it->pointer, op->size)
                           : ga_realloc(on->heap, it->pointer, op->size, 0, &it->pointer);
    if (status != GA_ERR_CANNOT_GROW && status != GA_ERR_UNSUPPORTED) {
        return status;
    }
    status = allocate(on, op, &other);
    if (status == GA_OK) {
        status = release(on, op, it->pointer);
        it->pointer = other;
    }
    return status;
}

static ga_status perform(const stage *on, const ga_script_op *op, slot *it)
{
    uint64_t before = it->size;
    ga_status status = GA_OK;
    switch (op->kind) {
    case GA_TRACE_FREE:
        status = release(on, op, it->pointer);
        it->pointer = NULL;
        break;
    case GA_TRACE_REALLOC:
    case GA_TRACE_GROW:
        status = resize(on, op, it);
        break;
    default:
        before = 0;
        status = allocate(on, op, &it->pointer);
    }
    it->size = op->size;
    if (status == GA_OK && op->kind != GA_TRACE_FREE) {
        touch(on, it, before);
    }
    return status;
}

/* ---- by threads ---------------------------------------------------------------------------- */

/* False if another thread has failed. */
static bool wait_for_turn(const stage *on, const ga_script_op *op, const slot *it)
{
    /* Acquire: pairs with the release in perform_own(). */
    for (unsigned i = 1; __atomic_load_n(&it->done, __ATOMIC_ACQUIRE) != op->turn; i++) {
        if (__atomic_load_n(&on->failed, __ATOMIC_RELAXED)) { /* relaxed, see stage */
            return false;
        }
        if (i % LOOKS == 0) {
            sched_yield();
        }
    }
    return true;
}

static void perform_own(ga_bench_worker *worker)
{
    stage *on = worker->shared;
    const ga_script *script = on->script;
    ga_status status = GA_OK;
    for (uint32_t i = script->begins[worker->index];
         i < script->begins[worker->index + 1] && status == GA_OK; i++) {
        const ga_script_op *op = &script->ops[script->by_thread[i]];
        slot *it = &on->slots[op->block];
        if (!wait_for_turn(on, op, it)) {
            return;
        }
        status = perform(on, op, it);
        /* Release: pairs with the acquire in wait_for_turn(). */
        __atomic_store_n(&it->done, op->turn + 1, __ATOMIC_RELEASE);
    }
    if (status != GA_OK) {
        ga_bench_worker_failed(worker, status);
        __atomic_store_n(&on->failed, 1, __ATOMIC_RELAXED); /* relaxed, see stage */
    }
}

static void duty(ga_bench_worker *worker)
{
    pthread_barrier_wait(worker->meet); /* begin */
    perform_own(worker);
    pthread_barrier_wait(worker->meet); /* all have ended */
}

static ga_status perform_timed(stage *on, ga_bench_report *report)
{
    ga_bench_case run = {.heap = on->heap, .threads = on->script->threads};
    ga_bench_team team;
    ga_status status = ga_bench_team_start(&team, &run, duty, on);
    if (status != GA_OK) {
        return status;
    }
    ga_bench_team_meet(&team);
    uint64_t start = ga_bench_now();
    ga_bench_team_meet(&team);
    report->values[GA_PERFORMANCE_SECONDS] = (double)(ga_bench_now() - start) / 1e9;
    return ga_bench_team_join(&team);
}

/* ---- in the order of time ------------------------------------------------------------------ */

static void note_held(stage *on)
{
    ga_stats stats;
    if (ga_heap_stats(on->heap, &stats) == GA_OK && stats.held_bytes > on->held) {
        on->held = stats.held_bytes;
    }
}

static double resident_peak(void)
{
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss * 1024;
}

static ga_status perform_in_order(stage *on, size_t resident, ga_bench_report *report)
{
    const ga_script *script = on->script;
    bool host = script->place == GA_PLACE_HOST;
    ga_status status = GA_OK;
    for (uint32_t i = 0; i < script->count && status == GA_OK; i++) {
        status = perform(on, &script->ops[i], &on->slots[script->ops[i].block]);
        if (!host && script->ops[i].kind != GA_TRACE_FREE) {
            note_held(on);
        }
    }
    report->values[GA_PERFORMANCE_PEAK] =
        host ? resident_peak() - (double)resident : (double)on->held;
    return status;
}

/* ---- the children -------------------------------------------------------------------------- */

/* The slots are there before the memory is counted. */
static ga_status set_up(stage *on, size_t *resident)
{
    on->slots = ga_bench_space((on->script->blocks + (size_t)1) * sizeof *on->slots);
    *resident = ga_bench_resident();
    return on->slots ? ga_heap_open(&on->heap, on->script->place, 0, on->spec) : GA_ERR_MEMORY;
}

/* The heap reports blocks that are left in it, which are the program's and no fault of the
 * backend. */
static ga_status close_after(const stage *on, ga_status status)
{
    for (uint32_t i = 0; i < on->script->blocks && status == GA_OK; i++) {
        status = ga_free(on->heap, on->slots[i].pointer);
    }
    return status == GA_OK ? ga_heap_close(on->heap) : status;
}

static ga_status timed_body(void *context, ga_bench_report *report)
{
    size_t resident;
    ga_status status = set_up(context, &resident);
    return status == GA_OK ? close_after(context, perform_timed(context, report)) : status;
}

static ga_status measured_body(void *context, ga_bench_report *report)
{
    size_t resident;
    ga_status status = set_up(context, &resident);
    return status == GA_OK ? close_after(context, perform_in_order(context, resident, report))
                           : status;
}

void ga_performance_time(const ga_script *script, const char *spec, ga_bench_report *report)
{
    stage on = {.script = script, .spec = spec};
    ga_bench_child_run(timed_body, &on, SECONDS_MAX, report);
}

void ga_performance_measure(const ga_script *script, const char *spec, ga_bench_report *report)
{
    stage on = {.script = script, .spec = spec};
    ga_bench_child_run(measured_body, &on, SECONDS_MAX, report);
}
