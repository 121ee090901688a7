/* SPDX-License-Identifier: MIT
 *
 * The pager's thread, and the mailboxes of its clients.
 *
 * pager_thread
 *   serve_all -> serve     for each client: load its request (GM4); nothing to do if not new
 *     back_steps           call `back` without the pager's lock: growing.c and loan.c map chunks
 *                          (ga_arena_grow: cuMemCreate, cuMemMap, cuMemSetAccess)
 *     write_answer         the number of steps, the request's serial and the reason (GM1)
 *   sleep_or_yield         no request: yield, later sleep for 1/32 of the idle time
 *
 * STRUCTURE  one pager per device: a list of clients, and a thread while there are any
 * INVARIANT  a client stays in the list while its `back` runs; its steps never become fewer, except
 *            by ga_pager_restart()
 * ORDER      a lock per pager guards everything except the mailboxes' words: GM1 and GM4 below
 * PROGRESS   ga_pager_remove() waits for a running `back` of the client, and for nothing else
 */
#include "pager.h"

#include "../platform/cuda_driver.h"
#include "../platform/cuda_refused.h"
#include "../platform/forks.h"
#include "../platform/latency.h"
#include "../platform/libc.h"
#include "../platform/os_memory.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

enum {
    PAGERS = GA_CUDA_DEVICES + 1, /* the first is the host's */
    SLEEP_DIV = 32,               /* the thread sleeps for this part of the idle time */
    SLEEP_MIN_NS = 20000,         /* shorter sleeps last too long: yield instead */
    SLEEP_MAX_NS = 2000000,
    MAILBOX_BYTES = 64 << 10, /* whole pages on any machine */
    SECOND_NS = 1000000000
};

typedef struct ga_pager {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signalled when anything that a thread waits for has changed */
    pthread_t thread;       /* valid if `joinable` */
    bool running, joinable;
    bool stopping;           /* the process ends */
    bool at_exit_registered; /* atexit(stop_all) is registered */
    ga_pager_client *first;
    ga_pager_client *serving; /* the client whose `back` runs */
    uint64_t active_at;       /* time of the last request, or of another sign that kernels run */
} ga_pager;

struct ga_pager_client {
    ga_pager *pager;
    ga_pager_client *next;
    ga_pager_back back;
    void *context;
    ga_mailbox *mailbox;        /* the address for the host */
    ga_mailbox *device_mailbox; /* the address for kernels */
    int device;
    bool pinned;
    unsigned fork_count; /* fork_count of the process that opened it */
    uint32_t serial;     /* of the request that was answered last */
    uint32_t backed;     /* number of steps */
    uint64_t granted, refused;
    ga_latency latency;
};

static ga_pager pagers[PAGERS];
/* Forks between the first process and this one; changes while the process has one thread. */
static unsigned fork_count;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* ---- the thread --------------------------------------------------------------------------- */

static void write_answer(ga_pager_client *client, ga_growth_reason reason)
{
    uint64_t answer = ga_mail_word(client->backed, client->serial, reason);
    /* GM1: release. Pairs with GM2 (growth.h): these steps are backed. */
    __atomic_store_n(&client->mailbox->answer, answer, __ATOMIC_RELEASE);
}

/* Steps that exist need no call. A `back` that returns GRANTED with too few steps counts as out of
 * memory. */
static ga_growth_reason back_steps(ga_pager_client *client, uint32_t requested)
{
    if (requested <= client->backed) {
        return GA_GROWTH_GRANTED;
    }
    ga_pager *pager = client->pager;
    uint32_t backed = client->backed;
    pager->serving = client;
    pthread_mutex_unlock(&pager->lock);
    ga_growth_reason reason = client->back(client->context, requested, &backed);
    pthread_mutex_lock(&pager->lock);
    pager->serving = NULL;
    pthread_cond_broadcast(&pager->changed);
    client->backed = backed > client->backed ? backed : client->backed;
    if (client->backed >= requested) {
        return GA_GROWTH_GRANTED;
    }
    return reason == GA_GROWTH_GRANTED ? GA_GROWTH_MEMORY : reason;
}

/* Returns true if there was a new request. */
static bool serve(ga_pager_client *client)
{
    /* GM4: relaxed. Pairs with GM3 (growth.h): a request publishes nothing but itself. */
    uint64_t request = __atomic_load_n(&client->mailbox->request, __ATOMIC_RELAXED);
    if (ga_mail_serial(request) == client->serial) {
        return false;
    }
    uint64_t seen = now_ns();
    client->serial = ga_mail_serial(request);
    ga_growth_reason reason = back_steps(client, ga_mail_steps(request));
    write_answer(client, reason);
    client->granted += reason == GA_GROWTH_GRANTED;
    client->refused += reason != GA_GROWTH_GRANTED;
    client->pager->active_at = now_ns();
    ga_latency_add(&client->latency, client->pager->active_at - seen);
    return true;
}

/* `back` runs without the lock, but its client stays in the list, so that the walk can continue. */
static bool serve_all(ga_pager *pager)
{
    bool served = false;
    for (ga_pager_client *client = pager->first; client; client = client->next) {
        served |= serve(client);
    }
    return served;
}

static void sleep_or_yield(ga_pager *pager)
{
    uint64_t now = now_ns();
    uint64_t sleep_ns = (now - pager->active_at) / SLEEP_DIV;
    if (sleep_ns < SLEEP_MIN_NS) {
        pthread_mutex_unlock(&pager->lock);
        sched_yield();
        pthread_mutex_lock(&pager->lock);
        return;
    }
    uint64_t until = now + (sleep_ns < SLEEP_MAX_NS ? sleep_ns : SLEEP_MAX_NS);
    struct timespec at = {(time_t)(until / SECOND_NS), (long)(until % SECOND_NS)};
    pthread_cond_timedwait(&pager->changed, &pager->lock, &at);
}

/* Starts with the first client and ends by itself after the last. */
static void *pager_thread(void *argument)
{
    ga_pager *pager = argument;
    pthread_setname_np(pthread_self(), "gpualloc-pager");
    prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul); /* ns; short sleeps must stay short */
    pthread_mutex_lock(&pager->lock);
    while (pager->first && !pager->stopping) {
        if (!serve_all(pager)) {
            sleep_or_yield(pager);
        }
    }
    pager->running = false;
    pthread_cond_broadcast(&pager->changed);
    pthread_mutex_unlock(&pager->lock);
    return NULL;
}

/* With the lock held. The thread has already released it for the last time. */
static void join_thread(ga_pager *pager)
{
    if (pager->joinable && !pager->running) {
        pthread_join(pager->thread, NULL);
        pager->joinable = false;
    }
}

/* With the lock held. Signals are blocked, because they are for the program's own threads. */
static ga_status start_thread(ga_pager *pager)
{
    sigset_t all, before;
    if (pager->running) {
        return GA_OK;
    }
    join_thread(pager);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&pager->thread, NULL, pager_thread, pager);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pager->running = pager->joinable = error == 0;
    return error ? ga_fail(GA_ERR_MEMORY, "pager: no thread: %s", strerror(error)) : GA_OK;
}

/* ---- the end of the process, and forks ------------------------------------------------------ */

/* If `back` itself ends the process, its thread is not waited for. */
static void stop_pager(ga_pager *pager)
{
    pthread_mutex_lock(&pager->lock);
    pager->stopping = true;
    pthread_cond_broadcast(&pager->changed);
    while (pager->running && !pthread_equal(pager->thread, pthread_self())) {
        pthread_cond_wait(&pager->changed, &pager->lock);
    }
    join_thread(pager);
    for (ga_pager_client *client = pager->first; client; client = client->next) {
        write_answer(client, GA_GROWTH_GONE);
    }
    pthread_mutex_unlock(&pager->lock);
}

static void stop_all(void)
{
    for (int i = 0; i < PAGERS; i++) {
        stop_pager(&pagers[i]);
    }
}

static void init_pager(ga_pager *pager)
{
    pthread_condattr_t monotonic;
    *pager = (ga_pager){.at_exit_registered = pager->at_exit_registered};
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&pager->lock, NULL);
    pthread_cond_init(&pager->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static bool initialised; /* the pagers have locks */

/* Runs once; again in the child of a fork that came in the middle of it. */
static void init_all(void)
{
    initialised = true;
    for (int i = 0; i < PAGERS; i++) {
        init_pager(&pagers[i]);
    }
}

/* The child has neither the threads nor the driver, and no holder of a lock. */
static void fork_child(void)
{
    fork_count++;
    if (initialised) {
        init_all();
    }
}

__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, NULL, NULL, fork_child);
}

/* ---- clients ------------------------------------------------------------------------------- */

static ga_status pin(ga_pager_client *client)
{
    ga_cuda_scope scope;
    CUdeviceptr device = 0;
    ga_status status = ga_cuda_enter(&scope, client->device);
    if (status != GA_OK) {
        return status;
    }
    status = GA_CUDA_CALL(scope.driver, cuMemHostRegister, client->mailbox, MAILBOX_BYTES,
                          CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    bool pinned = status == GA_OK;
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuMemHostGetDevicePointer, &device, client->mailbox, 0);
    }
    ga_cuda_leave(&scope);
    client->pinned = pinned;
    client->device_mailbox = (ga_mailbox *)device;
    return status;
}

static bool unpin(ga_pager_client *client)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, client->device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuMemHostUnregister, client->mailbox);
        ga_cuda_leave(&scope);
    }
    return status == GA_OK;
}

/* The state after a granted request number 0, which was never posted. */
static void clear_mailbox(ga_pager_client *client)
{
    memset(client->mailbox, 0, sizeof *client->mailbox);
    client->serial = 0;
    write_answer(client, GA_GROWTH_GRANTED);
}

/* If the driver refuses to unpin the pages, they stay mapped until it does, because it could not
 * pin other memory at these addresses. A forked child leaves the driver alone. */
static void close_mailbox(ga_pager_client *client)
{
    bool ours = client->pinned && client->fork_count == fork_count;
    if (ours && !unpin(client) && !unpin(client) && ga_cuda_has_context(client->device)) {
        ga_cuda_refused_add(client->device, GA_CUDA_REFUSED_PINNED, (uintptr_t)client->mailbox,
                            MAILBOX_BYTES);
    } else {
        ga_os_memory_unmap(client->mailbox, MAILBOX_BYTES);
    }
}

/* The pages are mapped here, because pages of the driver would vanish with its context while the
 * thread polls them. They are shared, so that a fork keeps the parent's pages in place for the
 * device and copies nothing. */
static ga_status open_mailbox(ga_pager_client *client)
{
    void *pages = ga_os_memory_get()->mmap(NULL, MAILBOX_BYTES, PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        return ga_fail(GA_ERR_MEMORY, "pager: no memory for a mailbox: %s", strerror(errno));
    }
    client->mailbox = client->device_mailbox = pages;
    ga_status status = client->device == GA_PAGER_HOST ? GA_OK : pin(client);
    if (status == GA_OK) {
        clear_mailbox(client);
    } else {
        close_mailbox(client);
    }
    return status;
}

/* Add the client and start the thread. atexit() handlers run in reverse order, and the driver is
 * loaded by now, so the pager stops before the driver does. */
static ga_status add_client(ga_pager_client *client)
{
    ga_pager *pager = client->pager;
    pthread_mutex_lock(&pager->lock);
    ga_status status = pager->stopping
                           ? ga_fail(GA_ERR_UNSUPPORTED, "pager: the process is coming to its end")
                           : start_thread(pager);
    if (status == GA_OK) {
        client->next = pager->first;
        pager->first = client;
        pager->active_at = now_ns();
        pthread_cond_broadcast(&pager->changed);
        if (!pager->at_exit_registered) {
            pager->at_exit_registered = atexit(stop_all) == 0;
        }
    }
    pthread_mutex_unlock(&pager->lock);
    return status;
}

ga_status ga_pager_add(ga_pager_client **out, int device, uint32_t steps, ga_pager_back back,
                       void *context)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *out = NULL;
    if (device < GA_PAGER_HOST || device >= GA_CUDA_DEVICES) {
        return ga_fail(GA_ERR_ARGUMENT, "pager: device %d, expected %d to %d", device,
                       GA_PAGER_HOST, GA_CUDA_DEVICES - 1);
    }
    watch_forks();
    pthread_once(&once, init_all);
    ga_pager_client *client = ga_libc.calloc(1, sizeof *client);
    if (!client) {
        return ga_fail(GA_ERR_MEMORY, "pager: no memory for a client");
    }
    client->pager = &pagers[device + 1];
    client->back = back;
    client->context = context;
    client->device = device;
    client->fork_count = fork_count;
    client->backed = steps;
    ga_status status = open_mailbox(client);
    if (status == GA_OK) {
        status = add_client(client);
        if (status == GA_OK) {
            *out = client;
            return GA_OK;
        }
        close_mailbox(client);
    }
    ga_libc.free(client);
    return status;
}

/* With the lock held. */
static void wait_for_back(ga_pager_client *client)
{
    ga_pager *pager = client->pager;
    while (pager->serving == client) {
        pthread_cond_wait(&pager->changed, &pager->lock);
    }
}

static void remove_client(ga_pager_client *client)
{
    ga_pager *pager = client->pager;
    pthread_mutex_lock(&pager->lock);
    wait_for_back(client);
    ga_pager_client **link = &pager->first;
    while (*link != client) {
        link = &(*link)->next;
    }
    *link = client->next;
    write_answer(client, GA_GROWTH_GONE);
    pthread_cond_broadcast(&pager->changed);
    while (pager->running && !pager->first) {
        pthread_cond_wait(&pager->changed, &pager->lock);
    }
    join_thread(pager);
    pthread_mutex_unlock(&pager->lock);
}

void ga_pager_remove(ga_pager_client *client)
{
    if (!client) {
        return;
    }
    if (client->fork_count == fork_count) {
        remove_client(client);
    }
    close_mailbox(client);
    ga_libc.free(client);
}

void ga_pager_restart(ga_pager_client *client, uint32_t steps)
{
    ga_pager *pager = client->pager;
    pthread_mutex_lock(&pager->lock);
    if (client->fork_count == fork_count) {
        wait_for_back(client);
        client->backed = steps;
        clear_mailbox(client);
    }
    pthread_mutex_unlock(&pager->lock);
}

void ga_pager_wake(ga_pager_client *client)
{
    ga_pager *pager = client->pager;
    pthread_mutex_lock(&pager->lock);
    pager->active_at = now_ns();
    pthread_cond_broadcast(&pager->changed);
    pthread_mutex_unlock(&pager->lock);
}

ga_mailbox *ga_pager_mailbox(const ga_pager_client *client)
{
    return client->device_mailbox;
}

void ga_pager_get_stats(ga_pager_client *client, ga_pager_stats *out)
{
    pthread_mutex_lock(&client->pager->lock);
    out->granted = client->granted;
    out->refused = client->refused;
    out->p50 = ga_latency_quantile(&client->latency, 500);
    out->p99 = ga_latency_quantile(&client->latency, 990);
    out->p999 = ga_latency_quantile(&client->latency, 999);
    out->max = client->latency.max;
    out->sum = client->latency.sum;
    pthread_mutex_unlock(&client->pager->lock);
}

void ga_pager_add_times(ga_pager_client *client, ga_latency *out)
{
    pthread_mutex_lock(&client->pager->lock);
    ga_latency_join(out, &client->latency);
    pthread_mutex_unlock(&client->pager->lock);
}

ga_growth ga_growth_first(ga_mailbox *mailbox, uint32_t steps)
{
    ga_growth growth = {.mailbox = mailbox,
                        .timeout_ns = (uint64_t)5 * SECOND_NS,
                        .refusal_ns = 10000000,
                        .poll_ns = 2000,
                        .ready = steps,
                        .request = ga_mail_word(steps, 0, GA_GROWTH_GRANTED)};
    if (!mailbox) {
        growth.refusal = GA_GROWTH_FOREVER | GA_GROWTH_FIXED;
    }
    return growth;
}
