/* SPDX-License-Identifier: MIT
 *
 * How programs use malloc in kernels, after the patterns of the CUDA C++ Programming Guide
 * ("Dynamic Global Memory Allocation and Operations"): a block of memory for each thread, for each
 * thread block, and between launches; objects with new and delete; lists; blocks that another
 * thread frees. It knows nothing of gpualloc: with and without libgpualloc-kernel.a its output must
 * be equal.
 *
 * Every block is filled with its owner's value, and checked before it is freed: blocks that
 * overlap, or are not aligned as promised, are counted as errors.
 *
 *     patterns [ROUNDS]      prints a line for each pattern; exits with 1 where one went wrong, 77
 *                            where there is no GPU
 */
#include <cuda_runtime.h>

#include <new>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCKS = 64,
    THREADS = 128,
    ALL = BLOCKS * THREADS
};

struct counts {
    unsigned long long served, refused, wrong;
};

__device__ counts found;
__device__ void *kept[ALL]; /* pointers that outlive a launch */

static __device__ uint32_t own_number()
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ void count(const void *block, size_t align)
{
    atomicAdd(block ? &found.served : &found.refused, 1ull);
    if ((size_t)block % align != 0) {
        atomicAdd(&found.wrong, 1ull);
    }
}

static __device__ void fill(void *block, uint32_t words, uint32_t value)
{
    for (uint32_t i = 0; block && i < words; i++) {
        ((volatile uint32_t *)block)[i] = value + i;
    }
}

static __device__ void check(const void *block, uint32_t words, uint32_t value)
{
    for (uint32_t i = 0; block && i < words; i++) {
        if (((const volatile uint32_t *)block)[i] != value + i) {
            atomicAdd(&found.wrong, 1ull);
            return;
        }
    }
}

/* ---- for each thread ------------------------------------------------------------------------- */

__global__ void for_each_thread(uint32_t round)
{
    uint32_t me = own_number();
    uint32_t words = 1 + (me * 2654435761u + round) % 64; /* 4 to 256 bytes */
    void *block = malloc(words * 4);
    count(block, 16);
    fill(block, words, me);
    __syncthreads();
    check(block, words, me);
    free(block);
}

/* Lanes leave the warp one after the other. */
__global__ void in_divergent_code(uint32_t round)
{
    uint32_t me = own_number();
    for (uint32_t i = 0; i < 1 + (me + round) % 7; i++) {
        if ((me >> i) % 2 == 0) {
            void *block = malloc(16 << i % 4);
            count(block, 16);
            fill(block, 4, me + i);
            check(block, 4, me + i);
            free(block);
        }
    }
}

/* ---- for each thread block ------------------------------------------------------------------- */

__global__ void for_each_block(uint32_t round)
{
    __shared__ uint32_t *shared;
    if (threadIdx.x == 0) {
        shared = (uint32_t *)malloc(blockDim.x * 32);
        count(shared, 16);
    }
    __syncthreads();
    uint32_t *block = shared;
    for (uint32_t i = 0; block && i < 8; i++) {
        block[i * blockDim.x + threadIdx.x] = own_number() + i + round;
    }
    __syncthreads();
    uint32_t other = (threadIdx.x + 37) % blockDim.x;
    for (uint32_t i = 0; block && i < 8; i++) {
        if (block[i * blockDim.x + other] != blockIdx.x * blockDim.x + other + i + round) {
            atomicAdd(&found.wrong, 1ull);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        free(block);
    }
}

/* ---- between launches ------------------------------------------------------------------------ */

__global__ void allocate()
{
    uint32_t me = own_number();
    kept[me] = malloc(48);
    count(kept[me], 16);
    fill(kept[me], 12, me);
}

__global__ void use()
{
    uint32_t me = own_number();
    check(kept[me], 12, me);
}

/* Not by the thread that allocated it. */
__global__ void release()
{
    uint32_t other = ALL - 1 - own_number();
    check(kept[other], 12, other);
    free(kept[other]);
}

/* ---- objects --------------------------------------------------------------------------------- */

struct node {
    node *next;
    uint32_t value;
    __device__ node(node *after, uint32_t v) : next(after), value(v)
    {
    }
    __device__ ~node()
    {
        delete next; /* a destructor that frees other blocks */
    }
};

/* Deleting the root deletes all of it, at another depth in each lane. */
struct tree {
    tree *child[2];
    uint32_t value;
    __device__ explicit tree(uint32_t v) : child{NULL, NULL}, value(v)
    {
    }
    __device__ ~tree()
    {
        delete child[0];
        delete child[1];
    }
};

static __device__ __noinline__ tree *grow(uint32_t value, uint32_t levels)
{
    void *room = malloc(sizeof(tree));
    count(room, 16);
    if (!room) {
        return NULL;
    }
    tree *root = new (room) tree(value);
    for (uint32_t i = 0; levels && i < 2; i++) {
        root->child[i] = grow(2 * value + i, levels - 1);
    }
    return root;
}

/* True if all nodes have their original values. */
static __device__ __noinline__ bool whole(const tree *root, uint32_t value, uint32_t levels)
{
    bool is = root && root->value == value;
    for (uint32_t i = 0; is && levels && i < 2; i++) {
        is = whole(root->child[i], 2 * value + i, levels - 1);
    }
    return is;
}

/* Threads of 4 blocks: CUDA's own heap has to have room for all. */
__global__ void trees(uint32_t round)
{
    uint32_t me = own_number();
    uint32_t levels = (me + round) % 5;
    tree *root = grow(me + 1, levels);
    if (root && !whole(root, me + 1, levels)) {
        atomicAdd(&found.wrong, 1ull);
    }
    delete root;
}

struct alignas(128) wide {
    uint32_t words[32];
};

__global__ void objects(uint32_t round)
{
    uint32_t me = own_number();
    node *list = NULL;
    for (uint32_t i = 0; i < 3 + round % 2; i++) {
        void *room = malloc(sizeof(node));
        count(room, 16);
        if (room) {
            list = new (room) node(list, me + i);
        }
    }
    delete list; /* new and malloc are one allocator in kernels */
    node *one = new node(NULL, me);
    count(one, 16);
    delete one;
    uint32_t *array = new uint32_t[20];
    count(array, 16);
    fill(array, 20, me);
    check(array, 20, me);
    delete[] array;
}

__global__ void aligned_objects()
{
    uint32_t me = own_number();
    if (me % 4 == 0) {
        wide *one = new wide;
        count(one, alignof(wide));
        fill(one, 32, me);
        check(one, 32, me);
        delete one;
    }
}

/* ---- many values at once --------------------------------------------------------------------- */

enum {
    MANY = 64
};

__device__ uint32_t numbers[MANY]; /* number i is i */

/* The assembler knows which registers CUDA's malloc and free preserve, from sm_80 on more than a
 * function must: also those above 31. The replacement must preserve them, too. */
__global__ void many_values(uint32_t round)
{
    uint32_t values[MANY];
    uint32_t me = own_number();
#pragma unroll
    for (uint32_t i = 0; i < MANY; i++) {
        values[i] = ((volatile uint32_t *)numbers)[i] + me;
    }
    void *block = malloc(16 + (me + round) % 3 * 100); /* of three sizes in each warp */
    count(block, 16);
#pragma unroll
    for (uint32_t i = 0; i < MANY; i++) {
        values[i] += block != NULL;
    }
    if (me % 5) { /* and by some of its lanes */
        free(block);
    }
    uint32_t right = 0;
#pragma unroll
    for (uint32_t i = 0; i < MANY; i++) {
        right += values[i] == i + me + (block != NULL);
    }
    if (right != MANY) {
        atomicAdd(&found.wrong, 1ull);
    }
    if (me % 5 == 0) {
        free(block);
    }
}

/* ---- sizes at the edge ----------------------------------------------------------------------- */

__global__ void edges()
{
    void *empty = malloc(0); /* NULL or a block: both may be freed */
    free(empty);
    free(NULL);
    for (int shift = 40; shift < 60;
         shift += 4) { /* CUDA's own serves some near 2^64 with a block */
        if (malloc((size_t)1 << shift)) {
            atomicAdd(&found.wrong, 1ull);
        }
    }
}

/* ---- running them ---------------------------------------------------------------------------- */

static bool failed;

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        printf("%s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

static void begin()
{
    counts none = {};
    must(cudaMemcpyToSymbol(found, &none, sizeof none), "clearing");
}

/* `expected` requests must have been served; none, where that is 0 or more than CUDA has by
 * itself. */
static void end(const char *name, unsigned long long least)
{
    counts now;
    must(cudaGetLastError(), name);
    must(cudaDeviceSynchronize(), name);
    must(cudaMemcpyFromSymbol(&now, found, sizeof now), name);
    bool bad = now.wrong || now.refused || now.served < least;
    printf("%-16s %8llu served %8llu refused %8llu wrong%s\n", name, now.served, now.refused,
           now.wrong, bad ? "   FAILED" : "");
    failed = failed || bad;
}

static void fill_numbers()
{
    uint32_t all[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        all[i] = i;
    }
    must(cudaMemcpyToSymbol(numbers, all, sizeof all), "numbers");
}

static void between_launches()
{
    cudaStream_t streams[2];
    must(cudaStreamCreate(&streams[0]), "a stream");
    must(cudaStreamCreate(&streams[1]), "a stream");
    begin();
    allocate<<<BLOCKS, THREADS, 0, streams[0]>>>();
    must(cudaStreamSynchronize(streams[0]), "allocate");
    use<<<BLOCKS, THREADS, 0, streams[1]>>>();
    use<<<BLOCKS * 2, THREADS / 2, 0, streams[1]>>>();
    release<<<BLOCKS, THREADS, 0, streams[1]>>>();
    end("between launches", ALL);
    cudaStreamDestroy(streams[0]);
    cudaStreamDestroy(streams[1]);
}

static void run(uint32_t round)
{
    begin();
    for_each_thread<<<BLOCKS, THREADS>>>(round);
    end("for each thread", ALL);
    begin();
    in_divergent_code<<<BLOCKS, THREADS>>>(round);
    end("divergent", ALL / 2);
    begin();
    for_each_block<<<BLOCKS, THREADS>>>(round);
    end("for each block", BLOCKS);
    between_launches();
    begin();
    objects<<<BLOCKS, THREADS>>>(round);
    end("objects", ALL * 5ull);
    begin();
    trees<<<4, THREADS>>>(round);
    end("trees", 4 * THREADS);
    begin();
    fill_numbers();
    many_values<<<BLOCKS, THREADS>>>(round);
    end("many values", ALL);
    begin();
    aligned_objects<<<BLOCKS, THREADS>>>();
    end("aligned objects", ALL / 4);
    begin();
    edges<<<1, 32>>>();
    end("edges", 0);
}

/* Memory of the host's own malloc, which must not be replaced. */
static void host_malloc()
{
    char *text = (char *)malloc(1 << 20);
    if (!text) {
        exit(1);
    }
    memset(text, 'x', 1 << 20);
    printf("%-16s %c\n", "host malloc", text[(1 << 20) - 1]);
    free(text);
}

int main(int argc, char **argv)
{
    int devices = 0;
    long rounds = argc > 1 ? atol(argv[1]) : 3;
    host_malloc();
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || !devices) {
        edges<<<1, 32>>>(); /* an impossible launch must fail in the usual way */
        printf("no GPU: %s; launch: %s\n", cudaGetErrorString(error),
               cudaGetErrorString(cudaGetLastError()));
        return 77;
    }
    must(cudaDeviceSetLimit(cudaLimitStackSize, 4 << 10), "a stack for recursion");
    for (long round = 0; round < rounds; round++) {
        run((uint32_t)round);
    }
    printf("%s\n", failed ? "FAILED" : "passed");
    return failed;
}
