/* SPDX-License-Identifier: MIT
 *
 * A program whose requests are known, for the statistics: 1000 blocks of 100 bytes, 400 of them
 * freed, one resized, one refused; and once more in a forked child and in a thread.
 *
 * usage: counted [fork|thread|close-stderr|reuse-stderr FILE|clear-environment|no-environment|
 *                 overwrite-environment|change-environment]
 */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
    BLOCKS = 1000,
    FREED = 400
};

static void *blocks[BLOCKS]; /* the rest stays, in sight */

static void *work(void *unused)
{
    volatile size_t huge = PTRDIFF_MAX;
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(100);
        CHECK(blocks[i]);
    }
    blocks[0] = realloc(blocks[0], 5000);
    CHECK(blocks[0] && !malloc(huge));
    for (int i = 0; i < FREED; i++) {
        free(blocks[i]);
    }
    return unused;
}

static void work_in_child(void)
{
    pid_t pid = fork();
    int status;
    CHECK(pid >= 0);
    if (pid == 0) {
        work(NULL);
        exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void work_in_thread(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void close_stderr(void)
{
    close(STDERR_FILENO);
}

/* As a daemon that has closed its descriptors: the next file becomes number 2. */
static void reuse_stderr(const char *path)
{
    close(STDERR_FILENO);
    CHECK(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644) == STDERR_FILENO);
}

/* As programs do that set their title in `ps`. */
static void overwrite_environment(void)
{
    for (char **variable = environ; *variable; variable++) {
        memset(*variable, 'x', strlen(*variable));
    }
}

static void change_environment(const char *how)
{
    if (strcmp(how, "clear-environment") == 0) {
        clearenv();
    } else if (strcmp(how, "no-environment") == 0) {
        environ = NULL;
    } else if (strcmp(how, "overwrite-environment") == 0) {
        overwrite_environment();
    } else if (strcmp(how, "change-environment") == 0) {
        setenv("GPUALLOC_STATS", "/nonexistent/stats", 1);
    }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    work(NULL);
    if (strcmp(mode, "fork") == 0) {
        work_in_child();
    } else if (strcmp(mode, "thread") == 0) {
        work_in_thread();
    } else if (strcmp(mode, "close-stderr") == 0) {
        atexit(close_stderr); /* as the programs of coreutils do */
    } else if (strcmp(mode, "reuse-stderr") == 0) {
        reuse_stderr(argv[2]);
    } else {
        change_environment(mode);
    }
    ssize_t written = write(STDOUT_FILENO, "counted\n", 8);
    return written == 8 ? 0 : 1;
}
