/* SPDX-License-Identifier: MIT
 *
 * Coalescing on GPUs: a lone tile acts as on the CPU (coalesce_lone.cu); payloads of warps in any
 * shape and divergent code do not overlap, and any thread frees them (coalesce_many.cu); sizes of
 * blocks (coalesce_sizes.cu), large ones (coalesce_large.cu); static calls (coalesce_static.cu).
 * One line a case, then `N passed, N failed, N skipped`. Exit status 0, 1 when a case failed, 77
 * without a GPU.
 *
 *   coalesce_tests [--only WORDS] [--quick] [--no-growing]
 *       the cases whose name contains the words; fewer rounds of each; no heaps that grow during
 *       kernels
 */
#include "coalesce_gpu.h"

enum {
    CUDA_HEAP = 256 << 20 /* bytes of CUDA's malloc */
};

const char *const coalesce_specs[] = {
    "coalesce:header=auto/cuda",
    "coalesce:header=8,static=hw/cuda",
    "coalesce:header=16,max=128/cuda",
    "coalesce:header=auto,static=nb,map=200000/cuda",
    "coalesce:header=16,static=nw,map=1000/cuda", /* a map that is full */
    "coalesce/slab:unit=classes,capacity=256M/cuda",
    "coalesce:max=1K,static=nb/slab:unit=classes,capacity=256M/cuda",
    "coalesce:header=auto,static=nw/slab:unit=classes,capacity=256M/cuda",
    "coalesce:header=16,static=nb,map=200000/slab:unit=classes,capacity=256M/cuda",
    "coalesce/slab:unit=classes,capacity=256M,check=full/cuda",
    /* Heaps that grow while their kernels run. */
    "coalesce/slab:unit=classes,capacity=4M,limit=8G/vmm",
    "coalesce:header=auto,static=nb/slab:unit=classes,capacity=4M,limit=8G/vmm",
};
enum {
    SPECS = sizeof coalesce_specs / sizeof *coalesce_specs,
    GROWING_SPECS = 2
};
size_t coalesce_spec_count = SPECS;

bool coalesce_open(coalesce_test_heap *heap, int device, const char *spec)
{
    *heap = (coalesce_test_heap){spec, NULL, {}};
    ga_status status = ga_heap_open(&heap->heap, GA_PLACE_KERNEL, device, spec);
    if (status == GA_OK) {
        status = ga_heap_kernel_view(heap->heap, &heap->view);
    }
    if (status != GA_OK) {
        FAIL("\"%s\" to open, got \"%s\": %s", spec, ga_status_text(status), ga_error_text());
    }
    return status == GA_OK;
}

bool coalesce_record(const coalesce_test_heap *heap, ga_coalesce_heap *record)
{
    return CUDA_DONE(cudaMemcpy(record, (void *)heap->view.words[GA_COALESCE_WORD_HEAP],
                                sizeof *record, cudaMemcpyDeviceToHost));
}

bool coalesce_counts(const coalesce_test_heap *heap)
{
    return strstr(heap->spec, "slab") != NULL;
}

uint64_t coalesce_live(const coalesce_test_heap *heap)
{
    ga_stats stats = {};
    if (ga_heap_stats(heap->heap, &stats) != GA_OK) {
        FAIL("statistics of \"%s\", got %s", heap->spec, ga_error_text());
    }
    return stats.live_blocks;
}

bool coalesce_grows(const coalesce_test_heap *heap)
{
    return strstr(heap->spec, "/vmm") != NULL;
}

void coalesce_close(coalesce_test_heap *heap)
{
    ga_coalesce_heap record;
    if (heap->view.abi && coalesce_record(heap, &record)) {
        EXPECT_EQUAL("payloads that were freed twice", record.faults[GA_COALESCE_FREED_TWICE], 0);
        EXPECT_EQUAL("pointers that were none", record.faults[GA_COALESCE_NO_SEGMENT], 0);
        EXPECT_EQUAL("entries of the map", record.map.live, 0);
        EXPECT_EQUAL("blocks live in the parent", coalesce_counts(heap) ? coalesce_live(heap) : 0,
                     0);
    }
    ga_heap_close(heap->heap);
}

coalesce_tally coalesce_read(const char *file, int line, const char *spec, coalesce_tally *tally)
{
    coalesce_tally read = {};
    if (CUDA_DONE(cudaMemcpy(&read, tally, sizeof read, cudaMemcpyDeviceToHost))) {
        CUDA_DONE(cudaMemset(tally, 0, sizeof *tally));
        if (read.wrong) {
            suite_fail(file, line, "%s: all payloads to be whole and aligned, %llu are not", spec,
                       (unsigned long long)read.wrong);
        }
    }
    return read;
}

static void run_on(int device)
{
    coalesce_spec_count = suite.no_growing ? SPECS - GROWING_SPECS : SPECS;
    if (CUDA_DONE(cudaDeviceSetLimit(cudaLimitMallocHeapSize, CUDA_HEAP))) {
        test_run("coalesce", coalesce_lone_cases, coalesce_lone_case_count, device, suite.only);
        test_run("coalesce", coalesce_many_cases, coalesce_many_case_count, device, suite.only);
        test_run("coalesce", coalesce_large_cases, coalesce_large_case_count, device, suite.only);
        test_run("coalesce", coalesce_sizes_cases, coalesce_sizes_case_count, device, suite.only);
        test_run("coalesce", coalesce_static_cases, coalesce_static_case_count, device, suite.only);
    }
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, run_on);
}
