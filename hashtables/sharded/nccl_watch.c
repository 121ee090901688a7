/* SPDX-License-Identifier: MIT
 *
 * The watch of an exchange over NCCL: a thread that aborts its communicator.
 *
 *   the caller   ga_nccl_arm(), a call, ga_nccl_disarm();  ga_nccl_abort()
 *   the thread   watch -> note_abort, if the call lasts too long
 *                      -> end_comm
 *
 * ncclCommAbort() may wait for all work on the device, also for that of other ranks of the process.
 * So the meetings on streams are ended before it, and the thread calls it: the caller has its
 * status even if the device is busy.
 *
 * ORDER  `deadline` is relaxed, because it is compared with a clock. `lock` guards `comm` and
 *        `leaving`. Meetings that an abort ends are no successes: `comm` is NULL before they end,
 *        and a wait looks at it with the lock held.
 */
#include "nccl.h"

#include <gpualloc/backend.h>

#include <signal.h>
#include <time.h>

enum {
    WATCH_NS = 50000000, /* between two looks at the deadline */
    ABORT_NS = 500000000 /* that callers wait for an abort, from its begin on */
};

uint64_t ga_nccl_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct timespec ga_nccl_time_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

void ga_nccl_init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &clock);
    pthread_condattr_destroy(&clock);
}

ga_status ga_nccl_start_thread(pthread_t *thread, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    sigfillset(&all); /* the program's handlers run on its own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? ga_fail(GA_ERR_MEMORY, "nccl: cannot start a thread: error %d", error) : GA_OK;
}

/* ---- aborts ---------------------------------------------------------------------------------- */

/* With the lock held: meetings end, later calls fail, and the thread has something to do. */
static void note_abort(nccl_link *l)
{
    if (l->comm) {
        l->leaving = l->comm;
        l->comm = NULL;
        l->is_aborted = true;
        l->patience = ga_nccl_now() + ABORT_NS;
        pthread_cond_broadcast(&l->changed);
    }
    if (l->is_aborted) {
        ga_nccl_release_locked(l);
    }
}

/* With the lock held, which is free meanwhile. A number that another rank has sent before may have
 * arrived, so meetings are ended once more. */
static void end_comm(nccl_link *l)
{
    pthread_mutex_unlock(&l->lock);
    ga_nccl.ncclCommAbort(l->leaving);
    pthread_mutex_lock(&l->lock);
    l->leaving = NULL;
    ga_nccl_release_locked(l);
    pthread_cond_broadcast(&l->changed);
}

void ga_nccl_abort(nccl_link *l)
{
    int error = 0;
    pthread_mutex_lock(&l->lock);
    note_abort(l);
    struct timespec until = ga_nccl_time_of(l->patience);
    while (l->leaving && error == 0) {
        error = pthread_cond_timedwait(&l->changed, &l->lock, &until);
    }
    pthread_mutex_unlock(&l->lock);
}

void ga_nccl_await_abort(nccl_link *l)
{
    pthread_mutex_lock(&l->lock);
    while (l->leaving) {
        pthread_cond_wait(&l->changed, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
}

/* ---- the thread ------------------------------------------------------------------------------ */

void ga_nccl_arm(nccl_link *l)
{
    __atomic_store_n(&l->deadline, ga_nccl_now() + l->limit_ns,
                     __ATOMIC_RELAXED); /* relaxed: see ORDER */
}

static void *watch(void *context)
{
    nccl_link *l = context;
    pthread_mutex_lock(&l->lock);
    while (!l->ends || l->leaving) {
        if (l->leaving) {
            end_comm(l);
            continue;
        }
        struct timespec at = ga_nccl_time_of(ga_nccl_now() + WATCH_NS);
        pthread_cond_timedwait(&l->changed, &l->lock, &at);
        uint64_t deadline =
            __atomic_load_n(&l->deadline, __ATOMIC_RELAXED); /* relaxed: see ORDER */
        if (deadline && ga_nccl_now() > deadline) {
            l->is_late = true;
            note_abort(l);
        } else if (l->is_aborted) {
            ga_nccl_release_locked(l);
        }
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

ga_status ga_nccl_begin_watch(nccl_link *l)
{
    pthread_mutex_init(&l->lock, NULL);
    ga_nccl_init_condition(&l->changed);
    ga_status status = ga_nccl_start_thread(&l->watch, watch, l);
    l->is_watched = status == GA_OK;
    return status;
}

void ga_nccl_end_watch(nccl_link *l)
{
    pthread_mutex_lock(&l->lock);
    l->ends = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    if (l->is_watched) {
        pthread_join(l->watch, NULL);
    }
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
}
