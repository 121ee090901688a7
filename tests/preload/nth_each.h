/* SPDX-License-Identifier: MIT
 *
 * The loop of programs under nth_calls.so: for each n a child in which the n-th call fails, or all
 * from the n-th on, until the work makes fewer calls.
 */
#ifndef GPUALLOC_TESTS_PRELOAD_NTH_EACH_H
#define GPUALLOC_TESTS_PRELOAD_NTH_EACH_H

#include "check.h"
#include "nth_calls.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

enum {
    NTH_SECONDS = 20,
    NTH_NOT_REACHED = 3 /* the status of a child in which there were fewer calls */
};

static nth_arm_fn *nth_arm;
static nth_disarm_fn *nth_disarm;
static nth_left_fn *nth_left;

typedef struct nth_plan {
    unsigned kind; /* of nth_calls.h */
    long max;      /* values of n: the first half one by one, the others in growing steps */
    int all;
} nth_plan;

/* From the program's arguments KIND one|all TRIES. */
static inline nth_plan nth_begin(char **arguments)
{
    *(void **)&nth_arm = dlsym(RTLD_DEFAULT, "nth_arm");
    *(void **)&nth_disarm = dlsym(RTLD_DEFAULT, "nth_disarm");
    *(void **)&nth_left = dlsym(RTLD_DEFAULT, "nth_left");
    CHECK(nth_arm && nth_disarm && nth_left);
    return (nth_plan){.kind = (unsigned)strtoul(arguments[0], NULL, 10),
                      .all = strcmp(arguments[1], "all") == 0,
                      .max = strtol(arguments[2], NULL, 10)};
}

static inline bool nth_is_over(int status)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == NTH_NOT_REACHED;
}

static inline int nth_status(const nth_plan *plan, long n, long (*attempt)(const nth_plan *, long))
{
    int status = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(NTH_SECONDS);
        _exit(attempt(plan, n) < n ? NTH_NOT_REACHED : 0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

/* `attempt` returns the number of calls. Prints a line for each n that failed, and at last the
 * number of values tried. */
static inline int nth_each(const nth_plan *plan, long (*attempt)(const nth_plan *, long))
{
    long tried = 0, n = 1;
    int status = 0;
    while (tried < plan->max && !nth_is_over(status)) {
        status = nth_status(plan, n, attempt);
        tried++;
        if (status && !nth_is_over(status)) {
            printf("FAILED at %ld: status %#x\n", n, (unsigned)status);
            fflush(stdout);
        }
        n += 1 + (tried > plan->max / 2 ? n / 16 : 0);
    }
    printf("%ld tried\n", tried);
    return 0;
}

#endif
