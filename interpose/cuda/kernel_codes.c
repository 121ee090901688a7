/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a list in the order of numbers
 * INVARIANT  a record with users is in the list, and the driver has not unloaded its code
 * ORDER      a lock of its own, after all others. No function of the driver is called under it,
 *            because a thread that unloads a library of the program takes it, and holds the lock of
 *            the dynamic linker
 * PROGRESS   a thread that unloads code waits while another one writes to a variable of that code
 */
#include "kernel_codes.h"

#include "../../liballoc/platform/libc.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct record {
    ga_cuda_code code; /* first */
    void *copy;
    unsigned users;
    bool is_going;  /* a thread unloads it */
    bool is_orphan; /* its context went meanwhile */
    struct record *next;
} record;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unused = PTHREAD_COND_INITIALIZER; /* a record that is going has no users */
static record *first;
static record **end = &first;
static uint64_t numbers;

/* With the lock held, as the next functions without a prefix. */
static void append(record *r)
{
    r->code.number = ++numbers;
    r->next = NULL;
    *end = r;
    end = &r->next;
}

static record **place_of(const record *r)
{
    record **at = &first;
    while (*at && *at != r) {
        at = &(*at)->next;
    }
    return at;
}

static void unlink_at(record **at)
{
    record *r = *at;
    *at = r->next;
    end = end == &r->next ? at : end;
}

static record *find(const void *handle)
{
    record *r = first;
    while (r && (r->code.handle != handle || r->is_going)) {
        r = r->next;
    }
    return r;
}

/* The driver has given a handle out again, so that code which had it is gone: its unloading was
 * refused with the error of another call, or its context ended without a hook. A record in use
 * stays in the list, and is not found any more. */
static void remove_stale(const void *handle)
{
    for (record *r; (r = find(handle));) {
        if (r->users) {
            r->is_going = true;
            continue;
        }
        unlink_at(place_of(r));
        ga_libc.free(r->copy);
        ga_libc.free(r);
    }
}

uint64_t ga_cuda_codes_add(void *handle, CUcontext context, void *copy)
{
    record *r = ga_libc.calloc(1, sizeof *r);
    if (!r) {
        return 0;
    }
    *r = (record){.code = {handle, context, 0}, .copy = copy};
    pthread_mutex_lock(&lock);
    remove_stale(handle);
    append(r);
    uint64_t number = r->code.number;
    pthread_mutex_unlock(&lock);
    return number;
}

static bool runs_in(const record *r, CUcontext context)
{
    return !r->is_going && (!r->code.context || r->code.context == context);
}

static void leave(record *r)
{
    if (!--r->users && r->is_going) {
        pthread_cond_broadcast(&unused);
    }
}

const ga_cuda_code *ga_cuda_codes_next(const ga_cuda_code *before, uint64_t number,
                                       CUcontext context)
{
    record *used = (record *)(uintptr_t)before;
    pthread_mutex_lock(&lock);
    record *r = used ? used->next : first;
    while (r && (r->code.number <= number || !runs_in(r, context))) {
        r = r->next;
    }
    if (r) {
        r->users++;
    }
    if (used) {
        leave(used);
    }
    pthread_mutex_unlock(&lock);
    return r ? &r->code : NULL;
}

uint64_t ga_cuda_codes_last(CUcontext context)
{
    uint64_t last = 0;
    pthread_mutex_lock(&lock);
    for (const record *r = first; r; r = r->next) {
        last = runs_in(r, context) ? r->code.number : last;
    }
    pthread_mutex_unlock(&lock);
    return last;
}

const ga_cuda_code *ga_cuda_codes_leave(const void *handle)
{
    pthread_mutex_lock(&lock);
    record *r = find(handle);
    if (r) {
        r->is_going = true;
        while (r->users) {
            pthread_cond_wait(&unused, &lock);
        }
    }
    pthread_mutex_unlock(&lock);
    return r ? &r->code : NULL;
}

/* Code that stays gets a new number, because contexts that were filled meanwhile lack it. */
uint64_t ga_cuda_codes_left(const ga_cuda_code *code, bool is_gone)
{
    record *r = (record *)(uintptr_t)code;
    uint64_t number = 0;
    pthread_mutex_lock(&lock);
    record **at = place_of(r);
    if (!*at) { /* a fork since: the record is the parent's */
        pthread_mutex_unlock(&lock);
        return 0;
    }
    unlink_at(at);
    is_gone = is_gone || find(r->code.handle); /* other code has the handle */
    if (is_gone || r->is_orphan) {
        ga_libc.free(is_gone ? r->copy : NULL); /* else the driver may still read it */
        ga_libc.free(r);
    } else {
        append(r);
        r->is_going = false;
        number = r->code.number;
    }
    pthread_mutex_unlock(&lock);
    return number;
}

/* Nobody uses them: the caller holds the lock of the context's device. A thread that unloads one
 * removes it itself. */
void ga_cuda_codes_context_gone(CUcontext context)
{
    pthread_mutex_lock(&lock);
    for (record **at = &first; *at;) {
        record *r = *at;
        bool is_there = r->code.context == context;
        r->is_orphan = r->is_orphan || is_there;
        if (is_there && !r->is_going) {
            unlink_at(at);
            ga_libc.free(r);
        } else {
            at = &r->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

void ga_cuda_codes_child(void)
{
    pthread_mutex_init(&lock, NULL); /* the thread that held it is not in the child */
    pthread_cond_init(&unused, NULL);
    first = NULL;
    end = &first;
}
