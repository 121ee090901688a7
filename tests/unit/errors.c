/* SPDX-License-Identifier: MIT
 *
 * Statuses, their texts, and each thread's own sentence.
 */
#include <gpualloc/backend.h>

#include "support/expect.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

Test(errors, nothing_before_the_first)
{
    cr_assert_str_eq(ga_error_text(), "");
}

Test(errors, a_sentence_and_its_status)
{
    cr_assert_eq(ga_fail(GA_ERR_IO, "%s: %d", "it", 7), GA_ERR_IO);
    cr_assert_str_eq(ga_error_text(), "it: 7");
}

/* A layer quotes its parent's sentence. */
Test(errors, the_last_sentence_may_be_quoted)
{
    ga_fail(GA_ERR_IO, "inner");
    ga_fail(GA_ERR_IO, "outer: %s", ga_error_text());
    cr_assert_str_eq(ga_error_text(), "outer: inner");
}

Test(errors, long_sentences_are_cut)
{
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    ga_fail(GA_ERR_IO, "%s", text);
    size_t length = strlen(ga_error_text());
    cr_assert_gt(length, 400);
    cr_assert_lt(length, sizeof text - 1);
    cr_assert_eq(strspn(ga_error_text(), "x"), length);
}

Test(errors, success_leaves_the_sentence)
{
    ga_heap *heap;
    ga_fail(GA_ERR_IO, "before");
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "null"));
    assert_ok(ga_heap_close(heap));
    cr_assert_str_eq(ga_error_text(), "before");
}

static void *fail_apart(void *seen)
{
    strcpy(seen, ga_error_text());
    cr_assert_eq(ga_error_status(), GA_OK);
    ga_fail(GA_ERR_SIZE, "other");
    return NULL;
}

Test(errors, each_thread_has_its_own)
{
    char seen[64] = "?";
    pthread_t other;
    ga_fail(GA_ERR_IO, "mine");
    cr_assert_eq(pthread_create(&other, NULL, fail_apart, seen), 0);
    pthread_join(other, NULL);
    cr_assert_str_eq(seen, "");
    cr_assert_str_eq(ga_error_text(), "mine");
    cr_assert_eq(ga_error_status(), GA_ERR_IO);
}

Test(errors, every_status_has_a_text_of_its_own)
{
    for (int i = 0; i < GA_STATUS_COUNT; i++) {
        const char *text = ga_status_text((ga_status)i);
        cr_assert(text && *text, "%d", i);
        for (int j = 0; j < i; j++) {
            cr_assert_str_neq(text, ga_status_text((ga_status)j), "%d and %d", i, j);
        }
    }
    cr_assert_str_eq(ga_status_text(GA_OK), "ok");
    cr_assert_str_eq(ga_status_text(GA_STATUS_COUNT), "an unknown status");
    cr_assert_str_eq(ga_status_text((ga_status)-1), "an unknown status");
}

Test(errors, places_have_names)
{
    cr_assert_str_eq(ga_place_text(GA_PLACE_HOST), "host");
    cr_assert_str_eq(ga_place_text(GA_PLACE_DEVICE), "device");
    cr_assert_str_eq(ga_place_text(GA_PLACE_KERNEL), "kernel");
    cr_assert_str_eq(ga_place_text(GA_PLACE_COUNT), "?");
    cr_assert_str_eq(ga_place_text((ga_place)-1), "?");
}

Test(errors, the_version_is_the_project_s)
{
    char header[32];
    snprintf(header, sizeof header, "%d.%d.%d", GA_VERSION_MAJOR, GA_VERSION_MINOR,
             GA_VERSION_PATCH);
    cr_assert_str_eq(ga_version_text(), header);
    cr_assert_str_eq(ga_version_text(), PROJECT_VERSION);
    snprintf(header, sizeof header, "%d.%d.%d", GA_VERSION / 10000, GA_VERSION / 100 % 100,
             GA_VERSION % 100);
    cr_assert_str_eq(ga_version_text(), header);
}
