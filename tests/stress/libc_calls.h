/* SPDX-License-Identifier: MIT
 *
 * For programs that stop their threads anywhere: a thread inside the C library's malloc, which
 * serves the library's own few records, is stopped when it leaves it. It could hold a lock there
 * that other threads wait for, and that would prove nothing about the tested code. The address
 * sanitizer's malloc has such locks for all threads.
 */
#ifndef GPUALLOC_TESTS_STRESS_LIBC_CALLS_H
#define GPUALLOC_TESTS_STRESS_LIBC_CALLS_H

#include <stdbool.h>

/* From now on threads know when they are in malloc(), free(), calloc(), realloc() and memalign() of
 * `ga_libc`. A postponed thread calls `stop` when it leaves that call. Call this before there are
 * threads. */
void libc_calls_watch(void (*stop)(void));

/* For a signal handler: returns true if its thread is in such a call. The thread will then stop by
 * itself. */
bool libc_calls_postpone(void);

#endif
