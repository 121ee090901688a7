/* SPDX-License-Identifier: MIT
 *
 * Assertions on statuses and sentences; macros, so that a failure names the line of its test.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_EXPECT_H
#define GPUALLOC_TESTS_SUPPORT_EXPECT_H

#include <gpualloc/gpualloc.h>

#include <criterion/criterion.h>
#include <string.h>

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        ga_status got_ = (call);                                                                   \
        cr_assert_eq(got_, GA_OK, "%s: status %d: %s", #call, (int)got_, ga_error_text());         \
    } while (0)

/* The call fails with this status and exactly this sentence. */
#define assert_fails(call, wanted, sentence)                                                       \
    do {                                                                                           \
        ga_status got_ = (call);                                                                   \
        cr_assert_eq(got_, (wanted), "%s: status %d: %s", #call, (int)got_, ga_error_text());      \
        cr_assert_str_eq(ga_error_text(), (sentence),                                              \
                         "%s: got the sentence\n  %s\ninstead of\n  %s", #call, ga_error_text(),   \
                         (sentence));                                                              \
    } while (0)

/* The call fails with this status and a sentence that begins like this. */
#define assert_fails_with(call, wanted, beginning)                                                 \
    do {                                                                                           \
        ga_status got_ = (call);                                                                   \
        cr_assert_eq(got_, (wanted), "%s: status %d: %s", #call, (int)got_, ga_error_text());      \
        cr_assert_eq(strncmp(ga_error_text(), (beginning), strlen(beginning)), 0,                  \
                     "%s: got the sentence\n  %s\nwhich does not begin with\n  %s", #call,         \
                     ga_error_text(), (beginning));                                                \
    } while (0)

#endif
