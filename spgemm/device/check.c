/* SPDX-License-Identifier: MIT
 *
 * Are the matrices of a product on a device valid?
 */
#include "run.h"

#include "../matrix.h"

#include "platform/cuda_refused.h"
#include "platform/libc.h"

/* Host memory must be page-locked or managed; device memory on this device, or managed. */
static ga_status check_pointer(ga_spgemm_device_run *run, const void *pointer, const char *name)
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
static ga_status check_arrays(ga_spgemm_device_run *run, const ga_csr *m)
{
    uint64_t ends[2];
    ga_status status = check_pointer(run, m->offsets, "offsets");
    status = status ? status : ga_spgemm_run_read_back(run, &ends[0], m->offsets, sizeof *ends);
    status = status ? status
                    : ga_spgemm_run_read_back(run, &ends[1], m->offsets + m->rows, sizeof *ends);
    status = status ? status : ga_csr_check_offsets(0, ends[0], m->rows ? ends[0] : ends[1]);
    status = status ? status : ga_csr_check_arrays(m, ends[1]);
    if (status == GA_OK && ends[1]) {
        status = check_pointer(run, m->indices, "columns");
        status = status ? status : check_pointer(run, m->values, "values");
    }
    return status;
}

/* Say what is wrong with a row that the kernel has found. */
ga_status ga_spgemm_report_row(ga_spgemm_device_run *run, const ga_csr *m, uint64_t row)
{
    uint64_t ends[2], last;
    ga_status status = ga_spgemm_run_read_back(run, ends, m->offsets + row, sizeof ends);
    status =
        status ? status : ga_spgemm_run_read_back(run, &last, m->offsets + m->rows, sizeof last);
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
        status =
            ga_spgemm_run_read_back(run, indices, m->indices + ends[0], count * sizeof *indices);
        status = status ? status : ga_csr_check_row(row, indices, count, m->columns);
        ga_libc.free(indices);
    }
    return status
               ? status
               : ga_fail(GA_ERR_ARGUMENT,
                         "matrix: row %llu: expected ascending columns, each once, less than %llu",
                         (unsigned long long)row, (unsigned long long)m->columns);
}

ga_status ga_spgemm_launch_check(ga_spgemm_device_run *run, const ga_csr *m, uint32_t is_b)
{
    ga_spgemm_totals *totals = (ga_spgemm_totals *)run->blocks[GA_SPGEMM_SCRATCH_TOTALS];
    ga_csr copy = *m;
    void *parameters[] = {&copy, &totals, &is_b};
    return ga_spgemm_run_kernel(run, "ga_spgemm_check_kernel", m->rows * 8, 0, parameters);
}

bool ga_spgemm_is_same(const ga_csr *a, const ga_csr *b)
{
    return a->offsets == b->offsets && a->indices == b->indices && a->rows == b->rows &&
           a->columns == b->columns;
}

/* What the kernels cannot check. */
ga_status ga_spgemm_check_both(ga_spgemm_device_run *run)
{
    ga_status status = check_arrays(run, run->a);
    if (status == GA_OK &&
        !(ga_spgemm_is_same(run->a, run->b) && run->a->values == run->b->values)) {
        status = check_arrays(run, run->b);
    }
    return status;
}
