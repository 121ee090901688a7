/* SPDX-License-Identifier: MIT
 *
 * CHECK for the programs that run under the preload. They test the process's malloc, so that a
 * failure is reported without it.
 */
#ifndef GPUALLOC_TESTS_PRELOAD_CHECK_H
#define GPUALLOC_TESTS_PRELOAD_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            check_failed(#condition, __FILE__, __LINE__);                                          \
        }                                                                                          \
    } while (0)

static inline void check_failed(const char *condition, const char *file, int line)
{
    char text[512];
    int error = errno;
    int length =
        snprintf(text, sizeof text, "%s:%d: not so: %s (errno %d)\n", file, line, condition, error);
    ssize_t written = write(STDERR_FILENO, text, (size_t)length);
    (void)written;
    _exit(1);
}

/* Fill a block and read it again: each byte must be there, and overlap no other block. */
static inline void check_fill(void *block, size_t size, int value)
{
    memset(block, value, size);
}

static inline void check_filled(const void *block, size_t size, int value)
{
    const unsigned char *bytes = (const unsigned char *)block;
    for (size_t i = 0; i < size; i++) {
        CHECK(bytes[i] == (unsigned char)value);
    }
}

#endif
