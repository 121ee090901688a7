/* SPDX-License-Identifier: MIT
 *
 * The parent's blocks, noted.
 */
#include "large.h"

#include "give_back.h"

static void count(ga_slab_large *large, size_t more, size_t less)
{
    __atomic_fetch_add(&large->bytes, more - less, __ATOMIC_RELAXED); /* a figure */
}

static ga_status note(ga_slab_large *large, void *block)
{
    if (!ga_slab_starts_add(&large->starts, block)) {
        ga_slab_give_back(large->parent, block);
        return ga_fail(GA_ERR_MEMORY, "slab: no memory to remember the block %p", block);
    }
    count(large, ga_usable_size(large->parent, block), 0);
    return GA_OK;
}

ga_status ga_slab_large_alloc(ga_slab_large *large, size_t size, size_t align, void **out)
{
    ga_status status = ga_alloc(large->parent, size, align, out);
    return status == GA_OK ? note(large, *out) : status;
}

ga_status ga_slab_large_alloc_zeroed(ga_slab_large *large, size_t size, void **out)
{
    ga_status status = ga_alloc_zeroed(large->parent, size, 0, out);
    return status == GA_OK ? note(large, *out) : status;
}

/* Out of the set, so that of two that free it only one does. */
static bool drop(ga_slab_large *large, void *block)
{
    size_t bytes = ga_slab_large_usable_size(large, block);
    bool dropped = ga_slab_starts_remove(&large->starts, block);
    if (dropped) {
        count(large, 0, bytes);
    }
    return dropped;
}

/* Put back a block that the parent failed to free, as a device in trouble does. Its leaf is there:
 * drop() has just cleared a bit of it. */
static void keep(ga_slab_large *large, void *block)
{
    if (ga_slab_starts_add(&large->starts, block)) {
        count(large, ga_usable_size(large->parent, block), 0);
    }
}

ga_status ga_slab_large_free(ga_slab_large *large, void *block)
{
    if (!drop(large, block)) {
        return GA_ERR_POINTER;
    }
    ga_status status = ga_free(large->parent, block);
    if (status != GA_OK && status != GA_ERR_POINTER) {
        keep(large, block);
    }
    return status;
}

/* Without a reservation the block cannot move. It may still be large enough. */
static ga_status stay(ga_slab_large *large, void *block, size_t size, void **out)
{
    if (size > ga_slab_large_usable_size(large, block)) {
        return ga_fail(GA_ERR_MEMORY, "slab: no memory to remember where %p moves to", block);
    }
    *out = block;
    return GA_OK;
}

/* A block that moved and is not in the set would be freed as somebody else's, so the set gets its
 * memory before the parent moves the block. */
ga_status ga_slab_large_realloc(ga_slab_large *large, void *block, size_t size, void **out)
{
    ga_slab_starts_spare spare;
    if (!ga_slab_starts_reserve(&large->starts, &spare)) {
        return stay(large, block, size, out);
    }
    drop(large, block);
    ga_status status = ga_realloc(large->parent, block, size, 0, out);
    void *now = status == GA_OK ? *out : block;
    ga_slab_starts_add_reserved(&large->starts, now, &spare);
    count(large, ga_usable_size(large->parent, now), 0);
    return status;
}

ga_status ga_slab_large_grow(ga_slab_large *large, void *block, size_t size)
{
    size_t before = ga_usable_size(large->parent, block);
    ga_status status = ga_grow(large->parent, block, size);
    if (status == GA_OK) {
        count(large, ga_usable_size(large->parent, block), before);
    }
    return status;
}

size_t ga_slab_large_usable_size(ga_slab_large *large, const void *block)
{
    return ga_slab_large_owns(large, block) ? ga_usable_size(large->parent, block) : 0;
}
