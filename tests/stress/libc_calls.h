/* SPDX-License-Identifier: MIT
 *
 * For programs that stop their threads anywhere: where a thread is inside the C library's malloc, which
 * keeps the library's own few records, it is stopped when it comes out. It could have a lock there that
 * others wait for, and that would say nothing about the code that is tested. The address sanitizer's
 * malloc has such locks for everybody.
 */
#ifndef GPUALLOC_TESTS_STRESS_LIBC_CALLS_H
#define GPUALLOC_TESTS_STRESS_LIBC_CALLS_H

#include <stdbool.h>

/* From now on threads know when they are in malloc(), free(), calloc(), realloc() and memalign() of
 * `ga_libc`; who has been postponed calls `stop` as it comes out. Before there are threads. */
void libc_calls_watch(void (*stop)(void));

/* For a signal's handler: whether its thread is in such a call. It will stop by itself, then. */
bool libc_calls_postpone(void);

#endif
