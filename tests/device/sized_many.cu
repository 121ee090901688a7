/* SPDX-License-Identifier: MIT
 *
 * Size-class heaps in kernels, with the public calls only: no 16 bytes have two owners, for any
 * calling lanes, shapes and sizes; NULL is returned when all memory is taken and not before; and an
 * owner's contents stay until it frees.
 */
#define GA_KERNEL_ONLY GA_KERNEL_KIND_SIZED
#include "patterns.h"
#include "sized_gpu.h"

/* ---- sizes ------------------------------------------------------------------------------ */

/* One size, up to the largest of the spec, and beginning with an empty heap. */
static void each_size(int device)
{
    static const uint32_t sizes[] = {0,   1,   15,  16,  17,   32,   100,  128,   129,
                                     160, 161, 500, 777, 1024, 2048, 4097, 10000, 16384};
    const uint32_t n = suite.quick ? 200 : 1000;
    sized_rig r;
    if (!sized_set_up(&r, device, "slab:unit=classes,capacity=64M/cuda", n)) {
        return;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        sized_asking asking = {sizes[i], sizes[i], 1};
        EXPECT_EQUAL("the blocks given", sized_ask_all(&r, asking, n), n);
        sized_expect_live(&r, n, sizes[i]);
        sized_free_all(&r, asking, n, 7);
        sized_expect_live(&r, 0, 0);
    }
    sized_tear_down(&r);
}

/* A size that no heap has: NULL, and nothing leaks. */
static __global__ void too_large_kernel(ga_kernel_heap heap, slab_tally *tally)
{
    const size_t sizes[] = {(size_t)1 << 31, (size_t)1 << 32, ((size_t)1 << 32) + 16,
                            (size_t)1 << 63, ~(size_t)0,      ~(size_t)0 - 15};
    uint32_t i = slab_thread();
    size_t size = i % 7u < 6u ? sizes[i % 7u] : 64;
    void *block = ga_kernel_malloc(heap, size);
    if ((block != NULL) != (size == 64)) {
        slab_note_wrong(tally, SLAB_ANSWER, size, (uint64_t)block, 0);
    }
    slab_count(&tally->given, block ? 1 : 0);
    ga_kernel_free(heap, block); /* NULL too */
}

static void too_large(int device)
{
    sized_rig r;
    if (!sized_set_up(&r, device, "slab:unit=classes,capacity=16M/cuda", 1)) {
        return;
    }
    too_large_kernel<<<7, 100>>>(r.view, r.tally);
    KERNELS_DONE();
    EXPECT_EQUAL("the blocks given", READ_TALLY(r.tally).given, 100);
    sized_expect_live(&r, 0, 0);
    sized_tear_down(&r);
}

/* ---- everything, and back --------------------------------------------------------------- */

/* Allocate all units of one size that the regions hold; then of the next size. */
static void fill(int device)
{
    static const uint32_t units[] = {16, 48, 128, 1024, 320, 4096, 16};
    const uint32_t capacity = suite.quick ? 1u << 20 : 64u << 20;
    char spec[64];
    sized_rig r;
    snprintf(spec, sizeof spec, "slab:unit=classes,capacity=%u/cuda", capacity);
    if (!sized_set_up(&r, device, spec, capacity / 16 + 4095)) {
        return;
    }
    uint32_t region = 1u << GA_SIZED_WORDS_REGION_BITS(r.view.words);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        uint32_t all = capacity / region * (region / units[i]);
        sized_asking asking = {units[i], units[i], 1};
        for (uint32_t round = 0; round < 2; round++) {
            EXPECT_EQUAL("the blocks given of a whole heap", sized_ask_all(&r, asking, all + 4095),
                         all);
            sized_expect_live(&r, all, units[i]);
            sized_free_all(&r, asking, all + 4095, round ? 1 : 100003);
            sized_expect_live(&r, 0, 0);
        }
        EXPECT_STATUS(ga_trim(r.heap, 0), GA_OK);
    }
    sized_tear_down(&r);
}

/* As sized_ask_kernel, but the lanes of a warp call one after the other. */
static __global__ void ask_in_turn_kernel(ga_kernel_heap heap, char **blocks, sized_asking asking,
                                          uint32_t n, slab_tally *tally)
{
    uint32_t i = slab_thread();
    for (uint32_t turn = 0; turn < 32u; turn++) {
        if (i < n && turn == ga_warp_lane()) {
            char *block = (char *)ga_kernel_malloc(heap, sized_of(asking, i));
            blocks[i] = block;
            sized_check_pointer(block, tally);
            slab_count(block ? &tally->given : &tally->full, 1);
            if (block) {
                slab_write(block, sized_of(asking, i), i);
            }
        }
        __syncwarp();
    }
}

/* Lanes that call alone get all units of a heap and no more; then of the next size, whose warps
 * have recent words of the last one. */
static void alone_in(int device, const char *spec, uint32_t capacity)
{
    static const uint32_t units[] = {128, 16, 1024, 48, 4096, 128};
    sized_rig r;
    if (!sized_set_up(&r, device, spec, capacity / 16 + 4096)) {
        return;
    }
    uint32_t region = 1u << GA_SIZED_WORDS_REGION_BITS(r.view.words);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        uint32_t all = capacity / region * (region / units[i]), n = all + 4096;
        sized_asking asking = {units[i], units[i], (uint32_t)i};
        for (uint32_t round = 0; round < 2; round++) {
            ask_in_turn_kernel<<<slab_grid(n), SLAB_BLOCK>>>(r.view, r.blocks, asking, n, r.tally);
            sized_look_kernel<<<slab_grid(n), SLAB_BLOCK>>>(r.blocks, asking, n, r.tally);
            KERNELS_DONE();
            EXPECT_EQUAL("the blocks that single lanes get of a whole heap",
                         READ_TALLY(r.tally).given, all);
            sized_expect_live(&r, all, units[i]);
            sized_free_all(&r, asking, n, round ? 1 : 100003);
            sized_expect_live(&r, 0, 0);
        }
        if (i % 2) { /* else the next size takes the regions by sweeps */
            EXPECT_STATUS(ga_trim(r.heap, 0), GA_OK);
        }
    }
    sized_tear_down(&r);
}

/* Frees block 2 i. */
static __global__ void free_every_second_kernel(ga_kernel_heap heap, char **blocks, uint32_t n)
{
    uint32_t i = 2u * slab_thread();
    if (i < n) {
        ga_kernel_free(heap, blocks[i]);
        blocks[i] = NULL;
    }
}

/* After a trim, words that lanes of one class have found belong to another class, half of whose
 * units are live. No block may overlap another. */
static void alone_after_trim(int device)
{
    const uint32_t capacity = suite.quick ? 4u << 20 : 64u << 20;
    const uint32_t n = capacity / 128, others = capacity / 16;
    sized_asking asking = {128, 128, 1}, other = {16, 16, 2};
    char spec[80];
    sized_rig r;
    snprintf(spec, sizeof spec, "slab:unit=classes,capacity=%u/cuda", capacity);
    if (!sized_set_up(&r, device, spec, others)) {
        return;
    }
    ask_in_turn_kernel<<<slab_grid(n), SLAB_BLOCK>>>(r.view, r.blocks, asking, n, r.tally);
    KERNELS_DONE();
    EXPECT_EQUAL("the blocks of 128 bytes of a whole heap", READ_TALLY(r.tally).given, n);
    sized_free_all(&r, asking, n, 1);
    EXPECT_STATUS(ga_trim(r.heap, 0), GA_OK);
    EXPECT_EQUAL("the blocks of 16 bytes", sized_ask_all(&r, other, others), others);
    free_every_second_kernel<<<slab_grid(others / 2), SLAB_BLOCK>>>(r.view, r.blocks, others);
    char **blocks = (char **)suite_memory(n * sizeof *blocks);
    ask_in_turn_kernel<<<slab_grid(n), SLAB_BLOCK>>>(r.view, blocks, asking, n, r.tally);
    sized_look_kernel<<<slab_grid(n), SLAB_BLOCK>>>(blocks, asking, n, r.tally);
    sized_look_kernel<<<slab_grid(others), SLAB_BLOCK>>>(r.blocks, other, others, r.tally);
    KERNELS_DONE();
    uint64_t given = READ_TALLY(r.tally).given;
    sized_expect_live(&r, others / 2 + given, 16);
    cudaFree(blocks);
    EXPECT_STATUS(ga_heap_reset(r.heap), GA_OK);
    sized_tear_down(&r);
}

static void alone(int device)
{
    const uint32_t capacity = suite.quick ? 4u << 20 : 64u << 20;
    char spec[80];
    snprintf(spec, sizeof spec, "slab:unit=classes,capacity=%u/cuda", capacity);
    alone_in(device, spec, capacity);
    snprintf(spec, sizeof spec, "slab:unit=classes,capacity=2M,limit=%u/vmm", capacity);
    if (!suite.no_growing) {
        alone_in(device, spec, capacity);
    }
}

/* Mixed sizes until there is no more: each lane has all or NULL, nothing is lost, again and
 * again. */
static void exhausted(int device)
{
    const uint32_t n = suite.quick ? 20000 : 200000;
    const uint64_t capacity = suite.quick ? 4u << 20 : 64u << 20;
    char spec[64];
    sized_rig r;
    uint64_t least = UINT64_MAX;
    snprintf(spec, sizeof spec, "slab:unit=classes,capacity=%llu/cuda",
             (unsigned long long)capacity);
    if (!sized_set_up(&r, device, spec, n)) {
        return;
    }
    for (uint32_t round = 0; round < (suite.quick ? 2u : 20u); round++) {
        sized_asking asking = {1, 2048, round};
        uint64_t given = sized_ask_all(&r, asking, n);
        if (given == n) {
            FAIL("some of %u blocks to be refused, got them all", n);
        }
        least = given < least ? given : least;
        sized_expect_live(&r, given, 0);
        sized_free_all(&r, asking, n, round % 2 ? 1 : 100003);
        sized_expect_live(&r, 0, 0);
        EXPECT_STATUS(ga_heap_kernel_view(r.heap, &r.view), GA_OK);
    }
    if (!suite.quick && least * 1024 < capacity / 10 * 7) { /* a small one has few regions */
        FAIL("0.7 of the heap to be given out at least, got %llu blocks of 1 KiB on average",
             (unsigned long long)least);
    }
    sized_tear_down(&r);
}

/* ---- large blocks ----------------------------------------------------------------------- */

static __global__ void one_kernel(ga_kernel_heap heap, size_t size, slab_tally *tally)
{
    char *block = (char *)ga_kernel_malloc(heap, size);
    slab_count(block ? &tally->given : &tally->full, 1);
    if (block) {
        block[0] = block[size - 1u] = 1;
        ga_kernel_free(heap, block);
    }
}

/* Most are larger than any class, from all lanes at once: all or NULL, nothing leaks, and at the
 * end one block has most of the heap. */
static void large(int device)
{
    const uint32_t room = suite.quick ? 16 : 64, max = 8 * room;
    sized_rig r;
    if (!sized_set_up(&r, device, "slab:unit=classes,capacity=256M/cuda", max)) {
        return;
    }
    for (uint32_t round = 0; round < (suite.quick ? 2u : 10u); round++) {
        sized_asking asking = {100000, 3000000, round};
        EXPECT_EQUAL("the blocks given where there is room", sized_ask_all(&r, asking, room), room);
        sized_expect_live(&r, room, 100000);
        sized_free_all(&r, asking, room, 7);
        sized_expect_live(&r, 0, 0);
        asking.from = suite.quick ? 2900000 : 1000000;
        uint64_t given = sized_ask_all(&r, asking, max);
        if (given < 60 || given == max) {
            FAIL("some of %u large blocks to be given, got %llu", max, (unsigned long long)given);
        }
        sized_expect_live(&r, given, asking.from);
        sized_free_all(&r, asking, max, 7);
        sized_expect_live(&r, 0, 0);
        EXPECT_STATUS(ga_trim(r.heap, 0), GA_OK); /* regions of the largest classes, empty now */
        one_kernel<<<1, 1>>>(r.view, (size_t)200 << 20, r.tally);
        one_kernel<<<1, 1>>>(r.view, ((size_t)256 << 20) + 1u, r.tally);
        KERNELS_DONE();
        slab_tally found = READ_TALLY(r.tally);
        EXPECT_EQUAL("blocks of 200 MiB given", found.given, 1);
        EXPECT_EQUAL("blocks of more than the heap refused", found.full, 1);
        sized_expect_live(&r, 0, 0);
    }
    sized_tear_down(&r);
}

/* ---- divergent callers ------------------------------------------------------------------ */

static __device__ uint32_t slot_size(uint32_t slot)
{
    return 4u + (slot * 37u % 200u) * 4u;
}

static __device__ void ask_into(ga_kernel_heap heap, char **blocks, uint32_t slot,
                                slab_tally *tally)
{
    char *block = (char *)ga_kernel_malloc(heap, slot_size(slot));
    blocks[slot] = block;
    sized_check_pointer(block, tally);
    if (block) {
        slab_write(block, slot_size(slot), slot);
    }
    slab_count(block ? &tally->given : &tally->full, 1);
}

static __global__ void __launch_bounds__(1024)
    pattern_kernel(ga_kernel_heap heap, uint32_t pattern, char **blocks, slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (!wants(pattern, i)) {
        return; /* the others continue without these lanes */
    }
    if (pattern == BRANCHES) {
        if (i % 3u == 0) {
            ask_into(heap, blocks, i * CALLS_MAX, tally);
            ask_into(heap, blocks, i * CALLS_MAX + 1u, tally);
        } else if (i % 3u == 1u) {
            ask_into(heap, blocks, i * CALLS_MAX, tally);
        } else {
            ask_into(heap, blocks, i * CALLS_MAX, tally);
        }
    } else if (pattern == LOOPS) {
        for (uint32_t k = 0; k < wants(pattern, i); k++) {
            ask_into(heap, blocks, i * CALLS_MAX + k, tally);
        }
    } else if (pattern == LANE_BY_LANE) {
        for (uint32_t lane = 0; lane < 32u; lane++) {
            if (ga_warp_lane() == lane) {
                ask_into(heap, blocks, i * CALLS_MAX, tally);
            }
        }
    } else {
        ask_into(heap, blocks, i * CALLS_MAX, tally);
    }
}

/* Thread i checks the blocks of thread n - 1 - i; then, in another launch, frees them. */
static __global__ void pattern_end_kernel(ga_kernel_heap heap, uint32_t n, char **blocks,
                                          bool frees, slab_tally *tally)
{
    uint32_t i = slab_thread();
    for (uint32_t k = 0; i < n && k < CALLS_MAX; k++) {
        uint32_t slot = (n - 1u - i) * CALLS_MAX + k;
        if (blocks[slot] && frees) {
            ga_kernel_free(heap, blocks[slot]);
            slab_count(&tally->released, 1);
        } else if (blocks[slot]) {
            slab_holds(blocks[slot], slot_size(slot), slot, tally);
        }
    }
}

static void one_pattern(sized_rig *r, uint32_t pattern, dim3 grid, dim3 block)
{
    uint32_t n = grid.x * grid.y * grid.z * block.x * block.y * block.z;
    uint64_t expected = 0;
    for (uint32_t i = 0; i < n; i++) {
        expected += wants(pattern, i);
    }
    CUDA_DONE(cudaMemset(r->blocks, 0, (size_t)n * CALLS_MAX * sizeof *r->blocks));
    pattern_kernel<<<grid, block>>>(r->view, pattern, r->blocks, r->tally);
    KERNELS_DONE();
    sized_expect_live(r, expected, 0);
    pattern_end_kernel<<<slab_grid(n), SLAB_BLOCK>>>(r->view, n, r->blocks, false, r->tally);
    pattern_end_kernel<<<slab_grid(n), SLAB_BLOCK>>>(r->view, n, r->blocks, true, r->tally);
    KERNELS_DONE();
    slab_tally found = READ_TALLY(r->tally);
    if (!EXPECT_EQUAL("the blocks given", found.given, expected) ||
        !EXPECT_EQUAL("the blocks freed", found.released, expected)) {
        printf("    pattern %u, %u blocks of %u x %u x %u threads, %llu answered NULL\n", pattern,
               grid.x * grid.y * grid.z, block.x, block.y, block.z, (unsigned long long)found.full);
    }
    sized_expect_live(r, 0, 0);
}

static void divergent(int device)
{
    static const dim3 blocks[] = {dim3(1),       dim3(33),      dim3(100),   dim3(7, 5, 3),
                                  dim3(8, 8, 8), dim3(2, 3, 4), dim3(31, 2), dim3(1024)};
    static const dim3 grids[] = {dim3(1), dim3(5), dim3(3, 2), dim3(1, 2, 3), dim3(4)};
    sized_rig r;
    if (!sized_set_up(&r, device, "slab:unit=classes,capacity=64M/cuda", 6 * 1024 * CALLS_MAX)) {
        return;
    }
    for (uint32_t pattern = 0; pattern < PATTERNS; pattern++) {
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
            for (size_t j = suite.quick ? 2 : 0; j < (suite.quick ? 3u : 5u); j++) {
                one_pattern(&r, pattern, grids[j], blocks[i]);
            }
        }
    }
    sized_tear_down(&r);
}

/* ---- recursion -------------------------------------------------------------------------- */

typedef struct node {
    struct node *child[2];
    uint32_t value, bytes;
} node;

/* A tree whose nodes have different sizes; lanes stop at different depths. */
static __device__ __noinline__ node *grow_tree(ga_kernel_heap heap, uint32_t value, uint32_t depth,
                                               slab_tally *tally)
{
    uint32_t bytes = (uint32_t)sizeof(node) + ga_bits_mix(value) % 100u;
    node *n = (node *)ga_kernel_malloc(heap, bytes);
    slab_count(n ? &tally->given : &tally->full, 1);
    if (n) {
        n->value = value;
        n->bytes = bytes;
        for (uint32_t i = 0; i < 2; i++) {
            bool on = depth && ga_bits_mix(value * 2u + i) % 8u;
            n->child[i] = on ? grow_tree(heap, value * 2u + i, depth - 1u, tally) : NULL;
        }
    }
    return n;
}

static __device__ __noinline__ void cut_tree(ga_kernel_heap heap, node *n, uint32_t value,
                                             slab_tally *tally)
{
    if (!n) {
        return;
    }
    if (n->value != value) {
        slab_note_wrong(tally, SLAB_CONTENT, (uint64_t)n, n->value, value);
        return;
    }
    cut_tree(heap, n->child[0], value * 2u, tally); /* as a destructor would */
    cut_tree(heap, n->child[1], value * 2u + 1u, tally);
    ga_kernel_free(heap, n);
    slab_count(&tally->released, 1);
}

static __global__ void trees_kernel(ga_kernel_heap heap, node **roots, slab_tally *tally)
{
    uint32_t i = slab_thread();
    roots[i] = grow_tree(heap, i + 1u, i % 5u, tally);
}

static __global__ void cut_kernel(ga_kernel_heap heap, node **roots, uint32_t n, slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i < n) {
        cut_tree(heap, roots[n - 1u - i], n - i, tally);
    }
}

static void recursion(int device)
{
    const uint32_t blocks = suite.quick ? 4 : 64, n = blocks * 96;
    size_t stack = 0;
    sized_rig r;
    CUDA_DONE(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
    CUDA_DONE(cudaDeviceSetLimit(cudaLimitStackSize, 16 << 10));
    if (sized_set_up(&r, device, "slab:unit=classes,capacity=64M/cuda", n)) {
        trees_kernel<<<blocks, 96>>>(r.view, (node **)r.blocks, r.tally);
        KERNELS_DONE();
        slab_tally found = READ_TALLY(r.tally);
        EXPECT_EQUAL("the nodes refused", found.full, 0);
        sized_expect_live(&r, found.given, 0);
        cut_kernel<<<slab_grid(n), SLAB_BLOCK>>>(r.view, (node **)r.blocks, n, r.tally);
        KERNELS_DONE();
        EXPECT_EQUAL("the nodes freed", READ_TALLY(r.tally).released, found.given);
        sized_expect_live(&r, 0, 0);
        sized_tear_down(&r);
    }
    CUDA_DONE(cudaDeviceSetLimit(cudaLimitStackSize, stack));
}

/* ---- blocks that change hands ----------------------------------------------------------- */

enum {
    BOXES = 509
};

/* Word 0 is the block's size in bytes, word 1 its tag, which determines the other words. */
static __device__ void fill_parcel(uint32_t *parcel, uint32_t bytes, uint32_t tag)
{
    parcel[0] = bytes;
    parcel[1] = tag;
    slab_write(parcel + 2, bytes - 8u, tag);
}

static __device__ void look_and_free(ga_kernel_heap heap, uint32_t *parcel, slab_tally *tally)
{
    const volatile uint32_t *look = parcel;
    slab_holds(parcel + 2, look[0] - 8u, look[1], tally);
    fill_parcel(parcel, 16, ~parcel[1]);
    ga_kernel_free(heap, parcel);
    slab_count(&tally->released, 1);
}

static __global__ void pass_on_kernel(ga_kernel_heap heap, uint64_t *boxes, uint32_t times,
                                      slab_tally *tally)
{
    for (uint32_t i = 0; i < times; i++) {
        uint32_t tag = slab_thread() * 65537u + i;
        uint32_t bytes = 16u + ga_bits_mix(tag) % 500u * 4u;
        uint32_t *parcel = (uint32_t *)ga_kernel_malloc(heap, bytes);
        slab_count(parcel ? &tally->given : &tally->full, 1);
        if (parcel) {
            fill_parcel(parcel, bytes, tag);
        }
        /* acq_rel. Pairs with itself: the contents are visible to the thread that takes the block
         * out. */
        uint32_t *other =
            (uint32_t *)ga_exchange64_acq_rel(&boxes[ga_bits_mix(tag) % BOXES], (uint64_t)parcel);
        if (other) {
            look_and_free(heap, other, tally);
        }
    }
}

static __global__ void empty_boxes_kernel(ga_kernel_heap heap, uint64_t *boxes, slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i < BOXES && boxes[i]) {
        look_and_free(heap, (uint32_t *)boxes[i], tally);
    }
}

static void pass_on(int device)
{
    static const char *const specs[] = {"slab:unit=classes,capacity=128M/cuda",
                                        "slab:unit=classes,capacity=8M/cuda"}; /* not for all */
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        uint32_t blocks = suite.quick ? 8 : 128;
        uint64_t *boxes = (uint64_t *)suite_memory(BOXES * sizeof *boxes);
        sized_rig r;
        if (boxes && sized_set_up(&r, device, specs[i], 1)) {
            /* On two streams at once. */
            cudaStream_t streams[2];
            CUDA_DONE(cudaStreamCreate(&streams[0]));
            CUDA_DONE(cudaStreamCreate(&streams[1]));
            for (int k = 0; k < 2; k++) {
                pass_on_kernel<<<blocks, SLAB_BLOCK, 0, streams[k]>>>(
                    r.view, boxes, suite.quick ? 4 : 40, r.tally);
            }
            KERNELS_DONE();
            empty_boxes_kernel<<<2, SLAB_BLOCK>>>(r.view, boxes, r.tally);
            KERNELS_DONE();
            slab_tally found = READ_TALLY(r.tally);
            EXPECT_EQUAL("the blocks freed", found.released, found.given);
            sized_expect_live(&r, 0, 0);
            sized_tear_down(&r);
            cudaStreamDestroy(streams[0]);
            cudaStreamDestroy(streams[1]);
        }
        cudaFree(boxes);
    }
}

/* ---- the host, and pointers that are none ----------------------------------------------- */

static __global__ void free_some_kernel(ga_kernel_heap heap, char *first, char *second,
                                        char *foreign)
{
    if (threadIdx.x == 3) {
        ga_kernel_free(heap, first + 1); /* these five are no blocks */
        ga_kernel_free(heap, first + 16);
        ga_kernel_free(heap, foreign);
        ga_kernel_free(heap, NULL);
        ga_kernel_free(heap, (void *)(uintptr_t)16);
        ga_kernel_free(heap, first);
    }
    if (threadIdx.x == 40) {
        ga_kernel_free(heap, second);
        ga_kernel_free(heap, second); /* twice: harmless while no other thread has the block */
    }
}

static void with_the_host(int device)
{
    enum {
        N = 300
    };
    sized_rig r;
    char *first = NULL, *second = NULL, *blocks[N];
    if (!sized_set_up(&r, device, "slab:unit=classes,capacity=16M/cuda", N)) {
        return;
    }
    EXPECT_STATUS(ga_alloc(r.heap, 100, 0, (void **)&first), GA_OK);
    EXPECT_STATUS(ga_alloc(r.heap, 3000, 0, (void **)&second), GA_OK);
    sized_expect_live(&r, 2, 0);
    free_some_kernel<<<1, 64>>>(r.view, first, second, (char *)r.tally);
    KERNELS_DONE();
    sized_expect_live(&r, 0, 0);
    sized_asking asking = {10, 4000, 5};
    EXPECT_EQUAL("the blocks given", sized_ask_all(&r, asking, N), N);
    CUDA_DONE(cudaMemcpy(blocks, r.blocks, sizeof blocks, cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < N; i++) {
        EXPECT_STATUS(ga_free(r.heap, blocks[i]), GA_OK);
    }
    sized_expect_live(&r, 0, 0);
    EXPECT_STATUS(ga_free(r.heap, blocks[0]), GA_ERR_POINTER);
    sized_tear_down(&r);
}

extern const test_case slab_sized_cases[] = {
    {"size classes: every size", each_size},
    {"size classes: sizes that no heap has", too_large},
    {"size classes: whole heaps of each class", fill},
    {"size classes: lanes that call alone", alone},
    {"size classes: lanes that call alone after a trim", alone_after_trim},
    {"size classes: mixed until there is no more", exhausted},
    {"size classes: large blocks", large},
    {"size classes: divergent callers, blocks of all shapes", divergent},
    {"size classes: recursion", recursion},
    {"size classes: blocks that change hands", pass_on},
    {"size classes: beside the host", with_the_host},
};
extern const size_t slab_sized_case_count = sizeof slab_sized_cases / sizeof *slab_sized_cases;
