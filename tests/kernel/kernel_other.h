/* SPDX-License-Identifier: MIT
 *
 * A shared library whose device code was linked by itself, with its own libgpualloc-kernel.a:
 * another module than the program's.
 */
#ifndef TESTS_KERNEL_OTHER_H
#define TESTS_KERNEL_OTHER_H

#include <stddef.h>
#include <stdint.h>

/* Each of `threads` threads allocates `size` bytes and writes its number there; checks it, and
 * frees. Returns 0, or the CUDA runtime's error. Waits for the device. */
int kernel_other_take(void **out, uint32_t threads, size_t size);
int kernel_other_give(void **in, uint32_t threads);

#endif
