/* SPDX-License-Identifier: MIT
 *
 * Invalid frees in size-class heaps with check=full, and in coalescing heaps over them: the kernel
 * continues, and the log has each address once.
 */
#include "sized_gpu.h"

typedef enum misdeed {
    TWICE = 0,
    TWICE_AT_ONCE, /* by two lanes of a warp, together */
    STRANGERS,     /* inside of a block, of another heap, of no heap */
    MISDEEDS
} misdeed;

enum {
    STRANGER_COUNT = 4,
    LOG_SIZE = 16 << 10
};

static __host__ __device__ uint64_t stranger(uint64_t block, uint64_t foreign, uint32_t i)
{
    return i == 0 ? block + 16 : i == 1 ? block + 1 : i == 2 ? foreign : 16;
}

/* One warp. Afterwards each lane has a block as before; answers[0] is the address in question. */
static __global__ void misdeed_kernel(ga_kernel_heap heap, uint32_t misdeed, size_t size,
                                      char *foreign, uint64_t *answers)
{
    uint32_t lane = ga_warp_lane();
    uint64_t block = lane == 0 ? (uint64_t)ga_kernel_malloc(heap, size) : 0;
    __syncwarp();
    block = __shfl_sync(GA_ALL_BITS, block, 0);
    if (misdeed == TWICE && lane == 0) {
        ga_kernel_free(heap, (void *)block);
        ga_kernel_free(heap, (void *)block);
    } else if (misdeed == TWICE_AT_ONCE && (lane == 3 || lane == 17)) {
        ga_kernel_free(heap, (void *)block);
    } else if (misdeed == STRANGERS && lane <= STRANGER_COUNT) {
        ga_kernel_free(heap,
                       lane ? (void *)stranger(block, (uint64_t)foreign, lane - 1u) : (void *)NULL);
    }
    __syncwarp();
    if (misdeed == STRANGERS && lane == 0) {
        ga_kernel_free(heap, (void *)block);
    }
    __syncwarp();
    void *other = ga_kernel_malloc(heap, lane * 30u);
    bool given = __all_sync(GA_ALL_BITS, other != NULL);
    ga_kernel_free(heap, other);
    if (lane == 0) {
        answers[0] = block;
        answers[1] = given;
    }
}

static void expect_line(const char *spec, const char *log, uint64_t address, const char *words)
{
    char start[64];
    snprintf(start, sizeof start, "0x%llx: ", (unsigned long long)address);
    const char *line = strstr(log, start);
    const char *end = line ? strchr(line, '\n') : NULL;
    const char *found = line ? strstr(line, words) : NULL;
    if (!found || !end || found > end) {
        FAIL("%s: a line of the log to say \"%s\" of %s, got \"%.300s\"", spec, words, start, log);
    }
}

static void expect_log(const char *spec, const char *log, uint32_t misdeed, bool run,
                       uint64_t block, uint64_t foreign)
{
    uint32_t lines = 0;
    for (const char *at = strchr(log, '\n'); at; at = strchr(at + 1, '\n')) {
        lines++;
    }
    EXPECT_EQUAL("the lines of the log", lines, misdeed == STRANGERS ? STRANGER_COUNT : 1);
    for (uint32_t i = 0; misdeed == STRANGERS && i < STRANGER_COUNT; i++) {
        expect_line(spec, log, stranger(block, foreign, i), "no block of this heap begins there");
    }
    if (misdeed != STRANGERS) { /* a freed run has no owner afterwards: then that may be reported */
        expect_line(spec, log, block, run ? "freed" : "freed twice");
    }
}

static void commit(int device, const char *spec, uint32_t misdeed, size_t size)
{
    static char log[LOG_SIZE];
    ga_heap *heap = NULL;
    ga_kernel_heap view;
    slab_capture c = {};
    uint64_t got[2] = {};
    uint64_t *answers = (uint64_t *)suite_memory(2 * sizeof *answers);
    char *foreign = (char *)suite_memory(4096);
    if (ga_heap_open(&heap, GA_PLACE_KERNEL, device, spec) != GA_OK ||
        ga_heap_kernel_view(heap, &view) != GA_OK) {
        FAIL("the heap \"%s\" and a view of it, got %s", spec, ga_error_text());
    } else if (answers && foreign) {
        misdeed_kernel<<<1, 32>>>(view, misdeed, size, foreign, answers);
        if (KERNELS_DONE() && CUDA_DONE(cudaMemcpy(got, answers, sizeof got, cudaMemcpyDefault)) &&
            slab_capture_begin(&c)) {
            EXPECT_STATUS(ga_heap_kernel_view(heap, &view), GA_OK);
            EXPECT_STATUS(ga_heap_kernel_view(heap, &view), GA_OK);
            slab_capture_end(&c, log, sizeof log);
            EXPECT_EQUAL("whether the warp went on after the fault", got[1], 1);
            expect_log(spec, log, misdeed, size > 2u << 20, got[0], (uint64_t)foreign);
        }
    }
    ga_heap_close(heap);
    cudaFree(foreign);
    cudaFree(answers);
}

/* The last two grow while their kernels run. */
static const char *const specs[] = {
    "slab:unit=classes,capacity=64M,check=full/cuda",
    "coalesce/slab:unit=classes,capacity=64M,check=full/cuda",
    "slab:unit=classes,capacity=4M,limit=1G,check=full/vmm",
    "coalesce:check=full/slab:unit=classes,capacity=4M,limit=1G,check=full/vmm",
};

static void on_checked_heaps(int device, uint32_t misdeed)
{
    static const size_t sizes[] = {40, 1000, 30000, (size_t)20 << 20};
    for (size_t i = 0; i < (suite.no_growing ? 2u : sizeof specs / sizeof *specs); i++) {
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            commit(device, specs[i], misdeed, sizes[j]);
        }
    }
}

static void freed_twice(int device)
{
    on_checked_heaps(device, TWICE);
}

static void freed_at_once(int device)
{
    on_checked_heaps(device, TWICE_AT_ONCE);
}

static void not_a_block(int device)
{
    on_checked_heaps(device, STRANGERS);
}

/* Valid frees are not reported, and all memory can be allocated again. */
static void right_frees(int device)
{
    const uint32_t n = 1 << 14;
    sized_rig r;
    if (!sized_set_up(&r, device, specs[0], n)) {
        return;
    }
    for (uint32_t round = 0; round < (suite.quick ? 2u : 20u); round++) {
        sized_asking asking = {1, 3000, round};
        EXPECT_EQUAL("the blocks given", sized_ask_all(&r, asking, n), n);
        sized_free_all(&r, asking, n, round % 2 ? 1 : 10007);
        sized_expect_live(&r, 0, 0);
    }
    ga_sized_heap image;
    if (CUDA_DONE(cudaMemcpy(&image, (void *)r.view.words[GA_SIZED_WORD_HEAP], sizeof image,
                             cudaMemcpyDeviceToHost))) {
        EXPECT_EQUAL("the reports", image.reported, 0);
        EXPECT_EQUAL("the faults", image.faults, 0);
    }
    sized_tear_down(&r);
}

extern const test_case slab_sized_checked_cases[] = {
    {"size classes, checked: freed twice", freed_twice},
    {"size classes, checked: freed by two lanes at once", freed_at_once},
    {"size classes, checked: what is no block", not_a_block},
    {"size classes, checked: nothing wrong", right_frees},
};
extern const size_t slab_sized_checked_case_count =
    sizeof slab_sized_checked_cases / sizeof *slab_sized_checked_cases;
