/* SPDX-License-Identifier: MIT
 *
 * The vocabulary on GPUs: each word compared with what the CPU makes of the same inputs
 * (simt_gpu_words.cu), and litmus tests of the memory orders (simt_litmus.cu). One line a case,
 * then `N passed, N failed, N skipped`. Exit status 0, 1 when a case failed, 77 without a GPU.
 *
 *   simt_tests [--only WORDS] [--quick]    the cases whose name contains the words; less of each
 */
#include "simt_gpu.h"

bool simt_quick;

/* The runner prints the last error with each failure: of this program that is CUDA's. */
extern "C" const char *ga_error_text(void)
{
    return cudaGetErrorString(cudaPeekAtLastError());
}

void simt_fail(int line, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    test_fail("simt_tests", line, text);
}

bool simt_cuda(int line, const char *call, cudaError_t error)
{
    if (error != cudaSuccess) {
        simt_fail(line, "%s to succeed, got %s", call, cudaGetErrorString(error));
    }
    return error == cudaSuccess;
}

void *simt_device_memory(size_t size)
{
    void *memory = NULL;
    if (!CUDA_DONE(cudaMalloc(&memory, size)) || !CUDA_DONE(cudaMemset(memory, 0, size))) {
        return NULL;
    }
    return memory;
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

static void run_on(int device, const char *only)
{
    cudaDeviceProp properties;
    int native = 0;
    if (cudaSetDevice(device) != cudaSuccess ||
        cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
        printf("device %d cannot be used: %s\n", device, cudaGetErrorString(cudaGetLastError()));
        return;
    }
    cudaDeviceGetAttribute(&native, cudaDevAttrHostNativeAtomicSupported, device);
    printf("device %d: %s, sm_%d%d, %d multiprocessors, atomics on host memory: %s\n", device,
           properties.name, properties.major, properties.minor, properties.multiProcessorCount,
           native ? "native" : "not native");
    test_run("simt", simt_word_cases, simt_word_case_count, device, only);
    test_run("simt", simt_litmus_cases, simt_litmus_case_count, device, only);
}

int main(int argc, char **argv)
{
    const char *only = NULL;
    int devices = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) {
            simt_quick = true;
        } else if (!strcmp(argv[i], "--only") && i + 1 < argc) {
            only = argv[++i];
        } else {
            fprintf(stderr, "usage: simt_tests [--only WORDS] [--quick]\n");
            return 2;
        }
    }
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess) {
        printf("no device: %s\n", cudaGetErrorString(error));
        devices = 0;
    }
    for (int device = 0; device < devices; device++) {
        run_on(device, only);
    }
    return test_summary();
}
