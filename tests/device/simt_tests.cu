/* SPDX-License-Identifier: MIT
 *
 * The vocabulary on GPUs: each function compared with the CPU's result for equal inputs
 * (simt_gpu_words.cu), and litmus tests of the memory orders (simt_litmus.cu). One line a case,
 * then `N passed, N failed, N skipped`. Exit status 0, 1 when a case failed, 77 without a GPU.
 *
 *   simt_tests [--only WORDS] [--quick]    the cases whose name contains the words; fewer
 *                                          rounds of each
 */
#include "simt_gpu.h"

/* The runner prints the last error with each failure: of this program that is CUDA's. */
extern "C" const char *ga_error_text(void)
{
    return cudaGetErrorString(cudaPeekAtLastError());
}

void *simt_pinned_memory(size_t size)
{
    void *memory = NULL;
    if (!CUDA_DONE(cudaHostAlloc(&memory, size, cudaHostAllocMapped))) {
        return NULL;
    }
    memset(memory, 0, size);
    return memory;
}

static void run_on(int device)
{
    int native = 0;
    cudaDeviceGetAttribute(&native, cudaDevAttrHostNativeAtomicSupported, device);
    printf("atomics on host memory: %s\n", native ? "native" : "not native");
    test_run("simt", simt_word_cases, simt_word_case_count, device, suite.only);
    test_run("simt", simt_litmus_cases, simt_litmus_case_count, device, suite.only);
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, run_on);
}
