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
    bool is_going; /* a thread unloads it */
    struct record *next;
} record;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unused = PTHREAD_COND_INITIALIZER; /* a record that is going has no users */
static record *first;
static record **end = &first;
static uint64_t numbers;

uint64_t ga_cuda_codes_add(void *handle, CUcontext context, void *copy)
{
    record *r = ga_libc.calloc(1, sizeof *r);
    if (!r) {
        return 0;
    }
    pthread_mutex_lock(&lock);
    uint64_t number = ++numbers;
    *r = (record){.code = {handle, context, number}, .copy = copy};
    *end = r;
    end = &r->next;
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

/* With the lock held. */
static void remove_at(record **at)
{
    record *r = *at;
    *at = r->next;
    end = end == &r->next ? at : end;
    ga_libc.free(r);
}

static record **find(const void *handle)
{
    record **at = &first;
    while (*at && ((*at)->code.handle != handle || (*at)->is_going)) {
        at = &(*at)->next;
    }
    return at;
}

void *ga_cuda_codes_remove(const void *handle)
{
    void *copy = NULL;
    pthread_mutex_lock(&lock);
    record *r = *find(handle);
    if (r) {
        r->is_going = true;
        while (r->users) {
            pthread_cond_wait(&unused, &lock);
        }
        record **at = &first;
        while (*at != r) {
            at = &(*at)->next;
        }
        copy = r->copy;
        remove_at(at);
    }
    pthread_mutex_unlock(&lock);
    return copy;
}

/* Nobody uses them: the caller holds the lock of the context's device. A thread that unloads one
 * removes it itself. */
void ga_cuda_codes_context_gone(CUcontext context)
{
    pthread_mutex_lock(&lock);
    for (record **at = &first; *at;) {
        if ((*at)->code.context == context && !(*at)->is_going) {
            remove_at(at);
        } else {
            at = &(*at)->next;
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
