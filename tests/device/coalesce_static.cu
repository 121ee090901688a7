/* SPDX-License-Identifier: MIT
 *
 * Static coalescing on the GPU: each method over each heap, blocks of any shape, frees by other
 * threads and a later kernel; the distance of payloads; memory that ends; and a program of the
 * paper's shape.
 */
#include "coalesce_gpu.h"

typedef enum way {
    WAY_OPTION, /* as the heap's option `static` says */
    WAY_HB,
    WAY_NB,
    WAY_HW,
    WAY_NW,
    WAYS
} way;

static __device__ char *ask(ga_kernel_heap heap, uint32_t way, size_t size)
{
    return (char *)(way == WAY_OPTION ? ga_coalesce_malloc(heap, size, true)
                    : way == WAY_HB   ? ga_coalesce_block_malloc(heap, size)
                    : way == WAY_NB   ? ga_coalesce_block_malloc_bare(heap, size)
                    : way == WAY_HW   ? ga_coalesce_warp_malloc(heap, size)
                                      : ga_coalesce_warp_malloc_bare(heap, size));
}

/* One static call, then a dynamic one by some lanes. */
static __global__ void __launch_bounds__(1024)
    ask_kernel(ga_kernel_heap heap, uint32_t way, uint32_t size, char **payloads, char **others,
               coalesce_tally *tally)
{
    uint32_t i = coalesce_thread();
    payloads[i] = ask(heap, way, size);
    ga_post_add64_relaxed(payloads[i] ? &tally->given : &tally->refused, 1);
    others[i] = NULL;
    if (payloads[i]) {
        coalesce_write(payloads[i], size, i);
    }
    if (i % 3u == 0) {
        others[i] = (char *)ga_coalesce_malloc(heap, coalesce_size(i, size));
        coalesce_note_given(heap, others[i], coalesce_size(i, size), i, tally);
    }
}

static __global__ void free_kernel(ga_kernel_heap heap, uint32_t n, uint32_t size, char **payloads,
                                   char **others, coalesce_tally *tally)
{
    uint32_t thread = coalesce_thread();
    if (thread < n) {
        uint32_t i = n - 1u - thread;
        if (payloads[i]) {
            coalesce_check(payloads[i], size, i, tally);
        }
        if (others[thread]) {
            coalesce_check(others[thread], coalesce_size(thread, size), thread, tally);
        }
        ga_coalesce_free(heap, payloads[i]); /* one function frees both kinds */
        ga_kernel_free(heap, others[thread]);
    }
}

static void play(coalesce_test_heap *heap, uint32_t way, dim3 block, uint32_t size, char **payloads,
                 char **others, coalesce_tally *tally)
{
    uint32_t grid = 20;
    uint32_t n = grid * block.x * block.y * block.z;
    ask_kernel<<<grid, block>>>(heap->view, way, size, payloads, others, tally);
    KERNELS_DONE();
    coalesce_tally asked = READ_TALLY(heap, tally);
    EXPECT_EQUAL("requests that were served", asked.given, n + (n + 2) / 3);
    free_kernel<<<(n + 63) / 64, 64>>>(heap->view, n, size, payloads, others, tally);
    KERNELS_DONE();
    READ_TALLY(heap, tally);
}

enum {
    PAYLOADS_MAX = 20 * 1024
};

static void each_way_over_each_heap(int device)
{
    static const dim3 blocks[] = {dim3(1024), dim3(32),      dim3(33),
                                  dim3(1),    dim3(7, 5, 3), dim3(100)};
    static const uint32_t sizes[] = {100, 0, 1, 128, 6, 200, 1600};
    char **payloads = (char **)suite_memory(PAYLOADS_MAX * sizeof *payloads);
    char **others = (char **)suite_memory(PAYLOADS_MAX * sizeof *others);
    coalesce_tally *tally = (coalesce_tally *)suite_memory(sizeof *tally);
    EACH_SPEC(spec)
    {
        coalesce_test_heap heap;
        if (coalesce_open(&heap, device, *spec)) {
            uint32_t rounds = suite.quick ? 10 : 42 * 5;
            for (uint32_t round = 0; round < rounds; round++) {
                play(&heap, round % WAYS, blocks[round % 6], sizes[round % 7], payloads, others,
                     tally);
            }
        }
        coalesce_close(&heap);
    }
    cudaFree(payloads);
    cudaFree(others);
    cudaFree(tally);
}

/* ---- how close ------------------------------------------------------------------------------- */

static __global__ void place_kernel(ga_kernel_heap heap, uint32_t way, uint32_t size,
                                    char **payloads)
{
    payloads[threadIdx.x] = ask(heap, way, size);
    __syncthreads();
}

static __global__ void unplace_kernel(ga_kernel_heap heap, char **payloads)
{
    ga_coalesce_free(heap, payloads[threadIdx.x]);
}

static void expect_apart(int device, const char *spec, uint32_t way, uint32_t team, int64_t apart)
{
    coalesce_test_heap heap;
    char *got[256];
    char **payloads = (char **)suite_memory(sizeof got);
    if (coalesce_open(&heap, device, spec)) {
        place_kernel<<<1, 256>>>(heap.view, way, 100, payloads);
        KERNELS_DONE();
        CUDA_DONE(cudaMemcpy(got, payloads, sizeof got, cudaMemcpyDeviceToHost));
        for (uint32_t i = 0; i < 256; i++) {
            int64_t from = got[i] - got[i / team * team];
            if (from != i % team * apart) {
                FAIL("%s, way %u: thread %u %lld bytes on, got %lld", spec, way, i,
                     (long long)(i % team * apart), (long long)from);
                break;
            }
        }
        unplace_kernel<<<1, 256>>>(heap.view, payloads);
        KERNELS_DONE();
    }
    coalesce_close(&heap);
    cudaFree(payloads);
}

static void payloads_stand_close(int device)
{
    static const char map[] = "coalesce:header=auto,static=nb,map=2000/cuda";
    static const char slab[] = "coalesce/slab:unit=classes,capacity=64M/cuda";
    expect_apart(device, map, WAY_HB, 256, 112);
    expect_apart(device, map, WAY_NB, 256, 100);
    expect_apart(device, map, WAY_HW, 32, 112);
    expect_apart(device, map, WAY_NW, 32, 100);
    expect_apart(device, slab, WAY_NB, 256, 112);
    expect_apart(device, slab, WAY_NW, 32, 112);
}

/* ---- memory that ends ------------------------------------------------------------------------ */

enum {
    FILL_THREADS = 96, /* of a block: three warps */
    FILL_BLOCKS = 8
};

static const char *const small_heaps[] = {
    "coalesce/slab:unit=classes,capacity=4M/cuda",
    "coalesce:static=nb/slab:unit=classes,capacity=4M/cuda",
    "coalesce:header=auto,static=hw/slab:unit=classes,capacity=4M/cuda",
    "coalesce:header=16,static=nb,map=1000/slab:unit=classes,capacity=4M/cuda",
    "coalesce/slab:unit=classes,capacity=4M,check=full/cuda",
};

/* True if all threads of the team that shares a superblock have a block, false if none has. Counts
 * teams of which some have one. */
static __device__ bool is_served(const char *payload, bool is_warp, coalesce_tally *tally)
{
    bool any = is_warp ? __any_sync(~0u, payload != NULL) : __syncthreads_or(payload != NULL);
    bool all = is_warp ? __all_sync(~0u, payload != NULL) : __syncthreads_and(payload != NULL);
    if (any != all) {
        ga_post_add64_relaxed(&tally->wrong, 1);
    }
    return all;
}

/* Each thread keeps its payloads in a list, until its team gets none. Then it frees them. */
static __global__ void fill_kernel(ga_kernel_heap heap, uint32_t way, bool is_warp, uint32_t size,
                                   coalesce_tally *tally)
{
    char *list = NULL;
    for (;;) {
        char *payload = ask(heap, way, size);
        if (!is_served(payload, is_warp, tally)) {
            break;
        }
        *(char **)payload = list;
        list = payload;
        ga_post_add64_relaxed(&tally->given, 1);
    }
    ga_post_add64_relaxed(&tally->refused, 1);
    while (list) {
        char *next = *(char **)list;
        ga_coalesce_free(heap, list);
        list = next;
    }
}

/* One thread takes all memory in blocks of `size` bytes and frees `spare` of them. Then the block
 * makes a static request, which fails at least if fewer blocks are left than it has threads. */
static __global__ void last_kernel(ga_kernel_heap heap, uint32_t way, bool is_warp, uint32_t size,
                                   uint32_t spare, coalesce_tally *tally)
{
    char *list = NULL;
    if (threadIdx.x == 0) {
        char *next;
        while ((next = (char *)ga_coalesce_malloc(heap, size)) != NULL) {
            *(char **)next = list;
            list = next;
        }
        for (; spare && list; spare--) {
            next = *(char **)list;
            ga_coalesce_free(heap, list);
            list = next;
        }
    }
    __syncthreads();
    char *payload = ask(heap, way, size);
    bool all = is_served(payload, is_warp, tally);
    ga_post_add64_relaxed(all ? &tally->given : &tally->refused, 1);
    ga_coalesce_free(heap, payload);
    while (list) {
        char *next = *(char **)list;
        ga_coalesce_free(heap, list);
        list = next;
    }
}

static bool is_warp_way(const char *spec, uint32_t way)
{
    return way == WAY_HW || way == WAY_NW ||
           (way == WAY_OPTION && (strstr(spec, "static=hw") || strstr(spec, "static=nw")));
}

static void teams_get_all_or_nothing(int device)
{
    coalesce_tally *tally = (coalesce_tally *)suite_memory(sizeof *tally);
    for (uint32_t s = 0; s < sizeof small_heaps / sizeof *small_heaps; s++) {
        coalesce_test_heap heap;
        if (coalesce_open(&heap, device, small_heaps[s])) {
            for (uint32_t way = 0; way < WAYS; way++) {
                bool is_warp = is_warp_way(small_heaps[s], way);
                uint32_t team = is_warp ? 32 : FILL_THREADS;
                uint32_t size = way % 2 ? 104 : 1000; /* pointers are aligned to 8 */
                fill_kernel<<<FILL_BLOCKS, FILL_THREADS>>>(heap.view, way, is_warp, size, tally);
                KERNELS_DONE();
                coalesce_tally filled = READ_TALLY(&heap, tally);
                EXPECT_EQUAL("threads beyond the last team", filled.given % team, 0);
                EXPECT_EQUAL("threads that got none at last", filled.refused,
                             FILL_BLOCKS * FILL_THREADS);
                last_kernel<<<1, FILL_THREADS>>>(heap.view, way, is_warp, size, 0, tally);
                KERNELS_DONE();
                EXPECT_EQUAL("threads without memory", READ_TALLY(&heap, tally).refused,
                             FILL_THREADS);
                for (uint32_t spare = 1; spare < 3 * FILL_THREADS; spare += spare % 32 ? 31 : 1) {
                    last_kernel<<<1, FILL_THREADS>>>(heap.view, way, is_warp, size, spare, tally);
                    KERNELS_DONE();
                    coalesce_tally asked = READ_TALLY(&heap, tally);
                    EXPECT_EQUAL("threads of teams that were served", asked.given % team, 0);
                    EXPECT_EQUAL("requests", asked.given + asked.refused, FILL_THREADS);
                }
            }
        }
        coalesce_close(&heap);
    }
    cudaFree(tally);
}

/* ---- a program of the paper's shape (Listing 1) ---------------------------------------------- */

static __device__ void function(ga_kernel_heap heap, bool coalesce = false)
{
    int *p = (int *)ga_coalesce_malloc(heap, sizeof(int), coalesce);
    *p = 1;
    ga_coalesce_free(heap, p);
}

static __global__ void program_kernel(ga_kernel_heap heap, coalesce_tally *tally)
{
    ga_coalesce_init(heap);
    int *p = (int *)ga_coalesce_malloc(heap, sizeof(int), true);
    *p = (int)threadIdx.x;
    function(heap, true);
    if (threadIdx.x < 4) {
        int *q = (int *)ga_coalesce_malloc(heap, sizeof(int));
        *q = 2;
        function(heap);
        ga_coalesce_free(heap, q);
    }
    ga_post_add64_relaxed(*p == (int)threadIdx.x ? &tally->given : &tally->wrong, 1);
    ga_coalesce_free(heap, p);
    ga_coalesce_clean(heap);
}

static void a_program_as_in_the_paper(int device)
{
    coalesce_tally *tally = (coalesce_tally *)suite_memory(sizeof *tally);
    EACH_SPEC(spec)
    {
        coalesce_test_heap heap;
        ga_coalesce_heap record = {};
        if (coalesce_open(&heap, device, *spec)) {
            program_kernel<<<40, 96>>>(heap.view, tally);
            KERNELS_DONE();
            EXPECT_EQUAL("threads that came to their end", READ_TALLY(&heap, tally).given, 40 * 96);
            if (coalesce_record(&heap, &record)) {
                EXPECT_EQUAL("blocks that have not cleaned up", record.inside, 0);
            }
        }
        coalesce_close(&heap);
    }
    cudaFree(tally);
}

const test_case coalesce_static_cases[] = {
    {"each way over each heap", each_way_over_each_heap},
    {"payloads stand close", payloads_stand_close},
    {"teams get all or nothing", teams_get_all_or_nothing},
    {"a program as in the paper", a_program_as_in_the_paper},
};
const size_t coalesce_static_case_count =
    sizeof coalesce_static_cases / sizeof *coalesce_static_cases;
