/* SPDX-License-Identifier: MIT
 *
 * The library's own kernels, run at once by the thread that launches them: with all lanes of a
 * tile, or as loops. Compiled with the spread of heaps for kernels.
 */
#include "vmm_state.h"

#include "arena/growth_probe_tile.h"
#include "device/device.h"
#include "slab/slab_growing.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* A kernel, of that name; parameters as cuLaunchKernel takes them. */
struct CUfunc_st {
    const char *name;
    void (*run)(void **parameters);
};

#define PARAMETER(type, i) (*(type *)parameters[i])

/* ---- growth_service.cuh, slab_service.cuh ---------------------------------------------------- */

/* Where it waits in vain it does so for a hundredth of the time: tests are not to take seconds. */
static void try_growth(void **parameters)
{
    ga_growth_probe *probe = PARAMETER(ga_growth_probe *, 0);
    probe->growth.patience /= vmm.options.kernels == VMM_KERNELS_ALONE ? 100 : 1;
    ga_growth_probe_run(ga_tile_of(GA_GROWTH_PROBE_LANES), probe);
}

static uint32_t taken_in(const uint32_t *words, uint32_t n)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < n; i++) {
        taken += ga_bits_count(ga_load_relaxed(&words[i]));
    }
    return taken;
}

static void recount(void **parameters)
{
    ga_slab_heap *heap = PARAMETER(ga_slab_heap *, 0);
    uint32_t first = PARAMETER(uint32_t, 1), n = PARAMETER(uint32_t, 2);
    for (uint32_t block = first; block < first + n; block++) {
        const uint32_t *row = ga_slab_row(ga_slab_view_of(heap), block);
        heap->free[ga_slab_count_place(GA_SLAB_SPREAD, block)] =
            GA_SLAB_BLOCK_UNITS - taken_in(row, GA_SLAB_ROW_WORDS);
    }
}

static void count_live(void **parameters)
{
    ga_slab_view slab = ga_slab_view_of(PARAMETER(ga_slab_heap *, 0));
    for (uint32_t i = 0; i < slab.words; i++) {
        *PARAMETER(uint64_t *, 1) += taken_in(ga_slab_word(slab, i), 1);
    }
}

static void take(void **parameters)
{
    ga_slab_heap *heap = PARAMETER(ga_slab_heap *, 0);
    ga_slab_view slab = ga_slab_view_of(heap);
    ga_lanes units = heap->growth ? ga_slab_claim_growing(heap, 1, 0)
                                  : ga_slab_claim_lanes(slab, ga_tile_of(32), 1, 0);
    uint32_t unit = ga_lane_read(units, 0);
    *PARAMETER(void **, 1) = unit == GA_SLAB_FULL ? NULL : ga_slab_pointer(slab, unit);
}

static void give(void **parameters)
{
    ga_slab_heap *heap = PARAMETER(ga_slab_heap *, 0);
    ga_slab_view slab = ga_slab_view_of(heap);
    uint32_t unit = ga_slab_unit(slab, PARAMETER(void *, 1));
    if (heap->growth) {
        ga_slab_weigh(heap, ga_tile_of(32), 0u - 1u);
    }
    ga_slab_release_lanes(slab, ga_tile_of(32), 1, ga_lanes_all(unit));
}

/* ---- launching ------------------------------------------------------------------------------- */

static struct CUfunc_st kernels[] = {
    {"ga_growth_probe_kernel", try_growth}, {"ga_slab_recount_kernel", recount},
    {"ga_slab_live_kernel", count_live},    {"ga_slab_take_kernel", take},
    {"ga_slab_give_kernel", give},
};

static CUfunction find(const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        if (strcmp(kernels[i].name, name) == 0) {
            return &kernels[i];
        }
    }
    return NULL;
}

static CUresult arrive(void)
{
    VMM_CALL(cuLaunchKernel)
    return vmm_current_device() < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static atomic_bool runs_alone; /* a kernel beside which nothing is mapped */

/* Without the lock: what it waits for may need the driver. */
static CUresult launch(CUfunction kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                       CUstream stream, void **parameters, void **extra)
{
    CUresult result = arrive();
    (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared, (void)stream, (void)extra;
    if (result == CUDA_SUCCESS) {
        runs_alone = vmm.options.kernels == VMM_KERNELS_ALONE;
        kernel->run(parameters);
        runs_alone = false;
    }
    return result;
}

void vmm_kernels_fill(ga_cuda_driver *table)
{
    bool some = vmm.options.kernels != VMM_KERNELS_NONE;
    if (some) {
        table->cuLaunchKernel = launch;
    }
    ga_device_code_set(some ? find : NULL);
    ga_growth_forget();
}

void vmm_kernels_clear(void)
{
    ga_device_code_set(NULL);
    ga_growth_forget();
}

void vmm_kernels_wait(void)
{
    while (runs_alone) {
        usleep(1000);
    }
}
