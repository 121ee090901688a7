/* SPDX-License-Identifier: MIT */
#include "output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    WAIT_MS = 1000
};

/* The number, if `text` is only digits; else -1. */
static int number_of(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits && digits < 9 && !text[digits] ? atoi(text) : -1;
}

int ga_output_descriptor(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stdout") == 0) {
        return STDOUT_FILENO;
    }
    if (strcmp(path, "/dev/stderr") == 0) {
        return STDERR_FILENO;
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t length = strlen(folders[i]);
        if (strncmp(path, folders[i], length) == 0) {
            return number_of(path + length);
        }
    }
    return -1;
}

static bool is_writable_kind(int fd)
{
    struct stat there;
    return fstat(fd, &there) == 0 &&
           (S_ISREG(there.st_mode) || S_ISCHR(there.st_mode) || S_ISFIFO(there.st_mode));
}

int ga_output_open(const char *path)
{
    int own = ga_output_descriptor(path);
    if (own >= 0) {
        return fcntl(own, F_DUPFD_CLOEXEC, 0);
    }
    int fd = open(
        path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd >= 0 && !is_writable_kind(fd)) {
        close(fd);
        errno = EINVAL;
        return -1;
    }
    return fd;
}

static bool becomes_ready(int fd)
{
    struct pollfd poll_for = {fd, POLLOUT, 0};
    int ready = poll(&poll_for, 1, WAIT_MS);
    if (ready == 0) {
        errno = EAGAIN;
    }
    return ready > 0;
}

static bool write_whole(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, text, length);
        if (written < 0 && errno != EINTR && (errno != EAGAIN || !becomes_ready(fd))) {
            return false;
        }
        text += written > 0 ? written : 0;
        length -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

/* SIGPIPE and SIGXFSZ are sent to the writing thread, so a blocked one stays pending there and can
 * be consumed. A signal that was pending before belongs to the program and is left. */
bool ga_output_write(int fd, const char *text, size_t length)
{
    sigset_t quiet, before, pending;
    static const struct timespec at_once;
    sigemptyset(&quiet);
    sigaddset(&quiet, SIGPIPE);
    sigaddset(&quiet, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &quiet, &before);
    sigpending(&pending);
    bool written = write_whole(fd, text, length);
    int error = errno;
    if (!written && (error == EPIPE || error == EFBIG) &&
        !sigismember(&pending, error == EPIPE ? SIGPIPE : SIGXFSZ)) {
        sigtimedwait(&quiet, NULL, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return written;
}
