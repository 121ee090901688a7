/* SPDX-License-Identifier: MIT
 *
 * The frame of programs that are run under the preload, one case at a time: cases by name, threads
 * and children that report success.
 */
#ifndef GPUALLOC_TESTS_CUDA_CASES_H
#define GPUALLOC_TESTS_CUDA_CASES_H

#include "cu.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KIB = 1 << 10,
    MIB = 1 << 20
};

typedef struct cu_case {
    const char *name;
    void (*run)(void);
} cu_case;

/* The exit status of the program: runs the case that its first argument names. */
static inline int run_case(int argc, char **argv, const cu_case *cases, size_t count)
{
    for (size_t i = 0; argc > 1 && i < count; i++) {
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            printf("%s: %d not so\n", argv[1], not_so);
            return not_so != 0;
        }
    }
    puts("no such case");
    return 2;
}

#define RUN_CASE(argc, argv, cases) run_case(argc, argv, cases, sizeof(cases) / sizeof *(cases))

/* ---- threads ------------------------------------------------------------------------------- */

static CUcontext everybodys; /* the context that threads make current */

/* Thread i gets first + i, and returns true on success. False: a thread could not be started. */
static inline bool begin_threads(pthread_t *all, int count, int first, const pthread_attr_t *how,
                                 void *(*run)(void *))
{
    CHECK_SAME(0, cu.get_current(&everybodys));
    for (int i = 0; i < count; i++) {
        int result = pthread_create(&all[i], how, run, (void *)(intptr_t)(first + i));
        CHECK_SAME(0, result);
        if (result) {
            return false;
        }
    }
    return true;
}

static inline void end_threads(const pthread_t *all, int count)
{
    for (int i = 0; i < count; i++) {
        void *good = NULL;
        pthread_join(all[i], &good);
        CHECK(good, "thread %d", i);
    }
}

/* ---- children ------------------------------------------------------------------------------ */

/* 0 in the child, which counts its failures by itself. */
static inline pid_t begin_child(void)
{
    fflush(stdout);
    pid_t child = fork();
    not_so = child == 0 ? 0 : not_so;
    return child;
}

static inline void end_child(pid_t child)
{
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "%d", status);
}

#endif
