/* SPDX-License-Identifier: MIT
 *
 * A hazard-pointer domain and its members: the structures that the files of this room share.
 * scan.c says when an object is freed; docs/internals/reclaim.md has the proof.
 *
 * STRUCTURE  domain -> member -> member -> ...    a list that only grows, at its head
 *                      | slots: written by the member's thread, read by every scan
 *                      | list: objects that were retired through the member (the retire list)
 *            thread -> member -> member -> ...    its memberships, one for each domain
 *
 *            A member's state says which thread may touch its retire list:
 *
 *            IDLE      none: the member has no thread, and its list is empty
 *            ORPHANED  none: its thread has left, and its list is not empty
 *            JOINED    the member's thread
 *            ADOPTED   `adopter`: the member's thread while it leaves, a scan that frees an
 *                      orphan's objects, or ga_domain_close()
 *            CLOSED    the member's thread, until it notices the state: the domain is gone
 *            DONE      none
 *
 *            Members that are CLOSED or DONE are on a list of domain.c. They are freed once they
 *            are DONE or their thread has ended, because a thread that joined in its last
 *            destructors never leaves.
 *
 * INVARIANT  An object is on one list, once, from its retirement until just before it is freed.
 *            While a scan frees, kept <= first <= count, and the list consists of
 *            list[0..kept) and list[first..count). One store moves both borders, so that a child
 *            of fork() finds a consistent list at any moment.
 *            When no scan frees, a list holds at most `scan_at` objects: those that its last scan
 *            left because a slot held them (at most all slots), plus one batch.
 *
 *            A ticket says: the objects that were retired before it were unlinked before heavy
 *            fence number `fences_begun` + 1 began. The list keeps its objects in the order of
 *            retirement, so these are all but the last (retired now - retired then) objects,
 *            whatever was freed since.
 *
 * ORDER      RP1 to RP5 belong to readers (gpualloc/reclaim.h), RS1 and RS2 to the scan, and RM1 to
 *            RM4 to heavy fences that several scans share (scan.c).
 *            RC1 to RC7 belong to a domain that changes its fences while it runs (fences.c).
 *            RJ (the state): the writes of a member's last user happen before its next user's.
 *            RH (the head): a member is initialised before other threads see it.
 *            RF (the list's borders): an object is in its place before it counts as being there,
 *            for a child of fork(). Within a process one thread at a time uses a list; others read
 *            its length for statistics.
 *
 * PROGRESS   Protecting is lock-free; it is wait-free while the location does not change. Retiring
 *            and scanning take a number of steps that depends on members, slots and the batch
 *            alone, besides the time in reclaim functions and membarrier(2). Joining and leaving
 *            are lock-free. Opening, closing and fork() share a lock.
 */
#ifndef GPUALLOC_RECLAIM_STATE_H
#define GPUALLOC_RECLAIM_STATE_H

#include <gpualloc/reclaim.h>

enum {
    GA_RECLAIM_ALIGN = 128,   /* bytes: two cache lines, because processors fetch lines in pairs */
    GA_RECLAIM_TICKETS = 8,   /* for each batch */
    GA_RECLAIM_SHARE_DIV = 8, /* a member charges at most 1/8 of the domain's bytes */
    GA_RECLAIM_UNCHARGED = 1 << 16 /* bytes that a member may hold without a charge */
};

typedef enum ga_member_state {
    GA_MEMBER_IDLE = 0,
    GA_MEMBER_ORPHANED,
    GA_MEMBER_JOINED,
    GA_MEMBER_ADOPTED,
    GA_MEMBER_CLOSED,
    GA_MEMBER_DONE
} ga_member_state;

typedef struct ga_retired {
    void *object;
    ga_reclaim *reclaim; /* NULL: `context` is the heap that the object is freed to */
    void *context;
    size_t size;
} ga_retired;

/* relaxed: one thread at a time writes each count, and others read it for statistics. */
typedef struct ga_member_counts {
    uint64_t retired, scans, shared, refused, inherited, not_freed;
} ga_member_counts;

/* How many objects the member had retired, and how many heavy fences of the domain had begun. */
typedef struct ga_ticket {
    uint64_t retired, fences_begun;
} ga_ticket;

typedef struct ga_member {
    ga_hazards hazards;        /* first: callers hold a pointer to it */
    ga_domain *domain;         /* set once */
    struct ga_member *next;    /* of the domain; set once */
    uint32_t number;           /* of members behind it, plus itself; set once */
    struct ga_member *sibling; /* of the same thread; used by it alone */
    const void *thread;        /* the member's while JOINED or leaving, or NULL. For fork() */
    uint32_t thread_id;        /* RC7: the kernel's id of that thread; 0: none */
    const void *adopter;       /* the thread that has it while ADOPTED, or NULL. For fork() */
    struct ga_member *adopted; /* the orphan that a scan through this member has, or NULL */

    /* For the thread that may touch the list. */
    _Alignas(GA_RECLAIM_ALIGN) ga_retired *list;
    uint32_t capacity, count;
    uint32_t check_at;       /* the count at which the list is checked: ticket or scan */
    uint32_t scan_at;        /* the count at which the list is scanned */
    bool freeing;            /* a scan through this member is freeing */
    uint64_t borders;        /* first << 32 | kept while a scan frees; else 0 */
    uint64_t bytes;          /* of all objects on the list. relaxed: read for statistics */
    uint64_t charged;        /* of the domain's bytes; part of `scan_at_bytes` */
    uint64_t check_at_bytes; /* the bytes at which the list is checked */
    uint64_t scan_at_bytes;  /* the bytes at which the list is scanned */
    uintptr_t *addresses;    /* that a scan found in slots */
    uint32_t addresses_capacity;
    uint32_t tickets_taken; /* ever; the last GA_RECLAIM_TICKETS are kept */
    ga_ticket tickets[GA_RECLAIM_TICKETS];
    uint64_t own_fence; /* the number of its last heavy fence */
    ga_member_counts counts;

    _Alignas(GA_RECLAIM_ALIGN) uint32_t state; /* RJ */
} ga_member;

struct ga_domain {
    uint32_t slots, batch;
    uint64_t batch_bytes;
    uint32_t fence_mode;   /* RC1, RC4, RC5: ga_hazard_fence_mode */
    uint64_t charged;      /* relaxed: a sum, at most `batch_bytes`, that publishes nothing */
    ga_member *closer;     /* so that ga_domain_close() needs no memory */
    uint32_t last_adopted; /* relaxed: the number of the member that was adopted last */
    uint32_t order;        /* under the thread sanitizer: see RS1 */
    struct ga_domain *older, *newer; /* guarded by the lock of domain.c */

    _Alignas(GA_RECLAIM_ALIGN) ga_member *head; /* RH */

    /* Heavy fences, by number: how many have begun, and the number of one that ended, as a rule the
     * last. */
    _Alignas(GA_RECLAIM_ALIGN) uint64_t fences_begun; /* RM1, RM2 */
    uint64_t fence_ended;                             /* RM3, RM4 */
};

static inline ga_member *ga_member_head(const ga_domain *domain)
{
    /* RH2: acquire. Pairs with RH1 (member.c). */
    return __atomic_load_n(&domain->head, __ATOMIC_ACQUIRE);
}

static inline uint32_t ga_member_load_state(const ga_member *member)
{
    /* RJ2: acquire. Pairs with RJ1 (member.c). */
    return __atomic_load_n(&member->state, __ATOMIC_ACQUIRE);
}

/* Bytes that a member may hold without a charge. */
static inline uint64_t ga_domain_uncharged_bytes(const ga_domain *domain)
{
    return domain->batch_bytes < GA_RECLAIM_UNCHARGED ? domain->batch_bytes : GA_RECLAIM_UNCHARGED;
}

static inline uint32_t ga_domain_fence_mode(const ga_domain *domain)
{
    /* RC5: seq_cst. Pairs with RC1 and RC4 (fences.c). */
    return __atomic_load_n(&domain->fence_mode, __ATOMIC_SEQ_CST);
}

static inline void ga_member_set_bytes(ga_member *member, uint64_t bytes)
{
    /* relaxed: one thread at a time writes it, and others read it for statistics. */
    __atomic_store_n(&member->bytes, bytes, __ATOMIC_RELAXED);
}

static inline void ga_member_count(uint64_t *count, uint64_t more)
{
    /* relaxed: see ga_member_counts. */
    __atomic_store_n(count, *count + more, __ATOMIC_RELAXED);
}

/* ---- domain.c ------------------------------------------------------------------------------ */

/* Close the domain even if slots are set. Returns the number of slots that were set. */
uint64_t ga_domain_force_close(ga_domain *domain);

/* ---- member.c ------------------------------------------------------------------------------ */

/* The calling thread's memberships, the one that was used last first. */
extern _Thread_local ga_member *ga_memberships;

/* Fast path of ga_domain_join(): a few instructions and no call, where the thread's last join was
 * of this domain. False: the caller takes the slow path, ga_domain_join(). */
static inline bool ga_member_join_fast(const ga_domain *domain, ga_hazards **out)
{
    ga_member *first = ga_memberships;
    if (!first || first->domain != domain || ga_member_load_state(first) == GA_MEMBER_CLOSED) {
        return false;
    }
    *out = &first->hazards;
    return true;
}

/* An address that identifies the calling thread; it is valid in a forked child too. */
const void *ga_member_self(void);

/* Take over a member that is in state `from`. True for one of several callers. */
bool ga_member_claim(ga_member *member, ga_member_state from, ga_member_state to);

/* Give up a member: it becomes IDLE if its list is empty, else ORPHANED. */
void ga_member_give_up(ga_member *member);

/* The calling thread's membership, made if there is none. If `*leave` is set, no destructor will
 * run for this thread any more, and the caller has to leave the domain. */
ga_status ga_member_join(ga_domain *domain, ga_member **out, bool *leave);

/* A member that no other thread knows yet; NULL if there is no memory. */
ga_member *ga_member_make(ga_domain *domain);

/* The calling thread's membership in the domain of `closer`. A thread that has none gets
 * `closer`. */
ga_member *ga_member_join_closing(ga_member *closer);

/* Remove the member from the calling thread's memberships, and free it. */
void ga_member_leave_closed(ga_member *member);

/* Free the member and its arrays, but none of the retired objects. */
void ga_member_free(ga_member *member);

/* In a forked child: release a member that another thread of the parent process had or had
 * adopted. */
void ga_member_orphan(ga_member *member);

/* ---- fences.c ------------------------------------------------------------------------------ */

/* The kernel has refused a membarrier: from now on members order their own slots. */
void ga_fences_change(ga_domain *domain);

/* True if all members are known to have changed, so that a fence of the caller orders their
 * slots. */
bool ga_fences_changed(ga_domain *domain);

/* For the thread that has just joined: take over the domain's fence mode. */
void ga_fences_join(ga_member *member);

/* ---- scan.c -------------------------------------------------------------------------------- */

/* Free the objects on the member's list and on that of one orphan, except those that a slot holds.
 * False: the kernel refused the heavy fence, and nothing was freed. */
bool ga_scan(ga_member *me);

/* Scan until only protected objects are left on the list. False as for ga_scan(). */
bool ga_scan_all(ga_member *me);

/* True if an object that was unlinked may be freed at once. Needs no memory and no membership. */
bool ga_scan_can_free(ga_domain *domain, const void *object);

/* For structures whose slots hold something other than addresses, and that free by themselves. The
 * heavy fence (RS1): on return, each thread's slots that it set before the call are visible to the
 * caller, or the thread sees all writes that came before the call. False: the kernel refused the
 * fence. After it, ga_scan_load_slot() reads a slot (RS2). */
bool ga_scan_heavy_fence(ga_domain *domain);
uintptr_t ga_scan_load_slot(const ga_member *member, uint32_t slot);

/* Free everything on `owner`'s list, even objects that a slot holds, through `me`. */
void ga_scan_free_all(ga_member *me, ga_member *owner);

#endif
