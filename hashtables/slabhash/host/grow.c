/* SPDX-License-Identifier: MIT
 *
 * Host tables that grow: their versions. grow_tile.h moves one bucket; this file decides when a
 * table moves and to how many buckets, which thread makes the new version, and when the old one is
 * freed.
 *
 * STRUCTURE  table -> now -> next     `next` only while the table moves. Each version is an array
 *            of buckets with its chains; all versions of a table share one heap of slabs.
 * INVARIANT  `now` becomes `next` once all buckets of `next` are OPEN. The old version then goes to
 *            the table's list of retired ones. Any thread frees those that no hazard pointer of
 *            the table's domain protects (slot 0 protects `now`, slot 1 its `next`) and that no
 *            iteration uses (`users`).
 * ORDER      W: a version is initialised before it is `now`. N: before it is another one's `next`.
 *            C: a thread that sees all buckets counted as OPEN sees them OPEN. U: an iteration's
 *            reads of a version happen before it is freed. R: a version was `now` for the last
 *            time before another thread checks whether it is protected.
 * PROGRESS   No call waits for another. One thread at a time makes the next version, while others
 *            go on in the present one and append slabs. If that thread is stopped there, the table
 *            does not grow. A thread that is stopped anywhere else stops nothing: others open the
 *            buckets that it was to open.
 */
#include "table.h"

#include "../../../liballoc/platform/libc.h"
#include "../../../liballoc/reclaim/state.h"

#include <string.h>

enum {
    RUN = 8,                /* buckets that an operation opens */
    SAMPLE = 256,           /* buckets that are sampled to see how full a table is */
    CHAINED_DIV = 8,        /* 1 in 8 buckets has a slab: then the table is sampled */
    SHRINK_CHECK_MASK = 63, /* 1 in 64 removals checks whether to shrink */
    FREE_MASK = 1023,       /* 1 in 1024 changes frees retired versions: it may cost a membarrier */
    ROW_BYTES = GA_SLABHASH_WORDS * sizeof(uint32_t)
};

/* ---- versions -------------------------------------------------------------------------------- */

static slabhash_version *new_version(ga_slabhash *table, uint32_t buckets)
{
    uint64_t bytes = (uint64_t)buckets * ROW_BYTES;
    uint32_t *rows = NULL;
    slabhash_version *g = ga_libc.memalign(SLABHASH_ALIGN, sizeof *g);
    if (!g || ga_slabhash_make_rows(table, bytes, &rows) != GA_OK) {
        ga_libc.free(g);
        return NULL;
    }
    memset(g, 0, sizeof *g);
    g->table = table;
    g->view = table->view;
    g->view.rows = rows;
    g->view.buckets = buckets;
    g->view.chained = &g->chained;
    g->bytes = bytes;
    g->wanted = buckets / CHAINED_DIV;
    g->users = 1;
    __atomic_fetch_add(&table->arrays, bytes, __ATOMIC_RELAXED); /* relaxed: a count */
    return g;
}

static void free_version(slabhash_version *g)
{
    ga_slabhash *table = g->table;
    for (uint32_t bucket = 0; bucket < g->view.buckets; bucket++) {
        const uint32_t *row = ga_slabhash_bucket_row(g->view, bucket);
        ga_slabhash_free_chain(g->view, SLABHASH_TILE, ga_load_relaxed(row + GA_SLABHASH_NEXT));
    }
    __atomic_fetch_sub(&table->arrays, g->bytes, __ATOMIC_RELAXED); /* relaxed: a count */
    ga_free(table->heap, g->view.rows);
    ga_libc.free(g);
}

static void drop(slabhash_version *g)
{
    /* U: acq_rel. Pairs with itself: the last user has the accesses of all others before it. */
    if (__atomic_sub_fetch(&g->users, 1, __ATOMIC_ACQ_REL) == 0) {
        free_version(g);
    }
}

/* Retire a version that no call finds any more. */
static void retire(ga_slabhash *table, slabhash_version *g)
{
    /* relaxed: a guess, which the compare-and-swap confirms */
    slabhash_version *first = __atomic_load_n(&table->retired, __ATOMIC_RELAXED);
    do {
        g->later = first;
        /* R1: release. Pairs with R2: the version was unlinked before. */
    } while (!__atomic_compare_exchange_n(&table->retired, &first, g, true, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
}

/* Free the retired versions that no thread protects, including other threads'. */
static void free_retired(ga_slabhash *table)
{
    /* R2: acquire. Pairs with R1: a thread that protects one found it before now. */
    slabhash_version *g = __atomic_exchange_n(&table->retired, NULL, __ATOMIC_ACQUIRE);
    while (g) {
        slabhash_version *later = g->later;
        if (ga_scan_can_free(table->domain, g)) {
            drop(g);
        } else {
            retire(table, g);
        }
        g = later;
    }
}

ga_status ga_slabhash_versions_begin(ga_slabhash *table)
{
    ga_domain_options options = {.options_size = sizeof options, .slots = 2, .batch = 1};
    ga_status status = ga_domain_open(&table->domain, &options);
    pthread_mutex_init(&table->beginning, NULL);
    table->least = table->view.buckets;
    if (status == GA_OK) {
        table->now = new_version(table, table->least);
        status = table->now
                     ? GA_OK
                     : ga_fail(GA_ERR_MEMORY, "slabhash: no memory for %u buckets", table->least);
    }
    return status;
}

void ga_slabhash_versions_end(ga_slabhash *table)
{
    slabhash_version *later;
    for (slabhash_version *g = table->retired; g; g = later) {
        later = g->later;
        drop(g);
    }
    if (table->domain) {
        ga_domain_close(table->domain);
    }
    if (table->now && table->now->next) {
        free_version(table->now->next);
    }
    if (table->now) {
        free_version(table->now);
    }
    pthread_mutex_destroy(&table->beginning);
}

/* ---- pins ------------------------------------------------------------------------------------ */

ga_status ga_slabhash_enroll(ga_slabhash *table)
{
    ga_hazards *mine;
    return slabhash_grows(table) ? ga_domain_join(table->domain, &mine) : GA_OK;
}

static slabhash_version *next_of(const slabhash_version *g)
{
    /* N2: acquire. Pairs with N1: the version is initialised. */
    return GA_PLANTED(slabhash_next_relaxed) ? __atomic_load_n(&g->next, __ATOMIC_RELAXED)
                                             : __atomic_load_n(&g->next, __ATOMIC_ACQUIRE);
}

static void describe(slabhash_pin *pin, const ga_slabhash *table)
{
    pin->shift.from = pin->now->view;
    pin->shift.to = pin->next ? pin->next->view : (ga_slabhash_view){.rows = NULL};
    pin->shift.hash = table->hash;
    pin->shift.context = table->context;
    pin->shift.chained = pin->next ? &pin->next->chained : NULL;
}

slabhash_pin ga_slabhash_pin(const ga_slabhash *table)
{
    slabhash_pin pin = {.mine = NULL};
    void *const *now = (void *const *)(const void *)&table->now;
    (void)ga_domain_join(table->domain,
                         &pin.mine); /* the thread has joined: ga_slabhash_enroll() */
    for (;;) {
        pin.now = ga_hazard_protect_pointer(pin.mine, 0, now); /* P2, for W2. Pairs with W1 */
        pin.next = next_of(pin.now);
        if (!pin.next) {
            break;
        }
        ga_hazard_set(pin.mine, 1, pin.next);
        /* `next` is retired only after it was `now`, which it has not been yet. P2. */
        if (ga_hazard_load(pin.mine, (const ga_hazard_word *)(const void *)now) ==
            (uintptr_t)pin.now) {
            break;
        }
    }
    describe(&pin, table);
    return pin;
}

void ga_slabhash_unpin(const slabhash_pin *pin)
{
    ga_hazard_clear(pin->mine, 0);
    ga_hazard_clear(pin->mine, 1);
}

slabhash_pin ga_slabhash_stay(const ga_slabhash *table)
{
    slabhash_pin pin = ga_slabhash_pin(table);
    /* relaxed: the version is protected, so the table's own use of it has not ended. */
    __atomic_fetch_add(&pin.now->users, 1, __ATOMIC_RELAXED);
    if (pin.next) {
        __atomic_fetch_add(&pin.next->users, 1, __ATOMIC_RELAXED); /* relaxed: as above */
    }
    ga_slabhash_unpin(&pin);
    return pin;
}

void ga_slabhash_leave(const slabhash_pin *pin)
{
    if (pin->next) {
        drop(pin->next);
    }
    drop(pin->now);
}

/* ---- moving on ------------------------------------------------------------------------------- */

/* All buckets are OPEN: the new version becomes the table's. */
static void finish(const slabhash_pin *pin)
{
    ga_slabhash *table = pin->now->table;
    slabhash_version *now = pin->now;
    /* relaxed: counts. An append at this moment may be missed. */
    uint32_t chained = __atomic_load_n(&pin->next->chained, __ATOMIC_RELAXED);
    uint32_t usual = pin->next->view.buckets / CHAINED_DIV;
    __atomic_store_n(&pin->next->wanted, 2 * chained > usual ? 2 * chained : usual,
                     __ATOMIC_RELAXED);
    /* W1: release, and acquire: all buckets are open. Pairs with P2, and C. */
    if (__atomic_compare_exchange_n(&table->now, &now, pin->next, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_RELAXED)) {
        ga_hazard_clear(pin->mine, 0); /* clear our own slot, so that it can be freed at once */
        if (GA_PLANTED(slabhash_version_freed_in_use)) {
            drop(now);
            return;
        }
        retire(table, now);
        free_retired(table);
    }
}

/* Open the buckets of a run. Open all buckets if a thread that was to open some seems to have been
 * stopped; the count is not reliable then. True if all are OPEN. */
static bool open_some(const slabhash_pin *pin)
{
    const slabhash_ops *ops = pin->now->table->ops;
    slabhash_version *next = pin->next;
    uint64_t buckets = next->view.buckets;
    uint64_t runs = (buckets + RUN - 1) / RUN;
    /* relaxed: hands out runs. */
    uint64_t run = __atomic_fetch_add(&next->cursor, 1, __ATOMIC_RELAXED);
    if (run >= 2 * runs && run % runs == 0) {
        return ops->open(pin, (slabhash_range){0, buckets});
    }
    uint64_t first = run % runs * RUN;
    uint64_t end = first + RUN < buckets ? first + RUN : buckets;
    (void)ops->open(pin, (slabhash_range){first, end});
    /* C: acquire. Pairs with itself. */
    return __atomic_load_n(&next->opened, __ATOMIC_ACQUIRE) == buckets;
}

/* ---- when, and where to -----------------------------------------------------------------------
 * */

static uint32_t slots_per_slab(const ga_slabhash *table)
{
    return ga_bits_count(ga_slabhash_slot_mask(table->kind));
}

/* How full buckets are, in percent of the slots of their first slabs. A chain counts as one full
 * slab: more buckets do not help if few have chains, as with a key that occurs very often. */
static uint32_t fullness(const slabhash_version *g, slabhash_range range, uint32_t step)
{
    uint64_t seen = 0, taken = 0;
    for (uint64_t bucket = range.first; bucket < range.end; bucket += step, seen++) {
        ga_slabhash_census census = {0};
        g->table->ops->sample(g, (slabhash_range){bucket, bucket + 1}, 1, &census);
        taken += census.live < slots_per_slab(g->table) ? census.live : slots_per_slab(g->table);
    }
    return (uint32_t)(taken * 100 / (seen * slots_per_slab(g->table)));
}

static uint32_t fullness_of_all(const slabhash_version *g)
{
    uint32_t step = g->view.buckets / SAMPLE;
    return fullness(g, (slabhash_range){0, g->view.buckets}, step ? step : 1);
}

/* How many buckets a table that is `percent` full moves to. */
static uint32_t size_for(const slabhash_version *g, uint32_t percent)
{
    uint32_t buckets = g->view.buckets;
    if (percent > 45) {
        return buckets < UINT32_C(1) << 31 ? buckets * 2 : buckets;
    }
    return percent < 12 && buckets / 2 >= g->table->least ? buckets / 2 : buckets;
}

/* Make the version that this one moves to. One thread at a time does; others leave it to that one,
 * unless they `insist`. False if there is no memory. */
static bool begin(slabhash_version *g, uint32_t buckets, bool insist)
{
    ga_slabhash *table = g->table;
    bool locked = pthread_mutex_trylock(&table->beginning) == 0;
    bool can = true;
    /* relaxed: a guess. `g` is protected, so it either is no longer `now`, or was not before. */
    if ((locked || insist) && !next_of(g) && __atomic_load_n(&table->now, __ATOMIC_RELAXED) == g) {
        slabhash_version *none = NULL;
        slabhash_version *next = new_version(table, buckets);
        can = next != NULL;
        /* N1: release. Pairs with N2. */
        if (can && !__atomic_compare_exchange_n(&g->next, &none, next, false, __ATOMIC_RELEASE,
                                                __ATOMIC_RELAXED)) {
            free_version(next);
        }
    }
    if (locked) {
        pthread_mutex_unlock(&table->beginning);
    }
    return can;
}

/* Move if too many slabs are chained. Without memory the table stays, and tries again when a
 * quarter more are. */
static void consider_growing(slabhash_version *g)
{
    /* relaxed: counts. */
    uint32_t chained = __atomic_add_fetch(&g->chained, 1, __ATOMIC_RELAXED);
    if (chained > __atomic_load_n(&g->wanted, __ATOMIC_RELAXED) && !next_of(g) &&
        !begin(g, size_for(g, fullness_of_all(g)), false)) {
        __atomic_store_n(&g->wanted, chained + chained / 4 + 1, __ATOMIC_RELAXED);
    }
}

/* True for 1 in `many` + 1 hashes, a power of 2, even if some bits of the hashes are equal. */
static bool is_one_of(uint32_t many, uint64_t hash)
{
    return (ga_bits_mix((uint32_t)hash ^ (uint32_t)(hash >> 32)) & many) == 0;
}

/* A pair was removed. If its bucket has few pairs, 1 in 64 removals checks whether the whole table
 * has. */
static void consider_shrinking(slabhash_version *g, uint64_t hash)
{
    uint32_t buckets = g->view.buckets;
    uint32_t bucket = ga_slabhash_bucket(g->view, hash);
    if (is_one_of(SHRINK_CHECK_MASK, hash) && buckets / 2 >= g->table->least && !next_of(g) &&
        fullness(g, (slabhash_range){bucket, bucket + 1}, 1) < 12) {
        uint32_t percent = fullness_of_all(g);
        if (percent < 12) {
            (void)begin(g, size_for(g, percent), false);
        }
    }
}

void ga_slabhash_tend(const slabhash_pin *pin, uint64_t hash, bool opened, bool chained,
                      bool emptied)
{
    ga_slabhash *table = pin->now->table;
    /* relaxed: a guess. Versions that are still protected will be checked again. */
    if (__atomic_load_n(&table->retired, __ATOMIC_RELAXED) && is_one_of(FREE_MASK, hash)) {
        free_retired(table);
    }
    if (pin->next) {
        slabhash_note_opened(pin, opened ? 1 : 0);
        /* relaxed: a count */
        __atomic_fetch_add(&pin->next->chained, chained ? 1 : 0, __ATOMIC_RELAXED);
        if (open_some(pin)) {
            finish(pin);
        }
    } else if (chained) {
        consider_growing(pin->now);
    } else if (emptied) {
        consider_shrinking(pin->now, hash);
    }
}

/* ---- the whole table ------------------------------------------------------------------------- */

static ga_status open_all(const slabhash_pin *pin)
{
    slabhash_range all = {0, pin->next->view.buckets};
    uint32_t seen;
    do {
        seen = slabhash_room(pin->now->table);
        if (pin->now->table->ops->open(pin, all)) {
            finish(pin);
            return GA_OK;
        }
    } while (ga_slabhash_grow(pin->now->table, seen) == GA_OK);
    return GA_ERR_MEMORY;
}

/* Complete a move that is under way (`*moved`); else, with `begin_one`, begin one. */
static ga_status move_once(ga_slabhash *table, bool begin_one, bool *moved)
{
    ga_status status = GA_OK;
    slabhash_pin pin = ga_slabhash_pin(table);
    *moved = pin.next != NULL;
    if (pin.next) {
        status = open_all(&pin);
    } else if (begin_one) {
        uint32_t percent = fullness_of_all(pin.now);
        uint32_t buckets = pin.now->view.buckets;
        uint32_t half = percent < 30 && buckets / 2 >= table->least ? buckets / 2 : buckets;
        if (!begin(pin.now, half, true)) {
            status = ga_fail(GA_ERR_MEMORY, "slabhash: no memory for %u buckets to move to", half);
        }
    }
    ga_slabhash_unpin(&pin);
    return status;
}

ga_status ga_slabhash_settle(ga_slabhash *table, bool begin_one)
{
    bool moved;
    ga_status status = move_once(table, begin_one, &moved);
    if (status == GA_OK && (moved || begin_one)) {
        bool again = moved && begin_one; /* the one that was completed may have begun long ago */
        status = move_once(table, again, &moved);
        status = status == GA_OK && again ? move_once(table, false, &moved) : status;
    }
    free_retired(table);
    return status;
}

void ga_slabhash_versions_clear(ga_slabhash *table)
{
    slabhash_version *g = table->now;
    if (g->next) {
        table->now = g->next;
        free_version(g);
        g = table->now;
    }
    for (uint32_t bucket = 0; bucket < g->view.buckets; bucket++) {
        ga_slabhash_clear_bucket(g->view, SLABHASH_TILE, bucket);
    }
    g->chained = 0;
    g->wanted = g->view.buckets / CHAINED_DIV;
}
