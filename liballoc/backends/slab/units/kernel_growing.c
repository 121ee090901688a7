/* SPDX-License-Identifier: MIT
 *
 * The host's side of slab heaps that grow under kernels. Their units and rows are memory that the
 * parent grows (backend.h), one superblock a step. Kernels prepare the steps that they request
 * (slab_growing.h). So `image` lags behind the device, and is refreshed before the host uses it.
 */
#include "kernel_state.h"

#include "../../../growth/pager.h"
#include "../../../platform/log.h"

static uint32_t words_per_super(const ga_slab_kernel *slab)
{
    return GA_SLAB_ROW_WORDS << slab->shape.super_bits;
}

static void set_supers(ga_slab_kernel *slab, uint32_t supers)
{
    slab->image.super_count = supers;
    slab->image.words = supers * words_per_super(slab);
}

/* Free all units of superblocks `from` to `to - 1`, which the host has mapped while no kernel
 * runs. */
static ga_status prepare(ga_slab_kernel *slab, const ga_cuda_scope *scope, uint32_t from,
                         uint32_t to)
{
    uint64_t each = ga_slab_super_bytes(&slab->shape);
    uint32_t *rows = slab->image.rows + (size_t)from * words_per_super(slab);
    return ga_slab_kernel_prepare(slab, scope, slab->image.units + each * from, each * (to - from),
                                  rows, ga_slab_super_rows_bytes(&slab->shape) * (to - from));
}

/* Copy the numbers of `image` to the device; kernels grow the heap from there. */
static ga_status publish_numbers(ga_slab_kernel *slab, const ga_cuda_scope *scope)
{
    ga_growth first = ga_growth_first(slab->growing.mailbox, slab->image.super_count);
    ga_status status = ga_slab_kernel_copy_to(scope, slab->growth, &first, sizeof first);
    if (status == GA_OK) {
        status = ga_slab_kernel_copy_to(scope, &slab->heap->super_count, &slab->image.super_count,
                                        sizeof slab->image.super_count + sizeof slab->image.words);
    }
    for (uint32_t i = 0; i < GA_SLAB_WORD_COPIES; i++) {
        slab->image.word_copies[i * GA_SLAB_WORD_STRIDE] = slab->image.words;
    }
    if (status == GA_OK) {
        status = ga_slab_kernel_copy_to(scope, slab->heap->word_copies, slab->image.word_copies,
                                        sizeof slab->image.word_copies);
    }
    return status;
}

ga_status ga_slab_growing_alloc(ga_slab_kernel *slab, const ga_cuda_scope *scope, uint32_t first)
{
    ga_growing *growing = &slab->growing;
    *growing = (ga_growing){
        .step_bytes = {ga_slab_super_bytes(&slab->shape), ga_slab_super_rows_bytes(&slab->shape)},
        .steps_max = slab->shape.supers,
        .steps = first < slab->shape.supers ? first : slab->shape.supers,
    };
    ga_status status = ga_growing_open(slab->parent, growing);
    if (status != GA_OK) {
        return ga_fail(status, "slab: no memory that grows under kernels: %s", ga_error_text());
    }
    slab->growths = 1;
    slab->image.units = growing->base[0];
    slab->image.rows = growing->base[1];
    set_supers(slab, growing->steps);
    status = prepare(slab, scope, 0, growing->steps);
    if (status == GA_OK) {
        status = ga_slab_kernel_copy_to(scope, slab->heap, &slab->image, sizeof slab->image);
    }
    if (status == GA_OK) {
        status = publish_numbers(slab, scope);
    }
    return status == GA_OK
               ? ga_slab_kernel_recount(slab, scope, 0, slab->image.words / GA_SLAB_ROW_WORDS)
               : status;
}

/* ---- growth by kernels --------------------------------------------------------------------- */

static const char *const reasons[GA_GROWTH_REASONS] = {
    [GA_GROWTH_LIMIT] = "the limit is reached",
    [GA_GROWTH_MEMORY] = "the device is out of memory",
    [GA_GROWTH_GONE] = "the pager did not answer",
    [GA_GROWTH_FIXED] = "it grows between launches only",
};

static void log_refusal(ga_slab_kernel *slab, const ga_growth *growth)
{
    uint32_t reason = (uint32_t)growth->refusal & 7u;
    if (reason && reason != slab->refusal && reason < GA_GROWTH_REASONS) {
        ga_log(GA_LOG_WARN, "slab: device %d: kernels got no more than %u superblocks: %s",
               slab->device, growth->ready, reasons[reason]);
    }
    slab->refusal = reason;
}

ga_status ga_slab_growing_refresh(ga_slab_kernel *slab, const ga_cuda_scope *scope)
{
    ga_growth growth;
    ga_status status = ga_slab_kernel_copy_from(scope, &growth, slab->growth, sizeof growth);
    if (status == GA_OK) {
        slab->growths += growth.ready - slab->image.super_count;
        set_supers(slab, growth.ready);
        log_refusal(slab, &growth);
    }
    return status;
}

/* Double the number of superblocks, or add as many as the parent has memory for. */
static ga_status grow_between_launches(ga_slab_kernel *slab, const ga_cuda_scope *scope)
{
    uint32_t before = slab->image.super_count;
    uint32_t requested = before < slab->shape.supers - before ? 2 * before : slab->shape.supers;
    ga_status status = GA_CUDA_CALL(scope->driver, cuCtxSynchronize);
    if (status == GA_OK && ga_growing_to(slab->parent, &slab->growing, requested) != GA_OK) {
        ga_log(GA_LOG_INFO, "%s", ga_error_text());
    }
    uint32_t after = slab->growing.steps;
    if (status != GA_OK || after <= before) {
        return status;
    }
    status = prepare(slab, scope, before, after);
    if (status == GA_OK) {
        set_supers(slab, after);
        slab->growths++;
        status = publish_numbers(slab, scope);
    }
    return status == GA_OK ? ga_slab_kernel_recount(slab, scope, before << slab->shape.super_bits,
                                                    (after - before) << slab->shape.super_bits)
                           : status;
}

ga_status ga_slab_growing_ahead(ga_slab_kernel *slab, const ga_cuda_scope *scope, bool crowded)
{
    if (slab->growing.mailbox) {
        return ga_growing_to(slab->parent, &slab->growing, 0); /* a kernel may soon request steps */
    }
    return crowded ? grow_between_launches(slab, scope) : GA_OK;
}

void ga_slab_growing_free(ga_slab_kernel *slab)
{
    if (slab->growing.own) {
        ga_growing_close(slab->parent, &slab->growing);
    }
}
