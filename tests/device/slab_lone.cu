/* SPDX-License-Identifier: MIT
 *
 * A lone tile on the GPU compared with the CPU: equal source, heap and script, so equal units step
 * after step and equal bitmaps and counts at the end; therefore compiled without noise in the
 * search. And the two kinds of addresses.
 */
#include "slab_gpu.h"

#include "slab_oracle.h"

/* ---- the same script on the GPU --------------------------------------------------------- */

static __device__ void play_one(ga_slab_view slab, uint32_t width, slab_player *player,
                                const slab_step *step, uint32_t *answer)
{
    if (ga_warp_lane() < width) {
        uint32_t unit = slab_play_tile(slab, ga_tile_of(width), player, step);
        answer[ga_warp_lane()] = unit;
    }
    __syncwarp();
}

/* One warp. The result of each lane for each step; all lanes of the tile return the tile's
 * result. */
static __global__ void play_kernel(ga_slab_heap *heap, const slab_step *steps, uint32_t count,
                                   uint32_t *answers)
{
    slab_player four, eight, sixteen, whole;
    ga_slab_view slab = ga_slab_view_of(heap);
    four.claimed.units = eight.claimed.units = sixteen.claimed.units = whole.claimed.units = 0;
    for (uint32_t i = 0; i < count; i++) {
        const slab_step *step = steps + i;
        uint32_t *answer = answers + i * 32u;
        if (step->kind == SLAB_CLAIM_LANES || step->kind == SLAB_RELEASE_LANES) {
            answer[ga_warp_lane()] = slab_play_lanes(slab, step);
        } else if (step->width == 4u) {
            play_one(slab, 4, &four, step, answer);
        } else if (step->width == 8u) {
            play_one(slab, 8, &eight, step, answer);
        } else if (step->width == 16u) {
            play_one(slab, 16, &sixteen, step, answer);
        } else {
            play_one(slab, 32, &whole, step, answer);
        }
    }
}

static bool copy_rows(const slab_test_heap *heap, const ga_slab_heap *image, uint32_t *rows,
                      size_t size, cudaMemcpyKind kind)
{
    uint32_t parts = image->rows ? 1 : heap->options.supers;
    size_t each = size / parts;
    bool copied = true;
    for (uint32_t i = 0; copied && i < parts; i++) {
        ga_slab_super super = {};
        super.rows = image->rows;
        copied = image->rows || CUDA_DONE(cudaMemcpy(&super, image->supers + i, sizeof super,
                                                     cudaMemcpyDeviceToHost));
        char *host = (char *)rows + i * each;
        bool down = kind == cudaMemcpyDeviceToHost;
        copied = copied && CUDA_DONE(cudaMemcpy(down ? (void *)host : super.rows,
                                                down ? (void *)super.rows : host, each, kind));
    }
    return copied;
}

static void compare_words(const char *what, const uint32_t *got, const uint32_t *expected,
                          size_t size)
{
    size_t words = size / sizeof *got;
    size_t i = 0;
    while (i < words && got[i] == expected[i]) {
        i++;
    }
    if (i < words) {
        FAIL("word %zu of %zu of the %s to be 0x%08x as on the CPU, got 0x%08x", i, words, what,
             expected[i], got[i]);
    }
}

static void compare_heaps(const slab_test_heap *heap, const slab_oracle *oracle)
{
    ga_slab_heap image;
    uint32_t *rows = (uint32_t *)malloc(oracle->rows_size);
    uint32_t *counts = (uint32_t *)malloc(oracle->counts_size);
    if (rows && counts && slab_image(heap, &image) &&
        copy_rows(heap, &image, rows, oracle->rows_size, cudaMemcpyDeviceToHost) &&
        CUDA_DONE(cudaMemcpy(counts, image.free, oracle->counts_size, cudaMemcpyDeviceToHost))) {
        compare_words("bitmaps", rows, oracle->rows, oracle->rows_size);
        compare_words("counts", counts, oracle->counts, oracle->counts_size);
        EXPECT_EQUAL("the number of resident changes", image.changes, oracle->heap.changes);
        EXPECT_EQUAL("the number of searches in vain", image.full, oracle->heap.full);
    }
    free(counts);
    free(rows);
}

/* The first lane with another result; 32 if there is none. Releases have no result. */
static uint32_t wrong_lane(const slab_step *step, const uint32_t *answer)
{
    uint32_t lanes = step->kind == SLAB_CLAIM_LANES                                  ? 32
                     : step->kind == SLAB_CLAIM_ONE || step->kind == SLAB_CLAIM_NEXT ? step->width
                                                                                     : 0;
    for (uint32_t lane = 0; lane < lanes; lane++) {
        uint32_t expected = step->units[step->kind == SLAB_CLAIM_LANES ? lane : 0];
        if (answer[lane] != expected) {
            return lane;
        }
    }
    return 32;
}

static void compare_answers(const slab_oracle *oracle, const uint32_t *answers)
{
    for (uint32_t i = 0; i < oracle->plot.count; i++) {
        const slab_step *step = &oracle->steps[i];
        uint32_t lane = wrong_lane(step, answers + i * 32u);
        if (lane < 32) {
            FAIL("step %u (%s, width %u, lanes 0x%08x, from %u) to give lane %u the unit %u as on "
                 "the CPU, got %u",
                 i, slab_step_name(step->kind), step->width, step->mask, step->start, lane,
                 step->units[step->kind == SLAB_CLAIM_LANES ? lane : 0], answers[i * 32u + lane]);
            return; /* later differences follow from this one */
        }
    }
}

static void play(slab_test_heap *heap, const slab_oracle *oracle)
{
    ga_slab_heap image;
    size_t steps_size = oracle->plot.count * sizeof(slab_step);
    size_t answers_size = oracle->plot.count * 32u * sizeof(uint32_t);
    slab_step *steps = (slab_step *)suite_memory(steps_size);
    uint32_t *answers = (uint32_t *)suite_memory(answers_size);
    uint32_t *got = (uint32_t *)malloc(answers_size);
    if (steps && answers && got && slab_image(heap, &image) &&
        copy_rows(heap, &image, oracle->rows_before, oracle->rows_size, cudaMemcpyHostToDevice) &&
        CUDA_DONE(cudaMemcpy(image.free, oracle->counts_before, oracle->counts_size,
                             cudaMemcpyHostToDevice)) &&
        CUDA_DONE(cudaMemcpy(steps, oracle->steps, steps_size, cudaMemcpyHostToDevice))) {
        play_kernel<<<1, 32>>>((ga_slab_heap *)heap->view.words[GA_SLAB_WORD_HEAP], steps,
                               oracle->plot.count, answers);
        if (KERNELS_DONE() &&
            CUDA_DONE(cudaMemcpy(got, answers, answers_size, cudaMemcpyDeviceToHost))) {
            compare_answers(oracle, got);
            compare_heaps(heap, oracle);
        }
    }
    free(got);
    cudaFree(answers);
    cudaFree(steps);
}

static void play_plot(int device, const slab_plot *plot)
{
    slab_oracle oracle;
    slab_test_heap heap;
    slab_options options = {
        plot->unit, plot->super_bits, plot->supers, plot->supers, plot->light, false, NULL};
    if (!slab_oracle_make(&oracle, plot)) {
        FAIL("memory for the CPU's run of %u steps", plot->count);
    } else if (slab_open(&heap, device, &options)) {
        play(&heap, &oracle);
        slab_close(&heap);
        printf("    %u steps, units of %u bytes, %u memory blocks, %s: %u units given, %u times "
               "FULL\n",
               plot->count, plot->unit, plot->supers << plot->super_bits,
               plot->light ? "light" : "two-level", oracle.served, oracle.full);
    }
    slab_oracle_free(&oracle);
}

static void as_on_the_cpu(int device)
{
    static const slab_plot plots[] = {
        {128, 0, 1, true, 0, 1, 6000},    {128, 0, 1, false, 900, 2, 6000},
        {16, 2, 1, true, 500, 3, 6000},   {16, 4, 19, false, 990, 4, 4000},
        {48, 0, 33, true, 970, 5, 6000},  {48, 3, 5, false, 960, 6, 6000},
        {128, 5, 10, true, 995, 7, 4000}, {128, 6, 5, false, 950, 8, 4000},
        {4096, 3, 4, true, 900, 9, 6000}, {4096, 0, 40, false, 980, 10, 6000},
        {16, 9, 1, true, 999, 11, 4000},  {128, 0, 7, false, 1000, 12, 6000},
    };
    for (size_t i = 0; i < sizeof plots / sizeof *plots; i++) {
        slab_plot plot = plots[i];
        plot.count = suite.quick ? 300 : plot.count;
        play_plot(device, &plot);
    }
}

/* ---- addresses -------------------------------------------------------------------------- */

static __global__ void address_kernel(ga_kernel_heap heap, uint32_t *addresses, uint32_t n,
                                      uint32_t *seen, slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i >= n) {
        return;
    }
    uint32_t address = ga_slab_claim_address(heap);
    addresses[i] = address;
    slab_count(address == GA_SLAB_NO_ADDRESS ? &tally->full : &tally->given, 1);
    if (address == GA_SLAB_NO_ADDRESS) {
        return;
    }
    void *unit = ga_slab_address_pointer(heap, address);
    uint32_t number = slab_number(heap, unit, tally);
    ga_slab_view slab = ga_slab_view_of_kernel(heap);
    if (number != GA_SLAB_FULL && ga_slab_address_of_unit(slab, number) != address) {
        slab_note_wrong(tally, SLAB_ANSWER, address, ga_slab_address_of_unit(slab, number),
                        address);
    }
    if (ga_slab_unit(slab, (char *)unit + 1) != GA_SLAB_FULL) {
        slab_note_wrong(tally, SLAB_ANSWER, address, ga_slab_unit(slab, (char *)unit + 1),
                        GA_SLAB_FULL);
    }
    if (number != GA_SLAB_FULL &&
        ga_or_relaxed(seen + number / 32u, 1u << (number % 32u)) >> (number % 32u) & 1u) {
        slab_note_wrong(tally, SLAB_OVERLAP, number, i, 0);
    }
    slab_write(unit, slab_unit_bytes(heap), i);
}

static __global__ void release_address_kernel(ga_kernel_heap heap, const uint32_t *addresses,
                                              uint32_t n, slab_tally *tally)
{
    uint32_t i = slab_thread();
    if (i >= n) {
        return;
    }
    uint32_t which = (uint32_t)((uint64_t)i * 7919u % n);
    if (addresses[which] != GA_SLAB_NO_ADDRESS) {
        slab_holds(ga_slab_address_pointer(heap, addresses[which]), slab_unit_bytes(heap), which,
                   tally);
    }
    ga_slab_release_address(heap, addresses[which]); /* no address is ignored */
}

static void use_addresses(slab_test_heap *heap)
{
    uint32_t units = slab_units(heap);
    uint32_t n = units + 100;
    uint32_t *addresses = (uint32_t *)suite_memory(n * sizeof *addresses);
    uint32_t *seen = (uint32_t *)suite_memory(units / 8);
    slab_tally *tally = slab_tally_new();
    ga_slab_heap image;
    if (addresses && seen && tally) {
        address_kernel<<<slab_grid(n), SLAB_BLOCK>>>(heap->view, addresses, n, seen, tally);
        EXPECT_LIVE(heap, units);
        slab_tally found = READ_TALLY(tally);
        EXPECT_EQUAL("the addresses given", found.given, units);
        EXPECT_EQUAL("the claims answered with no address", found.full, 100);
        release_address_kernel<<<slab_grid(n), SLAB_BLOCK>>>(heap->view, addresses, n, tally);
        EXPECT_LIVE(heap, 0);
        READ_TALLY(tally);
        if (slab_image(heap, &image)) {
            EXPECT_EQUAL("addresses of no unit", image.faults[GA_SLAB_NO_UNIT], 0);
        }
    }
    cudaFree(tally);
    cudaFree(seen);
    cudaFree(addresses);
}

static void addresses(int device)
{
    static const slab_options all_options[] = {
        {128, 2, 4, 4, true, false, NULL}, {128, 2, 4, 4, false, false, NULL},
        {48, 0, 9, 9, false, false, NULL}, {4096, 1, 3, 3, true, false, NULL},
        {16, 1, 5, 5, false, true, NULL},  {208, 0, 3, 3, true, false, NULL},
    };
    for (size_t i = 0; i < sizeof all_options / sizeof *all_options; i++) {
        slab_test_heap heap;
        if (slab_open(&heap, device, &all_options[i])) {
            use_addresses(&heap);
            slab_close(&heap);
        }
    }
}

extern const test_case slab_lone_cases[] = {
    {"a lone tile claims what it claims on the CPU", as_on_the_cpu},
    {"32-bit addresses", addresses},
};
extern const size_t slab_lone_case_count = sizeof slab_lone_cases / sizeof *slab_lone_cases;
