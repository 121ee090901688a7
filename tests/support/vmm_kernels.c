/* SPDX-License-Identifier: MIT
 *
 * The library's own kernels, run at once by the thread that launches them: with all lanes of a
 * tile, or as loops. Compiled with the spread of heaps for kernels.
 */
#include "vmm_state.h"

#include "../../hashtables/sharded/all_team.h"
#include "backends/slab/classes/sized_checked.h"
#include "backends/slab/classes/sized_words.h"
#include "backends/slab/units/slab_growing.h"
#include "device/device.h"
#include "growth/growth_probe_tile.h"

#include <gpualloc/gpualloc.h>

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

/* A wait that must time out takes a hundredth of the real time: tests are not to take seconds. */
static void try_growth(void **parameters)
{
    ga_growth_probe *probe = PARAMETER(ga_growth_probe *, 0);
    probe->growth.timeout_ns /= vmm.options.kernels == VMM_KERNELS_ALONE ? 100 : 1;
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
        heap->free[ga_slab_count_index(GA_SLAB_SPREAD, block)] =
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
    ga_lanes units = heap->growth ? ga_slab_claim_growing(heap, 1, 0, ga_lanes_all(GA_SLAB_FULL))
                                  : ga_slab_claim_lanes(slab, ga_tile_of(32), 1, 0);
    uint32_t unit = ga_lane_read(units, 0);
    *PARAMETER(void **, 1) = unit == GA_SLAB_FULL ? NULL : ga_slab_pointer(slab, unit);
}

static void give(void **parameters)
{
    ga_slab_heap *heap = PARAMETER(ga_slab_heap *, 0);
    ga_slab_view slab = ga_slab_view_of(heap);
    uint32_t unit = ga_slab_unit(slab, PARAMETER(void *, 1));
    ga_slab_release_lanes(slab, ga_tile_of(32), 1, ga_lanes_all(unit));
}

/* ---- sized_service.cuh ----------------------------------------------------------------------- */

static ga_sized_heap *sized_heap_of(void **parameters)
{
    return (ga_sized_heap *)PARAMETER(ga_kernel_heap, 0).words[GA_SIZED_WORD_HEAP];
}

static void *sized_take_run(ga_sized_view view, uint64_t size, uint64_t align)
{
    uint64_t regions = align >> view.region_bits;
    if (regions > GA_SIZED_REGIONS_MAX) {
        return NULL;
    }
    uint32_t multiple = regions ? (uint32_t)regions : 1;
    uint32_t phase = (uint32_t)((uintptr_t)view.units >> view.region_bits);
    uint32_t n = ga_sized_run_regions(view, size);
    ga_lanes first = ga_sized_runs_claim(view.heap, ga_tile_of(32), 1, ga_lanes_all(n),
                                         ga_lanes_all(multiple), phase);
    return ga_lane_read(first, 0) == GA_SIZED_NONE
               ? NULL
               : ga_sized_run_pointer(view, ga_lane_read(first, 0));
}

static void *sized_take_unit(ga_sized_view view, uint32_t class)
{
    ga_sized_units got = ga_sized_claim(view, ga_tile_of(32), 1, ga_lanes_all(class), 0);
    uint32_t key = ga_lane_read(got.word_indices, 0);
    return key == GA_SIZED_NONE ? NULL
                                : ga_sized_pointer(view, ga_sized_unit(class), key,
                                                   ga_lane_read(got.bit_indices, 0));
}

static void sized_release_block(ga_sized_view view, const void *block)
{
    ga_sized_found found = ga_sized_find(view, block);
    ga_sized_run run = ga_sized_run_find(view, block);
    if (found.class_ != GA_SIZED_NONE) {
        ga_sized_units got = {ga_lanes_all(found.word_index), ga_lanes_all(found.bit_index)};
        ga_sized_free_units(view, ga_tile_of(32), 1, got);
    } else if (run.n) {
        ga_sized_runs_free(view.heap, ga_tile_of(32), 1, ga_lanes_all(run.first));
    }
}

static void sized_take(void **parameters)
{
    ga_sized_view view = ga_sized_view_of(sized_heap_of(parameters));
    uint64_t size = PARAMETER(uint64_t, 1), align = PARAMETER(uint64_t, 2);
    uint32_t class = ga_sized_class_aligned(view, size, align);
    *PARAMETER(void **, 3) =
        class == GA_SIZED_NONE ? sized_take_run(view, size, align) : sized_take_unit(view, class);
}

static void sized_give(void **parameters)
{
    ga_sized_heap *heap = sized_heap_of(parameters);
    uint64_t block = (uint64_t)PARAMETER(void *, 1);
    if (heap->check) {
        ga_sized_free_lanes_checked(heap, ga_tile_of(32), 1, ga_lanes_all((uint32_t)block),
                                    ga_lanes_all((uint32_t)(block >> 32)));
    } else {
        sized_release_block(ga_sized_view_of(heap), (void *)block);
    }
}

static uint32_t *sized_bits(ga_sized_heap *heap, uint32_t region)
{
    return heap->bits + ga_sized_bitmap_index(heap->region_bits, region, heap->owners[region]);
}

static bool sized_is_class(const ga_sized_heap *heap, uint32_t region)
{
    return ga_sized_owner_class(heap->owners[region]) != GA_SIZED_NONE;
}

static uint32_t sized_taken(ga_sized_heap *heap, uint32_t region)
{
    const ga_sized_class *c = &heap->of[ga_sized_owner_class(heap->owners[region])];
    return taken_in(sized_bits(heap, region), c->map.words) - ga_bits_count(c->tail);
}

static void sized_live(void **parameters)
{
    ga_sized_heap *heap = PARAMETER(ga_sized_heap *, 0);
    uint64_t *total = PARAMETER(uint64_t *, 1);
    for (uint32_t region = 0; region < heap->next; region++) {
        uint32_t owner = heap->owners[region];
        if (sized_is_class(heap, region)) {
            uint32_t taken = sized_taken(heap, region);
            total[0] += taken;
            total[1] += (uint64_t)taken * heap->of[ga_sized_owner_class(owner)].map.unit;
        } else if (owner & GA_SIZED_RUN) {
            total[0]++;
            total[1] += (uint64_t)(owner & ~GA_SIZED_RUN) << heap->region_bits;
        }
    }
}

static void sized_reset(void **parameters)
{
    ga_sized_heap *heap = PARAMETER(ga_sized_heap *, 0);
    for (uint32_t region = 0; region < heap->next; region++) {
        heap->watches[region] = 0;
        if (sized_is_class(heap, region)) {
            const ga_sized_class *c = &heap->of[ga_sized_owner_class(heap->owners[region])];
            memset(sized_bits(heap, region), 0, c->map.words * sizeof(uint32_t));
            sized_bits(heap, region)[c->map.words - 1] = c->tail;
        } else if (heap->owners[region] & GA_SIZED_RUN) {
            ga_sized_runs_free(heap, ga_tile_of(32), 1, ga_lanes_all(region));
        }
    }
    heap->releases++; /* results of sweeps are invalid */
}

static void collect_class(ga_sized_heap *heap, ga_sized_class *c)
{
    uint32_t count = c->map.total_words / c->map.words, kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t region = (c->map.table[i] & ~GA_SIZED_SPENT) - 1;
        uint32_t spent = heap->table_indices[region] & GA_SIZED_SPENT;
        c->map.table[i] = 0;
        if (sized_taken(heap, region)) {
            heap->table_indices[region] = kept | spent;
            c->map.table[kept++] = (region + 1) | spent;
        } else {
            heap->owners[region] = 0;
            heap->table_indices[region] = 0;
            ga_sized_pool_free(heap, ga_tile_of(32), (ga_sized_extent){region, 1});
        }
    }
    c->map.total_words = kept * c->map.words;
    c->map.contiguous = GA_SIZED_SHIFT(c->map);
    c->shrunk = 0;
    c->hint = 0;
}

static void sized_collect(void **parameters)
{
    ga_sized_heap *heap = PARAMETER(ga_sized_heap *, 0);
    for (uint32_t region = 0; region < heap->next; region++) {
        if (heap->pool[region / 32] >> region % 32 & 1) {
            heap->table_indices[region] = 0; /* its first bitmap can be reused */
        }
    }
    memset((char *)heap + GA_SIZED_RECENT_AT, 0, GA_SIZED_RECENT * sizeof(uint64_t));
    for (uint32_t class = 0; class < heap->classes; class ++) {
        if (heap->of[class].map.total_words) {
            collect_class(heap, &heap->of[class]);
        }
    }
}

/* ---- spgemm_service.cuh ---------------------------------------------------------------------- */

/* All kernels of products: enough for matrices without entries. */
static void multiply_nothing(void **parameters)
{
    (void)parameters;
}

/* ---- sort_kernel.cuh, all_kernel.cuh --------------------------------------------------------- */

static void sharded_count(void **parameters)
{
    const ga_sharded_sort *sort = parameters[0];
    for (uint64_t i = 0; i < sort->count; i++) {
        uint64_t key = ga_sharded_load(sort->keys, i, GA_SHARDED_WIDTH(sort->is_wide));
        sort->cursors[ga_sharded_bin(&sort->division, key)]++;
    }
}

static void sharded_combine(void **parameters)
{
    static _Thread_local ga_sharded_host_room room;
    const ga_sharded_sort *sort = parameters[0];
    uint32_t most = GA_SHARDED_SORT_MOST(sort->is_wide);
    for (uint64_t first = 0; first < sort->count; first += most) {
        uint64_t left = sort->count - first;
        ga_sharded_combine_team(sort, first, left < most ? (uint32_t)left : most, sort->is_wide,
                                &room.shared);
    }
}

static void sharded_pad(void **parameters)
{
    const ga_sharded_pad *pad = parameters[0];
    for (uint32_t bin = 0; bin < pad->bins; bin++) {
        ga_sharded_pad_team(pad, bin);
    }
}

static void sharded_sort(void **parameters)
{
    static _Thread_local ga_sharded_host_room room;
    const ga_sharded_sort *sort = parameters[0];
    uint32_t most = GA_SHARDED_SORT_MOST(sort->is_wide);
    for (uint64_t first = 0; first < sort->count; first += most) {
        uint64_t left = sort->count - first;
        uint32_t n = left < most ? (uint32_t)left : most;
        if (sort->is_wide) {
            ga_sharded_sort_team(sort, first, n, 1, &room.shared);
        } else {
            ga_sharded_sort_team(sort, first, n, 0, &room.shared);
        }
    }
}

static void sharded_gather(void **parameters)
{
    static _Thread_local ga_sharded_host_room room;
    const ga_sharded_gather *gather = parameters[0];
    uint32_t counts[GA_SHARDED_RESULTS] = {0};
    uint32_t most = GA_SHARDED_SORT_MOST(gather->is_wide);
    for (uint64_t first = 0; first < gather->count; first += most) {
        uint64_t left = gather->count - first;
        ga_sharded_gather_team(gather, first, left < most ? (uint32_t)left : most, gather->is_wide,
                               &room.shared, counts);
    }
    for (uint32_t i = 0; gather->totals && i < GA_SHARDED_RESULTS; i++) {
        gather->totals[i] += counts[i];
    }
}

static void sharded_order(void **parameters)
{
    static _Thread_local ga_sharded_host_room room;
    const ga_sharded_order *order = parameters[0];
    uint32_t most = GA_SHARDED_SORT_MOST(order->is_wide);
    for (uint64_t first = 0; first < order->count; first += most) {
        uint64_t left = order->count - first;
        ga_sharded_order_team(order, first, left < most ? (uint32_t)left : most, &room.shared);
    }
}

static void sharded_move(void **parameters)
{
    const ga_sharded_move *move = parameters[0];
    ga_sharded_move_team(move, 0, (uint32_t)move->count);
}

/* ---- launching ------------------------------------------------------------------------------- */

static struct CUfunc_st kernels[] = {
    {"ga_growth_probe_kernel", try_growth},
    {"ga_slab_recount_kernel", recount},
    {"ga_slab_live_kernel", count_live},
    {"ga_slab_alloc_kernel", take},
    {"ga_slab_free_kernel", give},
    {"ga_sized_take_kernel", sized_take},
    {"ga_sized_give_kernel", sized_give},
    {"ga_sized_live_kernel", sized_live},
    {"ga_sized_reset_kernel", sized_reset},
    {"ga_sized_collect_kernel", sized_collect},
    {"ga_sharded_count_kernel", sharded_count},
    {"ga_sharded_combine_kernel", sharded_combine},
    {"ga_sharded_pad_kernel", sharded_pad},
    {"ga_sharded_sort_kernel", sharded_sort},
    {"ga_sharded_sort_wide_kernel", sharded_sort},
    {"ga_sharded_gather_kernel", sharded_gather},
    {"ga_sharded_gather_wide_kernel", sharded_gather},
    {"ga_sharded_order_kernel", sharded_order},
    {"ga_sharded_move_kernel", sharded_move},
};

static struct CUfunc_st spgemm_kernel = {"ga_spgemm_", multiply_nothing};

static CUfunction find(const char *name)
{
    if (strncmp(name, spgemm_kernel.name, strlen(spgemm_kernel.name)) == 0) {
        return &spgemm_kernel;
    }
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

static atomic_bool runs_alone; /* a kernel is running during which no memory can be mapped */

static CUresult set_attribute(CUfunction kernel, CUfunction_attribute attribute, int value)
{
    VMM_CALL(cuFuncSetAttribute)
    (void)attribute, (void)value;
    return kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Without the lock: the kernel may wait for a call of the driver. */
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

/* Kernels of products only, which do nothing. */
static CUresult launch_together(CUfunction kernel, unsigned grid_x, unsigned grid_y,
                                unsigned grid_z, unsigned block_x, unsigned block_y,
                                unsigned block_z, unsigned shared, CUstream stream,
                                void **parameters)
{
    VMM_CALL(cuLaunchCooperativeKernel)
    (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared, (void)stream;
    kernel->run(parameters);
    return CUDA_SUCCESS;
}

static CUresult count_blocks(int *blocks, CUfunction kernel, int threads, size_t shared)
{
    VMM_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor)
    (void)threads, (void)shared;
    *blocks = 1;
    return kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void vmm_kernels_fill(ga_cuda_driver *table)
{
    bool some = vmm.options.kernels != VMM_KERNELS_NONE;
    if (some) {
        table->cuLaunchKernel = launch;
        table->cuLaunchCooperativeKernel = launch_together;
        table->cuFuncSetAttribute = set_attribute;
        table->cuOccupancyMaxActiveBlocksPerMultiprocessor = count_blocks;
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
