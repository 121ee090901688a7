/* SPDX-License-Identifier: MIT
 *
 * The variables that open heaps: which spec each kind of memory takes, and the messages for bad
 * ones.
 */
#include <gpualloc/backend.h>

#include "runtime/registry.h"
#include "runtime/spec.h"
#include "support/expect.h"
#include "support/sanitized.h"
#include "support/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ga_heap *heap;

static ga_status open_unnamed(ga_place place)
{
    return ga_heap_open(&heap, place, 0, NULL);
}

static void expect_host(const char *expected)
{
    assert_ok(open_unnamed(GA_PLACE_HOST));
    cr_assert_str_eq(ga_heap_spec(heap), expected, "%s", ga_heap_spec(heap));
    assert_ok(ga_heap_close(heap));
}

Test(environment, host)
{
    setenv("GPUALLOC_HOST", "fail:nth=7/null", 1);
    expect_host("fail:nth=7,every=no/null");
}

Test(environment, host_unset_or_empty_is_system)
{
    setenv("GPUALLOC_HOST", "", 1);
    expect_host("system");
    unsetenv("GPUALLOC_HOST");
    expect_host("system");
}

/* A spec in the call takes precedence, also an empty one, which is malformed. */
Test(environment, a_spec_in_the_call_wins)
{
    setenv("GPUALLOC_HOST", "null", 1);
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "system"));
    cr_assert_str_eq(ga_heap_spec(heap), "system");
    assert_ok(ga_heap_close(heap));
    assert_fails(ga_heap_open(&heap, GA_PLACE_HOST, 0, ""), GA_ERR_SPEC,
                 "spec: column 1: expected the name of a backend, got the end");
}

Test(environment, sentences_name_the_variable)
{
    setenv("GPUALLOC_HOST", "foo", 1);
    assert_fails_with(open_unnamed(GA_PLACE_HOST), GA_ERR_SPEC,
                      "GPUALLOC_HOST: unknown backend \"foo\"; known: system, ");
    setenv("GPUALLOC_HOST", "system:", 1);
    assert_fails(open_unnamed(GA_PLACE_HOST), GA_ERR_SPEC,
                 "GPUALLOC_HOST: spec: column 8: expected the name of an option, got the end");
    setenv("GPUALLOC_DEVICE", "system", 1);
    assert_fails(open_unnamed(GA_PLACE_DEVICE), GA_ERR_PLACE,
                 "GPUALLOC_DEVICE: system: serves the place host, not device");
    setenv("GPUALLOC_KERNEL", "null", 1);
    assert_fails(open_unnamed(GA_PLACE_KERNEL), GA_ERR_PLACE,
                 "GPUALLOC_KERNEL: null: serves the place host, device, not kernel");
}

Test(environment, device)
{
    setenv("GPUALLOC_DEVICE", "null", 1);
    assert_ok(open_unnamed(GA_PLACE_DEVICE));
    cr_assert_eq(ga_heap_place(heap), GA_PLACE_DEVICE);
    assert_ok(ga_heap_close(heap));
}

/* Which default opens depends on the machine; the order of attempts does not. */
Test(environment, defaults_of_the_device_s_places)
{
    unsetenv("GPUALLOC_DEVICE");
    unsetenv("GPUALLOC_KERNEL");
    if (open_unnamed(GA_PLACE_DEVICE) == GA_OK) {
        cr_assert_eq(strncmp(ga_heap_spec(heap), "cuda", 4), 0, "%s", ga_heap_spec(heap));
        assert_ok(ga_heap_close(heap));
    } else {
        cr_assert_not_null(strstr(ga_error_text(), "cuda"), "%s", ga_error_text());
    }
    if (open_unnamed(GA_PLACE_KERNEL) == GA_OK) {
        cr_assert_eq(strncmp(ga_heap_spec(heap), "coalesce", 8), 0, "%s", ga_heap_spec(heap));
        assert_ok(ga_heap_close(heap));
    } else {
        cr_assert_eq(strncmp(ga_error_text(), "GPUALLOC_KERNEL: ", 17), 0, "%s", ga_error_text());
    }
}

/* ---- GPUALLOC_TRACE: one more layer on top ------------------------------------------------- */

Test(environment, trace)
{
    char expected[256];
    scene_enter_folder();
    const char *path = scene_path("a b,\"c\\.trace");
    setenv("GPUALLOC_TRACE", path, 1);
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "fail:nth=0/null"));
    snprintf(expected, sizeof expected,
             "trace:file=\"%.*s/a b,\\\"c\\\\.trace\",batch=128,stacks=0/fail:nth=0,every=no/null",
             (int)(strlen(path) - strlen("/a b,\"c\\.trace")), path);
    cr_assert_str_eq(ga_heap_spec(heap), expected, "%s", ga_heap_spec(heap));
    assert_ok(ga_heap_close(heap));
    cr_assert_eq(access(path, F_OK), 0);
    scene_leave_folder();
}

/* The trace is not a layer of the user's spec, so a spec of the greatest permitted depth can have
 * one. */
Test(environment, a_trace_over_the_deepest_spec)
{
    char spec[256] = "";
    scene_enter_folder();
    setenv("GPUALLOC_TRACE", scene_path("t"), 1);
    for (int i = 1; i < GA_SPEC_LAYERS; i++) {
        strcat(spec, "fail:nth=0/");
    }
    strcat(spec, "null");
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
    cr_assert_eq(strncmp(ga_heap_spec(heap), "trace:", 6), 0);
    assert_ok(ga_heap_close(heap));
    scene_leave_folder();
}

/* The settings that the first heap found hold for the process: a program may clear its
 * environment. */
Test(environment, settings_outlive_the_environment)
{
    char text[4096];
    char trace[4096];
    scene_enter_folder();
    const char *path = scene_path("stats.json");
    setenv("GPUALLOC_STATS", path, 1);
    setenv("GPUALLOC_TRACE", scene_path("t"), 1);
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "null"));
    assert_ok(ga_heap_close(heap));
    clearenv();
    cr_assert_eq(chdir("/"), 0);
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "fail/null"));
    snprintf(trace, sizeof trace, "%s", ga_heap_spec(heap));
    assert_ok(ga_heap_close(heap));
    scene_read_file(path, text, sizeof text);
    cr_assert(strstr(text, "/fail:nth=1"), "%s", text);
    cr_assert_eq(strncmp(trace, "trace:", 6), 0, "%s", trace);
    scene_leave_folder();
}

Test(environment, a_trace_that_cannot_be_written_costs_a_line)
{
    setenv("GPUALLOC_TRACE", "/nowhere/t.trace", 1);
    scene_capture_begin();
    ga_status status = ga_heap_open(&heap, GA_PLACE_HOST, 0, "system");
    const char *said = scene_capture_end();
    assert_ok(status);
    cr_assert_str_eq(
        said, "gpualloc: GPUALLOC_TRACE: trace: file: cannot create \"/nowhere/t.trace\": No "
              "such file or directory; going on without a trace\n");
    cr_assert_str_eq(ga_heap_spec(heap), "system");
    assert_ok(ga_heap_close(heap));
}

/* The message quotes the user's text, not the text with the trace in front. */
Test(environment, a_trace_does_not_shift_the_columns)
{
    scene_enter_folder();
    setenv("GPUALLOC_TRACE", scene_path("t"), 1);
    assert_fails(ga_heap_open(&heap, GA_PLACE_HOST, 0, "system:"), GA_ERR_SPEC,
                 "spec: column 8: expected the name of an option, got the end");
    scene_leave_folder();
}

/* ---- GPUALLOC_STATS: reports on closing and at exit ---------------------------------------- */

static char report[8192];

static const char *report_of(const char *to)
{
    setenv("GPUALLOC_STATS", to, 1);
    scene_capture_begin();
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "null"));
    assert_ok(ga_heap_close(heap));
    return scene_capture_end();
}

Test(environment, stats_on_standard_error)
{
    const char *said = report_of("1");
    cr_assert_eq(strncmp(said, "gpualloc: statistics of ", 24), 0, "%s", said);
    cr_assert_not_null(strstr(said, "heap       null (host)\n"), "%s", said);
}

Test(environment, no_stats)
{
    cr_assert_str_eq(report_of("0"), "");
    cr_assert_str_eq(report_of(""), "");
}

Test(environment, stats_of_one_process)
{
    char id[16];
    snprintf(id, sizeof id, "%d", (int)getpid());
    setenv("GPUALLOC_STATS_PID", id, 1);
    cr_assert_eq(strncmp(report_of("1"), "gpualloc: statistics of ", 24), 0);
}

Test(environment, no_stats_of_another_process)
{
    char parent[16];
    snprintf(parent, sizeof parent, "%d", (int)getppid());
    setenv("GPUALLOC_STATS_PID", parent, 1);
    cr_assert_str_eq(report_of("1"), "");
}

Test(environment, stats_where_no_process_is_named)
{
    setenv("GPUALLOC_STATS_PID", "", 1);
    cr_assert_eq(strncmp(report_of("1"), "gpualloc: statistics of ", 24), 0);
}

Test(environment, stats_of_a_process_that_is_no_number)
{
    setenv("GPUALLOC_STATS_PID", "12x", 1);
    const char *said = report_of("1");
    const char *expected = "gpualloc: GPUALLOC_STATS_PID: expected a process id, got \"12x\"\n"
                           "gpualloc: statistics of ";
    cr_assert_eq(strncmp(said, expected, strlen(expected)), 0, "%s", said);
}

Test(environment, stats_in_a_file)
{
    scene_enter_folder();
    const char *path = scene_path("stats");
    cr_assert_str_eq(report_of(path), "");
    cr_assert_str_eq(report_of(path), "");
    scene_read_file(path, report, sizeof report);
    const char *first = strstr(report, "heap       null (host)\n");
    cr_assert_not_null(first, "%s", report);
    cr_assert_not_null(strstr(first + 1, "heap       null (host)\n"), "reports are appended");
    scene_leave_folder();
}

Test(environment, stats_in_a_json_file)
{
    scene_enter_folder();
    const char *path = scene_path("stats.json");
    cr_assert_str_eq(report_of(path), "");
    size_t length = scene_read_file(path, report, sizeof report);
    cr_assert_eq(strncmp(report, "{\"abi\":1,", 9), 0, "%s", report);
    cr_assert_eq(strchr(report, '\n'), report + length - 1, "one line");
    scene_leave_folder();
}

Test(environment, stats_that_cannot_be_written_cost_a_line)
{
    const char *said = report_of("/nowhere/stats");
    cr_assert_str_eq(said,
                     "gpualloc: GPUALLOC_STATS: cannot write \"/nowhere/stats\": No such file "
                     "or directory\n");
}

/* The child leaves through exit(): its open heap is reported then, and only that. */
static int leave_open(void *unused)
{
    (void)unused;
    ga_heap *closed;
    if (ga_heap_open(&heap, GA_PLACE_HOST, 0, "system") != GA_OK ||
        ga_heap_open(&closed, GA_PLACE_HOST, 0, "null") != GA_OK) {
        return 1;
    }
    ga_heap_close(closed);
    exit(0);
}

Test(environment, stats_at_exit)
{
    if (UNDER_ASAN) {
        cr_skip_test("the leak sanitizer cannot look at a forked child that exits");
    }
    scene_enter_folder();
    const char *path = scene_path("stats.json");
    setenv("GPUALLOC_STATS", path, 1);
    cr_assert_eq(scene_in_child(leave_open, NULL), 0);
    scene_read_file(path, report, sizeof report);
    char *first = strstr(report, "\"spec\":\"null\"");
    char *second = strstr(report, "\"spec\":\"system\"");
    cr_assert(first && second && first < second, "%s", report);
    cr_assert_null(strstr(second + 1, "\"spec\""), "%s", report);
    scene_leave_folder();
}
