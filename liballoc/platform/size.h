/* SPDX-License-Identifier: MIT
 *
 * Sizes in the form that users write them.
 */
#ifndef GPUALLOC_PLATFORM_SIZE_H
#define GPUALLOC_PLATFORM_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* Parse digits with an optional K, M, G or T (powers of 1024), and nothing else, to bytes. False
 * for any other text and for more than 64 bits; `*out` then stays as it was. */
bool ga_size_parse(const char *text, uint64_t *out);

#endif
