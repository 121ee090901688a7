/* SPDX-License-Identifier: MIT */
#include "trace_file.h"

#include "../../platform/output_file.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

uint64_t ga_trace_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool expand_path(ga_trace_file *f)
{
    char cwd[PATH_MAX] = "";
    if (f->name[0] != '/' && !getcwd(cwd, sizeof cwd)) {
        return false;
    }
    const char *mark = strstr(f->name, "%p");
    int head = mark ? (int)(mark - f->name) : (int)strlen(f->name);
    char pid[16] = "";
    if (mark) {
        snprintf(pid, sizeof pid, "%d", (int)f->pid);
    }
    int length = snprintf(f->path, PATH_MAX, "%s%s%.*s%s%s", cwd, *cwd ? "/" : "", head, f->name,
                          pid, mark ? mark + 2 : "");
    return length > 0 && length < PATH_MAX;
}

/* Never overwrites a file, because it may be the trace of this process's parent, or of the program
 * that this process was before an exec. Tries FILE, FILE.PID, FILE.PID.1, ... Readable for the user
 * only, because a trace holds the addresses of live blocks. */
static int create_file(ga_trace_file *f)
{
    size_t length = strlen(f->path);
    int fd = -1;
    errno = EEXIST;
    for (int try = 0; fd < 0 && errno == EEXIST && try < 100; try++) {
        char suffix[32] = "";
        if (try > 0) {
            snprintf(suffix, sizeof suffix, try == 1 ? ".%d" : ".%d.%d", (int)f->pid, try - 1);
        }
        snprintf(f->path + length, sizeof f->path - length, "%s", suffix);
        fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    return fd;
}

/* The kind of a path that is not a regular file, or NULL. So that no "/dev/null.PID" is made beside
 * a device or a directory. */
static const char *foreign_kind(const char *path)
{
    struct stat there;
    if (strcmp(path, "-") == 0 || ga_output_descriptor(path) >= 0) {
        return "a descriptor of this process";
    }
    if (stat(path, &there) != 0 || S_ISREG(there.st_mode)) {
        return NULL;
    }
    return S_ISDIR(there.st_mode)                             ? "a directory"
           : S_ISCHR(there.st_mode) || S_ISBLK(there.st_mode) ? "a device"
                                                              : "a FIFO or a socket";
}

static ga_trace_header header_now(ga_trace_file *f)
{
    long page = sysconf(_SC_PAGESIZE);
    if (!f->start_ns) {
        f->start_ns = ga_trace_clock_ns(CLOCK_REALTIME);
        f->mono_ns = ga_trace_clock_ns(CLOCK_MONOTONIC);
    }
    f->end = page;
    f->size = sizeof(ga_trace_header);
    return (ga_trace_header){
        .magic = GA_TRACE_MAGIC,
        .abi = f->depth ? GA_TRACE_STACKS_ABI : GA_TRACE_ABI,
        .record_size = (uint32_t)ga_trace_file_record(f),
        .data_offset = (uint32_t)page,
        .chunk_bytes = (uint32_t)ga_trace_file_chunk(f),
        .pid = (uint32_t)f->pid,
        .depth = f->depth,
        .start_ns = f->start_ns,
    };
}

ga_status ga_trace_file_start(ga_trace_file *f, pid_t pid)
{
    struct stat stat;
    f->pid = pid;
    if (!expand_path(f)) {
        return ga_fail(GA_ERR_IO, "trace: file: \"%s\" is not a path that can be used", f->name);
    }
    const char *kind = foreign_kind(f->name);
    if (kind) {
        return ga_fail(GA_ERR_IO,
                       "trace: file: \"%.300s\" is %s; expected a regular file or a new one",
                       f->name, kind);
    }
    int fd = create_file(f);
    if (fd < 0) {
        return ga_fail(GA_ERR_IO, "trace: file: cannot create \"%s\": %s", f->path,
                       strerror(errno));
    }
    ga_trace_header header = header_now(f);
    bool written =
        write(fd, &header, sizeof header) == (ssize_t)sizeof header && fstat(fd, &stat) == 0;
    int error = errno;
    close(fd);
    if (!written) {
        return ga_fail(GA_ERR_IO, "trace: file: cannot write \"%s\": %s", f->path, strerror(error));
    }
    f->device = stat.st_dev;
    f->inode = stat.st_ino;
    f->begun = true;
    return GA_OK;
}

/* Open the file if it is still the one that was created; its size in `*size`. */
static int reopen_file(const ga_trace_file *f, off_t *size)
{
    struct stat stat;
    int fd = open(f->path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, &stat) != 0 || stat.st_dev != f->device || stat.st_ino != f->inode)) {
        close(fd);
        errno = ESTALE;
        return -1;
    }
    *size = fd < 0 ? 0 : stat.st_size;
    return fd;
}

bool ga_trace_file_allows(off_t end)
{
    struct rlimit limit;
    errno = EFBIG;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           (rlim_t)end <= limit.rlim_cur;
}

bool ga_trace_file_write(int fd, const void *bytes, size_t size, off_t at)
{
    for (size_t done = 0; done < size;) {
        ssize_t written = pwrite(fd, (const char *)bytes + done, size - done, at + (off_t)done);
        if (written <= 0 && errno != EINTR) {
            return false;
        }
        done += written > 0 ? (size_t)written : 0;
    }
    return true;
}

bool ga_trace_file_is_there(const ga_trace_file *f)
{
    off_t size;
    int fd = reopen_file(f, &size);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

static const char cut_short[] = "another process has cut the file short";

const char *ga_trace_file_use(const ga_trace_file *f, off_t size, bool write(int fd, void *context),
                              void *context)
{
    off_t there;
    const char *why = NULL;
    int fd = reopen_file(f, &there);
    if (fd < 0) {
        return strerror(errno);
    }
    if (there < size) {
        why = cut_short;
    } else if (!write(fd, context)) {
        why = strerror(errno);
    }
    close(fd);
    return why;
}
