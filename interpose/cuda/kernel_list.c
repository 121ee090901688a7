/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a list, and a record of the contexts in it that are behind
 * INVARIANT  A context is behind if `filled` is less than `wanted`. It keeps its place meanwhile;
 *            without a place it is counted in `unplaced`, and may get one.
 * ORDER      A lock of its own, after those of devices; no other is taken under it, and no function
 *            of the driver is called. KL1/KL2: a thread that sees a context not behind sees its
 *            variables written. KL3/KL4: a thread that sees no context without a place sees the
 *            places
 */
#include "kernel_list.h"

#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/local_socket.h"

#include <gpualloc/backend.h>

#include <pthread.h>

enum {
    DELAY_MS = 100,
    TRIES_SHARE = 20 /* of the time: one of so many parts */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ga_cuda_listed *contexts;
ga_cuda_behind ga_cuda_listed_behind;

static ga_cuda_listed *find(CUcontext handle)
{
    ga_cuda_listed *c = contexts;
    while (c && c->at.context != handle) {
        c = c->next;
    }
    return c;
}

static bool is_behind(const ga_cuda_listed *c)
{
    return c->filled < c->wanted;
}

static bool is_due(const ga_cuda_listed *c)
{
    return is_behind(c) && (!c->is_delayed || ga_local_now() >= c->due);
}

/* ---- places: the lock is held ---------------------------------------------------------------- */

static void set_place(int place, CUcontext handle)
{
    /* KL1: release. Pairs with KL2. */
    __atomic_store_n(&ga_cuda_listed_behind.places[place - 1], handle, __ATOMIC_RELEASE);
}

static void leave_place(ga_cuda_listed *c)
{
    if (c->place) {
        set_place(c->place, NULL);
        c->place = 0;
    }
}

static void find_place(ga_cuda_listed *c)
{
    for (int i = 1; i <= GA_CUDA_BEHIND_PLACES && !c->place; i++) {
        /* relaxed: the lock orders the stores */
        if (!__atomic_load_n(&ga_cuda_listed_behind.places[i - 1], __ATOMIC_RELAXED)) {
            c->place = i;
            set_place(i, c->at.context);
        }
    }
}

/* After a change, with the lock held, which is released. */
static void count_and_unlock(void)
{
    unsigned behind = 0;
    unsigned unplaced = 0;
    for (ga_cuda_listed *c = contexts; c; c = c->next) {
        if (!is_behind(c)) {
            leave_place(c);
        }
    }
    for (ga_cuda_listed *c = contexts; c; c = c->next) {
        if (is_behind(c)) {
            find_place(c);
            behind++;
            unplaced += !c->place;
        }
    }
    /* KL3: release. Pairs with KL4. */
    __atomic_store_n(&ga_cuda_listed_behind.unplaced, unplaced, __ATOMIC_RELEASE);
    /* KL1: release. Pairs with KL2. */
    __atomic_store_n(&ga_cuda_listed_behind.count, behind, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

bool ga_cuda_listed_may_be_behind(CUcontext handle)
{
    /* KL4: acquire. Pairs with KL3. */
    bool is = __atomic_load_n(&ga_cuda_listed_behind.unplaced, __ATOMIC_ACQUIRE) != 0;
    for (int i = 0; i < GA_CUDA_BEHIND_PLACES && !is; i++) {
        /* KL2: acquire. Pairs with KL1. */
        is = __atomic_load_n(&ga_cuda_listed_behind.places[i], __ATOMIC_ACQUIRE) == handle;
    }
    return is;
}

/* ---- the list -------------------------------------------------------------------------------- */

ga_cuda_listed *ga_cuda_listed_add(const ga_cuda_target *target)
{
    pthread_mutex_lock(&lock);
    ga_cuda_listed *c = find(target->context);
    if (!c) {
        c = ga_libc.calloc(1, sizeof *c);
        if (c) {
            *c = (ga_cuda_listed){.at = *target, .next = contexts};
            contexts = c;
        } else {
            ga_fail(GA_ERR_MEMORY, "no memory for the record of a context");
        }
    }
    pthread_mutex_unlock(&lock);
    return c;
}

ga_cuda_listed *ga_cuda_listed_find(CUcontext handle)
{
    pthread_mutex_lock(&lock);
    ga_cuda_listed *c = find(handle);
    pthread_mutex_unlock(&lock);
    return c;
}

void ga_cuda_listed_remove(ga_cuda_listed *gone)
{
    pthread_mutex_lock(&lock);
    ga_cuda_listed **at = &contexts;
    while (*at && *at != gone) {
        at = &(*at)->next;
    }
    if (*at) {
        *at = gone->next;
        leave_place(gone);
        ga_libc.free(gone);
    }
    count_and_unlock();
}

ga_cuda_listed *ga_cuda_listed_next(int device, const ga_cuda_listed *before)
{
    pthread_mutex_lock(&lock);
    ga_cuda_listed *c = before ? before->next : contexts;
    while (c && c->at.device != device) {
        c = c->next;
    }
    pthread_mutex_unlock(&lock);
    return c;
}

int ga_cuda_listed_device(CUcontext handle)
{
    pthread_mutex_lock(&lock);
    const ga_cuda_listed *c = find(handle);
    int device = c ? c->at.device : -1;
    pthread_mutex_unlock(&lock);
    return device;
}

bool ga_cuda_listed_is_due(CUcontext handle)
{
    pthread_mutex_lock(&lock);
    const ga_cuda_listed *c = find(handle);
    bool is = c && is_due(c);
    pthread_mutex_unlock(&lock);
    return is;
}

bool ga_cuda_listed_device_is_due(int device)
{
    bool is = false;
    pthread_mutex_lock(&lock);
    for (const ga_cuda_listed *c = contexts; c && !is; c = c->next) {
        is = c->at.device == device && is_due(c);
    }
    pthread_mutex_unlock(&lock);
    return is;
}

/* ---- the program's code ---------------------------------------------------------------------- */

static void want(ga_cuda_listed *c, uint64_t number)
{
    if (!c->has_failed && c->wanted < number) {
        c->wanted = number;
    }
}

void ga_cuda_listed_want(CUcontext handle, uint64_t number)
{
    pthread_mutex_lock(&lock);
    ga_cuda_listed *c = find(handle);
    if (c) {
        want(c, number);
    }
    count_and_unlock();
}

void ga_cuda_listed_want_all(uint64_t number, CUcontext done)
{
    pthread_mutex_lock(&lock);
    for (ga_cuda_listed *c = contexts; c; c = c->next) {
        if (c->at.context != done) {
            want(c, number);
        }
    }
    count_and_unlock();
}

uint64_t ga_cuda_listed_wants(const ga_cuda_listed *c, uint64_t *filled)
{
    pthread_mutex_lock(&lock);
    *filled = c->filled;
    uint64_t wanted = c->wanted;
    pthread_mutex_unlock(&lock);
    return wanted;
}

bool ga_cuda_listed_filled(ga_cuda_listed *c, uint64_t number)
{
    pthread_mutex_lock(&lock);
    bool was_delayed = c->is_delayed;
    c->filled = number;
    c->wanted = c->wanted < number ? number : c->wanted;
    c->has_failed = false;
    c->is_delayed = false;
    count_and_unlock();
    return was_delayed;
}

bool ga_cuda_listed_delay(ga_cuda_listed *c, uint64_t number, int64_t began)
{
    pthread_mutex_lock(&lock);
    bool was_delayed = c->is_delayed;
    int64_t now = ga_local_now();
    int64_t delay = TRIES_SHARE * (now - began);
    c->filled = number;
    c->is_delayed = true;
    c->due = now + (delay < DELAY_MS ? DELAY_MS : delay);
    count_and_unlock();
    return was_delayed;
}

void ga_cuda_listed_loaded(ga_cuda_listed *c, uint64_t number)
{
    pthread_mutex_lock(&lock);
    if (!is_behind(c) && c->filled + 1 >= number) {
        c->filled = number;
        c->wanted = number;
    } else { /* a library that another thread is loading may have a number in between */
        want(c, number);
    }
    count_and_unlock();
}

void ga_cuda_listed_emptied(ga_cuda_listed *c, uint64_t number)
{
    pthread_mutex_lock(&lock);
    c->filled = 0;
    c->wanted = number;
    c->has_failed = false;
    c->is_delayed = false;
    count_and_unlock();
}

void ga_cuda_listed_failed(ga_cuda_listed *c)
{
    pthread_mutex_lock(&lock);
    c->has_failed = true;
    c->wanted = c->filled;
    count_and_unlock();
}

void ga_cuda_listed_child(void)
{
    pthread_mutex_init(&lock, NULL); /* the thread that held it is not in the child */
    contexts = NULL;
    ga_cuda_listed_behind = (ga_cuda_behind){0};
}
