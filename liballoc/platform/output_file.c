/* SPDX-License-Identifier: MIT */
#include "output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The number that is the whole of `text`, or -1. */
static int number_of(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits && digits < 9 && !text[digits] ? atoi(text) : -1;
}

/* The process's own descriptor that the path names, or -1. */
static int descriptor_of(const char *path)
{
    static const char folder[] = "/dev/fd/";
    if (strcmp(path, "/dev/stdout") == 0) {
        return STDOUT_FILENO;
    }
    if (strcmp(path, "/dev/stderr") == 0) {
        return STDERR_FILENO;
    }
    return strncmp(path, folder, strlen(folder)) == 0 ? number_of(path + strlen(folder)) : -1;
}

static bool is_writable_kind(int fd)
{
    struct stat there;
    return fstat(fd, &there) == 0 &&
           (S_ISREG(there.st_mode) || S_ISCHR(there.st_mode) || S_ISFIFO(there.st_mode));
}

int ga_output_open(const char *path)
{
    int own = descriptor_of(path);
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
