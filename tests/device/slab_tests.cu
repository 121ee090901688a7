/* SPDX-License-Identifier: MIT
 *
 * SlabAlloc on GPUs. A lone tile does what it does on the CPU (slab_lone.cu); no two owners ever
 * share a unit (slab_many.cu, and over 10^9 operations slab_property.cu); the host's side
 * (slab_host.cu); what is found under the hardened checks, and other views (slab_faults.cu); and
 * heaps as programs open them (slab_public.cu), and ones that grow under their kernels
 * (slab_growing.cu). Heaps of all sizes: sized_many.cu, sized_full.cu. One line a case, then `N passed,
 * N failed, N skipped`. Exit status 0, 1 when a case failed, 77 without a GPU.
 *
 *   slab_tests [--only WORDS] [--quick] [--no-growing] [--operations N]
 *       the cases whose name contains the words; less of each; not those that grow under their
 *       kernels, of which a sanitizer knows no memory; how many operations the properties hold for
 *       (with it a large heap is used up 1,000 times, not 5)
 */
#include "slab_gpu.h"

#include <stdarg.h>

bool slab_quick;
bool slab_no_growing;
uint64_t slab_operations;

void slab_fail(const char *file, int line, const char *format, ...)
{
    char text[512];
    const char *name = strrchr(file, '/');
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    test_fail(name ? name + 1 : file, line, text);
}

bool slab_cuda(const char *file, int line, const char *call, cudaError_t error)
{
    if (error != cudaSuccess) {
        slab_fail(file, line, "%s to succeed, got %s", call, cudaGetErrorString(error));
    }
    return error == cudaSuccess;
}

bool slab_equal(const char *file, int line, const char *what, uint64_t got, uint64_t expected)
{
    if (got != expected) {
        slab_fail(file, line, "%s to be %llu (0x%llx), got %llu (0x%llx)", what,
                  (unsigned long long)expected, (unsigned long long)expected,
                  (unsigned long long)got, (unsigned long long)got);
    }
    return got == expected;
}

static void run_on(int device, const char *only)
{
    cudaDeviceProp properties;
    if (cudaSetDevice(device) != cudaSuccess ||
        cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
        printf("device %d cannot be used: %s\n", device, cudaGetErrorString(cudaGetLastError()));
        return;
    }
    printf("device %d: %s, sm_%d%d, %d multiprocessors\n", device, properties.name,
           properties.major, properties.minor, properties.multiProcessorCount);
    test_run("slab", slab_lone_cases, slab_lone_case_count, device, only);
    test_run("slab", slab_many_cases, slab_many_case_count, device, only);
    test_run("slab", slab_host_cases, slab_host_case_count, device, only);
    test_run("slab", slab_fault_cases, slab_fault_case_count, device, only);
    test_run("slab", slab_public_cases, slab_public_case_count, device, only);
    test_run("slab", slab_sized_cases, slab_sized_case_count, device, only);
    test_run("slab", slab_sized_large_cases, slab_sized_large_case_count, device, only);
    test_run("slab", slab_sized_full_cases, slab_sized_full_case_count, device, only);
    if (!slab_no_growing) {
        test_run("slab", slab_growing_cases, slab_growing_case_count, device, only);
        test_run("slab", slab_sized_growing_cases, slab_sized_growing_case_count, device, only);
    }
    test_run("slab", slab_property_cases, slab_property_case_count, device, only);
}

int main(int argc, char **argv)
{
    const char *only = NULL;
    int devices = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) {
            slab_quick = true;
        } else if (!strcmp(argv[i], "--no-growing")) {
            slab_no_growing = true;
        } else if (!strcmp(argv[i], "--only") && i + 1 < argc) {
            only = argv[++i];
        } else if (!strcmp(argv[i], "--operations") && i + 1 < argc) {
            slab_operations = strtoull(argv[++i], NULL, 10);
        } else {
            fprintf(stderr, "usage: slab_tests [--only WORDS] [--quick] [--no-growing] "
                            "[--operations N]\n");
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
