/* SPDX-License-Identifier: MIT
 *
 * GA_SPGEMM_KERNEL_DOT on a device. B is transposed on the host, because matrices for this kernel
 * are small.
 */
#include "run.h"

#include "../transpose.h"

#include "platform/cuda_refused.h"
#include "platform/libc.h"

/* A copy of a matrix in host memory; all arrays are in the block at *offsets. */
static ga_status copy_out(ga_spgemm_device_run *run, const ga_csr *m, uint64_t **offsets,
                          ga_csr *copy)
{
    uint64_t entries;
    size_t value = ga_value_size(m->type);
    ga_status status = ga_spgemm_run_read_back(run, &entries, m->offsets + m->rows, sizeof entries);
    if (status != GA_OK) {
        return status;
    }
    uint64_t bytes = (m->rows + 1) * sizeof **offsets + entries * (value + sizeof(uint32_t));
    *offsets = ga_libc.calloc(bytes, 1);
    if (!*offsets) {
        return ga_fail(GA_ERR_MEMORY, "spgemm: no host memory of %llu bytes for matrix B",
                       (unsigned long long)bytes);
    }
    char *values = (char *)(*offsets + m->rows + 1);
    uint32_t *indices = (uint32_t *)(void *)(values + entries * value);
    *copy = (ga_csr){m->rows, m->columns, *offsets, indices, values, m->type};
    status = ga_spgemm_run_read_back(run, *offsets, m->offsets, (m->rows + 1) * sizeof **offsets);
    if (status == GA_OK && entries) {
        status = ga_spgemm_run_read_back(run, indices, m->indices, entries * sizeof *indices);
        status = status ? status : ga_spgemm_run_read_back(run, values, m->values, entries * value);
    }
    return status;
}

static ga_status copy_in(ga_spgemm_device_run *run, const ga_spgemm_transpose *transpose)
{
    ga_status status = ga_spgemm_run_allocate(run, GA_SPGEMM_SCRATCH_COLUMNS, transpose->bytes);
    CUdeviceptr block = run->blocks[GA_SPGEMM_SCRATCH_COLUMNS];
    status = status ? status
                    : GA_CUDA_CALL(run->scope.driver, cuMemcpyHtoDAsync, block, transpose->block,
                                   transpose->bytes, run->stream);
    status = status ? status : GA_CUDA_CALL(run->scope.driver, cuStreamSynchronize, run->stream);
    run->columns = ga_spgemm_transpose_at(transpose, (void *)block);
    return status;
}

ga_status ga_spgemm_dot_begin(ga_spgemm_device_run *run)
{
    uint64_t *arrays = NULL;
    ga_csr b;
    ga_spgemm_transpose transpose = {0};
    ga_status status = copy_out(run, run->b, &arrays, &b);
    status = status ? status : ga_spgemm_transpose_make(&b, &transpose);
    status = status ? status : copy_in(run, &transpose);
    ga_spgemm_transpose_free(&transpose);
    ga_libc.free(arrays);
    run->work.width = GA_SPGEMM_BLOCK; /* a piece is one row */
    run->work.tile_fit = (ga_spgemm_fit){UINT32_MAX, UINT32_MAX};
    return status;
}

ga_status ga_spgemm_dot_run(ga_spgemm_device_run *run, bool counts_only)
{
    ga_spgemm_work *work = &run->work;
    void *parameters[] = {work, &run->columns};
    bool is_double = work->a.type == GA_FLOAT64;
    work->indices = counts_only ? NULL : ga_vector_data(run->product->indices);
    work->values = counts_only ? NULL : ga_vector_data(run->product->values);
    ga_status status = ga_spgemm_run_reset_tickets(run);
    status = status ? status
                    : ga_spgemm_run_kernel(
                          run, is_double ? "ga_spgemm_dot_kernel_f64" : "ga_spgemm_dot_kernel_f32",
                          run->a->rows, 0, parameters);
    return status
               ? status
               : ga_spgemm_run_read_back(run, &run->report->entries, work->offsets + run->a->rows,
                                         sizeof run->report->entries);
}
