/* SPDX-License-Identifier: MIT
 *
 * Dynamic coalescing by many warps: any subset of lanes, any block shape, frees by other threads
 * and by later kernels. Over and over, in a heap that would be used up if anything were lost.
 */
#include "coalesce_gpu.h"

typedef struct shape {
    dim3 grid, block;
} shape;

static const shape shapes[] = {
    {dim3(64), dim3(256)},       {dim3(12), dim3(1024)},         {dim3(500), dim3(33)},
    {dim3(16, 4), dim3(16, 16)}, {dim3(8, 2, 4), dim3(4, 8, 6)}, {dim3(3000), dim3(1)},
};
static const size_t shape_count = sizeof shapes / sizeof *shapes;

static uint32_t threads_of(shape s)
{
    return s.grid.x * s.grid.y * s.grid.z * s.block.x * s.block.y * s.block.z;
}

/* The most threads of any shape. */
static size_t threads_max(void)
{
    size_t max = 0;
    for (size_t i = 0; i < shape_count; i++) {
        max = threads_of(shapes[i]) > max ? threads_of(shapes[i]) : max;
    }
    return max;
}

/* Some lanes allocate at once, some in branches, some not at all. */
static __global__ void __launch_bounds__(1024)
    ask_kernel(ga_kernel_heap heap, char **payloads, uint32_t seed, coalesce_tally *tally)
{
    uint32_t i = coalesce_thread();
    uint32_t size = coalesce_size(i, seed);
    uint32_t way = ga_bits_mix(i ^ seed) % 5u;
    char *payload = NULL;
    if (seed % 2u == 0) {
        payload = (char *)ga_kernel_malloc(heap, size);
    } else if (way == 0) {
        payload = (char *)ga_kernel_malloc(heap, size);
    } else if (way < 3u) {
        payload = (char *)ga_coalesce_malloc(heap, size);
    }
    if (payload || seed % 2u == 0 || way < 3u) {
        coalesce_note_given(heap, payload, size, i, tally);
    }
    payloads[i] = payload;
}

/* Thread i frees the payload of thread (i * stride + 1) % n. */
static __global__ void free_kernel(ga_kernel_heap heap, char **payloads, uint32_t n,
                                   uint32_t stride, uint32_t seed, coalesce_tally *tally)
{
    uint32_t thread = coalesce_thread();
    if (thread < n) {
        uint32_t i = (uint32_t)(((uint64_t)thread * stride + 1u) % n);
        if (payloads[i]) {
            coalesce_check(payloads[i], coalesce_size(i, seed), i, tally);
        }
        if (seed % 3u) {
            ga_kernel_free(heap, payloads[i]);
        } else {
            ga_coalesce_free(heap, payloads[i]);
        }
    }
}

static uint32_t no_divisor_of(uint32_t n, uint32_t stride)
{
    for (;; stride++) {
        uint32_t a = n;
        uint32_t b = stride % n;
        while (b) {
            uint32_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1 || n == 1) {
            return stride;
        }
    }
}

static void play(coalesce_test_heap *heap, shape s, char **payloads, uint32_t seed,
                 coalesce_tally *tally)
{
    uint32_t n = threads_of(s);
    ask_kernel<<<s.grid, s.block>>>(heap->view, payloads, seed, tally);
    KERNELS_DONE();
    coalesce_tally asked = READ_TALLY(heap, tally);
    EXPECT_EQUAL("refused requests", asked.refused, 0);
    uint32_t stride = seed % 4u ? no_divisor_of(n, 1 + seed * 7919u % n) : 1;
    free_kernel<<<(n + 127) / 128, 128>>>(heap->view, payloads, n, stride, seed, tally);
    KERNELS_DONE();
    READ_TALLY(heap, tally);
}

static void payloads_are_their_owners(int device)
{
    char **payloads = (char **)suite_memory(threads_max() * sizeof *payloads);
    coalesce_tally *tally = (coalesce_tally *)suite_memory(sizeof *tally);
    EACH_SPEC(spec)
    {
        coalesce_test_heap heap;
        if (coalesce_open(&heap, device, *spec)) {
            uint32_t rounds = suite.quick ? 2 : 120; /* 100 MB each at most, of 256 */
            for (uint32_t round = 0; round < rounds; round++) {
                play(&heap, shapes[round % shape_count], payloads, round + 1, tally);
            }
        }
        coalesce_close(&heap);
    }
    cudaFree(payloads);
    cudaFree(tally);
}

/* ---- within one kernel ----------------------------------------------------------------------- */

/* Each thread frees the payload of another thread of its block, while others allocate. */
static __global__ void __launch_bounds__(1024)
    hand_on_kernel(ga_kernel_heap heap, uint32_t rounds, coalesce_tally *tally)
{
    static __shared__ char *handed[1024];
    uint32_t n = ga_coalesce_team();
    uint32_t rank = ga_coalesce_rank();
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t size = coalesce_size(coalesce_thread(), round);
        handed[rank] = (char *)ga_coalesce_malloc(heap, size);
        coalesce_note_given(heap, handed[rank], size, coalesce_thread(), tally);
        __syncthreads();
        uint32_t from = (rank * 5u + round) % n;
        char *payload = handed[from];
        uint32_t owner = coalesce_thread() - rank + from;
        if (payload) {
            coalesce_check(payload, coalesce_size(owner, round), owner, tally);
        }
        __syncthreads();
        ga_coalesce_free(heap, payload);
    }
}

static void payloads_change_hands(int device)
{
    coalesce_tally *tally = (coalesce_tally *)suite_memory(sizeof *tally);
    EACH_SPEC(spec)
    {
        coalesce_test_heap heap;
        if (coalesce_open(&heap, device, *spec)) {
            for (uint32_t block = 32; block <= 1024; block += 31 * 32) { /* no multiple of 5 */
                uint32_t rounds = suite.quick ? 2 : 100;
                hand_on_kernel<<<24, block>>>(heap.view, rounds, tally);
                KERNELS_DONE();
                EXPECT_EQUAL("requests that were served", READ_TALLY(&heap, tally).given,
                             24ull * block * rounds);
            }
        }
        coalesce_close(&heap);
    }
    cudaFree(tally);
}

/* ---- impossible requests, and invalid frees ----------------------------------------------- */

static __global__ void huge_kernel(ga_kernel_heap heap, coalesce_tally *tally)
{
    uint32_t lane = threadIdx.x % 32u;
    size_t size = lane % 4u == 1 ? ~(size_t)lane : lane % 4u == 3 ? (size_t)1 << 50 : lane;
    char *payload = (char *)ga_kernel_malloc(heap, size);
    if ((payload == NULL) != (lane % 2u == 1)) {
        ga_post_add64_relaxed(&tally->wrong, 1);
    }
    ga_kernel_free(heap, payload);
    ga_kernel_free(heap, NULL);
}

static void huge_requests_get_null(int device)
{
    coalesce_tally *tally = (coalesce_tally *)suite_memory(sizeof *tally);
    EACH_SPEC(spec)
    {
        coalesce_test_heap heap;
        if (coalesce_open(&heap, device, *spec)) {
            huge_kernel<<<100, 128>>>(heap.view, tally);
            KERNELS_DONE();
            READ_TALLY(&heap, tally);
        }
        coalesce_close(&heap);
    }
    cudaFree(tally);
}

/* More than there is: some get NULL, all else is whole. */
static __global__ void fill_kernel(ga_kernel_heap heap, char **payloads, uint32_t size,
                                   coalesce_tally *tally)
{
    uint32_t i = coalesce_thread();
    payloads[i] = (char *)ga_kernel_malloc(heap, size);
    coalesce_note_given(heap, payloads[i], size, i, tally);
}

static __global__ void empty_kernel(ga_kernel_heap heap, char **payloads, uint32_t size,
                                    coalesce_tally *tally)
{
    uint32_t i = coalesce_thread() ^ 37u;
    if (payloads[i]) {
        coalesce_check(payloads[i], size, i, tally);
    }
    ga_kernel_free(heap, payloads[i]);
}

static void a_full_heap_serves_as_much_again(int device)
{
    uint32_t n = 1 << 18;
    uint32_t size = 1500; /* 400 MB of 256 */
    char **payloads = (char **)suite_memory(n * sizeof *payloads);
    coalesce_tally *tally = (coalesce_tally *)suite_memory(sizeof *tally);
    EACH_SPEC(spec)
    {
        coalesce_test_heap heap;
        uint64_t first = 0;
        if (!suite.quick && coalesce_open(&heap, device, *spec)) {
            for (int round = 0; round < 6; round++) {
                fill_kernel<<<n / 128, 128>>>(heap.view, payloads, size, tally);
                KERNELS_DONE();
                uint64_t given = READ_TALLY(&heap, tally).given;
                bool all = given == n;
                if (all != coalesce_grows(&heap) || given < n / 4 ||
                    (round && given < first * 3 / 4)) {
                    FAIL("%s: about as much in round %d as in the first, got %llu after %llu",
                         *spec, round, (unsigned long long)given, (unsigned long long)first);
                }
                first = round ? first : given;
                empty_kernel<<<n / 128, 128>>>(heap.view, payloads, size, tally);
                KERNELS_DONE();
                READ_TALLY(&heap, tally);
            }
            coalesce_close(&heap);
        }
    }
    cudaFree(payloads);
    cudaFree(tally);
}

/* Over slabs, lanes with equal requests have blocks that are freed one by one: while half of each
 * warp's are live, half of the heap can be allocated again. */
static __global__ void every_other_kernel(ga_kernel_heap heap, char **payloads)
{
    uint32_t i = coalesce_thread();
    if (i % 2u) {
        ga_kernel_free(heap, payloads[i]);
        payloads[i] = NULL;
    }
}

static __global__ void free_rest_kernel(ga_kernel_heap heap, char **payloads, char **others)
{
    uint32_t i = coalesce_thread();
    ga_kernel_free(heap, payloads[i]);
    ga_kernel_free(heap, others[i]);
}

static void equal_lanes_go_back_one_by_one(int device)
{
    uint32_t n = 1 << 18;
    uint32_t size = 900; /* twice as much as there is */
    coalesce_test_heap heap;
    char **payloads = (char **)suite_memory(n * sizeof *payloads);
    char **others = (char **)suite_memory(n * sizeof *others);
    coalesce_tally *tally = (coalesce_tally *)suite_memory(sizeof *tally);
    REQUIRE(coalesce_open(&heap, device, "coalesce/slab:unit=classes,capacity=128M/cuda"));
    fill_kernel<<<n / 128, 128>>>(heap.view, payloads, size, tally);
    KERNELS_DONE();
    uint64_t first = READ_TALLY(&heap, tally).given;
    EXPECT(first > n / 4 && first < n);
    every_other_kernel<<<n / 128, 128>>>(heap.view, payloads);
    fill_kernel<<<n / 128, 128>>>(heap.view, others, size, tally);
    KERNELS_DONE();
    uint64_t second = READ_TALLY(&heap, tally).given;
    if (second < first * 45 / 100) {
        FAIL("half of %llu blocks again, got %llu", (unsigned long long)first,
             (unsigned long long)second);
    }
    free_rest_kernel<<<n / 128, 128>>>(heap.view, payloads, others);
    KERNELS_DONE();
    coalesce_close(&heap);
    cudaFree(payloads);
    cudaFree(others);
    cudaFree(tally);
}

static __device__ size_t alignment_of(uint32_t i)
{
    return (size_t)1 << i % 13u;
}

static __global__ void aligned_kernel(ga_kernel_heap heap, char **payloads, coalesce_tally *tally)
{
    uint32_t i = coalesce_thread();
    size_t align = alignment_of(i);
    uint32_t size = coalesce_size(i, 5);
    char *payload = (char *)ga_kernel_aligned_alloc(heap, align, size);
    ga_post_add64_relaxed(payload ? &tally->given : &tally->refused, 1);
    if ((size_t)payload % align) {
        ga_post_add64_relaxed(&tally->wrong, 1);
    }
    if (payload) {
        coalesce_write(payload, size, i);
    }
    payloads[i] = payload;
}

static __global__ void free_aligned_kernel(ga_kernel_heap heap, char **payloads,
                                           coalesce_tally *tally)
{
    uint32_t i = coalesce_thread();
    if (payloads[i]) {
        coalesce_check(payloads[i], coalesce_size(i, 5), i, tally);
    }
    ga_kernel_free(heap, payloads[i]);
}

static void aligned_blocks(int device)
{
    const uint32_t n = 1 << 14;
    coalesce_test_heap heap;
    char **payloads = (char **)suite_memory(n * sizeof *payloads);
    coalesce_tally *tally = (coalesce_tally *)suite_memory(sizeof *tally);
    EACH_SPEC(spec)
    {
        REQUIRE(coalesce_open(&heap, device, *spec));
        aligned_kernel<<<n / 128, 128>>>(heap.view, payloads, tally);
        KERNELS_DONE();
        coalesce_tally found = READ_TALLY(&heap, tally);
        EXPECT_EQUAL("the answers", found.given + found.refused, n);
        EXPECT_EQUAL("blocks that were given", found.given, n);
        free_aligned_kernel<<<n / 128, 128>>>(heap.view, payloads, tally);
        KERNELS_DONE();
        READ_TALLY(&heap, tally);
        coalesce_close(&heap);
    }
    cudaFree(payloads);
    cudaFree(tally);
}

static __global__ void twice_kernel(ga_kernel_heap heap)
{
    char *payload = (char *)ga_kernel_malloc(heap, threadIdx.x);
    if (threadIdx.x % 4u == 1) {
        ga_kernel_free(heap, payload);
        ga_kernel_free(heap, payload);
    }
    __syncwarp();
    if (threadIdx.x % 4u != 1) {
        ga_kernel_free(heap, payload);
    }
}

static void a_second_free_is_counted(int device)
{
    coalesce_test_heap heap;
    ga_coalesce_heap record = {};
    REQUIRE(coalesce_open(&heap, device, "coalesce:header=auto/cuda"));
    twice_kernel<<<1, 32>>>(heap.view);
    KERNELS_DONE();
    if (coalesce_record(&heap, &record)) {
        EXPECT_EQUAL("payloads that were freed twice", record.faults[GA_COALESCE_FREED_TWICE], 8);
    }
    heap.view.abi = 0; /* the expected error */
    coalesce_close(&heap);
}

/* ---- the host -------------------------------------------------------------------------------- */

static __global__ void free_one_kernel(ga_kernel_heap heap, char *payload)
{
    ga_kernel_free(heap, payload);
}

/* Over slabs the host's blocks are the kernels', both ways. */
static void the_host_allocates_and_frees(int device)
{
    coalesce_test_heap heap;
    char **payloads = (char **)suite_memory(32 * sizeof *payloads);
    coalesce_tally *tally = (coalesce_tally *)suite_memory(sizeof *tally);
    char *got[32];
    void *block = NULL;
    REQUIRE(coalesce_open(&heap, device, "coalesce/slab:unit=classes,capacity=256M/cuda"));
    EXPECT(ga_alloc(heap.heap, 1000, 0, &block) == GA_OK);
    EXPECT(ga_free(heap.heap, block) == GA_OK);
    EXPECT(ga_alloc(heap.heap, 70, 0, &block) == GA_OK);
    free_one_kernel<<<1, 1>>>(heap.view, (char *)block);
    fill_kernel<<<1, 32>>>(heap.view, payloads, 100, tally);
    KERNELS_DONE();
    CUDA_DONE(cudaMemcpy(got, payloads, sizeof got, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++) {
        EXPECT(ga_owns(heap.heap, got[i]));
        EXPECT(ga_free(heap.heap, got[i]) == GA_OK);
    }
    coalesce_close(&heap);
    cudaFree(payloads);
    cudaFree(tally);
}

static void units_of_one_size_are_no_parent(int device)
{
    ga_heap *heap;
    EXPECT(ga_heap_open(&heap, GA_PLACE_KERNEL, device,
                        "coalesce/slab:unit=64,capacity=16M/cuda") == GA_ERR_SPEC);
    EXPECT(test_error_has("expected a parent that has blocks of all sizes"));
}

const test_case coalesce_many_cases[] = {
    {"payloads are their owners'", payloads_are_their_owners},
    {"payloads change hands within a kernel", payloads_change_hands},
    {"huge requests get NULL", huge_requests_get_null},
    {"a full heap serves as much again", a_full_heap_serves_as_much_again},
    {"equal lanes go back one by one", equal_lanes_go_back_one_by_one},
    {"aligned blocks", aligned_blocks},
    {"a second free is counted", a_second_free_is_counted},
    {"the host allocates and frees", the_host_allocates_and_frees},
    {"units of one size are no parent", units_of_one_size_are_no_parent},
};
const size_t coalesce_many_case_count = sizeof coalesce_many_cases / sizeof *coalesce_many_cases;
