/* SPDX-License-Identifier: MIT
 *
 * Asks another loader than this process's, of a C library in a folder of its own, if it loads the
 * preload. It lists libraries without executing code of the program.
 */
#include "paths.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SECONDS = 5,     /* after which a file that is no loader is ended */
    LISTED = 1 << 18 /* bytes of a list; a longer one is cut */
};

static _Noreturn void list_libraries(const char *loader, const char *program, int out)
{
    alarm(SECONDS);
    unsetenv("LD_DEBUG"); /* would mix with the list */
    dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execl(loader, loader, "--list", program, (char *)NULL);
    _exit(1);
}

/* Milliseconds until then; 0: over. */
static int left_until(const struct timespec *end)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long left = (end->tv_sec - now.tv_sec) * 1000 + (end->tv_nsec - now.tv_nsec) / 1000000;
    return left > 0 ? (int)left : 0;
}

/* Wait for more of the list. False: it takes too long. */
static bool more_comes(int in, const struct timespec *end)
{
    struct pollfd list = {.fd = in, .events = POLLIN};
    int ready;
    do {
        ready = poll(&list, 1, left_until(end));
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}

/* Read the list, which is complete when the loader and its children end. Returns its exit
 * status. */
static int read_list(pid_t child, int in, char *text)
{
    struct timespec end;
    size_t length = 0;
    ssize_t got = 1;
    int status = -1;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += SECONDS;
    while (got > 0 || (got < 0 && errno == EINTR)) {
        if (!more_comes(in, &end)) {
            kill(child, SIGKILL);
            break;
        }
        got = read(in, text + length, LISTED - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    text[length] = '\0';
    close(in); /* a loader that has more to say ends by that */
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

/* A line of the list has the path, perhaps behind the name and an arrow, then the address. */
static bool is_listed(const char *text, const char *preload)
{
    const char *found = strstr(text, preload);
    return found && found > text && strchr("\t ", found[-1]) &&
           strncmp(found + strlen(preload), " (0x", 4) == 0;
}

/* glibc lists a library although it has not the versions of symbols that the library requires. */
static bool is_too_old(const char *text, const char *preload)
{
    const char *line = strstr(text, "(required by ");
    for (; line; line = strstr(line + 1, "(required by ")) {
        if (strncmp(line + strlen("(required by "), preload, strlen(preload)) == 0) {
            return true;
        }
    }
    return false;
}

void ga_loader_ask(ga_reach *out, const char *loader, const char *program, const char *preload)
{
    static char text[LISTED];
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        list_libraries(loader, program, pipes[1]);
    }
    close(pipes[1]);
    if (child < 0) {
        close(pipes[0]);
        return;
    }
    int status = read_list(child, pipes[0], text);
    if (is_too_old(text, preload)) {
        snprintf(out->trouble, sizeof out->trouble,
                 "the C library of its loader \"%.200s\" is older than the library expects",
                 loader);
    } else if (status != 0 || !is_listed(text, preload)) {
        snprintf(out->trouble, sizeof out->trouble, "its loader \"%.200s\" does not load it",
                 loader);
    }
    out->harmful = *out->trouble;
}
