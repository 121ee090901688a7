/* SPDX-License-Identifier: MIT
 *
 * In-kernel malloc replaced by linking, on a GPU: this program, with -rdc=true, and
 * libkernel_other.so, linked by itself, each with libgpualloc-kernel.a and the wrap flags. Every
 * case is a process of its own, because each begins with the first launch. One line a case, then `N
 * passed, N failed, N skipped`. Exit status 0, 1 when a case failed, 77 without a GPU.
 *
 *   kernel_tests [--only WORDS]
 *
 * Heaps are of KERNEL_TESTS_SPEC, or the default.
 */
#include "cases.cuh"

extern "C" {
#include "../device/runner.h"
}

#include <cuda_runtime.h>

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *spec()
{
    const char *told = getenv("KERNEL_TESTS_SPEC");
    return told ? told : "";
}

/* ---- cases, each in its own process ---------------------------------------------------------- */

typedef struct part {
    const char *name;
    int (*run)();
    const char *spec;   /* NULL: the default */
    const char *words;  /* on standard error; NULL: any */
    uint32_t times = 0; /* so often; 0: at least once */
} part;

static const part parts[] = {
    {"the first launch opens the heap", first_launch, NULL, NULL},
    {"opened by hand", by_hand, NULL, NULL},
    {"cudaDeviceReset", resets, NULL, NULL},
    {"closed by hand", closed_by_hand, NULL, NULL},
    {"blocks of another module's", from_another_module, NULL, NULL},
    {"another device", another_device, NULL, NULL},
    {"a captured first launch", captured, NULL, NULL},
    {"cooperative and with attributes", cooperative, NULL, NULL},
    {"aligned blocks", aligned, NULL, NULL},
    {"with cudaLimitMallocHeapSize", with_cudas_limit, NULL, NULL},
    {"chosen by the program", chosen_by_the_program, "bogus", NULL},
    {"large blocks", large_blocks, "slab/vmm", NULL},
    {"frees of what is no block", wrong_frees, "slab/vmm",
     "768 blocks were freed, but are none of this heap's"},
    {"coalesced: large blocks", large_blocks, "coalesce/slab/vmm", NULL},
    {"coalesced: frees of what is no block", wrong_frees, "coalesce/slab/vmm",
     "768 blocks were freed, but are none of this heap's"},
    {"blocks that are freed twice", double_frees,
     "coalesce/slab:unit=classes,capacity=64M,check=full/cuda", "freed twice in a kernel", 32},
    {"launches of many threads", threads, NULL, NULL},
    {"forks", forks, NULL, NULL},
    {"a kernel that traps with blocks held", traps, NULL, NULL},
    {"a trap, a reset, and on", traps_and_goes_on, NULL, NULL},
    {"trees of many levels", deep_trees, NULL, NULL},
    {"freed by the host", freed_by_the_host, NULL, NULL},
    {"a bad spec", unserved, "bogus", "GPUALLOC_KERNEL: unknown backend \"bogus\""},
    {"cuda is refused", unserved, "cuda", "CUDA's own would call itself"},
    {"statistics", statistics, NULL, "malloc in kernels is replaced"},
};

static bool has_words(const char *path, const char *words, uint32_t times)
{
    char text[16384];
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[length] = '\0';
    if (file) {
        fclose(file);
    }
    uint32_t found = 0;
    for (const char *at = strstr(text, words); at; at = strstr(at + 1, words)) {
        found++;
    }
    bool has = times ? found == times : found > 0;
    if (!has) {
        printf("    expected \"%s\", times %u (0: any), got it %u times:\n%s", words, times, found,
               text);
    }
    return has;
}

/* This program again, for one part. */
static pid_t start(const part *it, const char *errors)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setenv("GPUALLOC_KERNEL", it->spec ? it->spec : spec(), 1);
        int file = it->words ? open(errors, O_WRONLY | O_TRUNC) : -1;
        if (file >= 0) {
            setenv("GPUALLOC_STATS", "1", 1);
            dup2(file, STDERR_FILENO);
        }
        execl("/proc/self/exe", "kernel_tests", "--part", it->name, (char *)NULL);
        _exit(127);
    }
    return child;
}

static void run_part(const part *it)
{
    char errors[] = "/tmp/kernel_tests-XXXXXX";
    int file = mkstemp(errors);
    REQUIRE(file >= 0);
    close(file);
    int status = ended(start(it, errors));
    bool said = status == 77 || !it->words || has_words(errors, it->words, it->times);
    unlink(errors);
    if (status == 77) {
        SKIP("not on this machine");
    }
    EXPECT(status == 0);
    EXPECT(said);
}

static const part *now; /* the runner's cases know no context */

static void run_now(int device)
{
    (void)device;
    run_part(now);
}

static int run_inside(const char *name)
{
    for (const part &it : parts) {
        if (!strcmp(it.name, name)) {
            return it.run();
        }
    }
    return 2;
}

/* This process does not use CUDA: another one checks for a GPU. */
static bool has_device()
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int devices = 0;
        _exit(cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0);
    }
    return ended(child) == 1;
}

int main(int argc, char **argv)
{
    const char *only = NULL;
    if (argc == 3 && !strcmp(argv[1], "--part")) {
        return run_inside(argv[2]);
    }
    if (argc == 3 && !strcmp(argv[1], "--only")) {
        only = argv[2];
    } else if (argc != 1) {
        fprintf(stderr, "usage: kernel_tests [--only WORDS]\n");
        return 2;
    }
    if (!has_device()) {
        printf("no device\n");
        return test_summary();
    }
    for (const part &it : parts) {
        now = &it;
        test_case one = {it.name, run_now};
        test_run("kernel", &one, 1, 0, only);
    }
    return test_summary();
}
