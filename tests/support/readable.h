/* SPDX-License-Identifier: MIT
 *
 * Whether memory can be read, as the kernel sees it: no fault, no handler, no sanitizer's report.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_READABLE_H
#define GPUALLOC_TESTS_SUPPORT_READABLE_H

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static inline bool is_readable(const void *address)
{
    int ends[2];
    if (pipe(ends)) {
        abort();
    }
    bool readable = write(ends[1], address, 1) == 1; /* else EFAULT */
    close(ends[0]);
    close(ends[1]);
    return readable;
}

#endif
