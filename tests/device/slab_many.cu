/* SPDX-License-Identifier: MIT
 *
 * Many warps at once: each unit has one owner, for any calling lanes and shapes; FULL is returned
 * when all units are taken and not before; and an owner's contents stay until it releases.
 */
#include "patterns.h"
#include "slab_gpu.h"

/* The memory that most cases need besides the heap. */
typedef struct rig {
    slab_test_heap heap;
    char **units;
    uint32_t n;
    uint32_t *seen; /* a bit for each unit of the heap */
    slab_tally *tally;
} rig;

static bool set_up(rig *b, int device, const slab_options *options, uint32_t n)
{
    if (!slab_open(&b->heap, device, options)) {
        return false;
    }
    b->n = n;
    b->units = (char **)suite_memory(n * sizeof *b->units);
    b->seen = (uint32_t *)suite_memory(slab_units(&b->heap) / 8);
    b->tally = slab_tally_new();
    return true; /* a failed allocation has failed the case, and kernels that use it fail too */
}

static void tear_down(rig *b)
{
    cudaFree(b->tally);
    cudaFree(b->seen);
    cudaFree(b->units);
    slab_close(&b->heap);
}

static bool forget_seen(rig *b)
{
    return CUDA_DONE(cudaMemset(b->seen, 0, slab_units(&b->heap) / 8));
}

/* ---- everything, and back --------------------------------------------------------------- */

static void take_everything(rig *b, uint32_t stride)
{
    uint32_t units = slab_units(&b->heap);
    slab_claim_all(b->heap.view, b->units, b->n, b->tally, 0);
    slab_check_all(b->heap.view, b->units, b->n, b->seen, b->tally, 0);
    EXPECT_LIVE(&b->heap, units);
    slab_tally found = READ_TALLY(b->tally);
    EXPECT_EQUAL("the units given", found.given, units);
    EXPECT_EQUAL("the claims answered NULL", found.full, b->n - units);
    slab_release_all(b->heap.view, b->units, b->n, stride, b->tally, 0);
    EXPECT_LIVE(&b->heap, 0);
    found = READ_TALLY(b->tally);
    EXPECT_EQUAL("the units released", found.released, units);
    forget_seen(b);
}

static void everything(int device)
{
    static const slab_options all_options[] = {
        {128, 5, 32, 32, true, false, NULL},  {16, 6, 64, 64, true, false, NULL},
        {128, 5, 32, 32, false, false, NULL}, {48, 4, 17, 17, false, false, NULL},
        {4096, 3, 4, 4, true, false, NULL},   {64, 0, 1, 1, true, false, NULL},
        {65536, 0, 2, 2, true, false, NULL},
    };
    static const uint32_t strides[] = {1, 32, 100003, 7919}; /* b->n is odd and no multiple */
    for (size_t i = 0; i < sizeof all_options / sizeof *all_options; i++) {
        rig b = {};
        slab_options options = all_options[i];
        if (suite.quick) {
            options.supers = options.first = options.supers > 4 ? 4 : options.supers;
            options.super_bits = options.super_bits > 2 ? 2 : options.super_bits;
        }
        uint32_t units = options.supers << (options.super_bits + GA_SLAB_BLOCK_BITS);
        if (set_up(&b, device, &options, units + 4095)) {
            for (uint32_t round = 0; round < (suite.quick ? 2u : 4u); round++) {
                take_everything(&b, strides[round]);
            }
            tear_down(&b);
        }
    }
}

/* ---- divergent callers ------------------------------------------------------------------ */

static __device__ void claim_into(ga_kernel_heap heap, char **unit, uint32_t tag, slab_tally *tally)
{
    *unit = (char *)ga_slab_claim(heap);
    if (*unit) {
        slab_write(*unit, slab_unit_bytes(heap), tag);
    }
    slab_count(*unit ? &tally->given : &tally->full, 1);
}

static __device__ void claim_in_branches(ga_kernel_heap heap, char **own, uint32_t i,
                                         slab_tally *tally)
{
    if (i % 3u == 0) {
        claim_into(heap, own, i * CALLS_MAX, tally);
        claim_into(heap, own + 1, i * CALLS_MAX + 1u, tally);
    } else if (i % 3u == 1u) {
        claim_into(heap, own, i * CALLS_MAX, tally);
    } else if (i % 2u) {
        claim_into(heap, own, i * CALLS_MAX, tally);
    } else {
        *own = (char *)ga_kernel_malloc(heap, 1 + i % slab_unit_bytes(heap));
        if (*own) {
            slab_write(*own, slab_unit_bytes(heap), i * CALLS_MAX);
        }
        slab_count(*own ? &tally->given : &tally->full, 1);
    }
}

static __global__ void __launch_bounds__(1024)
    pattern_kernel(ga_kernel_heap heap, uint32_t pattern, char **units, slab_tally *tally)
{
    uint32_t i = slab_thread();
    char **own = units + (size_t)i * CALLS_MAX;
    if (!wants(pattern, i)) {
        return; /* the others continue without these lanes */
    }
    if (pattern == BRANCHES) {
        claim_in_branches(heap, own, i, tally);
    } else if (pattern == LOOPS) {
        for (uint32_t k = 0; k < wants(pattern, i); k++) {
            claim_into(heap, own + k, i * CALLS_MAX + k, tally);
        }
    } else if (pattern == LANE_BY_LANE) {
        for (uint32_t lane = 0; lane < 32u; lane++) {
            if (ga_warp_lane() == lane) {
                claim_into(heap, own, i * CALLS_MAX, tally);
            }
        }
    } else {
        claim_into(heap, own, i * CALLS_MAX, tally);
    }
}

/* Thread i has the units of thread n - 1 - i, and checks all of them. */
static __global__ void look_at_pattern_kernel(ga_kernel_heap heap, uint32_t n, char **units,
                                              uint32_t *seen, slab_tally *tally)
{
    uint32_t i = slab_thread();
    for (uint32_t k = 0; i < n && k < CALLS_MAX; k++) {
        uint32_t slot = (n - 1u - i) * CALLS_MAX + k;
        char *unit = units[slot];
        if (!unit) {
            continue;
        }
        uint32_t number = slab_number(heap, unit, tally);
        slab_holds(unit, slab_unit_bytes(heap), slot, tally);
        if (number != GA_SLAB_FULL &&
            ga_or_relaxed(seen + number / 32u, 1u << (number % 32u)) >> (number % 32u) & 1u) {
            slab_note_wrong(tally, SLAB_OVERLAP, number, slot, 0);
        }
        units[slot] = NULL;
    }
}

/* As above in another order, after all have been checked. */
static __global__ void free_pattern_kernel(ga_kernel_heap heap, uint32_t n, char **units,
                                           slab_tally *tally)
{
    uint32_t i = slab_thread();
    for (uint32_t k = 0; i < n && k < CALLS_MAX; k++) {
        char *unit = units[(n - 1u - i) * CALLS_MAX + k];
        if (unit && (i + k) % 2u) {
            ga_kernel_free(heap, unit);
        } else if (unit) {
            ga_slab_release(heap, unit);
        }
        slab_count(&tally->released, unit ? 1 : 0);
    }
}

static void one_pattern(rig *b, uint32_t pattern, dim3 grid, dim3 block)
{
    uint32_t n = grid.x * grid.y * grid.z * block.x * block.y * block.z;
    uint64_t expected = 0;
    char **copy = (char **)suite_memory((size_t)n * CALLS_MAX * sizeof *copy);
    for (uint32_t i = 0; i < n; i++) {
        expected += wants(pattern, i);
    }
    CUDA_DONE(cudaMemset(b->units, 0, (size_t)n * CALLS_MAX * sizeof *b->units));
    pattern_kernel<<<grid, block>>>(b->heap.view, pattern, b->units, b->tally);
    EXPECT_LIVE(&b->heap, expected);
    CUDA_DONE(cudaMemcpy(copy, b->units, (size_t)n * CALLS_MAX * sizeof *copy, cudaMemcpyDefault));
    look_at_pattern_kernel<<<slab_grid(n), SLAB_BLOCK>>>(b->heap.view, n, b->units, b->seen,
                                                         b->tally);
    free_pattern_kernel<<<slab_grid(n), SLAB_BLOCK>>>(b->heap.view, n, copy, b->tally);
    EXPECT_LIVE(&b->heap, 0);
    slab_tally found = READ_TALLY(b->tally);
    if (!EXPECT_EQUAL("the units given", found.given, expected) ||
        !EXPECT_EQUAL("the units released", found.released, expected)) {
        printf("    pattern %u, %u blocks of %u x %u x %u threads, %llu answered NULL\n", pattern,
               grid.x * grid.y * grid.z, block.x, block.y, block.z, (unsigned long long)found.full);
    }
    forget_seen(b);
    cudaFree(copy);
}

static void divergent(int device)
{
    static const slab_options all_options[] = {{64, 2, 8, 8, true, false, NULL},
                                               {80, 2, 8, 8, false, false, NULL}};
    static const dim3 blocks[] = {dim3(1),       dim3(33),      dim3(100),   dim3(7, 5, 3),
                                  dim3(8, 8, 8), dim3(2, 3, 4), dim3(31, 2), dim3(1024)};
    static const dim3 grids[] = {dim3(1), dim3(5), dim3(3, 2), dim3(1, 2, 3), dim3(4)};
    enum {
        THREADS = 6 * 1024
    };
    for (size_t w = 0; w < sizeof all_options / sizeof *all_options; w++) {
        rig b = {};
        if (!set_up(&b, device, &all_options[w], THREADS * CALLS_MAX)) {
            return;
        }
        for (uint32_t pattern = 0; pattern < PATTERNS; pattern++) {
            for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
                for (size_t j = suite.quick ? 2 : 0; j < (suite.quick ? 3u : 5u); j++) {
                    one_pattern(&b, pattern, grids[j], blocks[i]);
                }
            }
        }
        tear_down(&b);
    }
}

/* ---- rounds in one kernel --------------------------------------------------------------- */

/* Claim, write, wait a little, check, release; repeatedly. */
static __global__ void rounds_kernel(ga_kernel_heap heap, uint32_t rounds, slab_tally *tally)
{
    uint32_t given = 0;
    uint32_t full = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t tag = slab_thread() * 4099u + round;
        void *unit = ga_slab_claim(heap);
        if (unit) {
            slab_write(unit, slab_unit_bytes(heap), tag);
            __nanosleep(ga_bits_mix(tag) % 256u);
            slab_holds(unit, slab_unit_bytes(heap), tag, tally);
            ga_slab_release(heap, unit);
        }
        given += unit ? 1 : 0;
        full += unit ? 0 : 1;
    }
    slab_count(&tally->given, given);
    slab_count(&tally->full, full);
}

enum {
    GROUP = 4
};

/* As above with up to four units for each lane, which are freed together. */
static __global__ void groups_kernel(ga_kernel_heap heap, uint32_t rounds, slab_tally *tally)
{
    uint32_t bytes = slab_unit_bytes(heap);
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t tag = (slab_thread() * 4099u + round) * GROUP;
        void *units[GROUP] = {};
#pragma unroll
        for (uint32_t k = 0; k < GROUP; k++) {
            if (ga_bits_mix(tag + k) % 4u) {
                units[k] = ga_slab_claim(heap);
                slab_count(units[k] ? &tally->given : &tally->full, 1);
            }
            if (units[k]) {
                slab_write(units[k], bytes, tag + k);
            }
        }
        __nanosleep(ga_bits_mix(tag) % 256u);
#pragma unroll
        for (uint32_t k = 0; k < GROUP; k++) {
            if (units[k]) {
                slab_holds(units[k], bytes, tag + k, tally);
            }
        }
        slab_release_group(heap, units, GROUP);
    }
}

static void rounds(int device)
{
    static const slab_options all_options[] = {
        {128, 2, 16, 16, true, false, NULL}, /* room for all */
        {64, 0, 20, 20, true, false, NULL},  /* and for some: threads are 32768 or 2048 */
        {64, 0, 20, 20, false, false, NULL}, {48, 0, 1, 1, true, false, NULL},
        {64, 0, 9, 9, true, true, NULL},
    };
    uint32_t threads = suite.quick ? 2048 : 32768;
    uint32_t repeats = suite.quick ? 4 : 100;
    for (size_t i = 0; i < sizeof all_options / sizeof *all_options; i++) {
        rig b = {};
        if (set_up(&b, device, &all_options[i], 1)) {
            rounds_kernel<<<slab_grid(threads), SLAB_BLOCK>>>(b.heap.view, repeats, b.tally);
            EXPECT_LIVE(&b.heap, 0);
            slab_tally found = READ_TALLY(b.tally);
            EXPECT_EQUAL("the answers", found.given + found.full, (uint64_t)threads * repeats);
            if (slab_units(&b.heap) >= threads) {
                EXPECT_EQUAL("the claims answered NULL where there is room", found.full, 0);
            }
            groups_kernel<<<slab_grid(threads / 2), SLAB_BLOCK>>>(b.heap.view, repeats / 2,
                                                                  b.tally);
            EXPECT_LIVE(&b.heap, 0);
            READ_TALLY(b.tally);
            tear_down(&b);
        }
    }
}

/* ---- units that change hands ------------------------------------------------------------ */

enum {
    BOXES = 509
};

/* The owner is the thread that took the unit out of the box. Its first word is the tag of the
 * thread that put it in, and determines all others. */
static __device__ void look_and_release(ga_kernel_heap heap, char *unit, slab_tally *tally)
{
    uint32_t bytes = slab_unit_bytes(heap);
    uint32_t tag = *(const volatile uint32_t *)(unit + bytes - 4);
    slab_holds(unit, bytes - 4, tag, tally);
    slab_write(unit, bytes, ~tag);
    ga_slab_release(heap, unit);
}

static __global__ void pass_on_kernel(ga_kernel_heap heap, uint64_t *boxes, uint32_t times,
                                      slab_tally *tally)
{
    for (uint32_t i = 0; i < times; i++) {
        uint32_t tag = slab_thread() * 65537u + i;
        char *unit = (char *)ga_slab_claim(heap);
        slab_count(unit ? &tally->given : &tally->full, 1);
        if (unit) {
            uint32_t bytes = slab_unit_bytes(heap);
            slab_write(unit, bytes - 4, tag);
            *(uint32_t *)(unit + bytes - 4) = tag;
            slab_holds(unit, bytes - 4, tag, tally);
        }
        /* acq_rel. Pairs with itself: the contents are visible to the thread that takes the unit
         * out. */
        char *other =
            (char *)ga_exchange64_acq_rel(&boxes[ga_bits_mix(tag) % BOXES], (uint64_t)unit);
        if (other) {
            look_and_release(heap, other, tally);
            slab_count(&tally->released, 1);
        }
    }
}

static __global__ void empty_boxes_kernel(ga_kernel_heap heap, uint64_t *boxes, slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i < BOXES && boxes[i]) {
        look_and_release(heap, (char *)boxes[i], tally);
        slab_count(&tally->released, 1);
    }
}

static void pass_on(int device)
{
    static const slab_options all_options[] = {{128, 0, 40, 40, true, false, NULL},
                                               {128, 0, 40, 40, false, false, NULL},
                                               {16, 0, 3, 3, true, false, NULL}};
    uint32_t threads = suite.quick ? 2048 : 32768;
    for (size_t i = 0; i < sizeof all_options / sizeof *all_options; i++) {
        rig b = {};
        uint64_t *boxes = (uint64_t *)suite_memory(BOXES * sizeof *boxes);
        if (boxes && set_up(&b, device, &all_options[i], 1)) {
            pass_on_kernel<<<slab_grid(threads), SLAB_BLOCK>>>(b.heap.view, boxes,
                                                               suite.quick ? 4 : 100, b.tally);
            empty_boxes_kernel<<<slab_grid(BOXES), SLAB_BLOCK>>>(b.heap.view, boxes, b.tally);
            EXPECT_LIVE(&b.heap, 0);
            slab_tally found = READ_TALLY(b.tally);
            EXPECT_EQUAL("the units released", found.released, found.given);
            tear_down(&b);
        }
        cudaFree(boxes);
    }
}

/* ---- through shared memory -------------------------------------------------------------- */

/* Each thread releases the unit of its neighbour's neighbour, passed through shared memory. */
static __global__ void __launch_bounds__(SLAB_BLOCK)
    shared_kernel(ga_kernel_heap heap, uint32_t times, slab_tally *tally)
{
    __shared__ char *shelf[SLAB_BLOCK];
    for (uint32_t i = 0; i < times; i++) {
        shelf[threadIdx.x] = (char *)ga_slab_claim(heap);
        slab_count(shelf[threadIdx.x] ? &tally->given : &tally->full, 1);
        if (shelf[threadIdx.x]) {
            slab_write(shelf[threadIdx.x], slab_unit_bytes(heap), threadIdx.x + i);
        }
        __syncthreads();
        uint32_t other = (threadIdx.x + 33u) % SLAB_BLOCK;
        char *unit = shelf[other];
        if (unit) {
            slab_holds(unit, slab_unit_bytes(heap), other + i, tally);
            ga_slab_release(heap, unit);
            slab_count(&tally->released, 1);
        }
        __syncthreads();
    }
}

static void shared(int device)
{
    static const slab_options options = {128, 0, 100, 100, true, false, NULL};
    rig b = {};
    uint32_t blocks = suite.quick ? 8 : 200;
    uint32_t times = suite.quick ? 4 : 100;
    if (set_up(&b, device, &options, 1)) {
        shared_kernel<<<blocks, SLAB_BLOCK>>>(b.heap.view, times, b.tally);
        EXPECT_LIVE(&b.heap, 0);
        slab_tally found = READ_TALLY(b.tally);
        EXPECT_EQUAL("the units given", found.given, (uint64_t)blocks * SLAB_BLOCK * times);
        EXPECT_EQUAL("the units released", found.released, found.given);
        tear_down(&b);
    }
}

/* ---- heaps and streams ------------------------------------------------------------------ */

enum {
    HEAPS = 3,
    STREAMS = 4, /* for each heap */
    SHARE = 4096 /* units that a stream keeps */
};

/* The streams of one heap at once; each holds its share at the end. */
static void start_streams(rig *b, cudaStream_t *streams)
{
    for (uint32_t i = 0; i < STREAMS; i++) {
        char **own = b->units + i * SHARE;
        for (uint32_t round = 0; round < (suite.quick ? 1u : 10u); round++) {
            slab_claim_all(b->heap.view, own, SHARE, b->tally, streams[i]);
            rounds_kernel<<<16, SLAB_BLOCK, 0, streams[i]>>>(b->heap.view, 3, b->tally);
            slab_release_all(b->heap.view, own, SHARE, 4095, b->tally, streams[i]);
        }
        slab_claim_all(b->heap.view, own, SHARE, b->tally, streams[i]);
    }
}

static void check_streams(rig *b)
{
    EXPECT_LIVE(&b->heap, STREAMS * SHARE);
    for (uint32_t i = 0; i < STREAMS; i++) {
        slab_check_all(b->heap.view, b->units + i * SHARE, SHARE, b->seen, b->tally, 0);
    }
    slab_release_all(b->heap.view, b->units, STREAMS * SHARE, 12345, b->tally, 0);
    EXPECT_LIVE(&b->heap, 0);
    slab_tally found = READ_TALLY(b->tally);
    EXPECT_EQUAL("the claims answered NULL", found.full, 0);
}

static void streams(int device)
{
    static const slab_options all_options[HEAPS] = {{128, 2, 12, 12, true, false, NULL},
                                                    {32, 3, 6, 6, false, false, NULL},
                                                    {48, 4, 3, 3, true, false, NULL}};
    rig rigs[HEAPS] = {};
    cudaStream_t all[HEAPS * STREAMS] = {};
    bool ready = true;
    for (uint32_t i = 0; i < HEAPS * STREAMS; i++) {
        ready = ready && CUDA_DONE(cudaStreamCreateWithFlags(&all[i], cudaStreamNonBlocking));
    }
    uint32_t opened = 0;
    while (ready && opened < HEAPS &&
           set_up(&rigs[opened], device, &all_options[opened], STREAMS * SHARE)) {
        opened++;
    }
    for (uint32_t i = 0; opened == HEAPS && i < HEAPS; i++) {
        start_streams(&rigs[i], all + i * STREAMS);
    }
    for (uint32_t i = 0; opened == HEAPS && i < HEAPS; i++) {
        check_streams(&rigs[i]);
    }
    while (opened--) {
        tear_down(&rigs[opened]);
    }
    for (uint32_t i = 0; i < HEAPS * STREAMS && all[i]; i++) {
        cudaStreamDestroy(all[i]);
    }
}

extern const test_case slab_many_cases[] = {
    {"each unit has one owner, and FULL is when all are taken", everything},
    {"divergent callers and blocks of every shape", divergent},
    {"claim, write, look and release in one kernel", rounds},
    {"units change hands between blocks", pass_on},
    {"pointers through shared memory", shared},
    {"several heaps on many streams", streams},
};
extern const size_t slab_many_case_count = sizeof slab_many_cases / sizeof *slab_many_cases;
