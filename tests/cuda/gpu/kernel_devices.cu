/* SPDX-License-Identifier: MIT
 *
 * A program whose kernels allocate on two devices, to be run without the preload and under
 * `gpualloc run --kernel`. It prints sums that do not depend on where blocks are; what it is about
 * to do goes to standard error, between the lines of GPUALLOC_LOG=info.
 *
 *   kernel_devices [full]
 *
 * `full`: the last device that there is has no memory for a heap when its kernels allocate first,
 * and has some later. Only for a run under the preload, with slab:capacity=1G/vmm: CUDA's malloc
 * has its memory before.
 *
 * Exit status 77: there are no two devices.
 */
#include <chrono>
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
#include <thread>

enum {
    DEVICES = 2,
    BLOCKS = 64,
    THREADS = 128,
    ROUNDS = 50,
    LENGTH = 5,
    LIMIT = 256 << 20 /* of CUDA's malloc */
};

struct node {
    node *next;
    unsigned value;
};

__global__ void build(node **out, unsigned seed)
{
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    node *list = nullptr;
    for (unsigned i = 0; i < LENGTH; i++) {
        node *made = (node *)malloc(sizeof(node) + thread % 7 * 16);
        if (made) {
            made->next = list;
            made->value = seed + thread * LENGTH + i;
            list = made;
        }
    }
    out[thread] = list;
}

/* Frees them, too. */
__global__ void sum(node **lists, unsigned long long *out)
{
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long total = 0;
    for (node *list = lists[thread]; list;) {
        node *next = list->next;
        total += list->value;
        free(list);
        list = next;
    }
    atomicAdd(out, total);
}

__global__ void request(unsigned *refused)
{
    void *volatile block = malloc(100); /* else a compiler may take both calls out */
    if (!block) {
        atomicAdd(refused, 1u);
    }
    free(block);
}

/* ---- one device ------------------------------------------------------------------------------ */

struct place {
    node **lists;
    unsigned long long *total;
    cudaStream_t stream;
};

static place places[DEVICES];
static bool is_good = true;

static void expect(const char *what, cudaError_t result)
{
    if (result != cudaSuccess) {
        printf("%s: %s\n", what, cudaGetErrorName(result));
        is_good = false;
    }
}

static void begin(int device)
{
    place &p = places[device];
    expect("device", cudaSetDevice(device));
    expect("limit", cudaDeviceSetLimit(cudaLimitMallocHeapSize, (size_t)LIMIT));
    expect("lists", cudaMalloc(&p.lists, BLOCKS * THREADS * sizeof *p.lists));
    expect("total", cudaMalloc(&p.total, sizeof *p.total));
    expect("zero", cudaMemset(p.total, 0, sizeof *p.total));
    expect("stream", cudaStreamCreate(&p.stream));
}

static void launch_build(int device, unsigned seed)
{
    const place &p = places[device];
    expect("device", cudaSetDevice(device));
    build<<<BLOCKS, THREADS, 0, p.stream>>>(p.lists, seed);
}

static void launch_sum(int device)
{
    const place &p = places[device];
    expect("device", cudaSetDevice(device));
    sum<<<BLOCKS, THREADS, 0, p.stream>>>(p.lists, p.total);
}

static unsigned long long total_of(int device)
{
    unsigned long long total = 0;
    expect("device", cudaSetDevice(device));
    expect("kernels", cudaStreamSynchronize(places[device].stream));
    expect("copy", cudaMemcpy(&total, places[device].total, sizeof total, cudaMemcpyDeviceToHost));
    return total;
}

static void print(const char *what)
{
    printf("%s: %llx %llx\n", what, total_of(0), total_of(1));
}

/* ---- scenes ---------------------------------------------------------------------------------- */

static void work(int device)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        launch_build(device, i);
        launch_sum(device);
    }
    expect("kernels", cudaStreamSynchronize(places[device].stream));
}

static void run_threads()
{
    std::thread first(work, 0);
    std::thread second(work, 1);
    first.join();
    second.join();
}

static cudaGraphNode_t add(cudaGraph_t graph, const cudaGraphNode_t *after, void *kernel,
                           void **parameters)
{
    cudaGraphNode_t made = nullptr;
    cudaKernelNodeParams params = {};
    params.func = kernel;
    params.gridDim = BLOCKS;
    params.blockDim = THREADS;
    params.kernelParams = parameters;
    expect("node", cudaGraphAddKernelNode(&made, graph, after, after ? 1 : 0, &params));
    return made;
}

/* One graph with kernels of both devices, or one that a stream of `device` captured. */
static void run_graph(int device)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    if (device < DEVICES) {
        expect("device", cudaSetDevice(device));
        expect("begin", cudaStreamBeginCapture(places[device].stream, cudaStreamCaptureModeGlobal));
        launch_build(device, 7);
        launch_sum(device);
        expect("end", cudaStreamEndCapture(places[device].stream, &graph));
    } else {
        expect("graph", cudaGraphCreate(&graph, 0));
        for (int i = 0; i < DEVICES; i++) {
            unsigned seed = 9;
            void *to_build[] = {&places[i].lists, &seed};
            void *to_sum[] = {&places[i].lists, &places[i].total};
            expect("device", cudaSetDevice(i));
            cudaGraphNode_t built = add(graph, nullptr, (void *)build, to_build);
            add(graph, &built, (void *)sum, to_sum);
        }
    }
    const place &p = places[device % DEVICES];
    expect("device", cudaSetDevice(device % DEVICES));
    expect("instantiate", cudaGraphInstantiate(&exec, graph, 0));
    expect("launch", cudaGraphLaunch(exec, p.stream));
    expect("launch", cudaGraphLaunch(exec, p.stream));
    expect("wait", cudaStreamSynchronize(p.stream));
    expect("destroy", cudaGraphExecDestroy(exec));
    expect("destroy", cudaGraphDestroy(graph));
}

/* Blocks of the other device live meanwhile. */
static void reset(int device)
{
    int other = 1 - device;
    launch_build(other, 3);
    launch_build(device, 4);
    total_of(0);
    total_of(1);
    expect("device", cudaSetDevice(device));
    expect("reset", cudaDeviceReset());
    launch_sum(other);
    printf("device %d after a reset of the other: %llx\n", other, total_of(other));
    begin(device);
    launch_build(device, 5);
    launch_sum(device);
    print("both after a reset");
}

/* All of them, or none. */
static void expect_refused(const char *what, unsigned *counter, bool all)
{
    unsigned count = 0;
    unsigned expected = all ? BLOCKS * THREADS : 0;
    expect("zero", cudaMemset(counter, 0, sizeof *counter));
    request<<<BLOCKS, THREADS>>>(counter);
    expect("launch", cudaGetLastError());
    expect("copy", cudaMemcpy(&count, counter, sizeof count, cudaMemcpyDeviceToHost));
    printf("%s: %u of %u refused, expected %u\n", what, count, (unsigned)(BLOCKS * THREADS),
           expected);
    is_good = is_good && count == expected;
}

/* Until what is left is enough for a launch and its code, and too little for a heap. */
static int fill(void **chunks, int most)
{
    int count = 0;
    void *rest = nullptr;
    expect("rest", cudaMalloc(&rest, (size_t)512 << 20));
    for (size_t size = (size_t)1 << 30; size >= (size_t)1 << 25; size /= 2) {
        while (count < most && cudaMalloc(&chunks[count], size) == cudaSuccess) {
            count++;
        }
        cudaGetLastError();
    }
    expect("rest", cudaFree(rest));
    return count;
}

/* The heap of the first device is open before. */
static void run_full(int device)
{
    enum {
        CHUNKS = 4096
    };
    static void *chunks[CHUNKS];
    unsigned *counters[2];
    for (int i = 0; i <= device; i += device ? device : 1) {
        expect("device", cudaSetDevice(i));
        expect("counter", cudaMalloc(&counters[i != 0], sizeof **counters));
    }
    expect("device", cudaSetDevice(0));
    if (device) {
        expect_refused("device 0", counters[0], false);
    }
    expect("device", cudaSetDevice(device));
    int count = fill(chunks, CHUNKS);
    fprintf(stderr, "-- no memory is free\n");
    expect_refused("full", counters[device != 0], true);
    expect_refused("full", counters[device != 0], true);
    while (count) {
        expect("free", cudaFree(chunks[--count]));
    }
    fprintf(stderr, "-- all memory is free\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(3000));
    expect_refused("later", counters[device != 0], false);
}

int main(int argc, char **argv)
{
    int devices = 0;
    if (argc > 1 && strcmp(argv[1], "full") == 0 && cudaGetDeviceCount(&devices) == cudaSuccess) {
        run_full(devices - 1);
        return is_good ? 0 : 1;
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < DEVICES) {
        fprintf(stderr, "expected two devices, got %d\n", devices);
        return 77;
    }
    begin(0);
    begin(1);
    fprintf(stderr, "-- device 0 allocates\n");
    launch_build(0, 1);
    launch_sum(0);
    print("device 0 alone");
    run_graph(0);
    print("a graph of device 0");
    fprintf(stderr, "-- device 1 allocates\n");
    launch_build(1, 2);
    launch_sum(1);
    print("device 1, too");
    run_threads();
    print("a thread for each");
    run_graph(1);
    print("a graph of device 1");
    run_graph(DEVICES);
    print("a graph of both");
    for (int i = 0; i < 2 * DEVICES; i++) {
        fprintf(stderr, "-- device %d is reset\n", i % DEVICES);
        reset(i % DEVICES);
    }
    fprintf(stderr, "-- the end\n");
    return is_good ? 0 : 1;
}
