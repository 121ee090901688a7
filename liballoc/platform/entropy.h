/* SPDX-License-Identifier: MIT
 *
 * Random numbers that another process cannot predict: seeds of hash functions, placement, names.
 * Not for cryptographic keys, because the last resort is weak.
 */
#ifndef GPUALLOC_PLATFORM_ENTROPY_H
#define GPUALLOC_PLATFORM_ENTROPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fill `bytes` from the kernel's generator: getrandom(2), or /dev/urandom if a sandbox refuses that
 * call or the kernel has not gathered entropy yet. If both fail, from AT_RANDOM, the clock and the
 * process id; returns false then, because a local attacker may guess the bytes. Never blocks and
 * never fails. Thread safe; keeps errno. */
bool ga_entropy_fill(void *bytes, size_t size);

/* 64 bits from ga_entropy_fill(). */
uint64_t ga_entropy(void);

#endif
