/* SPDX-License-Identifier: MIT
 *
 * A runner for tests on GPU machines, which have no test framework: one line for each case, then `N
 * passed, N failed, N skipped`.
 */
#ifndef TESTS_DEVICE_RUNNER_H
#define TESTS_DEVICE_RUNNER_H

#include <gpualloc/gpualloc.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct test_case {
    const char *name;
    void (*run)(int device); /* uses EXPECT and SKIP */
} test_case;

/* For the present case, from any thread: it has failed; it cannot run here. */
void test_fail(const char *file, int line, const char *expected);
void test_skip(const char *reason);

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            test_fail(__FILE__, __LINE__, #condition);                                             \
        }                                                                                          \
    } while (0)

/* CHECK that also returns from the function if it fails. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            test_fail(__FILE__, __LINE__, #condition);                                             \
            return;                                                                                \
        }                                                                                          \
    } while (0)

#define SKIP(reason)                                                                               \
    do {                                                                                           \
        test_skip(reason);                                                                         \
        return;                                                                                    \
    } while (0)

/* Run the cases whose name contains `only` (all if it is NULL) for `device`. */
void test_run(const char *title, const test_case *cases, size_t count, int device,
              const char *only);

/* As test_run(), in child processes: a case that crashes, or takes more than `seconds`, fails and
 * does not end the others. After a case that failed the next one has a new process, because the
 * driver may be unusable. The calling process must not have used the driver. */
void test_run_apart(const char *title, const test_case *cases, size_t count, int device,
                    const char *only, int seconds);

/* Print the counts; 1 when a case failed, 77 when none ran, else 0. */
int test_summary(void);

/* Returns true if the thread's error sentence contains these words. */
bool test_error_has(const char *words);

/* Run `body` in a forked child and return its exit status; -1 where a signal ended it. */
int test_in_child(int (*body)(void *), void *context);

#endif
