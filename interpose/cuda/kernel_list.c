/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a list, and the number of contexts in it that are behind
 * INVARIANT  a context is behind if `filled` is less than `wanted`
 * ORDER      a lock of its own, after those of devices; no other is taken under it, and no function
 *            of the driver is called. KL1/KL2: a thread that sees no context behind sees the
 *            variables written
 */
#include "kernel_list.h"

#include "../../liballoc/platform/libc.h"

#include <gpualloc/backend.h>

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ga_cuda_listed *contexts;
unsigned ga_cuda_listed_behind;

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

/* After a change, with the lock held, which is released. */
static void count_and_unlock(void)
{
    unsigned behind = 0;
    for (const ga_cuda_listed *c = contexts; c; c = c->next) {
        behind += is_behind(c);
    }
    /* KL1: release. Pairs with KL2. */
    __atomic_store_n(&ga_cuda_listed_behind, behind, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
}

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

void ga_cuda_listed_remove(const ga_cuda_listed *gone)
{
    pthread_mutex_lock(&lock);
    for (ga_cuda_listed **at = &contexts; *at; at = &(*at)->next) {
        if (*at == gone) {
            *at = gone->next;
            ga_libc.free((void *)(uintptr_t)gone);
            break;
        }
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

int ga_cuda_listed_device(CUcontext handle, bool behind)
{
    pthread_mutex_lock(&lock);
    const ga_cuda_listed *c = find(handle);
    int device = c && (!behind || is_behind(c)) ? c->at.device : -1;
    pthread_mutex_unlock(&lock);
    return device;
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

void ga_cuda_listed_filled(ga_cuda_listed *c, uint64_t number)
{
    pthread_mutex_lock(&lock);
    c->filled = number;
    c->wanted = c->wanted < number ? number : c->wanted;
    c->has_failed = false;
    count_and_unlock();
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
    count_and_unlock();
}

void ga_cuda_listed_failed(ga_cuda_listed *c)
{
    pthread_mutex_lock(&lock);
    c->has_failed = true;
    c->wanted = c->filled;
    count_and_unlock();
}

CUcontext ga_cuda_listed_find_behind(void)
{
    pthread_mutex_lock(&lock);
    const ga_cuda_listed *c = contexts;
    while (c && !is_behind(c)) {
        c = c->next;
    }
    CUcontext handle = c ? c->at.context : NULL;
    pthread_mutex_unlock(&lock);
    return handle;
}

void ga_cuda_listed_child(void)
{
    pthread_mutex_init(&lock, NULL); /* the thread that held it is not in the child */
    contexts = NULL;
    ga_cuda_listed_behind = 0;
}
