/* SPDX-License-Identifier: MIT
 *
 * Handlers around fork() that allocate.
 */
#ifndef GPUALLOC_TESTS_PRELOAD_FORK_HANDLERS_H
#define GPUALLOC_TESTS_PRELOAD_FORK_HANDLERS_H

#include <pthread.h>
#include <stdlib.h>

/* Does nothing; a program that calls it needs the library. */
__attribute__((visibility("default"))) void fork_handlers_library(void);

static __thread void *held;

static void allocate(void)
{
    held = malloc(3000);
    free(malloc(200000));
}

static void release(void)
{
    free(held);
}

static void register_handlers(void)
{
    pthread_atfork(allocate, release, release);
}

#endif
