/* SPDX-License-Identifier: MIT
 *
 * Reads device code from a file.
 */
#include "image_file.h"

#include "../../liballoc/platform/libc.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SIZE_MAX_READ = 1 << 30
};

/* A signal may interrupt the calls for a file of a network or of FUSE. A file that is cut meanwhile
 * ends with EIO. */
static bool read_all(int fd, uint8_t *to, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t step = read(fd, to + at, size - at);
        if (step == 0) {
            errno = EIO;
        }
        if (step == 0 || (step < 0 && errno != EINTR)) {
            return false;
        }
        at += step > 0 ? (size_t)step : 0;
    }
    return true;
}

/* Not blocked by a FIFO without a writer, which is then no regular file. */
static int open_file(const char *path)
{
    int fd;
    do {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

static ga_status read_open(void **out, size_t *size, int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        return ga_fail(GA_ERR_IO, "expected a regular file");
    }
    if (status.st_size <= 0 || status.st_size > SIZE_MAX_READ) {
        return ga_fail(GA_ERR_IO, "expected a file of 1 to %d bytes, got %lld", SIZE_MAX_READ,
                       (long long)status.st_size);
    }
    *size = (size_t)status.st_size;
    *out = ga_libc.calloc(1, *size + 1);
    if (!*out) {
        return ga_fail(GA_ERR_MEMORY, "no memory for a file of %zu bytes", *size);
    }
    if (!read_all(fd, *out, *size)) {
        ga_fail(GA_ERR_IO, "the file cannot be read: %s", strerror(errno));
        ga_libc.free(*out);
        *out = NULL;
        return GA_ERR_IO;
    }
    return GA_OK;
}

ga_status ga_image_file_read(void **out, size_t *size, const char *path)
{
    *out = NULL;
    int fd = path ? open_file(path) : -1;
    if (fd < 0) {
        return ga_fail(GA_ERR_IO, "the file cannot be opened: %s",
                       path ? strerror(errno) : "it has no name");
    }
    ga_status status = read_open(out, size, fd);
    close(fd);
    return status;
}
