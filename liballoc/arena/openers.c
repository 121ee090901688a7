/* SPDX-License-Identifier: MIT
 *
 * Byte 0 is locked while the arena is published. A byte for each reader follows, and further up one
 * for each writer. All are read locks, for which a descriptor without the right to write is enough.
 */
#include "openers.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const off_t READERS = 1;
static const off_t WRITERS = (off_t)1 << 61;
static const off_t END = (off_t)1 << 62;

ga_status ga_openers_create(int *file)
{
    *file = memfd_create("gpualloc-openers", MFD_CLOEXEC);
    return *file >= 0 ? GA_OK
                      : ga_fail(GA_ERR_MEMORY, "no file to count openers: %s", strerror(errno));
}

static ga_status set_lock(int file, short type, off_t byte)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(file, F_OFD_SETLK, &lock) == 0
               ? GA_OK
               : ga_fail(GA_ERR_MEMORY, "no lock to count openers: %s", strerror(errno));
}

ga_status ga_openers_publish(int file, bool published)
{
    return set_lock(file, published ? F_RDLCK : F_UNLCK, 0);
}

ga_status ga_openers_reopen(int file, int *out)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    *out = open(path, O_RDONLY | O_CLOEXEC);
    if (*out >= 0) {
        return GA_OK;
    }
    return ga_fail(errno == ENOENT ? GA_ERR_UNSUPPORTED : GA_ERR_MEMORY, "cannot open %s: %s", path,
                   strerror(errno));
}

ga_status ga_openers_add(int file, ga_opener kind, uint64_t number, int *out)
{
    off_t first = kind == GA_OPENER_WRITER ? WRITERS : READERS;
    ga_status status = ga_openers_reopen(file, out);
    if (status == GA_OK) {
        status = set_lock(*out, F_RDLCK, first + (off_t)number);
        if (status != GA_OK) {
            close(*out);
            *out = -1;
        }
    }
    return status;
}

/* Add the number of locked bytes in [start, end), without those of this descriptor. The kernel
 * returns any one of the locks; usually the first, so that the recursion is flat. */
static ga_status count_locks(int file, off_t start, off_t end, uint64_t *count)
{
    while (start < end) {
        struct flock lock = {
            .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = end - start};
        if (fcntl(file, F_OFD_GETLK, &lock) != 0) {
            return ga_fail(GA_ERR_UNSUPPORTED, "cannot count openers: %s", strerror(errno));
        }
        if (lock.l_type == F_UNLCK) {
            return GA_OK;
        }
        ++*count;
        ga_status status = count_locks(file, start, lock.l_start, count);
        if (status != GA_OK) {
            return status;
        }
        start = lock.l_start + lock.l_len;
    }
    return GA_OK;
}

ga_status ga_openers_count(int file, ga_opener kind, ga_arena_openers *out)
{
    uint64_t published = 0;
    *out = (ga_arena_openers){.readers = kind == GA_OPENER_READER,
                              .writers = kind == GA_OPENER_WRITER};
    ga_status status = count_locks(file, 0, READERS, &published);
    if (status == GA_OK) {
        status = count_locks(file, READERS, WRITERS, &out->readers);
    }
    if (status == GA_OK) {
        status = count_locks(file, WRITERS, END, &out->writers);
    }
    out->published = published != 0;
    return status;
}
