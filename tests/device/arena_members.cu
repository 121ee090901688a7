/* SPDX-License-Identifier: MIT
 *
 * One arena of a card in several processes: readers that sum it, writers and publishers that are
 * killed, writes through mappings for reading only. Exit status 0, 1 when a case failed, 77 without
 * a GPU.
 *
 *   arena_tests [--only WORDS]   the cases whose name contains these words
 *   arena_tests --measure        times of openings, memory of several processes
 *
 * The other modes are the other processes (arena_members.h).
 */
extern "C" {
#include "runner.h"
}

#include "arena_members.h"

#include <cinttypes>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

/* ---- their parent ------------------------------------------------------------------- */

struct process {
    pid_t id;
    FILE *in, *out;
    char line[300];
};

static const char *hear(process *p)
{
    if (!fgets(p->line, sizeof p->line, p->out)) {
        strcpy(p->line, "(ended)");
    }
    p->line[strcspn(p->line, "\n")] = 0;
    return p->line;
}

static void say(process *p, const char *command)
{
    fprintf(p->in, "%s\n", command);
    fflush(p->in);
}

static const char *ask(process *p, const char *command)
{
    say(p, command);
    return hear(p);
}

static bool succeeds(process *p, const char *command)
{
    bool good = atoi(ask(p, command)) == 0 && p->line[0] == '0';
    if (!good) {
        printf("    %s: %s\n", command, p->line);
    }
    return good;
}

static process start(const char *mode, const char *a, const char *b)
{
    extern char **environ;
    int to[2], from[2];
    process p = {};
    char self[] = "/proc/self/exe";
    char *arguments[] = {self, (char *)mode, (char *)a, (char *)b, nullptr};
    posix_spawn_file_actions_t actions;
    fflush(stdout);
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) {
        return p;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    posix_spawn(&p.id, self, &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    p.in = fdopen(to[1], "w");
    p.out = fdopen(from[0], "r");
    hear(&p);
    return p;
}

static int finish(process *p)
{
    int status = -1;
    fclose(p->in);
    waitpid(p->id, &status, 0);
    fclose(p->out);
    return status;
}

static void kill_process(process *p)
{
    kill(p->id, SIGKILL);
    int status = finish(p);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static bool counts(ga_arena *arena, uint64_t readers, uint64_t writers, bool published)
{
    ga_arena_openers is;
    bool good = ga_arena_count_openers(arena, &is) == GA_OK && is.readers == readers &&
                is.writers == writers && is.published == published;
    if (!good) {
        printf("    %" PRIu64 " readers, %" PRIu64 " writers, published %d\n", is.readers,
               is.writers, is.published);
    }
    return good;
}

/* The driver takes its time to clean up after a process. */
static bool memory_comes_back(uint64_t wanted)
{
    for (int i = 0; i < 100; i++) {
        if (free_memory() + 8 * MIB >= wanted) {
            return true;
        }
        usleep(100000);
    }
    printf("    %" PRIu64 " MiB are missing\n", (wanted - free_memory()) / MIB);
    return false;
}

static char name[64];

static ga_arena *publish(uint64_t size, uint64_t chunk_max)
{
    ga_arena *arena = nullptr;
    if (open_weights(&arena, size, chunk_max) != GA_OK || ga_arena_publish(arena, name) != GA_OK) {
        printf("    %s\n", ga_error_text());
    }
    return arena;
}

/* ---- cases -------------------------------------------------------------------------- */

static void readers_sum_one_arena(int)
{
    enum {
        READERS = 4
    };
    process readers[READERS];
    uint64_t before = free_memory();
    ga_arena *arena = publish(4 * GIB, 0);
    REQUIRE(arena && is_right(arena));
    for (process &reader : readers) {
        reader = start("--opener", "read", name);
    }
    uint64_t with_contexts = free_memory();
    for (process &reader : readers) {
        EXPECT(succeeds(&reader, "join") && succeeds(&reader, "sum"));
    }
    EXPECT(counts(arena, READERS, 0, true));
    uint64_t used = with_contexts - std::min(with_contexts, free_memory());
    printf("    %d readers of 4 GiB use %" PRIu64 " MiB more\n", READERS, used / MIB);
    EXPECT(used < 64 * MIB);
    EXPECT(ga_arena_grow(arena, 5 * GIB) == GA_OK && fill(arena, 4 * GIB));
    for (process &reader : readers) {
        EXPECT(succeeds(&reader, "update") && succeeds(&reader, "sum"));
    }
    EXPECT(ga_arena_shrink(arena, GIB) == GA_ERR_UNSUPPORTED);
    kill_process(&readers[0]);
    EXPECT(counts(arena, READERS - 1, 0, true));
    EXPECT(succeeds(&readers[1], "close") && counts(arena, READERS - 2, 0, true));
    ga_arena_close(arena); /* the others keep the memory */
    EXPECT(succeeds(&readers[2], "sum") && succeeds(&readers[3], "sum"));
    for (int i = 1; i < READERS; i++) {
        EXPECT(finish(&readers[i]) == 0);
    }
    EXPECT(memory_comes_back(before));
}

static void killed_writer(int)
{
    uint64_t before = free_memory();
    ga_arena *arena = publish(2 * GIB, 0);
    REQUIRE(arena);
    process writer = start("--opener", "write", name);
    process reader = start("--opener", "read", name);
    EXPECT(succeeds(&writer, "join") && succeeds(&reader, "join"));
    EXPECT(counts(arena, 1, 1, true));
    EXPECT(succeeds(&writer, "loop"));
    usleep(300000);
    kill_process(&writer);
    EXPECT(counts(arena, 1, 0, true));
    write_word<<<1, 1>>>((word *)ga_arena_base(arena), 0);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess && is_right(arena));
    EXPECT(succeeds(&reader, "sum"));
    kill_process(&reader);
    EXPECT(counts(arena, 0, 0, true));
    EXPECT(ga_arena_shrink(arena, 0) == GA_OK);
    ga_arena_close(arena);
    EXPECT(memory_comes_back(before));
}

static void killed_publisher(int)
{
    uint64_t before = free_memory();
    ga_arena *arena = nullptr, *late;
    process publisher = start("--publisher", name, "2048");
    REQUIRE(!strcmp(publisher.line, "0 ready"));
    REQUIRE(ga_arena_join(&arena, name, GA_ARENA_READ) == GA_OK);
    EXPECT(is_right(arena) && counts(arena, 1, 0, true));
    kill_process(&publisher);
    EXPECT(is_right(arena) && counts(arena, 1, 0, false));
    EXPECT(ga_arena_join(&late, name, GA_ARENA_READ) == GA_ERR_IO && test_error_has("has ended"));
    EXPECT(ga_arena_update(arena) == GA_ERR_IO);
    usleep(500000); /* the driver has cleaned up */
    EXPECT(is_right(arena));
    ga_arena_close(arena);
    EXPECT(memory_comes_back(before));
}

static void write_to_read_only(int)
{
    static const char *const commands[] = {"write", "set", "put"};
    uint64_t before = free_memory();
    ga_arena *arena = publish(GIB, 0);
    REQUIRE(arena);
    process other = start("--opener", "read", name);
    EXPECT(succeeds(&other, "join"));
    for (const char *command : commands) {
        process reader = start("--opener", "read", name);
        EXPECT(succeeds(&reader, "join") && succeeds(&reader, "sum"));
        EXPECT(atoi(ask(&reader, command)) != 0);
        printf("    %s: %s\n", command, reader.line);
        EXPECT(is_right(arena) && succeeds(&other, "sum"));
        EXPECT(counts(arena, 2, 0, true));
        finish(&reader);
        EXPECT(counts(arena, 1, 0, true));
    }
    process writer = start("--opener", "write", name);
    EXPECT(succeeds(&writer, "join") && succeeds(&writer, "write"));
    EXPECT(!is_right(arena));
    finish(&writer);
    finish(&other);
    ga_arena_close(arena);
    EXPECT(memory_comes_back(before));
}

/* A forked child holds the lock and the driver's files. */
static void forked_child_of_an_opener(int)
{
    uint64_t before = free_memory();
    ga_arena *arena = publish(2 * GIB, 0);
    REQUIRE(arena);
    process reader = start("--opener", "read", name);
    EXPECT(succeeds(&reader, "join") && succeeds(&reader, "fork"));
    kill(reader.id, SIGKILL);
    waitpid(reader.id, nullptr, 0);
    EXPECT(counts(arena, 1, 0, true)); /* until the child ends */
    ga_arena_unpublish(arena);
    uint64_t with_child = free_memory();
    ga_arena_close(arena);
    usleep(1000000);
    printf("    the publisher has closed it, the opener's child lives: %s\n",
           free_memory() > with_child + GIB ? "the memory is free" : "the memory is held");
    fclose(reader.in);
    fclose(reader.out);
    EXPECT(memory_comes_back(before));
}

static const test_case cases[] = {
    {"readers of one arena", readers_sum_one_arena},
    {"a writer that is killed", killed_writer},
    {"a publisher that is killed", killed_publisher},
    {"writes through mappings for reading only", write_to_read_only},
    {"an opener that forks", forked_child_of_an_opener},
};

/* ---- measurements ------------------------------------------------------------------- */

static void measure_opening(uint64_t size, uint64_t chunk_max)
{
    ga_arena *arena = publish(size, chunk_max);
    ga_arena_stats stats;
    ga_arena_get_stats(arena, &stats);
    process reader = start("--opener", "read", name);
    printf("open %6" PRIu64 " MiB in %4" PRIu64 " chunks: %s\n", size / MIB, stats.chunks,
           ask(&reader, "again 30"));
    finish(&reader);
    ga_arena_close(arena);
}

static void measure_ipc(uint64_t size)
{
    void *block = nullptr;
    cudaIpcMemHandle_t handle;
    char command[300] = "ipc ";
    if (cudaMalloc(&block, size) != cudaSuccess ||
        cudaIpcGetMemHandle(&handle, block) != cudaSuccess) {
        printf("cudaIpcGetMemHandle: %s\n", cudaGetErrorName(cudaGetLastError()));
        cudaFree(block);
        return;
    }
    for (size_t i = 0; i < sizeof handle; i++) {
        snprintf(command + 4 + 2 * i, 3, "%02x", ((unsigned char *)&handle)[i]);
    }
    process reader = start("--opener", "read", name);
    printf("cudaIpcOpenMemHandle, %6" PRIu64 " MiB of cudaMalloc: %s\n", size / MIB,
           ask(&reader, command));
    finish(&reader);
    cudaFree(block);
}

static void measure_memory(int readers, uint64_t size)
{
    std::vector<process> all;
    ga_arena *arena = publish(size, 0);
    for (int i = 0; i < readers; i++) {
        all.push_back(start("--opener", "read", name));
    }
    uint64_t contexts = free_memory();
    for (process &p : all) {
        ask(&p, "join");
    }
    for (process &p : all) {
        printf("sum, shared: %s\n", ask(&p, "sum"));
    }
    uint64_t shared = free_memory();
    for (process &p : all) {
        ask(&p, "copy");
    }
    for (process &p : all) {
        printf("sum, copy of its own: %s\n", ask(&p, "check"));
    }
    uint64_t copies = free_memory();
    printf("%d processes, weights of %" PRIu64 " MiB: shared %" PRId64
           " MiB more than contexts alone, copies %" PRId64 " MiB more\n",
           readers, size / MIB, (int64_t)(contexts - shared) / (int64_t)MIB,
           (int64_t)(shared - copies) / (int64_t)MIB);
    for (process &p : all) {
        finish(&p);
    }
    ga_arena_close(arena);
}

static void measure_counts()
{
    ga_arena *arena = publish(2 * MIB, 0);
    std::vector<ga_arena *> opened(1000);
    ga_arena_openers openers;
    for (size_t n = 0; n <= 200; n += 50) {
        for (size_t i = n ? n - 50 : 0; i < n; i++) {
            ga_arena_join(&opened[i], name, GA_ARENA_READ);
        }
        double begin = now_us();
        for (int i = 0; i < 100; i++) {
            ga_arena_count_openers(arena, &openers);
        }
        printf("count %4" PRIu64 " openings: %.1f us\n", openers.readers, (now_us() - begin) / 100);
    }
    for (ga_arena *a : opened) {
        ga_arena_close(a);
    }
    ga_arena_close(arena);
}

static int measure()
{
    cudaDeviceProp device;
    cudaGetDeviceProperties(&device, 0);
    printf("%s\n", device.name);
    measure_opening(2 * MIB, 0);
    measure_opening(GIB, 0);
    measure_opening(16 * GIB, 0);
    measure_opening(48 * GIB, 0);
    measure_opening(GIB, 32 * MIB);
    measure_opening(GIB, 2 * MIB);
    measure_ipc(2 * MIB);
    measure_ipc(GIB);
    measure_ipc(16 * GIB);
    measure_memory(8, 4 * GIB);
    measure_counts();
    return 0;
}

int main(int argc, char **argv)
{
    int devices = 0;
    const char *only = argc == 3 && !strcmp(argv[1], "--only") ? argv[2] : nullptr;
    snprintf(name, sizeof name, "@gpualloc-arena-%d", (int)getpid());
    if (argc == 4 && !strcmp(argv[1], "--opener")) {
        return be_opener(argv[2], argv[3]);
    }
    if (argc == 4 && !strcmp(argv[1], "--publisher")) {
        return be_publisher(argv[2], argv[3]);
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        puts("skipped, this machine has no GPU");
        return 77;
    }
    if (!begin_cuda()) {
        return 1;
    }
    if (argc == 2 && !strcmp(argv[1], "--measure")) {
        return measure();
    }
    if (argc != 1 && !only) {
        fprintf(stderr, "usage: arena_tests [--only WORDS | --measure]\n");
        return 2;
    }
    test_run("device 0, one arena in several processes", cases, sizeof cases / sizeof *cases, 0,
             only);
    return test_summary();
}
