/* SPDX-License-Identifier: MIT
 *
 * GA_SPGEMM_DYNAMIC on a device: the launches of its rounds.
 */
#include "run.h"

#include "../rounds.h"

#include "arena/vector_state.h"

enum {
    LISTS = 4096 /* entries of all lists in the shared memory of a block: 48 KiB in float64 */
};

/* ---- a round --------------------------------------------------------------------------------- */

static const char *kernel_name(const ga_spgemm_device_run *run)
{
    bool is_double = run->work.a.type == GA_FLOAT64;
    return ga_spgemm_is_dot(run)
               ? (is_double ? "ga_spgemm_dot_round_kernel_f64" : "ga_spgemm_dot_round_kernel_f32")
               : (is_double ? "ga_spgemm_round_kernel_f64" : "ga_spgemm_round_kernel_f32");
}

/* Bytes of the lists of a block's tiles. */
static unsigned list_bytes(const ga_spgemm_device_run *run, uint32_t size)
{
    uint64_t entries = ga_spgemm_is_dot(run) ? 0 : GA_SPGEMM_BLOCK / run->work.width * size;
    return (unsigned)(entries * (sizeof(uint32_t) + ga_value_size(run->work.a.type)));
}

static ga_status fill(ga_spgemm_rounds *rounds, uint64_t *listed)
{
    ga_spgemm_device_run *run = rounds->context;
    void *parameters[] = {&run->work, &rounds->round, &run->columns};
    ga_status status = ga_spgemm_run_reset_tickets(run);
    status =
        status ? status
               : ga_spgemm_run_kernel(run, kernel_name(run), rounds->round.active * run->work.width,
                                      list_bytes(run, rounds->round.size), parameters);
    return status ? status
                  : ga_spgemm_run_read_back(run, listed, &run->work.totals->listed, sizeof *listed);
}

/* ---- one launch for all rounds --------------------------------------------------------------- */

/* Lends the vectors and the list, with room for the first round. *rows is the list's state for
 * arena/append.h. */
static ga_status lend(ga_spgemm_rounds *rounds, ga_spgemm_loan *loan, void **rows)
{
    const ga_spgemm_product *c = rounds->product;
    ga_kernel_vector view = {0};
    uint64_t first = rounds->round.all * rounds->round.size;
    uint64_t estimate = rounds->report->entries_estimated;
    ga_status status = ga_vector_reserve(c->indices, first);
    status = status ? status : ga_vector_reserve(c->values, first);
    status = status ? status : ga_vector_reserve(rounds->rows, rounds->round.all);
    status = status ? status : ga_spgemm_lend(c, first > estimate ? first : estimate, loan);
    status = status ? status : ga_vector_lend(rounds->rows, GA_SPGEMM_LIST_STEP, &view);
    *rows = view.state;
    return status;
}

/* Launches the kernel, and waits for it. */
static ga_status run_lent(ga_spgemm_rounds *rounds, const ga_spgemm_loan *loan, void *rows)
{
    ga_spgemm_device_run *run = rounds->context;
    ga_spgemm_grid last;
    ga_status status = ga_spgemm_run_allocate(run, GA_SPGEMM_SCRATCH_GRID, sizeof last);
    CUdeviceptr grid = run->blocks[GA_SPGEMM_SCRATCH_GRID];
    void *parameters[] = {&run->work, &rounds->round, &grid, &rows};
    const char *name = run->work.a.type == GA_FLOAT64 ? "ga_spgemm_rounds_kernel_f64"
                                                      : "ga_spgemm_rounds_kernel_f32";
    run->work.indices_state = loan->indices;
    run->work.values_state = loan->values;
    status = status ? status : ga_spgemm_run_clear(run, grid, sizeof last);
    status = status ? status
                    : ga_spgemm_run_together(run, name, rounds->round.all * run->work.width,
                                             list_bytes(run, rounds->round.size), parameters);
    status = status ? status : ga_spgemm_run_read_back(run, &last, (void *)grid, sizeof last);
    status = status
                 ? status
                 : ga_spgemm_run_read_back(run, &run->totals, run->work.totals, sizeof run->totals);
    if (status == GA_OK) {
        rounds->round.first = last.first;
        rounds->round.number = last.number;
    }
    return status;
}

static ga_status run_together(ga_spgemm_rounds *rounds)
{
    ga_spgemm_device_run *run = rounds->context;
    ga_spgemm_loan loan = {0};
    void *rows = NULL;
    const char *reason;
    ga_vector_appended list = {.reason = ""};
    if (!rounds->round.all) {
        return GA_OK;
    }
    ga_status status = lend(rounds, &loan, &rows);
    status = status ? status : run_lent(rounds, &loan, rows);
    ga_status list_ended = rows ? ga_vector_end_loan(rounds->rows, &list) : GA_OK;
    ga_status ended = ga_spgemm_end_loan(rounds->product, &loan, &reason);
    ga_spgemm_note_peak(rounds->product, rounds->report);
    if (status == GA_OK && run->totals.stop) {
        static const char *const names[] = {"", "vector of indices", "vector of values",
                                            "list of rows"};
        bool is_list = run->totals.stop == GA_SPGEMM_STOP_ROWS;
        return ga_fail(GA_ERR_MEMORY, "spgemm: the %s has no room: %s", names[run->totals.stop],
                       is_list ? list.reason : reason);
    }
    return status ? status : ended ? ended : list_ended;
}

/* ---- after the rounds ------------------------------------------------------------------------ */

/* The scan of pieces, of which each is one row: their lengths are the numbers of entries. */
static ga_status sum_rows(ga_spgemm_device_run *run)
{
    ga_spgemm_work work = run->work;
    uint64_t warps = (run->a->rows + 31) / 32;
    ga_status status =
        ga_spgemm_run_allocate(run, GA_SPGEMM_SCRATCH_ENDS, warps * sizeof(uint64_t));
    CUdeviceptr ends = run->blocks[GA_SPGEMM_SCRATCH_ENDS];
    void *parameters[] = {&work, &ends};
    work.width = GA_SPGEMM_BLOCK;
    work.pieces = NULL;
    work.piece_count = run->a->rows;
    work.order = work.offsets + 1;
    status = status ? status : ga_spgemm_run_clear(run, ends, warps * sizeof(uint64_t));
    status = status ? status : ga_spgemm_run_reset_tickets(run);
    status = status ? status
                    : ga_spgemm_run_kernel(run, "ga_spgemm_scan_kernel", warps * 32, 0, parameters);
    return status ? status
                  : ga_spgemm_run_read_back(run, &run->report->entries, work.offsets + run->a->rows,
                                            sizeof run->report->entries);
}

static ga_status sum(ga_spgemm_rounds *rounds, uint64_t *entries)
{
    ga_status status = sum_rows(rounds->context);
    *entries = rounds->report->entries;
    return status;
}

static ga_status gather(ga_spgemm_rounds *rounds, const void *from, void *to, size_t element)
{
    ga_spgemm_device_run *run = rounds->context;
    uint32_t size = (uint32_t)element;
    void *parameters[] = {&rounds->round, &run->work.offsets, &from, &to, &size};
    return ga_spgemm_run_kernel(run, "ga_spgemm_gather_kernel",
                                rounds->round.first * GA_SPGEMM_GATHER_LANES, 0, parameters);
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
        .run = run->options->flags & GA_SPGEMM_COOPERATIVE ? run_together : NULL,
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
