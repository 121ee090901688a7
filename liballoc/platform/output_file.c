/* SPDX-License-Identifier: MIT */
#include "output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MODE = 0600,
    FLAGS = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
};

/* The number that is the whole of `text`, or -1. */
static int number_of(const char *text)
{
    int number = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 8 || text[digits]) {
        return -1;
    }
    for (; *text; text++) {
        number = 10 * number + (*text - '0');
    }
    return number;
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

static bool kind_allowed(mode_t mode, ga_output_mode wanted)
{
    return S_ISREG(mode) || (wanted != GA_OUTPUT_NEW && (S_ISCHR(mode) || S_ISFIFO(mode)));
}

static int close_failing(int fd, int error)
{
    close(fd);
    errno = error;
    return -1;
}

int ga_output_open(const char *path, ga_output_mode mode)
{
    struct stat there;
    int descriptor = mode == GA_OUTPUT_NEW ? -1 : ga_output_descriptor(path);
    if (descriptor >= 0) {
        return fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    }
    int how = mode == GA_OUTPUT_NEW ? O_EXCL : mode == GA_OUTPUT_APPEND ? O_APPEND : 0;
    int fd = open(path, FLAGS | how, MODE);
    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, &there) != 0) {
        return close_failing(fd, errno);
    }
    if (!kind_allowed(there.st_mode, mode)) {
        return close_failing(fd, EINVAL);
    }
    /* Not O_TRUNC: the kind is checked first. */
    bool emptied = mode != GA_OUTPUT_REPLACE || !S_ISREG(there.st_mode) || ftruncate(fd, 0) == 0;
    return emptied ? fd : close_failing(fd, errno);
}

FILE *ga_output_stream(const char *path)
{
    int fd = ga_output_open(path, GA_OUTPUT_REPLACE);
    int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
    if (flags >= 0 && ga_output_descriptor(path) < 0) {
        (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    }
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "w");
    if (fd >= 0 && !stream) {
        close_failing(fd, errno);
    }
    return stream;
}

bool ga_output_possible(const char *path)
{
    struct stat there;
    if (ga_output_descriptor(path) >= 0) {
        return fcntl(ga_output_descriptor(path), F_GETFL) >= 0;
    }
    if (lstat(path, &there) == 0 && (S_ISCHR(there.st_mode) || S_ISFIFO(there.st_mode))) {
        return access(path, W_OK) == 0;
    }
    int fd = ga_output_open(path, GA_OUTPUT_APPEND);
    return fd >= 0 && close(fd) == 0;
}

bool ga_output_write(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, text, length);
        if (written < 0 && errno != EINTR) {
            return false;
        }
        text += written > 0 ? written : 0;
        length -= written > 0 ? (size_t)written : 0;
    }
    return true;
}
