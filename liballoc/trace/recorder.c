/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  each thread fills a chunk of the file through a shared mapping. A chunk that its
 *            thread leaves behind waits in `spare` for the next thread.
 * INVARIANT  a chunk is in the hands of one thread, or in `spare`, never both
 * ORDER      `lock` guards the file's end and `spare`; R1 closes a record
 * PROGRESS   a note is wait-free within a chunk; a new chunk takes the lock
 *
 * The file is opened anew by its path for each chunk and checked to be the same: a descriptor kept
 * open could be closed by the program and then mean one of its own files.
 */
#include "recorder.h"

#include "../platform/forks.h"
#include "../platform/libc.h"
#include "../platform/log.h"
#include "../platform/thread.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    CHUNK_RECORDS = GA_TRACE_CHUNK_BYTES / sizeof(ga_trace_record),
    SPARES = 256
};

/* The unwritten rest of a chunk. */
typedef struct chunk {
    ga_trace_record *next, *end;
} chunk;

struct ga_recorder {
    ga_recorder *following;   /* in `recorders`, guarded by `lock` */
    unsigned users;           /* guarded by `lock` */
    char wanted[PATH_MAX];    /* as the user named it */
    char path[PATH_MAX + 32]; /* absolute, the file that is written */
    bool begun;               /* false in a forked child until its first record; under `lock` */
    dev_t device;
    ino_t inode;
    off_t end; /* guarded by `lock` */
    /* When the trace began, on two clocks. A forked child's file counts from there as well. */
    uint64_t start_ns, mono_ns;
    bool stopped;    /* relaxed: a thread that sees it late only tries in vain */
    unsigned spares; /* guarded by `lock` */
    chunk spare[SPARES];
};

/* The chunk this thread is filling, and for whom. */
typedef struct desk {
    ga_recorder *recorder;
    unsigned generation; /* of the process: a forked child's desk is from another one */
    chunk chunk;
} desk;

static ga_forked_lock lock = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static ga_recorder *recorders; /* guarded by `lock` */
static unsigned generation;    /* written in a forked child before it has a second thread */
static _Thread_local desk mine;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- the file -------------------------------------------------------------------------- */

static bool expand_path(ga_recorder *r)
{
    char cwd[PATH_MAX] = "";
    if (r->wanted[0] != '/' && !getcwd(cwd, sizeof cwd)) {
        return false;
    }
    const char *mark = strstr(r->wanted, "%p");
    int head = mark ? (int)(mark - r->wanted) : (int)strlen(r->wanted);
    char pid[16] = "";
    if (mark) {
        snprintf(pid, sizeof pid, "%d", (int)getpid());
    }
    int length = snprintf(r->path, PATH_MAX, "%s%s%.*s%s%s", cwd, *cwd ? "/" : "", head, r->wanted,
                          pid, mark ? mark + 2 : "");
    return length > 0 && length < PATH_MAX;
}

/* Never writes over a file: what is there may be the trace of this process's parent, or of the
 * program that this process was before an exec. FILE, then FILE.PID, FILE.PID.1, ... For the user
 * alone, because a trace holds the addresses of live blocks. */
static int create_file(ga_recorder *r)
{
    size_t length = strlen(r->path);
    int fd = -1;
    errno = EEXIST;
    for (int try = 0; fd < 0 && errno == EEXIST && try < 100; try++) {
        char suffix[32] = "";
        if (try > 0) {
            snprintf(suffix, sizeof suffix, try == 1 ? ".%d" : ".%d.%d", (int)getpid(), try - 1);
        }
        snprintf(r->path + length, sizeof r->path - length, "%s", suffix);
        fd = open(r->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    return fd;
}

static ga_trace_header header_now(ga_recorder *r)
{
    long page = sysconf(_SC_PAGESIZE);
    if (!r->start_ns) {
        r->start_ns = clock_ns(CLOCK_REALTIME);
        r->mono_ns = clock_ns(CLOCK_MONOTONIC);
    }
    r->end = page;
    return (ga_trace_header){
        .magic = GA_TRACE_MAGIC,
        .abi = GA_TRACE_ABI,
        .record_size = sizeof(ga_trace_record),
        .data_offset = (uint32_t)page,
        .chunk_bytes = GA_TRACE_CHUNK_BYTES,
        .pid = (uint32_t)getpid(),
        .start_ns = r->start_ns,
    };
}

static ga_status start_file(ga_recorder *r)
{
    struct stat stat;
    if (!expand_path(r)) {
        return ga_fail(GA_ERR_IO, "trace: file: \"%s\" is not a path that can be used", r->wanted);
    }
    int fd = create_file(r);
    if (fd < 0) {
        return ga_fail(GA_ERR_IO, "trace: file: cannot create \"%s\": %s", r->path,
                       strerror(errno));
    }
    ga_trace_header header = header_now(r);
    bool written =
        write(fd, &header, sizeof header) == (ssize_t)sizeof header && fstat(fd, &stat) == 0;
    int error = errno;
    close(fd);
    if (!written) {
        return ga_fail(GA_ERR_IO, "trace: file: cannot write \"%s\": %s", r->path, strerror(error));
    }
    r->device = stat.st_dev;
    r->inode = stat.st_ino;
    r->begun = true;
    return GA_OK;
}

/* The file, if it is still the one that was begun. */
static int reopen_file(const ga_recorder *r)
{
    struct stat stat;
    int fd = open(r->path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &stat) != 0 || stat.st_dev != r->device || stat.st_ino != r->inode)) {
        close(fd);
        errno = ESTALE;
        return -1;
    }
    return fd;
}

/* Zeros in the file before anything is mapped: a store into a page that the disk has no room for
 * would be a SIGBUS. Written, not only allocated: that leaves the pages in the cache, and first
 * stores to them cost a tenth (ext4: 8 us a page where blocks are only allocated). */
static bool write_zeros(int fd, off_t start)
{
    static const char zeros[GA_TRACE_CHUNK_BYTES / 4];
    for (off_t at = start; at < start + (off_t)GA_TRACE_CHUNK_BYTES;) {
        ssize_t written = pwrite(fd, zeros, sizeof zeros, at);
        if (written < 0 && errno != EINTR) {
            return false;
        }
        at += written > 0 ? written : 0;
    }
    return true;
}

static void *map_next(ga_recorder *r, int fd)
{
    if (!write_zeros(fd, r->end)) {
        return MAP_FAILED;
    }
    void *start = mmap(NULL, GA_TRACE_CHUNK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_POPULATE, fd, r->end);
    if (start != MAP_FAILED) {
        r->end += GA_TRACE_CHUNK_BYTES;
    }
    return start;
}

/* ---- chunks: with the lock held --------------------------------------------------------- */

static void stop(ga_recorder *r, const char *why)
{
    if (!__atomic_exchange_n(&r->stopped, true, __ATOMIC_RELAXED)) { /* relaxed, see the member */
        ga_log(GA_LOG_ERROR, "trace: %s: %s; the trace ends here", r->path, why);
    }
}

static chunk chunk_new(ga_recorder *r)
{
    if (!r->begun && start_file(r) != GA_OK) {
        stop(r, ga_error_text());
        return (chunk){0};
    }
    int fd = reopen_file(r);
    void *start = fd < 0 ? MAP_FAILED : map_next(r, fd);
    if (start == MAP_FAILED) {
        stop(r, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    ga_trace_record *first = start == MAP_FAILED ? NULL : start;
    return (chunk){first, first ? first + CHUNK_RECORDS : NULL};
}

static void chunk_leave(ga_recorder *r, chunk left)
{
    if (left.next && left.next < left.end && r->spares < SPARES) {
        r->spare[r->spares++] = left;
    } else if (left.end) {
        munmap(left.end - CHUNK_RECORDS, GA_TRACE_CHUNK_BYTES);
    }
}

static void desk_clear(desk *d)
{
    if (d->recorder && d->generation == generation) {
        chunk_leave(d->recorder, d->chunk);
    }
    *d = (desk){0};
}

static void desk_take(desk *d, ga_recorder *r)
{
    desk_clear(d);
    bool stopped = __atomic_load_n(&r->stopped, __ATOMIC_RELAXED); /* relaxed, see the member */
    chunk taken = r->spares ? r->spare[--r->spares] : stopped ? (chunk){0} : chunk_new(r);
    *d = (desk){r, generation, taken};
}

/* ---- threads and processes -------------------------------------------------------------- */

static void on_thread_exit(void)
{
    pthread_mutex_lock(&lock.mutex);
    desk_clear(&mine);
    pthread_mutex_unlock(&lock.mutex);
}

static void on_fork_prepare(void)
{
    ga_forked_lock_prepare(&lock);
}

static void on_fork_parent(void)
{
    ga_forked_lock_parent(&lock);
}

/* The chunks in memory are the parent's: the child forgets them and begins a file of its own with
 * its first record, so that one that only execs leaves none. */
static void on_fork_child(void)
{
    generation++;
    for (ga_recorder *r = recorders; r; r = r->following) {
        r->spares = 0;
        r->begun = false;
    }
    ga_forked_lock_child(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, on_fork_prepare, on_fork_parent, on_fork_child);
}

static void watch_threads(void)
{
    ga_thread_on_exit(on_thread_exit);
}

/* ---- the interface ---------------------------------------------------------------------- */

static ga_status recorder_new(ga_recorder **out, const char *path)
{
    ga_recorder *r = ga_libc.calloc(1, sizeof *r);
    if (!r) {
        return ga_fail(GA_ERR_MEMORY, "trace: no memory for the trace's record");
    }
    snprintf(r->wanted, sizeof r->wanted, "%s", path);
    ga_status status = start_file(r);
    if (status != GA_OK) {
        ga_libc.free(r);
        return status;
    }
    r->following = recorders;
    recorders = r;
    *out = r;
    return GA_OK;
}

/* Whether a trace goes on in the file it was begun in; a child that has not begun its own counts. */
static bool goes_on(const ga_recorder *r)
{
    if (__atomic_load_n(&r->stopped, __ATOMIC_RELAXED)) { /* relaxed, see the member */
        return false;
    }
    int fd = r->begun ? reopen_file(r) : -1;
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0 || !r->begun;
}

ga_status ga_recorder_open(ga_recorder **out, const char *path)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *out = NULL;
    if (!*path || strlen(path) >= PATH_MAX) {
        return ga_fail(GA_ERR_IO, "trace: file: expected a path of 1 to %d bytes, got %zu",
                       PATH_MAX - 1, strlen(path));
    }
    watch_forks();
    pthread_once(&once, watch_threads);
    ga_forked_lock_want(&lock);
    pthread_mutex_lock(&lock.mutex);
    ga_recorder *r = recorders;
    while (r && (strcmp(r->wanted, path) != 0 || !goes_on(r))) {
        r = r->following;
    }
    ga_status status = r ? GA_OK : recorder_new(&r, path);
    if (status == GA_OK) {
        r->users++;
        *out = r;
    }
    pthread_mutex_unlock(&lock.mutex);
    return status;
}

/* The record of the trace stays: threads that wrote to it have chunks of it in hand. */
void ga_recorder_close(ga_recorder *recorder)
{
    pthread_mutex_lock(&lock.mutex);
    recorder->users--;
    pthread_mutex_unlock(&lock.mutex);
}

uint64_t ga_recorder_now(const ga_recorder *recorder)
{
    return clock_ns(CLOCK_MONOTONIC) - recorder->mono_ns;
}

static void write_record(ga_trace_record *slot, const ga_trace_record *record)
{
    ga_trace_record whole = *record;
    whole.thread = ga_thread_id();
    whole.operation = GA_TRACE_NONE;
    *slot = whole;
    /* R1: release. Pairs with the end of the process, or whoever reads the file beside it: the
     * operation comes last, so that a record cut short by a kill counts as unwritten. */
    __atomic_store_n(&slot->operation, record->operation, __ATOMIC_RELEASE);
}

void ga_recorder_note(ga_recorder *recorder, const ga_trace_record *record)
{
    desk *d = &mine;
    desk passing = {0};
    int saved = errno;
    if (!ga_thread_enroll()) {
        d = &passing; /* nobody would give a chunk back when this thread ends */
    }
    if (d->recorder != recorder || d->generation != generation || d->chunk.next == d->chunk.end) {
        pthread_mutex_lock(&lock.mutex);
        desk_take(d, recorder);
        pthread_mutex_unlock(&lock.mutex);
    }
    if (d->chunk.next < d->chunk.end) {
        write_record(d->chunk.next++, record);
    }
    if (d == &passing) {
        pthread_mutex_lock(&lock.mutex);
        desk_clear(d);
        pthread_mutex_unlock(&lock.mutex);
    }
    errno = saved;
}
