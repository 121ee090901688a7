/* SPDX-License-Identifier: MIT
 *
 * A call of ga_spgemm_multiply() on a device: its state, its scratch memory and its driver calls.
 */
#ifndef GPUALLOC_SPGEMM_DEVICE_RUN_H
#define GPUALLOC_SPGEMM_DEVICE_RUN_H

#include "work.h"

#include "device/device.h"

#include <gpualloc/spgemm.h>

enum {
    GA_SPGEMM_BLOCKS_MAX = 8,   /* of a multiprocessor */
    GA_SPGEMM_BLOCKS_ROWS = 4,  /* of it, that compute rows: as many as run at a time */
    GA_SPGEMM_SLOTS_MIN = 2048, /* of a block */
    GA_SPGEMM_SLOTS_MAX = 4096  /* 48 KiB in float64: four blocks on an H100, where there are
                                 * registers for four */
};

/* Device memory of a product, besides the vectors. */
typedef enum ga_spgemm_scratch {
    GA_SPGEMM_SCRATCH_TOTALS, /* ga_spgemm_totals, and upper bounds */
    GA_SPGEMM_SCRATCH_ORDER,  /* words of order_tile.h: of the rows' pieces, or to cut them */
    GA_SPGEMM_SCRATCH_PIECES, /* pieces, and words for them */
    GA_SPGEMM_SCRATCH_ENDS, /* words of the kernels that close gaps, or make positions of lengths */
    GA_SPGEMM_SCRATCH_KINDS,    /* of large rows */
    GA_SPGEMM_SCRATCH_DEFERRED, /* pieces that wait for their position */
    GA_SPGEMM_SCRATCH_BITMAPS,  /* of wide rows */
    GA_SPGEMM_SCRATCH_COLUMNS,  /* the transpose of B */
    GA_SPGEMM_SCRATCH_GRID,     /* ga_spgemm_grid */
    GA_SPGEMM_SCRATCH_COUNT
} ga_spgemm_scratch;

typedef struct ga_spgemm_device_run {
    const ga_csr *a, *b;
    const ga_spgemm_options *options;
    ga_spgemm_product *product;
    ga_spgemm_report *report;

    ga_cuda_scope scope;
    int device;
    CUstream stream;
    unsigned multiprocessors;

    ga_spgemm_work work;
    ga_csr columns;          /* the transpose of B; GA_SPGEMM_KERNEL_DOT */
    ga_spgemm_totals totals; /* as they were last read */
    double ratio;            /* entries of C for one multiplication, estimated */
    CUdeviceptr blocks[GA_SPGEMM_SCRATCH_COUNT];
    uint64_t scratch_bytes;
} ga_spgemm_device_run;

/* Enters the context of the vectors' device. */
ga_status ga_spgemm_run_begin(ga_spgemm_device_run *run, const ga_spgemm_product *product);

/* Frees the scratch memory, and leaves the context. */
void ga_spgemm_run_end(ga_spgemm_device_run *run);

/* Allocates scratch memory, which must not be allocated yet. */
ga_status ga_spgemm_run_allocate(ga_spgemm_device_run *run, ga_spgemm_scratch block,
                                 uint64_t bytes);

/* Zeroes device memory, in the order of the stream. */
ga_status ga_spgemm_run_clear(ga_spgemm_device_run *run, CUdeviceptr at, uint64_t bytes);

/* Copies from the device, and waits. */
ga_status ga_spgemm_run_read_back(ga_spgemm_device_run *run, void *to, const void *from,
                                  uint64_t bytes);

/* Launches a kernel of `threads` in all, at most as many as the device can run at a time, with
 * `shared` bytes of dynamic shared memory for each block. */
ga_status ga_spgemm_run_kernel(ga_spgemm_device_run *run, const char *name, uint64_t threads,
                               unsigned shared, void **parameters);

/* As ga_spgemm_run_kernel(), with all blocks running at a time. GA_ERR_DEVICE if the device cannot
 * do that. */
ga_status ga_spgemm_run_together(ga_spgemm_device_run *run, const char *name, uint64_t threads,
                                 unsigned shared, void **parameters);

/* Tickets are handed out from 0 again. */
ga_status ga_spgemm_run_reset_tickets(ga_spgemm_device_run *run);

/* ---- device.c -------------------------------------------------------------------------------- */

/* The entries that a row of the product has at most, but for one in 32 rows of the sample. */
double ga_spgemm_usual_entries(const ga_spgemm_totals *totals);

/* ---- dot.c ----------------------------------------------------------------------------------- */

static inline bool ga_spgemm_is_dot(const ga_spgemm_device_run *run)
{
    return run->options->kernel == GA_SPGEMM_KERNEL_DOT;
}

/* Prepares the kernel dot: transposes B, and makes each row a piece. */
ga_status ga_spgemm_dot_begin(ga_spgemm_device_run *run);

/* Runs the kernel dot, as device.c the kernel of rows, and waits for it. */
ga_status ga_spgemm_dot_run(ga_spgemm_device_run *run, bool counts_only);

/* ---- dynamic.c ------------------------------------------------------------------------------- */

/* GA_SPGEMM_DYNAMIC, after the plan. */
ga_status ga_spgemm_dynamic_on_device(ga_spgemm_device_run *run);

/* ---- check.c --------------------------------------------------------------------------------- */

/* Checks all that the kernels cannot check. */
ga_status ga_spgemm_check_both(ga_spgemm_device_run *run);

/* Launches the check of a matrix's rows; `is_b` is 1 if it is B. */
ga_status ga_spgemm_launch_check(ga_spgemm_device_run *run, const ga_csr *m, uint32_t is_b);

/* Fails, and says what is wrong with a row that the kernel has found. */
ga_status ga_spgemm_report_row(ga_spgemm_device_run *run, const ga_csr *m, uint64_t row);

/* Whether two matrices have one pattern, in the same memory. */
bool ga_spgemm_is_same(const ga_csr *a, const ga_csr *b);

#endif
