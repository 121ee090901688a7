/* SPDX-License-Identifier: MIT
 *
 * Retiring and scanning; state.h has what stands where. A scan makes sure that every reader
 * either has its slot set for all to see, or will see that the object is gone (S1). Then it
 * reads all slots once, sorts what it found, and goes through the list: for almost every object
 * one bit of a filter says that no slot holds it.
 *
 * Membarriers interrupt all threads, so scans share them where they can, and nobody waits for
 * anybody's: each has a number. A list is marked with how many have begun, and what stands before
 * the mark may be freed, as far as no slot holds it, once one of a higher number is over.
 *
 * Where there is no memory for what was found, each suspect is looked for in the slots
 * themselves: a scan never fails for want of memory.
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
    FIRST_ROOM = 64,
    FILTER_SHIFT = 12, /* a filter of 2^12 bits */
    FILTER_WORDS = (1 << FILTER_SHIFT) / 64
};

/* ---- what the slots hold ------------------------------------------------------------------- */

typedef struct scan_view {
    const ga_member *head;
    const uintptr_t *seen; /* sorted; NULL: ask the slots */
    uint32_t count;
    uint64_t filter[FILTER_WORDS];
} scan_view;

static uint32_t filter_bit(uintptr_t address)
{
    /* Fibonacci hashing: any multiple of 8 or 16 spreads well. */
    return (uint32_t)((uint64_t)address * UINT64_C(0x9e3779b97f4a7c15) >> (64 - FILTER_SHIFT));
}

/* Every reader that finds an object which was unlinked before this call, and confirms it, has
 * set its slot for us to see. False: the kernel refuses a membarrier, and some member has not
 * changed to fences of its own yet. */
static bool order_readers(ga_domain *domain)
{
#if GA_RECLAIM_MUTANT == 3
    (void)domain;
    return true;
#endif
    if (ga_domain_fences(domain) == GA_HAZARD_ASYMMETRIC) {
        /* S1: a fence in every thread. Pairs with P3 (gpualloc/reclaim.h): before it, the slot
         * is set for S2 to see; after it, P2 sees that the object was unlinked. */
        if (ga_membarrier.issue()) {
            return true;
        }
        ga_fences_change(domain);
    }
#ifdef GA_RECLAIM_TSAN
    /* S1: seq_cst. Pairs with P1 and P2; an access, because that sanitizer sees no fences. */
    __atomic_fetch_add(&domain->order, 1, __ATOMIC_SEQ_CST);
#else
    /* S1: seq_cst. Pairs with P1 and P2 (gpualloc/reclaim.h): the unlinking stands before it,
     * the reading of the slots behind it. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
    return ga_fences_changed(domain);
}

static uintptr_t read_slot(const ga_member *member, uint32_t slot)
{
#if GA_RECLAIM_MUTANT == 6
    return __atomic_load_n(&member->hazards.slots[slot], __ATOMIC_RELAXED);
#else
    /* S2: acquire. Pairs with P1 and P4 (gpualloc/reclaim.h): what its reader did with the slot's
     * last object happens before that is freed. Upwards, so that who copies an object to a slot
     * of higher number is seen with the one or the other. */
    return __atomic_load_n(&member->hazards.slots[slot], __ATOMIC_ACQUIRE);
#endif
}

bool ga_scan_order(ga_domain *domain)
{
    return order_readers(domain);
}

uintptr_t ga_scan_slot(const ga_member *member, uint32_t slot)
{
    return read_slot(member, slot);
}

static uint32_t slots_to_read(const ga_member *member)
{
    return GA_RECLAIM_MUTANT == 7 ? 1 : member->hazards.count;
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

static bool is_in_sorted(const uintptr_t *seen, uint32_t count, uintptr_t address)
{
    uint32_t low = 0;
    while (count) {
        uint32_t half = count / 2;
        if (seen[low + half] == address) {
            return true;
        }
        if (seen[low + half] < address) {
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
    return view->seen ? is_in_sorted(view->seen, view->count, address)
                      : is_in_slots(view->head, address);
}

/* Shell's sort: few words as a rule, and no call to anybody else's malloc. */
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

/* Where there is no limit there is none plus something, either. */
static uint64_t capped(uint64_t bytes, uint64_t more)
{
    return bytes > UINT64_MAX - more ? UINT64_MAX : bytes + more;
}

/* Room for what `words` slots hold; NULL where there is none. */
static uintptr_t *make_seen(ga_member *me, uint64_t words)
{
    if (me->seen_room < words) {
        uintptr_t *seen = words <= UINT32_MAX ? ga_libc.malloc(words * sizeof *seen) : NULL;
        if (!seen) {
            return NULL;
        }
        uintptr_t *old = me->seen;
        /* F4: release. Pairs with fork(): a child finds one that has not been freed. */
        __atomic_store_n(&me->seen, seen, __ATOMIC_RELEASE);
        me->seen_room = (uint32_t)words;
        ga_libc.free(old);
    }
    return me->seen;
}

static void read_slots(ga_member *me, scan_view *view)
{
    memset(view->filter, 0, sizeof view->filter);
    view->head = ga_member_head(me->domain);
    view->count = 0;
    uintptr_t *seen = make_seen(me, (uint64_t)view->head->number * me->domain->slots);
    view->seen = seen;
    for (const ga_member *member = view->head; member; member = member->next) {
        for (uint32_t slot = 0; slot < slots_to_read(member); slot++) {
            uintptr_t word = read_slot(member, slot);
            if (word) {
                uint32_t bit = filter_bit(word);
                view->filter[bit / 64] |= UINT64_C(1) << bit % 64;
                if (seen) {
                    seen[view->count++] = word;
                }
            }
        }
    }
    if (seen) {
        sort(seen, view->count);
    }
}

/* ---- lists --------------------------------------------------------------------------------- */

static void set_borders(ga_member *of, uint32_t kept, uint32_t first)
{
    /* F2: release. Pairs with fork(): list[kept - 1] was in its place before. */
    __atomic_store_n(&of->borders, (uint64_t)first << 32 | kept, __ATOMIC_RELEASE);
}

static void set_count(ga_member *of, uint32_t count)
{
    /* F1: release. Pairs with fork(): list[count - 1] was in its place before. */
    __atomic_store_n(&of->count, count, __ATOMIC_RELEASE);
}

/* Where scans of the domain may share what S1 costs. The thread sanitizer's have nothing to save,
 * and do so that it sees how. */
static bool shares(const ga_domain *domain)
{
#ifdef GA_RECLAIM_TSAN
    (void)domain;
    return true;
#else
    return ga_domain_fences(domain) == GA_HAZARD_ASYMMETRIC;
#endif
}

static uint32_t part_of(uint32_t batch)
{
    return batch / GA_RECLAIM_MARKS + (batch % GA_RECLAIM_MARKS != 0);
}

/* Of what the member may collect for now. */
static uint64_t part_of_bytes(const ga_member *of)
{
    uint64_t bytes = capped(ga_domain_free_bytes(of->domain), of->charged);
    return bytes / GA_RECLAIM_MARKS + (bytes % GA_RECLAIM_MARKS != 0);
}

/* A part of a batch later, and not later than when it is full. */
static void look_later(ga_member *of)
{
    const ga_domain *domain = of->domain;
    uint32_t count = of->count + part_of(domain->batch);
    uint64_t bytes = capped(of->bytes, part_of_bytes(of));
    of->limit = shares(domain) && count < of->full ? count : of->full;
    of->limit_bytes = shares(domain) && bytes < of->full_bytes ? bytes : of->full_bytes;
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
        /* relaxed: a sum, through which nothing is read. */
    } while (!__atomic_compare_exchange_n(&domain->charged, &charged, charged + more, true,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    me->charged += more;
    return true;
}

/* A member that is about to be full may collect twice as much, as far as its share of the domain's
 * bytes, and what others have left of them, allow. */
static bool double_bytes(ga_member *me)
{
    uint64_t now = ga_domain_free_bytes(me->domain) + me->charged;
    uint64_t budget = me->domain->batch_bytes;
    uint64_t share = budget > GA_RECLAIM_FREE ? budget / GA_RECLAIM_SHARE : 0;
    uint64_t left = share > me->charged ? share - me->charged : 0;
    uint64_t more = now < left ? now : left;
    if (!more || !charge(me, more)) {
        return false;
    }
    me->full_bytes = capped(me->full_bytes, more);
    return true;
}

/* After a scan: keep what is charged for bytes that it had not to look at, and no more. */
static void settle_bytes(ga_member *of, uint64_t left)
{
    uint64_t free = ga_domain_free_bytes(of->domain);
    uint64_t unseen = of->bytes - left;
    uint64_t keep = unseen > free ? unseen - free : 0;
    if (keep < of->charged) {
        /* relaxed: as in charge(). */
        __atomic_fetch_sub(&of->domain->charged, of->charged - keep, __ATOMIC_RELAXED);
        of->charged = keep;
    }
    of->full_bytes = capped(capped(left, free), of->charged);
}

/* ---- sweeping ------------------------------------------------------------------------------ */

static void free_one(ga_member *me, const ga_retired *retired)
{
    ga_member_count(&me->counts.freed, 1);
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

/* The oldest `end` objects: others, and what a reclaim function retires meanwhile, which goes to
 * the end of `me`'s list, were perhaps not unlinked before this scan's S1, so they stay. */
static void sweep(ga_member *me, ga_member *of, uint32_t end, const scan_view *view)
{
    uint32_t kept = 0;
    uint32_t left = 0;
    uint64_t left_bytes = 0;
    for (uint32_t i = 0; i < of->count; i++) {
        ga_retired retired = of->list[i];
        bool late = i >= end && GA_RECLAIM_MUTANT != 8;
        if (late || is_protected(view, retired.object)) {
            of->list[kept++] = retired;
            left += !late;
            left_bytes += late ? 0 : retired.size;
            set_borders(of, kept, i + 1);
        } else {
            set_borders(of, kept, i + 1);
            ga_member_set_bytes(of, of->bytes - retired.size);
            free_one(me, &retired);
        }
    }
    set_count(of, kept);
    set_borders(of, 0, 0);
    of->full = left + me->domain->batch;
    settle_bytes(of, left_bytes);
    look_later(of);
}

/* One member that has left something, each in turn; NULL where there is none. */
static ga_member *take_left(ga_domain *domain)
{
    /* relaxed: whose turn it is is a matter of fairness only. */
    uint32_t last = __atomic_load_n(&domain->tended, __ATOMIC_RELAXED);
    ga_member *head = ga_member_head(domain);
    for (int round = 0; round < 2; round++) {
        for (ga_member *member = head; member; member = member->next) {
            if ((round || member->number < last) &&
                ga_member_take(member, GA_MEMBER_LEFT, GA_MEMBER_TENDED)) {
                __atomic_store_n(&domain->tended, member->number, __ATOMIC_RELAXED);
                return member;
            }
        }
    }
    return NULL;
}

static void put_off(ga_member *me)
{
    me->full = me->count + me->domain->batch;
    me->full_bytes = capped(me->bytes, capped(ga_domain_free_bytes(me->domain), me->charged));
    look_later(me);
    ga_member_count(&me->counts.refused, 1);
}

/* S1, with a number, for all. */
static bool order_for_all(ga_member *me)
{
    ga_domain *domain = me->domain;
    /* M2: acquire. Pairs with M1: what stands before a mark of a lower number was unlinked before
     * S1 begins. */
    me->own = __atomic_add_fetch(&domain->begun, 1, __ATOMIC_ACQUIRE);
    if (!order_readers(domain)) {
        return false;
    }
    /* M3: release. Pairs with M4: S1 has ended. Where one of a higher number ended before, and now
     * a lower one stands here, that is as true. */
    __atomic_store_n(&domain->over, me->own, __ATOMIC_RELEASE);
    return true;
}

static void begin_sweep(ga_member *me, scan_view *view)
{
    ga_member_count(&me->counts.scans, 1);
    me->sweeping = true;
    read_slots(me, view);
}

bool ga_scan(ga_member *me)
{
    scan_view view;
    /* Before S1: what its thread had retired was unlinked before. */
    ga_member *left = me->tending = take_left(me->domain);
    bool ordered = order_for_all(me);
    if (ordered) {
        begin_sweep(me, &view);
        sweep(me, me, me->count, &view);
        if (left) {
            uint32_t before = left->count;
            sweep(me, left, before, &view);
            ga_member_count(&me->counts.inherited, before - left->count);
        }
        me->sweeping = false;
    } else {
        put_off(me);
    }
    if (left) {
        me->tending = NULL;
        ga_member_hand_on(left);
    }
    return ordered;
}

/* ---- sharing membarriers ------------------------------------------------------------------- */

/* How many have begun by now; what is on the list was unlinked before any further one begins. */
static uint64_t mark(ga_member *me)
{
    ga_mark *mark = &me->marks[me->marked++ % GA_RECLAIM_MARKS];
    mark->retired = me->counts.retired;
    /* M1: release; nothing is added, but what reads the number from here, or later, acquires. Pairs
     * with M2. */
    mark->begun = __atomic_fetch_add(&me->domain->begun, 0, __ATOMIC_RELEASE);
    return mark->begun;
}

/* How many objects, the oldest, were certainly unlinked before membarrier `number` began. */
static uint32_t count_before(const ga_member *me, uint64_t number)
{
    for (uint32_t i = 1; i <= GA_RECLAIM_MARKS; i++) {
        const ga_mark *mark = &me->marks[(me->marked - i) % GA_RECLAIM_MARKS];
        if (mark->begun + (GA_RECLAIM_MUTANT != 14) <= number) {
            uint64_t since = me->counts.retired - mark->retired;
            return since < me->count ? me->count - (uint32_t)since : 0;
        }
    }
    return 0;
}

/* Whether these are a third of what has come since the last scan. */
static bool is_worth_it(const ga_member *me, uint32_t oldest)
{
    uint64_t left = me->full - me->domain->batch;
    return UINT64_C(3) * oldest >= me->count + 2 * left;
}

static bool is_full(const ga_member *me)
{
    return me->count >= me->full || me->bytes >= me->full_bytes;
}

static bool is_nearly_full_of_bytes(const ga_member *me)
{
    return capped(me->bytes, 2 * part_of_bytes(me)) >= me->full_bytes;
}

/* But for two parts of a batch: time for a membarrier to end. */
static bool is_nearly_full(const ga_member *me)
{
    return me->count + 2 * part_of(me->domain->batch) >= me->full || is_nearly_full_of_bytes(me);
}

/* Whether to go on without a membarrier for now: one that would do is running, or nobody else makes
 * any whose own this one could save. */
static bool can_wait(const ga_member *me, uint64_t begun)
{
    return !is_full(me) && (begun == me->own || is_worth_it(me, count_before(me, begun)));
}

static void scan_oldest(ga_member *me, uint32_t oldest)
{
    scan_view view;
    ga_member_count(&me->counts.shared, 1);
    begin_sweep(me, &view);
    sweep(me, me, oldest, &view);
    me->sweeping = false;
}

/* True where it was scanned. */
static bool look_at(ga_member *me)
{
    while (is_nearly_full_of_bytes(me) && double_bytes(me)) {
    }
    if (!shares(me->domain)) {
        if (!is_full(me)) {
            look_later(me);
            return false;
        }
        return ga_scan(me);
    }
    uint64_t begun = mark(me);
    if (is_nearly_full(me)) {
        /* M4: acquire. Pairs with M3: what was in slots before that S1 is there for S2 to see. */
        uint64_t over = __atomic_load_n(&me->domain->over, __ATOMIC_ACQUIRE);
        uint32_t oldest = count_before(me, GA_RECLAIM_MUTANT == 13 ? begun : over);
        if (is_worth_it(me, oldest)) {
            scan_oldest(me, oldest);
            return true;
        }
        if (!can_wait(me, begun)) {
            return ga_scan(me);
        }
    }
    look_later(me);
    return false;
}

static bool is_due(const ga_member *me)
{
    return me->count >= me->limit || me->bytes >= me->limit_bytes;
}

/* More than one scan is due only where reclaim functions retired a batch, or large ones stayed. */
static void look_if_due(ga_member *me)
{
    while (is_due(me) && !me->sweeping && look_at(me)) {
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

bool ga_scan_single(ga_domain *domain, const void *object)
{
    return order_readers(domain) && !is_in_slots(ga_member_head(domain), (uintptr_t)object);
}

void ga_scan_empty(ga_member *me, ga_member *of)
{
    scan_view nothing = {.head = NULL};
    me->sweeping = true;
    while (of->count) {
        sweep(me, of, of->count, &nothing);
    }
    me->sweeping = false;
}

/* ---- retiring ------------------------------------------------------------------------------ */

static bool grow_list(ga_member *me, uint64_t room)
{
    if (room > UINT32_MAX / 2) {
        return false;
    }
    ga_retired *list = ga_libc.malloc(room * sizeof *list);
    if (!list) {
        return false;
    }
    if (me->count) {
        memcpy(list, me->list, me->count * sizeof *list);
    }
    ga_retired *old = me->list;
    /* F3: release. Pairs with fork(): the objects are in their new places before. */
    __atomic_store_n(&me->list, list, __ATOMIC_RELEASE);
    me->room = (uint32_t)room;
    ga_libc.free(old);
    return true;
}

/* Where memory is short, a scan may make room. */
static ga_status make_room(ga_member *me, uint32_t count)
{
    uint64_t wanted = (uint64_t)me->count + count;
    uint64_t twice = (uint64_t)me->room * 2 + FIRST_ROOM;
    if (grow_list(me, twice > wanted ? twice : wanted) || grow_list(me, wanted)) {
        return GA_OK;
    }
    if (!me->sweeping && me->count) {
        ga_scan(me);
    }
    if (me->room - me->count >= count) {
        return GA_OK;
    }
    return ga_fail(GA_ERR_MEMORY, "domain: no memory for a list of %llu retired objects",
                   (unsigned long long)wanted);
}

ga_status ga_hazard_reserve(ga_hazards *mine, uint32_t count)
{
    ga_member *me = (ga_member *)mine;
    if (!mine) {
        return ga_fail(GA_ERR_ARGUMENT, "domain: no membership; expected ga_domain_join()'s");
    }
    return me->room - me->count >= count ? GA_OK : make_room(me, count);
}

/* By value, and inline: through memory the processor would wait for the four stores of the record
 * to be read back as two, a third of all that retiring costs. */
static inline __attribute__((always_inline)) ga_status
retire(ga_member *me, void *object, ga_reclaim *reclaim, void *context, size_t size)
{
    if (__builtin_expect(me->count == me->room, 0)) {
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
    ga_member_count(&me->counts.retired, 1);
    set_count(me, count + 1);
    if (__builtin_expect(is_due(me), 0)) {
        look_if_due(me);
    }
    return GA_OK;
}

static ga_status refuse(const ga_hazards *mine, const void *object, const char *what)
{
    return ga_fail(GA_ERR_ARGUMENT, "domain: %s is NULL; expected %s",
                   !mine     ? "the membership"
                   : !object ? "the object"
                             : what,
                   !mine ? "ga_domain_join()'s" : "what to free, and how");
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
