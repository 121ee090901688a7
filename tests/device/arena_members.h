/* SPDX-License-Identifier: MIT
 *
 * The other processes of arena_members.cu: they obey the lines of their standard input and answer
 * each by one line, which begins with 0 or the number of an error. Only for CUDA.
 */
#ifndef TESTS_DEVICE_ARENA_MEMBERS_H
#define TESTS_DEVICE_ARENA_MEMBERS_H

#include <gpualloc/arena.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <unistd.h>
#include <vector>

typedef unsigned long long word;

static const uint64_t MIB = 1 << 20;
static const uint64_t GIB = 1 << 30;
static const word STEP = 0x9e3779b97f4a7c15ull; /* word i of the weights is i * STEP */

/* ---- kernels ------------------------------------------------------------------------ */

static __global__ void fill_words(word *at, size_t first, size_t end)
{
    for (size_t i = first + blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < end;
         i += (size_t)gridDim.x * blockDim.x) {
        at[i] = i * STEP;
    }
}

static __global__ void sum_words(const word *at, size_t n, word *sum)
{
    word own = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        own += at[i];
    }
    for (int step = 16; step; step /= 2) {
        own += __shfl_down_sync(~0u, own, step);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(sum, own);
    }
}

static __global__ void write_word(word *at, word value)
{
    *at = value;
}

static bool fill(ga_arena *arena, uint64_t from)
{
    fill_words<<<1024, 256>>>((word *)ga_arena_base(arena), from / sizeof(word),
                              ga_arena_size(arena) / sizeof(word));
    return cudaDeviceSynchronize() == cudaSuccess;
}

static word expected_sum(uint64_t bytes)
{
    word n = bytes / sizeof(word);
    return (n % 2 ? n * ((n - 1) / 2) : n / 2 * (n - 1)) * STEP;
}

/* False with an error of CUDA. `ms`: time of the kernel. */
static bool sum(const void *at, uint64_t bytes, word *out, float *ms)
{
    static word *result;
    cudaEvent_t begin, end;
    if (!result && cudaMalloc(&result, sizeof *result) != cudaSuccess) {
        return false;
    }
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    cudaMemset(result, 0, sizeof *result);
    cudaEventRecord(begin);
    sum_words<<<1024, 256>>>((const word *)at, bytes / sizeof(word), result);
    cudaEventRecord(end);
    bool good = cudaMemcpy(out, result, sizeof *out, cudaMemcpyDeviceToHost) == cudaSuccess;
    cudaEventElapsedTime(ms, begin, end);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return good;
}

static bool is_right(ga_arena *arena)
{
    word got = 0;
    float ms;
    return sum(ga_arena_base(arena), ga_arena_size(arena), &got, &ms) &&
           got == expected_sum(ga_arena_size(arena));
}

static uint64_t free_memory()
{
    size_t available = 0, total;
    cudaMemGetInfo(&available, &total);
    return available;
}

static double now_us()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* ---- the other processes ------------------------------------------------------------ */

struct subject {
    const char *name;
    ga_arena_access access;
    ga_arena *arena;
    void *copy;
};

static void answer_status(ga_status status)
{
    printf("%d %s\n", (int)status, status == GA_OK ? "" : ga_error_text());
}

static void answer_cuda()
{
    cudaError_t error = cudaDeviceSynchronize();
    printf("%d %s\n", (int)error, cudaGetErrorName(error));
}

/* The call, or later the work that it started. */
static void answer_call(cudaError_t error)
{
    cudaError_t later = cudaDeviceSynchronize();
    printf("%d %s, then %s\n", (int)(error ? error : later), cudaGetErrorName(error),
           cudaGetErrorName(later));
}

static void answer_sum(const void *at, uint64_t bytes)
{
    word got = 0;
    float ms = 0;
    if (sum(at, bytes, &got, &ms) && sum(at, bytes, &got, &ms)) {
        printf("%d %.0f GB/s\n", got == expected_sum(bytes) ? 0 : 1, (double)bytes / ms / 1e6);
    } else {
        answer_cuda();
    }
}

static void answer_times(std::vector<double> &us)
{
    std::sort(us.begin(), us.end());
    printf("0 median %.0f us, %.0f to %.0f\n", us[us.size() / 2], us.front(), us.back());
}

static void open_again(const subject &s, int rounds)
{
    std::vector<double> us;
    ga_arena *opened;
    for (int i = 0; i < rounds; i++) {
        double begin = now_us();
        ga_status status = ga_arena_join(&opened, s.name, s.access);
        us.push_back(now_us() - begin);
        if (status != GA_OK) {
            answer_status(status);
            return;
        }
        ga_arena_close(opened);
    }
    answer_times(us);
}

static void open_ipc(const char *digits, int rounds)
{
    cudaIpcMemHandle_t handle;
    std::vector<double> us;
    for (size_t i = 0; i < sizeof handle; i++) {
        unsigned byte = 0;
        sscanf(digits + 2 * i, "%2x", &byte);
        ((unsigned char *)&handle)[i] = (unsigned char)byte;
    }
    for (int i = 0; i < rounds; i++) {
        void *at = nullptr;
        double begin = now_us();
        cudaError_t error = cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess);
        us.push_back(now_us() - begin);
        if (error != cudaSuccess) {
            printf("%d %s\n", (int)error, cudaGetErrorName(error));
            return;
        }
        cudaIpcCloseMemHandle(at);
    }
    answer_times(us);
}

static void obey(subject *s, const char *line)
{
    word *base = (word *)ga_arena_base(s->arena);
    uint64_t size = ga_arena_size(s->arena);
    if (!strncmp(line, "join", 4)) {
        answer_status(ga_arena_join(&s->arena, s->name, s->access));
    } else if (!strncmp(line, "update", 6)) {
        answer_status(ga_arena_update(s->arena));
    } else if (!strncmp(line, "sum", 3)) {
        answer_sum(base, size);
    } else if (!strncmp(line, "copy", 4)) {
        cudaMalloc(&s->copy, size);
        cudaMemcpy(s->copy, base, size, cudaMemcpyDeviceToDevice);
        answer_cuda();
    } else if (!strncmp(line, "check", 5)) {
        answer_sum(s->copy, size);
    } else if (!strncmp(line, "write", 5)) {
        write_word<<<1, 1>>>(base, 1);
        answer_cuda();
    } else if (!strncmp(line, "set", 3)) {
        answer_call(cudaMemset(base, 0, size));
    } else if (!strncmp(line, "put", 3)) {
        answer_call(cudaMemcpy(base, &size, sizeof size, cudaMemcpyHostToDevice));
    } else if (!strncmp(line, "loop", 4)) {
        puts("0");
        fflush(stdout);
        for (word i = 0;; i++) {
            write_word<<<1, 1>>>(base, i);
        }
    } else if (!strncmp(line, "again", 5)) {
        open_again(*s, atoi(line + 5));
    } else if (!strncmp(line, "ipc", 3)) {
        open_ipc(line + 4, 30);
    } else if (!strncmp(line, "fork", 4)) {
        if (fork() == 0) {
            sleep(4); /* outlives the parent, with its descriptors */
            _exit(0);
        }
        puts("0");
    } else if (!strncmp(line, "close", 5)) {
        ga_arena_close(s->arena);
        s->arena = nullptr;
        puts("0");
    }
}

static int serve(subject *s)
{
    char line[400];
    puts("0 ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        obey(s, line);
        fflush(stdout);
    }
    ga_arena_close(s->arena);
    return 0;
}

/* The context and the module exist before memory is compared. */
static bool begin_cuda()
{
    word ignored;
    float ms;
    void *block = nullptr;
    bool good = cudaMalloc(&block, MIB) == cudaSuccess && sum(block, MIB, &ignored, &ms);
    return cudaFree(block) == cudaSuccess && good;
}

static int be_opener(const char *access, const char *name)
{
    subject s = {name, strcmp(access, "read") ? GA_ARENA_READ_WRITE : GA_ARENA_READ, nullptr,
                 nullptr};
    return begin_cuda() ? serve(&s) : 1;
}

static ga_status open_weights(ga_arena **arena, uint64_t size, uint64_t chunk_max)
{
    ga_arena_options options = {};
    options.options_size = sizeof options;
    options.flags = GA_ARENA_SHARE_FD | GA_ARENA_EXACT;
    options.place = GA_PLACE_DEVICE;
    options.chunk_max = chunk_max;
    ga_status status = ga_arena_open(arena, &options);
    if (status == GA_OK) {
        status = ga_arena_grow(*arena, size);
    }
    return status == GA_OK && !fill(*arena, 0) ? GA_ERR_DEVICE : status;
}

static int be_publisher(const char *name, const char *mib)
{
    subject s = {name, GA_ARENA_READ_WRITE, nullptr, nullptr};
    ga_status status =
        begin_cuda() ? open_weights(&s.arena, strtoull(mib, nullptr, 10) * MIB, 0) : GA_ERR_DEVICE;
    if (status == GA_OK) {
        status = ga_arena_publish(s.arena, name);
    }
    if (status != GA_OK) {
        answer_status(status);
        return 1;
    }
    return serve(&s);
}

#endif
