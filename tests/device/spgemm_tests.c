/* SPDX-License-Identifier: MIT
 *
 * Products of sparse matrices on a device, compared with those that the host computes. Exit status
 * 0, 1 when a case failed, 77 without a GPU.
 *
 *   spgemm_tests [--only WORDS] [--quick] [--no-growing]
 *
 * The cases run in child processes, because a kernel that hangs cannot be ended otherwise; with
 * --quick in this one.
 */
#include "spgemm_tests.h"

#include <stdio.h>
#include <string.h>

enum {
    SECONDS = 60 /* for one case */
};

spgemm_suite suite;

static bool read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) {
            suite.quick = true;
        } else if (!strcmp(argv[i], "--no-growing")) {
            suite.no_growing = true;
        } else if (!strcmp(argv[i], "--only") && i + 1 < argc) {
            suite.only = argv[++i];
        } else {
            fprintf(stderr, "usage: spgemm_tests [--only WORDS] [--quick] [--no-growing]\n");
            return false;
        }
    }
    return true;
}

static int count_devices(void *context)
{
    int devices = 0;
    (void)context;
    if (ga_cuda_device_count(&devices) != GA_OK || !devices) {
        printf("skipped, this machine has no GPU: %s\n", ga_error_text());
        return 0;
    }
    return devices;
}

static void run_all(int device)
{
    const case_list lists[] = {shape_cases(), large_cases(), limit_cases(), dynamic_cases(),
                               refusal_cases()};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const case_list *list = &lists[i];
        char title[64];
        snprintf(title, sizeof title, "device %d, %s", device, list->title);
        if (suite.quick) {
            test_run(title, list->cases, list->count, device, suite.only);
        } else {
            test_run_apart(title, list->cases, list->count, device, suite.only, SECONDS);
        }
    }
}

int main(int argc, char **argv)
{
    if (!read_arguments(argc, argv)) {
        return 2;
    }
    int devices = suite.quick ? count_devices(NULL) : test_in_child(count_devices, NULL);
    if (devices <= 0) {
        return 77;
    }
    for (int device = 0; device < devices; device++) {
        run_all(device);
    }
    return test_summary();
}
