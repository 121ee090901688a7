/* SPDX-License-Identifier: MIT
 *
 * SlabAlloc on GPUs. A lone tile acts as on the CPU (slab_lone.cu); no two owners ever share a unit
 * (slab_many.cu, and over 10^9 operations slab_property.cu); the host's side (slab_host.cu); faults
 * that the hardened checks detect, and other views (slab_faults.cu); heaps as programs open them
 * (slab_public.cu), and heaps that grow during their kernels (slab_growing.cu). Size-class heaps:
 * sized_many.cu, sized_large.cu, sized_full.cu, sized_checked.cu, and behind coalescing
 * sized_coalesced.cu. One line a case, then `N passed, N failed, N skipped`. Exit status 0, 1 when
 * a case failed, 77 without a GPU.
 *
 *   slab_tests [--only WORDS] [--quick] [--no-growing] [--operations N]
 *       the cases whose name contains the words; fewer rounds of each; no heaps that grow during
 *       their kernels, whose memory a sanitizer does not know; the number of operations of the
 *       properties (with it a large heap is filled 1,000 times, not 5)
 */
#include "slab_gpu.h"

static void run_on(int device)
{
    test_run("slab", slab_lone_cases, slab_lone_case_count, device, suite.only);
    test_run("slab", slab_many_cases, slab_many_case_count, device, suite.only);
    test_run("slab", slab_host_cases, slab_host_case_count, device, suite.only);
    test_run("slab", slab_fault_cases, slab_fault_case_count, device, suite.only);
    test_run("slab", slab_public_cases, slab_public_case_count, device, suite.only);
    test_run("slab", slab_sized_cases, slab_sized_case_count, device, suite.only);
    test_run("slab", slab_sized_large_cases, slab_sized_large_case_count, device, suite.only);
    test_run("slab", slab_sized_full_cases, slab_sized_full_case_count, device, suite.only);
    test_run("slab", slab_sized_checked_cases, slab_sized_checked_case_count, device, suite.only);
    test_run("slab", slab_sized_coalesced_cases, slab_sized_coalesced_case_count, device,
             suite.only);
    if (!suite.no_growing) {
        test_run("slab", slab_growing_cases, slab_growing_case_count, device, suite.only);
        test_run("slab", slab_sized_growing_cases, slab_sized_growing_case_count, device,
                 suite.only);
    }
    test_run("slab", slab_property_cases, slab_property_case_count, device, suite.only);
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, run_on);
}
