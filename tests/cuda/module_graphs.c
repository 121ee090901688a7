/* SPDX-License-Identifier: MIT
 *
 * Launches while contexts are behind: of graphs, which give malloc to the contexts of their kernels
 * alone; and where there is no memory for code that allocates.
 *
 *   module_graphs CASE
 */
#include "modules.h"

#include <time.h>

static struct {
    void *(*new_graph)(void);
    void (*add_to)(void *graph, int type, CUcontext context, void *child);
    uint64_t (*graph_reads)(void);
    CUresult (*launch)(void *exec, CUstream stream);
    CUresult (*destroy)(void *exec);
} graphs;

static void *driver;

static void find_graphs(void)
{
    driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    *(void **)&graphs.new_graph = dlsym(driver, "stand_in_new_graph");
    *(void **)&graphs.add_to = dlsym(driver, "stand_in_add_to");
    *(void **)&graphs.graph_reads = dlsym(driver, "stand_in_graph_reads");
    *(void **)&graphs.launch = dlsym(driver, "cuGraphLaunch");
    *(void **)&graphs.destroy = dlsym(driver, "cuGraphExecDestroy");
}

enum {
    KERNEL = 0,
    MEMCPY = 1,
    CHILD = 4,
    CONDITIONAL = 13,
    COUNT = 3
};

static CUmodule library;
static CUcontext contexts[COUNT]; /* the last one of device 1 */

/* Contexts that lack the library. The primary context is current. */
static void make_contexts(void)
{
    CUcontext popped;
    build(true);
    for (int i = 0; i + 1 < COUNT; i++) {
        CHECK_SAME(0, cu.create(&contexts[i], NULL, 0, 0, 0));
        CHECK_SAME(0, cu.pop(&popped));
    }
    CHECK_SAME(0, cu.retain(&contexts[COUNT - 1], 1));
    library = load_library(scene.bytes);
}

/* Bit i: context i was filled. In the others no module of the preload was loaded. */
static unsigned filled(void)
{
    unsigned found = 0;
    CUcontext popped;
    for (unsigned i = 0; i < COUNT; i++) {
        CHECK_SAME(0, cu.push(contexts[i]));
        found |= load.functions() ? 1u << i : 0;
        (load.functions() ? expect_filled : expect_none)(library);
        CHECK_SAME(0, cu.pop(&popped));
    }
    return found;
}

static void *instantiate_by(const char *symbol, void *graph)
{
    CUresult (*instantiate)(void **exec, void *graph, void *c, void *d, size_t e);
    void *exec = NULL;
    *(void **)&instantiate = dlsym(driver, symbol);
    CHECK_SAME(0, instantiate(&exec, graph, NULL, NULL, 0));
    return exec;
}

static void launch_and_expect(void *exec, unsigned wanted)
{
    CHECK_SAME(0, graphs.launch(exec, NULL));
    CHECK_SAME(wanted, filled());
}

static void *graph_of(unsigned of)
{
    void *graph = graphs.new_graph();
    for (unsigned i = 0; i < COUNT; i++) {
        if (of & 1u << i) {
            graphs.add_to(graph, MEMCPY, NULL, NULL);
            graphs.add_to(graph, KERNEL, contexts[i], NULL);
            graphs.add_to(graph, KERNEL, contexts[i], NULL);
        }
    }
    return graph;
}

static void own_contexts(void)
{
    make_contexts();
    void *first = instantiate_by("cuGraphInstantiateWithFlags", graph_of(1));
    void *both = instantiate_by("cuGraphInstantiateWithFlags", graph_of(3));
    void *none = instantiate_by("cuGraphInstantiateWithFlags", graph_of(0));
    uint64_t reads = graphs.graph_reads();
    launch_and_expect(none, 0);
    launch_and_expect(first, 1);
    launch_and_expect(first, 1);
    launch_and_expect(both, 3);
    launch(); /* in the primary context, which is not behind */
    CHECK_SAME(3, filled());
    CHECK_SAME(reads, graphs.graph_reads());
    CHECK_SAME(0, graphs.destroy(first));
    launch_and_expect(first, 7); /* its contexts are no longer known */
}

static void each_function(void)
{
    static const char *const symbols[] = {
        "cuGraphInstantiate", "cuGraphInstantiate_v2", "cuGraphInstantiateWithFlags",
        "cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"};
    make_contexts();
    void *before = instantiate_by(symbols[0], graph_of(1));
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        launch_and_expect(instantiate_by(symbols[i], graph_of(1)), 1);
        CHECK_SAME(0, cu.reset(0)); /* the contexts of device 0 are behind again */
        CHECK_SAME(0, load.retain(&contexts[COUNT - 1], 1));
    }
    CHECK_SAME(0, graphs.destroy(before));
}

static void children(void)
{
    make_contexts();
    void *inner = graph_of(2);
    void *middle = graphs.new_graph();
    void *outer = graph_of(1);
    graphs.add_to(middle, CHILD, NULL, inner);
    graphs.add_to(outer, CHILD, NULL, middle);
    launch_and_expect(instantiate_by("cuGraphInstantiateWithFlags", outer), 3);
}

/* Of a graph that contains itself, with a conditional node, or a kernel of an unknown context. */
static void unknown(void)
{
    static const int types[] = {CHILD, CONDITIONAL, KERNEL};
    make_contexts();
    for (int i = 0; i < 3; i++) {
        void *graph = graph_of(1);
        graphs.add_to(graph, types[i], NULL, types[i] == CHILD ? graph : NULL);
        CHECK_SAME(0, graphs.launch(instantiate_by("cuGraphInstantiateWithFlags", graph), NULL));
        CHECK_SAME(7, filled());
        CHECK_SAME(0, cu.reset(0));
        CHECK_SAME(0, cu.reset(1));
        CHECK_SAME(0, cu.retain(&contexts[COUNT - 1], 1));
    }
}

/* A program without in-kernel malloc pays nothing for its graphs. */
static void not_read(void)
{
    void *graph = graphs.new_graph();
    build(false);
    load_library(scene.bytes);
    graphs.add_to(graph, KERNEL, NULL, NULL);
    CHECK_SAME(0, graphs.launch(instantiate_by("cuGraphInstantiateWithFlags", graph), NULL));
    CHECK_SAME(0, graphs.graph_reads());
}

/* ---- no memory ------------------------------------------------------------------------------- */

enum {
    SOON_MS = 20,  /* before another try is due */
    LATER_MS = 150 /* after that */
};

static void wait_ms(long milliseconds)
{
    const struct timespec time = {0, milliseconds * 1000000L};
    nanosleep(&time, NULL);
}

static void expect_left(int wanted)
{
    CHECK_SAME(wanted, load.refuse_variables(wanted, CUDA_ERROR_OUT_OF_MEMORY));
}

/* For a library of two, in a context that launches. The other one is served at once. */
static void for_code(void)
{
    CUcontext popped;
    build(true);
    CHECK_SAME(0, cu.create(&contexts[0], NULL, 0, 0, 0));
    expect_filled(load_module(scene.bytes));
    CHECK_SAME(0, cu.pop(&popped));
    library = load_library(scene.bytes);
    CUmodule other = load_library(scene.bytes);
    CHECK_SAME(0, cu.push(contexts[0]));
    load.refuse_variables(1, CUDA_ERROR_OUT_OF_MEMORY);
    launch();
    expect_none(library);
    expect_filled(other);
    load.refuse_variables(1, CUDA_ERROR_OUT_OF_MEMORY);
    wait_ms(SOON_MS);
    launch(); /* without a try */
    expect_left(1);
    wait_ms(LATER_MS);
    launch();
    expect_left(0);
    expect_none(library);
    CUmodule later = load_library(scene.bytes);
    expect_filled(later);
    wait_ms(LATER_MS);
    launch();
    expect_filled(library);
    expect_filled(other);
    expect_filled(later);
}

/* The driver fails at a call of `symbol` when the context opens. */
static void for_context(const char *symbol, int device)
{
    make_contexts();
    CHECK_SAME(0, cu.push(contexts[device ? COUNT - 1 : 0]));
    cu.fail(symbol, 1000, CUDA_ERROR_OUT_OF_MEMORY);
    launch();
    wait_ms(LATER_MS);
    launch();
    cu.fail(symbol, 0, CUDA_SUCCESS);
    wait_ms(SOON_MS);
    launch();
    expect_none(library);
    CHECK_SAME(0, load.functions());
    wait_ms(LATER_MS);
    expect_filled_by_launch(library);
}

static void for_module(void)
{
    for_context("cuModuleLoadData", 0);
}

static void for_heap(void)
{
    for_context("cuMemCreate", 1);
}

/* Launches in other contexts, and of graphs, go on. */
static void for_one_context(void)
{
    make_contexts();
    void *graph = instantiate_by("cuGraphInstantiateWithFlags", graph_of(7));
    cu.fail("cuMemCreate", 1000, CUDA_ERROR_OUT_OF_MEMORY);
    launch_and_expect(graph, 3);
    launch_and_expect(graph, 3);
    cu.fail("cuMemCreate", 0, CUDA_SUCCESS);
    wait_ms(LATER_MS);
    launch_and_expect(graph, 7);
}

int main(int argc, char **argv)
{
    static const cu_case cases[] = {
        {"own_contexts", own_contexts},
        {"each_function", each_function},
        {"children", children},
        {"unknown", unknown},
        {"not_read", not_read},
        {"for_code", for_code},
        {"for_module", for_module},
        {"for_heap", for_heap},
        {"for_one_context", for_one_context},
    };
    cu_open(0);
    find_all();
    find_graphs();
    return RUN_CASE(argc, argv, cases);
}
