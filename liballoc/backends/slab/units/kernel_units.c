/* SPDX-License-Identifier: MIT
 *
 * Units of a slab heap in device memory for the host: single units, and all of them.
 */
#include "kernel_state.h"

#include "../../../platform/libc.h"

#include <stddef.h>

/* ---- single units -------------------------------------------------------------------------- */

/* The number of the unit that begins at `pointer`, or GA_SLAB_FULL. `inside`: the pointer is in the
 * heap's units. */
static uint32_t unit_at(const ga_slab_kernel *slab, const void *pointer, bool *inside)
{
    uint64_t size = ga_slab_super_bytes(&slab->shape);
    uint64_t per_super = size / slab->shape.unit;
    uint32_t count = slab->image.super_count;
    *inside = false;
    for (uint32_t i = 0; i < (slab->shape.light ? 1 : count); i++) {
        uint64_t all = slab->shape.light ? size * count : size;
        const char *units = slab->shape.light ? slab->image.units : slab->supers[i].units;
        uint64_t offset = (uint64_t)((uintptr_t)pointer - (uintptr_t)units);
        if (offset < all) {
            *inside = true;
            return offset % slab->shape.unit
                       ? GA_SLAB_FULL
                       : (uint32_t)(i * per_super + offset / slab->shape.unit);
        }
    }
    return GA_SLAB_FULL;
}

ga_status ga_slab_kernel_alloc(ga_slab_kernel *slab, size_t size, void **out)
{
    ga_cuda_scope scope;
    if (size > slab->shape.unit) {
        return ga_fail(GA_ERR_SIZE, "slab: expected at most the unit's %u bytes, got %zu",
                       slab->shape.unit, size);
    }
    ga_status status = ga_slab_kernel_enter(slab, &scope);
    if (status != GA_OK) {
        return status;
    }
    void **answer = (void **)((char *)slab->heap + offsetof(ga_slab_heap, answer));
    void *parameters[] = {&slab->heap, &answer};
    *out = NULL;
    status = ga_slab_kernel_launch(slab, &scope, "ga_slab_alloc_kernel", 1, parameters);
    if (status == GA_OK) {
        status = ga_slab_kernel_copy_from(&scope, out, answer, sizeof *out);
    }
    ga_slab_kernel_leave(slab, &scope);
    return status == GA_OK && !*out
               ? ga_fail(GA_ERR_MEMORY, "slab: all %llu units of %u bytes are taken",
                         (unsigned long long)slab->image.words * 32, slab->shape.unit)
               : status;
}

/* GA_OK if the unit is taken. The host may free it then. */
static ga_status check_taken(const ga_slab_kernel *slab, const ga_cuda_scope *scope, uint32_t unit,
                             const void *block)
{
    uint32_t word;
    uint32_t bits = slab->shape.super_bits + GA_SLAB_BLOCK_BITS;
    const uint32_t *rows = slab->shape.light
                               ? slab->image.rows + unit / 32
                               : slab->supers[unit >> bits].rows + (unit & ((1u << bits) - 1)) / 32;
    ga_status status = ga_slab_kernel_copy_from(scope, &word, rows, sizeof word);
    return status == GA_OK && !(word >> unit % 32 & 1)
               ? ga_fail(GA_ERR_POINTER, "slab: %p is free already", block)
               : status;
}

ga_status ga_slab_kernel_free(ga_slab_kernel *slab, void *block)
{
    ga_cuda_scope scope;
    bool inside;
    ga_status status = ga_slab_kernel_enter(slab, &scope);
    if (status != GA_OK) {
        return ga_cuda_is_gone() ? GA_OK : status;
    }
    uint32_t unit = unit_at(slab, block, &inside);
    if (unit == GA_SLAB_FULL) {
        status = ga_fail(GA_ERR_POINTER, "slab: no unit of this heap begins at %p", block);
    } else {
        status = check_taken(slab, &scope, unit, block);
    }
    if (status == GA_OK) {
        void *parameters[] = {&slab->heap, &block};
        status = ga_slab_kernel_launch(slab, &scope, "ga_slab_free_kernel", 1, parameters);
    }
    ga_slab_kernel_leave(slab, &scope);
    return status;
}

/* unit_at() under the lock, after superblocks that kernels have added are known. */
static uint32_t find_unit(ga_slab_kernel *slab, const void *pointer, bool *inside)
{
    ga_cuda_scope scope;
    uint32_t unit = GA_SLAB_FULL;
    *inside = false;
    if (slab->grows) {
        if (ga_slab_kernel_enter(slab, &scope) == GA_OK) {
            unit = unit_at(slab, pointer, inside);
            ga_slab_kernel_leave(slab, &scope);
        }
        return unit;
    }
    pthread_mutex_lock(&slab->lock);
    unit = unit_at(slab, pointer, inside);
    pthread_mutex_unlock(&slab->lock);
    return unit;
}

bool ga_slab_kernel_owns(ga_slab_kernel *slab, const void *pointer)
{
    bool inside;
    find_unit(slab, pointer, &inside);
    return inside;
}

size_t ga_slab_kernel_usable_size(ga_slab_kernel *slab, const void *block)
{
    bool inside;
    return find_unit(slab, block, &inside) == GA_SLAB_FULL ? 0 : slab->shape.unit;
}

/* ---- all units ----------------------------------------------------------------------------- */

static void visit_rows(const ga_slab_kernel *slab, const uint32_t *rows, size_t words, char *units,
                       ga_visit *visit, void *context)
{
    for (size_t word = 0; word < words; word++) {
        for (uint32_t rest = rows[word]; rest; rest &= rest - 1) {
            size_t unit = word * 32 + (size_t)__builtin_ctz(rest);
            visit(context, units + unit * slab->shape.unit, slab->shape.unit);
        }
    }
}

/* The addresses of the units and the bitmap rows of superblock `super`. */
static ga_slab_super super_of(const ga_slab_kernel *slab, uint32_t super)
{
    if (!slab->shape.light) {
        return slab->supers[super];
    }
    size_t words = ga_slab_super_rows_bytes(&slab->shape) / sizeof(uint32_t);
    return (ga_slab_super){slab->image.units + super * ga_slab_super_bytes(&slab->shape),
                           slab->image.rows + super * words};
}

/* Copy the bitmaps of superblock `super`, and get the address of its units: GA_OK and NULL if
 * there is no such superblock. */
static ga_status copy_rows(ga_slab_kernel *slab, uint32_t super, uint32_t *rows, char **units)
{
    ga_cuda_scope scope;
    size_t size = ga_slab_super_rows_bytes(&slab->shape);
    ga_status status = ga_slab_kernel_enter(slab, &scope);
    *units = NULL;
    if (status != GA_OK) {
        return status;
    }
    status = ga_cuda_check(scope.driver, scope.driver->cuCtxSynchronize(), "cuCtxSynchronize");
    if (status == GA_OK && super < slab->image.super_count) {
        ga_slab_super at = super_of(slab, super);
        *units = at.units;
        status = ga_slab_kernel_copy_from(&scope, rows, at.rows, size);
    }
    ga_slab_kernel_leave(slab, &scope);
    return status;
}

/* No lock is held while `visit` runs, because it may call the heap. */
ga_status ga_slab_kernel_each_live(ga_slab_kernel *slab, ga_visit *visit, void *context)
{
    size_t size = ga_slab_super_rows_bytes(&slab->shape);
    uint32_t *rows = ga_libc.malloc(size);
    char *units;
    if (!rows) {
        return ga_fail(GA_ERR_MEMORY, "slab: no %zu bytes to copy the bitmaps to", size);
    }
    ga_status status = copy_rows(slab, 0, rows, &units);
    for (uint32_t super = 1; status == GA_OK && units; super++) {
        visit_rows(slab, rows, size / sizeof *rows, units, visit, context);
        status = copy_rows(slab, super, rows, &units);
    }
    ga_libc.free(rows);
    return status;
}

static ga_status count_live(ga_slab_kernel *slab, const ga_cuda_scope *scope, uint64_t *live)
{
    uint64_t *answer = (uint64_t *)((char *)slab->heap + offsetof(ga_slab_heap, answer));
    void *parameters[] = {&slab->heap, &answer};
    ga_status status =
        ga_cuda_check(scope->driver, scope->driver->cuCtxSynchronize(), "cuCtxSynchronize");
    if (status == GA_OK) {
        status = ga_cuda_clear(scope, answer, sizeof *answer);
    }
    if (status == GA_OK) {
        status = ga_slab_kernel_launch(slab, scope, "ga_slab_live_kernel", slab->image.words,
                                       parameters);
    }
    return status == GA_OK ? ga_slab_kernel_copy_from(scope, live, answer, sizeof *live) : status;
}

void ga_slab_kernel_stats(ga_slab_kernel *slab, ga_backend_stats *out)
{
    ga_cuda_scope scope;
    ga_slab_heap now;
    uint64_t live = 0;
    if (ga_slab_kernel_enter(slab, &scope) == GA_OK) {
        out->growths = slab->growths;
        out->held_bytes = ga_slab_kernel_held(slab);
        if (count_live(slab, &scope, &live) == GA_OK &&
            ga_slab_kernel_read_heap(slab, &scope, &now) == GA_OK) {
            out->live_blocks = live;
            out->live_bytes = live * slab->shape.unit;
        }
        ga_slab_kernel_leave(slab, &scope);
    }
}

ga_status ga_slab_kernel_reset(ga_slab_kernel *slab)
{
    ga_cuda_scope scope;
    size_t size = ga_slab_super_rows_bytes(&slab->shape);
    ga_status status = ga_slab_kernel_enter(slab, &scope);
    if (status != GA_OK) {
        return status;
    }
    status = ga_cuda_check(scope.driver, scope.driver->cuCtxSynchronize(), "cuCtxSynchronize");
    for (uint32_t i = 0; status == GA_OK && i < slab->image.super_count; i++) {
        ga_slab_super at = super_of(slab, i);
        status = ga_slab_kernel_prepare(slab, &scope, at.units, ga_slab_super_bytes(&slab->shape),
                                        at.rows, size);
    }
    if (status == GA_OK) {
        status = ga_slab_kernel_recount(slab, &scope, 0, slab->image.words / GA_SLAB_ROW_WORDS);
    }
    if (status == GA_OK) { /* the hints */
        const size_t learnt = offsetof(ga_slab_heap, hints);
        status = ga_cuda_clear(&scope, (char *)slab->heap + learnt, sizeof slab->image.hints);
    }
    ga_slab_kernel_leave(slab, &scope);
    return status;
}

void ga_slab_kernel_fork(ga_slab_kernel *slab, bool before)
{
    if (before) {
        pthread_mutex_lock(&slab->lock);
    } else {
        pthread_mutex_unlock(&slab->lock);
    }
}
