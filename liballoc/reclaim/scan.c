/* SPDX-License-Identifier: MIT
 *
 * Retiring objects, and scanning: the code that decides when a retired object is freed.
 * state.h has the structures, docs/internals/reclaim.md the proof.
 *
 * WHEN      A scan frees object x after three steps, in this order:
 *
 *             U    A thread unlinks x: the structure leads no further reader to x. That thread then
 *                  retires x.
 *             RS1  A heavy fence runs that began after U.
 *             RS2  The scan loads every slot of every member. No slot holds the address of x.
 *
 *           This is safe because a reader stores the address in its slot (RP1), then validates: it
 *           loads again the word that led it to x (RP2), and uses x only if the word still does.
 *           The heavy fence acts as a full fence in the reader's thread, at some point of it:
 *
 *             after RP1    RS2 sees x in the slot, and the scan keeps x for a later scan;
 *             before RP1   so before RP2, too: RP2 sees U, and the reader does not use x.
 *
 *           A reader that has done with x clears its slot or sets it to another object (RP4, RP1:
 *           release). RS2 acquires, so the reader's accesses to x happen before x is freed. A
 *           member that joins after the scan loaded the list of members (RH1, RH2) sets its slots
 *           after RS1: the second case.
 *
 * ORDER     reader (gpualloc/reclaim.h)                     scan (this file)
 *
 *           RP1  store the slot: release        pairs with   RS2  load the slot: acquire
 *           RP3  light fence, between RP1, RP2  pairs with   RS1  heavy fence: membarrier(2)
 *           RP2  load the word: acquire         pairs with   RS1; and with the store that
 *                                                           published x
 *           RP4  clear the slot: release        pairs with   RS2  load the slot: acquire
 *           RP5  as RP3, where the word is in   pairs with   RS1
 *                a structure that loads it
 *
 *           The light fence orders the compiler alone and costs no instruction. membarrier(2)
 *           makes every processor that runs a thread of the process execute a full fence; a switch
 *           to a thread that did not run is a full fence by itself. A domain with sequentially
 *           consistent protection does without: there RP1 and RP2 are seq_cst, RS1 is a seq_cst
 *           fence in the scanning thread alone, and "before" and "after RP1" mean their places in
 *           the single order of all seq_cst operations. If the kernel refuses a membarrier, scans
 *           free nothing until all members have changed to that (fences.c).
 *
 * SHARING   A membarrier interrupts all processors that run the process, so scans share them. The
 *           domain's heavy fences are numbered: RM2 counts one that begins, RM3 publishes the
 *           number of one that has ended. A member takes a ticket now and then (RM1): the number of
 *           heavy fences that have begun. Objects that were on its list then were unlinked before
 *           any fence of a higher number begins. Once one of a higher number has ended (RM4),
 *           whichever thread issued it, these objects need RS2 alone. No thread waits for another
 *           one's fence.
 *
 *           RM1  take a ticket: release         pairs with   RM2  begin a fence: acquire
 *           RM3  a fence has ended: release     pairs with   RM4  look for one: acquire
 *
 * CALLS     ga_hazard_retire, ga_hazard_retire_to
 *             retire                  append the object to the calling thread's list
 *               check_if_due          after a batch, then every eighth of one
 *                 check_list          takes a ticket, then does one of three:
 *                   schedule_check    nothing: the list is not nearly full, or a fence that another
 *                                     member issues will do for a third of it or more
 *                   scan_oldest       RS2 for the objects that another member's fence covers
 *                   ga_scan           RS1 and RS2 for the whole list, and for that of one orphan
 *                     defer_scan      where RS1 was refused: nothing is freed
 *
 *           ga_scan_can_free() makes the decision for one object. ga_scan_free_all() frees without
 *           RS1 and RS2, for a domain that is closed: its caller promises that no thread reads.
 *           A scan that gets no memory for the addresses in slots searches the slots themselves for
 *           each object, so a scan never fails for lack of memory.
 */
#include <gpualloc/backend.h>

#include "../platform/libc.h"
#include "../platform/membarrier.h"
#include "../platform/misuse.h"
#include "state.h"

#include <string.h>

#if defined(__SANITIZE_THREAD__)
#define GA_RECLAIM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GA_RECLAIM_TSAN 1
#endif
#endif

enum {
    FIRST_CAPACITY = 64,
    FILTER_SHIFT = 12, /* 2^12 bits */
    FILTER_WORDS = (1 << FILTER_SHIFT) / 64
};

/* ---- reading the slots --------------------------------------------------------------------- */

typedef struct scan_view {
    const ga_member *head;
    const uintptr_t *addresses; /* sorted; NULL: search the slots instead */
    uint32_t count;
    uint64_t filter[FILTER_WORDS];
} scan_view;

static uint32_t filter_bit(uintptr_t address)
{
    /* Fibonacci hashing: addresses that are multiples of 8 or 16 spread well. */
    return (uint32_t)((uint64_t)address * UINT64_C(0x9e3779b97f4a7c15) >> (64 - FILTER_SHIFT));
}

/* RS1, the heavy side of the asymmetric fence. On return, a reader that validates an object that
 * was unlinked before the call has its slot visible to RS2. False: the kernel refused
 * membarrier(2), and some member has not changed to fences of its own yet. */
static bool heavy_fence(ga_domain *domain)
{
#if GA_PLANTED(reclaim_no_heavy_fence)
    (void)domain;
    return true;
#endif
    if (ga_domain_fence_mode(domain) == GA_HAZARD_ASYMMETRIC) {
        /* RS1: a full fence in every thread. Pairs with RP3 (gpualloc/reclaim.h): if it acts after
         * RP3, RS2 sees the slot; if before, RP2 sees that the object was unlinked. */
        if (ga_membarrier.issue()) {
            return true;
        }
        ga_fences_change(domain);
    }
#ifdef GA_RECLAIM_TSAN
    /* RS1: seq_cst. Pairs with RP1 and RP2; an atomic access, because the thread sanitizer does not
     * model fences. */
    __atomic_fetch_add(&domain->order, 1, __ATOMIC_SEQ_CST);
#else
    /* RS1: seq_cst. Pairs with RP1 and RP2 (gpualloc/reclaim.h): U comes before it in this thread,
     * and the loads of the slots (RS2) after it. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
    return ga_fences_changed(domain);
}

static uintptr_t read_slot(const ga_member *member, uint32_t slot)
{
#if GA_PLANTED(reclaim_scan_relaxed)
    return __atomic_load_n(&member->hazards.slots[slot], __ATOMIC_RELAXED);
#else
    /* RS2: acquire. Pairs with RP1 and RP4 (gpualloc/reclaim.h): the reader's accesses to the
     * slot's previous object happen before that object is freed. Slots are loaded in ascending
     * order, so that a reader that copies an object to a slot of higher number is seen in one of
     * the two. */
    return __atomic_load_n(&member->hazards.slots[slot], __ATOMIC_ACQUIRE);
#endif
}

bool ga_scan_heavy_fence(ga_domain *domain)
{
    return heavy_fence(domain);
}

uintptr_t ga_scan_load_slot(const ga_member *member, uint32_t slot)
{
    return read_slot(member, slot);
}

static uint32_t slots_to_read(const ga_member *member)
{
    return GA_PLANTED(reclaim_only_first_slot_scanned) ? 1 : member->hazards.count;
}

static bool is_in_slots(const ga_member *head, uintptr_t address)
{
    for (const ga_member *member = head; member; member = member->next) {
        for (uint32_t slot = 0; slot < slots_to_read(member); slot++) {
            if (read_slot(member, slot) == address) {
                return true;
            }
        }
    }
    return false;
}

static bool is_in_sorted(const uintptr_t *addresses, uint32_t count, uintptr_t address)
{
    uint32_t low = 0;
    while (count) {
        uint32_t half = count / 2;
        if (addresses[low + half] == address) {
            return true;
        }
        if (addresses[low + half] < address) {
            low += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return false;
}

static bool is_protected(const scan_view *view, const void *object)
{
    uintptr_t address = (uintptr_t)object;
    uint32_t bit = filter_bit(address);
    if (!(view->filter[bit / 64] >> bit % 64 & 1)) {
        return false;
    }
    return view->addresses ? is_in_sorted(view->addresses, view->count, address)
                           : is_in_slots(view->head, address);
}

/* Shell's sort: as a rule there are few words, and qsort() may call the program's malloc. */
static void sort(uintptr_t *words, uint32_t count)
{
    for (uint32_t gap = count / 2; gap; gap /= 2) {
        for (uint32_t i = gap; i < count; i++) {
            uintptr_t word = words[i];
            uint32_t j = i;
            for (; j >= gap && words[j - gap] > word; j -= gap) {
                words[j] = words[j - gap];
            }
            words[j] = word;
        }
    }
}

/* Saturating addition: UINT64_MAX means no limit. */
static uint64_t add_capped(uint64_t bytes, uint64_t more)
{
    return bytes > UINT64_MAX - more ? UINT64_MAX : bytes + more;
}

/* An array for the contents of `words` slots; NULL if there is no memory. */
static uintptr_t *reserve_addresses(ga_member *me, uint64_t words)
{
    if (me->addresses_capacity < words) {
        uintptr_t *addresses =
            words <= UINT32_MAX ? ga_libc.malloc(words * sizeof *addresses) : NULL;
        if (!addresses) {
            return NULL;
        }
        uintptr_t *old = me->addresses;
        /* RF4: release. Pairs with fork(): a child finds an array that has not been freed. */
        __atomic_store_n(&me->addresses, addresses, __ATOMIC_RELEASE);
        me->addresses_capacity = (uint32_t)words;
        ga_libc.free(old);
    }
    return me->addresses;
}

static void read_slots(ga_member *me, scan_view *view)
{
    memset(view->filter, 0, sizeof view->filter);
    view->head = ga_member_head(me->domain);
    view->count = 0;
    uintptr_t *addresses = reserve_addresses(me, (uint64_t)view->head->number * me->domain->slots);
    view->addresses = addresses;
    for (const ga_member *member = view->head; member; member = member->next) {
        for (uint32_t slot = 0; slot < slots_to_read(member); slot++) {
            uintptr_t word = read_slot(member, slot);
            if (word) {
                uint32_t bit = filter_bit(word);
                view->filter[bit / 64] |= UINT64_C(1) << bit % 64;
                if (addresses) {
                    addresses[view->count++] = word;
                }
            }
        }
    }
    if (addresses) {
        sort(addresses, view->count);
    }
}

/* ---- lists --------------------------------------------------------------------------------- */

static void set_borders(ga_member *owner, uint32_t kept, uint32_t first)
{
    /* RF2: release. Pairs with fork(): list[kept - 1] was in its place before. */
    __atomic_store_n(&owner->borders, (uint64_t)first << 32 | kept, __ATOMIC_RELEASE);
}

static void set_count(ga_member *owner, uint32_t count)
{
    /* RF1: release. Pairs with fork(): list[count - 1] was in its place before. And with RF5
     * (domain.c): a scan has changed the count before it sets the borders to 0. */
    __atomic_store_n(&owner->count, count, __ATOMIC_RELEASE);
}

/* True if scans of the domain share heavy fences. Under the thread sanitizer sharing saves nothing;
 * there it is on so that the sanitizer sees its ordering. */
static bool shares_fences(const ga_domain *domain)
{
#ifdef GA_RECLAIM_TSAN
    (void)domain;
    return true;
#else
    return ga_domain_fence_mode(domain) == GA_HAZARD_ASYMMETRIC;
#endif
}

static uint32_t check_interval(uint32_t batch)
{
    return batch / GA_RECLAIM_TICKETS + (batch % GA_RECLAIM_TICKETS != 0);
}

/* An eighth of the bytes that the member may hold for now, rounded up. */
static uint64_t check_interval_bytes(const ga_member *owner)
{
    uint64_t bytes = add_capped(ga_domain_uncharged_bytes(owner->domain), owner->charged);
    return bytes / GA_RECLAIM_TICKETS + (bytes % GA_RECLAIM_TICKETS != 0);
}

/* The next check comes after a check interval, or when a scan is due if that is sooner. */
static void schedule_check(ga_member *owner)
{
    const ga_domain *domain = owner->domain;
    uint32_t count = owner->count + check_interval(domain->batch);
    uint64_t bytes = add_capped(owner->bytes, check_interval_bytes(owner));
    owner->check_at = shares_fences(domain) && count < owner->scan_at ? count : owner->scan_at;
    owner->check_at_bytes =
        shares_fences(domain) && bytes < owner->scan_at_bytes ? bytes : owner->scan_at_bytes;
}

/* ---- the domain's bytes -------------------------------------------------------------------- */

static bool charge(ga_member *me, uint64_t more)
{
    ga_domain *domain = me->domain;
    uint64_t charged = __atomic_load_n(&domain->charged, __ATOMIC_RELAXED);
    do {
        if (more > domain->batch_bytes - charged) {
            return false;
        }
        /* relaxed: a sum that publishes nothing. */
    } while (!__atomic_compare_exchange_n(&domain->charged, &charged, charged + more, true,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    me->charged += more;
    return true;
}

/* Double the bytes at which the member scans, as far as its share of the domain's budget and the
 * other members' charges allow. False: the member gets no more. */
static bool raise_byte_limit(ga_member *me)
{
    uint64_t now = ga_domain_uncharged_bytes(me->domain) + me->charged;
    uint64_t budget = me->domain->batch_bytes;
    uint64_t share = budget > GA_RECLAIM_UNCHARGED ? budget / GA_RECLAIM_SHARE_DIV : 0;
    uint64_t allowed = share > me->charged ? share - me->charged : 0;
    uint64_t more = now < allowed ? now : allowed;
    if (!more || !charge(me, more)) {
        return false;
    }
    me->scan_at_bytes = add_capped(me->scan_at_bytes, more);
    return true;
}

/* After a scan: keep the charge for bytes that the scan did not cover, and return the rest. */
static void release_charge(ga_member *owner, uint64_t still_protected_bytes)
{
    uint64_t free = ga_domain_uncharged_bytes(owner->domain);
    uint64_t unseen = owner->bytes - still_protected_bytes;
    uint64_t kept_charge = unseen > free ? unseen - free : 0;
    if (kept_charge < owner->charged) {
        /* relaxed: as in charge(). */
        __atomic_fetch_sub(&owner->domain->charged, owner->charged - kept_charge, __ATOMIC_RELAXED);
        owner->charged = kept_charge;
    }
    owner->scan_at_bytes = add_capped(add_capped(still_protected_bytes, free), owner->charged);
}

/* ---- freeing ------------------------------------------------------------------------------- */

static void free_one(ga_member *me, const ga_retired *retired)
{
    if (retired->reclaim) {
        retired->reclaim(retired->context, retired->object);
        return;
    }
    ga_status status = ga_free(retired->context, retired->object);
    if (status == GA_ERR_POINTER) {
        ga_misuse_report("free", retired->object, ga_error_text());
    }
    if (status != GA_OK) {
        ga_member_count(&me->counts.not_freed, 1);
    }
}

/* Free the oldest `end` objects of `owner`'s list, except those that a slot holds. The others stay,
 * because they may have been unlinked after this scan's RS1. They include the objects that reclaim
 * functions retire meanwhile, which go to the end of `me`'s list. */
static void free_unprotected(ga_member *me, ga_member *owner, uint32_t end, const scan_view *view)
{
    uint32_t kept = 0;
    uint32_t still_protected = 0;
    uint64_t still_protected_bytes = 0;
    for (uint32_t i = 0; i < owner->count; i++) {
        ga_retired retired = owner->list[i];
        bool late = i >= end && !GA_PLANTED(reclaim_late_objects_freed);
        if (late || is_protected(view, retired.object)) {
            owner->list[kept++] = retired;
            still_protected += !late;
            still_protected_bytes += late ? 0 : retired.size;
            set_borders(owner, kept, i + 1);
        } else {
            set_borders(owner, kept, i + 1);
            ga_member_set_bytes(owner, owner->bytes - retired.size);
            free_one(me, &retired);
        }
    }
    set_count(owner, kept);
    set_borders(owner, 0, 0);
    owner->scan_at = still_protected + me->domain->batch;
    release_charge(owner, still_protected_bytes);
    schedule_check(owner);
}

/* Take over the retire list of a thread that has left; NULL if there is none. Round robin: the
 * search begins behind the member that was adopted last. */
static ga_member *adopt_orphan(ga_domain *domain)
{
    /* relaxed: it decides which orphan comes next, and nothing else. */
    uint32_t last = __atomic_load_n(&domain->last_adopted, __ATOMIC_RELAXED);
    ga_member *head = ga_member_head(domain);
    for (int round = 0; round < 2; round++) {
        for (ga_member *member = head; member; member = member->next) {
            if ((round || member->number < last) &&
                ga_member_claim(member, GA_MEMBER_ORPHANED, GA_MEMBER_ADOPTED)) {
                __atomic_store_n(&domain->last_adopted, member->number, __ATOMIC_RELAXED);
                return member;
            }
        }
    }
    return NULL;
}

static void defer_scan(ga_member *me)
{
    me->scan_at = me->count + me->domain->batch;
    me->scan_at_bytes =
        add_capped(me->bytes, add_capped(ga_domain_uncharged_bytes(me->domain), me->charged));
    schedule_check(me);
    ga_member_count(&me->counts.refused, 1);
}

/* RS1 with a number, so that other members can use it for their objects. */
static bool heavy_fence_numbered(ga_member *me)
{
    ga_domain *domain = me->domain;
    /* RM2: acquire. Pairs with RM1: the objects that a ticket with a lower number covers were
     * unlinked before RS1 begins. */
    me->own_fence = __atomic_add_fetch(&domain->fences_begun, 1, __ATOMIC_ACQUIRE);
    if (!heavy_fence(domain)) {
        return false;
    }
    /* RM3: release. Pairs with RM4: RS1 has ended. The number may be lower than the one it
     * replaces; it is still the number of a fence that has ended. */
    __atomic_store_n(&domain->fence_ended, me->own_fence, __ATOMIC_RELEASE);
    return true;
}

static void begin_frees(ga_member *me, scan_view *view)
{
    ga_member_count(&me->counts.scans, 1);
    me->freeing = true;
    read_slots(me, view);
}

bool ga_scan(ga_member *me)
{
    scan_view view;
    /* Before RS1, so that RJ3 orders the orphan's unlinking stores before it. */
    ga_member *orphan = me->adopted = adopt_orphan(me->domain);
    bool ordered = heavy_fence_numbered(me);
    if (ordered) {
        begin_frees(me, &view);
        free_unprotected(me, me, me->count, &view);
        if (orphan) {
            uint32_t before = orphan->count;
            free_unprotected(me, orphan, before, &view);
            ga_member_count(&me->counts.inherited, before - orphan->count);
        }
        me->freeing = false;
    } else {
        defer_scan(me);
    }
    if (orphan) {
        me->adopted = NULL;
        ga_member_give_up(orphan);
    }
    return ordered;
}

/* ---- sharing membarriers ------------------------------------------------------------------- */

/* Take a ticket: returns the number of heavy fences that have begun. Objects on the list now were
 * unlinked before any later fence begins. */
static uint64_t take_ticket(ga_member *me)
{
    ga_ticket *ticket = &me->tickets[me->tickets_taken++ % GA_RECLAIM_TICKETS];
    ticket->retired = me->counts.retired;
    /* RM1: release. Pairs with RM2. It adds 0: a read-modify-write, because the fence that takes
     * its number after it must acquire from here. */
    ticket->fences_begun = __atomic_fetch_add(&me->domain->fences_begun, 0, __ATOMIC_RELEASE);
    return ticket->fences_begun;
}

/* How many objects, counted from the oldest, were unlinked before heavy fence `number` began. */
static uint32_t count_unlinked_before(const ga_member *me, uint64_t number)
{
    for (uint32_t i = 1; i <= GA_RECLAIM_TICKETS; i++) {
        const ga_ticket *ticket = &me->tickets[(me->tickets_taken - i) % GA_RECLAIM_TICKETS];
        if (ticket->fences_begun + (!GA_PLANTED(reclaim_earlier_fence_counted)) <= number) {
            uint64_t since = me->counts.retired - ticket->retired;
            return since < me->count ? me->count - (uint32_t)since : 0;
        }
    }
    return 0;
}

/* True if a shared scan of the `oldest` objects covers at least a third of the objects that came
 * since the last scan. */
static bool pays_off(const ga_member *me, uint32_t oldest)
{
    uint64_t last_protected = me->scan_at - me->domain->batch;
    return UINT64_C(3) * oldest >= me->count + 2 * last_protected;
}

static bool is_scan_due(const ga_member *me)
{
    return me->count >= me->scan_at || me->bytes >= me->scan_at_bytes;
}

static bool is_scan_near_by_bytes(const ga_member *me)
{
    return add_capped(me->bytes, 2 * check_interval_bytes(me)) >= me->scan_at_bytes;
}

/* Two check intervals before a scan is due, so that a membarrier has time to end. */
static bool is_scan_near(const ga_member *me)
{
    return me->count + 2 * check_interval(me->domain->batch) >= me->scan_at ||
           is_scan_near_by_bytes(me);
}

/* True if the member may go on without a heavy fence of its own for now: no other member has issued
 * one since the member's last, so that there is nobody to share with, or a fence is running that
 * will cover enough. */
static bool can_wait(const ga_member *me, uint64_t fences_begun)
{
    return !is_scan_due(me) &&
           (fences_begun == me->own_fence || pays_off(me, count_unlinked_before(me, fences_begun)));
}

static void scan_oldest(ga_member *me, uint32_t oldest)
{
    scan_view view;
    ga_member_count(&me->counts.shared, 1);
    begin_frees(me, &view);
    free_unprotected(me, me, oldest, &view);
    me->freeing = false;
}

/* Check the list, and scan it if that pays or is due. True: it was scanned. */
static bool check_list(ga_member *me)
{
    while (is_scan_near_by_bytes(me) && raise_byte_limit(me)) {
    }
    if (!shares_fences(me->domain)) {
        if (!is_scan_due(me)) {
            schedule_check(me);
            return false;
        }
        return ga_scan(me);
    }
    uint64_t fences_begun = take_ticket(me);
    if (is_scan_near(me)) {
        /* RM4: acquire. Pairs with RM3: slots that were visible when that RS1 ended are visible to
         * RS2. */
        uint64_t fence_ended = __atomic_load_n(&me->domain->fence_ended, __ATOMIC_ACQUIRE);
        uint32_t oldest = count_unlinked_before(
            me, GA_PLANTED(reclaim_unfinished_fence_counted) ? fences_begun : fence_ended);
        if (pays_off(me, oldest)) {
            scan_oldest(me, oldest);
            return true;
        }
        if (!can_wait(me, fences_begun)) {
            return ga_scan(me);
        }
    }
    schedule_check(me);
    return false;
}

static bool is_check_due(const ga_member *me)
{
    return me->count >= me->check_at || me->bytes >= me->check_at_bytes;
}

/* More than one scan in a row happens only if reclaim functions retired a batch, or if large
 * objects stayed on the list. */
static void check_if_due(ga_member *me)
{
    while (is_check_due(me) && !me->freeing && check_list(me)) {
    }
}

bool ga_scan_all(ga_member *me)
{
    uint64_t before;
    do {
        before = me->counts.retired;
        if (!ga_scan(me)) {
            return false;
        }
    } while (me->counts.retired != before);
    return true;
}

bool ga_scan_can_free(ga_domain *domain, const void *object)
{
    return heavy_fence(domain) && !is_in_slots(ga_member_head(domain), (uintptr_t)object);
}

void ga_scan_free_all(ga_member *me, ga_member *owner)
{
    scan_view nothing = {.head = NULL};
    me->freeing = true;
    while (owner->count) {
        free_unprotected(me, owner, owner->count, &nothing);
    }
    me->freeing = false;
}

/* ---- retiring ------------------------------------------------------------------------------ */

static bool grow_list(ga_member *me, uint64_t capacity)
{
    if (capacity > UINT32_MAX / 2) {
        return false;
    }
    ga_retired *list = ga_libc.malloc(capacity * sizeof *list);
    if (!list) {
        return false;
    }
    if (me->count) {
        memcpy(list, me->list, me->count * sizeof *list);
    }
    ga_retired *old = me->list;
    /* RF3: release. Pairs with fork(): the objects are in the new array before. */
    __atomic_store_n(&me->list, list, __ATOMIC_RELEASE);
    me->capacity = (uint32_t)capacity;
    ga_libc.free(old);
    return true;
}

/* Make room for `count` objects. If memory is short, a scan may make room. */
static ga_status make_room(ga_member *me, uint32_t count)
{
    uint64_t needed = (uint64_t)me->count + count;
    uint64_t doubled = (uint64_t)me->capacity * 2 + FIRST_CAPACITY;
    if (grow_list(me, doubled > needed ? doubled : needed) || grow_list(me, needed)) {
        return GA_OK;
    }
    if (!me->freeing && me->count) {
        ga_scan(me);
    }
    if (me->capacity - me->count >= count) {
        return GA_OK;
    }
    return ga_fail(GA_ERR_MEMORY, "domain: no memory for a list of %llu retired objects",
                   (unsigned long long)needed);
}

ga_status ga_hazard_reserve(ga_hazards *mine, uint32_t count)
{
    ga_member *me = (ga_member *)mine;
    if (!mine) {
        return ga_fail(GA_ERR_ARGUMENT, "domain: no membership; expected ga_domain_join()'s");
    }
    return me->capacity - me->count >= count ? GA_OK : make_room(me, count);
}

/* Inlined, with the arguments in registers: a record passed through memory would be stored in four
 * words and reloaded in two, and that store-forwarding stall is a third of the cost of retiring. */
static inline __attribute__((always_inline)) ga_status
retire(ga_member *me, void *object, ga_reclaim *reclaim, void *context, size_t size)
{
    if (__builtin_expect(me->count == me->capacity, 0)) {
        ga_status status = make_room(me, 1);
        if (status != GA_OK) {
            return status;
        }
    }
    uint32_t count = me->count;
    ga_retired *record = &me->list[count];
    record->object = object;
    record->reclaim = reclaim;
    record->context = context;
    record->size = size;
    ga_member_set_bytes(me, me->bytes + size);
    set_count(me, count + 1);
    ga_member_count(&me->counts.retired, 1); /* not before it is pending */
    if (__builtin_expect(is_check_due(me), 0)) {
        check_if_due(me);
    }
    return GA_OK;
}

static ga_status refuse(const ga_hazards *mine, const void *object, const char *missing)
{
    return ga_fail(GA_ERR_ARGUMENT, "domain: %s is NULL; expected %s",
                   !mine     ? "the membership"
                   : !object ? "the object"
                             : missing,
                   !mine ? "ga_domain_join()'s" : "the object and a function to free it");
}

ga_status ga_hazard_retire(ga_hazards *mine, void *object, size_t size, ga_reclaim *reclaim,
                           void *context)
{
    if (!mine || !object || !reclaim) {
        return refuse(mine, object, "the reclaim function");
    }
    return retire((ga_member *)mine, object, reclaim, context, size);
}

ga_status ga_hazard_retire_to(ga_hazards *mine, void *object, size_t size, ga_heap *heap)
{
    if (!mine || !object || !heap) {
        return refuse(mine, object, "the heap");
    }
    return retire((ga_member *)mine, object, NULL, heap, size);
}
