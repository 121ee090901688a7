/* SPDX-License-Identifier: MIT
 *
 * Products in device memory: work.h has the phases. All work is on the stream of the vectors.
 */
#include "work.h"

#include "../matrix.h"
#include "../multiply.h"

#include "arena/vector_state.h"
#include "device/device.h"
#include "platform/cuda_refused.h"
#include "platform/libc.h"

#include <stddef.h>
#include <string.h>

enum {
    BLOCKS_MAX = 8,        /* of a multiprocessor */
    SLOTS_MIN = 2048,      /* of a block */
    SLOTS_MAX = 4096,      /* 48 KiB in float64: four blocks on an H100, where there are registers
                            * for four */
    BLOCKS_DENSE = 4,      /* of a multiprocessor, that compute dense rows at a time */
    DENSE_LEAST = 1 << 28, /* bytes that buffers for dense rows may always take */
    DENSE_MOST = 1 << 30   /* of one buffer */
};

/* Device memory of a product, besides the vectors. */
typedef enum scratch {
    SCRATCH_TOTALS, /* ga_spgemm_totals, and upper bounds */
    SCRATCH_ORDER,  /* words of order_tile.h: of the rows' pieces, or to cut them */
    SCRATCH_PIECES, /* pieces, and words for them */
    SCRATCH_ENDS,   /* words of the kernels that close gaps, or make positions of lengths */
    SCRATCH_DENSE,  /* buffers for dense rows */
    SCRATCH_COUNT
} scratch;

typedef struct product_run {
    const ga_csr *a, *b;
    const ga_spgemm_options *options;
    ga_spgemm_product *product;
    ga_spgemm_report *report;

    ga_cuda_scope scope;
    int device;
    CUstream stream;
    unsigned multiprocessors;

    ga_spgemm_work work;
    ga_spgemm_totals totals; /* as they were last read */
    double ratio;            /* entries of C for one multiplication, estimated */
    CUdeviceptr blocks[SCRATCH_COUNT];
    uint64_t scratch_bytes;
} product_run;

/* ---- driver calls ---------------------------------------------------------------------------- */

static ga_status begin(product_run *run, const ga_spgemm_product *product)
{
    int count = 0;
    CUdevice device = 0;
    run->device = product->offsets->carrier.device;
    run->stream = product->offsets->carrier.stream;
    ga_status status = ga_cuda_enter(&run->scope, run->device);
    if (status != GA_OK) {
        return status;
    }
    status = GA_CUDA_CALL(run->scope.driver, cuDeviceGet, &device, run->device);
    status = status ? status
                    : GA_CUDA_CALL(run->scope.driver, cuDeviceGetAttribute, &count,
                                   CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    run->multiprocessors = (unsigned)count;
    if (status != GA_OK) {
        ga_cuda_leave(&run->scope);
    }
    return status;
}

static void end(product_run *run)
{
    for (size_t i = 0; i < sizeof run->blocks / sizeof *run->blocks; i++) {
        if (run->blocks[i]) {
            ga_cuda_drop_block(run->scope.driver, run->device, run->blocks[i]);
        }
    }
    ga_cuda_leave(&run->scope);
}

/* The driver refuses 0 bytes. */
static ga_status allocate(product_run *run, scratch block, uint64_t bytes)
{
    ga_status status =
        GA_CUDA_CALL(run->scope.driver, cuMemAlloc, &run->blocks[block], bytes ? bytes : 1);
    run->scratch_bytes += status == GA_OK ? bytes : 0;
    return status == GA_ERR_MEMORY
               ? ga_fail(status, "spgemm: no scratch memory of %llu bytes on device %d",
                         (unsigned long long)bytes, run->device)
               : status;
}

static ga_status clear(product_run *run, CUdeviceptr at, uint64_t bytes)
{
    return bytes ? GA_CUDA_CALL(run->scope.driver, cuMemsetD8Async, at, 0, bytes, run->stream)
                 : GA_OK;
}

/* Copy from the device, and wait. */
static ga_status read_back(product_run *run, void *to, const void *from, uint64_t bytes)
{
    ga_status status = GA_CUDA_CALL(run->scope.driver, cuMemcpyDtoHAsync, to, (CUdeviceptr)from,
                                    bytes, run->stream);
    return status ? status : GA_CUDA_CALL(run->scope.driver, cuStreamSynchronize, run->stream);
}

/* `threads` in all, at most as many as the device can run at a time. */
static ga_status launch(product_run *run, const char *name, uint64_t threads, unsigned shared,
                        void **parameters)
{
    CUfunction kernel;
    uint64_t blocks = (threads + GA_SPGEMM_BLOCK - 1) / GA_SPGEMM_BLOCK;
    uint64_t most = (uint64_t)run->multiprocessors * BLOCKS_MAX;
    ga_status status = ga_device_function(&kernel, run->device, name);
    if (status == GA_OK && shared) {
        /* One value for all launches, because threads may launch at a time. */
        status = GA_CUDA_CALL(run->scope.driver, cuFuncSetAttribute, kernel,
                              CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              SLOTS_MAX * (int)(sizeof(uint32_t) + sizeof(double)));
        /* In percent. By itself the driver reserves shared memory for one block only. */
        status = status ? status
                        : GA_CUDA_CALL(run->scope.driver, cuFuncSetAttribute, kernel,
                                       CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100);
    }
    return status || !blocks
               ? status
               : GA_CUDA_CALL(run->scope.driver, cuLaunchKernel, kernel,
                              (unsigned)(blocks < most ? blocks : most), 1, 1, GA_SPGEMM_BLOCK, 1,
                              1, shared, run->stream, parameters, NULL);
}

/* Tickets are handed out from 0 again. */
static ga_status reset_tickets(product_run *run)
{
    return clear(run, run->blocks[SCRATCH_TOTALS] + offsetof(ga_spgemm_totals, tickets),
                 sizeof(uint64_t));
}

/* ---- are the matrices valid? ----------------------------------------------------------------- */

/* Host memory must be page-locked or managed; device memory on this device, or managed. */
static ga_status check_pointer(product_run *run, const void *pointer, const char *name)
{
    unsigned type = 0, managed = 0;
    int device = -1;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *values[] = {&type, &managed, &device};
    ga_status status = GA_CUDA_CALL(run->scope.driver, cuPointerGetAttributes, 3, attributes,
                                    values, (CUdeviceptr)pointer);
    bool is_there = type && (type != CU_MEMORYTYPE_DEVICE || managed || device == run->device);
    return status || is_there
               ? status
               : ga_fail(GA_ERR_ARGUMENT,
                         "spgemm: %s at %p: expected memory that device %d can access, as the "
                         "vectors are there",
                         name, pointer, run->device);
}

/* The arrays that the kernels will read. */
static ga_status check_arrays(product_run *run, const ga_csr *m)
{
    uint64_t ends[2];
    ga_status status = check_pointer(run, m->offsets, "offsets");
    status = status ? status : read_back(run, &ends[0], m->offsets, sizeof *ends);
    status = status ? status : read_back(run, &ends[1], m->offsets + m->rows, sizeof *ends);
    status = status ? status : ga_csr_check_offsets(0, ends[0], m->rows ? ends[0] : ends[1]);
    status = status ? status : ga_csr_check_arrays(m, ends[1]);
    if (status == GA_OK && ends[1]) {
        status = check_pointer(run, m->indices, "columns");
        status = status ? status : check_pointer(run, m->values, "values");
    }
    return status;
}

/* Say what is wrong with a row that the kernel has found. */
static ga_status report_row(product_run *run, const ga_csr *m, uint64_t row)
{
    uint64_t ends[2], last;
    ga_status status = read_back(run, ends, m->offsets + row, sizeof ends);
    status = status ? status : read_back(run, &last, m->offsets + m->rows, sizeof last);
    status = status ? status : ga_csr_check_offsets(row, ends[0], ends[1]);
    if (status == GA_OK && ends[1] > last) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "matrix: row %llu: it ends at %llu: expected at most %llu, the end of the "
                       "last row",
                       (unsigned long long)row, (unsigned long long)ends[1],
                       (unsigned long long)last);
    }
    uint64_t count = status == GA_OK ? ends[1] - ends[0] : 0;
    uint32_t *indices = count ? ga_libc.calloc(count, sizeof *indices) : NULL;
    if (indices) {
        status = read_back(run, indices, m->indices + ends[0], count * sizeof *indices);
        status = status ? status : ga_csr_check_row(row, indices, count, m->columns);
        ga_libc.free(indices);
    }
    return status
               ? status
               : ga_fail(GA_ERR_ARGUMENT,
                         "matrix: row %llu: expected ascending columns, each once, less than %llu",
                         (unsigned long long)row, (unsigned long long)m->columns);
}

static ga_status launch_check(product_run *run, const ga_csr *m, uint32_t is_b)
{
    ga_spgemm_totals *totals = (ga_spgemm_totals *)run->blocks[SCRATCH_TOTALS];
    ga_csr copy = *m;
    void *parameters[] = {&copy, &totals, &is_b};
    return launch(run, "ga_spgemm_check_kernel", m->rows * 8, 0, parameters);
}

static bool is_same(const ga_csr *a, const ga_csr *b)
{
    return a->offsets == b->offsets && a->indices == b->indices && a->rows == b->rows &&
           a->columns == b->columns;
}

/* What the kernels cannot check. */
static ga_status check_both(product_run *run)
{
    ga_status status = check_arrays(run, run->a);
    if (status == GA_OK && !(is_same(run->a, run->b) && run->a->values == run->b->values)) {
        status = check_arrays(run, run->b);
    }
    return status;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Checks all rows, finds the upper bounds and estimates the size of the product. */
static ga_status plan(product_run *run)
{
    const ga_csr *a = run->a, *b = run->b;
    ga_spgemm_work *work = &run->work;
    void *parameters[] = {work};
    ga_status status =
        allocate(run, SCRATCH_TOTALS, sizeof(ga_spgemm_totals) + a->rows * sizeof *work->uppers);
    if (status != GA_OK) {
        return status;
    }
    work->a = *a;
    work->b = *b;
    work->totals = (ga_spgemm_totals *)run->blocks[SCRATCH_TOTALS];
    work->uppers = (uint32_t *)(work->totals + 1);
    status = clear(run, run->blocks[SCRATCH_TOTALS], sizeof(ga_spgemm_totals));
    status = status ? status
                    : GA_CUDA_CALL(run->scope.driver, cuMemsetD8Async, run->blocks[SCRATCH_TOTALS],
                                   0xff, sizeof work->totals->bad_row, run->stream);
    status = status ? status : launch_check(run, a, 0);
    if (status == GA_OK && !is_same(a, b)) {
        status = launch_check(run, b, 1);
    }
    status = status ? status : launch(run, "ga_spgemm_bound_kernel", a->rows * 8, 0, parameters);
    status = status
                 ? status
                 : launch(run, "ga_spgemm_estimate_kernel", GA_SPGEMM_SAMPLE * 32, 0, parameters);
    status = status ? status : read_back(run, &run->totals, work->totals, sizeof run->totals);
    if (status == GA_OK && run->totals.bad_row != UINT64_MAX) {
        status = report_row(run, run->totals.bad_row & 1 ? b : a, run->totals.bad_row >> 1);
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

/* The entries that a row of the product has at most, but for one in 32 rows of the sample. */
static double usual_entries(const ga_spgemm_totals *totals)
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
static void configure(product_run *run, uint64_t b_entries)
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
    uint64_t slots = power_of_two((uint64_t)(usual_entries(totals) * 1.3));
    slots = slots * rows < SLOTS_MIN ? SLOTS_MIN / rows : slots;
    slots = slots * rows > SLOTS_MAX ? SLOTS_MAX / rows : slots;
    work->slots = (uint32_t)slots;
    run->ratio = ratio;
    work->tile_fit = fit_of(totals, (uint32_t)slots * 5 / 6);
    work->block_fit = fit_of(totals, (uint32_t)(slots * rows) / 2 * 2 / 3);
    if (run->b->columns * ga_value_size(run->b->type) > DENSE_MOST) {
        work->block_fit = (ga_spgemm_fit){UINT32_MAX, UINT32_MAX}; /* in windows */
    }
    work->is_sorted = !(run->options->flags & GA_SPGEMM_UNSORTED);
}

/* Entries of the product, estimated. */
static uint64_t expected(const product_run *run)
{
    return (uint64_t)((double)run->totals.multiplications * run->ratio);
}

/* One run of ga_spgemm_cut_kernel(), which counts the pieces first. */
static ga_status cut(product_run *run, uint64_t warps)
{
    void *parameters[] = {&run->work};
    ga_status status = reset_tickets(run);
    status = status ? status : clear(run, run->blocks[SCRATCH_ORDER], 2 * warps * sizeof(uint64_t));
    return status ? status : launch(run, "ga_spgemm_cut_kernel", warps * 32, 0, parameters);
}

/* Makes buffers for dense rows: not more than they are, nor than blocks run, nor than half of the
 * memory that the product is expected to take. */
static ga_status open_dense(product_run *run, uint64_t rows)
{
    ga_spgemm_dense *dense = &run->work.dense;
    uint64_t columns = run->b->columns, words = (columns + 1023) / 1024;
    dense->bits = (columns * ga_value_size(run->a->type) + 127) / 128 * 128;
    dense->summary = dense->bits + words * 32 * sizeof(uint32_t);
    dense->bytes = (dense->summary + words * sizeof(uint32_t) + 127) / 128 * 128;
    uint64_t product = expected(run) * (sizeof(uint32_t) + ga_value_size(run->a->type));
    uint64_t most = (product / 2 > DENSE_LEAST ? product / 2 : DENSE_LEAST) / dense->bytes;
    uint64_t blocks = (uint64_t)run->multiprocessors * BLOCKS_DENSE;
    most = most < 1 ? 1 : most < blocks ? most : blocks;
    dense->count = (uint32_t)(rows < most ? rows : most);
    uint64_t bytes = dense->count * (dense->bytes + sizeof *dense->turns);
    ga_status status = allocate(run, SCRATCH_DENSE, bytes);
    dense->buffers = (char *)run->blocks[SCRATCH_DENSE];
    dense->turns = (uint32_t *)(dense->buffers + dense->count * dense->bytes);
    return status ? status : clear(run, run->blocks[SCRATCH_DENSE], bytes);
}

/* Cuts the rows into pieces, and makes the words that order them. */
static ga_status order_pieces(product_run *run)
{
    ga_spgemm_work *work = &run->work;
    uint64_t each = GA_SPGEMM_BLOCK / work->width;
    uint64_t bundles = (run->a->rows + each - 1) / each, warps = (bundles + 31) / 32;
    work->piece_count = bundles;
    ga_status status = allocate(run, SCRATCH_ORDER, (bundles + 2) * sizeof *work->order);
    work->order = (uint64_t *)run->blocks[SCRATCH_ORDER];
    if (status == GA_OK && run->totals.upper_most > work->tile_fit.upper) {
        status = cut(run, warps);
        status = status ? status : read_back(run, &run->totals, work->totals, sizeof run->totals);
        work->piece_count = run->totals.pieces;
        status = status
                     ? status
                     : allocate(run, SCRATCH_PIECES,
                                work->piece_count * (sizeof *work->pieces + sizeof *work->order));
        work->pieces = (ga_spgemm_piece *)run->blocks[SCRATCH_PIECES];
        status = status ? status : cut(run, warps);
        work->order = (uint64_t *)(work->pieces + work->piece_count);
        if (status == GA_OK && run->totals.dense) {
            status = open_dense(run, run->totals.dense);
        }
    }
    return status ? status
                  : clear(run, (CUdeviceptr)work->order, work->piece_count * sizeof *work->order);
}

/* ---- the methods ----------------------------------------------------------------------------- */

/* Runs the kernel of rows, and waits for it. */
static ga_status run_rows(product_run *run, bool counts_only)
{
    ga_spgemm_work *work = &run->work;
    void *parameters[] = {work};
    uint64_t slots = (uint64_t)GA_SPGEMM_BLOCK / work->width * work->slots;
    uint64_t slot_bytes = 4 + (counts_only ? 0 : ga_value_size(work->a.type));
    bool is_wide = work->a.type == GA_FLOAT64;
    work->indices = counts_only ? NULL : ga_vector_data(run->product->indices);
    work->values = counts_only ? NULL : ga_vector_data(run->product->values);
    ga_status status = reset_tickets(run);
    status = status ? status
                    : clear(run, (CUdeviceptr)work->dense.turns,
                            work->dense.count * sizeof *work->dense.turns);
    status = status
                 ? status
                 : launch(run, is_wide ? "ga_spgemm_rows_kernel_f64" : "ga_spgemm_rows_kernel_f32",
                          work->piece_count * GA_SPGEMM_BLOCK, (unsigned)(slots * slot_bytes),
                          parameters);
    return status ? status
                  : read_back(run, &run->report->entries, work->offsets + run->a->rows,
                              sizeof run->report->entries);
}

/* Runs a kernel of all pieces that takes the work and words in zeroed memory of `bytes`. */
static ga_status run_with_words(product_run *run, const char *name, uint64_t threads,
                                uint64_t bytes, uint64_t second)
{
    ga_status status = allocate(run, SCRATCH_ENDS, bytes);
    CUdeviceptr words = run->blocks[SCRATCH_ENDS], more = words + second;
    void *parameters[] = {&run->work, &words, &more};
    status = status ? status : clear(run, words, bytes);
    status = status ? status : reset_tickets(run);
    status = status ? status : launch(run, name, threads, 0, parameters);
    return status ? status
                  : read_back(run, &run->report->entries, run->work.offsets + run->a->rows,
                              sizeof run->report->entries);
}

static ga_status multiply_precise(product_run *run)
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
static ga_status close_gaps(product_run *run)
{
    uint64_t count = run->work.piece_count;
    return run_with_words(run, "ga_spgemm_gaps_kernel", count * GA_SPGEMM_BLOCK,
                          count * (sizeof(uint64_t) + sizeof(uint32_t)), count * sizeof(uint64_t));
}

static ga_status multiply_upper(product_run *run)
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
static bool has_room(const product_run *run)
{
    uint64_t most = run->totals.multiplications;
    return ga_vector_capacity(run->product->indices) >= most &&
           ga_vector_capacity(run->product->values) >= most;
}

/* Nearly all that is expected is backed before, because a kernel waits for each step. */
static ga_status multiply_growing(product_run *run)
{
    ga_spgemm_product *c = run->product;
    ga_spgemm_loan loan = {0};
    const char *reason;
    if (has_room(run)) {
        ga_status done = run_rows(run, false);
        ga_spgemm_note_peak(c, run->report);
        return done ? done : ga_spgemm_resize(c, run->report->entries);
    }
    uint64_t least = expected(run) / 50 * 49;
    ga_status status = ga_vector_reserve(c->indices, least < c->indices->max ? least : 0);
    status = status ? status : ga_vector_reserve(c->values, least < c->values->max ? least : 0);
    status = status == GA_ERR_MEMORY ? GA_OK : status;
    status = status ? status : ga_spgemm_lend(c, expected(run), &loan);
    if (status == GA_OK) {
        run->work.indices_state = loan.indices;
        run->work.values_state = loan.values;
        status = run_rows(run, false);
        status =
            status ? status : read_back(run, &run->totals, run->work.totals, sizeof run->totals);
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

/* Whether large rows more than double the pieces: then the others would wait for too long until
 * their positions are known. */
static bool has_many_large(const product_run *run)
{
    uint64_t each = GA_SPGEMM_BLOCK / run->work.width;
    return run->work.piece_count / 2 > run->a->rows / each;
}

static ga_status multiply(product_run *run)
{
    uint64_t b_entries;
    ga_status status = check_both(run);
    status = status ? status : plan(run);
    status = status ? status
                    : read_back(run, &b_entries, run->b->offsets + run->b->rows, sizeof b_entries);
    status = status ? status : ga_spgemm_begin(run->a, run->b, run->product);
    if (status != GA_OK) {
        return status;
    }
    run->work.offsets = ga_vector_data(run->product->offsets);
    status =
        clear(run, (CUdeviceptr)run->work.offsets, (run->a->rows + 1) * sizeof *run->work.offsets);
    if (status != GA_OK) {
        return status;
    }
    configure(run, b_entries);
    status = order_pieces(run);
    if (status != GA_OK) {
        return status;
    }
    if (run->options->method == GA_SPGEMM_AUTO && has_many_large(run)) {
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
    product_run run = {.a = a, .b = b, .options = options, .product = product, .report = report};
    ga_status status = begin(&run, product);
    if (status != GA_OK) {
        return status;
    }
    status = multiply(&run);
    report->scratch_bytes = run.scratch_bytes;
    end(&run);
    return status;
}
