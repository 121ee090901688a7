/* SPDX-License-Identifier: MIT
 *
 * GA_SPGEMM_DYNAMIC on a device: the launches of its rounds.
 */
#include "run.h"

#include "../rounds.h"

#include "arena/vector_state.h"

#include <stddef.h>

enum {
    LISTS = 4096 /* entries of all lists in the shared memory of a block: 48 KiB in float64 */
};

/* ---- a round --------------------------------------------------------------------------------- */

static const char *kernel_name(const ga_spgemm_device_run *run)
{
    bool is_wide = run->work.a.type == GA_FLOAT64;
    return ga_spgemm_is_dot(run)
               ? (is_wide ? "ga_spgemm_dot_round_kernel_f64" : "ga_spgemm_dot_round_kernel_f32")
               : (is_wide ? "ga_spgemm_round_kernel_f64" : "ga_spgemm_round_kernel_f32");
}

/* Bytes of the lists of a block's tiles. */
static unsigned list_bytes(const ga_spgemm_device_run *run, uint32_t size)
{
    uint64_t entries = ga_spgemm_is_dot(run) ? 0 : GA_SPGEMM_BLOCK / run->work.width * size;
    return (unsigned)(entries * (sizeof(uint32_t) + ga_value_size(run->work.a.type)));
}

static ga_status fill(ga_spgemm_rounds *rounds, uint64_t *active)
{
    ga_spgemm_device_run *run = rounds->context;
    const ga_spgemm_work *work = &run->work;
    void *parameters[] = {&run->work, &rounds->round, &run->columns};
    ga_status status = ga_spgemm_run_clear(
        run, run->blocks[GA_SPGEMM_SCRATCH_TOTALS] + offsetof(ga_spgemm_totals, tickets),
        sizeof work->totals->tickets + sizeof work->totals->active);
    status = status
                 ? status
                 : ga_spgemm_run_kernel(run, kernel_name(run), rounds->round.active * work->width,
                                        list_bytes(run, rounds->round.size), parameters);
    return status ? status
                  : ga_spgemm_run_read_back(run, active, &work->totals->active, sizeof *active);
}

static ga_status sum(ga_spgemm_rounds *rounds, uint64_t *entries)
{
    ga_status status = ga_spgemm_run_sum_rows(rounds->context);
    *entries = rounds->report->entries;
    return status;
}

static ga_status gather(ga_spgemm_rounds *rounds, const void *from, void *to, size_t element)
{
    ga_spgemm_device_run *run = rounds->context;
    uint32_t size = (uint32_t)element;
    void *parameters[] = {&rounds->round, &run->work.offsets, &from, &to, &size};
    return ga_spgemm_run_kernel(run, "ga_spgemm_gather_kernel", rounds->round.first * 8, 0,
                                parameters);
}

/* ---- the call -------------------------------------------------------------------------------- */

/* About as many lanes as a row of A has entries, and so many that there is room for the lists. */
static ga_status choose_width(ga_spgemm_device_run *run, uint32_t size)
{
    uint64_t entries;
    uint32_t width = 4;
    ga_status status =
        ga_spgemm_run_read_back(run, &entries, run->a->offsets + run->a->rows, sizeof entries);
    while (status == GA_OK && width < 32 &&
           (width * run->a->rows < entries || GA_SPGEMM_BLOCK / width * size > LISTS)) {
        width *= 2;
    }
    run->work.width = ga_spgemm_is_dot(run) ? 1 : width;
    return status;
}

static uint32_t choose_size(const ga_spgemm_device_run *run)
{
    double rows = run->a->rows ? (double)run->a->rows : 1;
    return run->options->size_per_row
               ? run->options->size_per_row
               : ga_spgemm_choose_size(run->options->goal, ga_spgemm_usual_entries(&run->totals),
                                       (double)run->report->entries_estimated / rows);
}

/* The cursors take the place of the upper bounds, which are not needed any more. */
ga_status ga_spgemm_dynamic_on_device(ga_spgemm_device_run *run)
{
    uint64_t most = run->totals.upper_most, columns = run->b->columns;
    ga_spgemm_rounds rounds = {
        .product = run->product,
        .report = run->report,
        .row_most = most < columns ? most : columns,
        .context = run,
        .fill = fill,
        .sum = sum,
        .gather = gather,
        .round = {.size = choose_size(run), .all = run->a->rows, .cursors = run->work.uppers},
    };
    run->work.indices = ga_vector_data(run->product->indices);
    run->work.values = ga_vector_data(run->product->values);
    ga_status status = choose_width(run, rounds.round.size);
    status = status ? status
                    : ga_spgemm_run_clear(run, (CUdeviceptr)run->work.uppers,
                                          run->a->rows * sizeof *run->work.uppers);
    status = status ? status : ga_spgemm_run_rounds(&rounds);
    run->scratch_bytes += run->report->scratch_bytes;
    return status;
}
