/* SPDX-License-Identifier: MIT
 *
 * Large blocks: each call goes to the parent and updates the record.
 */
#include "large.h"

#include "give_back.h"

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

/* Remove the address from the set. If two threads free the block, only one gets true. */
static bool forget(ga_slab_large *large, void *block)
{
    size_t bytes = ga_slab_large_usable_size(large, block);
    bool dropped = ga_slab_starts_remove(&large->starts, block);
    if (dropped) {
        count_bytes(large, 0, bytes);
    }
    return dropped;
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
