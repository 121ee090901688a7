/* SPDX-License-Identifier: MIT
 *
 * Blocks of kernel heaps with size classes, seen from the host: allocate and free one, look up an
 * address, visit and count all.
 */
#include "sized_state.h"

#include "../../../platform/libc.h"

#include <stddef.h>

/* ---- blocks for the host --------------------------------------------------------------- */

ga_status ga_sized_alloc(ga_sized *sized, size_t size, size_t align, void **out)
{
    ga_cuda_scope scope;
    ga_kernel_heap view;
    uint64_t bytes = size, multiple = align ? align : GA_SIZED_GRANULE;
    if (size > sized->regions * ga_sized_region_size(sized)) {
        return ga_fail(GA_ERR_SIZE, "slab: expected at most limit (%llu) bytes, got %zu",
                       (unsigned long long)(sized->regions * ga_sized_region_size(sized)), size);
    }
    ga_status status = ga_sized_enter(sized, &scope);
    if (status != GA_OK) {
        return status;
    }
    ga_sized_fill_view(sized, &view);
    void **answer = (void **)((char *)sized->heap + offsetof(ga_sized_heap, answer));
    void *parameters[] = {&view, &bytes, &multiple, &answer};
    *out = NULL;
    status = ga_sized_launch(sized, &scope, "ga_sized_take_kernel", 1, parameters);
    if (status == GA_OK) {
        status = ga_sized_get(&scope, out, answer, sizeof *out);
    }
    ga_sized_leave(sized, &scope);
    return status == GA_OK && !*out
               ? ga_fail(GA_ERR_MEMORY, "slab: no more memory for %zu bytes", size)
               : status;
}

/* The block that begins at an address. */
typedef struct location {
    bool inside;         /* in one of the heap's regions */
    ga_sized_found unit; /* that begins there; class GA_SIZED_NONE: none */
    uint32_t regions;    /* of the run that begins there; 0: none */
} location;

/* Look up the unit that begins at that offset, in a region of the owner's class. */
static void locate_unit(const ga_sized *sized, uint64_t offset, uint32_t owner, location *out)
{
    uint32_t class = ga_sized_owner_class(owner);
    uint32_t unit = ga_sized_unit(class);
    uint32_t within = (uint32_t)(offset & (ga_sized_region_size(sized) - 1));
    uint32_t slot = within / unit;
    if (within % unit == 0 && slot < sized->image.of[class].units) {
        uint32_t region = (uint32_t)(offset >> sized->region_bits);
        out->unit.class_ = class;
        out->unit.word_index = ga_sized_bitmap_index(sized->region_bits, region, owner) + slot / 32;
        out->unit.bit_index = slot % 32;
    }
}

/* With the lock held. */
static ga_status locate(ga_sized *sized, const ga_cuda_scope *scope, const void *pointer,
                        location *out)
{
    uint64_t offset = (uint64_t)((uintptr_t)pointer - (uintptr_t)sized->image.units);
    uint64_t region = offset >> sized->region_bits;
    uint32_t owner = 0;
    *out = (location){.inside = region < sized->regions, .unit.class_ = GA_SIZED_NONE};
    if (!out->inside) {
        return GA_OK;
    }
    ga_status status = ga_sized_get(scope, &owner, sized->image.owners + region, sizeof owner);
    if (status == GA_OK && ga_sized_owner_class(owner) != GA_SIZED_NONE) {
        locate_unit(sized, offset, owner, out);
    }
    if (status == GA_OK && owner & GA_SIZED_RUN && offset == region << sized->region_bits) {
        out->regions = owner & ~GA_SIZED_RUN;
    }
    return status;
}

static ga_status check_taken(ga_sized *sized, const ga_cuda_scope *scope, const location *at,
                             const void *block)
{
    uint32_t word = 0;
    if (at->regions) {
        return GA_OK;
    }
    if (at->unit.class_ == GA_SIZED_NONE) {
        return ga_fail(GA_ERR_POINTER, "slab: no block of this heap begins at %p", block);
    }
    ga_status status =
        ga_sized_get(scope, &word, sized->image.bits + at->unit.word_index, sizeof word);
    return status == GA_OK && !(word >> at->unit.bit_index & 1)
               ? ga_fail(GA_ERR_POINTER, "slab: %p is free already", block)
               : status;
}

ga_status ga_sized_free(ga_sized *sized, void *block)
{
    ga_cuda_scope scope;
    ga_kernel_heap view;
    location at;
    ga_status status = ga_sized_enter(sized, &scope);
    if (status != GA_OK) {
        return ga_cuda_is_gone() ? GA_OK : status;
    }
    ga_sized_fill_view(sized, &view);
    status = locate(sized, &scope, block, &at);
    if (status == GA_OK) {
        status = check_taken(sized, &scope, &at, block);
    }
    if (status == GA_OK) {
        void *parameters[] = {&view, &block};
        status = ga_sized_launch(sized, &scope, "ga_sized_give_kernel", 1, parameters);
    }
    ga_sized_leave(sized, &scope);
    return status;
}

static location location_of(ga_sized *sized, const void *pointer)
{
    ga_cuda_scope scope;
    location none = {.unit.class_ = GA_SIZED_NONE}, at = none;
    if (ga_sized_enter(sized, &scope) == GA_OK) {
        if (locate(sized, &scope, pointer, &at) != GA_OK) {
            at = none;
        }
        ga_sized_leave(sized, &scope);
    }
    return at;
}

bool ga_sized_owns(ga_sized *sized, const void *pointer)
{
    return location_of(sized, pointer).inside;
}

size_t ga_sized_usable_size(ga_sized *sized, const void *block)
{
    location at = location_of(sized, block);
    return at.unit.class_ == GA_SIZED_NONE ? (size_t)(at.regions * ga_sized_region_size(sized))
                                           : ga_sized_unit(at.unit.class_);
}

/* ---- all blocks ------------------------------------------------------------------------ */

static void visit_region(const ga_sized *sized, uint32_t region, uint32_t class,
                         const uint32_t *bits, ga_visit *visit, void *context)
{
    const ga_sized_class *c = &sized->image.of[class];
    char *units = sized->image.units + ((uint64_t)region << sized->region_bits);
    for (uint32_t bitmap_word = 0; bitmap_word < c->map.words; bitmap_word++) {
        uint32_t rest = bits[bitmap_word] & ~(bitmap_word + 1 == c->map.words ? c->tail : 0);
        for (; rest; rest &= rest - 1) {
            uint32_t slot = bitmap_word * 32 + ga_bits_lowest(rest);
            visit(context, units + (uint64_t)slot * c->map.unit, c->map.unit);
        }
    }
}

/* Copy a region's owner, and its bitmap if a class has it. GA_ERR_CANNOT_GROW after the last
 * region. */
static ga_status copy_region(ga_sized *sized, uint32_t region, uint32_t *owner, uint32_t *bits)
{
    ga_cuda_scope scope;
    uint32_t next = 0;
    ga_status status = ga_sized_enter(sized, &scope);
    *owner = 0;
    if (status != GA_OK) {
        return status;
    }
    status = ga_sized_wait(&scope);
    if (status == GA_OK) {
        status = ga_sized_get(&scope, &next, &sized->heap->next, sizeof next);
    }
    if (status == GA_OK && region < next) {
        status = ga_sized_get(&scope, owner, sized->image.owners + region, sizeof *owner);
    }
    uint32_t class = ga_sized_owner_class(*owner);
    if (status == GA_OK && class != GA_SIZED_NONE) {
        const uint32_t *from =
            sized->image.bits + ga_sized_bitmap_index(sized->region_bits, region, *owner);
        status = ga_sized_get(&scope, bits, from, sized->image.of[class].map.words * sizeof *bits);
    }
    ga_sized_leave(sized, &scope);
    return status == GA_OK && region >= next ? GA_ERR_CANNOT_GROW : status;
}

/* No lock is held while `visit` runs, because it may call the heap. */
ga_status ga_sized_each_live(ga_sized *sized, ga_visit *visit, void *context)
{
    uint32_t *bits = ga_libc.malloc((size_t)ga_sized_bits_size(sized));
    uint32_t owner;
    ga_status status = GA_OK;
    if (!bits) {
        return ga_fail(GA_ERR_MEMORY, "slab: no %llu bytes to copy the bitmaps to",
                       (unsigned long long)ga_sized_bits_size(sized));
    }
    for (uint32_t region = 0; (status = copy_region(sized, region, &owner, bits)) == GA_OK;
         region++) {
        if (ga_sized_owner_class(owner) != GA_SIZED_NONE) {
            visit_region(sized, region, ga_sized_owner_class(owner), bits, visit, context);
        } else if (owner & GA_SIZED_RUN) {
            visit(context, sized->image.units + region * ga_sized_region_size(sized),
                  (size_t)((owner & ~GA_SIZED_RUN) * ga_sized_region_size(sized)));
        }
    }
    ga_libc.free(bits);
    return status == GA_ERR_CANNOT_GROW ? GA_OK : status;
}

static uint64_t held_bytes(const ga_sized *sized, uint32_t ready)
{
    uint64_t regions = sized->grows ? ready : sized->regions;
    uint64_t each = ga_sized_region_size(sized) + (sized->grows ? ga_sized_bits_size(sized) : 0);
    return sized->bookkeeping_size + regions * each;
}

void ga_sized_stats(ga_sized *sized, ga_backend_stats *out)
{
    ga_cuda_scope scope;
    uint64_t total[2] = {0};
    ga_growth growth = {.ready = 0};
    if (ga_sized_enter(sized, &scope) != GA_OK) {
        return;
    }
    uint64_t *answer = (uint64_t *)((char *)sized->heap + offsetof(ga_sized_heap, live));
    void *parameters[] = {&sized->heap, &answer};
    ga_status status = ga_sized_wait(&scope);
    if (status == GA_OK) {
        status = ga_cuda_clear(&scope, answer, sizeof total);
    }
    if (status == GA_OK) {
        status = ga_sized_launch(sized, &scope, "ga_sized_live_kernel",
                                 GA_SIZED_BLOCK_THREADS * GA_SIZED_GRID_BLOCKS, parameters);
    }
    if (status == GA_OK) {
        status = ga_sized_get(&scope, total, answer, sizeof total);
    }
    if (status == GA_OK && sized->growth) {
        status = ga_sized_get(&scope, &growth, sized->growth, sizeof growth);
    }
    if (status == GA_OK && sized->image.check) {
        ga_sized_heap now;
        status = ga_sized_inspect(sized, &scope, &now);
    }
    if (status == GA_OK) {
        out->live_blocks = total[0];
        out->live_bytes = total[1];
        out->held_bytes = held_bytes(sized, growth.ready);
        out->growths = sized->grows ? growth.ready : 1;
    }
    ga_sized_leave(sized, &scope);
}

ga_status ga_sized_reset(ga_sized *sized)
{
    ga_cuda_scope scope;
    ga_status status = ga_sized_enter(sized, &scope);
    if (status != GA_OK) {
        return status;
    }
    void *parameters[] = {&sized->heap};
    status = ga_sized_wait(&scope);
    if (status == GA_OK) {
        status = ga_sized_launch(sized, &scope, "ga_sized_reset_kernel",
                                 GA_SIZED_BLOCK_THREADS * GA_SIZED_GRID_BLOCKS, parameters);
    }
    ga_sized_leave(sized, &scope);
    return status;
}
