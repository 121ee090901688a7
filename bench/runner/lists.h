/* SPDX-License-Identifier: MIT
 *
 * Sizes and lists of numbers in the form that users write them.
 */
#ifndef BENCH_RUNNER_LISTS_H
#define BENCH_RUNNER_LISTS_H

#include <stdbool.h>
#include <stddef.h>

enum {
    GA_BENCH_LIST_MAX = 32
};

typedef struct ga_bench_list {
    size_t count;
    size_t values[GA_BENCH_LIST_MAX];
} ga_bench_list;

/* "64,1K,2M": numbers from 1 to `most`, separated by commas, with K, M or G (powers of 1024) if
 * `units` is set. Duplicates count once. False for other text, and for more than GA_BENCH_LIST_MAX
 * numbers. */
bool ga_bench_list_parse(const char *text, bool units, size_t most, ga_bench_list *out);

/* "64", "1K", "1.5M": always fits. */
typedef struct ga_bench_size_text {
    char text[32];
} ga_bench_size_text;
ga_bench_size_text ga_bench_size_text_of(size_t size);

#endif
