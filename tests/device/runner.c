/* SPDX-License-Identifier: MIT
 *
 * The runner's counts and its one line for each case.
 */
#include "runner.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int passed;
static int failed;
static int skipped;

/* Of the present case. relaxed: read after its threads have been joined. */
static int failures;
static const char *skip_reason;

void test_fail(const char *file, int line, const char *expected)
{
    __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
    printf("    %s:%d: expected %s; last error: %s\n", file, line, expected, ga_error_text());
}

void test_skip(const char *reason)
{
    skip_reason = reason;
}

static void count_case(const char *title, const char *name)
{
    const char *outcome = failures ? "FAIL" : skip_reason ? "skip" : "ok";
    failed += failures != 0;
    skipped += !failures && skip_reason;
    passed += !failures && !skip_reason;
    bool say_why = !failures && skip_reason;
    printf("%-4s %s: %s%s%s\n", outcome, title, name, say_why ? ": " : "",
           say_why ? skip_reason : "");
    fflush(stdout);
}

void test_run(const char *title, const test_case *cases, size_t count, int device, const char *only)
{
    for (size_t i = 0; i < count; i++) {
        if (only && !strstr(cases[i].name, only)) {
            continue;
        }
        failures = 0;
        skip_reason = NULL;
        cases[i].run(device);
        count_case(title, cases[i].name);
    }
}

int test_summary(void)
{
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed ? 1 : passed ? 0 : 77;
}

bool test_error_has(const char *words)
{
    return strstr(ga_error_text(), words) != NULL;
}

int test_in_child(int (*body)(void *), void *context)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int status = body(context);
        fflush(stdout);
        _exit(status);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
