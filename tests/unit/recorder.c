/* SPDX-License-Identifier: MIT
 *
 * The trace recorder and the trace layer, read back with the reader: every call is there, and
 * nothing that happens to the file or the process harms either.
 */
#include "backends/trace/recorder.h"

#include "backends/trace/reader.h"
#include "support/expect.h"
#include "support/first_call.h"
#include "support/sanitized.h"
#include "support/scene.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RECORDS_MAX = 200000,
    PER_CHUNK = GA_TRACE_CHUNK_BYTES / GA_TRACE_PLAIN_BYTES
};

static ga_heap *heap;
static unsigned batch = 1; /* tests that read while they write see each record at once */
static ga_trace_record records[RECORDS_MAX];
static size_t count;
static ga_trace_header header;

/* ---- in and out --------------------------------------------------------------------------- */

static ga_status open_over(const char *path, const char *parent)
{
    char spec[PATH_MAX + 64];
    snprintf(spec, sizeof spec, "trace:file=\"%s\",batch=%u/%s", path, batch, parent);
    return ga_heap_open(&heap, GA_PLACE_HOST, 0, spec);
}

static const char *open_trace(const char *parent)
{
    scene_enter_folder();
    const char *path = scene_path("t");
    assert_ok(open_over(path, parent));
    return path;
}

static void close_trace(void)
{
    assert_ok(ga_heap_close(heap));
    scene_leave_folder();
}

/* Everything in the file, which must be whole. */
static void read_trace(const char *path)
{
    ga_trace_reader *reader;
    const ga_trace_record *record;
    assert_ok(ga_trace_reader_open(&reader, path));
    header = *ga_trace_reader_header(reader);
    for (count = 0; count < RECORDS_MAX && (record = ga_trace_reader_next(reader)); count++) {
        records[count] = *record;
    }
    cr_assert_eq(ga_trace_reader_damaged(reader), 0);
    cr_assert_eq(ga_trace_reader_cut_bytes(reader), 0);
    ga_trace_reader_close(reader);
}

static void churn(int rounds)
{
    void *block;
    for (int i = 0; i < rounds; i++) {
        if (ga_alloc(heap, (size_t)i + 1, 0, &block) == GA_OK) {
            ga_free(heap, block);
        }
    }
}

static size_t count_op(ga_trace_op op)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        n += records[i].operation == op;
    }
    return n;
}

static void expect_record(size_t i, ga_trace_op op, const void *pointer, const void *previous,
                          size_t size, unsigned align_log2)
{
    cr_assert_lt(i, count);
    const ga_trace_record *r = &records[i];
    cr_assert_eq(r->operation, op, "record %zu: operation %d", i, r->operation);
    cr_assert_eq(r->pointer, (uintptr_t)pointer, "record %zu: pointer", i);
    cr_assert_eq(r->previous, (uintptr_t)previous, "record %zu: previous", i);
    cr_assert_eq(r->size, size, "record %zu: size %lu", i, (unsigned long)r->size);
    cr_assert_eq(r->align_log2, align_log2, "record %zu: align %d", i, r->align_log2);
    cr_assert_eq(r->thread, (uint32_t)gettid(), "record %zu: thread", i);
    cr_assert_eq(r->place, GA_PLACE_HOST, "record %zu: place", i);
    cr_assert_eq(r->device, 0, "record %zu: device", i);
    cr_assert_eq(r->stream, 0, "record %zu: stream", i);
}

static void expect_rising_times(void)
{
    for (size_t i = 1; i < count; i++) {
        if (records[i].thread == records[i - 1].thread) {
            cr_assert_geq(records[i].time_ns, records[i - 1].time_ns, "record %zu", i);
        }
    }
}

/* The path of the file of a child that ended. */
static const char *child_path(const char *path, pid_t child)
{
    static char text[PATH_MAX];
    snprintf(text, sizeof text, "%s.%d", path, (int)child);
    return text;
}

/* ---- recorded calls ----------------------------------------------------------------------- */

Test(recorder, every_call_is_a_record)
{
    void *a;
    void *b;
    void *c;
    void *moved;
    const char *path = open_trace("system");
    assert_ok(ga_alloc(heap, 100, 0, &a));
    assert_ok(ga_alloc(heap, 200, 64, &b));
    assert_ok(ga_alloc_zeroed(heap, 300, 0, &c));
    void *before = a;
    assert_ok(ga_realloc(heap, a, 100000, 0, &moved));
    cr_assert_eq(ga_grow(heap, b, 1 << 20), GA_ERR_CANNOT_GROW);
    assert_ok(ga_free(heap, b));
    read_trace(path);
    cr_assert_eq(count, 6);
    expect_record(0, GA_TRACE_ALLOC, before, NULL, 100, 0);
    expect_record(1, GA_TRACE_ALLOC, b, NULL, 200, 6);
    expect_record(2, GA_TRACE_ZEROED, c, NULL, 300, 0);
    expect_record(3, GA_TRACE_REALLOC, moved, before, 100000, 0);
    expect_record(4, GA_TRACE_FAILED, NULL, NULL, 1 << 20, 0);
    expect_record(5, GA_TRACE_FREE, b, NULL, 0, 0);
    assert_ok(ga_free(heap, moved));
    assert_ok(ga_free(heap, c));
    close_trace();
}

Test(recorder, refusals_are_records)
{
    void *out;
    const char *path = open_trace("null");
    cr_assert_eq(ga_alloc(heap, 77, 0, &out), GA_ERR_MEMORY);
    read_trace(path);
    cr_assert_eq(count, 1);
    expect_record(0, GA_TRACE_FAILED, NULL, NULL, 77, 0);
    close_trace();
}

Test(recorder, the_header)
{
    struct timespec now;
    const char *path = open_trace("null");
    clock_gettime(CLOCK_REALTIME, &now);
    read_trace(path);
    cr_assert_eq(count, 0);
    cr_assert_str_eq(header.magic, GA_TRACE_MAGIC);
    cr_assert_eq(header.abi, GA_TRACE_ABI);
    cr_assert_eq(header.record_size, GA_TRACE_PLAIN_BYTES);
    cr_assert_eq(header.pid, (uint32_t)getpid());
    cr_assert_leq(header.start_ns / 1000000000, (uint64_t)now.tv_sec);
    cr_assert_geq(header.start_ns / 1000000000 + 10, (uint64_t)now.tv_sec);
    close_trace();
}

Test(recorder, times_rise)
{
    const char *path = open_trace("system");
    churn(3 * PER_CHUNK / 2);
    read_trace(path);
    cr_assert_eq(count, 3 * PER_CHUNK);
    expect_rising_times();
    cr_assert_lt(records[count - 1].time_ns, UINT64_C(60000000000));
    close_trace();
}

Test(recorder, errno_is_kept)
{
    ga_recorder *recorder;
    ga_trace_record record = {.operation = GA_TRACE_FREE, .pointer = 16};
    scene_enter_folder();
    assert_ok(ga_recorder_open(&recorder, scene_path("t"), 1, 0));
    unlink(scene_path("t"));
    scene_capture_begin();
    errno = 77;
    ga_recorder_note(recorder, &record);
    int after = errno;
    scene_capture_end();
    cr_assert_eq(after, 77);
    ga_recorder_close(recorder);
    scene_leave_folder();
}

/* ---- names -------------------------------------------------------------------------------- */

Test(recorder, the_process_id_in_the_name)
{
    char expected[PATH_MAX];
    scene_enter_folder();
    snprintf(expected, sizeof expected, "%s.%d.x", scene_path("t"), (int)getpid());
    assert_ok(open_over(scene_path("t.%p.x"), "null"));
    read_trace(expected);
    close_trace();
}

/* An existing file may be the trace of a process that this one descends from. */
Test(recorder, a_file_that_is_there_is_kept)
{
    char text[64];
    char expected[PATH_MAX];
    scene_enter_folder();
    const char *path = scene_path("t");
    scene_write_file(path, "precious", 8);
    assert_ok(open_over(path, "null"));
    snprintf(expected, sizeof expected, "%s.%d", path, (int)getpid());
    read_trace(expected);
    scene_read_file(path, text, sizeof text);
    cr_assert_str_eq(text, "precious");
    close_trace();
}

Test(recorder, heaps_of_one_process_share_a_file)
{
    const char *path = open_trace("system");
    ga_heap *first = heap;
    churn(1);
    assert_ok(open_over(path, "system"));
    churn(2);
    assert_ok(ga_heap_close(first));
    churn(3);
    read_trace(path);
    cr_assert_eq(count, 12);
    close_trace();
}

Test(recorder, paths_that_cannot_be_written)
{
    static char longest[PATH_MAX + 2];
    assert_fails(open_over("/nowhere/t", "null"), GA_ERR_IO,
                 "trace: file: cannot create \"/nowhere/t\": No such file or directory");
    assert_fails(open_over("", "null"), GA_ERR_IO,
                 "trace: file: expected a path of 1 to 4095 bytes, got 0");
    memset(longest, 'x', PATH_MAX + 1);
    assert_fails(open_over(longest, "null"), GA_ERR_IO,
                 "trace: file: expected a path of 1 to 4095 bytes, got 4097");
    cr_assert_null(heap);
}

/* Not "/dev/null.PID", and never a program's own output. */
Test(recorder, only_regular_files)
{
    scene_enter_folder();
    cr_assert_eq(mkfifo(scene_path("fifo"), 0600), 0);
    assert_fails_with(
        open_over("/dev/null", "null"), GA_ERR_IO,
        "trace: file: \"/dev/null\" is a device; expected a regular file or a new one");
    assert_fails_with(open_over("/tmp", "null"), GA_ERR_IO,
                      "trace: file: \"/tmp\" is a directory; ");
    assert_fails_with(open_over("/dev/stdout", "null"), GA_ERR_IO,
                      "trace: file: \"/dev/stdout\" is a descriptor of this process; ");
    assert_fails_with(open_over("-", "null"), GA_ERR_IO,
                      "trace: file: \"-\" is a descriptor of this process; ");
    cr_assert_eq(open_over(scene_path("fifo"), "null"), GA_ERR_IO);
    cr_assert_not_null(strstr(ga_error_text(), "is a FIFO or a socket; "), "%s", ga_error_text());
    cr_assert_neq(access(child_path("/dev/null", getpid()), F_OK), 0);
    scene_leave_folder();
}

Test(recorder, a_relative_path_is_from_where_the_trace_began)
{
    cr_assert_eq(chdir(scene_enter_folder()), 0);
    assert_ok(open_over("t", "system"));
    cr_assert_eq(chdir("/"), 0);
    churn(PER_CHUNK);
    read_trace(scene_path("t"));
    cr_assert_eq(count, 2 * PER_CHUNK);
    close_trace();
}

/* ---- the file goes away -------------------------------------------------------------------- */

static size_t count_text(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) {
        n++;
    }
    return n;
}

Test(recorder, the_file_is_removed)
{
    const char *path = open_trace("system");
    churn(1);
    unlink(path);
    scene_capture_begin();
    churn(2 * PER_CHUNK);
    const char *said = scene_capture_end();
    cr_assert_eq(count_text(said, "the trace ends here"), 1, "%s", said);
    cr_assert_not_null(strstr(said, "No such file or directory"), "%s", said);
    cr_assert_neq(access(path, F_OK), 0, "it is not made anew");
    close_trace();
}

Test(recorder, another_file_in_its_place_is_left_alone)
{
    char text[64];
    const char *path = open_trace("system");
    churn(1);
    unlink(path);
    scene_write_file(path, "another", 7);
    scene_capture_begin();
    churn(2 * PER_CHUNK);
    cr_assert_eq(count_text(scene_capture_end(), "the trace ends here"), 1);
    scene_read_file(path, text, sizeof text);
    cr_assert_str_eq(text, "another");
    close_trace();
}

/* A closed trace does not prevent a new one with its name. */
Test(recorder, a_new_trace_by_an_old_name)
{
    const char *path = open_trace("system");
    churn(1);
    assert_ok(ga_heap_close(heap));
    unlink(path);
    assert_ok(open_over(path, "system"));
    churn(2);
    read_trace(path);
    cr_assert_eq(count, 4);
    close_trace();
}

/* Another process empties or shortens the file: `> t`, or copytruncate of logrotate. */
static void expect_cut(off_t size)
{
    const char *path = open_trace("system");
    churn(PER_CHUNK / 2 + 100);
    cr_assert_eq(truncate(path, size), 0);
    scene_capture_begin();
    churn(2 * PER_CHUNK);
    const char *said = scene_capture_end();
    cr_assert_eq(count_text(said, "the trace ends here"), 1, "%s", said);
    cr_assert_not_null(strstr(said, "another process has cut the file short"), "%s", said);
    assert_ok(ga_heap_close(heap));
    unlink(path);
    scene_leave_folder();
}

Test(recorder, a_file_that_is_truncated)
{
    expect_cut(0);
    expect_cut(4096);
    expect_cut(sysconf(_SC_PAGESIZE) + GA_TRACE_CHUNK_BYTES + 48);
    batch = GA_RECORDER_BATCH;
    expect_cut(0);
}

/* Before anything was recorded. */
Test(recorder, a_header_that_is_truncated)
{
    const char *path = open_trace("system");
    cr_assert_eq(truncate(path, 0), 0);
    scene_capture_begin();
    churn(10);
    cr_assert_eq(count_text(scene_capture_end(), "the trace ends here"), 1);
    close_trace();
}

static void *truncate_often(void *path)
{
    for (int i = 0; i < 200; i++) {
        truncate(path, 0);
        usleep(100);
    }
    return NULL;
}

Test(recorder, a_file_that_is_truncated_while_it_is_written)
{
    pthread_t thread;
    const char *path = open_trace("system");
    scene_capture_begin();
    cr_assert_eq(pthread_create(&thread, NULL, truncate_often, (void *)path), 0);
    churn(10 * PER_CHUNK);
    pthread_join(thread, NULL);
    cr_assert_eq(count_text(scene_capture_end(), "the trace ends here"), 1);
    close_trace();
}

/* The records that fit are read back; the rest costs one line, and the program continues. */
static void expect_full_disk(const char *path, const char *why)
{
    scene_capture_begin();
    churn(20 * PER_CHUNK);
    const char *said = scene_capture_end();
    cr_assert_eq(count_text(said, "the trace ends here"), 1, "%s", said);
    cr_assert_not_null(strstr(said, why), "%s", said);
    read_trace(path);
    cr_assert_geq(count, PER_CHUNK);
    expect_rising_times();
}

Test(recorder, a_limit_on_file_size)
{
    struct rlimit limit = {1 << 20, 1 << 20};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    expect_full_disk(open_trace("system"), "File too large");
    close_trace();
}

Test(recorder, a_full_disk)
{
    char path[PATH_MAX];
    const char *folder = scene_enter_folder();
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", folder, "tmpfs", 0, "size=1m") != 0) {
        scene_leave_folder();
        cr_skip_test("no right to mount a small file system");
    }
    snprintf(path, sizeof path, "%s", scene_path("t"));
    assert_ok(open_over(path, "system"));
    expect_full_disk(path, "No space left on device");
    assert_ok(ga_heap_close(heap));
    umount(folder);
    scene_leave_folder();
}

/* ---- processes ---------------------------------------------------------------------------- */

static int churn_in_child(void *unused)
{
    (void)unused;
    churn(10);
    return ga_heap_close(heap) == GA_OK ? 0 : 1;
}

static pid_t fork_and_wait(int (*body)(void *))
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        _exit(body(NULL));
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%#x", (unsigned)status);
    return child;
}

Test(recorder, a_forked_child_has_a_file_of_its_own)
{
    const char *path = open_trace("system");
    churn(5);
    usleep(50000);
    pid_t child = fork_and_wait(churn_in_child);
    churn(5);
    read_trace(path);
    cr_assert_eq(count, 20);
    read_trace(child_path(path, child));
    cr_assert_eq(count, 20);
    cr_assert_eq(header.pid, (uint32_t)child);
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(records[i].thread, (uint32_t)child);
    }
    expect_rising_times();
    close_trace();
}

static const char *first_trace;

static void *trace_first(void *unused)
{
    first_trace = open_trace("system");
    churn(5);
    return unused;
}

Test(recorder, a_fork_that_began_before_the_first_trace, .timeout = 60)
{
    pid_t child = first_call_fork_around(trace_first);
    if (child == 0) {
        _exit(churn_in_child(NULL));
    }
    cr_assert(first_call_child_ended(child));
    read_trace(first_trace);
    cr_assert_eq(count, 10);
    read_trace(child_path(first_trace, child));
    cr_assert_eq(count, 20);
    close_trace();
}

static int only_exec(void *unused)
{
    (void)unused;
    execl("/bin/true", "true", (char *)NULL);
    return 1;
}

Test(recorder, a_child_that_only_execs_leaves_no_file)
{
    const char *path = open_trace("system");
    churn(5);
    pid_t child = fork_and_wait(only_exec);
    cr_assert_neq(access(child_path(path, child), F_OK), 0);
    close_trace();
}

static pid_t churn_in_killed_child(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        churn(PER_CHUNK);
        raise(SIGKILL);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    return child;
}

Test(recorder, a_killed_process_loses_nothing_where_each_record_is_written)
{
    const char *path = open_trace("system");
    read_trace(child_path(path, churn_in_killed_child()));
    cr_assert_eq(count, 2 * PER_CHUNK);
    close_trace();
}

Test(recorder, a_killed_process_loses_less_than_a_batch)
{
    batch = GA_RECORDER_BATCH;
    const char *path = open_trace("system");
    read_trace(child_path(path, churn_in_killed_child()));
    cr_assert_gt(count, 2 * PER_CHUNK - GA_RECORDER_BATCH);
    expect_rising_times();
    close_trace();
}

static void *churn_and_sleep(void *begun)
{
    churn(100);
    pthread_barrier_wait(begun);
    return pause() ? NULL : begun;
}

/* exit() with a heap open, and a thread that has records and sleeps. */
static int exit_with_threads(void *unused)
{
    static pthread_barrier_t begun;
    pthread_t thread;
    (void)unused;
    pthread_barrier_init(&begun, NULL, 2);
    pthread_create(&thread, NULL, churn_and_sleep, &begun);
    pthread_barrier_wait(&begun);
    churn(101);
    exit(0);
}

Test(recorder, a_process_that_exits_loses_nothing)
{
    if (UNDER_ASAN) {
        cr_skip_test("the leak sanitizer cannot look at a forked child that exits");
    }
    batch = GA_RECORDER_BATCH;
    const char *path = open_trace("system");
    read_trace(child_path(path, fork_and_wait(exit_with_threads)));
    cr_assert_eq(count, 402);
    close_trace();
}

/* ---- children that run no handlers ----------------------------------------------------------- */

static int ended_well(pid_t child)
{
    int status = -1;
    return waitpid(child, &status, __WALL) == child && status == 0;
}

/* The child's records are in a file of its own, under its own thread id; the parent's are whole. */
static void expect_two_files(const char *path, pid_t child)
{
    cr_assert(ended_well(child));
    churn(5);
    assert_ok(ga_heap_close(heap));
    read_trace(path);
    cr_assert_eq(count, 20, "%zu", count);
    read_trace(child_path(path, child));
    cr_assert_eq(count, 20, "%zu", count);
    cr_assert_eq(header.pid, (uint32_t)child);
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(records[i].thread, (uint32_t)child);
    }
    scene_leave_folder();
}

Test(recorder, a_child_of_the_bare_fork_has_a_file_of_its_own, .timeout = 60)
{
    batch = GA_RECORDER_BATCH;
    const char *path = open_trace("system");
    churn(5);
    pid_t child = _Fork();
    if (child == 0) {
        _exit(churn_in_child(NULL));
    }
    expect_two_files(path, child);
}

Test(recorder, a_child_of_clone_has_a_file_of_its_own, .timeout = 60)
{
    batch = GA_RECORDER_BATCH;
    const char *path = open_trace("system");
    churn(5);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) {
        _exit(churn_in_child(NULL));
    }
    expect_two_files(path, child);
}

/* The child works on the parent's memory, so its calls on the heap belong in the parent's trace. */
static void churn_in_vfork(int rounds)
{
    pid_t child = vfork();
    if (child == 0) {
        churn(rounds);
        _exit(0);
    }
    cr_assert(ended_well(child));
}

Test(recorder, a_child_of_vfork_records_in_its_parent_s_trace, .timeout = 60)
{
    batch = GA_RECORDER_BATCH;
    const char *path = open_trace("system");
    churn(5);
    churn_in_vfork(3 * PER_CHUNK);
    churn(5);
    assert_ok(ga_heap_close(heap));
    read_trace(path);
    cr_assert_eq(count, 20 + 6 * PER_CHUNK);
    expect_rising_times();
    scene_leave_folder();
}

static bool enough;

/* relaxed, both: nothing else is handed over */
static void *record_until_enough(void *recorder)
{
    ga_trace_record record = {.operation = GA_TRACE_FREE, .pointer = 16};
    while (!__atomic_load_n(&enough, __ATOMIC_RELAXED)) {
        record.time_ns = ga_recorder_now(recorder);
        ga_recorder_note(recorder, &record);
    }
    return NULL;
}

/* Other threads may hold any mutex of the recorder when the memory is copied. Only the recorder is
 * called: in such a child malloc itself may hang. */
Test(recorder, a_bare_fork_while_others_record, .timeout = 60)
{
    ga_recorder *recorder;
    pthread_t threads[4];
    ga_trace_record record = {.operation = GA_TRACE_ALLOC, .pointer = 32, .size = 1};
    scene_enter_folder();
    assert_ok(ga_recorder_open(&recorder, scene_path("t"), 1, 0));
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, record_until_enough, recorder);
    }
    for (int i = 0; i < 200; i++) {
        pid_t child = _Fork();
        if (child == 0) {
            ga_recorder_note(recorder, &record);
            _exit(0);
        }
        cr_assert(ended_well(child));
        read_trace(child_path(scene_path("t"), child));
        cr_assert_eq(count, 1);
        cr_assert_eq(records[0].thread, (uint32_t)child);
        unlink(child_path(scene_path("t"), child));
    }
    __atomic_store_n(&enough, true, __ATOMIC_RELAXED);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    ga_recorder_close(recorder);
    scene_leave_folder();
}

/* ---- threads ------------------------------------------------------------------------------ */

enum {
    THREADS = 8,
    ROUNDS = 10000
};

static void *churn_in_thread(void *rounds)
{
    churn((int)(intptr_t)rounds);
    return NULL;
}

static void run_threads(int threads, int rounds)
{
    pthread_t ids[THREADS];
    for (int i = 0; i < threads; i++) {
        cr_assert_eq(pthread_create(&ids[i], NULL, churn_in_thread, (void *)(intptr_t)rounds), 0);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
    }
}

Test(recorder, records_of_many_threads_are_all_there)
{
    const char *path = open_trace("system");
    run_threads(THREADS, ROUNDS);
    read_trace(path);
    cr_assert_eq(count, THREADS * ROUNDS * 2);
    cr_assert_eq(count_op(GA_TRACE_ALLOC), THREADS * ROUNDS);
    cr_assert_eq(count_op(GA_TRACE_FREE), THREADS * ROUNDS);
    close_trace();
}

/* The rest of a thread's chunk is filled by the next thread: the file does not grow by a chunk for
 * each. */
Test(recorder, threads_that_come_and_go_share_chunks)
{
    struct stat stat_now;
    const char *path = open_trace("system");
    for (int i = 0; i < 300; i++) {
        run_threads(1, 3);
    }
    read_trace(path);
    cr_assert_eq(count, 1800);
    cr_assert_eq(stat(path, &stat_now), 0);
    cr_assert_leq(stat_now.st_size, (off_t)(header.data_offset + 2 * GA_TRACE_CHUNK_BYTES));
    close_trace();
}

/* One thread, two traces alternately: neither gets the other's records. */
Test(recorder, two_traces_at_once)
{
    const char *path = open_trace("system");
    ga_heap *first = heap;
    assert_ok(open_over(scene_path("u"), "system"));
    ga_heap *second = heap;
    for (int i = 0; i < 10; i++) {
        heap = first;
        churn(1);
        heap = second;
        churn(2);
    }
    read_trace(path);
    cr_assert_eq(count, 20);
    read_trace(scene_path("u"));
    cr_assert_eq(count, 40);
    assert_ok(ga_heap_close(first));
    close_trace();
}
