/* SPDX-License-Identifier: MIT
 *
 * Large blocks: each call goes to the parent and updates the record.
 *
 * ORDER  SV1 to SV4 keep a block alive while ga_slab_large_each() asks for its size. The visitor
 *        publishes the address, then looks it up in the set. The thread that frees the block
 *        removes it from the set, then reads the published address. All four operations are
 *        sequentially consistent, so that at least one of the two threads sees the other. SV5: the
 *        question happens before the free of a thread that no longer finds the address published.
 */
#include "large.h"

#include "../units/give_back.h"
#include "../units/slab_heap.h"

static void count_bytes(ga_slab_large *large, size_t more, size_t less)
{
    __atomic_fetch_add(&large->bytes, more - less, __ATOMIC_RELAXED); /* relaxed: a figure */
}

static ga_status record(ga_slab_large *large, void *block)
{
    if (!ga_slab_starts_add(&large->starts, block)) {
        ga_slab_free_to_parent(large->parent, block);
        return ga_fail(GA_ERR_MEMORY, "slab: no memory to remember the block %p", block);
    }
    count_bytes(large, ga_usable_size(large->parent, block), 0);
    return GA_OK;
}

ga_status ga_slab_large_alloc(ga_slab_large *large, size_t size, size_t align, void **out)
{
    ga_status status = ga_alloc(large->parent, size, align, out);
    return status == GA_OK ? record(large, *out) : status;
}

ga_status ga_slab_large_alloc_zeroed(ga_slab_large *large, size_t size, void **out)
{
    ga_status status = ga_alloc_zeroed(large->parent, size, 0, out);
    return status == GA_OK ? record(large, *out) : status;
}

static void wait_for_visitor(ga_slab_large *large, const void *block)
{
    /* SV4. Pairs with SV1, and with SV5. */
    bool visited = __atomic_load_n(&large->visited, __ATOMIC_SEQ_CST) == block;
    if (__builtin_expect(visited && !GA_PLANTED(slab_visitor_not_awaited), 0)) {
        pthread_mutex_lock(large->lock);
        pthread_mutex_unlock(large->lock);
    }
}

/* Remove the address from the set. If two threads free the block, only one gets true, and only that
 * one may ask the parent for the size. */
static bool forget(ga_slab_large *large, void *block)
{
    /* SV3. Pairs with SV2. */
    bool removed = ga_slab_starts_remove(&large->starts, block);
    if (removed) {
        wait_for_visitor(large, block);
        count_bytes(large, 0, ga_usable_size(large->parent, block));
    }
    return removed;
}

/* Record a block again whose free the parent refused, as a device in trouble does. Needs no memory:
 * the leaf is there, because forget() has just cleared a bit in it. */
static void record_again(ga_slab_large *large, void *block)
{
    if (ga_slab_starts_add(&large->starts, block)) {
        count_bytes(large, ga_usable_size(large->parent, block), 0);
    }
}

ga_status ga_slab_large_free(ga_slab_large *large, void *block)
{
    if (!forget(large, block)) {
        return GA_ERR_POINTER;
    }
    ga_status status = ga_free(large->parent, block);
    if (status != GA_OK && status != GA_ERR_POINTER) {
        record_again(large, block);
    }
    return status;
}

/* Used if there is no reservation, so the block cannot move. It may be large enough already. */
static ga_status realloc_in_place(ga_slab_large *large, void *block, size_t size, void **out)
{
    if (size > ga_slab_large_usable_size(large, block)) {
        return ga_fail(GA_ERR_MEMORY, "slab: no memory to remember where %p moves to", block);
    }
    *out = block;
    return GA_OK;
}

/* A block that has moved and is not in the set would be freed as a foreign one. So the tables are
 * reserved before the parent moves the block. */
ga_status ga_slab_large_realloc(ga_slab_large *large, void *block, size_t size, void **out)
{
    ga_slab_starts_spare spare;
    if (!ga_slab_starts_reserve(&large->starts, &spare)) {
        return realloc_in_place(large, block, size, out);
    }
    forget(large, block);
    ga_status status = ga_realloc(large->parent, block, size, 0, out);
    void *now = status == GA_OK ? *out : block;
    ga_slab_starts_add_reserved(&large->starts, now, &spare);
    count_bytes(large, ga_usable_size(large->parent, now), 0);
    return status;
}

ga_status ga_slab_large_grow(ga_slab_large *large, void *block, size_t size)
{
    size_t before = ga_usable_size(large->parent, block);
    ga_status status = ga_grow(large->parent, block, size);
    if (status == GA_OK) {
        count_bytes(large, ga_usable_size(large->parent, block), before);
    }
    return status;
}

size_t ga_slab_large_usable_size(ga_slab_large *large, const void *block)
{
    return ga_slab_large_owns(large, block) ? ga_usable_size(large->parent, block) : 0;
}

/* ---- visits -------------------------------------------------------------------------------- */

typedef struct walk {
    ga_slab_large *large;
    ga_visit *visit;
    void *context;
} walk;

/* 0 if the block has been freed. */
static size_t size_of_visited(ga_slab_large *large, const void *block)
{
    pthread_mutex_lock(large->lock);
    /* SV1. Pairs with SV4. */
    __atomic_store_n(&large->visited, block, __ATOMIC_SEQ_CST);
    /* SV2. Pairs with SV3. */
    size_t size = ga_slab_large_usable_size(large, block);
    /* SV5: release. Pairs with SV4: a thread that finds another value frees after the question. */
    __atomic_store_n(&large->visited, NULL, __ATOMIC_RELEASE);
    pthread_mutex_unlock(large->lock);
    return size;
}

/* The visitor may allocate, so the lock is not held. */
static void visit_block(void *context, void *block)
{
    walk *w = context;
    size_t size = size_of_visited(w->large, block);
    if (size) {
        w->visit(w->context, block, size);
    }
}

void ga_slab_large_each(ga_slab_large *large, ga_visit *visit, void *context)
{
    walk w = {large, visit, context};
    ga_slab_starts_each(&large->starts, visit_block, &w);
}
