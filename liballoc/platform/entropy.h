/* SPDX-License-Identifier: MIT
 *
 * Numbers that nobody outside of the process can foretell: seeds of hash functions. For no keys of
 * ciphers.
 */
#ifndef GPUALLOC_PLATFORM_ENTROPY_H
#define GPUALLOC_PLATFORM_ENTROPY_H

#include <stdint.h>

/* 64 bits of getrandom(2). Before the kernel has gathered entropy, or where it refuses, of what it
 * gave the process at its start, the clock and addresses. Never waits; keeps errno. */
uint64_t ga_entropy(void);

#endif
