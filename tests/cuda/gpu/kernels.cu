/* SPDX-License-Identifier: MIT
 *
 * A program whose kernels call malloc, free, new and delete, to be run without the preload and
 * under `gpualloc run --kernel`. It prints sums that do not depend on where blocks are.
 *
 *   kernels [rate [MIB]]
 *
 * Each scene runs in the primary context of each device, after cudaDeviceReset() twice more, and in
 * contexts of cuCtxCreate() beside the primary one. `rate` prints the speed of malloc and free,
 * with MIB of memory allocated before.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>

enum {
    BLOCKS = 64,
    THREADS = 256,
    LENGTH = 7,
    SUMS = 8,
    LIVE = 40,
    LIMIT = 256 << 20
};

/* ---- kernels --------------------------------------------------------------------------------- */

struct node {
    node *next;
    unsigned value;
};

struct alignas(64) wide {
    unsigned values[16];
};

/* The program has constants of its own. */
__constant__ unsigned factors[] = {3, 5, 7};

static __device__ __noinline__ node *make(unsigned value, node *next)
{
    node *made = (node *)malloc(sizeof(node));
    if (made) {
        made->next = next;
        made->value = value;
    }
    return made;
}

static __device__ __noinline__ node *recurse(unsigned length, node *list)
{
    return length ? recurse(length - 1, make(length, list)) : list;
}

static __device__ __noinline__ node *first(unsigned value)
{
    return make(value, nullptr);
}

static __device__ __noinline__ node *second(unsigned value)
{
    return make(value + 1, first(value));
}

static __device__ __noinline__ node *third(unsigned value)
{
    node *list = second(value + 1);
    return make(value, list);
}

typedef node *maker(unsigned value);
static __device__ maker *const makers[] = {first, second, third};

static __device__ void consume(node *list, unsigned long long *sum)
{
    unsigned long long total = 0;
    while (list) {
        node *next = list->next;
        total = total * factors[0] + list->value;
        free(list);
        list = next;
    }
    atomicAdd(sum, total);
}

__global__ void build_lists(node **out)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = recurse(LENGTH, nullptr);
}

/* In another kernel than the one that allocated. */
__global__ void free_lists(node **lists, unsigned long long *sum)
{
    consume(lists[blockIdx.x * blockDim.x + threadIdx.x], sum);
}

__global__ void call_by_pointer(unsigned long long *sum)
{
    consume(makers[threadIdx.x % 3](threadIdx.x), sum);
}

/* Many values are needed after the call. */
__global__ void keep_values(unsigned long long *sum)
{
    unsigned values[LIVE];
    unsigned v = threadIdx.x * 2654435761u + blockIdx.x;
#pragma unroll
    for (int i = 0; i < LIVE; i++) {
        v = v * 1664525u + 1013904223u;
        values[i] = v;
        asm volatile("" : "+r"(values[i]));
    }
    unsigned *block = (unsigned *)malloc(64 + threadIdx.x);
    unsigned *array = new unsigned[16];
    double *number = new double(1.5 * threadIdx.x);
    unsigned long long total = 0;
    if (block && array && number) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            block[i] = values[i];
            array[i] = values[LIVE - 1 - i];
        }
#pragma unroll
        for (int i = 0; i < LIVE; i++) {
            total += (unsigned long long)values[i] * (i + 1);
        }
        for (int i = 0; i < 16; i++) {
            total += block[i] ^ array[i];
        }
        total += (unsigned long long)*number;
    }
    delete number;
    delete[] array;
    free(block);
    atomicAdd(sum, total);
}

__global__ void align(unsigned long long *sum)
{
    wide *made = new wide[2];
    unsigned long long total = 0;
    if (made && (size_t)made % alignof(wide) == 0) {
        made[1].values[3] = threadIdx.x;
        total = made[1].values[3] + 1;
    }
    delete[] made;
    atomicAdd(sum, total);
}

__global__ void large_blocks(unsigned long long *sum)
{
    size_t size = 5000u * (threadIdx.x % 5 + 1);
    unsigned char *block = (unsigned char *)malloc(size);
    if (block) {
        block[0] = block[size - 1] = (unsigned char)threadIdx.x;
        atomicAdd(sum, (unsigned long long)block[0] + block[size - 1] + 1);
    }
    free(block);
}

__global__ void pairs(int rounds, unsigned *failed)
{
    for (int i = 0; i < rounds; i++) {
        unsigned *block = (unsigned *)malloc(16);
        if (!block) {
            atomicAdd(failed, 1u);
            continue;
        }
        *block = threadIdx.x;
        if (*(volatile unsigned *)block != threadIdx.x) {
            atomicAdd(failed, 1u);
        }
        free(block);
    }
}

/* ---- scenes ---------------------------------------------------------------------------------- */

static bool is_good(const char *what, cudaError_t result)
{
    if (result != cudaSuccess) {
        printf("%s: %s\n", what, cudaGetErrorName(result));
    }
    return result == cudaSuccess;
}

/* Print the sums of all kernels. The limit can be set before a kernel has run that calls malloc.
 * False: the context is lost. */
static bool run(const char *where, bool is_new)
{
    node **lists = nullptr;
    unsigned long long *sums = nullptr;
    unsigned long long found[SUMS] = {0};
    if ((is_new && !is_good("limit", cudaDeviceSetLimit(cudaLimitMallocHeapSize, (size_t)LIMIT))) ||
        !is_good("lists", cudaMalloc(&lists, BLOCKS * THREADS * sizeof *lists)) ||
        !is_good("sums", cudaMalloc(&sums, sizeof found)) ||
        !is_good("zeros", cudaMemset(sums, 0, sizeof found))) {
        return false;
    }
    build_lists<<<BLOCKS, THREADS>>>(lists);
    free_lists<<<BLOCKS, THREADS>>>(lists, sums);
    call_by_pointer<<<BLOCKS, THREADS>>>(sums + 1);
    keep_values<<<BLOCKS, THREADS>>>(sums + 2);
    align<<<BLOCKS, THREADS>>>(sums + 3);
    large_blocks<<<BLOCKS, THREADS>>>(sums + 4);
    pairs<<<BLOCKS, THREADS>>>(20, (unsigned *)(sums + 5));
    if (!is_good("kernels", cudaDeviceSynchronize()) ||
        !is_good("copy", cudaMemcpy(found, sums, sizeof found, cudaMemcpyDeviceToHost))) {
        return false;
    }
    size_t limit = 0;
    cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize);
    printf("%s: limit %zu,", where, limit);
    for (unsigned long long sum : found) {
        printf(" %llx", sum);
    }
    printf("\n");
    return is_good("free", cudaFree(lists)) && is_good("free", cudaFree(sums));
}

/* The program has the primary context before, and again after. */
static bool run_in_other_context(int device)
{
    static const char *const names[] = {"cuCtxCreate", "cuCtxDestroy", "cuCtxGetCurrent",
                                        "cuCtxSetCurrent"};
    void *functions[4];
    for (int i = 0; i < 4; i++) {
        cudaDriverEntryPointQueryResult found;
        if (!is_good(names[i], cudaGetDriverEntryPointByVersion(names[i], &functions[i], 12000,
                                                                cudaEnableDefault, &found)) ||
            found != cudaDriverEntryPointSuccess) {
            return false;
        }
    }
    /* the forms of CUDA 11.4 to 12.4 */
    auto *create = (CUresult(*)(CUcontext *, void *, int, unsigned, CUdevice))functions[0];
    auto *destroy = (CUresult(*)(CUcontext))functions[1];
    auto *get = (CUresult(*)(CUcontext *))functions[2];
    auto *set = (CUresult(*)(CUcontext))functions[3];
    CUcontext own;
    CUcontext others[2];
    if (get(&own)) {
        return false;
    }
    for (CUcontext &other : others) {
        CUresult result = create(&other, nullptr, 0, 0, device);
        if (result != CUDA_SUCCESS) {
            printf("cuCtxCreate: %d\n", result);
            return false;
        }
    }
    bool good = true;
    for (int round = 0; good && round < 2; round++) {
        good = set(others[round]) == CUDA_SUCCESS && run("another context", true) &&
               set(own) == CUDA_SUCCESS && run("the primary context beside it", false);
    }
    good = good && set(own) == CUDA_SUCCESS && destroy(others[0]) == CUDA_SUCCESS &&
           set(others[1]) == CUDA_SUCCESS && run("the other context that is left", false) &&
           destroy(others[1]) == CUDA_SUCCESS && set(own) == CUDA_SUCCESS;
    return good;
}

static bool run_on(int device)
{
    bool good = is_good("device", cudaSetDevice(device)) && run("the primary context", true) &&
                run_in_other_context(device) && run("the primary context again", false);
    for (int i = 0; good && i < 2; i++) {
        good = is_good("reset", cudaDeviceReset()) && run("after a reset", true);
    }
    return good && run_in_other_context(device);
}

static int rate(size_t before)
{
    enum {
        ROUNDS = 200,
        RATE_BLOCKS = 1056,
        RATE_THREADS = 128
    };
    unsigned *failed = nullptr;
    unsigned count = 0;
    void *other = nullptr;
    cudaEvent_t begin;
    cudaEvent_t end;
    cudaMalloc(&other, (before << 20) + 1);
    cudaDeviceSetLimit(cudaLimitMallocHeapSize, (size_t)LIMIT);
    cudaMalloc(&failed, sizeof *failed);
    cudaMemset(failed, 0, sizeof *failed);
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    int forms[][2] = {{RATE_BLOCKS, RATE_THREADS}, {1, 32}, {1, 1}};
    for (auto &form : forms) {
        float best = 1e9f;
        for (int i = 0; i < 5; i++) {
            float time = 0;
            cudaEventRecord(begin);
            pairs<<<form[0], form[1]>>>(ROUNDS, failed);
            cudaEventRecord(end);
            cudaEventSynchronize(end);
            cudaEventElapsedTime(&time, begin, end);
            best = time < best ? time : best;
        }
        printf("%d blocks of %d: %.1f ns a pair in a thread, %.1f M pairs/s\n", form[0], form[1],
               best * 1e6 / ROUNDS, (double)form[0] * form[1] * ROUNDS / best / 1e3);
    }
    cudaMemcpy(&count, failed, sizeof count, cudaMemcpyDeviceToHost);
    printf("failed: %u\n", count);
    return is_good("rate", cudaGetLastError()) ? 0 : 1;
}

int main(int count, char **words)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        fprintf(stderr, "no GPU\n");
        return 77;
    }
    if (count > 1 && strcmp(words[1], "rate") == 0) {
        return rate(count > 2 ? strtoul(words[2], nullptr, 10) : 0);
    }
    bool good = true;
    for (int i = 0; good && i < devices && i < 2; i++) {
        good = run_on(i);
    }
    /* both, one after the other, without a reset between */
    for (int i = 0; good && devices > 1 && i < 4; i++) {
        good = is_good("device", cudaSetDevice(i % 2)) && run("in turns", false);
    }
    return good ? 0 : 1;
}
