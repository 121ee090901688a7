/* SPDX-License-Identifier: MIT
 *
 * The record of reserved addresses, a radix tree.
 *
 * STRUCTURE  a radix tree over 48 bits of address, like the processor's page tables: four levels of
 *            512 entries, down to one entry for each 4 KiB. An entry is empty, WHOLE, or a node.
 * INVARIANT  a node, once linked, stays. An entry that is WHOLE lies in one range.
 * ORDER      PV1/PV2 publish a node. A range is added before any pointer into it is handed out, so
 *            that a thread which queries such a pointer has the entry from the program's own
 *            synchronisation; WHOLE entries need no order of their own.
 * PROGRESS   look-ups are wait-free; a node is linked by compare-and-swap
 */
#include "reservations.h"

#include "pages.h"

#include <stdint.h>
#include <sys/mman.h>

enum {
    PAGE_SHIFT = 12,
    NODE_BITS = 9,
    NODE_ENTRIES = 1 << NODE_BITS,
    ROOT_SHIFT = 39,
    ADDRESS_BITS = 48
};

typedef struct node {
    struct node *entries[NODE_ENTRIES];
} node;

static node root;
static node whole; /* its address marks an entry as WHOLE */

static node *load_entry(node *const *entry)
{
    /* PV2: acquire. Pairs with PV1. */
    return __atomic_load_n(entry, __ATOMIC_ACQUIRE);
}

/* The entry's node, made if the entry is empty; NULL without memory. */
static node *child_of(node **entry)
{
    node *there = load_entry(entry);
    if (there) {
        return there;
    }
    node *fresh =
        mmap(NULL, sizeof *fresh, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) {
        return NULL;
    }
    /* PV1: release. Pairs with PV2: a node is empty before it is seen. */
    if (__atomic_compare_exchange_n(entry, &there, fresh, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        return fresh;
    }
    munmap(fresh, sizeof *fresh);
    return there;
}

/* Set the entries of [first, last] to `value`: &whole or NULL. False if a node is missing and there
 * is no memory for it. */
static bool set_range(node *at, unsigned shift, uintptr_t first, uintptr_t last, node *value)
{
    uintptr_t span = ((uintptr_t)1 << shift) - 1;
    for (uintptr_t from = first; from <= last; from = (from | span) + 1) {
        uintptr_t to = (from | span) < last ? from | span : last;
        node **entry = &at->entries[from >> shift & (NODE_ENTRIES - 1)];
        node *there = load_entry(entry);
        bool covered = !(from & span) && to == (from | span);
        if (covered && (!there || there == &whole)) {
            __atomic_store_n(entry, value, __ATOMIC_RELAXED); /* relaxed, see ORDER */
            continue;
        }
        node *child = value ? child_of(entry) : there;
        if (value && !child) {
            return false;
        }
        if (child && child != &whole && !set_range(child, shift - NODE_BITS, from, to, value)) {
            return false;
        }
    }
    return true;
}

static bool representable(uintptr_t first, size_t size)
{
    return size && !((first + size - 1) >> ADDRESS_BITS) && first + size > first;
}

bool ga_reservations_add(const void *start, size_t size)
{
    uintptr_t first = (uintptr_t)start;
    if (!representable(first, size)) {
        return true; /* no such addresses on the systems that we know */
    }
    if (set_range(&root, ROOT_SHIFT, first, first + size - 1, &whole)) {
        return true;
    }
    ga_reservations_remove(start, size);
    return false;
}

void ga_reservations_remove(const void *start, size_t size)
{
    uintptr_t first = (uintptr_t)start;
    if (representable(first, size)) {
        set_range(&root, ROOT_SHIFT, first, first + size - 1, NULL);
    }
}

static bool in_tree(uintptr_t address)
{
    const node *at = address >> ADDRESS_BITS ? NULL : &root;
    for (unsigned shift = ROOT_SHIFT; at && at != &whole && shift >= PAGE_SHIFT;
         shift -= NODE_BITS) {
        at = load_entry(&at->entries[address >> shift & (NODE_ENTRIES - 1)]);
    }
    return at == &whole;
}

bool ga_reservations_contain(const void *pointer)
{
    return in_tree((uintptr_t)pointer) || ga_pages_owns(pointer);
}
