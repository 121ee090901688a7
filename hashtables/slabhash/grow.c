/* SPDX-License-Identifier: MIT
 *
 * Tables that grow: their generations. grow_tile.h moves one bucket; here is when a table moves,
 * where to, who does it, and when the old generation goes.
 *
 * STRUCTURE  table -> now -> next     `next` only while the table moves; both are tables of their
 *            own over the same slabs
 * INVARIANT  `now` becomes `next` once all buckets of that are OPEN, and the old generation goes to
 *            the table's list of retired ones, from which any thread frees those that nobody
 *            protects, in the table's domain of hazard pointers: slot 0 protects `now`, slot 1 its
 *            `next`; and that no round is in (`users`).
 * ORDER      W: a generation is whole before it is `now`; N: before it is somebody's `next`. C:
 *            buckets that others have opened are OPEN for who sees that all are. U: what a round
 *            read it has read before the generation is freed. R: it was `now` for the last time
 *            before another thread looks whether anybody protects it.
 * PROGRESS   No call waits for another. One thread at a time makes the next generation, while
 *            others go on in the one there is, chaining slabs: stopped there it stops growth.
 *            Stopped anywhere else it stops nothing: others open the buckets that it was to open.
 */
#include "table.h"

#include "../../liballoc/platform/libc.h"
#include "../../liballoc/reclaim/state.h"

#include <string.h>

enum {
    RUN = 8,       /* buckets that an operation opens */
    SAMPLE = 256,  /* buckets that are looked at to see how full a table is */
    SELDOM = 63,   /* of 64 removals one looks whether to shrink; of 1024 changes one whether */
    RARELY = 1023, /* what was retired can be freed: that may cost a membarrier */
    ROW_BYTES = GA_SLABHASH_WORDS * sizeof(uint32_t)
};

/* ---- generations ----------------------------------------------------------------------------- */

static slabhash_generation *new_generation(ga_slabhash *table, uint32_t buckets)
{
    uint64_t bytes = (uint64_t)buckets * ROW_BYTES;
    uint32_t *rows = NULL;
    slabhash_generation *g = ga_libc.memalign(SLABHASH_APART, sizeof *g);
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
    g->wanted = buckets / 8;
    g->users = 1;
    __atomic_fetch_add(&table->arrays, bytes, __ATOMIC_RELAXED); /* relaxed: a figure */
    return g;
}

static void free_generation(slabhash_generation *g)
{
    ga_slabhash *table = g->table;
    for (uint32_t bucket = 0; bucket < g->view.buckets; bucket++) {
        const uint32_t *row = ga_slabhash_bucket_row(g->view, bucket);
        ga_slabhash_free_chain(g->view, SLABHASH_TILE, ga_load_relaxed(row + GA_SLABHASH_NEXT));
    }
    __atomic_fetch_sub(&table->arrays, g->bytes, __ATOMIC_RELAXED); /* relaxed: a figure */
    ga_free(table->heap, g->view.rows);
    ga_libc.free(g);
}

static void drop(slabhash_generation *g)
{
    /* U: acq_rel. Pairs with itself: the last one has all that others did behind him. */
    if (__atomic_sub_fetch(&g->users, 1, __ATOMIC_ACQ_REL) == 0) {
        free_generation(g);
    }
}

/* One that no call finds any more. */
static void retire(ga_slabhash *table, slabhash_generation *g)
{
    /* relaxed: a guess, which the compare-and-swap confirms */
    slabhash_generation *first = __atomic_load_n(&table->retired, __ATOMIC_RELAXED);
    do {
        g->later = first;
        /* R1: release. Pairs with R2: it was unlinked before. */
    } while (!__atomic_compare_exchange_n(&table->retired, &first, g, true, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
}

/* Free the retired ones that nobody protects, whoever retired them. */
static void sweep(ga_slabhash *table)
{
    /* R2: acquire. Pairs with R1: who protects one has found it before now. */
    slabhash_generation *g = __atomic_exchange_n(&table->retired, NULL, __ATOMIC_ACQUIRE);
    while (g) {
        slabhash_generation *later = g->later;
        if (ga_scan_can_free(table->domain, g)) {
            drop(g);
        } else {
            retire(table, g);
        }
        g = later;
    }
}

ga_status ga_slabhash_generations_begin(ga_slabhash *table)
{
    ga_domain_options options = {.options_size = sizeof options, .slots = 2, .batch = 1};
    ga_status status = ga_domain_open(&table->domain, &options);
    pthread_mutex_init(&table->beginning, NULL);
    table->least = table->view.buckets;
    if (status == GA_OK) {
        table->now = new_generation(table, table->least);
        status = table->now
                     ? GA_OK
                     : ga_fail(GA_ERR_MEMORY, "slabhash: no memory for %u buckets", table->least);
    }
    return status;
}

void ga_slabhash_generations_end(ga_slabhash *table)
{
    slabhash_generation *later;
    for (slabhash_generation *g = table->retired; g; g = later) {
        later = g->later;
        drop(g);
    }
    if (table->domain) {
        ga_domain_close(table->domain);
    }
    if (table->now && table->now->next) {
        free_generation(table->now->next);
    }
    if (table->now) {
        free_generation(table->now);
    }
    pthread_mutex_destroy(&table->beginning);
}

/* ---- pins ------------------------------------------------------------------------------------ */

ga_status ga_slabhash_enroll(ga_slabhash *table)
{
    ga_hazards *mine;
    return slabhash_grows(table) ? ga_domain_join(table->domain, &mine) : GA_OK;
}

static slabhash_generation *next_of(const slabhash_generation *g)
{
    /* N2: acquire. Pairs with N1: the generation is whole. */
    return GA_SLABHASH_MUTANT == 18 ? __atomic_load_n(&g->next, __ATOMIC_RELAXED)
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
    (void)ga_domain_join(table->domain, &pin.mine); /* it is a member: ga_slabhash_enroll() */
    for (;;) {
        pin.now = ga_hazard_protect_pointer(pin.mine, 0, now); /* P2, for W2. Pairs with W1 */
        pin.next = next_of(pin.now);
        if (!pin.next) {
            break;
        }
        ga_hazard_set(pin.mine, 1, pin.next);
        /* It is retired after it was `now`, which it has not been yet. P2. */
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
    /* relaxed: it is protected, so that the table's own use of it has not ended. */
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

/* All buckets are OPEN: the new generation is the table. */
static void finish(const slabhash_pin *pin)
{
    ga_slabhash *table = pin->now->table;
    slabhash_generation *now = pin->now;
    /* relaxed: figures. Whoever appends meanwhile is counted or not. */
    uint32_t chained = __atomic_load_n(&pin->next->chained, __ATOMIC_RELAXED);
    uint32_t usual = pin->next->view.buckets / 8;
    __atomic_store_n(&pin->next->wanted, 2 * chained > usual ? 2 * chained : usual,
                     __ATOMIC_RELAXED);
    /* W1: release, and acquire: all that was opened is. Pairs with P2, and C. */
    if (__atomic_compare_exchange_n(&table->now, &now, pin->next, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_RELAXED)) {
        ga_hazard_clear(pin->mine, 0); /* not ours any more: so that it can go at once */
        if (GA_SLABHASH_MUTANT == 17) {
            drop(now);
            return;
        }
        retire(table, now);
        sweep(table);
    }
}

/* Open the buckets of a run; and all there are, where somebody who was to do so seems to have been
 * stopped: the count cannot be relied on then. True where all are OPEN. */
static bool open_some(const slabhash_pin *pin)
{
    const slabhash_ops *ops = pin->now->table->ops;
    slabhash_generation *next = pin->next;
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

static uint32_t places(const ga_slabhash *table)
{
    return ga_bits_count(ga_slabhash_places(table->kind));
}

/* How full buckets are, in percent of their first slabs' places. Chains behind one count as a full
 * one: if few have them, as with a key that is there very often, more buckets are no help. */
static uint32_t fullness(const slabhash_generation *g, slabhash_range range, uint32_t step)
{
    uint64_t seen = 0, taken = 0;
    for (uint64_t bucket = range.first; bucket < range.end; bucket += step, seen++) {
        ga_slabhash_census census = {0};
        g->table->ops->sample(g, (slabhash_range){bucket, bucket + 1}, 1, &census);
        taken += census.live < places(g->table) ? census.live : places(g->table);
    }
    return (uint32_t)(taken * 100 / (seen * places(g->table)));
}

static uint32_t fullness_of_all(const slabhash_generation *g)
{
    uint32_t step = g->view.buckets / SAMPLE;
    return fullness(g, (slabhash_range){0, g->view.buckets}, step ? step : 1);
}

/* How many buckets a table so full moves to. */
static uint32_t size_for(const slabhash_generation *g, uint32_t percent)
{
    uint32_t buckets = g->view.buckets;
    if (percent > 45) {
        return buckets < UINT32_C(1) << 31 ? buckets * 2 : buckets;
    }
    return percent < 12 && buckets / 2 >= g->table->least ? buckets / 2 : buckets;
}

/* Make the generation that this one moves to; one thread at a time, others leave it to that one,
 * but for those that `insist`. False where there is no memory. */
static bool begin(slabhash_generation *g, uint32_t buckets, bool insist)
{
    ga_slabhash *table = g->table;
    bool locked = pthread_mutex_trylock(&table->beginning) == 0;
    bool can = true;
    /* relaxed: a guess. It is protected, and so not `now` any more, or not before us. */
    if ((locked || insist) && !next_of(g) && __atomic_load_n(&table->now, __ATOMIC_RELAXED) == g) {
        slabhash_generation *none = NULL;
        slabhash_generation *next = new_generation(table, buckets);
        can = next != NULL;
        /* N1: release. Pairs with N2. */
        if (can && !__atomic_compare_exchange_n(&g->next, &none, next, false, __ATOMIC_RELEASE,
                                                __ATOMIC_RELAXED)) {
            free_generation(next);
        }
    }
    if (locked) {
        pthread_mutex_unlock(&table->beginning);
    }
    return can;
}

/* Too many slabs are chained. Without memory the table stays as it is for twice as long. */
static void consider_growing(slabhash_generation *g)
{
    /* relaxed: figures. */
    uint32_t chained = __atomic_add_fetch(&g->chained, 1, __ATOMIC_RELAXED);
    if (chained > __atomic_load_n(&g->wanted, __ATOMIC_RELAXED) && !next_of(g) &&
        !begin(g, size_for(g, fullness_of_all(g)), false)) {
        __atomic_store_n(&g->wanted, chained + chained / 4 + 1, __ATOMIC_RELAXED);
    }
}

/* One in so many of all hashes, whatever of their bits are alike: a power of 2 less 1. */
static bool is_one_of(uint32_t many, uint64_t hash)
{
    return (ga_bits_mix((uint32_t)hash ^ (uint32_t)(hash >> 32)) & many) == 0;
}

/* A pair was taken out. Seldom, and where its bucket has few: is the table as empty? */
static void consider_shrinking(slabhash_generation *g, uint64_t hash)
{
    uint32_t buckets = g->view.buckets;
    uint32_t bucket = ga_slabhash_bucket(g->view, hash);
    if (is_one_of(SELDOM, hash) && buckets / 2 >= g->table->least && !next_of(g) &&
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
    /* relaxed: a guess. What is protected still will be looked at again. */
    if (__atomic_load_n(&table->retired, __ATOMIC_RELAXED) && is_one_of(RARELY, hash)) {
        sweep(table);
    }
    if (pin->next) {
        slabhash_note_opened(pin, opened ? 1 : 0);
        /* relaxed: a figure */
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

/* Whether there is a move to end; if not, whether one was begun. */
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
        bool again = moved && begin_one; /* that one may have begun long ago */
        status = move_once(table, again, &moved);
        status = status == GA_OK && again ? move_once(table, false, &moved) : status;
    }
    sweep(table);
    return status;
}

void ga_slabhash_generations_clear(ga_slabhash *table)
{
    slabhash_generation *g = table->now;
    if (g->next) {
        table->now = g->next;
        free_generation(g);
        g = table->now;
    }
    for (uint32_t bucket = 0; bucket < g->view.buckets; bucket++) {
        ga_slabhash_clear_bucket(g->view, SLABHASH_TILE, bucket);
    }
    g->chained = 0;
    g->wanted = g->view.buckets / 8;
}
