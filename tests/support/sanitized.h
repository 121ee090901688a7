/* SPDX-License-Identifier: MIT
 *
 * The sanitizer of this build. Failing requests cannot be tested under it, because its malloc ends
 * the program, nor limits on address space, which its shadow memory exceeds.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SANITIZED_H
#define GPUALLOC_TESTS_SUPPORT_SANITIZED_H

#ifdef __has_feature
#define TEST_HAS_FEATURE(name) __has_feature(name)
#else
#define TEST_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || TEST_HAS_FEATURE(address_sanitizer)
#define UNDER_ASAN 1
#else
#define UNDER_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || TEST_HAS_FEATURE(thread_sanitizer)
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif

/* A block that a test leaves behind on purpose is no leak. */
void sanitized_forgive(const void *block);

#endif
