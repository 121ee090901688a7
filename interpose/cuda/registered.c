/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  under one lock: the list of registrations, and the list of blocks that were freed
 *            while registered. The numbers of registrations, and of those in progress, are also
 *            read without the lock
 * INVARIANT  a registration overlaps each block of the second list. One that is taken is still in
 *            the first list, and belongs to the thread that has taken it, or is making it
 * ORDER      the lock is taken before that of the set of blocks. A program orders the free of a
 *            block and its registration, so the numbers need no order of their own
 * PROGRESS   a thread waits for the lock, whose holder walks both lists
 */
#include "registered.h"

#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/log.h"
#include "buffers.h"
#include "captures.h"
#include "next.h"
#include "served.h"

typedef CUresult attribute_fn(void *value, CUpointer_attribute attribute, CUdeviceptr pointer);

struct ga_cuda_registration {
    const void *owner, *handle;
    CUdeviceptr start, end;
    int device; /* -1: unknown */
    uint64_t number;
    uint64_t since;  /* the number of its last operation that the library carries out later */
    void **awaited;  /* where the library will store the handle; NULL: it has, or is in a group */
    bool ends;       /* once the owner has no operation in progress, */
    bool is_settled; /* as was then the case */
    bool is_in_progress; /* as counted */
    bool is_taken;
    bool is_over; /* its device was reset, while it was taken */
    ga_cuda_registration *next, *next_taken;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ga_cuda_registration *registrations;
static ga_cuda_blocks_list held;
static uint64_t last_number;
static unsigned count;
static unsigned in_progress; /* registrations that begin or end later than their calls */

/* ---- registrations ----------------------------------------------------------------------- */

static int device_of(CUdeviceptr address)
{
    attribute_fn *next = GA_CUDA_NEXT(attribute_fn, cuPointerGetAttribute);
    int device = -1;
    bool is_known =
        next && next(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == CUDA_SUCCESS;
    return is_known ? device : -1;
}

/* With the lock held. */
static void link_in(ga_cuda_registration *one)
{
    one->next = registrations;
    registrations = one;
    __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED); /* relaxed: see ORDER */
}

/* With the lock held, after a change of one in the list. */
static void set_in_progress(ga_cuda_registration *one, bool is)
{
    if (one->is_in_progress != is) {
        one->is_in_progress = is;
        __atomic_fetch_add(&in_progress, is ? 1 : -1, __ATOMIC_RELAXED); /* relaxed: see ORDER */
    }
}

static void count_in_progress(ga_cuda_registration *one)
{
    set_in_progress(one, one->awaited || one->ends);
}

static bool any_is_in_progress(void)
{
    /* relaxed: see ORDER */
    return __builtin_expect(__atomic_load_n(&in_progress, __ATOMIC_RELAXED) != 0, 0);
}

/* With the lock held. */
static ga_cuda_registration *link_out(ga_cuda_registration **at)
{
    ga_cuda_registration *one = *at;
    *at = one->next;
    one->next = NULL;
    set_in_progress(one, false);
    __atomic_fetch_sub(&count, 1, __ATOMIC_RELAXED); /* relaxed: see ORDER */
    return one;
}

ga_cuda_registration *ga_cuda_registration_new(const void *owner, const void *start, size_t size)
{
    ga_cuda_registration *made = ga_libc.malloc(sizeof *made);
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)start;
    if (!made) {
        return NULL;
    }
    *made = (ga_cuda_registration){
        .owner = owner, .start = at, .end = at + size, .device = device_of(at), .is_taken = true};
    pthread_mutex_lock(&lock);
    made->number = ++last_number;
    link_in(made);
    pthread_mutex_unlock(&lock);
    return made;
}

uint64_t ga_cuda_registration_made(ga_cuda_registration *made, const void *handle)
{
    pthread_mutex_lock(&lock);
    uint64_t number = made->number;
    made->handle = handle;
    made->is_taken = false;
    if (made->is_over) {
        ga_libc.free(made);
    }
    pthread_mutex_unlock(&lock);
    return number;
}

/* With the lock held. NULL: it is over, or taken. */
static ga_cuda_registration *find_number(uint64_t number)
{
    ga_cuda_registration *at = registrations;
    while (at && (at->number != number || at->is_taken)) {
        at = at->next;
    }
    return at;
}

void ga_cuda_registration_name(uint64_t number, const void *handle)
{
    pthread_mutex_lock(&lock);
    ga_cuda_registration *found = find_number(number);
    if (found) {
        found->handle = handle;
    }
    pthread_mutex_unlock(&lock);
}

void ga_cuda_registration_await(uint64_t number, void **handle)
{
    pthread_mutex_lock(&lock);
    ga_cuda_registration *found = find_number(number);
    if (found) {
        found->awaited = handle;
        found->since = ++last_number;
        count_in_progress(found);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- taking ------------------------------------------------------------------------------ */

/* With the lock held: add it to a list of taken ones. */
static void take(ga_cuda_registration *one, ga_cuda_registration **taken)
{
    one->is_taken = true;
    one->next_taken = *taken;
    *taken = one;
}

static uint64_t bytes_of(const ga_cuda_registration *one)
{
    return one->end - one->start;
}

ga_cuda_registration *ga_cuda_registration_take(const void *owner, const void *handle)
{
    ga_cuda_registration *found = NULL;
    ga_cuda_registration *taken = NULL;
    pthread_mutex_lock(&lock);
    for (ga_cuda_registration *at = registrations; handle && at; at = at->next) {
        bool matches = at->owner == owner && at->handle == handle && !at->is_taken && !at->ends;
        found = matches && (!found || bytes_of(at) < bytes_of(found)) ? at : found;
    }
    if (found) {
        take(found, &taken);
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

ga_cuda_registration *ga_cuda_registration_take_number(uint64_t number)
{
    ga_cuda_registration *taken = NULL;
    pthread_mutex_lock(&lock);
    ga_cuda_registration *found = find_number(number);
    if (found) {
        take(found, &taken);
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

ga_cuda_registration *ga_cuda_registration_take_all(const void *owner)
{
    ga_cuda_registration *taken = NULL;
    pthread_mutex_lock(&lock);
    for (ga_cuda_registration *at = registrations; at; at = at->next) {
        if (at->owner == owner && !at->is_taken) {
            take(at, &taken);
        }
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

/* With the lock held. The one that the library has not made is to end. */
static void settle(ga_cuda_registration *one)
{
    if (one->awaited) { /* relaxed: an address, which the library may be storing again */
        one->handle = __atomic_load_n(one->awaited, __ATOMIC_RELAXED);
        one->awaited = NULL;
        one->ends = one->ends || !one->handle;
    }
    one->is_settled = true;
    count_in_progress(one);
}

uint64_t ga_cuda_registration_begun(void)
{
    if (!any_is_in_progress()) {
        return 0;
    }
    pthread_mutex_lock(&lock);
    uint64_t number = last_number;
    pthread_mutex_unlock(&lock);
    return number;
}

void ga_cuda_registration_settle(const void *owner, uint64_t begun)
{
    if (__builtin_expect(!begun, 1)) {
        return;
    }
    pthread_mutex_lock(&lock);
    for (ga_cuda_registration *at = registrations; at; at = at->next) {
        if (at->owner == owner && at->since <= begun) {
            settle(at);
        }
    }
    pthread_mutex_unlock(&lock);
}

ga_cuda_registration *ga_cuda_registration_take_ended(const void *owner)
{
    ga_cuda_registration *taken = NULL;
    if (!any_is_in_progress()) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    for (ga_cuda_registration *at = registrations; at; at = at->next) {
        if (at->owner == owner && !at->is_taken && at->ends && at->is_settled) {
            take(at, &taken);
        }
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

ga_cuda_registration *ga_cuda_registration_join(ga_cuda_registration *taken,
                                                ga_cuda_registration *more)
{
    ga_cuda_registration **end = &taken;
    while (*end) {
        end = &(*end)->next_taken;
    }
    *end = more;
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

/* With the lock held. */
static bool is_in_use(CUdeviceptr address)
{
    ga_cuda_block found;
    return ga_cuda_blocks_find(&ga_cuda_live, address, &found) ||
           ga_cuda_blocks_find(&ga_cuda_buffers, address, &found) ||
           ga_cuda_blocks_list_holds(&held, address);
}

bool ga_cuda_registration_is_of_free_memory(const ga_cuda_registration *made)
{
    if (!ga_cuda_is_reserved(made->start) && !ga_cuda_buffers_reserve(made->start) &&
        !ga_cuda_is_heap_memory(made->start)) {
        return false;
    }
    pthread_mutex_lock(&lock); /* a block is in use until its last registration ends */
    bool is_free = !is_in_use(made->start) && !is_in_use(made->end - 1);
    pthread_mutex_unlock(&lock);
    return is_free;
}

bool ga_cuda_registered_has_held(CUdeviceptr start)
{
    pthread_mutex_lock(&lock);
    bool listed = ga_cuda_blocks_list_has(&held, start);
    pthread_mutex_unlock(&lock);
    return listed;
}

/* With the lock held: move the blocks that no registration overlaps any more to a list. */
static ga_cuda_blocks_list release_held(void)
{
    ga_cuda_blocks_list freed = NULL;
    ga_cuda_blocks_list kept = NULL;
    ga_cuda_block block;
    while (ga_cuda_blocks_pop(&held, &block)) {
        ga_cuda_blocks_push(is_registered(&block) ? &kept : &freed, &block);
    }
    held = kept;
    return freed;
}

/* With the lock held. */
static void remove_taken(ga_cuda_registration *one)
{
    ga_cuda_registration **at = &registrations;
    while (*at && *at != one) {
        at = &(*at)->next;
    }
    if (*at) { /* it is not over */
        link_out(at);
    }
    ga_libc.free(one);
}

/* The frees go through the list of deferred ones, which waits for the device and for captures. */
void ga_cuda_registration_end(ga_cuda_registration *taken)
{
    if (!taken) {
        return;
    }
    pthread_mutex_lock(&lock);
    while (taken) {
        ga_cuda_registration *one = taken;
        taken = one->next_taken;
        remove_taken(one);
    }
    ga_cuda_blocks_list freed = release_held();
    pthread_mutex_unlock(&lock);
    ga_cuda_block block;
    bool frees = freed != NULL;
    while (ga_cuda_blocks_pop(&freed, &block)) {
        ga_cuda_defer_free(&block);
    }
    if (frees) {
        ga_cuda_served_free_deferred();
    }
}

void ga_cuda_registration_restore(ga_cuda_registration *taken, bool ends)
{
    if (!taken) {
        return;
    }
    pthread_mutex_lock(&lock);
    while (taken) {
        ga_cuda_registration *one = taken;
        taken = one->next_taken;
        one->is_taken = false;
        one->ends = one->ends || ends;
        one->is_settled = one->is_settled && !ends;
        one->since = ends ? ++last_number : one->since;
        if (one->is_over) {
            ga_libc.free(one);
        } else {
            count_in_progress(one);
        }
    }
    pthread_mutex_unlock(&lock);
}

/* ---- resets, and fork ---------------------------------------------------------------------- */

/* With the lock held. */
static void forget_registrations(int device)
{
    for (ga_cuda_registration **at = &registrations; *at;) {
        if ((*at)->device != device) {
            at = &(*at)->next;
            continue;
        }
        ga_cuda_registration *one = link_out(at);
        one->is_over = true;
        if (!one->is_taken) {
            ga_libc.free(one);
        }
    }
}

ga_cuda_blocks_list ga_cuda_registered_reset(int device)
{
    ga_cuda_blocks_list gone = NULL;
    ga_cuda_blocks_list kept = NULL;
    ga_cuda_block block;
    pthread_mutex_lock(&lock);
    forget_registrations(device);
    while (ga_cuda_blocks_pop(&held, &block)) {
        ga_cuda_blocks_push(block.device == device ? &gone : &kept, &block);
    }
    held = kept;
    pthread_mutex_unlock(&lock);
    return gone;
}

void ga_cuda_registered_lock(void)
{
    pthread_mutex_lock(&lock);
}

void ga_cuda_registered_unlock(void)
{
    pthread_mutex_unlock(&lock);
}
