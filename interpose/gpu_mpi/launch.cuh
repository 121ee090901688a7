/* SPDX-License-Identifier: MIT
 *
 * The host's part: makes the world, runs main() of the program in each thread of a grid, and
 * returns the program's exit status. The environment variable GPUALLOC_MPI_RANKS says how many
 * ranks there are: BLOCKSxTHREADS, 1x32 unless given.
 */
#ifndef GPUALLOC_GPU_MPI_LAUNCH_CUH
#define GPUALLOC_GPU_MPI_LAUNCH_CUH

#include "globals.h"
#include "world.h"

#include <unistd.h>
#include <vector>

/* The heap unless GPUALLOC_KERNEL names one. It grows, and has blocks of any size. */
#ifndef GA_MPI_HEAP
#define GA_MPI_HEAP "coalesce/slab:unit=classes/vmm"
#endif

#ifndef GA_MPI_HEAP_ERROR
#define GA_MPI_HEAP_ERROR ga_error_text()
#endif

enum {
    GA_MPI_THREADS_MAX = 1024,
    GA_MPI_END_SECONDS = 5,    /* for which an aborted program may go on */
    GA_MPI_PRINTED = 16 << 20, /* bytes that ranks print before the program ends */
    GA_MPI_STACK = 8 << 10     /* bytes of a rank's stack, for recursive functions */
};

/* A source file of the program, which has its own view of the heap and of the world. */
struct ga_mpi_file {
    ga_status (*publish)(const ga_mpi_world &world);
    ga_mpi_file *next;
    static inline ga_mpi_file *all;

    explicit ga_mpi_file(ga_status (*publish)(const ga_mpi_world &)) : publish(publish), next(all)
    {
        all = this;
    }
};

/* ---- errors ---------------------------------------------------------------------------------- */

/* False if there is an error, which is printed. */
static inline bool ga_mpi_done(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "gpualloc: %s: %s\n", what, cudaGetErrorString(error));
    }
    return error == cudaSuccess;
}

/* ---- files ----------------------------------------------------------------------------------- */

static inline ga_status ga_mpi_publish_here(const ga_mpi_world &world)
{
    ga_status status = ga_device_malloc_init();
    if (status != GA_OK) {
        fprintf(stderr, "gpualloc: the heap of the kernels: %s\n", GA_MPI_HEAP_ERROR);
        return status;
    }
    return ga_mpi_done(cudaMemcpyToSymbol(ga_mpi, &world, sizeof world), "the ranks")
               ? GA_OK
               : GA_ERR_DEVICE;
}

static ga_mpi_file ga_mpi_this_file(ga_mpi_publish_here);

/* ---- the number of ranks --------------------------------------------------------------------- */

/* The blocks and the threads of each. False if the variable is invalid, which is printed. */
static inline bool ga_mpi_read_ranks(unsigned *blocks, unsigned *threads)
{
    const char *text = secure_getenv("GPUALLOC_MPI_RANKS");
    char rest;
    *blocks = 1;
    *threads = 32;
    if (!text || !*text) {
        return true;
    }
    if (strspn(text, "0123456789x") != strlen(text) ||
        sscanf(text, "%5ux%5u%c", blocks, threads, &rest) != 2 || *blocks == 0 || *threads == 0 ||
        *threads > GA_MPI_THREADS_MAX) {
        fprintf(stderr,
                "gpualloc: GPUALLOC_MPI_RANKS=%s: expected BLOCKSxTHREADS, such as 8x32, with "
                "1 to %d threads\n",
                text, GA_MPI_THREADS_MAX);
        return false;
    }
    return true;
}

/* True if all ranks can be resident at once; if not, the reason is printed. */
static inline bool ga_mpi_fits(const void *kernel, unsigned blocks, unsigned threads)
{
    int device = 0, processors = 0, per_processor = 0;
    cudaFuncAttributes of = {};
    if (!ga_mpi_done(cudaGetDevice(&device), "the current device") ||
        !ga_mpi_done(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
                     "the number of multiprocessors") ||
        !ga_mpi_done(cudaFuncGetAttributes(&of, kernel), "the program's kernel")) {
        return false;
    }
    if (threads > (unsigned)of.maxThreadsPerBlock) {
        fprintf(stderr,
                "gpualloc: GPUALLOC_MPI_RANKS=%ux%u: this program has %d registers a thread, "
                "so that a block has at most %d threads; compile with -maxrregcount for more\n",
                blocks, threads, of.numRegs, of.maxThreadsPerBlock);
        return false;
    }
    if (!ga_mpi_done(
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, (int)threads, 0),
            "the number of resident blocks")) {
        return false;
    }
    if (blocks > (unsigned)(per_processor * processors)) {
        fprintf(stderr,
                "gpualloc: GPUALLOC_MPI_RANKS=%ux%u: this device runs at most %d blocks of %u "
                "threads of this program at a time\n",
                blocks, threads, per_processor * processors, threads);
        return false;
    }
    return true;
}

/* ---- the world ------------------------------------------------------------------------------- */

/* An array on the device, all zero, which lives as long as the process. */
template <typename T> static inline bool ga_mpi_make(T **array, size_t count, const char *what)
{
    return ga_mpi_done(cudaMalloc((void **)array, (count ? count : 1) * sizeof(T)), what) &&
           ga_mpi_done(cudaMemset(*array, 0, (count ? count : 1) * sizeof(T)), what);
}

/* Each rank gets an array of its own, which the program may change, of shared strings. */
static inline bool ga_mpi_make_arguments(int argc, char **argv, std::vector<ga_mpi_rank> &ranks)
{
    std::vector<char> strings;
    std::vector<size_t> at;
    for (int i = 0; i < argc; i++) {
        at.push_back(strings.size());
        strings.insert(strings.end(), argv[i], argv[i] + strlen(argv[i]) + 1);
    }
    char *texts;
    char **arrays;
    size_t each = (size_t)argc + 1;
    if (!ga_mpi_make(&texts, strings.size(), "memory for argv") ||
        !ga_mpi_make(&arrays, each * ranks.size(), "memory for argv")) {
        return false;
    }
    std::vector<char *> all(each * ranks.size(), nullptr);
    for (size_t rank = 0; rank < ranks.size(); rank++) {
        for (size_t i = 0; i < at.size(); i++) {
            all[rank * each + i] = texts + at[i];
        }
        ranks[rank].argv = arrays + rank * each;
        ranks[rank].random = 1; /* as before any srand() */
    }
    return ga_mpi_done(cudaMemcpy(texts, strings.data(), strings.size(), cudaMemcpyDefault),
                       "argv") &&
           ga_mpi_done(
               cudaMemcpy(arrays, all.data(), all.size() * sizeof all[0], cudaMemcpyDefault),
               "argv");
}

/* Give each rank its variables. */
static inline bool ga_mpi_make_variables(ga_mpi_world *world)
{
    static const char what[] = "the variables of the ranks";
    for (const ga_mpi_variable *v = ga_mpi_variable::all; v; v = v->next) {
        world->global_stride += ga_mpi_global_bytes(v);
    }
    char *memory;
    if (!world->global_stride) {
        return true;
    }
    if (!ga_mpi_make(&memory, world->global_stride * world->ranks, what)) {
        return false;
    }
    size_t offset = 0;
    for (const ga_mpi_variable *v = ga_mpi_variable::all; v; v = v->next) {
        char *variable, *first = memory + offset;
        if (!ga_mpi_done(cudaGetSymbolAddress((void **)&variable, v->symbol), what) ||
            !ga_mpi_done(
                cudaMemcpy(variable + v->first_at, &first, sizeof first, cudaMemcpyDefault),
                what) ||
            !ga_mpi_done(cudaMemcpy(first, variable, v->bytes, cudaMemcpyDeviceToDevice), what)) {
            return false;
        }
        offset += ga_mpi_global_bytes(v);
    }
    for (uint32_t rank = 1; rank < world->ranks; rank++) {
        if (!ga_mpi_done(cudaMemcpyAsync(memory + rank * world->global_stride, memory,
                                         world->global_stride, cudaMemcpyDeviceToDevice),
                         what)) {
            return false;
        }
    }
    return true;
}

static inline bool ga_mpi_make_world(unsigned blocks, unsigned threads, int argc, char **argv,
                                     ga_mpi_world *world)
{
    std::vector<ga_mpi_rank> ranks((size_t)blocks * threads);
    world->ranks = (uint32_t)ranks.size();
    world->argc = (uint32_t)argc;
    if (!ga_mpi_make(&world->shared, 1, "memory for the ranks") ||
        !ga_mpi_make(&world->blocks, blocks, "memory for the ranks") ||
        !ga_mpi_make(&world->of_ranks, ranks.size(), "memory for the ranks") ||
        !ga_mpi_done(cudaHostAlloc((void **)&world->end, sizeof *world->end, cudaHostAllocMapped),
                     "memory for the exit status")) {
        return false;
    }
    *world->end = ga_mpi_end();
    return ga_mpi_make_arguments(argc, argv, ranks) && ga_mpi_make_variables(world) &&
           ga_mpi_done(cudaMemcpy(world->of_ranks, ranks.data(), ranks.size() * sizeof ranks[0],
                                  cudaMemcpyDefault),
                       "the ranks");
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Wait for the program. Returns its exit status. A rank that has aborted the program ends the other
 * ranks where they wait. If one never waits, the process ends, and the kernel with it. */
static inline int ga_mpi_wait(const ga_mpi_world &world)
{
    const volatile ga_mpi_end *end = world.end;
    int left = GA_MPI_END_SECONDS * 1000;
    cudaError_t state;
    while ((state = cudaStreamQuery(0)) == cudaErrorNotReady) {
        if (end->aborted && left-- == 0) {
            fprintf(stderr,
                    "gpualloc: rank %u has ended the program with status %u, but other ranks run "
                    "on; what the ranks have printed is lost\n",
                    end->aborted - 1, end->status);
            _exit((int)end->status);
        }
        usleep(1000);
    }
    if (!ga_mpi_done(state == cudaSuccess ? cudaDeviceSynchronize() : state, "the program")) {
        return GA_MPI_FAILED;
    }
    return (int)end->status;
}

/* Run the kernel, which is main() for each rank. Returns the program's exit status. */
static inline int ga_mpi_run(const void *kernel, int argc, char **argv)
{
    ga_mpi_world world = {};
    unsigned blocks, threads;
    if (!secure_getenv("GPUALLOC_KERNEL") && ga_kernel_use(GA_MPI_HEAP) != GA_OK) {
        fprintf(stderr, "gpualloc: %s\n", ga_error_text());
        return GA_MPI_FAILED;
    }
    if (!ga_mpi_done(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, GA_MPI_PRINTED),
                     "the buffer of printf()") ||
        !ga_mpi_done(cudaDeviceSetLimit(cudaLimitStackSize, GA_MPI_STACK), "the ranks' stacks") ||
        !ga_mpi_read_ranks(&blocks, &threads) || !ga_mpi_fits(kernel, blocks, threads) ||
        !ga_mpi_make_world(blocks, threads, argc, argv, &world)) {
        return GA_MPI_FAILED;
    }
    for (ga_mpi_file *file = ga_mpi_file::all; file; file = file->next) {
        if (file->publish(world) != GA_OK) {
            return GA_MPI_FAILED;
        }
    }
    return ga_mpi_done(cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(threads), NULL, 0, 0),
                       "the launch of the program")
               ? ga_mpi_wait(world)
               : GA_MPI_FAILED;
}

/* ---- main() ---------------------------------------------------------------------------------- */

/* `program` was main(). */
#define GA_MPI_PROGRAM(program)                                                                    \
    static __global__ void program##_of_ranks(void)                                                \
    {                                                                                              \
        ga_mpi_exit(ga_mpi_call(program));                                                         \
    }                                                                                              \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return ga_mpi_run((const void *)program##_of_ranks, argc, argv);                           \
    }

#endif
