/* SPDX-License-Identifier: MIT
 *
 * A fork while another thread is in the middle of its first call of ours, which waits for what a
 * variable of the environment names: a pipe that nobody writes to yet. That call begins once the
 * fork has, so that the fork runs none of the handlers that the call registers.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_FIRST_CALL_H
#define GPUALLOC_TESTS_SUPPORT_FIRST_CALL_H

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FIRST_CALL_CHILD = 10 /* seconds that a child may take */
};

typedef struct first_call {
    char folder[32];
    char pipe[40];
    void *(*body)(void *); /* NULL: it has begun */
    pthread_t thread;
} first_call;

static first_call first_call_now;

/* The latest handler is the first to run. */
static inline void first_call_begin(void)
{
    void *(*body)(void *) = first_call_now.body;
    first_call_now.body = NULL;
    if (body && pthread_create(&first_call_now.thread, NULL, body, NULL) == 0) {
        usleep(300000); /* until it waits */
    }
}

/* As fork(). The child is ended by a signal where it waits for a lock that nobody has there. */
static inline pid_t first_call_fork(const char *variable, void *(*body)(void *))
{
    first_call *now = &first_call_now;
    snprintf(now->folder, sizeof now->folder, "/tmp/gpualloc-first-XXXXXX");
    if (!mkdtemp(now->folder)) {
        return -1;
    }
    snprintf(now->pipe, sizeof now->pipe, "%.31s/pipe", now->folder);
    if (mkfifo(now->pipe, 0600) != 0 || setenv(variable, now->pipe, 1) != 0 ||
        pthread_atfork(first_call_begin, NULL, NULL) != 0) {
        return -1;
    }
    now->body = body;
    pid_t child = fork();
    if (child == 0) {
        unsetenv(variable);
        alarm(FIRST_CALL_CHILD);
    }
    return child;
}

/* In the parent: the call goes on, with nothing in the pipe. False: it is not waiting for it. */
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
