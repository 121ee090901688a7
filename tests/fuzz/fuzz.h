/* SPDX-License-Identifier: MIT
 *
 * A fuzz target is a file that defines the three names below. It is built twice: with driver.c,
 * which any compiler takes, and by clang with libFuzzer (scripts/fuzz).
 */
#ifndef GPUALLOC_TESTS_FUZZ_FUZZ_H
#define GPUALLOC_TESTS_FUZZ_FUZZ_H

#include <gpualloc/gpualloc.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    FUZZ_INPUT_MAX = 1 << 15 /* bytes of one input */
};

/* Run on one input; the name is libFuzzer's. Aborts if a check fails. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Write the seed of that number, a good input or known trouble, and return its size; 0 past the
 * last. */
size_t fuzz_seed(size_t number, uint8_t room[FUZZ_INPUT_MAX]);

/* Texts that mutations insert; NULL-terminated. */
extern const char *const fuzz_tokens[];

#define FUZZ_NEED(condition)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fuzz_failed(#condition, __FILE__, __LINE__);                                           \
        }                                                                                          \
    } while (0)

__attribute__((noreturn)) static inline void fuzz_failed(const char *condition, const char *file,
                                                         int line)
{
    fprintf(stderr, "%s:%d: not so: %s; last error: \"%s\"\n", file, line, condition,
            ga_error_text());
    abort();
}

/* A call failed: it left one sentence that can be printed as it is. */
static inline void fuzz_check_sentence(void)
{
    const unsigned char *text = (const unsigned char *)ga_error_text();
    size_t length = 0;
    for (; text[length]; length++) {
        FUZZ_NEED(text[length] >= ' ' && text[length] != 0x7f);
    }
    FUZZ_NEED(length > 0 && length < 512);
}

#endif
