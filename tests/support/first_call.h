/* SPDX-License-Identifier: MIT
 *
 * A fork that has begun when another thread makes its first call of the library, so that it runs
 * none of the handlers that the call registers. The call ends before there is a child; or it waits
 * for a pipe without a writer that a variable of the environment names.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_FIRST_CALL_H
#define GPUALLOC_TESTS_SUPPORT_FIRST_CALL_H

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    FIRST_CALL_CHILD = 10 /* seconds that a child may take */
};

typedef struct first_call {
    char folder[32];
    char pipe[40];         /* "": the call does not wait */
    void *(*body)(void *); /* NULL: it has begun */
    pthread_t thread;
} first_call;

static first_call first_call_now;

/* The latest handler is the first to run. */
static inline void first_call_begin(void)
{
    void *(*body)(void *) = first_call_now.body;
    first_call_now.body = NULL;
    if (!body || pthread_create(&first_call_now.thread, NULL, body, NULL) != 0) {
        return;
    }
    if (*first_call_now.pipe) {
        usleep(300000); /* until it waits */
    } else {
        pthread_join(first_call_now.thread, NULL);
    }
}

/* As fork(), with all of the call in the middle of it. A signal ends a child that waits forever. */
static inline pid_t first_call_fork_around(void *(*body)(void *))
{
    if (pthread_atfork(first_call_begin, NULL, NULL) != 0) {
        return -1;
    }
    first_call_now.body = body;
    pid_t child = fork();
    if (child == 0) {
        alarm(FIRST_CALL_CHILD);
    }
    return child;
}

/* Returns true if the child ended by itself with status 0. */
static inline bool first_call_child_ended(pid_t child)
{
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* As above with a call that waits until first_call_end(). */
static inline pid_t first_call_fork(const char *variable, void *(*body)(void *))
{
    first_call *now = &first_call_now;
    snprintf(now->folder, sizeof now->folder, "/tmp/gpualloc-first-XXXXXX");
    if (!mkdtemp(now->folder)) {
        return -1;
    }
    snprintf(now->pipe, sizeof now->pipe, "%.31s/pipe", now->folder);
    if (mkfifo(now->pipe, 0600) != 0 || setenv(variable, now->pipe, 1) != 0) {
        return -1;
    }
    pid_t child = first_call_fork_around(body);
    if (child == 0) {
        unsetenv(variable);
    }
    return child;
}

/* In the parent: the call continues, with an empty pipe. Returns false if it is not waiting for the
 * pipe. */
static inline bool first_call_end(void)
{
    int end = open(first_call_now.pipe, O_WRONLY | O_NONBLOCK);
    bool waited = end >= 0;
    close(waited ? end : open(first_call_now.pipe, O_RDWR));
    pthread_join(first_call_now.thread, NULL);
    unlink(first_call_now.pipe);
    rmdir(first_call_now.folder);
    return waited;
}

#endif
