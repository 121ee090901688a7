/* SPDX-License-Identifier: MIT
 *
 * Hazard-pointer domains: how threads that read a structure without locks can have its removed
 * objects freed (lfht-reclamation-2022, §4.3.1; asymmetric fences: §4.1.2.1). docs/reclaim.md
 * has the proof and the figures.
 *
 * A reader publishes the address of what it is about to use in a slot of its own, then looks
 * again whether the structure still leads there: protect. Whoever has taken an object out of the
 * structure hands it to the domain: retire. The domain frees it once no slot holds its address.
 *
 *     ga_hazards *mine;
 *     ga_domain_join(domain, &mine);                      first use in this thread
 *     node *n = ga_hazard_protect_pointer(mine, 0, (void *const *)&head);
 *     ... read *n ...
 *     ga_hazard_clear(mine, 0);
 *
 *     ga_hazard_reserve(mine, 1);                         may fail: nothing has happened yet
 *     ... unlink n from the structure, so that no thread can find it any more ...
 *     ga_hazard_retire(mine, n, sizeof *n, free_node, NULL);             cannot fail now
 *
 * Threads come and leave at will. One that ends leaves by itself, in whatever state it is; what it
 * had retired is taken over by the others.
 *
 * The promise: at any time at most `bound` objects, and `bound_bytes` bytes besides those that are
 * protected, are retired and not freed (ga_domain_stats), even if threads stop forever, wherever
 * they stop. See ga_domain_options.
 *
 * Every call that answers a status does so as in gpualloc.h: one that fails changes nothing and
 * leaves a sentence in ga_error_text().
 *
 * Thread safety: all calls may be made by any thread at any time, except that ga_domain_close()
 * wants a domain that no other thread is calling for, and that a ga_hazards is its thread's
 * alone. No call waits for another thread, but for ga_domain_open() and _close(), a thread that
 * leaves a domain that is being closed, and fork(); and some ask the C library for memory. None is
 * async-signal-safe. After fork() the child has a copy of each domain with what was in it, in
 * which only the forking thread is a member: the protection of the others is void, and what they
 * had retired is taken over.
 *
 * Compiles alone as C11, C++17 and under nvcc (host code).
 */
#ifndef GPUALLOC_RECLAIM_H
#define GPUALLOC_RECLAIM_H

#include <gpualloc/gpualloc.h>

/* The stress tests weaken one thing at a time, to see that they notice
 * (tests/stress/meson.build). */
#ifndef GA_RECLAIM_MUTANT
#define GA_RECLAIM_MUTANT 0
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- domains ----------------------------------------------------------------------------- */

typedef struct ga_domain ga_domain;

/* What a domain is made with: fixed from then on. All zeros but `options_size` is a good choice.
 *
 * Objects. With N memberships and S slots, a scan of one member's list can leave H = N * S objects,
 * since no more can be protected. A member scans when it has retired `batch` objects more than its
 * last scan found protected; a part of the batch earlier, where it can use another member's
 * membarrier, or others can use the one it makes. So it holds at most batch + H objects, and the
 * domain at most N * (batch + H): `bound`.
 *
 * Bytes. `batch_bytes` is a budget of the whole domain. Each member may hold 64 KiB (or the budget,
 * if that is less) without asking. For more it charges the budget, up to an eighth of it, in steps
 * that double what it may hold. A member that gets no more scans, and gives back what it charged.
 * So the domain holds less than batch_bytes + N * (64 KiB + b): `bound_bytes`, and one object, of b
 * bytes at most, for each membership; and besides that at most H protected objects a membership.
 *
 * Objects that a free function retires while a scan runs come on top until that scan has ended.
 *
 * Where the kernel refuses a membarrier that it granted before (the process has entered a sandbox
 * since), the domain changes to sequentially consistent protection. It frees nothing, without a
 * bound, until it knows that all members have changed: at once on most x86 processors, else once
 * each has called ga_hazard_set() or waited in the kernel. One line in the log says so. A sandbox
 * that answers membarrier(2) with a signal ends the process: programs that enter one need
 * GA_DOMAIN_SEQ_CST. */
typedef struct ga_domain_options {
    uint32_t options_size; /* sizeof(ga_domain_options) */
    uint32_t flags;        /* GA_DOMAIN_* */
    uint32_t slots;        /* of each member, up to GA_DOMAIN_SLOTS_MOST; 0: 8 */
    uint32_t batch;        /* objects a member collects between two scans, up to
                            * GA_DOMAIN_BATCH_MOST; 0: 4096 */
    uint64_t batch_bytes;  /* bytes that all members collect together, as ga_hazard_retire() is
                            * told; 0: 32 MiB */
} ga_domain_options;

enum {
    /* Sequentially consistent protection, without any call of membarrier(2). Without this flag a
     * domain has it only where the kernel lacks or refuses membarrier's PRIVATE_EXPEDITED, from
     * that moment on, and where the library was built for the thread sanitizer, which does not see
     * membarriers.
     * Programs built for it need the flag when the library is not. */
    GA_DOMAIN_SEQ_CST = 1
};

enum {
    GA_DOMAIN_SLOTS_MOST = 1 << 16,
    GA_DOMAIN_BATCH_MOST = 1 << 24
};

/* Make a domain; the caller closes it. NULL for `options` is all zeros.
 *
 * GA_ERR_ARGUMENT  an option out of range; the sentence names it
 * GA_ERR_MEMORY    no memory for the domain's record */
GA_API ga_status ga_domain_open(ga_domain **out, const ga_domain_options *options);

/* Free everything that was retired, then the domain. No thread may be using objects of the
 * domain or calling for it; threads that are still members cease to be. A thread that is just
 * ending is waited for. NULL is ignored.
 *
 * GA_ERR_ARGUMENT  a slot is set: some object may be in use. The sentence says how many; nothing
 *                  was freed, and the domain stays open. */
GA_API ga_status ga_domain_close(ga_domain *domain);

/* The domain of a heap whose spec begins with `hazard`, for those who read what others free
 * there. It lives as long as the heap, which closes it.
 *
 * GA_ERR_UNSUPPORTED  another spec */
GA_API ga_status ga_heap_domain(ga_heap *heap, ga_domain **out);

/* Free what the calling thread and threads that have left retired, as far as nothing protects
 * it: on return they hold nothing else, but for what another thread's scan has taken over just
 * then. What other members retired is theirs to free. Joins the thread.
 *
 * GA_ERR_ARGUMENT     `domain` is NULL, or the call is made in a reclaim function
 * GA_ERR_MEMORY       no memory to join
 * GA_ERR_UNSUPPORTED  the kernel refused a membarrier that it granted before, and some member has
 *                     not changed to fences of its own yet: nothing was freed */
GA_API ga_status ga_domain_drain(ga_domain *domain);

typedef struct ga_domain_stats {
    uint64_t members;     /* threads that are joined now */
    uint64_t memberships; /* in use or left, N: most often as many as threads were members at one
                           * time, never more than twice that */
    uint64_t slots;       /* of each: S */
    uint64_t retired;     /* objects, since the domain was opened */
    uint64_t freed;       /* of these */
    uint64_t pending;     /* retired - freed */
    uint64_t bound;       /* the most `pending` can be with these: see ga_domain_options. 0: there
                           * is none for now; see `refused` */
    uint64_t scans;       /* that looked through the slots of all members */
    uint64_t shared;      /* of these, by a membarrier that another thread's scan had made */
    uint64_t refused;     /* scans that could not be made: the kernel refused a membarrier, and some
                           * member had not changed to fences of its own */
    uint64_t inherited;   /* objects of threads that had left, freed by others */
    uint64_t not_freed;   /* objects whose heap refused them: ga_hazard_retire_to() */
    bool seq_cst;         /* protection is sequentially consistent; else there are membarriers */
    uint64_t pending_bytes; /* of `pending`, as ga_hazard_retire() was told */
    uint64_t bound_bytes;   /* the most these can be, but for protected objects and one object for
                             * each membership: see ga_domain_options. 0: no bound for now */
} ga_domain_stats;

/* Each figure is right for some recent moment, not all for the same one. All zeros for NULL. */
GA_API void ga_domain_get_stats(const ga_domain *domain, ga_domain_stats *out);

/* ---- members ----------------------------------------------------------------------------- */

/* A thread's membership of a domain. The members below are for the inline functions of this
 * header. */
typedef struct ga_hazards {
    uintptr_t *slots; /* `count` of them, in cache lines that no other thread writes to */
    uint32_t count;
    uint32_t seq_cst; /* ga_hazard_fences. Other threads may change it: 0 to 2, and 2 to 1 */
} ga_hazards;

/* How a member orders a slot before the load that confirms it. */
enum ga_hazard_fences {
    GA_HAZARD_ASYMMETRIC = 0, /* the scan does, by a fence in every thread */
    GA_HAZARD_SEQ_CST = 1,    /* the member does */
    /* The member does, from its next ga_hazard_set() on; and no scan knows yet that what it set
     * before can be seen. */
    GA_HAZARD_UNCONFIRMED = 2
};

/* The calling thread's membership, made by the first call. It lasts until the thread ends or
 * calls ga_domain_leave(), or the domain is closed. No other thread may use it. Later calls cost
 * a few instructions, but for threads that are members of several domains: keep it where you
 * can. A thread that joins in the last destructors of its life, when the library's own has run,
 * leaves by ga_domain_leave(); one that does not stays a member, and its membership of about 1.5
 * KiB there, until the domain is closed.
 *
 * GA_ERR_MEMORY  no memory for the membership */
GA_API ga_status ga_domain_join(ga_domain *domain, ga_hazards **out);

/* End the calling thread's membership, if there is one: clears its slots, frees what it can, and
 * leaves the rest to whoever scans next. Not from a free function. */
GA_API void ga_domain_leave(ga_domain *domain);

/* ---- protection ---------------------------------------------------------------------------
 *
 * Slots are numbered from 0. An object is protected from when a call below has confirmed it
 * until the slot is set to something else, provided that it was not retired before: it is
 * unlinked first, retired then. A protected object can be retired meanwhile, by its reader too;
 * it is not freed.
 *
 * A location is a word of the structure that leads to the object: a pointer, or a pointer with
 * tags in bits that no address has set. It must itself stay readable: a root, or part of an
 * object that is protected in another slot. Where that other object may have been retired
 * meanwhile, that its word still leads to the object proves nothing: the structure must change
 * the word when it unlinks its owner, or the reader look again at the word that leads to the
 * owner.
 *
 * To keep an object in another slot: set that before you change the first, and take a slot of
 * higher number, since scans read each member's slots upwards. */

typedef uintptr_t __attribute__((may_alias)) ga_hazard_word;

static inline uint32_t ga_hazard_mode(const ga_hazards *mine)
{
    /* relaxed: ga_hazard_set() says why a late answer does no harm. */
    return __atomic_load_n(&mine->seq_cst, __ATOMIC_RELAXED);
}

/* The calling thread's member has changed to fences of its own. */
static inline void ga_hazard_confirm(const ga_hazards *mine)
{
    /* C2: release. Pairs with C3 (fences.c): what the member set before can be seen. */
    __atomic_store_n((uint32_t *)(uintptr_t)&mine->seq_cst, (uint32_t)GA_HAZARD_SEQ_CST,
                     __ATOMIC_RELEASE);
}

/* What stands at `location`, in an order that confirms a ga_hazard_set() before it. Acquires:
 * what was written before the word was stored there is seen. */
static inline uintptr_t ga_hazard_load(const ga_hazards *mine, const ga_hazard_word *location)
{
#if GA_RECLAIM_MUTANT == 10
    return __atomic_load_n(location, __ATOMIC_RELAXED);
#endif
    /* P2: seq_cst, or acquire. Pairs with S1 (scan.c): this load sees that the object was
     * unlinked, or the scan sees the slot. Also acquires what was published with the word. */
    return ga_hazard_mode(mine) ? __atomic_load_n(location, __ATOMIC_SEQ_CST)
                                : __atomic_load_n(location, __ATOMIC_ACQUIRE);
}

/* Put an address into a slot: the object is protected if a ga_hazard_load() after it finds that the
 * structure still leads there. */
static inline void ga_hazard_set(const ga_hazards *mine, uint32_t slot, const void *object)
{
    uintptr_t *place = &mine->slots[slot];
    /* P1: release. Pairs with S2 (scan.c): what was read of the slot's last object was read
     * before. */
    __atomic_store_n(place, (uintptr_t)object, __ATOMIC_RELEASE);
    /* P3: for the compiler alone. Pairs with S1 (scan.c), whose membarrier makes of it a fence. The
     * mode is read behind P1: a fence that comes too early for P1 comes early enough for the mode
     * (fences.c). */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    uint32_t mode = ga_hazard_mode(mine);
    if (mode != GA_HAZARD_ASYMMETRIC && GA_RECLAIM_MUTANT != 2) {
        /* P1: seq_cst. Pairs with S1 and S2 (scan.c), through P2. */
        __atomic_store_n(place, (uintptr_t)object, __ATOMIC_SEQ_CST);
        if (__builtin_expect(mode == GA_HAZARD_UNCONFIRMED, 0)) {
            ga_hazard_confirm(mine);
        }
    }
}

/* The slot protects nothing any more. */
static inline void ga_hazard_clear(const ga_hazards *mine, uint32_t slot)
{
#if GA_RECLAIM_MUTANT == 5
    __atomic_store_n(&mine->slots[slot], 0, __ATOMIC_RELAXED);
#else
    /* P4: release. Pairs with S2 (scan.c): what was read of the object was read before it is
     * freed. */
    __atomic_store_n(&mine->slots[slot], 0, __ATOMIC_RELEASE);
#endif
}

static inline void ga_hazard_clear_all(const ga_hazards *mine)
{
    for (uint32_t slot = 0; slot < mine->count; slot++) {
        ga_hazard_clear(mine, slot);
    }
}

/* One attempt: protect what `*word`, read from `location` before, leads to; `tags` are the bits
 * that are no part of the address. True where the location still holds the same. Else `*word` is
 * what it holds now, and the slot is set but protects nothing. */
static inline bool ga_hazard_try(const ga_hazards *mine, uint32_t slot,
                                 const ga_hazard_word *location, uintptr_t tags, uintptr_t *word)
{
    uintptr_t seen = *word;
    ga_hazard_set(mine, slot, (const void *)(seen & ~tags));
    uintptr_t now = ga_hazard_load(mine, location);
    *word = GA_RECLAIM_MUTANT == 1 ? seen : now;
    return *word == seen;
}

/* The word at `location`, with its tags, and what it leads to protected. Tries until it has: it
 * can be kept trying only by threads that change the location each time. */
static inline uintptr_t ga_hazard_protect(const ga_hazards *mine, uint32_t slot,
                                          const ga_hazard_word *location, uintptr_t tags)
{
    /* relaxed: a guess, which P2 confirms. */
    uintptr_t word = __atomic_load_n(location, __ATOMIC_RELAXED);
    while (!ga_hazard_try(mine, slot, location, tags, &word)) {
    }
    return word;
}

/* The same for a pointer without tags. */
static inline void *ga_hazard_protect_pointer(const ga_hazards *mine, uint32_t slot,
                                              void *const *location)
{
    return (void *)ga_hazard_protect(mine, slot, (const ga_hazard_word *)location, 0);
}

/* ---- retiring ---------------------------------------------------------------------------- */

/* Free `object`. Called once for each, by some member, with none of the domain's slots holding
 * it. It may retire other objects, which a later scan frees, with what ga_domain_join() gives
 * it, and free anything; it may not leave, drain or close the domain. */
typedef void ga_reclaim(void *context, void *object);

/* Make room for `count` objects, so that the calling thread's next `count` calls of the two
 * below cannot fail. To be called before an object is unlinked.
 *
 * GA_ERR_MEMORY  no memory; nothing was reserved */
GA_API ga_status ga_hazard_reserve(ga_hazards *mine, uint32_t count);

/* Have `object` freed by reclaim(context, object) once no slot holds its address. It must be
 * unlinked: no thread can find it any more that has not found it before. It is retired once.
 * Slots of the calling thread protect it like any other. `size` is its bytes for `batch_bytes`;
 * 0 where that does not matter. Now and then frees a batch.
 *
 * GA_ERR_ARGUMENT  `object` or `reclaim` is NULL
 * GA_ERR_MEMORY    no room could be made: the object stays the caller's. ga_hazard_reserve()
 *                  rules it out. */
GA_API ga_status ga_hazard_retire(ga_hazards *mine, void *object, size_t size, ga_reclaim *reclaim,
                                  void *context);

/* The same for a block that goes back to `heap` by ga_free(). The heap must outlive the domain.
 * A block that it refuses then is lost to it and counted in `not_freed`. */
GA_API ga_status ga_hazard_retire_to(ga_hazards *mine, void *object, size_t size, ga_heap *heap);

#ifdef __cplusplus
}
#endif
#endif
