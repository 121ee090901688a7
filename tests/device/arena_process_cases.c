/* SPDX-License-Identifier: MIT
 *
 * Arenas and processes: sharing a chunk with another program, two on one card, one that is killed,
 * one that forks, one that ends.
 */
#include "arena.h"

#include <dlfcn.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    CHANNEL = 100, /* the file descriptor that a child inherits */
    PATIENCE = 60  /* seconds for an action of one second */
};

static const uint64_t SHARED = 32 << 20;

/* ---- children ---------------------------------------------------------------------------- */

/* This program again with `mode`, for `device`; `channel` (-1: none) is its descriptor CHANNEL. */
static pid_t start(int device, const char *mode, int channel)
{
    extern char **environ;
    pid_t child = -1;
    char self[] = "/proc/self/exe";
    char argument[32];
    char number[16];
    char *arguments[] = {self, argument, NULL};
    posix_spawn_file_actions_t actions;
    snprintf(argument, sizeof argument, "%s", mode);
    snprintf(number, sizeof number, "%d", device);
    setenv("DEVICE_TESTS_DEVICE", number, 1);
    posix_spawn_file_actions_init(&actions);
    if (channel >= 0) {
        posix_spawn_file_actions_adddup2(&actions, channel, CHANNEL);
    }
    fflush(stdout);
    int failed = posix_spawn(&child, self, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed ? -1 : child;
}

static int own_device(void)
{
    const char *number = getenv("DEVICE_TESTS_DEVICE");
    return number ? atoi(number) : 0;
}

static bool ends_well(pid_t child)
{
    int status = -1;
    bool ended = child > 0 && waitpid(child, &status, 0) == child;
    if (!ended || status) {
        printf("    the child's wait status: 0x%x\n", (unsigned)status);
    }
    return ended && status == 0;
}

/* ---- a chunk for another program --------------------------------------------------------- */

int arena_import_chunk(void)
{
    int device = own_device();
    ga_arena *arena;
    ga_arena_share share = {.size = SHARED, .fd = CHANNEL};
    if (!arena_open(&arena, device, GA_ARENA_SHARE_FD, 0)) {
        return 1;
    }
    ga_status status = ga_arena_import(arena, &share);
    if (status != GA_OK) {
        printf("    in the child: status %d: %s\n", (int)status, ga_error_text());
        return 2;
    }
    bool good = ga_arena_size(arena) == SHARED && arena_holds_at(arena, device, 0, 1) &&
                arena_holds_at(arena, device, SHARED / 2, 2) &&
                arena_fill_at(arena, device, SHARED / 2, 3) &&
                arena_grow(arena, 2 * SHARED) && /* behind it */
                arena_fill_at(arena, device, SHARED, 4);
    ga_arena_close(arena);
    return good ? 0 : 3;
}

static void shares_a_chunk(int device)
{
    ga_arena *arena = NULL;
    ga_arena_share share;
    ga_arena_options options = {.options_size = sizeof options,
                                .flags = GA_ARENA_SHARE_FD | GA_ARENA_EXACT,
                                .place = GA_PLACE_DEVICE,
                                .device = device};
    if (ga_arena_open(&arena, &options) == GA_ERR_UNSUPPORTED) {
        SKIP(ga_error_text());
    }
    REQUIRE(arena && arena_grow(arena, SHARED));
    EXPECT(arena_fill_at(arena, device, 0, 1) && arena_fill_at(arena, device, SHARED / 2, 2));
    REQUIRE(ga_arena_export(arena, 0, &share) == GA_OK);
    EXPECT(share.offset == 0 && share.size == SHARED && share.fd >= 0);
    pid_t child = start(device, "--import-chunk", share.fd);
    close(share.fd);
    EXPECT(ends_well(child));
    EXPECT(arena_holds_at(arena, device, 0, 1));
    EXPECT(arena_holds_at(arena, device, SHARED / 2, 3));
    EXPECT(arena_grow(arena, 2 * SHARED));
    ga_arena_close(arena);
}

/* As above, with two devices in the child: it accesses the chunk from either. */
int arena_import_far_chunk(void)
{
    int device = own_device();
    const char *number = getenv("DEVICE_TESTS_PEER");
    int peer = number ? atoi(number) : device;
    ga_arena *arena;
    ga_arena_share share = {.size = SHARED, .fd = CHANNEL};
    ga_arena_options options = {.options_size = sizeof options,
                                .flags = GA_ARENA_SHARE_FD,
                                .place = GA_PLACE_DEVICE,
                                .device = device,
                                .peers = &peer,
                                .peer_count = 1};
    if (ga_arena_open(&arena, &options) != GA_OK || ga_arena_import(arena, &share) != GA_OK) {
        printf("    in the child: %s\n", ga_error_text());
        return 2;
    }
    bool good = arena_holds_at(arena, peer, 0, 1) && arena_holds_at(arena, device, 0, 1) &&
                arena_fill_at(arena, peer, SHARED / 2, 3) &&
                arena_grow(arena, 2 * SHARED) && /* behind it */
                arena_fill_at(arena, peer, SHARED, 4) && arena_holds_at(arena, device, SHARED, 4);
    ga_arena_close(arena);
    return good ? 0 : 3;
}

static void shares_with_another_device(int device)
{
    ga_arena *arena = NULL;
    ga_arena_share share;
    char number[16];
    int peer = arena_peer_of(device);
    ga_arena_options options = {.options_size = sizeof options,
                                .flags = GA_ARENA_SHARE_FD | GA_ARENA_EXACT,
                                .place = GA_PLACE_DEVICE,
                                .device = device};
    if (peer < 0) {
        SKIP("no other device reaches the memory of this one");
    }
    if (ga_arena_open(&arena, &options) == GA_ERR_UNSUPPORTED) {
        SKIP(ga_error_text());
    }
    REQUIRE(arena && arena_grow(arena, SHARED) && arena_fill_at(arena, device, 0, 1));
    REQUIRE(ga_arena_export(arena, 0, &share) == GA_OK);
    snprintf(number, sizeof number, "%d", peer);
    setenv("DEVICE_TESTS_PEER", number, 1);
    pid_t child = start(device, "--import-far-chunk", share.fd);
    close(share.fd);
    EXPECT(ends_well(child));
    EXPECT(arena_holds_at(arena, device, 0, 1) && arena_holds_at(arena, device, SHARED / 2, 3));
    ga_arena_close(arena);
}

/* ---- two processes on one card ----------------------------------------------------------- */

static bool grow_and_check(int device, unsigned char value)
{
    ga_arena *arena;
    bool good = arena_open(&arena, device, 0, 0);
    for (uint64_t size = 2 * MIB; good && size <= 512 * MIB; size *= 2) {
        good = arena_grow(arena, size) && arena_fill_at(arena, device, size - MIB, value);
    }
    for (uint64_t size = 2 * MIB; good && size <= 512 * MIB; size *= 2) {
        good = arena_holds_at(arena, device, size - MIB, value);
    }
    ga_arena_close(arena);
    return good;
}

int arena_work_beside(void)
{
    bool good = true;
    for (int round = 0; good && round < 20; round++) {
        good = grow_and_check(own_device(), (unsigned char)(100 + round));
    }
    return good ? 0 : 1;
}

static void two_processes(int device)
{
    pid_t child = start(device, "--work-beside", -1);
    for (int round = 0; round < 20; round++) {
        EXPECT(grow_and_check(device, (unsigned char)round));
    }
    EXPECT(ends_well(child));
}

/* ---- a process that is killed while it grows --------------------------------------------- */

int arena_grow_for_ever(void)
{
    ga_arena *arena;
    bool good = arena_open(&arena, own_device(), GA_ARENA_EXACT, 0) && arena_grow(arena, GIB);
    if (!good || write(CHANNEL, "x", 1) != 1) {
        return 1;
    }
    while (good) { /* until it is killed */
        good = arena_grow(arena, 2 * GIB) && ga_arena_shrink(arena, GIB) == GA_OK;
    }
    return 2;
}

static void pause_ms(long ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* The driver takes its time to clean up after a process. */
static bool memory_comes_back(int device, uint64_t wanted)
{
    for (int i = 0; i < PATIENCE * 10; i++) {
        if (arena_free_memory(device) >= wanted) {
            return true;
        }
        pause_ms(100);
    }
    return false;
}

static void killed_while_it_grows(int device)
{
    const uint64_t slack = 256 * MIB;
    int ends[2];
    int status = 0;
    char byte = 0;
    uint64_t before = arena_free_memory(device);
    REQUIRE(pipe(ends) == 0);
    pid_t child = start(device, "--grow-for-ever", ends[1]);
    close(ends[1]);
    REQUIRE(child > 0);
    EXPECT(read(ends[0], &byte, 1) == 1 && byte == 'x');
    close(ends[0]);
    for (int i = 0; i < 3; i++) { /* grown while the sharer runs, and after its end */
        EXPECT(grow_and_check(device, (unsigned char)(200 + i)));
    }
    kill(child, SIGKILL);
    EXPECT(grow_and_check(device, 210));
    EXPECT(waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGKILL);
    EXPECT(memory_comes_back(device, before - slack));
}

/* ---- forks, ends ------------------------------------------------------------------------- */

static int use_inherited(void *context)
{
    ga_arena *arena = context;
    bool good = ga_arena_grow(arena, GIB) == GA_ERR_DEVICE && test_error_has("before fork()");
    if (!good) {
        printf("    in the child: %s\n", ga_error_text());
    }
    ga_arena_close(arena);
    return good ? 0 : 1;
}

static void forked_child(int device)
{
    ga_arena *arena;
    REQUIRE(arena_open(&arena, device, 0, 0));
    REQUIRE(arena_grow(arena, 8 * MIB));
    EXPECT(arena_fill_at(arena, device, 0, 7));
    EXPECT(test_in_child(use_inherited, arena) == 0);
    EXPECT(arena_holds_at(arena, device, 0, 7) && arena_grow(arena, 64 * MIB));
    ga_arena_close(arena);
}

static ga_arena *last;

/* Runs after the driver's own exit handlers, since it was there before the driver was loaded. */
static void close_last(void)
{
    ga_arena_close(last);
}

int arena_exit_with_one(void)
{
    atexit(close_last);
    return arena_open(&last, own_device(), 0, 0) && arena_grow(last, 64 * MIB) ? 0 : 1;
}

/* As the CUDA runtime's cudaDeviceReset(). Whichever results the calls have, none crashes. */
int arena_context_destroyed(void)
{
    ga_arena *arena;
    int device = own_device();
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library ? dlsym(library, "cuDevicePrimaryCtxReset_v2") : NULL;
    CUresult (*reset)(CUdevice);
    memcpy(&reset, &symbol, sizeof symbol);
    if (!reset || !arena_open(&arena, device, 0, 0) || !arena_grow(arena, 64 * MIB)) {
        return 1;
    }
    CUresult result = reset(device);
    ga_status status = ga_arena_grow(arena, GIB);
    printf("    reset: %d; then grow: %s\n", (int)result,
           status == GA_OK ? "granted" : ga_error_text());
    ga_arena_close(arena);
    return 0;
}

static void ends_with_an_arena(int device)
{
    EXPECT(ends_well(start(device, "--exit-with-arena", -1)));
}

static void destroyed_context(int device)
{
    EXPECT(ends_well(start(device, "--context-destroyed", -1)));
}

case_list arena_process_cases(void)
{
    static const test_case cases[] = {
        {"an arena's chunk in another program", shares_a_chunk},
        {"an arena's chunk in another program, for another device", shares_with_another_device},
        {"arenas of two processes on one card", two_processes},
        {"a process that is killed while its arena grows", killed_while_it_grows},
        {"an arena in a forked child", forked_child},
        {"a process that ends with an arena", ends_with_an_arena},
        {"an arena whose context is destroyed first", destroyed_context},
    };
    return (case_list){"arena and processes", cases, sizeof cases / sizeof *cases};
}
