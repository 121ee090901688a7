/* SPDX-License-Identifier: MIT
 *
 * Products in device memory: work.h has the phases. All work is on the stream of the vectors.
 */
#include "run.h"

#include "../multiply.h"

#include "arena/vector_state.h"

enum {
    SPAN_MOST = 76 * 4096,   /* columns of a bitmap in shared memory: it takes as much as the tables
                             * of GA_SPGEMM_SLOTS_MAX slots */
    COLUMNS_MOST = 1 << 27,  /* of B, above which there are no bitmaps */
    CAPACITY_MOST = 1 << 20, /* entries that a block defers */
    SPREAD = 256,            /* columns of a bitmap for each entry, at most */
    BUFFERS_LEAST = 1 << 28  /* bytes that bitmaps of wide rows may always take */
};

/* ---- the plan -------------------------------------------------------------------------------- */

/* Checks all rows, finds the upper bounds and estimates the size of the product. */
static ga_status plan(ga_spgemm_device_run *run)
{
    const ga_csr *a = run->a, *b = run->b;
    ga_spgemm_work *work = &run->work;
    void *parameters[] = {work};
    ga_status status = ga_spgemm_run_allocate(
        run, GA_SPGEMM_SCRATCH_TOTALS, sizeof(ga_spgemm_totals) + a->rows * sizeof *work->uppers);
    if (status != GA_OK) {
        return status;
    }
    work->a = *a;
    work->b = *b;
    work->totals = (ga_spgemm_totals *)run->blocks[GA_SPGEMM_SCRATCH_TOTALS];
    work->uppers = (uint32_t *)(work->totals + 1);
    status =
        ga_spgemm_run_clear(run, run->blocks[GA_SPGEMM_SCRATCH_TOTALS], sizeof(ga_spgemm_totals));
    status = status ? status
                    : GA_CUDA_CALL(run->scope.driver, cuMemsetD8Async,
                                   run->blocks[GA_SPGEMM_SCRATCH_TOTALS], 0xff,
                                   sizeof work->totals->bad_row, run->stream);
    status = status ? status : ga_spgemm_launch_check(run, a, 0);
    if (status == GA_OK && !ga_spgemm_is_same(a, b)) {
        status = ga_spgemm_launch_check(run, b, 1);
    }
    status = status
                 ? status
                 : ga_spgemm_run_kernel(run, "ga_spgemm_bound_kernel", a->rows * 8, 0, parameters);
    status = status ? status
                    : ga_spgemm_run_kernel(run, "ga_spgemm_estimate_kernel", GA_SPGEMM_SAMPLE * 32,
                                           0, parameters);
    status = status ? status
                    : ga_spgemm_run_read_back(run, &run->totals, work->totals, sizeof run->totals);
    if (status == GA_OK && run->totals.bad_row != UINT64_MAX) {
        status =
            ga_spgemm_report_row(run, run->totals.bad_row & 1 ? b : a, run->totals.bad_row >> 1);
    }
    run->report->multiplications = run->totals.multiplications;
    return status;
}

static uint64_t power_of_two(uint64_t least)
{
    uint64_t power = 1;
    while (power < least) {
        power *= 2;
    }
    return power;
}

double ga_spgemm_usual_entries(const ga_spgemm_totals *totals)
{
    uint32_t rows = 0, above = 0;
    int size = GA_SPGEMM_SIZES - 1;
    for (int i = 0; i < GA_SPGEMM_SIZES; i++) {
        rows += totals->sample_sizes[i];
    }
    while (size > 0 && (above += totals->sample_sizes[size]) <= rows / 32) {
        size--;
    }
    return (double)((uint64_t)1 << size / 2) * (size % 2 ? 1.41421356 : 1);
}

/* The rows of which a table has room for `most` columns. */
static ga_spgemm_fit fit_of(const ga_spgemm_totals *totals, uint32_t most)
{
    ga_spgemm_fit fit = {.upper = most};
    for (int i = 0; i < GA_SPGEMM_SIZES; i++) {
        bool fits = totals->sample_most[i] && totals->sample_most[i] <= most;
        fit.sizes |= fits ? (uint32_t)1 << i : 0;
    }
    return fit;
}

/* Lanes and slots for a row: about as many lanes as a row of B has entries, and slots of which most
 * rows take at most about three quarters. Rows that may take more than five sixths are large. */
static void configure(ga_spgemm_device_run *run, uint64_t b_entries)
{
    ga_spgemm_work *work = &run->work;
    const ga_spgemm_totals *totals = &run->totals;
    double length = run->b->rows ? (double)b_entries / (double)run->b->rows : 0;
    double ratio = totals->sample_multiplications
                       ? (double)totals->sample_entries / (double)totals->sample_multiplications
                       : 1;
    uint64_t width = power_of_two((uint64_t)(length * 0.8));
    work->width = (uint32_t)(width < 4 ? 4 : width > 32 ? 32 : width);
    uint64_t rows = GA_SPGEMM_BLOCK / work->width;
    uint64_t slots = power_of_two((uint64_t)(ga_spgemm_usual_entries(totals) * 1.3));
    slots = slots * rows < GA_SPGEMM_SLOTS_MIN ? GA_SPGEMM_SLOTS_MIN / rows : slots;
    slots = slots * rows > GA_SPGEMM_SLOTS_MAX ? GA_SPGEMM_SLOTS_MAX / rows : slots;
    work->slots = (uint32_t)slots;
    run->ratio = ratio;
    work->tile_fit = fit_of(totals, (uint32_t)slots * 5 / 6);
    work->block_fit = fit_of(totals, (uint32_t)(slots * rows) / 2 * 2 / 3);
    if (run->b->columns > COLUMNS_MOST) {
        work->block_fit = (ga_spgemm_fit){UINT32_MAX, UINT32_MAX}; /* in windows */
    }
    work->is_sorted = !(run->options->flags & GA_SPGEMM_UNSORTED);
}

/* 1 - exp(-x), to 1 %. The library does without libm. */
static double saturation(double x)
{
    double power = x < 1024 ? 1 - x / 1024 : 0;
    for (int i = 0; i < 10; i++) {
        power *= power;
    }
    return 1 - power;
}

/* The multiplications of a large row of 2^i to 2^(i+1) - 1, on average. */
static double large_mean(const ga_spgemm_totals *totals, int i)
{
    return totals->large[i] ? (double)totals->large_multiplications[i] / totals->large[i] : 0;
}

/* Entries of the rows that are too large for the sample, from 2^first multiplications on. The more
 * entries a row has, the more of its multiplications are for a column that it has already: if each
 * met a random one of C columns, m of them would leave C (1 - exp(-m / C)). m is what a small row
 * would have for its multiplications. If some columns are more frequent, there are fewer entries.
 */
static double entries_beyond(const ga_spgemm_device_run *run, int first)
{
    double columns = (double)run->b->columns, sum = 0;
    for (int i = first; i < GA_SPGEMM_SIZES; i++) {
        double small = large_mean(&run->totals, i) * run->ratio;
        sum += small > 0 ? run->totals.large[i] * columns * saturation(small / columns) : 0;
    }
    return sum;
}

/* Multiplications of the large rows that are expected to have more than `entries` entries. */
static double multiplications_of_large(const ga_spgemm_device_run *run, double entries)
{
    double sum = 0;
    for (int i = 0; i < GA_SPGEMM_SIZES; i++) {
        double stored = large_mean(&run->totals, i) * run->ratio;
        stored = stored < (double)run->b->columns ? stored : (double)run->b->columns;
        sum += stored > entries ? (double)run->totals.large_multiplications[i] : 0;
    }
    return sum;
}

/* Entries of the product, estimated. The large rows are known once pieces are cut. */
static uint64_t expected(const ga_spgemm_device_run *run)
{
    uint64_t sampled = run->totals.multiplications;
    for (int i = GA_SPGEMM_SAMPLE_LOG; i < GA_SPGEMM_SIZES; i++) {
        sampled -= run->totals.large_multiplications[i];
    }
    return (uint64_t)((double)sampled * run->ratio + entries_beyond(run, GA_SPGEMM_SAMPLE_LOG));
}

/* One run of ga_spgemm_cut_kernel(), which counts the pieces first. */
static ga_status cut(ga_spgemm_device_run *run, uint64_t warps)
{
    void *parameters[] = {&run->work};
    ga_status status = ga_spgemm_run_reset_tickets(run);
    status = status ? status
                    : ga_spgemm_run_clear(run, run->blocks[GA_SPGEMM_SCRATCH_ORDER],
                                          2 * warps * sizeof(uint64_t));
    return status ? status
                  : ga_spgemm_run_kernel(run, "ga_spgemm_cut_kernel", warps * 32, 0, parameters);
}

/* Bytes of a bitmap: bits, and a rank for each group. `columns` is a multiple of a chunk's. */
static uint64_t bitmap_bytes(uint64_t columns)
{
    return columns / 8 + columns / GA_SPGEMM_GROUP * sizeof(uint32_t);
}

/* `columns`, rounded up to whole chunks; 0 for 0. */
static uint64_t whole_chunks(uint64_t columns, uint32_t chunk_log)
{
    uint64_t chunk = (uint64_t)1 << chunk_log;
    return (columns + chunk - 1) / chunk * chunk;
}

/* Makes bitmaps for wide rows: not more than they are, nor than blocks run, nor than half of the
 * memory that the product is expected to take. */
static ga_status open_buffers(ga_spgemm_device_run *run, uint64_t rows)
{
    ga_spgemm_buffers *buffers = &run->work.buffers;
    buffers->chunk_log = GA_SPGEMM_CHUNK_LOG;
    while ((run->b->columns - 1) >> buffers->chunk_log >= GA_SPGEMM_CHUNKS) {
        buffers->chunk_log++;
    }
    uint64_t columns = whole_chunks(run->b->columns, buffers->chunk_log);
    buffers->words = columns / 32;
    buffers->bytes = bitmap_bytes(columns);
    uint64_t product = expected(run) * (sizeof(uint32_t) + ga_value_size(run->a->type));
    uint64_t most = (product / 2 > BUFFERS_LEAST ? product / 2 : BUFFERS_LEAST) / buffers->bytes;
    uint64_t blocks = (uint64_t)run->multiprocessors * GA_SPGEMM_BLOCKS_ROWS;
    most = most < 1 ? 1 : most < blocks ? most : blocks;
    buffers->count = (uint32_t)(rows < most ? rows : most);
    uint64_t bytes = buffers->count * (buffers->bytes + sizeof *buffers->turns);
    ga_status status = ga_spgemm_run_allocate(run, GA_SPGEMM_SCRATCH_BITMAPS, bytes);
    buffers->first = (char *)run->blocks[GA_SPGEMM_SCRATCH_BITMAPS];
    buffers->turns = (uint32_t *)(buffers->first + buffers->count * buffers->bytes);
    return status ? status
                  : ga_spgemm_run_clear(run, run->blocks[GA_SPGEMM_SCRATCH_BITMAPS], bytes);
}

/* Chooses how large rows are computed. */
static ga_status choose_kinds(ga_spgemm_device_run *run)
{
    uint32_t most = SPAN_MOST;
    bool has_bitmaps = run->b->columns <= COLUMNS_MOST;
    float spread = has_bitmaps ? (float)(SPREAD * run->ratio) : 0;
    void *parameters[] = {&run->work, &most, &spread};
    uint64_t bytes = (run->a->rows + 15) / 16 * sizeof *run->work.kinds;
    ga_status status = ga_spgemm_run_allocate(run, GA_SPGEMM_SCRATCH_KINDS, bytes);
    run->work.kinds = (uint32_t *)run->blocks[GA_SPGEMM_SCRATCH_KINDS];
    status =
        status ? status : ga_spgemm_run_clear(run, run->blocks[GA_SPGEMM_SCRATCH_KINDS], bytes);
    return status ? status
                  : ga_spgemm_run_kernel(run, "ga_spgemm_span_kernel", run->a->rows * 8, 0,
                                         parameters);
}

/* Cuts the rows into pieces, if some are large. */
static ga_status cut_pieces(ga_spgemm_device_run *run, uint64_t warps)
{
    ga_spgemm_work *work = &run->work;
    ga_status status = choose_kinds(run);
    status = status ? status : cut(run, warps);
    status = status ? status
                    : ga_spgemm_run_read_back(run, &run->totals, work->totals, sizeof run->totals);
    work->piece_count = run->totals.pieces;
    status = status ? status
                    : ga_spgemm_run_allocate(run, GA_SPGEMM_SCRATCH_PIECES,
                                             work->piece_count *
                                                 (sizeof *work->pieces + sizeof *work->order));
    work->pieces = (ga_spgemm_piece *)run->blocks[GA_SPGEMM_SCRATCH_PIECES];
    status = status ? status : cut(run, warps);
    work->order = (uint64_t *)(work->pieces + work->piece_count);
    return status || !run->totals.wide ? status : open_buffers(run, run->totals.wide);
}

/* Cuts the rows into pieces, and makes the words that order them. */
static ga_status order_pieces(ga_spgemm_device_run *run)
{
    ga_spgemm_work *work = &run->work;
    uint64_t each = GA_SPGEMM_BLOCK / work->width;
    uint64_t bundles = (run->a->rows + each - 1) / each, warps = (bundles + 31) / 32;
    work->piece_count = bundles;
    ga_status status =
        ga_spgemm_run_allocate(run, GA_SPGEMM_SCRATCH_ORDER, (bundles + 2) * sizeof *work->order);
    work->order = (uint64_t *)run->blocks[GA_SPGEMM_SCRATCH_ORDER];
    if (status == GA_OK && run->totals.upper_most > work->tile_fit.upper) {
        status = cut_pieces(run, warps);
    }
    work->span = (uint32_t)whole_chunks(run->totals.span, GA_SPGEMM_CHUNK_LOG);
    return status ? status
                  : ga_spgemm_run_clear(run, (CUdeviceptr)work->order,
                                        work->piece_count * sizeof *work->order);
}

/* ---- the methods ----------------------------------------------------------------------------- */

/* Runs the kernel of rows, and waits for it. */
static ga_status run_rows(ga_spgemm_device_run *run, bool counts_only)
{
    ga_spgemm_work *work = &run->work;
    void *parameters[] = {work};
    uint64_t slots = (uint64_t)GA_SPGEMM_BLOCK / work->width * work->slots;
    uint64_t tables = slots * (4 + (counts_only ? 0 : ga_value_size(work->a.type)));
    uint64_t shared = bitmap_bytes(work->span) > tables ? bitmap_bytes(work->span) : tables;
    uint64_t most = (uint64_t)run->multiprocessors * GA_SPGEMM_BLOCKS_ROWS;
    uint64_t blocks = work->piece_count < most ? work->piece_count : most;
    bool is_double = work->a.type == GA_FLOAT64;
    if (ga_spgemm_is_dot(run)) {
        return ga_spgemm_dot_run(run, counts_only);
    }
    work->indices = counts_only ? NULL : ga_vector_data(run->product->indices);
    work->values = counts_only ? NULL : ga_vector_data(run->product->values);
    ga_status status = ga_spgemm_run_reset_tickets(run);
    status = status ? status
                    : ga_spgemm_run_clear(run, (CUdeviceptr)work->buffers.turns,
                                          work->buffers.count * sizeof *work->buffers.turns);
    status = status
                 ? status
                 : ga_spgemm_run_kernel(
                       run, is_double ? "ga_spgemm_rows_kernel_f64" : "ga_spgemm_rows_kernel_f32",
                       blocks * GA_SPGEMM_BLOCK, (unsigned)shared, parameters);
    return status
               ? status
               : ga_spgemm_run_read_back(run, &run->report->entries, work->offsets + run->a->rows,
                                         sizeof run->report->entries);
}

/* Runs a kernel of all pieces that takes the work and words in zeroed memory of `bytes`. */
static ga_status run_with_words(ga_spgemm_device_run *run, const char *name, uint64_t threads,
                                uint64_t bytes, uint64_t second)
{
    ga_status status = ga_spgemm_run_allocate(run, GA_SPGEMM_SCRATCH_ENDS, bytes);
    CUdeviceptr words = run->blocks[GA_SPGEMM_SCRATCH_ENDS], more = words + second;
    void *parameters[] = {&run->work, &words, &more};
    status = status ? status : ga_spgemm_run_clear(run, words, bytes);
    status = status ? status : ga_spgemm_run_reset_tickets(run);
    status = status ? status : ga_spgemm_run_kernel(run, name, threads, 0, parameters);
    return status ? status
                  : ga_spgemm_run_read_back(run, &run->report->entries,
                                            run->work.offsets + run->a->rows,
                                            sizeof run->report->entries);
}

static ga_status multiply_precise(ga_spgemm_device_run *run)
{
    uint64_t warps = (run->work.piece_count + 31) / 32;
    ga_status status = run_rows(run, true);
    status = status ? status
                    : run_with_words(run, "ga_spgemm_scan_kernel", warps * 32,
                                     warps * sizeof(uint64_t), 0);
    status = status ? status : ga_spgemm_resize(run->product, run->report->entries);
    ga_spgemm_note_peak(run->product, run->report);
    run->work.is_placed = true;
    return status ? status : run_rows(run, false);
}

/* Closes the gaps between the rows. */
static ga_status close_gaps(ga_spgemm_device_run *run)
{
    uint64_t count = run->work.piece_count;
    return run_with_words(run, "ga_spgemm_gaps_kernel", count * GA_SPGEMM_BLOCK,
                          count * (sizeof(uint64_t) + sizeof(uint32_t)), count * sizeof(uint64_t));
}

static ga_status multiply_upper(ga_spgemm_device_run *run)
{
    ga_spgemm_product *c = run->product;
    if (run->totals.upper_most >= UINT32_MAX) {
        return ga_fail(GA_ERR_SIZE,
                       "spgemm: a row of %llu multiplications: expected less than %u for the "
                       "method upper",
                       (unsigned long long)run->totals.upper_most, UINT32_MAX);
    }
    ga_status status = ga_spgemm_resize(c, run->totals.multiplications);
    ga_spgemm_note_peak(c, run->report);
    run->work.has_gaps = true;
    status = status ? status : run_rows(run, false);
    status = status ? status : close_gaps(run);
    status = status ? status : ga_spgemm_resize(c, run->report->entries);
    status = status ? status : ga_vector_shrink_to_fit(c->indices);
    return status ? status : ga_vector_shrink_to_fit(c->values);
}

/* Whether there is memory for any product. Then no kernel requests more. */
static bool has_room(const ga_spgemm_device_run *run)
{
    uint64_t most = run->totals.multiplications;
    return ga_vector_capacity(run->product->indices) >= most &&
           ga_vector_capacity(run->product->values) >= most;
}

/* Entries that a block can defer: an eighth of the product, shared out among all blocks, but at
 * least as many as a table has slots; and no more than four tables have, unless large rows take an
 * eighth of the multiplications. */
static uint32_t capacity_of(const ga_spgemm_device_run *run)
{
    uint64_t blocks = (uint64_t)run->multiprocessors * GA_SPGEMM_BLOCKS_ROWS;
    uint64_t table = (uint64_t)(GA_SPGEMM_BLOCK / run->work.width) * run->work.slots;
    uint64_t share = expected(run) / 8 / (blocks ? blocks : 1) / 64 * 64; /* aligned */
    bool has_large = multiplications_of_large(run, 0) > (double)run->totals.multiplications / 8;
    uint64_t most = has_large ? CAPACITY_MOST : 4 * table;
    share = share < table ? table : share;
    return (uint32_t)(share < most ? share : most);
}

/* Makes memory for deferred pieces, `capacity` entries for each block. */
static ga_status open_store_of(ga_spgemm_device_run *run, uint32_t capacity)
{
    ga_spgemm_work *work = &run->work;
    uint64_t blocks = (uint64_t)run->multiprocessors * GA_SPGEMM_BLOCKS_ROWS;
    blocks = work->piece_count < blocks ? work->piece_count : blocks;
    work->store.capacity = capacity;
    work->store.bytes = GA_SPGEMM_DEFERRED * GA_SPGEMM_ROWS_MAX * sizeof(uint32_t) +
                        work->store.capacity * (sizeof(uint32_t) + ga_value_size(work->a.type));
    ga_status status =
        ga_spgemm_run_allocate(run, GA_SPGEMM_SCRATCH_DEFERRED, blocks * work->store.bytes);
    work->store.first = (char *)run->blocks[GA_SPGEMM_SCRATCH_DEFERRED];
    return status;
}

/* As open_store_of(). With little memory fewer pieces are deferred, or none. */
static ga_status open_store(ga_spgemm_device_run *run)
{
    uint32_t table = (GA_SPGEMM_BLOCK / run->work.width) * run->work.slots;
    ga_status status = open_store_of(run, capacity_of(run));
    status = status == GA_ERR_MEMORY ? open_store_of(run, table) : status;
    run->work.store.capacity = status == GA_OK ? run->work.store.capacity : 0;
    return status == GA_ERR_MEMORY ? GA_OK : status;
}

/* Backs `least` elements, or as many as the vector may have, unless there is no memory. */
static ga_status back_vector(ga_vector *vector, uint64_t least)
{
    ga_status status = ga_vector_reserve(vector, least < vector->max ? least : vector->max);
    return status == GA_ERR_MEMORY ? GA_OK : status;
}

/* A little more than is expected is backed before, because a kernel waits for each step: backing
 * takes longer than filling. Not so for the largest rows: the sample has none of them, their
 * entries may be fewer, and computing them takes longer than backing. */
static ga_status multiply_growing(ga_spgemm_device_run *run)
{
    ga_spgemm_product *c = run->product;
    ga_spgemm_loan loan = {0};
    const char *reason;
    ga_status status = open_store(run);
    if (status != GA_OK) {
        return status;
    }
    if (has_room(run)) {
        ga_status done = run_rows(run, false);
        ga_spgemm_note_peak(c, run->report);
        return done ? done : ga_spgemm_resize(c, run->report->entries);
    }
    uint64_t unsure = (uint64_t)entries_beyond(run, GA_SPGEMM_SAMPLE_LOG) / 4;
    uint64_t least = (expected(run) - unsure) / 50 * 51;
    least = least < run->totals.multiplications ? least : run->totals.multiplications;
    status = back_vector(c->indices, least);
    status = status ? status : back_vector(c->values, least);
    status = status ? status : ga_spgemm_lend(c, expected(run), &loan);
    if (status == GA_OK) {
        run->work.indices_state = loan.indices;
        run->work.values_state = loan.values;
        status = run_rows(run, false);
        status = status ? status
                        : ga_spgemm_run_read_back(run, &run->totals, run->work.totals,
                                                  sizeof run->totals);
    }
    ga_status ended = ga_spgemm_end_loan(c, &loan, &reason);
    ga_spgemm_note_peak(c, run->report);
    if (status == GA_OK && run->totals.stop) {
        return ga_fail(GA_ERR_MEMORY, "spgemm: the vector of %s has no room: %s",
                       run->totals.stop == GA_SPGEMM_STOP_INDICES ? "indices" : "values", reason);
    }
    return status ? status : ended;
}

/* ---- the call -------------------------------------------------------------------------------- */

/* Whether rows that are too large to be deferred take more than a quarter of the multiplications:
 * then others would wait for them for too long. */
static bool has_slow_pieces(const ga_spgemm_device_run *run)
{
    return multiplications_of_large(run, capacity_of(run)) >
           (double)run->totals.multiplications / 4;
}

static ga_status multiply(ga_spgemm_device_run *run)
{
    uint64_t b_entries;
    ga_status status = ga_spgemm_check_both(run);
    status = status ? status : plan(run);
    status = status ? status
                    : ga_spgemm_run_read_back(run, &b_entries, run->b->offsets + run->b->rows,
                                              sizeof b_entries);
    status = status ? status : ga_spgemm_begin(run->a, run->b, run->product);
    if (status != GA_OK) {
        return status;
    }
    run->work.offsets = ga_vector_data(run->product->offsets);
    status = ga_spgemm_run_clear(run, (CUdeviceptr)run->work.offsets,
                                 (run->a->rows + 1) * sizeof *run->work.offsets);
    if (status != GA_OK) {
        return status;
    }
    configure(run, b_entries);
    run->report->entries_estimated = expected(run);
    status = ga_spgemm_is_dot(run) ? ga_spgemm_dot_begin(run) : GA_OK;
    if (status != GA_OK) {
        return status;
    }
    if (run->report->method == GA_SPGEMM_DYNAMIC) {
        return ga_spgemm_dynamic_on_device(run);
    }
    status = order_pieces(run);
    if (status != GA_OK) {
        return status;
    }
    run->report->entries_estimated = expected(run);
    if (run->options->method == GA_SPGEMM_AUTO && has_slow_pieces(run)) {
        run->report->method = GA_SPGEMM_PRECISE;
    }
    switch (run->report->method) {
    case GA_SPGEMM_PRECISE:
        return multiply_precise(run);
    case GA_SPGEMM_UPPER:
        return multiply_upper(run);
    default:
        return multiply_growing(run);
    }
}

ga_status ga_spgemm_on_device(const ga_csr *a, const ga_csr *b, const ga_spgemm_options *options,
                              ga_spgemm_product *product, ga_spgemm_report *report)
{
    ga_spgemm_device_run run = {
        .a = a, .b = b, .options = options, .product = product, .report = report};
    ga_status status = ga_spgemm_run_begin(&run, product);
    if (status != GA_OK) {
        return status;
    }
    status = multiply(&run);
    report->scratch_bytes = run.scratch_bytes;
    ga_spgemm_run_end(&run);
    return status;
}
