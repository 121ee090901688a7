/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  root[address >> 36] -> middle[address >> 25 & 2047] -> a leaf of 2^21 bits
 * INVARIANT  a middle and a leaf stay until the end; a bit is set while its block is live
 * ORDER      SL1/SL2 publish a middle or a leaf. The bits need no order of their own: a thread that
 *            frees a block got it from the thread that allocated it, through the program's own
 *            synchronisation. They are sequentially consistent, because a visitor of large blocks
 *            relies on it (SV2 and SV3 in large.c).
 *            SL3/SL4 pass a spare table from one reservation to the next.
 * PROGRESS   wait-free, but for the compare-and-swap that installs: lock-free
 */
#include "starts.h"

#include "../../../platform/os_memory.h"
#include "../units/slab_heap.h"

#include <errno.h>
#include <sys/mman.h>

enum {
    UNIT_BITS = 4,
    ADDRESS_BITS = 48,
    MIDDLE_SHIFT = UNIT_BITS + GA_SLAB_STARTS_LEAF_BITS,
    ROOT_SHIFT = MIDDLE_SHIFT + GA_SLAB_STARTS_MIDDLE_BITS,
    MIDDLES = 1 << GA_SLAB_STARTS_MIDDLE_BITS,
    LEAF_WORDS = 1 << (GA_SLAB_STARTS_LEAF_BITS - 6)
};

static void *load(void *const *slot)
{
    /* SL2: acquire. Pairs with SL1: the table is seen empty. */
    return __atomic_load_n(slot, GA_PLANTED_ORDER(slab_large_set_relaxed, __ATOMIC_ACQUIRE));
}

/* A zeroed table, or NULL. errno stays as it was: free() must not change it. */
static void *map_table(size_t size)
{
    int error = errno;
    void *table = ga_os_memory_get()->mmap(NULL, size, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    errno = error;
    return table == MAP_FAILED ? NULL : table;
}

static void unmap_table(void *table, size_t size)
{
    int error = errno;
    if (table) {
        ga_os_memory_unmap(table, size);
    }
    errno = error;
}

/* The table in the slot. An empty slot gets `*spare`, which is then NULL. */
static void *load_or_install(void **slot, void **spare)
{
    void *table = load(slot);
    if (table || !*spare) {
        return table;
    }
    /* SL1: release. Pairs with SL2. */
    if (!__atomic_compare_exchange_n(slot, &table, *spare, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        return table;
    }
    table = *spare;
    *spare = NULL;
    return table;
}

/* The table in the slot, mapped if there is none yet. */
static void *load_or_make(void **slot, size_t size)
{
    void *table = load(slot);
    void *fresh = table ? NULL : map_table(size);
    table = table ? table : load_or_install(slot, &fresh);
    unmap_table(fresh, size);
    return table;
}

static bool is_candidate(const void *block)
{
    uintptr_t address = (uintptr_t)block;
    return !(address >> ADDRESS_BITS) && !(address & ((1u << UNIT_BITS) - 1u));
}

static size_t middle_index(const void *block)
{
    return ((uintptr_t)block >> MIDDLE_SHIFT) % MIDDLES;
}

static uint64_t *word_of(ga_slab_starts_leaf *leaf, const void *block)
{
    return leaf ? &(*leaf)[((uintptr_t)block >> (UNIT_BITS + 6)) % LEAF_WORDS] : NULL;
}

static uint64_t bit_of(const void *block)
{
    return UINT64_C(1) << ((uintptr_t)block >> UNIT_BITS) % 64;
}

/* NULL if the leaf for the address has never been made. */
static uint64_t *find_word(const ga_slab_starts *starts, const void *block)
{
    if (!is_candidate(block)) {
        return NULL;
    }
    ga_slab_starts_middle *middle =
        load((void *const *)&starts->root[(uintptr_t)block >> ROOT_SHIFT]);
    return middle ? word_of(load((void *const *)&(*middle)[middle_index(block)]), block) : NULL;
}

static void **middle_slot(ga_slab_starts *starts, const void *block)
{
    return (void **)&starts->root[(uintptr_t)block >> ROOT_SHIFT];
}

static void set_bit(ga_slab_starts_leaf *leaf, const void *block)
{
    /* Pairs with SV2 (large.c): the parent has finished with the block. */
    __atomic_fetch_or(word_of(leaf, block), bit_of(block), __ATOMIC_SEQ_CST);
}

bool ga_slab_starts_add(ga_slab_starts *starts, const void *block)
{
    if (!is_candidate(block)) {
        return false;
    }
    ga_slab_starts_middle *middle =
        load_or_make(middle_slot(starts, block), sizeof(ga_slab_starts_middle));
    ga_slab_starts_leaf *leaf =
        middle ? load_or_make((void **)&(*middle)[middle_index(block)], sizeof(ga_slab_starts_leaf))
               : NULL;
    if (leaf) {
        set_bit(leaf, block);
    }
    return leaf != NULL;
}

/* ---- reservations -------------------------------------------------------------------------- */

static void *reserve_table(void **kept, size_t size)
{
    /* SL3: acquire. Pairs with SL4: the thread that put the table there has finished with it. */
    void *table = __atomic_exchange_n(kept, NULL, __ATOMIC_ACQUIRE);
    return table ? table : map_table(size);
}

/* Store the table for the next reservation, or unmap it if one is stored already. */
static void release_table(void **kept, void *table, size_t size)
{
    void *none = NULL;
    /* SL4: release. Pairs with SL3. */
    if (table && !__atomic_compare_exchange_n(kept, &none, table, false, __ATOMIC_RELEASE,
                                              __ATOMIC_RELAXED)) {
        unmap_table(table, size);
    }
}

static void release(ga_slab_starts *starts, ga_slab_starts_spare *spare)
{
    release_table(&starts->spare.middle, spare->middle, sizeof(ga_slab_starts_middle));
    release_table(&starts->spare.leaf, spare->leaf, sizeof(ga_slab_starts_leaf));
}

bool ga_slab_starts_reserve(ga_slab_starts *starts, ga_slab_starts_spare *spare)
{
    spare->middle = reserve_table(&starts->spare.middle, sizeof(ga_slab_starts_middle));
    spare->leaf = reserve_table(&starts->spare.leaf, sizeof(ga_slab_starts_leaf));
    bool reserved = spare->middle && spare->leaf;
    if (!reserved) {
        release(starts, spare);
    }
    return reserved;
}

void ga_slab_starts_add_reserved(ga_slab_starts *starts, const void *block,
                                 ga_slab_starts_spare *spare)
{
    if (is_candidate(block)) {
        ga_slab_starts_middle *middle = load_or_install(middle_slot(starts, block), &spare->middle);
        set_bit(load_or_install((void **)&(*middle)[middle_index(block)], &spare->leaf), block);
    }
    release(starts, spare);
}

/* ---- removal and look-up ------------------------------------------------------------------- */

bool ga_slab_starts_remove(ga_slab_starts *starts, const void *block)
{
    uint64_t *word = find_word(starts, block);
    /* SV3 (large.c). Pairs with SV2, if the block is large. */
    return word && __atomic_fetch_and(word, ~bit_of(block), __ATOMIC_SEQ_CST) & bit_of(block);
}

bool ga_slab_starts_has(const ga_slab_starts *starts, const void *block)
{
    uint64_t *word = find_word(starts, block);
    /* SV2 (large.c). Pairs with SV3, if the caller visits the block. */
    return word && __atomic_load_n(word, __ATOMIC_SEQ_CST) & bit_of(block);
}

static void each_of_leaf(ga_slab_starts_leaf *leaf, uintptr_t base,
                         void (*visit)(void *context, void *block), void *context)
{
    for (uintptr_t i = 0; i < LEAF_WORDS; i++) {
        /* relaxed: a snapshot, because blocks come and go meanwhile */
        uint64_t bits = __atomic_load_n(&(*leaf)[i], __ATOMIC_RELAXED);
        for (; bits; bits &= bits - 1) {
            uintptr_t index = i * 64 + (uintptr_t)__builtin_ctzll(bits);
            visit(context, (void *)(base + (index << UNIT_BITS)));
        }
    }
}

void ga_slab_starts_each(const ga_slab_starts *starts, void (*visit)(void *context, void *block),
                         void *context)
{
    for (uintptr_t i = 0; i < 1 << GA_SLAB_STARTS_ROOT_BITS; i++) {
        ga_slab_starts_middle *middle = load((void *const *)&starts->root[i]);
        for (uintptr_t j = 0; middle && j < MIDDLES; j++) {
            ga_slab_starts_leaf *leaf = load((void *const *)&(*middle)[j]);
            if (leaf) {
                each_of_leaf(leaf, (i << ROOT_SHIFT) + (j << MIDDLE_SHIFT), visit, context);
            }
        }
    }
}

void ga_slab_starts_end(ga_slab_starts *starts)
{
    for (size_t i = 0; i < 1 << GA_SLAB_STARTS_ROOT_BITS; i++) {
        ga_slab_starts_middle *middle = starts->root[i];
        for (size_t j = 0; middle && j < MIDDLES; j++) {
            unmap_table((*middle)[j], sizeof(ga_slab_starts_leaf));
        }
        unmap_table(middle, sizeof *middle);
    }
    unmap_table(starts->spare.middle, sizeof(ga_slab_starts_middle));
    unmap_table(starts->spare.leaf, sizeof(ga_slab_starts_leaf));
}
