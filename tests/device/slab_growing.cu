/* SPDX-License-Identifier: MIT
 *
 * Slab heaps that grow during the kernels that use them. The parent has only growing memory, and
 * cudaMalloc's for the bookkeeping; it refuses to commit more than `parent_limit` bytes.
 */
#include "slab_gpu.h"

extern "C" {
#include "arena/growing.h"
}

/* ---- the parent ------------------------------------------------------------------------------ */

static uint64_t parent_limit;
static int parent_device;
static ga_latency parent_times; /* the pager's, of a case */

static ga_status parent_open(const ga_open_args *args, void **state)
{
    parent_device = args->device;
    *state = &parent_device;
    return GA_OK;
}

static void parent_close(void *)
{
}

static ga_status parent_alloc(void *, size_t size, void **out)
{
    return cudaMalloc(out, size) == cudaSuccess ? GA_OK
                                                : ga_fail(GA_ERR_MEMORY, "parent: out of memory");
}

static ga_status parent_free(void *, void *block)
{
    return cudaFree(block) == cudaSuccess ? GA_OK : ga_fail(GA_ERR_POINTER, "parent: no block");
}

static bool parent_owns(void *, const void *)
{
    return true;
}

static ga_status parent_growing_open(void *, ga_growing *growing)
{
    return ga_growing_start(growing, parent_device, parent_limit);
}

static ga_status parent_growing_to(void *, ga_growing *growing, uint32_t steps)
{
    return ga_growing_reach(growing, steps);
}

static void parent_growing_close(void *, ga_growing *growing)
{
    ga_growing_add_times(growing, &parent_times);
    ga_growing_end(growing);
}

/* Of all heaps that were closed since the last call. */
static void print_times(void)
{
    printf("    the pager answered %llu times; us: p50 %.0f, p99 %.0f, p99.9 %.0f, longest %.0f, "
           "together %.0f\n",
           (unsigned long long)parent_times.count,
           (double)ga_latency_quantile(&parent_times, 500) / 1e3,
           (double)ga_latency_quantile(&parent_times, 990) / 1e3,
           (double)ga_latency_quantile(&parent_times, 999) / 1e3, (double)parent_times.max / 1e3,
           (double)parent_times.sum / 1e3);
    memset(&parent_times, 0, sizeof parent_times);
}

static void have_parent(void)
{
    static ga_backend parent;
    if (parent.abi) {
        return;
    }
    parent.abi = GA_BACKEND_ABI;
    parent.size = sizeof parent;
    parent.name = "grower";
    parent.help = "memory that grows under kernels, for tests";
    parent.places = GA_PLACE_BIT(GA_PLACE_DEVICE);
    parent.open = parent_open;
    parent.close = parent_close;
    parent.alloc = parent_alloc;
    parent.free = parent_free;
    parent.owns = parent_owns;
    parent.growing_open = parent_growing_open;
    parent.growing_to = parent_growing_to;
    parent.growing_close = parent_growing_close;
    EXPECT_STATUS(ga_backend_register(&parent), GA_OK);
}

static ga_heap *open_heap(int device, const char *spec, uint64_t limit, ga_kernel_heap *view)
{
    ga_heap *heap = NULL;
    have_parent();
    parent_limit = limit;
    ga_status status = ga_heap_open(&heap, GA_PLACE_KERNEL, device, spec);
    if (status == GA_OK) {
        status = ga_heap_kernel_view(heap, view);
    }
    if (status != GA_OK) {
        FAIL("the heap \"%s\" and a view of it, got \"%s\": %s", spec, ga_status_text(status),
             ga_error_text());
        ga_heap_close(heap);
        return NULL;
    }
    return heap;
}

static void close_heap(ga_heap *heap)
{
    EXPECT_STATUS(ga_heap_reset(heap), GA_OK); /* live units are not a leak here */
    EXPECT_STATUS(ga_heap_close(heap), GA_OK);
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Thread i claims a unit and writes both its ends. */
static __global__ void take(ga_kernel_heap heap, uint32_t **units, uint32_t n, slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i < n) {
        uint32_t *unit = (uint32_t *)ga_slab_claim(heap);
        units[i] = unit;
        slab_count(unit ? &tally->given : &tally->full, 1);
        if (unit) {
            unit[0] = i;
            unit[slab_unit_bytes(heap) / 4u - 1u] = ~i;
        }
    }
}

/* The contents that thread i has written are still there: so the unit had one owner. */
static __global__ void look_and_give(ga_kernel_heap heap, uint32_t **units, uint32_t n,
                                     slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i < n && units[i]) {
        uint32_t last = slab_unit_bytes(heap) / 4u - 1u;
        if (units[i][0] != i || units[i][last] != ~i) {
            slab_note_wrong(tally, SLAB_OVERLAP, (uint64_t)units[i], units[i][0], i);
        }
        ga_slab_release(heap, units[i]);
        slab_count(&tally->released, 1);
    }
}

/* Diverged lanes, some of which claim twice and free one. */
static __global__ void take_apart(ga_kernel_heap heap, uint32_t **units, uint32_t n,
                                  slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i < n) {
        uint32_t *unit = NULL;
        if (i % 3u == 0) {
            unit = (uint32_t *)ga_slab_claim(heap);
        } else if (i % 3u == 1u) {
            void *other = ga_slab_claim(heap);
            unit = (uint32_t *)ga_slab_claim(heap);
            ga_slab_release(heap, other);
        }
        units[i] = unit;
        if (unit) {
            unit[0] = i;
            unit[slab_unit_bytes(heap) / 4u - 1u] = ~i;
        }
        slab_count(unit ? &tally->given : &tally->full, 1);
    }
}

/* Tiles that claim one after the other, `each` units each. */
static __global__ void take_in_turn(ga_kernel_heap heap, uint32_t **units, uint32_t each,
                                    slab_tally *tally)
{
    ga_slab_tile_cache cache = ga_slab_tile_cache_begin(heap, 8);
    uint32_t tile = slab_thread() / 8u;
    for (uint32_t k = 0; k < each; k++) {
        uint32_t *unit = (uint32_t *)ga_slab_tile_cache_claim(&cache);
        if (cache.tile.lane == 0) {
            uint32_t i = tile * each + k;
            units[i] = unit;
            slab_count(unit ? &tally->given : &tally->full, 1);
            if (unit) {
                unit[0] = i;
                unit[slab_unit_bytes(heap) / 4u - 1u] = ~i;
            }
        }
    }
    ga_slab_tile_cache_end(&cache);
}

/* By addresses. In every second warp some lanes do not call. */
static __host__ __device__ bool calls_by_address(uint32_t i)
{
    return i % 64u >= 32u || i % 3u == 0;
}

static __global__ void take_addresses(ga_kernel_heap heap, uint32_t **units, uint32_t *numbers,
                                      uint32_t n, slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i >= n) {
        return;
    }
    numbers[i] = GA_SLAB_NO_ADDRESS;
    if (calls_by_address(i)) {
        numbers[i] = ga_slab_claim_address(heap);
        if (numbers[i] == GA_SLAB_NO_ADDRESS) {
            slab_count(&tally->full, 1);
        } else {
            units[i] = (uint32_t *)ga_slab_address_pointer(heap, numbers[i]);
            units[i][0] = i;
            units[i][slab_unit_bytes(heap) / 4u - 1u] = ~i;
            slab_count(&tally->given, 1);
        }
    }
}

static __global__ void give_addresses(ga_kernel_heap heap, uint32_t **units,
                                      const uint32_t *numbers, uint32_t n, slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i < n && numbers[i] != GA_SLAB_NO_ADDRESS) {
        uint32_t last = slab_unit_bytes(heap) / 4u - 1u;
        if (units[i][0] != i || units[i][last] != ~i) {
            slab_note_wrong(tally, SLAB_OVERLAP, numbers[i], units[i][0], i);
        }
        ga_slab_release_address(heap, numbers[i]);
        slab_count(&tally->released, 1);
    }
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void give_back(ga_kernel_heap view, uint32_t **units, uint32_t n, uint64_t given,
                      slab_tally *tally)
{
    look_and_give<<<slab_grid(n), SLAB_BLOCK>>>(view, units, n, tally);
    KERNELS_DONE();
    EXPECT_EQUAL("units given back", READ_TALLY(tally).released, given);
}

static void expect_live(ga_heap *heap, uint64_t live)
{
    ga_stats stats = {};
    EXPECT_STATUS(ga_heap_stats(heap, &stats), GA_OK);
    EXPECT_EQUAL("live blocks", stats.live_blocks, live);
}

static void grows(int device, const char *spec, uint32_t n)
{
    ga_kernel_heap view;
    ga_heap *heap = open_heap(device, spec, 0, &view);
    uint32_t **units = (uint32_t **)suite_memory(n * sizeof *units);
    slab_tally *tally = slab_tally_new();
    if (heap && units && tally) {
        ga_stats before = {}, after = {};
        ga_heap_stats(heap, &before);
        for (int round = 0; round < 2; round++) { /* the second finds it grown */
            take<<<slab_grid(n), SLAB_BLOCK>>>(view, units, n, tally);
            KERNELS_DONE();
            EXPECT_EQUAL("units given", READ_TALLY(tally).given, n);
            expect_live(heap, n);
            give_back(view, units, n, n, tally);
            expect_live(heap, 0);
        }
        ga_heap_stats(heap, &after);
        printf("    %s: held %llu MiB, then %llu MiB, for %llu\n", spec,
               (unsigned long long)before.held_bytes >> 20,
               (unsigned long long)after.held_bytes >> 20,
               (unsigned long long)n * GA_SLAB_WORDS_UNIT(view.words) >> 20);
    }
    cudaFree(units);
    cudaFree(tally);
    if (heap) {
        close_heap(heap);
        print_times();
    }
}

static void grows_of_each_size(int device)
{
    grows(device, "slab:unit=128,capacity=4M,limit=16G/grower", suite.quick ? 1u << 18 : 1u << 23);
    grows(device, "slab:unit=4K,capacity=64M,limit=40G/grower", suite.quick ? 1u << 16 : 1u << 21);
    grows(device, "slab:unit=48,capacity=1M,limit=4G/grower", suite.quick ? 1u << 17 : 1u << 22);
    grows(device, "slab:unit=64K,limit=8G/grower", suite.quick ? 1u << 12 : 1u << 16);
    grows(device, "slab:unit=1K,capacity=4M,limit=8G,check=full/grower",
          suite.quick ? 1u << 14 : 1u << 19);
}

/* All units within the limit are served, and no more. */
static void ends_at_its_limit(int device)
{
    const uint32_t max = 64u << 10, n = max + (max >> 1);
    ga_kernel_heap view;
    slab_capture capture;
    char text[2048] = "";
    ga_heap *heap = open_heap(device, "slab:unit=1K,capacity=4M,limit=64M/grower", 0, &view);
    uint32_t **units = (uint32_t **)suite_memory(n * sizeof *units);
    slab_tally *tally = slab_tally_new();
    bool captured = heap && units && tally && slab_capture_begin(&capture);
    if (captured) {
        for (int round = 0; round < 2; round++) {
            take<<<slab_grid(n), SLAB_BLOCK>>>(view, units, n, tally);
            KERNELS_DONE();
            slab_tally found = READ_TALLY(tally);
            EXPECT_EQUAL("units given", found.given, max);
            EXPECT_EQUAL("units refused", found.full, n - max);
            give_back(view, units, n, max, tally);
        }
        EXPECT_STATUS(ga_heap_kernel_view(heap, &view), GA_OK);
        slab_capture_end(&capture, text, sizeof text);
        if (!strstr(text, "the limit is reached")) {
            FAIL("the log to say that the limit is reached, got \"%s\"", text);
        }
    }
    cudaFree(units);
    cudaFree(tally);
    if (heap) {
        close_heap(heap);
        print_times();
    }
}

/* The parent's limit: fewer than the heap's own. */
static void parent_ends_first(int device)
{
    const uint32_t n = 64u << 10;
    ga_kernel_heap view;
    ga_heap *heap =
        open_heap(device, "slab:unit=1K,capacity=4M,limit=64M/grower", 33u << 20, &view);
    uint32_t **units = (uint32_t **)suite_memory(n * sizeof *units);
    slab_tally *tally = slab_tally_new();
    if (heap && units && tally) {
        take<<<slab_grid(n), SLAB_BLOCK>>>(view, units, n, tally);
        KERNELS_DONE();
        slab_tally found = READ_TALLY(tally);
        EXPECT_EQUAL("units given and refused", found.given + found.full, n);
        if (found.given < 28u << 10 || found.given > 33u << 10) {
            FAIL("what 33 MiB have room for to be given, got %llu units",
                 (unsigned long long)found.given);
        }
        give_back(view, units, n, found.given, tally);
    }
    cudaFree(units);
    cudaFree(tally);
    if (heap) {
        close_heap(heap);
        print_times();
    }
}

static void lanes_that_part(int device)
{
    const uint32_t n = suite.quick ? 1u << 15 : 1u << 20, claimers = n - n / 3u;
    ga_kernel_heap view;
    ga_heap *heap = open_heap(device, "slab:unit=256,capacity=1M,limit=4G/grower", 0, &view);
    uint32_t **units = (uint32_t **)suite_memory(n * sizeof *units);
    slab_tally *tally = slab_tally_new();
    if (heap && units && tally) {
        take_apart<<<slab_grid(n), SLAB_BLOCK>>>(view, units, n, tally);
        KERNELS_DONE();
        EXPECT_EQUAL("units given", READ_TALLY(tally).given, claimers);
        expect_live(heap, claimers);
        give_back(view, units, n, claimers, tally);
    }
    cudaFree(units);
    cudaFree(tally);
    if (heap) {
        close_heap(heap);
        print_times();
    }
}

/* By addresses, also of units that are younger than the view. */
static void addresses(int device)
{
    const uint32_t n = suite.quick ? 1u << 15 : 1u << 20;
    ga_kernel_heap view;
    ga_heap *heap = open_heap(device, "slab:unit=256,capacity=1M,limit=4G/grower", 0, &view);
    uint32_t **units = (uint32_t **)suite_memory(n * sizeof *units);
    uint32_t *numbers = (uint32_t *)suite_memory(n * sizeof *numbers);
    uint32_t calls = 0;
    slab_tally *tally = slab_tally_new();
    for (uint32_t i = 0; i < n; i++) {
        calls += calls_by_address(i);
    }
    for (int round = 0; heap && units && numbers && tally && round < 2; round++) {
        take_addresses<<<slab_grid(n), SLAB_BLOCK>>>(view, units, numbers, n, tally);
        KERNELS_DONE();
        slab_tally taken = READ_TALLY(tally);
        EXPECT_EQUAL("addresses given", taken.given, calls);
        expect_live(heap, taken.given);
        give_addresses<<<slab_grid(n), SLAB_BLOCK>>>(view, units, numbers, n, tally);
        KERNELS_DONE();
        EXPECT_EQUAL("addresses given back", READ_TALLY(tally).released, taken.given);
        expect_live(heap, 0);
    }
    cudaFree(units);
    cudaFree(numbers);
    cudaFree(tally);
    if (heap) {
        close_heap(heap);
        print_times();
    }
}

static void tiles_in_turn(int device)
{
    const uint32_t tiles = suite.quick ? 1u << 10 : 1u << 14, each = 50, n = tiles * each;
    ga_kernel_heap view;
    ga_heap *heap = open_heap(device, "slab:unit=512,capacity=1M,limit=4G/grower", 0, &view);
    uint32_t **units = (uint32_t **)suite_memory(n * sizeof *units);
    slab_tally *tally = slab_tally_new();
    for (int round = 0; heap && units && tally && round < 2;
         round++) { /* the second: it has grown */
        take_in_turn<<<tiles * 8 / SLAB_BLOCK, SLAB_BLOCK>>>(view, units, each, tally);
        KERNELS_DONE();
        EXPECT_EQUAL("units given", READ_TALLY(tally).given, n);
        expect_live(heap, n);
        give_back(view, units, n, n, tally);
        expect_live(heap, 0);
    }
    cudaFree(units);
    cudaFree(tally);
    if (heap) {
        close_heap(heap);
        print_times();
    }
}

/* The host's own units, and a heap that is opened and closed again and again, growing each time,
 * during other work: copies, cudaMalloc, other streams. */
static void again_and_again(int device)
{
    const int rounds = suite.quick ? 10 : (suite.operations ? 10000 : 500);
    const uint32_t n = 24u << 10;
    uint32_t **units = (uint32_t **)suite_memory(n * sizeof *units);
    char *other = (char *)suite_memory(64u << 20);
    slab_tally *tally = slab_tally_new();
    cudaStream_t streams[2];
    if (!units || !other || !tally || !CUDA_DONE(cudaStreamCreate(&streams[0])) ||
        !CUDA_DONE(cudaStreamCreate(&streams[1]))) {
        return;
    }
    uint64_t given = 0;
    for (int round = 0; round < rounds; round++) {
        ga_kernel_heap view;
        void *block = NULL, *more = NULL;
        ga_heap *heap = open_heap(device, "slab:unit=1K,capacity=4M,limit=64M/grower", 0, &view);
        if (!heap) {
            break;
        }
        cudaMemsetAsync(other, round, 64u << 20, streams[1]);
        take<<<slab_grid(n), SLAB_BLOCK, 0, streams[0]>>>(view, units, n, tally);
        CUDA_DONE(cudaMalloc(&block, 8u << 20));
        CUDA_DONE(cudaMallocAsync(&more, 1u << 20, streams[1]));
        CUDA_DONE(cudaMemcpyAsync(other, other + (32u << 20), 32u << 20, cudaMemcpyDeviceToDevice,
                                  streams[1]));
        CUDA_DONE(cudaFreeAsync(more, streams[1]));
        look_and_give<<<slab_grid(n), SLAB_BLOCK, 0, streams[0]>>>(view, units, n, tally);
        KERNELS_DONE();
        slab_tally found = READ_TALLY(tally);
        given += found.given;
        if (found.given != n || found.released != n) {
            FAIL("round %d to give %u units and take them back, got %llu and %llu", round, n,
                 (unsigned long long)found.given, (unsigned long long)found.released);
            close_heap(heap);
            break;
        }
        CUDA_DONE(cudaFree(block));
        EXPECT_STATUS(ga_alloc(heap, 1000, 0, &block), GA_OK);
        EXPECT_STATUS(ga_free(heap, block), GA_OK);
        close_heap(heap);
    }
    printf("    %d kernels in a row grew while they ran: %llu MiB of units given\n", rounds,
           (unsigned long long)(given >> 10));
    print_times();
    cudaStreamDestroy(streams[0]);
    cudaStreamDestroy(streams[1]);
    cudaFree(units);
    cudaFree(other);
    cudaFree(tally);
}

extern const test_case slab_growing_cases[] = {
    {"growing: units of each size", grows_of_each_size},
    {"growing: ends at its limit", ends_at_its_limit},
    {"growing: the parent ends first", parent_ends_first},
    {"growing: lanes that part", lanes_that_part},
    {"growing: addresses", addresses},
    {"growing: tiles in turn", tiles_in_turn},
    {"growing: again and again beside other work", again_and_again},
};
extern const size_t slab_growing_case_count =
    sizeof slab_growing_cases / sizeof *slab_growing_cases;
