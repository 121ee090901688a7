/* SPDX-License-Identifier: MIT
 *
 * Joining and leaving a domain. state.h has the structures.
 *
 * join: ga_member_join_fast (state.h), else ga_member_join: find the thread's membership, else
 *       create_membership: reuse a member without a thread, else push a new one
 */
#include <gpualloc/backend.h>

#include "../platform/libc.h"
#include "../platform/thread.h"
#include "state.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

_Thread_local ga_member *ga_memberships;

const void *ga_member_self(void)
{
    return &ga_memberships;
}

/* ---- claiming and giving up a member ------------------------------------------------------- */

bool ga_member_claim(ga_member *member, ga_member_state from, ga_member_state to)
{
    uint32_t expected = from;
    /* relaxed: a cheap test first, because most members are in use. */
    if (__atomic_load_n(&member->state, __ATOMIC_RELAXED) != expected) {
        return false;
    }
    /* RJ3: acquire. Pairs with RJ1: the last user's accesses to the member's list happen before
     * ours. */
    if (!__atomic_compare_exchange_n(&member->state, &expected, to, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED)) {
        return false;
    }
    member->adopter = to == GA_MEMBER_ADOPTED ? ga_member_self() : NULL;
    return true;
}

static void set_state(ga_member *member, ga_member_state state)
{
#if GA_PLANTED(reclaim_leave_relaxed)
    __atomic_store_n(&member->state, state, __ATOMIC_RELAXED);
#else
    /* RJ1: release. Pairs with RJ2 (state.h) and RJ3. */
    __atomic_store_n(&member->state, state, __ATOMIC_RELEASE);
#endif
}

static void set_thread_id(ga_member *member, uint32_t id)
{
    /* RC7: seq_cst. Pairs with the load in fences.c. */
    __atomic_store_n(&member->thread_id, id, __ATOMIC_SEQ_CST);
}

void ga_member_give_up(ga_member *member)
{
    member->thread = NULL;
    member->adopter = NULL;
    set_thread_id(member, 0);
    set_state(member, member->count ? GA_MEMBER_ORPHANED : GA_MEMBER_IDLE);
}

/* ---- memory -------------------------------------------------------------------------------- */

static size_t round_up(size_t size)
{
    return (size + GA_RECLAIM_ALIGN - 1) / GA_RECLAIM_ALIGN * GA_RECLAIM_ALIGN;
}

/* The slots are allocated behind the member, in cache lines of their own. */
ga_member *ga_member_make(ga_domain *domain)
{
    size_t slots = round_up(domain->slots * sizeof(uintptr_t));
    ga_member *member = ga_libc.memalign(GA_RECLAIM_ALIGN, sizeof *member + slots);
    if (member) {
        memset(member, 0, sizeof *member + slots);
        member->hazards =
            (ga_hazards){.slots = (uintptr_t *)(member + 1),
                         .count = domain->slots,
                         .fence_mode = ga_domain_fence_mode(domain) == GA_HAZARD_ASYMMETRIC
                                           ? GA_HAZARD_ASYMMETRIC
                                           : GA_HAZARD_SEQ_CST};
        member->domain = domain;
        member->check_at = member->scan_at = domain->batch;
        member->check_at_bytes = member->scan_at_bytes = ga_domain_uncharged_bytes(domain);
        member->state = GA_MEMBER_JOINED;
    }
    return member;
}

void ga_member_free(ga_member *member)
{
    ga_libc.free(member->addresses);
    ga_libc.free(member->list);
    ga_libc.free(member);
}

/* ---- joining ------------------------------------------------------------------------------- */

static ga_member *claim_unowned(ga_domain *domain)
{
    for (ga_member *member = ga_member_head(domain); member; member = member->next) {
        if (ga_member_claim(member, GA_MEMBER_IDLE, GA_MEMBER_JOINED) ||
            ga_member_claim(member, GA_MEMBER_ORPHANED, GA_MEMBER_JOINED)) {
            return member;
        }
    }
    return NULL;
}

/* RH1, below. Pairs with RH2 (state.h). seq_cst, so that the heavy fence of a scan (RS1) is before
 * or after the push: a scan that does not find the member executed its fence before anything that
 * the member protects. */
enum {
    RH1_SUCCESS = GA_PLANTED(reclaim_join_relaxed) ? __ATOMIC_RELAXED : __ATOMIC_SEQ_CST,
    RH1_FAILURE = GA_PLANTED(reclaim_join_relaxed) ? __ATOMIC_RELAXED : __ATOMIC_ACQUIRE
};

static void push(ga_domain *domain, ga_member *member)
{
    ga_member *head = ga_member_head(domain);
    do {
        member->next = head;
        member->number = head ? head->number + 1 : 1;
        /* RH1: release; acquire where another member was first. Pairs with RH2 (state.h): the
         * member is initialised. */
    } while (
        !__atomic_compare_exchange_n(&domain->head, &head, member, true, RH1_SUCCESS, RH1_FAILURE));
}

/* The link to the calling thread's membership in that domain, or to the NULL at the list's end.
 * Drops members of closed domains on the way, because a new domain may have the same address. */
static ga_member **find_membership(const ga_domain *domain)
{
    ga_member **link = &ga_memberships;
    while (*link) {
        ga_member *member = *link;
        if (ga_member_load_state(member) == GA_MEMBER_CLOSED) {
            *link = member->sibling;
            set_state(member, GA_MEMBER_DONE);
        } else if (member->domain == domain) {
            break;
        } else {
            link = &member->sibling;
        }
    }
    return link;
}

static void move_to_front(ga_member **link)
{
    ga_member *member = *link;
    *link = member->sibling;
    member->sibling = ga_memberships;
    ga_memberships = member;
}

static void leave_all(void);

static void hook_thread_exit(void)
{
    ga_thread_on_exit(leave_all);
}

static ga_member *create_membership(ga_domain *domain)
{
    ga_member *member = claim_unowned(domain);
    if (!member) {
        member = ga_member_make(domain);
        if (!member) {
            return NULL;
        }
        push(domain, member);
    }
    member->thread = ga_member_self();
    set_thread_id(member, ga_thread_id());
    ga_fences_join(member);
    member->sibling = ga_memberships;
    ga_memberships = member;
    return member;
}

ga_status ga_member_join(ga_domain *domain, ga_member **out, bool *leave)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    ga_member **link = find_membership(domain);
    *leave = false;
    if (*link) {
        move_to_front(link);
        *out = ga_memberships;
        return GA_OK;
    }
    pthread_once(&once, hook_thread_exit);
    *leave = !ga_thread_enroll();
    link = find_membership(domain); /* again: enrolling may have allocated, and so have joined */
    *out = *link ? *link : create_membership(domain);
    return *out ? GA_OK
                : ga_fail(GA_ERR_MEMORY, "domain: no memory for a member with %u slots",
                          domain->slots);
}

ga_status ga_domain_join(ga_domain *domain, ga_hazards **out)
{
    if (!out) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "domain: nowhere to put the membership; expected a pointer");
    }
    *out = NULL;
    if (!domain) {
        return ga_fail(GA_ERR_ARGUMENT, "domain: NULL to join; expected ga_domain_open()'s");
    }
    if (ga_member_join_fast(domain, out)) {
        return GA_OK;
    }
    ga_member *member;
    bool leave;
    ga_status status = ga_member_join(domain, &member, &leave);
    if (status == GA_OK) {
        *out = &member->hazards;
    }
    return status;
}

/* ---- leaving ------------------------------------------------------------------------------- */

/* Complete a list whose frees were cut off at any step: its thread is not in the forked child, or
 * ended in a reclaim function. See the borders in state.h. */
static void repair_list(ga_member *member)
{
    uint32_t kept = (uint32_t)member->borders;
    uint32_t first = (uint32_t)(member->borders >> 32);
    if (first != kept) {
        while (first < member->count) {
            member->list[kept++] = member->list[first++];
        }
        member->count = kept;
    }
    member->borders = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < member->count; i++) {
        bytes += member->list[i].size;
    }
    ga_member_set_bytes(member, bytes);
    member->freeing = false;
}

/* The thread ends inside a reclaim function. */
static void abandon_frees(ga_member *member)
{
    repair_list(member);
    if (member->adopted) {
        repair_list(member->adopted);
        ga_member_give_up(member->adopted);
        member->adopted = NULL;
    }
}

/* End the thread's first membership. If the domain is being closed in another thread, wait for
 * that. */
static void leave_first(ga_member *member)
{
    while (!ga_member_claim(member, GA_MEMBER_JOINED, GA_MEMBER_ADOPTED)) {
        if (ga_member_load_state(member) == GA_MEMBER_CLOSED) {
            ga_memberships = member->sibling;
            set_state(member, GA_MEMBER_DONE);
            return;
        }
        sched_yield();
    }
    if (!GA_PLANTED(reclaim_leaver_slots_not_cleared)) {
        ga_hazard_clear_all(&member->hazards);
    }
    if (member->freeing) {
        abandon_frees(member);
    }
    ga_scan_all(member);
    ga_member **link = &ga_memberships; /* reclaim functions may have joined other domains */
    while (*link != member) {
        link = &(*link)->sibling;
    }
    *link = member->sibling;
    ga_member_give_up(member);
}

static void leave_all(void)
{
    while (ga_memberships) {
        leave_first(ga_memberships);
    }
}

void ga_domain_leave(ga_domain *domain)
{
    ga_member **link = find_membership(domain);
    if (*link) {
        move_to_front(link);
        leave_first(ga_memberships);
    }
}

ga_member *ga_member_join_closing(ga_member *closer)
{
    ga_member **link = find_membership(closer->domain);
    if (!*link) {
        closer->sibling = ga_memberships;
        ga_memberships = closer;
        link = &ga_memberships;
    }
    return *link;
}

void ga_member_leave_closed(ga_member *member)
{
    ga_member **link = find_membership(member->domain);
    if (*link) {
        *link = member->sibling;
    }
    ga_member_free(member);
}

/* ---- fork ---------------------------------------------------------------------------------- */

void ga_member_orphan(ga_member *member)
{
    ga_hazard_clear_all(&member->hazards);
    repair_list(member);
    member->adopted = NULL;
    ga_member_give_up(member);
}
