/* SPDX-License-Identifier: MIT
 *
 * Writes traces: one buffer for each thread and trace, written to the thread's chunk of the file.
 *
 * ga_recorder_note
 *   slot_fill              the thread's first record of this trace: a free buffer and a chunk
 *   add_record             fast path: copy the record to the buffer
 *     buffer_write         slow path: the buffer is full or the last write is FLUSH_NS ago
 *     next_chunk_part      after a full buffer: the rest of the chunk, or a new chunk
 *
 * STRUCTURE  Each thread collects records in a buffer and writes them to its chunk of the file with
 *            pwrite(): when the buffer is full, when FLUSH_NS have passed since the last write, and
 *            when the thread or the process ends. An unfinished chunk of a thread that ended waits
 *            in `spare` for the next thread.
 * INVARIANT  a chunk belongs to one thread or is in `spare`, never both. A record has one position
 *            in the file only, so that writing it twice does no harm.
 * ORDER      `lock` guards the list of recorders and buffers, the file's end and `spare`. A
 *            buffer's `writing` is acquired after it and guards the writes. TR1 makes a record
 *            whole.
 * PROGRESS   recording is wait-free until the buffer is full; then the thread writes the file
 *
 * The file is not mapped: another process that truncates a mapped file, a full disk below a
 * copy-on-write file system, or an I/O error would end the program with SIGBUS.
 *
 * The file is opened by its path for each write and checked to be the same file: the program could
 * close a descriptor that we keep, and its number could then mean one of the program's files.
 *
 * Children: the fork handlers make a child begin a file of its own. _Fork() and clone() run no
 * handlers; there the child finds a page of zeros that the kernel wipes in copies of the memory.
 * The child of vfork() shares the memory and the heap, so its records belong in the parent's trace.
 */
#include "recorder.h"

#include "../../platform/forks.h"
#include "../../platform/libc.h"
#include "../../platform/log.h"
#include "../../platform/thread.h"
#include "modules.h"
#include "stacks.h"
#include "trace_file.h"
#include "unwind.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    SPARES = 256,
    FLUSH_NS = 100000,       /* a write costs about 2 us, so writes cost at most 2 % of the time */
    EXIT_WAIT_NS = 100000000 /* longest wait for a mutex when the process ends */
};

_Static_assert(GA_TRACE_CHUNK_BYTES % (GA_RECORDER_BATCH * GA_TRACE_PLAIN_BYTES) == 0 &&
                   GA_TRACE_STACKS_CHUNK_BYTES % (GA_RECORDER_BATCH * sizeof(ga_trace_record)) == 0,
               "a chunk is a whole number of buffers");

/* The free part of a chunk, [at, end) of the file, of which the first `count` records are used. */
typedef struct chunk {
    off_t at, end;
    unsigned count;
} chunk;

struct ga_recorder {
    ga_recorder *following; /* in `recorders`, guarded by `lock` */
    unsigned users;         /* guarded by `lock` */
    ga_trace_file file;     /* guarded by `lock`; name, depth and mono_ns are constant */
    ga_stacks *stacks;      /* NULL: the trace has no call stacks */
    unsigned batch;         /* records to buffer at most; relaxed: a new value may be seen late */
    bool stopped;           /* relaxed: a thread that sees it late only makes one more attempt */
    unsigned spares;        /* guarded by `lock` */
    chunk spare[SPARES];
};

/* Records of one thread, with their position in the file: records[0] at offset `at`. */
typedef struct buffer {
    struct buffer *following; /* in `buffers`, guarded by `lock` */
    ga_recorder *recorder;    /* NULL: no thread uses the buffer; guarded by `lock` */
    pthread_mutex_t writing;  /* guards `at` and `end`; held while records are written */
    off_t at, end;            /* `end`: of the chunk */
    unsigned count;           /* stored only by the owner: TR1 */
    unsigned written;         /* number of these in the file; stored with `writing` held */
    uint64_t written_ns;      /* time of the last record at the owner's last write; used by the
                               * owner only */
    size_t each;              /* bytes of a record in this trace */
    unsigned char records[GA_RECORDER_BATCH * sizeof(ga_trace_record)];
} buffer;

/* The buffer that this thread fills, and its trace. */
typedef struct thread_slot {
    ga_recorder *recorder;
    buffer *buffer;
    unsigned process_version; /* an older one in a forked child */
} thread_slot;

static ga_forked_lock lock = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static ga_recorder *recorders; /* guarded by `lock` */
static buffer *buffers;        /* guarded by `lock` */
static unsigned process_version = 1;
static pid_t process_id; /* cached, so that the child of vfork() uses its parent's */
static _Thread_local thread_slot my_slot;

/* Equal to `process_version`; 0 in a copy of the process that has not called begin_child(). Points
 * to a page that the kernel wipes in copies, or to `unwiped` if it cannot. */
static unsigned unwiped = 1;
static unsigned *wiped_version = &unwiped;

/* ---- the trace ------------------------------------------------------------------------------- */

static void stop(ga_recorder *r, const char *why)
{
    if (!__atomic_exchange_n(&r->stopped, true, __ATOMIC_RELAXED)) { /* relaxed, see the member */
        ga_log(GA_LOG_ERROR, "trace: %s: %s; the trace ends here", r->file.path, why);
    }
}

static bool is_stopped(const ga_recorder *r)
{
    return __atomic_load_n(&r->stopped, __ATOMIC_RELAXED); /* relaxed, see the member */
}

/* ---- chunks: with the lock held -------------------------------------------------------------- */

/* The new chunk is a hole in the file, so that records which are never written read as zeros. */
static bool add_chunk(int fd, void *file)
{
    const ga_trace_file *f = file;
    off_t end = f->end + (off_t)ga_trace_file_chunk(f);
    return ga_trace_file_allows(end) && ftruncate(fd, end) == 0;
}

static bool chunk_new(ga_recorder *r, chunk *out)
{
    ga_trace_file *f = &r->file;
    if (!f->begun && ga_trace_file_start(f, process_id) != GA_OK) {
        stop(r, ga_error_text());
        return false;
    }
    const char *why = ga_trace_file_use(f, f->size, add_chunk, f);
    if (why) {
        stop(r, why);
        return false;
    }
    *out = (chunk){f->end, f->end + (off_t)ga_trace_file_chunk(f), 0};
    f->size = f->end = out->end;
    return true;
}

static bool chunk_claim(ga_recorder *r, chunk *out)
{
    if (r->spares) {
        *out = r->spare[--r->spares];
        return true;
    }
    return !is_stopped(r) && chunk_new(r, out);
}

/* ---- buffers --------------------------------------------------------------------------------- */

typedef struct span {
    const buffer *buffer;
    unsigned first, end;
} span;

static bool write_span(int fd, void *context)
{
    const span *s = context;
    const size_t each = s->buffer->each;
    off_t at = s->buffer->at + (off_t)(s->first * each);
    size_t size = (s->end - s->first) * each;
    return ga_trace_file_allows(at + (off_t)size) &&
           ga_trace_file_write(fd, s->buffer->records + s->first * each, size, at);
}

/* With `writing` held. */
static void write_ready(buffer *b, ga_recorder *r)
{
    /* TR2: acquire. Pairs with TR1: records of another thread are complete. */
    unsigned ready = __atomic_load_n(&b->count, __ATOMIC_ACQUIRE);
    span s = {b, b->written, ready};
    if (s.first < s.end && !is_stopped(r)) {
        const char *why = ga_trace_file_use(&r->file, b->end, write_span, &s);
        if (why) {
            stop(r, why);
        }
    }
    /* relaxed: the owner uses it to decide whether to write, and writing twice does no harm */
    __atomic_store_n(&b->written, ready, __ATOMIC_RELAXED);
}

static void buffer_write(buffer *b, ga_recorder *r)
{
    pthread_mutex_lock(&b->writing);
    write_ready(b, r);
    pthread_mutex_unlock(&b->writing);
}

static void buffer_set(buffer *b, chunk part)
{
    pthread_mutex_lock(&b->writing);
    b->at = part.at;
    b->end = part.end;
    b->written = part.count;
    /* relaxed: `writing` guards the writes */
    __atomic_store_n(&b->count, part.count, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&b->writing);
}

static buffer *buffer_new(void)
{
    buffer *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED) {
        return NULL;
    }
    pthread_mutex_init(&b->writing, NULL);
    b->following = buffers;
    buffers = b;
    return b;
}

/* An unused buffer; NULL without memory. With the lock held. */
static buffer *buffer_claim(void)
{
    buffer *b = buffers;
    while (b && b->recorder) {
        b = b->following;
    }
    return b ? b : buffer_new();
}

/* ---- desks: with the lock held --------------------------------------------------------------- */

static void slot_clear(thread_slot *d)
{
    buffer *b = d->process_version == process_version ? d->buffer : NULL;
    ga_recorder *r = d->recorder;
    *d = (thread_slot){0};
    if (!b) {
        return;
    }
    buffer_write(b, r);
    if (b->at < b->end && r->spares < SPARES) {
        r->spare[r->spares++] = (chunk){b->at, b->end, b->count};
    }
    b->recorder = NULL;
}

static void slot_fill(thread_slot *d, ga_recorder *r)
{
    chunk part;
    slot_clear(d);
    *d = (thread_slot){r, NULL, process_version};
    buffer *b = buffer_claim();
    if (!b) {
        stop(r, strerror(ENOMEM));
    } else if (chunk_claim(r, &part)) {
        b->written_ns = 0;
        b->recorder = r;
        b->each = ga_trace_file_record(&r->file);
        buffer_set(b, part);
        d->buffer = b;
    }
}

/* ---- processes ------------------------------------------------------------------------------- */

/* The buffers hold the parent's records, so the child drops them. It begins a file of its own with
 * its first record, so that a child which only calls exec() leaves none. The child has one
 * thread. */
static void begin_child(void)
{
    process_id = getpid();
    *wiped_version = ++process_version;
    ga_thread_begin_child();
    for (buffer *b = buffers; b; b = b->following) {
        pthread_mutex_init(&b->writing, NULL);
        b->recorder = NULL;
    }
    for (ga_recorder *r = recorders; r; r = r->following) {
        r->spares = 0;
        r->file.begun = false;
        if (r->stacks) {
            ga_stacks_begin_child(r->stacks);
        }
    }
    ga_modules_begin_child();
}

/* relaxed: a child has one thread at its first call */
static bool begun_in_this_process(void)
{
    return __atomic_load_n(wiped_version, __ATOMIC_RELAXED) == process_version;
}

/* In a child of _Fork() or clone() a thread that does not exist there may hold the mutex. */
static void lock_all(void)
{
    if (!begun_in_this_process()) {
        begin_child();
        lock = (ga_forked_lock){.mutex = PTHREAD_MUTEX_INITIALIZER, .used = true};
    }
    pthread_mutex_lock(&lock.mutex);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&lock.mutex);
}

static void on_thread_exit(void)
{
    lock_all();
    slot_clear(&my_slot);
    unlock_all();
    ga_stacks_leave_thread();
}

static void on_fork_prepare(void)
{
    ga_modules_fork_prepare();
    ga_forked_lock_prepare(&lock);
}

static void on_fork_parent(void)
{
    ga_forked_lock_parent(&lock);
    ga_modules_fork_parent();
}

/* An allocation in another room's handler may have called begin_child() already. */
static void on_fork_child(void)
{
    if (wiped_version == &unwiped || !begun_in_this_process()) {
        begin_child();
    }
    ga_forked_lock_child(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, on_fork_prepare, on_fork_parent, on_fork_child);
}

/* Kernels before 4.14 do not wipe pages; there only the fork handlers detect a child. */
static void watch_copies(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned *word = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    process_id = getpid();
    if (word == MAP_FAILED) {
        return;
    }
    if (madvise(word, page, MADV_WIPEONFORK) != 0) {
        munmap(word, page);
        return;
    }
    *word = process_version;
    wiped_version = word;
}

static void watch(void)
{
    watch_copies();
    ga_thread_on_exit(on_thread_exit);
}

/* Waits only briefly, because a signal handler that calls exit() may have interrupted the thread
 * that holds the mutex. */
static bool lock_briefly(pthread_mutex_t *mutex)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += EXIT_WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return pthread_mutex_timedlock(mutex, &until) == 0;
}

/* Runs when the process ends. Later records, from destructors and threads that still run, are
 * written one by one. */
__attribute__((destructor)) static void write_all(void)
{
    if (!begun_in_this_process() || !lock_briefly(&lock.mutex)) {
        return;
    }
    for (ga_recorder *r = recorders; r; r = r->following) {
        __atomic_store_n(&r->batch, 1, __ATOMIC_RELAXED); /* relaxed, see the member */
    }
    for (buffer *b = buffers; b; b = b->following) {
        if (b->recorder && lock_briefly(&b->writing)) {
            write_ready(b, b->recorder);
            pthread_mutex_unlock(&b->writing);
        }
    }
    unlock_all();
}

/* ---- the interface --------------------------------------------------------------------------- */

static ga_status recorder_new(ga_recorder **out, const char *path, unsigned batch, unsigned depth)
{
    ga_recorder *r = ga_libc.calloc(1, sizeof *r);
    if (!r || (depth && !(r->stacks = ga_stacks_new(depth)))) {
        ga_libc.free(r);
        return ga_fail(GA_ERR_MEMORY, "trace: no memory for the trace's record");
    }
    r->batch = batch;
    r->file.depth = depth;
    snprintf(r->file.name, sizeof r->file.name, "%s", path);
    ga_status status = ga_trace_file_start(&r->file, process_id);
    if (status != GA_OK) {
        ga_stacks_delete(r->stacks);
        ga_libc.free(r);
        return status;
    }
    r->following = recorders;
    recorders = r;
    *out = r;
    return GA_OK;
}

/* Whether the trace can continue in its file, or in the file that a child has yet to begin. */
static bool can_continue(const ga_recorder *r)
{
    return !is_stopped(r) && (!r->file.begun || ga_trace_file_is_there(&r->file));
}

/* The trace that this process writes to `path`, or a new one. With the lock held. */
static ga_status find_or_begin(ga_recorder **out, const char *path, unsigned batch, unsigned depth)
{
    ga_recorder *r = recorders;
    while (r && (strcmp(r->file.name, path) != 0 || !can_continue(r))) {
        r = r->following;
    }
    if (!r) {
        return recorder_new(out, path, batch, depth);
    }
    if (r->file.depth != depth) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "trace: stacks: \"%.300s\" is being written with stacks=%u: expected the "
                       "same, got %u",
                       path, r->file.depth, depth);
    }
    *out = r;
    return GA_OK;
}

ga_status ga_recorder_open(ga_recorder **out, const char *path, unsigned batch, unsigned depth)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    *out = NULL;
    if (!*path || strlen(path) >= PATH_MAX) {
        return ga_fail(GA_ERR_IO, "trace: file: expected a path of 1 to %d bytes, got %zu",
                       PATH_MAX - 1, strlen(path));
    }
    watch_forks();
    pthread_once(&once, watch);
    if (depth) {
        ga_unwind_ready(); /* here rather than inside malloc, and untraced */
    }
    ga_forked_lock_use(&lock);
    lock_all();
    ga_recorder *r = NULL;
    ga_status status = find_or_begin(&r, path, batch, depth);
    if (status == GA_OK) {
        r->users++;
        if (batch < r->batch) {
            __atomic_store_n(&r->batch, batch, __ATOMIC_RELAXED); /* relaxed, see the member */
        }
        *out = r;
    }
    unlock_all();
    return status;
}

/* The recorder is never freed, because threads may still have buffers for it. */
void ga_recorder_close(ga_recorder *recorder)
{
    lock_all();
    recorder->users--;
    for (buffer *b = buffers; b; b = b->following) {
        if (b->recorder == recorder) {
            buffer_write(b, recorder);
        }
    }
    unlock_all();
}

void ga_recorder_lock(void)
{
    lock_all();
}

void ga_recorder_unlock(void)
{
    unlock_all();
}

static void begin_if_child(void)
{
    int saved = errno;
    if (!begun_in_this_process()) {
        lock_all();
        unlock_all();
    }
    errno = saved;
}

uint32_t ga_recorder_stack(ga_recorder *recorder, uint64_t now_ns)
{
    if (!recorder->stacks || is_stopped(recorder)) {
        return 0;
    }
    begin_if_child();
    return ga_stacks_here(recorder->stacks, recorder, now_ns);
}

uint64_t ga_recorder_now(const ga_recorder *recorder)
{
    return ga_trace_clock_ns(CLOCK_MONOTONIC) - recorder->file.mono_ns;
}

/* The full buffer has been written: continue after it in the chunk, or in a new chunk. */
static void next_chunk_part(thread_slot *d)
{
    buffer *b = d->buffer;
    chunk part = {b->at + (off_t)(GA_RECORDER_BATCH * b->each), b->end, 0};
    if (part.at < part.end) {
        buffer_set(b, part);
        return;
    }
    lock_all();
    bool found = chunk_claim(d->recorder, &part);
    if (!found) {
        b->recorder = NULL;
        d->buffer = NULL;
    }
    unlock_all();
    if (found) {
        buffer_set(b, part);
    }
}

static void add_record(thread_slot *d, const ga_trace_record *record)
{
    buffer *b = d->buffer;
    unsigned count = b->count;
    ga_trace_record *slot = memcpy(b->records + count * b->each, record, b->each);
    slot->thread = ga_thread_id();
    count++;
    /* TR1: release. Pairs with TR2: a thread that writes another thread's buffer, because a heap is
     * closed or the process ends, finds the record complete. */
    __atomic_store_n(&b->count, count, __ATOMIC_RELEASE);
    /* relaxed, both: see the members */
    unsigned kept = count - __atomic_load_n(&b->written, __ATOMIC_RELAXED);
    bool due = kept >= __atomic_load_n(&d->recorder->batch, __ATOMIC_RELAXED) ||
               record->time_ns - b->written_ns >= FLUSH_NS;
    if (due || count == GA_RECORDER_BATCH) {
        buffer_write(b, d->recorder);
        b->written_ns = record->time_ns;
    }
    if (count == GA_RECORDER_BATCH) {
        next_chunk_part(d);
    }
}

void ga_recorder_note(ga_recorder *recorder, const ga_trace_record *record)
{
    thread_slot *d = &my_slot;
    thread_slot temporary = {0};
    int saved = errno;
    if (!ga_thread_enroll()) {
        d = &temporary; /* no hook would release the buffer when this thread ends */
    }
    if (d->recorder != recorder || d->process_version != *wiped_version) {
        lock_all();
        slot_fill(d, recorder);
        unlock_all();
    }
    if (d->buffer) {
        add_record(d, record);
    }
    if (d == &temporary) {
        lock_all();
        slot_clear(d);
        unlock_all();
    }
    errno = saved;
}
