/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a pager for each device: a list of clients, and a thread while there are any
 * INVARIANT  a client that `back` runs for stays in the list; its answers' steps never become fewer
 * ORDER      each pager has a lock for everything but the words of the mailboxes: M1 and M4 below
 * PROGRESS   who removes a client waits for its `back`, if that runs, and for nothing else
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
    IDLE_SHARE = 32,              /* of the time since anything happened, the part slept */
    SHORTEST_NS = 20000,          /* below that a sleep takes longer than it should */
    LONGEST_NS = 2000000,
    MAILBOX_SIZE = 64 << 10, /* whole pages, wherever we are */
    SECOND_NS = 1000000000
};

typedef struct ga_pager {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* what a thread waits for has changed */
    pthread_t thread;       /* where it is to be joined */
    bool running, to_join;
    bool stopping; /* the process ends */
    bool promised; /* to stop at the end of the process */
    ga_pager_client *first;
    ga_pager_client *served; /* whose `back` runs */
    uint64_t active;         /* when something happened last */
} ga_pager;

struct ga_pager_client {
    ga_pager *pager;
    ga_pager_client *next;
    ga_pager_back back;
    void *context;
    ga_mailbox *mailbox;     /* as the host addresses it */
    ga_mailbox *for_kernels; /* the same, as they do */
    int device;
    bool pinned;
    unsigned forks;  /* of the process that opened it */
    uint32_t serial; /* of the wish that was answered last */
    uint32_t backed; /* steps */
    uint64_t granted, refused;
    ga_latency latency;
};

static ga_pager pagers[PAGERS];
static unsigned forks; /* how many have led to this process; changed while it has one thread */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* ---- the thread --------------------------------------------------------------------------- */

static void say(ga_pager_client *client, ga_growth_reason reason)
{
    uint64_t answer = ga_mail_word(client->backed, client->serial, reason);
    /* M1: release. Pairs with M2 (growth.h): these steps are backed. */
    __atomic_store_n(&client->mailbox->answer, answer, __ATOMIC_RELEASE);
}

/* Steps there are already need no `back`; and one that claims success falls short as any other. */
static ga_growth_reason back_up_to(ga_pager_client *client, uint32_t wanted)
{
    if (wanted <= client->backed) {
        return GA_GROWTH_GRANTED;
    }
    ga_pager *pager = client->pager;
    uint32_t backed = client->backed;
    pager->served = client;
    pthread_mutex_unlock(&pager->lock);
    ga_growth_reason reason = client->back(client->context, wanted, &backed);
    pthread_mutex_lock(&pager->lock);
    pager->served = NULL;
    pthread_cond_broadcast(&pager->changed);
    client->backed = backed > client->backed ? backed : client->backed;
    if (client->backed >= wanted) {
        return GA_GROWTH_GRANTED;
    }
    return reason == GA_GROWTH_GRANTED ? GA_GROWTH_MEMORY : reason;
}

/* Whether there was a wish. */
static bool serve(ga_pager_client *client)
{
    /* M4: relaxed. Pairs with M3 (growth.h): a wish tells of nothing but itself. */
    uint64_t wish = __atomic_load_n(&client->mailbox->wish, __ATOMIC_RELAXED);
    if (ga_mail_serial(wish) == client->serial) {
        return false;
    }
    uint64_t seen = now_ns();
    client->serial = ga_mail_serial(wish);
    ga_growth_reason reason = back_up_to(client, ga_mail_steps(wish));
    say(client, reason);
    client->granted += reason == GA_GROWTH_GRANTED;
    client->refused += reason != GA_GROWTH_GRANTED;
    client->pager->active = now_ns();
    ga_latency_add(&client->latency, client->pager->active - seen);
    return true;
}

/* `back` runs without the lock, but its client stays, and the list is whole afterwards. */
static bool serve_all(ga_pager *pager)
{
    bool served = false;
    for (ga_pager_client *client = pager->first; client; client = client->next) {
        served |= serve(client);
    }
    return served;
}

static void rest(ga_pager *pager)
{
    uint64_t now = now_ns();
    uint64_t nap = (now - pager->active) / IDLE_SHARE;
    if (nap < SHORTEST_NS) {
        pthread_mutex_unlock(&pager->lock);
        sched_yield();
        pthread_mutex_lock(&pager->lock);
        return;
    }
    uint64_t until = now + (nap < LONGEST_NS ? nap : LONGEST_NS);
    struct timespec at = {(time_t)(until / SECOND_NS), (long)(until % SECOND_NS)};
    pthread_cond_timedwait(&pager->changed, &pager->lock, &at);
}

/* It comes with the first client and ends by itself after the last. */
static void *watch(void *argument)
{
    ga_pager *pager = argument;
    pthread_setname_np(pthread_self(), "gpualloc-pager");
    prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul); /* ns; short naps shall be short */
    pthread_mutex_lock(&pager->lock);
    while (pager->first && !pager->stopping) {
        if (!serve_all(pager)) {
            rest(pager);
        }
    }
    pager->running = false;
    pthread_cond_broadcast(&pager->changed);
    pthread_mutex_unlock(&pager->lock);
    return NULL;
}

/* Under the lock, which a thread that no longer runs has given back for good. */
static void join(ga_pager *pager)
{
    if (pager->to_join && !pager->running) {
        pthread_join(pager->thread, NULL);
        pager->to_join = false;
    }
}

/* Under the lock. Signals are for the program's own threads. */
static ga_status start(ga_pager *pager)
{
    sigset_t all, before;
    if (pager->running) {
        return GA_OK;
    }
    join(pager);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&pager->thread, NULL, watch, pager);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pager->running = pager->to_join = error == 0;
    return error ? ga_fail(GA_ERR_MEMORY, "pager: no thread: %s", strerror(error)) : GA_OK;
}

/* ---- the end of the process, and forks ------------------------------------------------------ */

/* A `back` that ends the process itself is not waited for. */
static void stop(ga_pager *pager)
{
    pthread_mutex_lock(&pager->lock);
    pager->stopping = true;
    pthread_cond_broadcast(&pager->changed);
    while (pager->running && !pthread_equal(pager->thread, pthread_self())) {
        pthread_cond_wait(&pager->changed, &pager->lock);
    }
    join(pager);
    for (ga_pager_client *client = pager->first; client; client = client->next) {
        say(client, GA_GROWTH_GONE);
    }
    pthread_mutex_unlock(&pager->lock);
}

static void stop_all(void)
{
    for (int i = 0; i < PAGERS; i++) {
        stop(&pagers[i]);
    }
}

static void begin(ga_pager *pager)
{
    pthread_condattr_t monotonic;
    *pager = (ga_pager){.promised = pager->promised};
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&pager->lock, NULL);
    pthread_cond_init(&pager->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static bool begun; /* the pagers have locks */

/* Once, and once more in the child of a fork that came in the middle of it. */
static void begin_all(void)
{
    begun = true;
    for (int i = 0; i < PAGERS; i++) {
        begin(&pagers[i]);
    }
}

/* The child has neither the threads nor the driver; whoever had a lock is not here. */
static void begin_child(void)
{
    forks++;
    if (begun) {
        begin_all();
    }
}

__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, NULL, NULL, begin_child);
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
    status = GA_CUDA_CALL(scope.driver, cuMemHostRegister, client->mailbox, MAILBOX_SIZE,
                          CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    bool pinned = status == GA_OK;
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuMemHostGetDevicePointer, &device, client->mailbox, 0);
    }
    ga_cuda_leave(&scope);
    client->pinned = pinned;
    client->for_kernels = (ga_mailbox *)device;
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

/* As if wish 0, which nobody made, had been granted. */
static void clear_mailbox(ga_pager_client *client)
{
    memset(client->mailbox, 0, sizeof *client->mailbox);
    client->serial = 0;
    say(client, GA_GROWTH_GRANTED);
}

/* Pages that the driver would not unpin stay mapped until it does: it could not pin what is mapped
 * there later. A child leaves the driver alone. */
static void close_mailbox(ga_pager_client *client)
{
    bool ours = client->pinned && client->forks == forks;
    if (ours && !unpin(client) && !unpin(client) && ga_cuda_has_context(client->device)) {
        ga_cuda_refused_add(client->device, GA_CUDA_REFUSED_PINNED, (uintptr_t)client->mailbox,
                            MAILBOX_SIZE);
    } else {
        ga_os_memory_release(client->mailbox, MAILBOX_SIZE);
    }
}

/* Pages of our own: the driver's would go with its context, while we look at them. They are shared,
 * so that a fork leaves ours where the device knows them to be, and copies nothing. */
static ga_status open_mailbox(ga_pager_client *client)
{
    void *pages = ga_os_memory_get()->mmap(NULL, MAILBOX_SIZE, PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        return ga_fail(GA_ERR_MEMORY, "pager: no memory for a mailbox: %s", strerror(errno));
    }
    client->mailbox = client->for_kernels = pages;
    ga_status status = client->device == GA_PAGER_HOST ? GA_OK : pin(client);
    if (status == GA_OK) {
        clear_mailbox(client);
    } else {
        close_mailbox(client);
    }
    return status;
}

/* Put the client before the pager. What the process registers last is called first when it ends, so
 * that a driver that has been loaded by now is still there while the pager stops. */
static ga_status enlist(ga_pager_client *client)
{
    ga_pager *pager = client->pager;
    pthread_mutex_lock(&pager->lock);
    ga_status status = pager->stopping
                           ? ga_fail(GA_ERR_UNSUPPORTED, "pager: the process is coming to its end")
                           : start(pager);
    if (status == GA_OK) {
        client->next = pager->first;
        pager->first = client;
        pager->active = now_ns();
        pthread_cond_broadcast(&pager->changed);
        if (!pager->promised) {
            pager->promised = atexit(stop_all) == 0;
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
    pthread_once(&once, begin_all);
    ga_pager_client *client = ga_libc.calloc(1, sizeof *client);
    if (!client) {
        return ga_fail(GA_ERR_MEMORY, "pager: no memory for a client");
    }
    client->pager = &pagers[device + 1];
    client->back = back;
    client->context = context;
    client->device = device;
    client->forks = forks;
    client->backed = steps;
    ga_status status = open_mailbox(client);
    if (status == GA_OK) {
        status = enlist(client);
        if (status == GA_OK) {
            *out = client;
            return GA_OK;
        }
        close_mailbox(client);
    }
    ga_libc.free(client);
    return status;
}

/* Under the lock. */
static void wait_for_back(ga_pager_client *client)
{
    ga_pager *pager = client->pager;
    while (pager->served == client) {
        pthread_cond_wait(&pager->changed, &pager->lock);
    }
}

static void delist(ga_pager_client *client)
{
    ga_pager *pager = client->pager;
    pthread_mutex_lock(&pager->lock);
    wait_for_back(client);
    ga_pager_client **link = &pager->first;
    while (*link != client) {
        link = &(*link)->next;
    }
    *link = client->next;
    say(client, GA_GROWTH_GONE);
    pthread_cond_broadcast(&pager->changed);
    while (pager->running && !pager->first) {
        pthread_cond_wait(&pager->changed, &pager->lock);
    }
    join(pager);
    pthread_mutex_unlock(&pager->lock);
}

void ga_pager_remove(ga_pager_client *client)
{
    if (!client) {
        return;
    }
    if (client->forks == forks) {
        delist(client);
    }
    close_mailbox(client);
    ga_libc.free(client);
}

void ga_pager_restart(ga_pager_client *client, uint32_t steps)
{
    ga_pager *pager = client->pager;
    pthread_mutex_lock(&pager->lock);
    if (client->forks == forks) {
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
    pager->active = now_ns();
    pthread_cond_broadcast(&pager->changed);
    pthread_mutex_unlock(&pager->lock);
}

ga_mailbox *ga_pager_mailbox(const ga_pager_client *client)
{
    return client->for_kernels;
}

void ga_pager_get_stats(ga_pager_client *client, ga_pager_stats *out)
{
    pthread_mutex_lock(&client->pager->lock);
    out->granted = client->granted;
    out->refused = client->refused;
    out->p50 = ga_latency_quantile(&client->latency, 500);
    out->p99 = ga_latency_quantile(&client->latency, 990);
    out->p999 = ga_latency_quantile(&client->latency, 999);
    out->most = client->latency.most;
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
                        .patience = (uint64_t)5 * SECOND_NS,
                        .hold = 10000000,
                        .pace = 2000,
                        .ready = steps,
                        .wish = ga_mail_word(steps, 0, GA_GROWTH_GRANTED)};
    if (!mailbox) {
        growth.verdict = GA_GROWTH_FOR_EVER | GA_GROWTH_FIXED;
    }
    return growth;
}
