/* SPDX-License-Identifier: MIT
 *
 * The runner's counts and its one line for each case.
 */
#include "runner.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
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

static void run_case(const char *title, const test_case *now, int device)
{
    failures = 0;
    skip_reason = NULL;
    now->run(device);
    count_case(title, now->name);
}

void test_run(const char *title, const test_case *cases, size_t count, int device, const char *only)
{
    for (size_t i = 0; i < count; i++) {
        if (!only || strstr(cases[i].name, only)) {
            run_case(title, &cases[i], device);
        }
    }
}

/* ---- in child processes ---------------------------------------------------------------------- */

/* In memory that the child process shares. */
typedef struct progress {
    size_t at;    /* the present case */
    time_t begun; /* when it began; relaxed: the parent polls it */
    int passed, failed, skipped;
} progress;

static time_t seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* Run the cases from `shared->at` on, up to one that fails; returns the exit status. */
static int run_from(progress *shared, const char *title, const test_case *cases, size_t count,
                    int device, const char *only)
{
    for (; shared->at < count; shared->at++) {
        const test_case *now = &cases[shared->at];
        if (!only || strstr(now->name, only)) {
            __atomic_store_n(&shared->begun, seconds_now(), __ATOMIC_RELAXED);
            run_case(title, now, device);
            shared->passed = passed;
            shared->failed = failed;
            shared->skipped = skipped;
            if (failures) {
                return 1;
            }
        }
    }
    return 0;
}

/* Wait for the child, and kill it if its case takes too long. Returns its status, as waitpid(). */
static int await_child(pid_t child, const progress *shared, int seconds)
{
    int status = -1;
    pid_t ended;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
        if (seconds_now() - __atomic_load_n(&shared->begun, __ATOMIC_RELAXED) > seconds) {
            kill(child, SIGKILL);
            ended = waitpid(child, &status, 0);
            break;
        }
        usleep(10000);
    }
    return ended == child ? status : -1;
}

void test_run_apart(const char *title, const test_case *cases, size_t count, int device,
                    const char *only, int seconds)
{
    progress *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        test_run(title, cases, count, device, only);
        return;
    }
    *shared = (progress){.passed = passed, .failed = failed, .skipped = skipped};
    while (shared->at < count) {
        shared->begun = seconds_now();
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            int status = run_from(shared, title, cases, count, device, only);
            fflush(stdout);
            _exit(status);
        }
        int status = child < 0 ? -1 : await_child(child, shared, seconds);
        if (shared->at < count && (!WIFEXITED(status) || WEXITSTATUS(status) != 1)) {
            shared->failed++;
            printf("FAIL %s: %s: it ended its process, or took more than %d s (status %d)\n", title,
                   cases[shared->at].name, seconds, status);
        }
        shared->at++;
        passed = shared->passed; /* the next child counts on from these */
        failed = shared->failed;
        skipped = shared->skipped;
    }
    munmap(shared, sizeof *shared);
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
