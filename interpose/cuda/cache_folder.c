/* SPDX-License-Identifier: MIT
 *
 * The folder is GPUALLOC_CACHE, else gpualloc in the user's cache directory.
 *
 * The folder and its files must belong to the user and be writable by nobody else, and symbolic
 * links are refused, because the files are code that runs with the user's rights. All accesses are
 * relative to the descriptor of the folder that was checked.
 *
 * A writer makes a temporary file and renames it, so a reader finds a whole file or none. It does
 * not wait for the disk: after a crash of the machine a file may be damaged, which callers detect
 * by a checksum.
 *
 * A use of a file sets its time, and the files with the oldest times go first. Only files with
 * names as made here are ever removed. To find the oldest takes a look at each file, so writers
 * count in the file UNSEEN what they have written since the last look: its size is the number of
 * units, and one. Writers append, so none is lost; a writer that cannot count looks itself.
 */
#include "cache_folder.h"

#include "../../liballoc/platform/environment.h"
#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/log.h"
#include "../../liballoc/platform/output_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    NAME_SIZE = 64,
    DIGITS = 16 /* of a name */
};

#define FILE_END      ".cubin"
#define TEMPORARY_END ".tmp"
#define UNSEEN        "unseen"

typedef struct folder {
    int fd;
    char path[PATH_MAX];
} folder;

static void unused(const folder *f, const char *file, const char *why)
{
    ga_log(GA_LOG_INFO, "the cache of compiled PTX %s%s%s is not used: %s", f->path,
           *file ? "/" : "", file, why);
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* False: no cache is wanted, or there is no place for one. */
static bool find_path(char path[PATH_MAX])
{
    const char *own = ga_environment("GPUALLOC_CACHE");
    const char *caches = ga_environment("XDG_CACHE_HOME");
    const char *home = ga_environment("HOME");
    int length = 0;
    if (own) {
        length = snprintf(path, PATH_MAX, "%s", own);
    } else if (caches && *caches == '/') {
        length = snprintf(path, PATH_MAX, "%s/gpualloc", caches);
    } else if (home && *home == '/') {
        length = snprintf(path, PATH_MAX, "%s/.cache/gpualloc", home);
    }
    if (length <= 0 || length >= PATH_MAX) {
        return false;
    }
    while (length > 1 && path[length - 1] == '/') { /* behind which a link would be followed */
        path[--length] = '\0';
    }
    return true;
}

/* Make the folder, and the one that it is in. */
static void make(const char *path)
{
    char parent[PATH_MAX];
    if (mkdir(path, 0700) == 0 || errno != ENOENT) {
        return;
    }
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (slash && slash != parent) {
        *slash = '\0';
        mkdir(parent, 0700);
        mkdir(path, 0700);
    }
}

/* NULL: only the user can write there. */
static const char *distrust(int fd, mode_t kind)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return strerror(errno);
    }
    if ((status.st_mode & S_IFMT) != kind) {
        return "expected a regular file";
    }
    if (status.st_uid != geteuid()) {
        return "it belongs to another user";
    }
    return status.st_mode & (S_IWGRP | S_IWOTH) ? "other users can write to it" : NULL;
}

/* Why open() failed. */
static const char *reason_of(int error)
{
    return error == ELOOP || error == ENOTDIR ? "expected no symbolic link" : strerror(error);
}

/* False: `f` is closed, and the reason is logged. */
static bool open_folder(folder *f, bool is_to_be_made)
{
    const int how = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    if (!find_path(f->path)) {
        return false;
    }
    if (f->path[0] != '/') {
        static bool is_said;
        /* relaxed: one call alone logs the line as a warning */
        bool was_said = __atomic_exchange_n(&is_said, true, __ATOMIC_RELAXED);
        ga_log(was_said ? GA_LOG_INFO : GA_LOG_WARN,
               "the cache of compiled PTX %s is not used: expected a path that begins with / in "
               "GPUALLOC_CACHE",
               f->path);
        return false;
    }
    f->fd = open(f->path, how);
    if (f->fd < 0 && errno == ENOENT && is_to_be_made) {
        make(f->path);
        f->fd = open(f->path, how);
    }
    if (f->fd < 0) {
        if (errno != ENOENT || is_to_be_made) {
            unused(f, "", reason_of(errno));
        }
        return false;
    }
    const char *why = distrust(f->fd, S_IFDIR);
    if (why) {
        unused(f, "", why);
        close(f->fd);
    }
    return !why;
}

/* ---- reading --------------------------------------------------------------------------------- */

static const char *read_all(int fd, uint8_t *to, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t step = read(fd, to + at, size - at);
        if (step < 0 && errno != EINTR) {
            return strerror(errno);
        }
        if (step == 0) {
            return "it is shorter than it was";
        }
        at += step > 0 ? (size_t)step : 0;
    }
    return NULL;
}

static const char *read_open(ga_image *out, int fd)
{
    struct stat status;
    const char *why = distrust(fd, S_IFREG);
    if (!why && fstat(fd, &status) != 0) {
        why = strerror(errno);
    }
    if (!why && status.st_size > GA_CACHE_FILE_SIZE_MOST) {
        why = "it is too large";
    }
    if (why) {
        return why;
    }
    size_t size = (size_t)status.st_size;
    uint8_t *content = ga_libc.malloc(size + 1); /* so that a file of 0 bytes has an address */
    why = content ? read_all(fd, content, size) : "there is no memory for it";
    if (why) {
        ga_libc.free(content);
        return why;
    }
    futimens(fd, NULL); /* it was used now; a folder that is read only keeps its times */
    *out = (ga_image){content, size};
    return NULL;
}

static void name_file(char name[NAME_SIZE], uint64_t number)
{
    snprintf(name, NAME_SIZE, "%016llx" FILE_END, (unsigned long long)number);
}

bool ga_cache_folder_read(ga_image *out, uint64_t number)
{
    folder f;
    char name[NAME_SIZE];
    if (!open_folder(&f, false)) {
        return false;
    }
    name_file(name, number);
    /* O_NONBLOCK: a FIFO of that name must not stop the program. */
    int fd = openat(f.fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool is_missing = fd < 0 && errno == ENOENT;
    const char *why = fd < 0 ? reason_of(errno) : read_open(out, fd);
    if (why && !is_missing) {
        unused(&f, name, why);
    }
    if (fd >= 0) {
        close(fd);
    }
    close(f.fd);
    return !why;
}

/* ---- the bound ------------------------------------------------------------------------------- */

typedef struct found {
    char name[NAME_SIZE];
    uint64_t size;
    struct timespec used;
} found;

typedef struct census {
    found *all; /* whole files */
    size_t count, room;
    uint64_t bytes, files; /* with temporary files */
} census;

static int compare(const void *a, const void *b)
{
    const struct timespec x = ((const found *)a)->used;
    const struct timespec y = ((const found *)b)->used;
    return x.tv_sec != y.tv_sec ? (x.tv_sec > y.tv_sec) - (x.tv_sec < y.tv_sec)
                                : (x.tv_nsec > y.tv_nsec) - (x.tv_nsec < y.tv_nsec);
}

/* Without memory, files are left out, and stay. */
static found *add_found(census *c)
{
    if (c->count == c->room) {
        size_t room = c->room ? 2 * c->room : 256;
        found *more = ga_libc.realloc(c->all, room * sizeof *more);
        if (!more) {
            return NULL;
        }
        c->all = more;
        c->room = room;
    }
    return &c->all[c->count++];
}

/* A name that is a number, more if it is a temporary file's, and this end. */
static bool is_ours(const char *name, const char *end)
{
    size_t length = strlen(name);
    bool is_number = length < NAME_SIZE && strspn(name, "0123456789abcdef") == DIGITS;
    bool is_whole = is_number && (name[DIGITS] == '-' || strcmp(name + DIGITS, end) == 0);
    return is_whole && strcmp(name + length - strlen(end), end) == 0;
}

static void count_file(census *c, const folder *f, const char *name)
{
    struct stat status;
    bool is_temporary = is_ours(name, TEMPORARY_END);
    if ((!is_temporary && !is_ours(name, FILE_END)) ||
        fstatat(f->fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) {
        return;
    }
    if (is_temporary && status.st_mtim.tv_sec + GA_CACHE_TEMPORARY_SECONDS < time(NULL)) {
        unlinkat(f->fd, name, 0);
        return;
    }
    c->bytes += (uint64_t)status.st_size;
    c->files++;
    found *e = is_temporary ? NULL : add_found(c);
    if (e) {
        *e = (found){.size = (uint64_t)status.st_size, .used = status.st_mtim};
        memcpy(e->name, name, strlen(name) + 1);
    }
}

static census count_files(const folder *f)
{
    census c = {0};
    int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (!list) {
        if (fd >= 0) {
            close(fd);
        }
        return c;
    }
    for (struct dirent *entry; (entry = readdir(list));) {
        count_file(&c, f, entry->d_name);
    }
    closedir(list);
    return c;
}

/* Whether so much was written since the last scan, with a file of `size` bytes, that one is due. */
static bool is_scan_due(const folder *f, size_t size)
{
    static const char units[GA_CACHE_UNITS_UNSEEN];
    const int how = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    struct stat status;
    size_t count = size / GA_CACHE_UNIT + 1;
    int fd = openat(f->fd, UNSEEN, how, 0600);
    if (fd < 0) {
        return true;
    }
    bool is_known = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
    bool is_due = !is_known || count + (size_t)status.st_size > GA_CACHE_UNITS_UNSEEN + 1;
    int failed = is_due ? ftruncate(fd, 1) : write(fd, units, count) != (ssize_t)count;
    close(fd);
    return is_due || failed;
}

/* A use of the oldest file at this moment costs another process a miss. */
static void drop_oldest(const folder *f)
{
    census c = count_files(f);
    if (c.count) {
        qsort(c.all, c.count, sizeof *c.all, compare);
    }
    for (size_t i = 0;
         i < c.count && (c.bytes > GA_CACHE_SIZE_MOST || c.files > GA_CACHE_FILES_MOST); i++) {
        unlinkat(f->fd, c.all[i].name, 0);
        c.bytes -= c.all[i].size;
        c.files--;
    }
    ga_libc.free(c.all);
}

/* ---- writing --------------------------------------------------------------------------------- */

static const char *write_temporary(const folder *f, const char *name, ga_image content)
{
    int fd = openat(f->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return strerror(errno);
    }
    bool is_written = ga_output_write(fd, (const char *)content.bytes, content.size);
    int error = errno;
    if (close(fd) != 0 && is_written) { /* a network's disk may be full only now */
        is_written = false;
        error = errno;
    }
    return is_written ? NULL : strerror(error);
}

/* Unlike those of other writers; if not, O_EXCL refuses one of the two. */
static void name_temporary(char name[NAME_SIZE], uint64_t number)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, NAME_SIZE, "%016llx-%lx-%llx" TEMPORARY_END, (unsigned long long)number,
             (unsigned long)getpid(),
             (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec);
}

void ga_cache_folder_write(uint64_t number, ga_image content)
{
    folder f;
    char name[NAME_SIZE];
    char temporary[NAME_SIZE];
    if (!open_folder(&f, true)) {
        return;
    }
    name_file(name, number);
    name_temporary(temporary, number);
    const char *why = content.size > GA_CACHE_FILE_SIZE_MOST
                          ? "it is too large"
                          : write_temporary(&f, temporary, content);
    if (!why && renameat(f.fd, temporary, f.fd, name) != 0) {
        why = strerror(errno);
    }
    if (why) {
        unused(&f, name, why);
        unlinkat(f.fd, temporary, 0);
    } else if (is_scan_due(&f, content.size)) {
        drop_oldest(&f);
    }
    close(f.fd);
}
