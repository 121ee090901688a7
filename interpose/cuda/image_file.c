/* SPDX-License-Identifier: MIT
 *
 * Reads device code from a file.
 */
#include "image_file.h"

#include "../../liballoc/platform/libc.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SIZE_MAX_READ = 1 << 30
};

static bool read_all(int fd, uint8_t *to, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t step = read(fd, to + at, size - at);
        if (step <= 0) {
            return false;
        }
        at += (size_t)step;
    }
    return true;
}

static void *read_open(int fd, size_t *size)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size <= 0 ||
        status.st_size > SIZE_MAX_READ) {
        return NULL;
    }
    *size = (size_t)status.st_size;
    uint8_t *content = ga_libc.calloc(1, *size + 1);
    if (content && !read_all(fd, content, *size)) {
        ga_libc.free(content);
        content = NULL;
    }
    return content;
}

/* Not blocked by a FIFO without a writer, which is then no regular file. */
void *ga_image_file_read(const char *path, size_t *size)
{
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    void *content = fd >= 0 ? read_open(fd, size) : NULL;
    if (fd >= 0) {
        close(fd);
    }
    return content;
}
