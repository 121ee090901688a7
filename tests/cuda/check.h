/* SPDX-License-Identifier: MIT
 *
 * For programs that are run under the preload: failed checks are printed and counted.
 */
#ifndef GPUALLOC_TESTS_CUDA_CHECK_H
#define GPUALLOC_TESTS_CUDA_CHECK_H

#include <stdio.h>

static int not_so; /* one thread */

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            not_so++;                                                                              \
            printf("%s:%d: not so: %s; ", __FILE__, __LINE__, #condition);                         \
            printf(__VA_ARGS__);                                                                   \
            putchar('\n');                                                                         \
        }                                                                                          \
    } while (0)

#define CHECK_SAME(wanted, got)                                                                    \
    do {                                                                                           \
        long long wanted_ = (long long)(wanted);                                                   \
        long long got_ = (long long)(got);                                                         \
        CHECK(wanted_ == got_, "expected %s = %lld, got %lld", #got, wanted_, got_);               \
    } while (0)

#endif
