/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  under one lock: the list of registrations, and the list of blocks that were freed
 *            while registered. The number of registrations is also read without the lock
 * INVARIANT  a registration overlaps each block of the second list
 * ORDER      the lock is taken before that of the set of blocks. A program orders the free of a
 *            block and its registration, so the number needs no order of its own
 * PROGRESS   a thread waits for the lock, whose holder walks both lists
 */
#include "registered.h"

#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/log.h"
#include "captures.h"
#include "served.h"

struct ga_cuda_registration {
    const void *owner, *handle;
    CUdeviceptr start, end;
    uint64_t number;
    ga_cuda_registration *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ga_cuda_registration *registrations;
static ga_cuda_blocks_list held;
static uint64_t last_number;
static unsigned count;

/* ---- registrations ----------------------------------------------------------------------- */

ga_cuda_registration *ga_cuda_registration_new(const void *owner, const void *start, size_t size)
{
    ga_cuda_registration *made = ga_libc.malloc(sizeof *made);
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)start;
    if (made) {
        *made = (ga_cuda_registration){.owner = owner, .start = at, .end = at + size};
    }
    return made;
}

void ga_cuda_registration_drop(ga_cuda_registration *made)
{
    ga_libc.free(made);
}

/* With the lock held. */
static void link_in(ga_cuda_registration *one)
{
    one->next = registrations;
    registrations = one;
    __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED); /* relaxed: see ORDER */
}

/* With the lock held. */
static ga_cuda_registration *link_out(ga_cuda_registration **at)
{
    ga_cuda_registration *one = *at;
    *at = one->next;
    one->next = NULL;
    __atomic_fetch_sub(&count, 1, __ATOMIC_RELAXED); /* relaxed: see ORDER */
    return one;
}

uint64_t ga_cuda_registration_add(ga_cuda_registration *made, const void *handle)
{
    pthread_mutex_lock(&lock);
    uint64_t number = made->number = ++last_number;
    made->handle = handle;
    link_in(made);
    pthread_mutex_unlock(&lock);
    return number;
}

void ga_cuda_registration_restore(ga_cuda_registration *taken)
{
    if (taken) {
        pthread_mutex_lock(&lock);
        link_in(taken);
        pthread_mutex_unlock(&lock);
    }
}

/* With the lock held: the link to the registration, or to NULL. */
static ga_cuda_registration **find_number(uint64_t number)
{
    ga_cuda_registration **at = &registrations;
    while (*at && (*at)->number != number) {
        at = &(*at)->next;
    }
    return at;
}

void ga_cuda_registration_name(uint64_t number, const void *handle)
{
    pthread_mutex_lock(&lock);
    ga_cuda_registration *found = *find_number(number);
    if (found) {
        found->handle = handle;
    }
    pthread_mutex_unlock(&lock);
}

static uint64_t bytes_of(const ga_cuda_registration *one)
{
    return one->end - one->start;
}

ga_cuda_registration *ga_cuda_registration_take(const void *owner, const void *handle)
{
    ga_cuda_registration **found = NULL;
    pthread_mutex_lock(&lock);
    for (ga_cuda_registration **at = &registrations; handle && *at; at = &(*at)->next) {
        bool matches = (*at)->owner == owner && (*at)->handle == handle;
        found = matches && (!found || bytes_of(*at) < bytes_of(*found)) ? at : found;
    }
    ga_cuda_registration *taken = found ? link_out(found) : NULL;
    pthread_mutex_unlock(&lock);
    return taken;
}

ga_cuda_registration *ga_cuda_registration_take_number(uint64_t number)
{
    pthread_mutex_lock(&lock);
    ga_cuda_registration **found = find_number(number);
    ga_cuda_registration *taken = *found ? link_out(found) : NULL;
    pthread_mutex_unlock(&lock);
    return taken;
}

ga_cuda_registration *ga_cuda_registration_take_all(const void *owner)
{
    ga_cuda_registration *taken = NULL;
    pthread_mutex_lock(&lock);
    for (ga_cuda_registration **at = &registrations; *at;) {
        if ((*at)->owner == owner) {
            ga_cuda_registration *one = link_out(at);
            one->next = taken;
            taken = one;
        } else {
            at = &(*at)->next;
        }
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

/* ---- blocks that stay -------------------------------------------------------------------- */

/* With the lock held. */
static bool is_registered(const ga_cuda_block *block)
{
    const ga_cuda_registration *one = registrations;
    while (one && (one->end <= block->start || block->start + block->size <= one->start)) {
        one = one->next;
    }
    return one != NULL;
}

static void warn_held(const ga_cuda_block *block)
{
    static bool warned;
    /* relaxed: only limits the warning to once */
    if (!__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED)) {
        ga_log(GA_LOG_WARN,
               "device %d: a block of %zu bytes was freed while NCCL has it registered: it stays "
               "until its registration ends",
               block->device, block->size);
    }
}

/* Blocks of the driver are not kept, because no heap can free them later. */
bool ga_cuda_registered_hold(ga_cuda_block *block)
{
    /* relaxed: see ORDER */
    if (__builtin_expect(!__atomic_load_n(&count, __ATOMIC_RELAXED), 1) || !block->generation) {
        return false;
    }
    pthread_mutex_lock(&lock);
    bool holds = is_registered(block);
    if (holds) {
        ga_cuda_block kept = *block;
        ga_cuda_blocks_detach(&ga_cuda_live, &kept);
        ga_cuda_blocks_push(&held, &kept);
    }
    pthread_mutex_unlock(&lock);
    if (holds) {
        warn_held(block);
    }
    return holds;
}

bool ga_cuda_registered_has_held(CUdeviceptr start)
{
    pthread_mutex_lock(&lock);
    bool listed = ga_cuda_blocks_list_has(&held, start);
    pthread_mutex_unlock(&lock);
    return listed;
}

/* Move the blocks that no registration overlaps any more to a list. */
static ga_cuda_blocks_list release_held(void)
{
    ga_cuda_blocks_list freed = NULL;
    ga_cuda_blocks_list kept = NULL;
    ga_cuda_block block;
    pthread_mutex_lock(&lock);
    while (ga_cuda_blocks_pop(&held, &block)) {
        ga_cuda_blocks_push(is_registered(&block) ? &kept : &freed, &block);
    }
    held = kept;
    pthread_mutex_unlock(&lock);
    return freed;
}

/* The frees go through the list of deferred ones, which waits for the device and for captures. */
void ga_cuda_registration_end(ga_cuda_registration *taken)
{
    bool any = taken != NULL;
    while (taken) {
        ga_cuda_registration *one = taken;
        taken = one->next;
        ga_libc.free(one);
    }
    ga_cuda_blocks_list freed = any ? release_held() : NULL;
    ga_cuda_block block;
    bool frees = freed != NULL;
    while (ga_cuda_blocks_pop(&freed, &block)) {
        ga_cuda_defer_free(&block);
    }
    if (frees) {
        ga_cuda_served_free_deferred();
    }
}

void ga_cuda_registered_lock(void)
{
    pthread_mutex_lock(&lock);
}

void ga_cuda_registered_unlock(void)
{
    pthread_mutex_unlock(&lock);
}
