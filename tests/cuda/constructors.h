/* SPDX-License-Identifier: MIT
 *
 * Two threads make the same first call, one of them in the constructor of a library: that thread
 * holds the lock of the dynamic linker, and so must not wait for the other one, which may need it.
 */
#ifndef GPUALLOC_TESTS_CUDA_CONSTRUCTORS_H
#define GPUALLOC_TESTS_CUDA_CONSTRUCTORS_H

#include "cases.h"

enum {
    HEAD_START_US = 300000, /* in which the other thread comes to wait for the linker's lock */
    LIMIT_S = 30
};

static void (*first_call)(void);
static pthread_t beside;

static void *call_beside(void *number)
{
    CHECK_SAME(0, cu.push(everybodys));
    first_call();
    return number;
}

__attribute__((visibility("default"))) void in_constructor(void);

void in_constructor(void)
{
    begin_threads(&beside, 1, 1, NULL, call_beside);
    usleep(HEAD_START_US);
    first_call();
}

/* A deadlock ends the program by a signal. */
static inline void call_in_constructor(void (*call)(void))
{
    first_call = call;
    alarm(LIMIT_S);
    CHECK(dlopen(getenv("GA_CONSTRUCTOR"), RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
    end_threads(&beside, 1);
}

#endif
