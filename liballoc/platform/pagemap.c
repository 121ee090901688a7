/* SPDX-License-Identifier: MIT
 *
 * The ownership map, a two-level bitmap of pages.
 *
 * STRUCTURE  root[address >> 30] -> a leaf of 2^18 bits, one for each 4 KiB of that GiB
 * INVARIANT  a leaf, once in the root, never leaves it; a bit, once set, stays set
 * ORDER      PM1/PM2 publish a leaf. The bits are relaxed: a thread that frees a block got it from
 *            the thread that allocated it, through the program's own synchronisation, and the mark
 *            came before that. PM3/PM4 pass a spare leaf from one reservation to the next.
 * PROGRESS   wait-free, except the compare-and-swap that installs a leaf: lock-free
 */
#include "pagemap.h"

#include "os_memory.h"

#include <stdint.h>
#include <sys/mman.h>

enum {
    PAGE_SHIFT = 12,
    LEAF_SHIFT = 30,
    ADDRESS_BITS = 48,
    LEAF_WORDS = 1 << (LEAF_SHIFT - PAGE_SHIFT - 6),
    ROOT_SIZE = 1 << (ADDRESS_BITS - LEAF_SHIFT)
};

typedef uint64_t leaf_t[LEAF_WORDS];

static leaf_t *root[ROOT_SIZE];

static void *leaf_map(void)
{
    void *leaf = ga_os_memory_get()->mmap(NULL, sizeof(leaf_t), PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return leaf == MAP_FAILED ? NULL : leaf;
}

/* The slot's leaf. If the slot was empty, `*fresh` is installed and set to NULL. */
static leaf_t *leaf_install(leaf_t **slot, void **fresh)
{
    leaf_t *expected = NULL;
    leaf_t *leaf = *fresh;
    /* PM1: release. Pairs with PM2: the leaf's zeros are seen before the leaf. */
    if (!__atomic_compare_exchange_n(slot, &expected, leaf, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        return expected;
    }
    *fresh = NULL;
    return leaf;
}

static leaf_t *leaf_make(leaf_t **slot)
{
    void *fresh = leaf_map();
    leaf_t *leaf = fresh ? leaf_install(slot, &fresh) : NULL;
    if (fresh) {
        ga_os_memory_unmap(fresh, sizeof(leaf_t));
    }
    return leaf;
}

static leaf_t *leaf_at(uintptr_t address)
{
    if (address >> ADDRESS_BITS) {
        return NULL;
    }
    /* PM2: acquire. Pairs with PM1. */
    return __atomic_load_n(&root[address >> LEAF_SHIFT], __ATOMIC_ACQUIRE);
}

static void set_bit(leaf_t *leaf, uintptr_t address)
{
    uintptr_t page = address >> PAGE_SHIFT;
    uint64_t *word = &(*leaf)[(page >> 6) % LEAF_WORDS];
    uint64_t bit = UINT64_C(1) << (page & 63);
    /* relaxed, see ORDER; load first, because almost every bit is set already */
    if (!(__atomic_load_n(word, __ATOMIC_RELAXED) & bit)) {
        __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
    }
}

static bool mark_page(uintptr_t address)
{
    leaf_t *leaf = leaf_at(address);
    if (!leaf) {
        leaf = address >> ADDRESS_BITS ? NULL : leaf_make(&root[address >> LEAF_SHIFT]);
    }
    if (leaf) {
        set_bit(leaf, address);
    }
    return leaf != NULL;
}

bool ga_pagemap_mark(const void *start, size_t size)
{
    uintptr_t first = (uintptr_t)start >> PAGE_SHIFT;
    uintptr_t last = ((uintptr_t)start + (size ? size - 1 : 0)) >> PAGE_SHIFT;
    for (uintptr_t page = first; page <= last; page++) {
        if (!mark_page(page << PAGE_SHIFT)) {
            return false;
        }
    }
    return true;
}

static leaf_t *spare; /* the unused leaf of an earlier reservation, or NULL */

void *ga_pagemap_reserve(void)
{
    /* PM3: acquire. Pairs with PM4: the thread that stored it has finished with it. */
    void *leaf = __atomic_exchange_n(&spare, NULL, __ATOMIC_ACQUIRE);
    return leaf ? leaf : leaf_map();
}

void ga_pagemap_mark_reserved(const void *pointer, void *reserved)
{
    uintptr_t address = (uintptr_t)pointer;
    leaf_t *leaf = leaf_at(address);
    leaf_t *none = NULL;
    if (!leaf && !(address >> ADDRESS_BITS)) {
        leaf = leaf_install(&root[address >> LEAF_SHIFT], &reserved);
    }
    if (leaf) {
        set_bit(leaf, address);
    }
    /* PM4: release. Pairs with PM3. */
    if (reserved && !__atomic_compare_exchange_n(&spare, &none, (leaf_t *)reserved, false,
                                                 __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        ga_os_memory_unmap(reserved, sizeof(leaf_t));
    }
}

bool ga_pagemap_test(const void *pointer)
{
    leaf_t *leaf = leaf_at((uintptr_t)pointer);
    if (!leaf) {
        return false;
    }
    uintptr_t page = (uintptr_t)pointer >> PAGE_SHIFT;
    /* relaxed, see ORDER */
    return __atomic_load_n(&(*leaf)[(page >> 6) % LEAF_WORDS], __ATOMIC_RELAXED) >> (page & 63) & 1;
}
