/* SPDX-License-Identifier: MIT
 *
 * Frees that should not be, with and without the hardened checks; views of other kinds and of none;
 * and how many registers a claim takes.
 */
#include "slab_gpu.h"

/* ---- reports of the heap ------------------------------------------------------------------ */

typedef struct expectation {
    uint32_t fault;
    uint64_t address;
} expectation;

enum {
    EXPECTED_MAX = 16,
    LOG_SIZE = 16 << 10
};

static const char *const fault_words[GA_SLAB_FAULTS] = {"freed twice", "no unit of this heap",
                                                        "while its unit was free"};

/* The index of the expected report that is not matched yet; `n` if there is none. */
static uint32_t find_report(const ga_slab_heap *image, uint32_t n, const bool *matched,
                            expectation expected)
{
    uint32_t i = 0;
    while (i < n && (matched[i] || image->reports[i].address != expected.address ||
                     image->reports[i].fault != expected.fault)) {
        i++;
    }
    return i;
}

static void expect_lines(const char *log, const expectation *expected, uint32_t count)
{
    uint32_t lines = 0;
    for (const char *at = strchr(log, '\n'); at; at = strchr(at + 1, '\n')) {
        lines++;
    }
    EXPECT_EQUAL("the lines of the log", lines, count);
    for (uint32_t i = 0; i < count; i++) {
        char address[32];
        snprintf(address, sizeof address, "0x%llx: ", (unsigned long long)expected[i].address);
        const char *line = strstr(log, address);
        const char *end = line ? strchr(line, '\n') : NULL;
        const char *words = line ? strstr(line, fault_words[expected[i].fault]) : NULL;
        if (!words || !end || words > end) {
            FAIL("a line of the log to say \"%s\" of %s, got \"%.300s\"",
                 fault_words[expected[i].fault], address, log);
        }
    }
}

/* Check that the heap found these faults and no others, and that its next view logs each of them
 * once. */
static void expect_reports(slab_test_heap *heap, const expectation *expected, uint32_t count)
{
    static char log[LOG_SIZE];
    ga_slab_heap image;
    slab_capture c = {};
    bool matched[GA_SLAB_REPORTS] = {};
    if (!KERNELS_DONE() || !slab_image(heap, &image) ||
        !EXPECT_EQUAL("the reports", image.reported, count)) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = find_report(&image, count, matched, expected[i]);
        if (at == count) {
            FAIL("a report of fault %u at 0x%llx, got fault %u at 0x%llx as number %u",
                 expected[i].fault, (unsigned long long)expected[i].address, image.reports[i].fault,
                 (unsigned long long)image.reports[i].address, i);
        } else {
            matched[at] = true;
        }
    }
    if (slab_capture_begin(&c)) {
        slab_view(heap);
        slab_view(heap);
        slab_capture_end(&c, log, sizeof log);
        expect_lines(log, expected, count);
    } else {
        FAIL("a file for standard error");
    }
}

/* ---- faults with the checks ------------------------------------------------------------- */

typedef enum misdeed {
    TWICE = 0,
    TWICE_AT_ONCE, /* by two lanes of a warp, together */
    NOT_A_UNIT,    /* misaligned, inside, before, beyond, another heap's, NULL */
    WRITE_AFTER,   /* found at the next claim */
    MISDEEDS
} misdeed;

enum {
    STRANGERS = 5
};

/* Addresses for invalid frees; [0] is NULL, which is ignored. */
static __device__ char *stranger(ga_kernel_heap heap, char *unit, char *foreign, uint32_t i)
{
    uint32_t bytes = slab_unit_bytes(heap);
    switch (i) {
    case 0:
        return unit + 4;
    case 1:
        return unit + bytes / 2u;
    case 2:
        return (char *)16;
    case 3:
        return foreign;
    default:
        return unit + ((size_t)1 << 44);
    }
}

/* One warp. Afterwards it claims and releases as before; answers[0] is the unit in question, [1] is
 * set if the warp ended and got units. */
static __global__ void misdeed_kernel(ga_kernel_heap heap, uint32_t misdeed, char *foreign,
                                      uint64_t *answers)
{
    uint32_t lane = ga_warp_lane();
    uint64_t unit = lane == 0 ? (uint64_t)ga_slab_claim(heap) : 0;
    __syncwarp();
    unit = __shfl_sync(GA_ALL_BITS, unit, 0);
    if (misdeed == TWICE && lane == 0) {
        ga_slab_release(heap, (void *)unit);
        ga_slab_release(heap, (void *)unit);
    } else if (misdeed == TWICE_AT_ONCE && (lane == 3 || lane == 17)) {
        ga_slab_release(heap, (void *)unit);
    } else if (misdeed == NOT_A_UNIT && lane <= STRANGERS) {
        ga_slab_release(heap,
                        lane ? stranger(heap, (char *)unit, foreign, lane - 1u) : (void *)NULL);
    } else if (misdeed == WRITE_AFTER && lane == 0) {
        ga_slab_release(heap, (void *)unit);
        ((volatile uint32_t *)unit)[3] = 0xdeadbeefu;
    }
    __syncwarp();
    if (misdeed == NOT_A_UNIT && lane == 0) {
        ga_slab_release(heap, (void *)unit);
    }
    void *other = misdeed == WRITE_AFTER ? (void *)answers : ga_slab_claim(heap);
    bool given = __all_sync(GA_ALL_BITS, other != NULL);
    if (misdeed != WRITE_AFTER) {
        ga_slab_release(heap, other);
    }
    if (lane == 0) {
        answers[0] = unit;
        answers[1] = given;
    }
}

static uint32_t expect_of(uint32_t misdeed, uint64_t unit, uint32_t bytes, uint64_t foreign,
                          expectation *expected)
{
    const uint64_t strangers[STRANGERS] = {unit + 4, unit + bytes / 2, 16, foreign,
                                           unit + ((uint64_t)1 << 44)};
    if (misdeed == NOT_A_UNIT) {
        for (uint32_t i = 0; i < STRANGERS; i++) {
            expected[i] = (expectation){GA_SLAB_NO_UNIT, strangers[i]};
        }
        return STRANGERS;
    }
    expected[0] = misdeed == WRITE_AFTER ? (expectation){GA_SLAB_WRITTEN_FREE, unit + 12}
                                         : (expectation){GA_SLAB_DOUBLE_FREE, unit};
    return 1;
}

/* If a freed unit was written to, claiming all units detects it. */
static void claim_and_release(slab_test_heap *heap)
{
    uint32_t units = slab_units(heap);
    char **all = (char **)suite_memory(units * sizeof *all);
    slab_tally *tally = slab_tally_new();
    if (all && tally) {
        slab_claim_all(heap->view, all, units, tally, 0);
        slab_release_all(heap->view, all, units, 1, tally, 0);
        KERNELS_DONE();
        EXPECT_EQUAL("the units given", READ_TALLY(tally).given, units);
    }
    cudaFree(tally);
    cudaFree(all);
}

static void commit(int device, const slab_options *options, uint32_t misdeed)
{
    slab_test_heap heap;
    uint64_t *answers = (uint64_t *)suite_memory(2 * sizeof *answers);
    char *foreign = (char *)suite_memory(4096);
    uint64_t got[2] = {};
    expectation expected[EXPECTED_MAX];
    ga_slab_heap image;
    if (!answers || !foreign || !slab_open(&heap, device, options)) {
        return;
    }
    misdeed_kernel<<<1, 32>>>(heap.view, misdeed, foreign, answers);
    if (KERNELS_DONE() && CUDA_DONE(cudaMemcpy(got, answers, sizeof got, cudaMemcpyDefault))) {
        EXPECT_EQUAL("whether the warp went on after the fault", got[1], 1);
        if (misdeed == WRITE_AFTER) {
            claim_and_release(&heap);
        }
        uint32_t count = expect_of(misdeed, got[0], options->unit, (uint64_t)foreign, expected);
        expect_reports(&heap, expected, count);
        EXPECT_LIVE(&heap, 0);
        claim_and_release(&heap);
        if (slab_image(&heap, &image)) {
            EXPECT_EQUAL("the reports after all units were used again", image.reported, count);
        }
    }
    slab_close(&heap);
    cudaFree(foreign);
    cudaFree(answers);
}

static void on_checked_heaps(int device, uint32_t misdeed)
{
    static const slab_options all_options[] = {{128, 0, 1, 1, true, true, NULL},
                                               {128, 0, 2, 2, false, true, NULL},
                                               {48, 1, 2, 2, true, true, NULL},
                                               {4096, 0, 3, 2, false, true, NULL}};
    for (size_t i = 0; i < sizeof all_options / sizeof *all_options; i++) {
        commit(device, &all_options[i], misdeed);
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

static void not_a_unit(int device)
{
    on_checked_heaps(device, NOT_A_UNIT);
}

static void written_after(int device)
{
    on_checked_heaps(device, WRITE_AFTER);
}

/* More faults than there is room for: all are counted, and the log says how many it leaves out. */
static __global__ void many_faults_kernel(ga_kernel_heap heap)
{
    ga_slab_release(heap, (void *)(uint64_t)(slab_thread() + 1u));
}

static void many_faults(int device)
{
    static const slab_options options = {128, 0, 1, 1, true, true, NULL};
    static char log[LOG_SIZE];
    slab_test_heap heap;
    slab_capture c = {};
    ga_slab_heap image;
    uint32_t n = 1000;
    if (!slab_open(&heap, device, &options)) {
        return;
    }
    many_faults_kernel<<<10, n / 10>>>(heap.view);
    if (KERNELS_DONE() && slab_image(&heap, &image) && slab_capture_begin(&c)) {
        slab_view(&heap);
        slab_capture_end(&c, log, sizeof log);
        EXPECT_EQUAL("the faults", image.faults[GA_SLAB_NO_UNIT], n);
        char words[64];
        snprintf(words, sizeof words, "%u more faults", n - GA_SLAB_REPORTS);
        if (!strstr(log, words)) {
            size_t length = strlen(log);
            FAIL("the log to end with \"%s\", got \"%s\"", words,
                 log + (length > 200 ? length - 200 : 0));
        }
    }
    EXPECT_LIVE(&heap, 0);
    slab_close(&heap);
}

/* ---- faults without the checks ---------------------------------------------------------- */

/* A warp that holds units frees them with invalid pointers among them. */
static __global__ void mixed_kernel(ga_kernel_heap heap, char *foreign)
{
    uint32_t lane = ga_warp_lane();
    char *unit = (char *)ga_slab_claim(heap);
    char *other = lane < STRANGERS ? stranger(heap, unit, foreign, lane) : unit;
    ga_slab_release(heap, other);
    if (lane < STRANGERS) {
        ga_slab_release(heap, unit);
    }
    /* Beyond the heap; in the first superblock, but beyond its units; none. */
    ga_slab_release_address(heap, lane == 0   ? 0x7ffffff0u
                                  : lane == 1 ? 0x00ffffffu
                                              : GA_SLAB_NO_ADDRESS);
    void *group[3] = {NULL, lane == 30 ? foreign : NULL, NULL};
    slab_release_group(heap, group, 3);
    ga_slab_release(heap, NULL);
}

static void unchecked(int device)
{
    static const slab_options all_options[] = {{128, 0, 2, 2, true, false, NULL},
                                               {128, 0, 3, 2, false, false, NULL},
                                               {48, 0, 2, 2, true, false, NULL}};
    char *foreign = (char *)suite_memory(4096);
    for (size_t i = 0; foreign && i < sizeof all_options / sizeof *all_options; i++) {
        slab_test_heap heap;
        ga_slab_heap image;
        uint32_t warps = 24;
        if (!slab_open(&heap, device, &all_options[i])) {
            break;
        }
        mixed_kernel<<<warps / 8, SLAB_BLOCK>>>(heap.view, foreign);
        EXPECT_LIVE(&heap, 0);
        if (slab_image(&heap, &image)) {
            EXPECT_EQUAL("the frees of no unit", image.faults[GA_SLAB_NO_UNIT],
                         warps * (STRANGERS + 3));
            EXPECT_EQUAL("the reports without checks", image.reported, 0);
        }
        claim_and_release(&heap);
        EXPECT_LIVE(&heap, 0);
        slab_close(&heap);
    }
    cudaFree(foreign);
}

/* ---- views ------------------------------------------------------------------------------ */

/* Each thread allocates, writes to its block, reads it back and frees it. */
static __global__ void view_kernel(ga_kernel_heap heap, uint32_t size, slab_tally *tally)
{
    uint32_t i = slab_thread();
    char *block = (char *)ga_kernel_malloc(heap, size);
    slab_count(block ? &tally->given : &tally->full, 1);
    if (block) {
        if ((uint64_t)block % 16) {
            slab_note_wrong(tally, SLAB_POINTER, (uint64_t)block, (uint64_t)block % 16, 0);
        }
        slab_write(block, size, i);
        __nanosleep(i % 128u);
        slab_holds(block, size, i, tally);
    }
    ga_kernel_free(heap,
                   block ? block : (void *)tally); /* frees are ignored if no block was allocated */
}

static void try_view(ga_kernel_heap view, const char *what, uint32_t size, bool serves)
{
    slab_tally *tally = slab_tally_new();
    uint32_t threads = 4 * SLAB_BLOCK;
    if (tally) {
        view_kernel<<<4, SLAB_BLOCK>>>(view, size, tally);
        KERNELS_DONE();
        slab_tally found = READ_TALLY(tally);
        EXPECT_EQUAL(what, found.given, serves ? threads : 0);
        EXPECT_EQUAL("the answers", found.given + found.full, threads);
    }
    cudaFree(tally);
}

static void cuda_view(int device)
{
    ga_heap *heap = NULL;
    ga_kernel_heap view = {};
    EXPECT_STATUS(ga_heap_open(&heap, GA_PLACE_KERNEL, device, "cuda"), GA_OK);
    REQUIRE(heap);
    EXPECT_STATUS(ga_heap_kernel_view(heap, &view), GA_OK);
    for (uint32_t size = 4; size <= 1024; size *= 4) {
        try_view(view, "the blocks that CUDA's malloc gives", size, true);
    }
    view.abi++;
    try_view(view, "the blocks of a cuda view with another abi", 16, false);
    EXPECT_STATUS(ga_heap_close(heap), GA_OK);
}

static void other_views(int device)
{
    static const slab_options options = {128, 0, 4, 4, true, false, NULL};
    slab_test_heap heap;
    ga_kernel_heap view = {};
    try_view(view, "the blocks of a cleared view", 16, false);
    view.abi = GA_KERNEL_HEAP_ABI;
    view.kind = 99;
    try_view(view, "the blocks of an unknown kind", 16, false);
    if (!slab_open(&heap, device, &options)) {
        return;
    }
    try_view(heap.view, "the units of a slab view", 128, true);
    try_view(heap.view, "the units of a slab view for a byte", 1, true);
    EXPECT_LIVE(&heap, 0);
    view = heap.view;
    view.abi++;
    try_view(view, "the units of a slab view with another abi", 128, false);
    view = heap.view;
    view.kind = GA_KERNEL_KIND_NONE;
    try_view(view, "the units of a slab view of no kind", 128, false);
    EXPECT_LIVE(&heap, 0);
    slab_close(&heap);
}

/* A request of more than a unit is refused, and no unit is lost. */
static __global__ void large_kernel(ga_kernel_heap heap, slab_tally *tally)
{
    size_t size = slab_unit_bytes(heap) + (slab_thread() ? (size_t)slab_thread() << 20 : 1);
    void *block = ga_kernel_malloc(heap, size);
    if (block) {
        slab_note_wrong(tally, SLAB_ANSWER, size, (uint64_t)block, 0);
    }
}

static void too_large(int device)
{
    static const slab_options options = {128, 0, 1, 1, true, false, NULL};
    slab_test_heap heap;
    slab_tally *tally = slab_tally_new();
    if (tally && slab_open(&heap, device, &options)) {
        large_kernel<<<2, SLAB_BLOCK>>>(heap.view, tally);
        EXPECT_LIVE(&heap, 0);
        READ_TALLY(tally);
        slab_close(&heap);
    }
    cudaFree(tally);
}

/* ---- registers -------------------------------------------------------------------------- */

/* The most threads that a multiprocessor can have: 8 blocks leave a thread 32 registers. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 800
#define BLOCKS_AT_ONCE 4
#else
#define BLOCKS_AT_ONCE 8
#endif

static __global__ void __launch_bounds__(256, BLOCKS_AT_ONCE)
    claim_bounded(ga_kernel_heap heap, void **out)
{
    out[slab_thread()] = ga_slab_claim(heap);
}

static __global__ void claim_unbounded(ga_kernel_heap heap, void **out)
{
    out[slab_thread()] = ga_slab_claim(heap);
}

static __global__ void release_unbounded(ga_kernel_heap heap, void **out)
{
    ga_slab_release(heap, out[slab_thread()]);
}

static void say_registers(const char *name, const void *kernel, int limit, size_t local_limit)
{
    cudaFuncAttributes attributes;
    if (!CUDA_DONE(cudaFuncGetAttributes(&attributes, kernel))) {
        return;
    }
    printf("    %s: %d registers, %zu bytes of local memory\n", name, attributes.numRegs,
           attributes.localSizeBytes);
    if (limit && attributes.numRegs > limit) {
        FAIL("%s to need at most %d registers, got %d", name, limit, attributes.numRegs);
    }
    if (limit && attributes.localSizeBytes > local_limit) {
        FAIL("%s to need at most %zu bytes of local memory, got %zu", name, local_limit,
             attributes.localSizeBytes);
    }
}

static void registers(int device)
{
    int major = 0;
    CUDA_DONE(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    say_registers("a claim, for blocks of 256 threads", (const void *)claim_bounded,
                  major >= 8 ? 32 : 64, 96);
    say_registers("a claim, unbounded", (const void *)claim_unbounded, 0, 0);
    say_registers("a release, unbounded", (const void *)release_unbounded, 0, 0);
}

extern const test_case slab_fault_cases[] = {
    {"check: a unit freed twice", freed_twice},
    {"check: a unit freed by two lanes at once", freed_at_once},
    {"check: frees of what is no unit", not_a_unit},
    {"check: a unit written to after its free", written_after},
    {"check: more faults than reports", many_faults},
    {"frees of what is no unit, unchecked", unchecked},
    {"CUDA's malloc through a view", cuda_view},
    {"views that serve nothing, and a slab's", other_views},
    {"more than a unit is refused", too_large},
    {"registers", registers},
};
extern const size_t slab_fault_case_count = sizeof slab_fault_cases / sizeof *slab_fault_cases;
