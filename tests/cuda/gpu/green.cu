/* SPDX-License-Identifier: MIT
 *
 * A program whose kernels allocate in green contexts, to be run without the preload and under
 * `gpualloc run --kernel`. It prints sums that do not depend on where blocks are.
 *
 *   green [after]
 *
 * A green context has some of the device's multiprocessors, and the code of the primary context.
 * `after`: kernels of the primary context allocate after the green one is destroyed, too, which
 * fails with CUDA's malloc (driver 580).
 *
 * Exit status 77: no GPU, or a driver without green contexts.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>

enum {
    BLOCKS = 32,
    THREADS = 128,
    LENGTH = 5,
    GREEN_SMS = 16,
    LIMIT = 64 << 20 /* of CUDA's malloc */
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

/* Each thread allocates a block, writes to it, adds what it reads there, and frees the block. */
static const char ADD[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                          ".extern .func (.param .b64 block) malloc (.param .b64 size);\n"
                          ".extern .func free (.param .b64 block);\n"
                          ".visible .entry add(.param .u64 out)\n"
                          "{\n"
                          " .param .b64 size, block, freed;\n"
                          " .reg .pred none;\n"
                          " .reg .u64 at, to, old;\n"
                          " .reg .u64 number;\n"
                          " .reg .u32 thread;\n"
                          " mov.u32 thread, %tid.x;\n"
                          " st.param.b64 [size], 64;\n"
                          " call.uni (block), malloc, (size);\n"
                          " ld.param.b64 at, [block];\n"
                          " setp.eq.u64 none, at, 0;\n"
                          " @none bra end;\n"
                          " cvt.u64.u32 number, thread;\n"
                          " add.u64 number, number, 1;\n"
                          " st.volatile.u64 [at], number;\n"
                          " ld.volatile.u64 number, [at];\n"
                          " ld.param.u64 to, [out];\n"
                          " cvta.to.global.u64 to, to;\n"
                          " atom.global.add.u64 old, [to], number;\n"
                          " st.param.b64 [freed], at;\n"
                          " call.uni free, (freed);\n"
                          "end:\n"
                          " ret;\n"
                          "}\n";

/* ---- the driver ------------------------------------------------------------------------------ */

/* By the version that has the type's parameters. */
#define FOR_EACH_FUNCTION(X)                                                                       \
    X(cuCtxCreate, 11040)                                                                          \
    X(cuCtxDestroy, 4000)                                                                          \
    X(cuCtxGetCurrent, 4000)                                                                       \
    X(cuCtxSetCurrent, 4000)                                                                       \
    X(cuLibraryLoadData, 12000)                                                                    \
    X(cuLibraryGetKernel, 12000)                                                                   \
    X(cuModuleLoadData, 2000)                                                                      \
    X(cuModuleGetFunction, 2000)                                                                   \
    X(cuLaunchKernel, 4000)                                                                        \
    X(cuGetProcAddress, 12000)                                                                     \
    X(cuDeviceGetDevResource, 12040)                                                               \
    X(cuDevSmResourceSplitByCount, 12040)                                                          \
    X(cuDevResourceGenerateDesc, 12040)                                                            \
    X(cuGreenCtxCreate, 12040)                                                                     \
    X(cuGreenCtxDestroy, 12040)                                                                    \
    X(cuCtxFromGreenCtx, 12040)                                                                    \
    X(cuGreenCtxStreamCreate, 12050)

static struct {
#define DECLARE(name, version) PFN_##name##_v##version name##_;
    FOR_EACH_FUNCTION(DECLARE)
#undef DECLARE
} driver;

static bool is_good = true;

static void expect(const char *what, int result)
{
    if (result != 0) {
        printf("%s: %d\n", what, result);
        is_good = false;
    }
}

static bool find(const char *name, unsigned version, void **out)
{
    cudaDriverEntryPointQueryResult found;
    bool is_found = cudaGetDriverEntryPointByVersion(name, out, version, cudaEnableDefault,
                                                     &found) == cudaSuccess &&
                    found == cudaDriverEntryPointSuccess;
    if (!is_found) {
        fprintf(stderr, "no %s\n", name);
    }
    return is_found;
}

static bool find_all()
{
#define FIND(name, version) find(#name, version, (void **)&driver.name##_) &&
    return FOR_EACH_FUNCTION(FIND) true;
#undef FIND
}

/* ---- contexts -------------------------------------------------------------------------------- */

static CUcontext primary, other, green_context;
static CUgreenCtx green;
static CUstream green_stream;
static node **lists;
static unsigned long long *total;

static void make_green()
{
    CUdevResource all;
    CUdevResource part;
    CUdevResourceDesc description;
    unsigned count = 1;
    expect("resource", driver.cuDeviceGetDevResource_(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    expect("split",
           driver.cuDevSmResourceSplitByCount_(&part, &count, &all, nullptr, 0, GREEN_SMS));
    expect("description", driver.cuDevResourceGenerateDesc_(&description, &part, 1));
    expect("green context",
           driver.cuGreenCtxCreate_(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    expect("context", driver.cuCtxFromGreenCtx_(&green_context, green));
    expect("stream",
           driver.cuGreenCtxStreamCreate_(&green_stream, green, CU_STREAM_NON_BLOCKING, 0));
}

static void allocate()
{
    expect("limit", cudaDeviceSetLimit(cudaLimitMallocHeapSize, (size_t)LIMIT));
    expect("lists", cudaMalloc(&lists, BLOCKS * THREADS * sizeof *lists));
    expect("total", cudaMalloc(&total, sizeof *total));
    expect("zero", cudaMemset(total, 0, sizeof *total));
}

static void print(const char *what)
{
    unsigned long long found = 0;
    expect("kernels", cudaDeviceSynchronize());
    expect("copy", cudaMemcpy(&found, total, sizeof found, cudaMemcpyDeviceToHost));
    expect("zero", cudaMemset(total, 0, sizeof *total));
    expect("zero", cudaDeviceSynchronize());
    printf("%s: %llx\n", what, found);
}

/* ---- scenes ---------------------------------------------------------------------------------- */

static void launch_add(CUfunction function, CUstream stream)
{
    void *parameters[] = {&total};
    expect("launch", driver.cuLaunchKernel_(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream,
                                            parameters, nullptr));
}

/* The primary context lacks the library's code until a kernel of the green one is launched. */
static void run_library(const char *what, bool by_stream)
{
    CUlibrary library;
    CUkernel kernel;
    expect("set", driver.cuCtxSetCurrent_(other));
    expect("library",
           driver.cuLibraryLoadData_(&library, ADD, nullptr, nullptr, 0, nullptr, nullptr, 0));
    expect("kernel", driver.cuLibraryGetKernel_(&kernel, library, "add"));
    expect("set", driver.cuCtxSetCurrent_(by_stream ? primary : green_context));
    launch_add((CUfunction)kernel, by_stream ? green_stream : nullptr);
    expect("wait", cudaDeviceSynchronize());
    expect("set", driver.cuCtxSetCurrent_(primary));
    print(what);
}

static void run_module()
{
    CUmodule module;
    CUfunction function;
    expect("set", driver.cuCtxSetCurrent_(green_context));
    expect("module", driver.cuModuleLoadData_(&module, ADD));
    expect("function", driver.cuModuleGetFunction_(&function, module, "add"));
    launch_add(function, nullptr);
    expect("wait", cudaDeviceSynchronize());
    expect("set", driver.cuCtxSetCurrent_(primary));
    print("a module loaded in the green context");
    launch_add(function, green_stream);
    print("and launched by its stream");
}

static void run_lists(const char *what, CUstream by, CUstream then)
{
    build<<<BLOCKS, THREADS, 0, by>>>(lists, 1);
    expect("wait", cudaStreamSynchronize(by));
    sum<<<BLOCKS, THREADS, 0, then>>>(lists, total);
    expect("wait", cudaStreamSynchronize(then));
    print(what);
}

typedef CUresult instantiate_fn(CUgraphExec *out, CUgraph graph, CUgraphNode *failed, char *log,
                                size_t log_size);

/* cuda.h of CUDA 12 gives this name to cuGraphInstantiateWithFlags(), but the driver answers with
 * the function of CUDA 11. */
static void run_graph()
{
    instantiate_fn *instantiate = nullptr;
    CUdriverProcAddressQueryResult found;
    Dl_info owner;
    cudaGraph_t graph;
    CUgraphExec exec = nullptr;
    expect("address",
           driver.cuGetProcAddress_("cuGraphInstantiate", (void **)&instantiate, 12000, 0, &found));
    if (dladdr((void *)instantiate, &owner)) {
        fprintf(stderr, "cuGraphInstantiate of CUDA 12 is %s of %s\n",
                owner.dli_sname ? owner.dli_sname : "a function", owner.dli_fname);
    }
    expect("begin", cudaStreamBeginCapture(green_stream, cudaStreamCaptureModeGlobal));
    build<<<BLOCKS, THREADS, 0, green_stream>>>(lists, 7);
    sum<<<BLOCKS, THREADS, 0, green_stream>>>(lists, total);
    expect("end", cudaStreamEndCapture(green_stream, &graph));
    expect("instantiate", instantiate ? instantiate(&exec, graph, nullptr, nullptr, 0) : -1);
    for (int i = 0; exec && i < 2; i++) {
        expect("launch", cudaGraphLaunch((cudaGraphExec_t)exec, green_stream));
    }
    print("a graph, twice");
    expect("destroy", cudaGraphExecDestroy((cudaGraphExec_t)exec));
    expect("destroy", cudaGraphDestroy(graph));
}

static void run(bool after)
{
    make_green();
    allocate();
    run_library("a library, by a stream of the green context", true);
    run_library("a library, in the green context", false);
    run_module();
    run_lists("lists in the green context", green_stream, green_stream);
    run_lists("built there, freed in the primary context", green_stream, nullptr);
    run_lists("built in the primary context, freed there", nullptr, green_stream);
    run_graph();
    run_lists("lists in the primary context", nullptr, nullptr);
    expect("destroy", driver.cuGreenCtxDestroy_(green));
    if (after) {
        run_lists("after the green context", nullptr, nullptr);
    }
}

/* Its device is that of `other`, which outlives a reset of the primary context. */
static void run_twice(bool after)
{
    for (int i = 0; is_good && i < 2; i++) {
        expect("device", cudaSetDevice(0));
        expect("primary context", cudaFree(nullptr));
        expect("get", driver.cuCtxGetCurrent_(&primary));
        run(after);
        expect("reset", cudaDeviceReset());
    }
}

int main(int argc, char **argv)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count || !find_all()) {
        return 77;
    }
    expect("other context", driver.cuCtxCreate_(&other, nullptr, 0, 0, 0));
    expect("set", driver.cuCtxSetCurrent_(nullptr));
    run_twice(argc > 1 && strcmp(argv[1], "after") == 0);
    expect("destroy", driver.cuCtxDestroy_(other));
    return is_good ? 0 : 1;
}
