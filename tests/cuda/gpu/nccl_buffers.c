/* SPDX-License-Identifier: MIT
 *
 * All-reduce of NCCL between two devices, a thread or a process each, on memory of several sources:
 * plain and registered (ncclCommRegister, ncclCommWindowRegister). For a machine with two devices
 * and NCCL 2.19 or later, which is found at run time.
 *
 *   nccl-buffers times [apart]   the sources take turns; median, minimum, maximum in microseconds
 *   nccl-buffers sums [apart]    each source once, and its sums
 *   nccl-buffers pairs           ncclMemAlloc and ncclMemFree of 64 MiB, one pair after the other
 *   nccl-buffers peers           a heap with register=on creates no context on the peer, which can
 *                                access its blocks
 *   nccl-buffers freed           under the preload with `vmm`: blocks that are freed while they are
 *                                registered, and a trim
 *
 * apart: in processes.
 * Exit status 1: a line ends in NO, or a call failed; 77: fewer than two devices, or no NCCL.
 */
#include "say.h"

#include <gpualloc/gpualloc.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SKIP = 77,
    RANKS = 2,
    SIZES = 2,
    WARM = 3,
    ROUNDS = 20,
    PAIRS = 200,
    FLOAT = 7,    /* ncclFloat32 */
    SUM = 0,      /* ncclSum */
    SYMMETRIC = 1 /* NCCL_WIN_COLL_SYMMETRIC */
};

#define MIB ((size_t)1 << 20)

static const size_t sizes[SIZES] = {64 * MIB, 512 * MIB};
static const int repeats[SIZES] = {10, 4}; /* all-reduces in one time */

/* ---- NCCL -------------------------------------------------------------------------------- */

typedef struct unique_id {
    char bytes[128];
} unique_id;

/* clang-format off */
#define FUNCTIONS(X)                                                                               \
    X(ncclGetVersion, (int *version))                                                              \
    X(ncclGetErrorString, (int result))                                                            \
    X(ncclGetUniqueId, (unique_id * id))                                                           \
    X(ncclCommInitAll, (void **comms, int count, const int *devices))                              \
    X(ncclCommInitRank, (void **comm, int count, unique_id id, int rank))                          \
    X(ncclCommDestroy, (void *comm))                                                               \
    X(ncclMemAlloc, (void **block, size_t size))                                                   \
    X(ncclMemFree, (void *block))                                                                  \
    X(ncclCommRegister, (void *comm, void *block, size_t size, void **handle))                     \
    X(ncclCommDeregister, (void *comm, void *handle))                                              \
    X(ncclCommWindowRegister, (void *comm, void *block, size_t size, void **window, int flags))    \
    X(ncclCommWindowDeregister, (void *comm, void *window))                                        \
    X(ncclAllReduce, (const void *from, void *to, size_t count, int type, int operation,           \
                      void *comm, void *stream))
/* clang-format on */

#define MEMBER(symbol, parameters) int(*symbol) parameters;
static struct {
    FUNCTIONS(MEMBER)
} nccl;

static int find_nccl(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
#define FIND(symbol, parameters) *(void **)&nccl.symbol = library ? dlsym(library, #symbol) : NULL;
    FUNCTIONS(FIND)
    return nccl.ncclMemAlloc && nccl.ncclCommRegister;
}

static int not_so; /* of this process */

static void check(const char *what, int holds)
{
    need(what, holds);
    __atomic_fetch_add(&not_so, !holds, __ATOMIC_RELAXED); /* relaxed: a count */
}

static void must(const char *what, int result)
{
    if (result) {
        printf("%s: error %d\n", what, result);
        exit(1);
    }
}

/* ---- sources of memory ------------------------------------------------------------------- */

typedef enum origin {
    CUDA,
    NCCL,
    HEAP
} origin;

typedef enum manner {
    PLAIN,
    REGISTERED,
    WINDOW
} manner;

static const struct source {
    const char *name;
    origin origin;
    manner manner;
} sources[] = {
    {"cudaMalloc", CUDA, PLAIN},
    {"cudaMalloc, registered", CUDA, REGISTERED},
    {"ncclMemAlloc", NCCL, PLAIN},
    {"ncclMemAlloc, registered", NCCL, REGISTERED},
    {"ncclMemAlloc, window", NCCL, WINDOW},
    {"vmm:register=on", HEAP, PLAIN},
    {"vmm:register=on, registered", HEAP, REGISTERED},
    {"vmm:register=on, window", HEAP, WINDOW},
};

enum {
    SOURCES = sizeof sources / sizeof *sources
};

typedef struct buffer {
    void *start, *handle; /* of the registration */
} buffer;

typedef struct rank {
    int number;
    void *comm;
    ga_heap *heap;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    buffer buffers[SOURCES][2];             /* to send, and to receive */
    float times[SOURCES][SIZES][2][ROUNDS]; /* microseconds; in place, and not */
} rank;

/* Shared by the processes. */
static struct {
    rank ranks[RANKS];
    pthread_barrier_t together;
    unique_id id;
} * world;

static void meet(void)
{
    pthread_barrier_wait(&world->together);
}

static int is_here(int source)
{
    return sources[source].manner != WINDOW || nccl.ncclCommWindowRegister != NULL;
}

static void make(rank *r, const struct source *from, size_t size, buffer *out)
{
    switch (from->origin) {
    case CUDA:
        must("cudaMalloc", (int)cudaMalloc(&out->start, size));
        break;
    case NCCL:
        must("ncclMemAlloc", nccl.ncclMemAlloc(&out->start, size));
        break;
    case HEAP:
        must("ga_alloc", (int)ga_alloc(r->heap, size, 0, &out->start));
        break;
    }
    must("cudaMemset", (int)cudaMemset(out->start, 0, size));
    if (from->manner == REGISTERED) {
        must("ncclCommRegister", nccl.ncclCommRegister(r->comm, out->start, size, &out->handle));
    } else if (from->manner == WINDOW) {
        must("ncclCommWindowRegister",
             nccl.ncclCommWindowRegister(r->comm, out->start, size, &out->handle, SYMMETRIC));
    }
}

static void end(rank *r, const struct source *from, const buffer *gone)
{
    if (from->manner == REGISTERED) {
        must("ncclCommDeregister", nccl.ncclCommDeregister(r->comm, gone->handle));
    } else if (from->manner == WINDOW) {
        must("ncclCommWindowDeregister", nccl.ncclCommWindowDeregister(r->comm, gone->handle));
    }
    meet();
    switch (from->origin) {
    case CUDA:
        must("cudaFree", (int)cudaFree(gone->start));
        break;
    case NCCL:
        must("ncclMemFree", nccl.ncclMemFree(gone->start));
        break;
    case HEAP:
        must("ga_free", (int)ga_free(r->heap, gone->start));
        break;
    }
}

/* ---- ranks ------------------------------------------------------------------------------- */

static void reduce(const rank *r, const void *from, void *to, size_t size)
{
    must("ncclAllReduce",
         nccl.ncclAllReduce(from, to, size / sizeof(float), FLOAT, SUM, r->comm, r->stream));
}

static void begin_rank(rank *r)
{
    must("cudaSetDevice", (int)cudaSetDevice(r->number));
    must("cudaStreamCreate", (int)cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    must("cudaEventCreate", (int)cudaEventCreate(&r->begin));
    must("cudaEventCreate", (int)cudaEventCreate(&r->end));
    if (ga_heap_open(&r->heap, GA_PLACE_DEVICE, r->number, "vmm:register=on") != GA_OK) {
        printf("%s\n", ga_error_text());
        exit(1);
    }
    for (int s = 0; s < SOURCES; s++) {
        for (int b = 0; is_here(s) && b < 2; b++) {
            meet();
            make(r, &sources[s], sizes[SIZES - 1], &r->buffers[s][b]);
        }
    }
}

static void end_rank(rank *r)
{
    must("cudaDeviceSynchronize", (int)cudaDeviceSynchronize());
    for (int s = 0; s < SOURCES; s++) {
        for (int b = 0; is_here(s) && b < 2; b++) {
            meet();
            end(r, &sources[s], &r->buffers[s][b]);
        }
    }
    must("ga_heap_close", (int)ga_heap_close(r->heap));
}

/* Starts all ranks' work at about one time. Returns microseconds of one all-reduce. */
static float time_one(const rank *r, int source, int size, int apart)
{
    const buffer *b = r->buffers[source];
    float milliseconds = 0;
    must("cudaStreamSynchronize", (int)cudaStreamSynchronize(r->stream));
    meet();
    must("cudaEventRecord", (int)cudaEventRecord(r->begin, r->stream));
    for (int i = 0; i < repeats[size]; i++) {
        reduce(r, b[0].start, b[apart].start, sizes[size]);
    }
    must("cudaEventRecord", (int)cudaEventRecord(r->end, r->stream));
    must("cudaEventSynchronize", (int)cudaEventSynchronize(r->end));
    must("cudaEventElapsedTime", (int)cudaEventElapsedTime(&milliseconds, r->begin, r->end));
    return milliseconds * 1000 / (float)repeats[size];
}

static void *measure(void *argument)
{
    rank *r = argument;
    begin_rank(r);
    for (int i = -WARM; i < ROUNDS; i++) {
        for (int n = 0; n < SOURCES * SIZES * 2; n++) {
            int source = n % SOURCES;
            int size = n / SOURCES % SIZES;
            int apart = n / SOURCES / SIZES;
            float time = is_here(source) ? time_one(r, source, size, apart) : 0;
            if (i >= 0) {
                r->times[source][size][apart][i] = time;
            }
        }
    }
    end_rank(r);
    return NULL;
}

static int compare(const void *one, const void *other)
{
    float a = *(const float *)one;
    float b = *(const float *)other;
    return (a > b) - (a < b);
}

/* The slower rank counts. */
static void print_times(int source, int size, int apart)
{
    float times[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        float one = world->ranks[0].times[source][size][apart][i];
        float other = world->ranks[1].times[source][size][apart][i];
        times[i] = one > other ? one : other;
    }
    qsort(times, (size_t)ROUNDS, sizeof *times, compare);
    float median = (times[(ROUNDS - 1) / 2] + times[ROUNDS / 2]) / 2;
    printf("%4zu MiB  %-12s  %-28s  %8.1f  %8.1f  %8.1f  %6.1f\n", sizes[size] / MIB,
           apart ? "out of place" : "in place", sources[source].name, (double)median,
           (double)times[0], (double)times[ROUNDS - 1],
           (double)sizes[size] / 1000 / (double)median);
}

static void print_all_times(void)
{
    printf("%8s  %-12s  %-28s  %8s  %8s  %8s  %6s\n", "bytes", "", "memory", "median/us", "min",
           "max", "GB/s");
    for (int size = 0; size < SIZES; size++) {
        for (int apart = 0; apart < 2; apart++) {
            for (int s = 0; s < SOURCES; s++) {
                if (is_here(s)) {
                    print_times(s, size, apart);
                }
            }
        }
    }
}

/* ---- sums -------------------------------------------------------------------------------- */

static int is_everywhere(const void *block, size_t size, float value)
{
    float *copy = malloc(size);
    int good = copy && cudaMemcpy(copy, block, size, cudaMemcpyDeviceToHost) == cudaSuccess;
    for (size_t i = 0; good && i < size / sizeof *copy; i++) {
        good = copy[i] == value;
    }
    free(copy);
    return good;
}

static void fill(void *block, size_t size, float value)
{
    float *copy = malloc(size);
    for (size_t i = 0; copy && i < size / sizeof *copy; i++) {
        copy[i] = value;
    }
    must("cudaMemcpy", copy ? (int)cudaMemcpy(block, copy, size, cudaMemcpyHostToDevice) : 1);
    free(copy);
}

/* The sum of 1 and 2 out of place, then of both sums in place. */
static int sums_of(const rank *r, const buffer *b, size_t size)
{
    fill(b[0].start, size, (float)(r->number + 1));
    must("cudaDeviceSynchronize", (int)cudaDeviceSynchronize());
    reduce(r, b[0].start, b[1].start, size);
    reduce(r, b[1].start, b[1].start, size);
    must("cudaStreamSynchronize", (int)cudaStreamSynchronize(r->stream));
    return is_everywhere(b[1].start, size, 6) &&
           is_everywhere(b[0].start, size, (float)(r->number + 1));
}

static void *sums(void *argument)
{
    rank *r = argument;
    begin_rank(r);
    for (int s = 0; s < SOURCES; s++) {
        int good = !is_here(s) || sums_of(r, r->buffers[s], 16 * MIB);
        meet();
        for (int i = 0; i < RANKS; i++) {
            if (i == r->number && is_here(s)) {
                printf("rank %d: ", i);
                check(sources[s].name, good);
            }
            meet();
        }
    }
    end_rank(r);
    return NULL;
}

/* ---- requests ------------------------------------------------------------------------------ */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void print_median(const char *what, float *times)
{
    qsort(times, PAIRS, sizeof *times, compare);
    printf("%-12s  %8.1f us, minimum %.1f, maximum %.1f\n", what, (double)times[PAIRS / 2],
           (double)times[0], (double)times[PAIRS - 1]);
}

static int pairs(void)
{
    float allocs[PAIRS];
    float frees[PAIRS];
    must("cudaSetDevice", (int)cudaSetDevice(0));
    must("cudaFree", (int)cudaFree(NULL));
    for (int i = -WARM; i < PAIRS; i++) {
        void *block = NULL;
        double begin = now();
        must("ncclMemAlloc", nccl.ncclMemAlloc(&block, sizes[0]));
        double middle = now();
        must("ncclMemFree", nccl.ncclMemFree(block));
        if (i >= 0) {
            allocs[i] = (float)(middle - begin);
            frees[i] = (float)(now() - middle);
        }
    }
    print_median("ncclMemAlloc", allocs);
    print_median("ncclMemFree", frees);
    return 0;
}

/* ---- a heap and its peer ----------------------------------------------------------------- */

static int is_active(int device)
{
    static int (*state)(int device, unsigned *flags, int *active);
    unsigned flags;
    int active = -1;
    *(void **)&state = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "cuDevicePrimaryCtxGetState");
    return state && !state(device, &flags, &active) ? active : -1;
}

static int peers(void)
{
    ga_heap *heap;
    void *block = NULL;
    must("cudaSetDevice", (int)cudaSetDevice(0));
    must("cudaFree", (int)cudaFree(NULL));
    must("ga_heap_open", (int)ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:register=on"));
    must("ga_alloc", (int)ga_alloc(heap, 8 * MIB, 0, &block));
    check("no context on the peer", is_active(1) == 0);
    must("cudaSetDevice", (int)cudaSetDevice(1));
    must("cudaFree", (int)cudaFree(NULL));
    say("the peer writes", cudaMemset(block, 5, 8 * MIB));
    say("and waits", cudaDeviceSynchronize());
    must("cudaSetDevice", (int)cudaSetDevice(0));
    check("it is there", holds(block, 8 * MIB, 5));
    must("ga_free", (int)ga_free(heap, block));
    must("ga_heap_close", (int)ga_heap_close(heap));
    return not_so != 0;
}

/* ---- blocks that are freed while they are registered ------------------------------------- */

static void trim_pool(void)
{
    cudaMemPool_t pool;
    must("pool", (int)cudaDeviceGetDefaultMemPool(&pool, 0));
    must("trim", (int)cudaMemPoolTrimTo(pool, 0));
}

static void *take(int by_nccl, size_t size)
{
    void *block = NULL;
    must("alloc", by_nccl ? nccl.ncclMemAlloc(&block, size) : (int)cudaMalloc(&block, size));
    return block;
}

static int give(int by_nccl, void *block)
{
    return by_nccl ? nccl.ncclMemFree(block) : (int)cudaFree(block);
}

static void freed_as(const rank *r, int by_nccl)
{
    void *handle = NULL;
    size_t size = 64 * MIB;
    char *block = take(by_nccl, size);
    must("cudaMemset", (int)cudaMemset(block, 5, size));
    must("register", nccl.ncclCommRegister(r->comm, block, size, &handle));
    check("a handle", handle != NULL);
    check("freed while registered", give(by_nccl, block) == 0);
    check("not twice", give(by_nccl, block) != 0);
    cudaGetLastError();
    trim_pool();
    char *other = take(by_nccl, size);
    must("cudaMemset", (int)cudaMemset(other, 6, size));
    check("another block", other + size <= block || block + size <= other);
    check("the contents stay", holds(block, size, 5));
    must("deregister", nccl.ncclCommDeregister(r->comm, handle));
    must("cudaDeviceSynchronize", (int)cudaDeviceSynchronize());
    char *again = take(by_nccl, size);
    check("the block is reused", again == block);
    check("both are freed", give(by_nccl, other) == 0 && give(by_nccl, again) == 0);
}

static void *freed(void *argument)
{
    rank *r = argument;
    must("cudaSetDevice", (int)cudaSetDevice(r->number));
    for (int by_nccl = 0; r->number == 0 && by_nccl < 2; by_nccl++) {
        printf("%s\n", by_nccl ? "ncclMemAlloc" : "cudaMalloc");
        freed_as(r, by_nccl);
    }
    meet();
    return NULL;
}

/* ---- all ranks ---------------------------------------------------------------------------- */

static void need_machine(void)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < RANKS || !find_nccl()) {
        puts("two devices and NCCL are needed");
        exit(SKIP);
    }
}

static void run_threads(void *(*work)(void *))
{
    pthread_t threads[RANKS];
    void *comms[RANKS];
    need_machine();
    must("ncclCommInitAll", nccl.ncclCommInitAll(comms, RANKS, (int[]){0, 1}));
    for (int i = 0; i < RANKS; i++) {
        world->ranks[i].comm = comms[i];
        pthread_create(&threads[i], NULL, work, &world->ranks[i]);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < RANKS; i++) {
        must("ncclCommDestroy", nccl.ncclCommDestroy(comms[i]));
    }
}

static void run_process(int number, void *(*work)(void *))
{
    rank *r = &world->ranks[number];
    need_machine();
    must("cudaSetDevice", (int)cudaSetDevice(number));
    if (!number) {
        must("ncclGetUniqueId", nccl.ncclGetUniqueId(&world->id));
    }
    meet();
    must("ncclCommInitRank", nccl.ncclCommInitRank(&r->comm, RANKS, world->id, number));
    work(r);
    must("ncclCommDestroy", nccl.ncclCommDestroy(r->comm));
}

/* The children start before this process uses the driver. */
static void run_processes(void *(*work)(void *))
{
    pid_t child = fork();
    run_process(child == 0, work);
    int status = 0;
    if (child == 0) {
        exit(not_so != 0);
    }
    waitpid(child, &status, 0);
    must("the child", status);
}

static void begin_world(void)
{
    pthread_barrierattr_t shared;
    world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must("mmap", world == MAP_FAILED);
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&world->together, &shared, RANKS);
    for (int i = 0; i < RANKS; i++) {
        world->ranks[i].number = i;
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    bool times = strcmp(what, "times") == 0;
    void *(*work)(void *) = times                        ? measure
                            : strcmp(what, "sums") == 0  ? sums
                            : strcmp(what, "freed") == 0 ? freed
                                                         : NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(what, "peers") == 0 || strcmp(what, "pairs") == 0) {
        need_machine();
        return what[1] == 'e' ? peers() : pairs();
    }
    if (!work) {
        return 2;
    }
    begin_world();
    if (argc > 2 && strcmp(argv[2], "apart") == 0) {
        run_processes(work);
    } else {
        run_threads(work);
    }
    if (times) {
        int version = 0;
        nccl.ncclGetVersion(&version);
        printf("NCCL %d, %s\n", version, argc > 2 ? argv[2] : "one process");
        print_all_times();
    }
    return not_so != 0;
}
