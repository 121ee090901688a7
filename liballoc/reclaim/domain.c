/* SPDX-License-Identifier: MIT
 *
 * Opening, closing, draining and counting domains, and fork(). state.h has the structures.
 */
#include <gpualloc/backend.h>

#include "../platform/forks.h"
#include "../platform/libc.h"
#include "../platform/membarrier.h"
#include "../platform/thread.h"
#include "state.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SLOTS = 8,
    BATCH = 4096
};

#define BATCH_BYTES (UINT64_C(32) << 20)

static ga_forked_lock lock = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static ga_domain *newest; /* guarded by `lock` */
/* Guarded by `lock`: members that are CLOSED or DONE, linked by `next`. */
static ga_member *closed;

static bool needs_own_fences(void)
{
#if defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return true;
#endif
#endif
    return !ga_membarrier.enroll();
}

/* ---- fork ---------------------------------------------------------------------------------- */

static void lock_domains(void)
{
    ga_forked_lock_prepare(&lock);
}

static void unlock_domains(void)
{
    ga_forked_lock_parent(&lock);
}

static bool belongs_to_forker(const ga_member *member)
{
    uint32_t state = ga_member_load_state(member);
    return (state == GA_MEMBER_JOINED && member->thread == ga_member_self()) ||
           (state == GA_MEMBER_ADOPTED && member->adopter == ga_member_self());
}

/* In a child of fork() only the forking thread exists. Its slots are visible to itself without a
 * fence. The sum of charges is rebuilt from the members', because a lost thread may have been in
 * the middle of a charge. */
static void reset_domain(ga_domain *domain, bool own_fences)
{
    domain->fence_mode = domain->fence_mode != GA_HAZARD_ASYMMETRIC || own_fences
                             ? GA_HAZARD_SEQ_CST
                             : GA_HAZARD_ASYMMETRIC;
    domain->charged = 0;
    for (ga_member *member = ga_member_head(domain); member; member = member->next) {
        member->hazards.fence_mode = domain->fence_mode;
        domain->charged += member->charged;
        if (!belongs_to_forker(member)) {
            ga_member_orphan(member);
        }
    }
}

/* A child that needs no membarriers does not register for them, because a sandbox may kill a
 * process that does. */
static bool any_asymmetric(void)
{
    bool any = false;
    for (const ga_domain *domain = newest; domain; domain = domain->older) {
        any |= domain->fence_mode == GA_HAZARD_ASYMMETRIC;
    }
    return any;
}

/* The forking thread has another kernel id in the child. */
static void update_thread_ids(ga_member *member)
{
    for (; member; member = member->next) {
        if (member->thread == ga_member_self()) {
            member->thread_id = (uint32_t)syscall(SYS_gettid);
        }
    }
}

static void reset_in_child(void)
{
    bool own_fences = any_asymmetric() && needs_own_fences();
    for (ga_domain *domain = newest; domain; domain = domain->older) {
        reset_domain(domain, own_fences);
        update_thread_ids(ga_member_head(domain));
    }
    update_thread_ids(closed);
    ga_forked_lock_child(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, lock_domains, unlock_domains, reset_in_child);
}

/* Free members that no thread will look at again. */
static void free_closed(void)
{
    ga_member **link = &closed;
    while (*link) {
        ga_member *member = *link;
        bool unreachable =
            ga_member_load_state(member) == GA_MEMBER_DONE ||
            (member->thread != ga_member_self() && !ga_thread_lives(member->thread_id));
        if (unreachable) {
            *link = member->next;
            ga_member_free(member);
        } else {
            link = &member->next;
        }
    }
}

static void enlist(ga_domain *domain)
{
    watch_forks();
    ga_forked_lock_use(&lock);
    pthread_mutex_lock(&lock.mutex);
    domain->older = newest;
    if (newest) {
        newest->newer = domain;
    }
    newest = domain;
    free_closed();
    pthread_mutex_unlock(&lock.mutex);
}

static void delist(ga_domain *domain)
{
    pthread_mutex_lock(&lock.mutex);
    if (domain->older) {
        domain->older->newer = domain->newer;
    }
    *(domain->newer ? &domain->newer->older : &newest) = domain->older;
    pthread_mutex_unlock(&lock.mutex);
}

/* ---- open ---------------------------------------------------------------------------------- */

static ga_status check_options(const ga_domain_options *options)
{
    if (options->options_size != sizeof *options) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "domain: options of %u bytes; expected options_size to be %zu",
                       options->options_size, sizeof *options);
    }
    if (options->flags & ~(uint32_t)GA_DOMAIN_SEQ_CST) {
        return ga_fail(GA_ERR_ARGUMENT, "domain: flags 0x%x; expected GA_DOMAIN_SEQ_CST or 0",
                       options->flags);
    }
    if (options->slots > GA_DOMAIN_SLOTS_MAX) {
        return ga_fail(GA_ERR_ARGUMENT, "domain: slots %u; expected 0 to %d", options->slots,
                       GA_DOMAIN_SLOTS_MAX);
    }
    if (options->batch > GA_DOMAIN_BATCH_MAX) {
        return ga_fail(GA_ERR_ARGUMENT, "domain: batch %u; expected 0 to %d", options->batch,
                       GA_DOMAIN_BATCH_MAX);
    }
    return GA_OK;
}

ga_status ga_domain_open(ga_domain **out, const ga_domain_options *options)
{
    static const ga_domain_options fallback = {.options_size = sizeof fallback};
    const ga_domain_options *o = options ? options : &fallback;
    if (!out) {
        return ga_fail(GA_ERR_ARGUMENT, "domain: nowhere to put the domain; expected a pointer");
    }
    *out = NULL;
    ga_status status = check_options(o);
    if (status != GA_OK) {
        return status;
    }
    ga_domain *domain = ga_libc.memalign(GA_RECLAIM_ALIGN, sizeof *domain);
    if (!domain) {
        return ga_fail(GA_ERR_MEMORY, "domain: no memory for %zu bytes of its own", sizeof *domain);
    }
    memset(domain, 0, sizeof *domain);
    domain->slots = o->slots ? o->slots : SLOTS;
    domain->batch = o->batch ? o->batch : BATCH;
    domain->batch_bytes = o->batch_bytes ? o->batch_bytes : BATCH_BYTES;
    bool own_fences = (o->flags & GA_DOMAIN_SEQ_CST) || needs_own_fences();
    domain->fence_mode = own_fences ? GA_HAZARD_SEQ_CST : GA_HAZARD_ASYMMETRIC;
    domain->closer = ga_member_make(domain);
    if (!domain->closer) {
        ga_libc.free(domain);
        return ga_fail(GA_ERR_MEMORY, "domain: no memory for a member with %u slots",
                       o->slots ? o->slots : SLOTS);
    }
    enlist(domain);
    *out = domain;
    return GA_OK;
}

/* ---- close --------------------------------------------------------------------------------- */

static uint64_t count_set(const ga_domain *domain)
{
    uint64_t set = 0;
    for (const ga_member *member = ga_member_head(domain); member; member = member->next) {
        for (uint32_t slot = 0; slot < member->hazards.count; slot++) {
            /* RS3: acquire. Pairs with RP4 (gpualloc/reclaim.h), as RS2 does (scan.c). */
            set += __atomic_load_n(&member->hazards.slots[slot], __ATOMIC_ACQUIRE) != 0;
        }
    }
    return set;
}

/* On return no other thread touches the member. */
static void seize(ga_member *member)
{
    while (!ga_member_claim(member, GA_MEMBER_JOINED, GA_MEMBER_ADOPTED) &&
           !ga_member_claim(member, GA_MEMBER_IDLE, GA_MEMBER_ADOPTED) &&
           !ga_member_claim(member, GA_MEMBER_ORPHANED, GA_MEMBER_ADOPTED)) {
        sched_yield(); /* the member's thread is leaving */
    }
}

static void seize_others(const ga_domain *domain, const ga_member *me)
{
    for (ga_member *member = ga_member_head(domain); member; member = member->next) {
        if (member != me) {
            seize(member);
        }
    }
}

/* Reclaim functions may retire more objects, which go to `me`. */
static void empty_all(const ga_domain *domain, ga_member *me)
{
    for (ga_member *member = ga_member_head(domain); member; member = member->next) {
        if (member != me) {
            ga_scan_free_all(me, member);
        }
    }
    ga_scan_free_all(me, me);
}

static void dispose(const ga_domain *domain, const ga_member *me)
{
    ga_member *next;
    pthread_mutex_lock(&lock.mutex);
    for (ga_member *member = ga_member_head(domain); member; member = next) {
        next = member->next;
        if (member == me) {
            continue;
        }
        if (member->thread) {
            member->next = closed;
            closed = member;
            /* RJ4: release. Pairs with RJ2 (state.h): the closing thread does nothing more with the
             * member. */
            __atomic_store_n(&member->state, GA_MEMBER_CLOSED, __ATOMIC_RELEASE);
        } else {
            ga_member_free(member);
        }
    }
    free_closed();
    pthread_mutex_unlock(&lock.mutex);
}

uint64_t ga_domain_force_close(ga_domain *domain)
{
    uint64_t set = count_set(domain);
    delist(domain);
    ga_member *me = ga_member_join_closing(domain->closer);
    seize_others(domain, me);
    empty_all(domain, me);
    dispose(domain, me);
    if (me != domain->closer) {
        ga_member_free(domain->closer);
    }
    ga_member_leave_closed(me);
    ga_libc.free(domain);
    return set;
}

ga_status ga_domain_close(ga_domain *domain)
{
    uint64_t set = domain ? count_set(domain) : 0;
    if (set) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "domain: to be closed with %llu slots set; expected all to be clear",
                       (unsigned long long)set);
    }
    if (domain) {
        ga_domain_force_close(domain);
    }
    return GA_OK;
}

/* ---- draining and counting ----------------------------------------------------------------- */

static bool has_orphan(const ga_domain *domain)
{
    for (ga_member *member = ga_member_head(domain); member; member = member->next) {
        if (ga_member_load_state(member) == GA_MEMBER_ORPHANED) {
            return true;
        }
    }
    return false;
}

/* Each scan adopts one orphan, round robin, so that as many scans as there are members reach
 * all. */
static ga_status drain_with(ga_domain *domain, ga_member *me)
{
    uint32_t rounds = ga_member_head(domain)->number;
    do {
        if (!ga_scan_all(me)) {
            return ga_fail(GA_ERR_UNSUPPORTED,
                           "domain: the kernel refused a membarrier that it had granted before; "
                           "expected all threads to have changed to fences of their own since");
        }
    } while (has_orphan(domain) && --rounds);
    return GA_OK;
}

ga_status ga_domain_drain(ga_domain *domain)
{
    ga_member *me;
    bool leave;
    if (!domain) {
        return ga_fail(GA_ERR_ARGUMENT, "domain: NULL to drain; expected ga_domain_open()'s");
    }
    ga_status status = ga_member_join(domain, &me, &leave);
    if (status != GA_OK) {
        return status;
    }
    status = me->freeing ? ga_fail(GA_ERR_ARGUMENT, "domain: to be drained in a reclaim function; "
                                                    "expected to be called outside of it")
                         : drain_with(domain, me);
    if (leave) {
        ga_domain_leave(domain);
    }
    return status;
}

/* The objects on the member's list, which another thread may scan meanwhile. An object moves to the
 * front of a list only, and the count is read first. So one that stays on the list counts, and no
 * more count than the list had. */
static uint64_t count_listed(const ga_member *member)
{
    /* RF5: acquire. Pairs with RF1: the borders are not older than the count. */
    uint32_t count = __atomic_load_n(&member->count, __ATOMIC_ACQUIRE);
    uint64_t borders = __atomic_load_n(&member->borders, __ATOMIC_RELAXED); /* relaxed: after RF5 */
    uint32_t kept = (uint32_t)borders;
    uint32_t first = (uint32_t)(borders >> 32);
    return kept + (count > first ? count - first : 0);
}

static void add_counts(const ga_member *member, ga_domain_stats *out)
{
    const ga_member_counts *counts = &member->counts;
    /* relaxed: each count is right for some moment. */
    out->retired += __atomic_load_n(&counts->retired, __ATOMIC_RELAXED);
    out->scans += __atomic_load_n(&counts->scans, __ATOMIC_RELAXED);
    out->shared += __atomic_load_n(&counts->shared, __ATOMIC_RELAXED);
    out->refused += __atomic_load_n(&counts->refused, __ATOMIC_RELAXED);
    out->inherited += __atomic_load_n(&counts->inherited, __ATOMIC_RELAXED);
    out->not_freed += __atomic_load_n(&counts->not_freed, __ATOMIC_RELAXED);
    out->pending += count_listed(member);
    out->pending_bytes += __atomic_load_n(&member->bytes, __ATOMIC_RELAXED);
    uint32_t state = ga_member_load_state(member);
    out->members += state == GA_MEMBER_JOINED;
    out->memberships++;
}

void ga_domain_get_stats(const ga_domain *domain, ga_domain_stats *out)
{
    if (!out) {
        return;
    }
    *out = (ga_domain_stats){0};
    if (!domain) {
        return;
    }
    for (ga_member *member = ga_member_head(domain); member; member = member->next) {
        add_counts(member, out);
    }
    out->slots = domain->slots;
    /* Numbers of retired and of freed objects would differ by anything if this thread did not run
     * for a while between reading them. */
    out->retired = out->retired > out->pending ? out->retired : out->pending;
    out->freed = out->retired - out->pending;
    out->seq_cst = ga_domain_fence_mode(domain) != GA_HAZARD_ASYMMETRIC;
    if (ga_domain_fence_mode(domain) != GA_HAZARD_UNCONFIRMED) {
        uint64_t free = out->memberships * ga_domain_uncharged_bytes(domain);
        out->bound = out->memberships * (domain->batch + out->memberships * domain->slots);
        out->bound_bytes =
            domain->batch_bytes > UINT64_MAX - free ? UINT64_MAX : domain->batch_bytes + free;
    }
}
