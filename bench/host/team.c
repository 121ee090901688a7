/* SPDX-License-Identifier: MIT
 *
 * Threads that start together, and the timed loop on top of them.
 */
#include "team.h"

#include "../runner/clock.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
    WARMING = 0,
    COUNTING,
    STOPPING
};

typedef struct timed {
    const ga_bench_loop *loop;
    void *shared;
    int phase; /* relaxed: only says when to count; the counts are read after the join */
} timed;

typedef struct start {
    ga_bench_duty *duty;
    ga_bench_worker *worker;
} start;

void *ga_bench_space(size_t size)
{
    void *space =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (space == MAP_FAILED) {
        ga_fail(GA_ERR_MEMORY, "no memory for the books of the workload: %zu bytes", size);
        return NULL;
    }
    return space;
}

size_t ga_bench_random_size(uint64_t *state, size_t most)
{
    if (most <= 16) {
        return most;
    }
    unsigned doublings = 59u - (unsigned)__builtin_clzll(most); /* 16 << doublings <= most */
    uint64_t random = ga_bench_random(state);
    size_t low = (size_t)16 << (random >> 32) % (doublings + 1);
    size_t span = low <= most / 2 ? low : most - low + 1;
    return low + (random & UINT32_MAX) % span;
}

void ga_bench_worker_failed(ga_bench_worker *worker, ga_status status)
{
    worker->status = status;
    strncpy(worker->failure, ga_error_text(), sizeof worker->failure - 1);
}

static void *enter(void *context)
{
    start *what = context;
    what->duty(what->worker);
    return NULL;
}

static void set_up(ga_bench_team *team, const ga_bench_case *run, void *shared)
{
    for (unsigned i = 0; i < team->count; i++) {
        ga_bench_worker *worker = &team->workers[i];
        worker->run = run;
        worker->shared = shared;
        worker->meet = &team->meet;
        worker->index = i;
        worker->random = (run->seed * 1000003 + i + 1) * 0x9e3779b97f4a7c15u;
        ga_bench_random(&worker->random);
    }
}

ga_status ga_bench_team_start(ga_bench_team *team, const ga_bench_case *run, ga_bench_duty *duty,
                              void *shared)
{
    team->count = run->threads;
    team->workers = ga_bench_space(team->count * sizeof *team->workers);
    start *starts = ga_bench_space(team->count * sizeof *starts);
    if (!team->workers || !starts) {
        return GA_ERR_MEMORY;
    }
    pthread_barrier_init(&team->meet, NULL, team->count + 1);
    set_up(team, run, shared);
    for (unsigned i = 0; i < team->count; i++) {
        starts[i] = (start){duty, &team->workers[i]};
        int error = pthread_create(&team->workers[i].thread, NULL, enter, &starts[i]);
        if (error) { /* the others wait at the barrier until the process ends */
            return ga_fail(GA_ERR_MEMORY, "cannot start thread %u of %u: %s", i + 1, team->count,
                           strerror(error));
        }
    }
    return GA_OK;
}

void ga_bench_team_meet(ga_bench_team *team)
{
    pthread_barrier_wait(&team->meet);
}

ga_status ga_bench_team_join(ga_bench_team *team)
{
    ga_status status = GA_OK;
    for (unsigned i = 0; i < team->count; i++) {
        const ga_bench_worker *worker = &team->workers[i];
        pthread_join(worker->thread, NULL);
        if (status == GA_OK && worker->status != GA_OK) {
            status = ga_fail(worker->status, "%s", worker->failure);
        }
    }
    return status;
}

static void run_steps(ga_bench_worker *worker, const timed *t)
{
    bool counting = false;
    for (;;) {
        int phase = __atomic_load_n(&t->phase, __ATOMIC_RELAXED); /* relaxed, see timed */
        if (phase == STOPPING) {
            worker->done = counting ? worker->done : 0;
            return;
        }
        if (phase == COUNTING && !counting) {
            counting = true;
            worker->done = 0;
            if (t->loop->count) {
                t->loop->count(worker);
            }
        }
        ga_status status = t->loop->step(worker);
        if (status != GA_OK) {
            ga_bench_worker_failed(worker, status);
            return;
        }
    }
}

static void timed_duty(ga_bench_worker *worker)
{
    const timed *t = worker->shared;
    worker->shared = t->shared;
    ga_status status = t->loop->begin ? t->loop->begin(worker) : GA_OK;
    if (status != GA_OK) {
        ga_bench_worker_failed(worker, status);
    }
    pthread_barrier_wait(worker->meet); /* begin */
    if (status == GA_OK) {
        run_steps(worker, t);
    }
    pthread_barrier_wait(worker->meet); /* all have stopped */
    if (t->loop->end) {
        t->loop->end(worker);
    }
}

static void sleep_ms(unsigned milliseconds)
{
    struct timespec left = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static uint64_t set_phase(timed *t, int phase)
{
    uint64_t now = ga_bench_now();
    __atomic_store_n(&t->phase, phase, __ATOMIC_RELAXED); /* relaxed, see timed */
    return now;
}

/* A thread that is not on a core when counting stops adds at most the step it was in. */
ga_status ga_bench_loop_run(const ga_bench_loop *loop, const ga_bench_case *run, void *shared,
                            double *per_second)
{
    timed t = {loop, shared, WARMING};
    ga_bench_team team;
    ga_status status = ga_bench_team_start(&team, run, timed_duty, &t);
    if (status != GA_OK) {
        return status;
    }
    ga_bench_team_meet(&team);
    sleep_ms(run->milliseconds / 4);
    uint64_t from = set_phase(&t, COUNTING);
    sleep_ms(run->milliseconds);
    uint64_t to = set_phase(&t, STOPPING);
    ga_bench_team_meet(&team);
    status = ga_bench_team_join(&team);
    uint64_t done = 0;
    for (unsigned i = 0; i < team.count; i++) {
        done += team.workers[i].done;
    }
    *per_second = (double)done * 1e9 / (double)(to - from);
    return status;
}
