/* SPDX-License-Identifier: MIT
 *
 * A domain and its members, between the files of this room (docs/reclaim.md has the proof).
 *
 * STRUCTURE  domain -> member -> member -> ...    a list that only grows, at its head
 *                      | slots: written by its thread, read by every scan
 *                      | list: what was retired through it
 *            thread -> member -> member -> ...    its memberships, one for each domain
 *
 *            A member's state says who may touch its list:
 *
 *            IDLE    nobody: no thread, and nothing on the list
 *            LEFT    nobody: its thread has left, something is on the list
 *            JOINED  its thread
 *            TENDED  `tender`: its thread on its way out, a scan that frees what others left,
 *                    or ga_domain_close()
 *            CLOSED  its thread, until that finds it so: the domain is gone
 *            DONE    nobody
 *
 *            Members that are CLOSED or DONE are on a list of domain.c, to be freed once they are
 *            DONE or their thread has ended: one that joined in its last destructors never leaves.
 *
 * INVARIANT  An object is on one list, once, from its retirement until just before it is freed.
 *            Of a list that is being swept, kept <= first <= count, and what counts as being on
 *            it is list[0..kept) and list[first..count): one store moves both borders, so that a
 *            child of fork() finds all of it whenever that happens.
 *            A list ends up with no more than `full` objects outside of a sweep, and that is what
 *            its last scan found in slots, at most all slots there are, plus a batch.
 *
 *            A mark says that what was retired before it was unlinked before membarrier number
 *            `begun` + 1 began. All but the last (retired now - retired then) objects of the list
 *            stand before it, whatever was freed meanwhile, since the list keeps their order.
 *
 * ORDER      P1 to P4 are the readers' (gpualloc/reclaim.h), S1 and S2 the scan's, M1 to M4 those
 *            of membarriers that several scans share (scan.c).
 *            C1 to C7 are those of a domain that changes its fences later (fences.c).
 *            J (the state): what a member's last user wrote happens before its next one's. H (the
 *            head): a member is whole before it is seen. F (the list's borders): an object is in
 *            its place before it counts as being there, for a child of fork(); within a process a
 *            list belongs to one thread at a time.
 *
 * PROGRESS   Protecting is lock-free; where the location stands still, wait-free. Retiring and
 *            scanning take a number of steps that depends on members, slots and the batch alone,
 *            besides what reclaim functions and membarrier(2) take. Joining and leaving are
 *            lock-free. Opening, closing and fork() share a lock.
 */
#ifndef GPUALLOC_RECLAIM_STATE_H
#define GPUALLOC_RECLAIM_STATE_H

#include <gpualloc/reclaim.h>

enum {
    GA_RECLAIM_APART = 128,   /* bytes: two lines, which processors fetch together */
    GA_RECLAIM_MARKS = 8,     /* for a batch */
    GA_RECLAIM_SHARE = 8,     /* a member charges at most this part of the domain's bytes */
    GA_RECLAIM_FREE = 1 << 16 /* bytes that a member may hold without a charge */
};

typedef enum ga_member_state {
    GA_MEMBER_IDLE = 0,
    GA_MEMBER_LEFT,
    GA_MEMBER_JOINED,
    GA_MEMBER_TENDED,
    GA_MEMBER_CLOSED,
    GA_MEMBER_DONE
} ga_member_state;

typedef struct ga_retired {
    void *object;
    ga_reclaim *reclaim; /* NULL: `context` is the heap that it goes back to */
    void *context;
    size_t size;
} ga_retired;

/* relaxed: each is written by one thread at a time, and read for statistics. */
typedef struct ga_member_counts {
    uint64_t retired, freed, scans, shared, refused, inherited, not_freed;
} ga_member_counts;

/* What the member had retired when so many membarriers of the domain had begun. */
typedef struct ga_mark {
    uint64_t retired, begun;
} ga_mark;

typedef struct ga_member {
    ga_hazards hazards;        /* first: what callers hold */
    ga_domain *domain;         /* set once */
    struct ga_member *next;    /* of the domain; set once */
    uint32_t number;           /* how many stand behind it, and itself; set once */
    struct ga_member *sibling; /* of the same thread; its own */
    const void *thread;        /* whose, JOINED or on its way out; else NULL. For fork() */
    uint32_t thread_id;        /* C7: the same, for others; 0: no thread's */
    const void *tender;        /* which thread's, while TENDED; else NULL. For fork() */
    struct ga_member *tending; /* by a scan through this member, or NULL; its thread's own */

    /* Of who may touch the list. */
    _Alignas(GA_RECLAIM_APART) ga_retired *list;
    uint32_t room, count;
    uint32_t limit;       /* with so many it is looked at: to be marked, or scanned */
    uint32_t full;        /* with so many it is scanned */
    bool sweeping;        /* a scan through this member is freeing */
    uint64_t borders;     /* first << 32 | kept, while the list is swept; else 0 */
    uint64_t bytes;       /* of all that is on the list. relaxed: read for statistics */
    uint64_t charged;     /* of the domain's bytes; part of `full_bytes` */
    uint64_t limit_bytes; /* with so many it is looked at */
    uint64_t full_bytes;  /* with so many it is scanned */
    uintptr_t *seen;      /* what a scan found in the slots */
    uint32_t seen_room;
    uint32_t marked; /* marks that were ever made; the last ones are there */
    ga_mark marks[GA_RECLAIM_MARKS];
    uint64_t own; /* the number of its last membarrier */
    ga_member_counts counts;

    _Alignas(GA_RECLAIM_APART) uint32_t state; /* J */
} ga_member;

struct ga_domain {
    uint32_t slots, batch;
    uint64_t batch_bytes;
    uint32_t seq_cst;  /* C1, C4, C5: ga_hazard_fences */
    uint64_t charged;  /* relaxed: a sum, never above `batch_bytes`; nothing is read through it */
    ga_member *closer; /* so that ga_domain_close() needs no memory */
    uint32_t tended;   /* relaxed: the number of the last member whose leavings were taken over */
    uint32_t order;    /* under the thread sanitizer: see S1 */
    struct ga_domain *older, *newer; /* guarded by the lock of domain.c */

    _Alignas(GA_RECLAIM_APART) ga_member *head; /* H */

    /* Membarriers, by number: that have begun, and one that is over, as a rule the last. */
    _Alignas(GA_RECLAIM_APART) uint64_t begun; /* M1, M2 */
    uint64_t over;                             /* M3, M4 */
};

static inline ga_member *ga_member_head(const ga_domain *domain)
{
    /* H2: acquire. Pairs with H1 (member.c). */
    return __atomic_load_n(&domain->head, __ATOMIC_ACQUIRE);
}

static inline uint32_t ga_member_standing(const ga_member *member)
{
    /* J2: acquire. Pairs with J1 (member.c). */
    return __atomic_load_n(&member->state, __ATOMIC_ACQUIRE);
}

/* What a member may hold without a charge. */
static inline uint64_t ga_domain_free_bytes(const ga_domain *domain)
{
    return domain->batch_bytes < GA_RECLAIM_FREE ? domain->batch_bytes : GA_RECLAIM_FREE;
}

static inline uint32_t ga_domain_fences(const ga_domain *domain)
{
    /* C5: seq_cst. Pairs with C1 and C4 (fences.c). */
    return __atomic_load_n(&domain->seq_cst, __ATOMIC_SEQ_CST);
}

static inline void ga_member_set_bytes(ga_member *member, uint64_t bytes)
{
    /* relaxed: one thread writes at a time, and others read it for statistics. */
    __atomic_store_n(&member->bytes, bytes, __ATOMIC_RELAXED);
}

static inline void ga_member_count(uint64_t *count, uint64_t more)
{
    /* relaxed: counts, see ga_member_counts. */
    __atomic_store_n(count, *count + more, __ATOMIC_RELAXED);
}

/* ---- domain.c ------------------------------------------------------------------------------ */

/* Close it, whatever the slots hold; how many were set. */
uint64_t ga_domain_shut(ga_domain *domain);

/* ---- member.c ------------------------------------------------------------------------------ */

/* The calling thread's; the one that was asked for last comes first. */
extern _Thread_local ga_member *ga_memberships;

/* What ga_domain_join() gives, where the thread asked for the same domain before: a few
 * instructions, and no call. False: ask that. */
static inline bool ga_member_at_hand(const ga_domain *domain, ga_hazards **out)
{
    ga_member *first = ga_memberships;
    if (!first || first->domain != domain || ga_member_standing(first) == GA_MEMBER_CLOSED) {
        return false;
    }
    *out = &first->hazards;
    return true;
}

/* Names the calling thread; the same in a forked child. */
const void *ga_member_self(void);

/* Take a member in state `from`; true for one caller. */
bool ga_member_take(ga_member *member, ga_member_state from, ga_member_state to);

/* Hand a taken member on: IDLE or LEFT, as its list says. */
void ga_member_hand_on(ga_member *member);

/* The calling thread's membership, made where there is none. Where `*leave` is set, no destructor
 * will come for this thread any more: it has to leave by itself. */
ga_status ga_member_join(ga_domain *domain, ga_member **out, bool *leave);

/* One that nobody knows yet; NULL where there is no memory. */
ga_member *ga_member_make(ga_domain *domain);

/* The calling thread's membership in the domain that `closer` is for: `closer`, where it has
 * none. */
ga_member *ga_member_close_with(ga_member *closer);

/* The calling thread is no member of that domain any more; the member is freed. */
void ga_member_forget(ga_member *member);

/* Frees the member and what it has, but none of the retired objects. */
void ga_member_free(ga_member *member);

/* In a forked child: a member that a thread of the parent's had or tended. */
void ga_member_orphan(ga_member *member);

/* ---- fences.c ------------------------------------------------------------------------------ */

/* The kernel has refused a membarrier: members order what they set themselves from now on. */
void ga_fences_change(ga_domain *domain);

/* Whether all members are known to have changed, so that their slots can be believed behind a
 * fence of the caller's. */
bool ga_fences_changed(ga_domain *domain);

/* For the thread that has just become the member's: as the domain's fences are now. */
void ga_fences_adopt(ga_member *member);

/* ---- scan.c -------------------------------------------------------------------------------- */

/* Free what is on the list and on that of one member that has left, as far as no slot holds it.
 * False where the kernel refused the barrier. */
bool ga_scan(ga_member *me);

/* Scan until nothing is on the list but what was protected. */
bool ga_scan_all(ga_member *me);

/* Whether an object that was unlinked may be freed at once. Needs no memory and no membership. */
bool ga_scan_single(ga_domain *domain, const void *object);

/* For a structure whose slots hold something else than addresses, and which frees for itself: every
 * thread has what it set before this call seen, or sees what was done before (S1). False where the
 * kernel refused the barrier. And what a slot holds (S2), to be read behind that. */
bool ga_scan_order(ga_domain *domain);
uintptr_t ga_scan_slot(const ga_member *member, uint32_t slot);

/* Free everything that is on the list, whatever the slots hold, for `me`. */
void ga_scan_empty(ga_member *me, ga_member *of);

#endif
