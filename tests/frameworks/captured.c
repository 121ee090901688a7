/* SPDX-License-Identifier: MIT
 *
 * Requests and frees while streams capture, by the functions for frameworks and by heaps, without
 * the preload: no call waits or ends the capture, and memory of a graph is not reused while the
 * graph exists. Over the driver for tests, which counts calls that a capture forbids.
 *
 *   captured SPEC
 */
#include "../support/libcuda/libcuda.h"

#include <gpualloc/frameworks.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB             ((size_t)1 << 20)
#define NEED(condition) need(condition, #condition, __LINE__)

enum {
    GLOBAL = 0,
    THREAD_LOCAL = 1,
    RELAXED = 2
};

static struct {
    CUresult (*init)(unsigned flags);
    CUresult (*retain)(CUcontext *context, CUdevice device);
    CUresult (*push)(CUcontext context);
    CUresult (*stream)(CUstream *stream, unsigned flags);
    CUresult (*begin)(CUstream stream, int mode);
    CUresult (*end)(CUstream stream, void **graph);
    CUresult (*destroy)(void *graph);
    CUresult (*exchange)(int *mode);
    uint64_t (*violations)(void);
    uint64_t (*nodes)(void);
} cu;

static void need(bool holds, const char *what, int line)
{
    if (!holds) {
        fprintf(stderr, "captured: line %d: %s (%s)\n", line, what, ga_error_text());
        exit(1);
    }
}

static void find_driver(void)
{
    const struct {
        void *function;
        const char *symbol;
    } rows[] = {{&cu.init, "cuInit"},
                {&cu.retain, "cuDevicePrimaryCtxRetain"},
                {&cu.push, "cuCtxPushCurrent_v2"},
                {&cu.stream, "cuStreamCreate"},
                {&cu.begin, "cuStreamBeginCapture_v2"},
                {&cu.end, "cuStreamEndCapture"},
                {&cu.destroy, "cuGraphDestroy"},
                {&cu.exchange, "cuThreadExchangeStreamCaptureMode"},
                {&cu.violations, "stand_in_violations"},
                {&cu.nodes, "stand_in_nodes"}};
    void *library = dlopen(getenv("GPUALLOC_CUDA_DRIVER"), RTLD_NOW);
    for (size_t i = 0; library && i < sizeof rows / sizeof *rows; i++) {
        void *function = dlsym(library, rows[i].symbol);
        need(function != NULL, rows[i].symbol, __LINE__);
        memcpy(rows[i].function, &function, sizeof function);
    }
    NEED(library != NULL);
}

static void begin_driver(void)
{
    CUcontext context;
    find_driver();
    NEED(cu.init(0) == CUDA_SUCCESS);
    NEED(cu.retain(&context, 0) == CUDA_SUCCESS);
    NEED(cu.push(context) == CUDA_SUCCESS);
}

static CUstream new_stream(unsigned flags)
{
    CUstream stream = NULL;
    NEED(cu.stream(&stream, flags) == CUDA_SUCCESS);
    return stream;
}

static void *end_capture(CUstream stream)
{
    void *graph = NULL;
    NEED(cu.end(stream, &graph) == CUDA_SUCCESS);
    NEED(cu.violations() == 0);
    return graph;
}

/* Returns true if the block is among the next allocations, all of which are freed again. */
static bool is_given(const void *block, size_t size, CUstream stream)
{
    enum {
        TRIES = 8
    };
    void *got[TRIES];
    bool given = false;
    for (int i = 0; i < TRIES; i++) {
        got[i] = ga_torch_alloc((ssize_t)size, 0, stream);
        given = given || got[i] == block;
    }
    for (int i = 0; i < TRIES; i++) {
        ga_torch_free(got[i], (ssize_t)size, 0, stream);
    }
    return given;
}

/* The heap's live blocks. */
static uint64_t live_blocks(void)
{
    ga_stats stats = {0};
    ga_torch_reset(); /* checks for destroyed graphs */
    NEED(ga_heap_stats(ga_framework_heap(0), &stats) == GA_OK);
    return stats.live_blocks;
}

/* ---- the functions for PyTorch --------------------------------------------------------------- */

static void free_in_a_capture(int mode)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    void *block = ga_torch_alloc((ssize_t)MIB, 0, stream);
    NEED(cu.begin(stream, mode) == CUDA_SUCCESS);
    ga_torch_free(block, (ssize_t)MIB, 0, stream);
    void *graph = end_capture(stream);
    NEED(!is_given(block, MIB, stream)); /* the graph uses it, whenever it is launched */
    NEED(live_blocks() == 1);
    cu.destroy(graph);
    NEED(live_blocks() == 0);
}

static void alloc_in_a_capture(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    NEED(cu.begin(stream, GLOBAL) == CUDA_SUCCESS);
    void *first = ga_torch_alloc((ssize_t)MIB, 0, stream);
    NEED(first != NULL);
    ga_torch_free(first, (ssize_t)MIB, 0, stream);
    void *second = ga_torch_alloc((ssize_t)MIB, 0, stream); /* behind the first, in the graph */
    NEED(second == first);
    void *result = ga_torch_alloc((ssize_t)MIB, 0, stream);
    NEED(result && result != second);
    ga_torch_free(second, (ssize_t)MIB, 0, stream);
    void *graph = end_capture(stream);
    NEED(cu.nodes() == 0);
    NEED(!is_given(first, MIB, stream));
    ga_torch_free(result, (ssize_t)MIB, 0, stream); /* the graph's result, freed before the graph */
    NEED(!is_given(result, MIB, stream));
    NEED(live_blocks() == 2);
    cu.destroy(graph);
    NEED(live_blocks() == 0);
}

/* The result of one graph is freed in another: its memory is free once both are destroyed. */
static void two_graphs(bool first_goes_first)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    NEED(cu.begin(stream, THREAD_LOCAL) == CUDA_SUCCESS);
    void *block = ga_torch_alloc((ssize_t)MIB, 0, stream);
    void *one = end_capture(stream);
    NEED(cu.begin(stream, THREAD_LOCAL) == CUDA_SUCCESS);
    ga_torch_free(block, (ssize_t)MIB, 0, stream);
    void *two = end_capture(stream);
    cu.destroy(first_goes_first ? one : two);
    NEED(!is_given(block, MIB, stream));
    NEED(live_blocks() == 1);
    cu.destroy(first_goes_first ? two : one);
    NEED(live_blocks() == 0);
}

/* A block that outlives its graph is a block like any other. */
static void block_outlives_its_graph(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    NEED(cu.begin(stream, THREAD_LOCAL) == CUDA_SUCCESS);
    void *block = ga_torch_alloc((ssize_t)MIB, 0, stream);
    cu.destroy(end_capture(stream));
    NEED(!is_given(block, MIB, stream));
    NEED(live_blocks() == 1);
    ga_torch_free(block, (ssize_t)MIB, 0, stream);
    NEED(live_blocks() == 0);
}

/* Recording an event there would take the event into the graph, and a stream that waits for it. */
static void shared_with_a_capturing_stream(void)
{
    CUstream one = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream two = new_stream(CU_STREAM_NON_BLOCKING);
    void *block = ga_torch_alloc((ssize_t)MIB, 0, one);
    ga_torch_record_stream(block, two);
    NEED(cu.begin(two, GLOBAL) == CUDA_SUCCESS);
    ga_torch_free(block, (ssize_t)MIB, 0, one);
    NEED(ga_torch_alloc((ssize_t)MIB, 0, two) != block);
    cu.destroy(end_capture(two));
    NEED(live_blocks() == 1); /* the other one */
}

typedef struct work {
    CUstream stream;
    ga_heap *heap;
    int mode; /* the thread's when it is done */
} work;

static void *work_meanwhile(void *argument)
{
    work *w = argument;
    for (int i = 0; i < 20; i++) {
        void *block = ga_torch_alloc((ssize_t)MIB, 0, w->stream);
        NEED(block != NULL);
        ga_torch_free(block, (ssize_t)MIB, 0, w->stream);
    }
    w->mode = RELAXED;
    cu.exchange(&w->mode);
    return NULL;
}

/* A capture in global mode forbids waiting calls in other threads, too. Their mode is restored. */
static void another_thread_works(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    work w = {.stream = new_stream(CU_STREAM_NON_BLOCKING)};
    pthread_t thread;
    NEED(cu.begin(stream, GLOBAL) == CUDA_SUCCESS);
    pthread_create(&thread, NULL, work_meanwhile, &w);
    pthread_join(thread, NULL);
    cu.destroy(end_capture(stream));
    NEED(w.mode == GLOBAL);
}

static void abandoned(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    void *block = ga_torch_alloc((ssize_t)MIB, 0, stream);
    NEED(cu.begin(stream, GLOBAL) == CUDA_SUCCESS);
    ga_torch_free(block, (ssize_t)MIB, 0, stream);
    cu.destroy(end_capture(stream));
    ga_torch_reset();
    NEED(cu.violations() == 0);
}

/* ---- CuPy ------------------------------------------------------------------------------------ */

/* No stream is named: those that wait for the legacy stream are seen by it. */
static void cupy_frees_in_a_capture(void)
{
    CUstream stream = new_stream(0);
    void *block = ga_cupy_malloc(NULL, MIB, 0);
    NEED(cu.begin(stream, RELAXED) == CUDA_SUCCESS);
    ga_cupy_free(NULL, block, 0);
    NEED(ga_cupy_malloc(NULL, MIB, 0) != block);
    cu.destroy(end_capture(stream));
    void *another = ga_cupy_malloc(NULL, MIB, 0);
    NEED(another != NULL);
    ga_cupy_free(NULL, another, 0);
}

/* The calls of the example for CuPy. */
static void by_stream_in_a_capture(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    void *block = ga_framework_alloc(MIB, 0, stream);
    NEED(block && !ga_framework_alloc(SIZE_MAX, 0, stream) && !ga_framework_alloc(MIB, 99, stream));
    NEED(cu.begin(stream, GLOBAL) == CUDA_SUCCESS);
    ga_framework_free(block, MIB, 0, stream);
    NEED(ga_framework_alloc(MIB, 0, stream) == block);
    ga_framework_free(block, MIB, 0, stream);
    cu.destroy(end_capture(stream));
}

/* ---- heaps ----------------------------------------------------------------------------------- */

static void heap_in_a_capture(const char *spec)
{
    ga_heap *heap = NULL;
    void *block = NULL;
    void *more = NULL;
    CUstream stream = new_stream(0);
    NEED(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, spec) == GA_OK);
    NEED(ga_alloc(heap, MIB, 0, &block) == GA_OK);
    NEED(ga_alloc(heap, MIB, 0, &more) == GA_OK);
    NEED(cu.begin(stream, RELAXED) == CUDA_SUCCESS);
    NEED(ga_free(heap, block) == GA_OK);
    ga_status status = ga_free_on(heap, more, stream);
    NEED(status == GA_OK || status == GA_ERR_UNSUPPORTED);
    NEED(status != GA_OK || ga_free_on(heap, more, stream) == GA_ERR_POINTER); /* twice */
    void *graph = end_capture(stream);
    NEED(status == GA_OK || ga_free(heap, more) == GA_OK);
    NEED(ga_heap_close(heap) == GA_OK); /* with a graph that still names its blocks */
    cu.destroy(graph);
}

/* A resize would wait for the device to copy, and would free memory that a graph uses. */
static void realloc_in_a_capture(const char *spec)
{
    ga_heap *heap;
    void *block = NULL, *moved = NULL, *noted = NULL;
    CUstream stream = new_stream(0); /* waits for the legacy stream */
    NEED(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, spec) == GA_OK);
    NEED(ga_alloc(heap, MIB, 0, &block) == GA_OK);
    NEED(cu.begin(stream, GLOBAL) == CUDA_SUCCESS);
    ga_status status = ga_realloc(heap, block, 64 * MIB, 0, &moved);
    NEED(status == GA_OK || status == GA_ERR_UNSUPPORTED);
    NEED(moved == block);
    NEED(ga_realloc(heap, block, 1, 0, &moved) == GA_OK && moved == block);
    bool ordered = ga_alloc_on(heap, MIB, 0, stream, &noted) == GA_OK;
    void *graph = end_capture(stream);
    if (ordered) { /* the graph names it */
        status = ga_realloc(heap, noted, 64 * MIB, 0, &moved);
        NEED((status == GA_OK || status == GA_ERR_UNSUPPORTED) && moved == noted);
        cu.destroy(graph);
        NEED(ga_free(heap, noted) == GA_OK);
    }
    NEED(ga_realloc(heap, block, 200 * MIB, 0, &moved) == GA_OK);
    NEED(ga_free(heap, moved) == GA_OK);
    NEED(ga_heap_close(heap) == GA_OK);
}

int main(int count, char **words)
{
    NEED(count == 2);
    setenv("GPUALLOC_DEVICE", words[1], 1);
    begin_driver();
    for (int mode = GLOBAL; mode <= RELAXED; mode++) {
        free_in_a_capture(mode);
    }
    alloc_in_a_capture();
    two_graphs(true);
    two_graphs(false);
    block_outlives_its_graph();
    shared_with_a_capturing_stream();
    another_thread_works();
    abandoned();
    cupy_frees_in_a_capture();
    by_stream_in_a_capture();
    heap_in_a_capture(words[1]);
    realloc_in_a_capture(words[1]);
    NEED(cu.violations() == 0);
    puts("captured: 1");
    return 0;
}
