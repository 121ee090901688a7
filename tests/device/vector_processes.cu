/* SPDX-License-Identifier: MIT
 *
 * Vectors that grow during kernels, and processes: two on one card, one that is killed while its
 * vector grows, one that forks while its pager is at work.
 */
#include "vector_tests.h"

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

enum {
    BLOCKS = 8192,
    EACH = 32,    /* with these, 512 MiB */
    CHANNEL = 100 /* the file descriptor that a child inherits */
};

static __global__ void append_marks(ga_kernel_vector view, word mark, unsigned *refused)
{
    word *at = (word *)ga_kernel_vector_append(view, EACH);
    for (unsigned i = 0; at && i < EACH; i++) {
        at[i] = mark;
    }
    if (!at) {
        atomicAdd(refused, 1u);
    }
}

static __global__ void count_others(const word *at, std::size_t n, word mark, unsigned *wrong)
{
    for (std::size_t i = blockIdx.x * (std::size_t)blockDim.x + threadIdx.x; i < n;
         i += (std::size_t)gridDim.x * blockDim.x) {
        if (at[i] != mark) {
            atomicAdd(wrong, 1u);
        }
    }
}

/* One vector from nothing to 512 MiB; each word of it was appended. `refused` and the number of
 * other words must be 0. */
static bool grow_and_check(word mark)
{
    words v;
    ga_kernel_vector view;
    unsigned *counts = nullptr;
    const std::size_t n = (std::size_t)BLOCK * BLOCKS * EACH;
    bool good = cudaMallocManaged(&counts, 2 * sizeof *counts) == cudaSuccess;
    if (good) {
        counts[0] = counts[1] = 0;
        gpualloc::check(ga_vector_lend(v.handle(), 2 * MIB, &view));
        append_marks<<<BLOCKS, BLOCK>>>(view, mark, &counts[0]);
        good = cudaDeviceSynchronize() == cudaSuccess;
        gpualloc::check(ga_vector_end_loan(v.handle(), nullptr));
        count_others<<<256, BLOCK>>>(v.raw(), v.size(), mark, &counts[1]);
        good = cudaDeviceSynchronize() == cudaSuccess && good && v.size() == n && counts[0] == 0 &&
               counts[1] == 0;
    }
    cudaFree(counts);
    return good;
}

/* ---- children ------------------------------------------------------------------------------- */

/* This program again with `mode`, for `device`; `channel` (-1: none) is its descriptor CHANNEL. */
static pid_t start(int device, const char *mode, int channel)
{
    extern char **environ;
    pid_t child = -1;
    char self[] = "/proc/self/exe", argument[32], number[16];
    char *arguments[] = {self, argument, nullptr};
    posix_spawn_file_actions_t actions;
    snprintf(argument, sizeof argument, "%s", mode);
    snprintf(number, sizeof number, "%d", device);
    setenv("VECTOR_TESTS_DEVICE", number, 1);
    posix_spawn_file_actions_init(&actions);
    if (channel >= 0) {
        posix_spawn_file_actions_adddup2(&actions, channel, CHANNEL);
    }
    fflush(stdout);
    const int failed = posix_spawn(&child, self, &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed ? -1 : child;
}

static bool use_own_device()
{
    const char *number = getenv("VECTOR_TESTS_DEVICE");
    return cudaSetDevice(number ? atoi(number) : 0) == cudaSuccess;
}

int vector_append_beside()
{
    bool good = use_own_device();
    for (word round = 0; good && round < 20; round++) {
        good = grow_and_check(1000 + round);
    }
    return good ? 0 : 1;
}

int vector_append_for_ever()
{
    bool good = use_own_device() && grow_and_check(1) && write(CHANNEL, "x", 1) == 1;
    while (good) { /* until it is killed */
        good = grow_and_check(2);
    }
    return 2;
}

/* ---- cases ---------------------------------------------------------------------------------- */

static void two_processes(int device)
{
    SKIP_WHERE_NOTHING_GROWS
    int status = -1;
    const pid_t child = start(device, "--append-beside", -1);
    for (word round = 0; round < 20; round++) {
        EXPECT(grow_and_check(round));
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static std::size_t left_of_memory()
{
    std::size_t left = 0, all = 0;
    CUDA(cudaMemGetInfo(&left, &all));
    return left;
}

static void pause_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, nullptr);
}

/* The driver takes its time to clean up after a process. */
static bool memory_comes_back(std::size_t wanted)
{
    for (int i = 0; i < 600; i++) {
        if (left_of_memory() >= wanted) {
            return true;
        }
        pause_ms(100);
    }
    return false;
}

/* Again and again, each time at another moment. */
static void killed_while_it_grows(int device)
{
    SKIP_WHERE_NOTHING_GROWS
    const std::size_t before = left_of_memory(), slack = 256 * MIB;
    for (int round = 0; round < (suite.quick ? 1 : 4); round++) {
        int ends[2], status = 0;
        char byte = 0;
        REQUIRE(pipe(ends) == 0);
        const pid_t child = start(device, "--append-for-ever", ends[1]);
        close(ends[1]);
        REQUIRE(child > 0);
        EXPECT(read(ends[0], &byte, 1) == 1 && byte == 'x');
        close(ends[0]);
        EXPECT(grow_and_check(50)); /* while the other process grows, and after its end */
        pause_ms(3 * round);
        kill(child, SIGKILL);
        EXPECT(grow_and_check(60));
        EXPECT(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        EXPECT(memory_comes_back(before - slack));
    }
}

static int close_in_child(void *context)
{
    ga_vector *v = (ga_vector *)context;
    const bool refused = ga_vector_end_loan(v, nullptr) == GA_ERR_DEVICE;
    ga_vector_close(v);
    return refused ? 0 : 1;
}

/* The child has neither pager nor device, and leaves both to its parent. */
static void forks_while_it_grows(int)
{
    SKIP_WHERE_NOTHING_GROWS
    words v;
    ga_kernel_vector view;
    ga_vector_appended appended = {};
    unsigned *refused = nullptr;
    CUDA(cudaMallocManaged(&refused, sizeof *refused));
    *refused = 0;
    gpualloc::check(ga_vector_lend(v.handle(), 2 * MIB, &view));
    append_marks<<<BLOCKS, BLOCK>>>(view, 3, refused);
    EXPECT(test_in_child(close_in_child, v.handle()) == 0);
    CUDA(cudaDeviceSynchronize());
    append_marks<<<BLOCKS, BLOCK>>>(view, 3, refused);
    CUDA(cudaDeviceSynchronize());
    gpualloc::check(ga_vector_end_loan(v.handle(), &appended));
    EXPECT(*refused == 0 && appended.growths > 0);
    EXPECT(v.size() == 2 * (std::size_t)BLOCK * BLOCKS * EACH);
    CUDA(cudaFree(refused));
}

const test_case vector_process_cases[] = {
    {"append: two processes on one card", guarded<two_processes>},
    {"append: a process that is killed while its vector grows", guarded<killed_while_it_grows>},
    {"append: a fork while it grows", guarded<forks_while_it_grows>},
};
const size_t vector_process_case_count = sizeof vector_process_cases / sizeof *vector_process_cases;
