/* SPDX-License-Identifier: MIT
 *
 * Hazard-pointer domains: how threads that read a structure without locks can have its removed
 * objects freed (lfht-reclamation-2022, §4.3.1; asymmetric fences: §4.1.2.1). docs/sources.md has
 * the thesis, docs/internals/reclaim.md the proof; the head of liballoc/reclaim/scan.c says when an
 * object is freed.
 *
 * To protect an object, a reader stores the object's address in a slot of its own and then
 * validates: it loads again the word that led it to the object. A thread that has unlinked an
 * object from the structure retires it to the domain. The domain frees it once no slot holds its
 * address.
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
 * Threads join and leave at any time. A thread that ends leaves by itself, and other threads' scans
 * take over the objects that it had retired.
 *
 * Guarantee: at any time at most `bound` objects are retired and not freed, and at most
 * `bound_bytes` bytes besides those of protected objects (ga_domain_stats), even if threads stop
 * forever, at any point. See ga_domain_options.
 *
 * Calls that return a status do so as in gpualloc.h: one that fails changes nothing and leaves a
 * message in ga_error_text().
 *
 * Thread safety: any thread may make any call at any time, with two exceptions: no other thread may
 * use a domain that ga_domain_close() is called for, and a ga_hazards belongs to its thread alone.
 * Calls do not wait for other threads, except ga_domain_open() and _close(), a thread that leaves a
 * domain that is being closed, and fork(). Some ask the C library for memory. None is
 * async-signal-safe. After fork() the child has a copy of each domain and its objects, in
 * which only the forking thread is a member: the protection of the other threads is void, and their
 * retired objects are taken over.
 *
 * Compiles alone as C11, C++17 and under nvcc (host code).
 */
#ifndef GPUALLOC_RECLAIM_H
#define GPUALLOC_RECLAIM_H

#include <gpualloc/detail/simt/planted.h>
#include <gpualloc/gpualloc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- domains ----------------------------------------------------------------------------- */

typedef struct ga_domain ga_domain;

/* Settings of a domain, fixed when it is opened. All zeros but `options_size` is a good choice.
 *
 * Objects. With N memberships and S slots, a scan of one member's list can leave H = N * S objects,
 * since no more can be protected. A member scans when it has retired `batch` objects more than its
 * last scan found protected; or a part of the batch earlier, if it can use another member's
 * membarrier, or others can use the one it makes. So it holds at most batch + H objects, and the
 * domain at most N * (batch + H): `bound`.
 *
 * Bytes. `batch_bytes` is a budget of the whole domain. Each member may hold 64 KiB (or the budget,
 * if that is less) without a charge. For more it charges the budget, up to an eighth of it, in
 * steps that double its limit. A member that gets no more scans, and returns its charge.
 * So the domain holds less than batch_bytes + N * (64 KiB + b): `bound_bytes`, and one object, of b
 * bytes at most, for each membership; and besides that at most H protected objects a membership.
 *
 * Objects that a reclaim function retires while a scan runs come on top until that scan has ended.
 *
 * If the kernel refuses a membarrier that it granted before (the process has entered a sandbox
 * since), the domain changes to sequentially consistent protection. It frees nothing, without a
 * bound, until all members are known to have changed: at once on most x86 processors, elsewhere
 * once each has called ga_hazard_set() or waited in the kernel. One line in the log reports it. A
 * sandbox that answers membarrier(2) with a signal ends the process: programs that enter one need
 * GA_DOMAIN_SEQ_CST. */
typedef struct ga_domain_options {
    uint32_t options_size; /* sizeof(ga_domain_options) */
    uint32_t flags;        /* GA_DOMAIN_* */
    uint32_t slots;        /* of each member, at most GA_DOMAIN_SLOTS_MAX; 0: 8 */
    uint32_t batch;        /* objects that a member collects between two scans, at most
                            * GA_DOMAIN_BATCH_MAX; 0: 4096 */
    uint64_t batch_bytes;  /* bytes that all members collect together, by the sizes
                            * passed to ga_hazard_retire(); 0: 32 MiB */
} ga_domain_options;

enum {
    /* Sequentially consistent protection, without any call of membarrier(2). Without this flag a
     * domain uses it only if the kernel has no PRIVATE_EXPEDITED membarrier or refuses it (from
     * that moment on), or if the library was built for the thread sanitizer, which does not model
     * membarriers. Programs built for the thread sanitizer need the flag if the library is not. */
    GA_DOMAIN_SEQ_CST = 1
};

enum {
    GA_DOMAIN_SLOTS_MAX = 1 << 16,
    GA_DOMAIN_BATCH_MAX = 1 << 24
};

/* Open a domain; the caller closes it. NULL for `options` means all zeros.
 *
 * GA_ERR_ARGUMENT  an option out of range; the message names it
 * GA_ERR_MEMORY    no memory for the domain's record */
GA_API ga_status ga_domain_open(ga_domain **out, const ga_domain_options *options);

/* Free all retired objects, then the domain. No thread may be using objects of the domain or
 * calling for it; threads that are still members cease to be. Waits for a thread that is just
 * ending. NULL is ignored.
 *
 * GA_ERR_ARGUMENT  a slot is set: some object may be in use. The message has the number of set
 *                  slots; nothing was freed, and the domain stays open. */
GA_API ga_status ga_domain_close(ga_domain *domain);

/* The domain of a heap whose spec begins with `hazard`, for threads that read blocks which other
 * threads free there. It lives as long as the heap, which closes it.
 *
 * GA_ERR_UNSUPPORTED  another spec */
GA_API ga_status ga_heap_domain(ga_heap *heap, ga_domain **out);

/* Free the objects that the calling thread and threads that have left retired, except protected
 * ones. On return those lists hold nothing else, apart from lists that another thread's scan has
 * just taken over. Objects that other members retired stay on their lists. Joins the thread.
 *
 * GA_ERR_ARGUMENT     `domain` is NULL, or the call is made in a reclaim function
 * GA_ERR_MEMORY       no memory to join
 * GA_ERR_UNSUPPORTED  the kernel refused a membarrier that it granted before, and some member has
 *                     not changed to fences of its own yet: nothing was freed */
GA_API ga_status ga_domain_drain(ga_domain *domain);

typedef struct ga_domain_stats {
    uint64_t members;       /* threads that are joined now */
    uint64_t memberships;   /* in use or left, N: most often as many as threads were members at one
                           * time, never more than twice that */
    uint64_t slots;         /* of each: S */
    uint64_t retired;       /* objects, since the domain was opened */
    uint64_t freed;         /* of these; it can be less than at the last call while others retire */
    uint64_t pending;       /* retired - freed; at most `bound` */
    uint64_t bound;         /* the maximum of `pending` with these: see ga_domain_options. 0: no
                             * bound for now; see `refused`. It holds again once each member has
                             * scanned since */
    uint64_t scans;         /* that loaded the slots of all members */
    uint64_t shared;        /* of these, with a membarrier that another thread's scan had issued */
    uint64_t refused;       /* scans that were not made: the kernel refused a membarrier, and some
                           * member had not changed to fences of its own */
    uint64_t inherited;     /* objects of threads that had left, freed by other threads */
    uint64_t not_freed;     /* objects that the heap refused to free: ga_hazard_retire_to() */
    bool seq_cst;           /* protection is sequentially consistent; else it uses membarriers */
    uint64_t pending_bytes; /* of `pending`, by the sizes passed to ga_hazard_retire(); a sum of
                             * figures that members have one after the other */
    uint64_t bound_bytes;   /* the maximum of these, besides protected objects and one object for
                             * each membership: see ga_domain_options. 0: no bound for now */
} ga_domain_stats;

/* Each figure is right for some recent moment, not all for one moment. All zeros for NULL. */
GA_API void ga_domain_get_stats(const ga_domain *domain, ga_domain_stats *out);

/* ---- members ----------------------------------------------------------------------------- */

/* A thread's membership of a domain. The fields are for the inline functions of this header. */
typedef struct ga_hazards {
    uintptr_t *slots; /* `count` of them, in cache lines that no other thread writes to */
    uint32_t count;
    uint32_t fence_mode; /* ga_hazard_fence_mode. Other threads may change it: ASYMMETRIC to
                          * UNCONFIRMED, and that to SEQ_CST */
} ga_hazards;

/* How a member orders its store to a slot before the load that validates it. */
enum ga_hazard_fence_mode {
    GA_HAZARD_ASYMMETRIC = 0, /* by the scan's heavy fence, which acts in every thread */
    GA_HAZARD_SEQ_CST = 1,    /* by the member's own seq_cst accesses */
    /* By the member's own, from its next ga_hazard_set() on; no scan knows yet that the slots it
     * set before are visible. */
    GA_HAZARD_UNCONFIRMED = 2
};

/* The calling thread's membership, made by the first call. It lasts until the thread ends or
 * calls ga_domain_leave(), or the domain is closed. No other thread may use it. Later calls cost
 * a few instructions, except in threads that are members of several domains: keep the pointer where
 * you can. A thread that joins from a destructor of thread-local data that runs after the library's
 * own must call ga_domain_leave(); otherwise its membership of about 1.5 KiB stays allocated until
 * the domain is closed.
 *
 * GA_ERR_MEMORY  no memory for the membership */
GA_API ga_status ga_domain_join(ga_domain *domain, ga_hazards **out);

/* End the calling thread's membership, if there is one: clears its slots, frees its retired objects
 * as far as they are unprotected, and leaves the rest to the scans of other threads. Not from a
 * reclaim function. */
GA_API void ga_domain_leave(ga_domain *domain);

/* ---- protection ---------------------------------------------------------------------------
 *
 * Slots are numbered from 0. An object is protected from the moment when a call below has
 * validated it until the slot is set to something else, provided that it was not retired before.
 * (It is unlinked first, then retired.) A protected object can be retired meanwhile, by its reader
 * too; it is not freed.
 *
 * A location is a word of the structure that leads to the object: a pointer, or a pointer with
 * tags in bits that no address has set. The location itself must stay readable: a root, or part of
 * an object that is protected in another slot. If that other object may have been retired
 * meanwhile, its word proves nothing, even if it still leads to the object. So either the
 * structure changes the word when it unlinks the object that contains it, or the reader loads
 * again the word that leads to that object.
 *
 * To move protection to another slot, set that slot before you change the first, and use a slot of
 * higher number, because scans load each member's slots in ascending order. */

typedef uintptr_t __attribute__((may_alias)) ga_hazard_word;

static inline uint32_t ga_hazard_mode(const ga_hazards *mine)
{
    /* relaxed: ga_hazard_set() says why a late answer does no harm. */
    return __atomic_load_n(&mine->fence_mode, __ATOMIC_RELAXED);
}

/* The calling thread's member has changed to fences of its own. */
static inline void ga_hazard_confirm(const ga_hazards *mine)
{
    /* RC2: release. Pairs with RC3 (fences.c): slots that the member set before are visible. */
    __atomic_store_n((uint32_t *)(uintptr_t)&mine->fence_mode, (uint32_t)GA_HAZARD_SEQ_CST,
                     __ATOMIC_RELEASE);
}

/* Load the word at `location`, in an order that validates a ga_hazard_set() before it. Acquires:
 * writes from before the word was stored there are visible. */
static inline uintptr_t ga_hazard_load(const ga_hazards *mine, const ga_hazard_word *location)
{
#if GA_PLANTED(reclaim_validate_relaxed)
    return __atomic_load_n(location, __ATOMIC_RELAXED);
#endif
    /* RP2: seq_cst, or acquire. Pairs with RS1 (scan.c): this load sees that the object was
     * unlinked, or the scan sees the slot. Also acquires the writes that were published with the
     * word. */
    return ga_hazard_mode(mine) ? __atomic_load_n(location, __ATOMIC_SEQ_CST)
                                : __atomic_load_n(location, __ATOMIC_ACQUIRE);
}

/* Store an address in a slot. The object is protected if a ga_hazard_load() after this call finds
 * that the structure still leads to it. */
static inline void ga_hazard_set(const ga_hazards *mine, uint32_t slot, const void *object)
{
    uintptr_t *place = &mine->slots[slot];
    /* RP1: release. Pairs with RS2 (scan.c): reads of the slot's previous object happen before that
     * object is freed. */
    __atomic_store_n(place, (uintptr_t)object, __ATOMIC_RELEASE);
    /* RP3: the light fence, for the compiler alone. Pairs with RS1 (scan.c), whose membarrier turns
     * it into a full fence. The mode is loaded after RP1: a fence that acts too early for RP1 acts
     * early enough for the mode (fences.c). */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    uint32_t mode = ga_hazard_mode(mine);
    if (mode != GA_HAZARD_ASYMMETRIC && !GA_PLANTED(reclaim_slot_store_not_fenced)) {
        /* RP1: seq_cst. Pairs with RS1 and RS2 (scan.c), through RP2. */
        __atomic_store_n(place, (uintptr_t)object, __ATOMIC_SEQ_CST);
        if (__builtin_expect(mode == GA_HAZARD_UNCONFIRMED, 0)) {
            ga_hazard_confirm(mine);
        }
    }
}

/* To be called between ga_hazard_set() and a load that validates it, where that is none of
 * ga_hazard_load(): if the word is inside a map, say, which is asked again. The object is protected
 * if the map then still leads to it. */
static inline void ga_hazard_fence(const ga_hazards *mine)
{
    /* RP5: the light fence, as RP3, or a seq_cst one. Pairs with RS1 (scan.c): the load sees that
     * the object was unlinked, or the scan sees the slot. The mode as in RP3. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (ga_hazard_mode(mine)) {
#ifdef __SANITIZE_THREAD__
        /* GCC warns of fences here, because the thread sanitizer does not follow them. The store of
         * the slot takes the place of one: RP1, seq_cst in these modes. Pairs with RS1 (scan.c). */
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
#else
        /* RP5: seq_cst. Pairs with RS1 (scan.c). */
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
    }
}

/* From now on the slot protects nothing. */
static inline void ga_hazard_clear(const ga_hazards *mine, uint32_t slot)
{
#if GA_PLANTED(reclaim_clear_relaxed)
    __atomic_store_n(&mine->slots[slot], 0, __ATOMIC_RELAXED);
#else
    /* RP4: release. Pairs with RS2 (scan.c): reads of the object happen before it is freed. */
    __atomic_store_n(&mine->slots[slot], 0, __ATOMIC_RELEASE);
#endif
}

static inline void ga_hazard_clear_all(const ga_hazards *mine)
{
    for (uint32_t slot = 0; slot < mine->count; slot++) {
        ga_hazard_clear(mine, slot);
    }
}

/* One attempt to protect the object that `*word`, loaded from `location` before, leads to.
 * `tags` are the bits that are not part of the address. True if the location still holds
 * `*word`. Otherwise `*word` gets the location's present content, and the slot is set but
 * protects nothing. */
static inline bool ga_hazard_try(const ga_hazards *mine, uint32_t slot,
                                 const ga_hazard_word *location, uintptr_t tags, uintptr_t *word)
{
    uintptr_t seen = *word;
    ga_hazard_set(mine, slot, (const void *)(seen & ~tags));
    uintptr_t now = ga_hazard_load(mine, location);
    *word = GA_PLANTED(reclaim_not_validated) ? seen : now;
    return *word == seen;
}

/* Protect the object that the word at `location` leads to, and return that word with its tags.
 * Retries until it succeeds; only threads that change the location each time can make it retry. */
static inline uintptr_t ga_hazard_protect(const ga_hazards *mine, uint32_t slot,
                                          const ga_hazard_word *location, uintptr_t tags)
{
    /* relaxed: a guess, which RP2 validates. */
    uintptr_t word = __atomic_load_n(location, __ATOMIC_RELAXED);
    while (!ga_hazard_try(mine, slot, location, tags, &word)) {
    }
    return word;
}

/* ga_hazard_protect() for a pointer without tags. */
static inline void *ga_hazard_protect_pointer(const ga_hazards *mine, uint32_t slot,
                                              void *const *location)
{
    return (void *)ga_hazard_protect(mine, slot, (const ga_hazard_word *)location, 0);
}

/* ---- retiring ---------------------------------------------------------------------------- */

/* Free `object`. Called once for each object, in some member's thread, with no slot of the domain
 * holding it. It may retire other objects through the calling thread's membership
 * (ga_domain_join()), which a later scan frees, and may free anything. It may not leave, drain or
 * close the domain. */
typedef void ga_reclaim(void *context, void *object);

/* Make room for `count` objects, so that the calling thread's next `count` calls of the two
 * functions below cannot fail. Call it before an object is unlinked.
 *
 * GA_ERR_MEMORY  no memory; nothing was reserved */
GA_API ga_status ga_hazard_reserve(ga_hazards *mine, uint32_t count);

/* Retire `object`: it is freed by reclaim(context, object) once no slot holds its address. It must
 * be unlinked: no thread can find it any more that has not found it before. It is retired once.
 * Slots of the calling thread protect it like any other. `size` is its bytes for `batch_bytes`;
 * 0 if that does not matter. Some calls free a batch.
 *
 * GA_ERR_ARGUMENT  `object` or `reclaim` is NULL
 * GA_ERR_MEMORY    no room for the object, which stays the caller's. A ga_hazard_reserve() before
 *                  rules this out. */
GA_API ga_status ga_hazard_retire(ga_hazards *mine, void *object, size_t size, ga_reclaim *reclaim,
                                  void *context);

/* Retire a block that ga_free() returns to `heap` later. The heap must outlive the domain. A block
 * that the heap then refuses is lost to it and counted in `not_freed`. */
GA_API ga_status ga_hazard_retire_to(ga_hazards *mine, void *object, size_t size, ga_heap *heap);

#ifdef __cplusplus
}
#endif
#endif
