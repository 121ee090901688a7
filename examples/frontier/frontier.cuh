/* SPDX-License-Identifier: MIT
 *
 * The part that bfs.cu and sssp.cu share: a graph from a file, and a frontier that grows while
 * kernels append to it.
 *
 * The vertices of a round are the entries that the round before appended to one vector, so that one
 * loan serves all rounds; two vectors in turn would need a loan each round, because a lent vector
 * cannot be emptied. A launch per round is the barrier between rounds: a single launch with a grid
 * barrier would save microseconds, but its blocks would all have to fit on the device at once.
 */
#ifndef EXAMPLES_FRONTIER_CUH
#define EXAMPLES_FRONTIER_CUH

#include <gpualloc/matrix.h>
#include <gpualloc/vector.cuh>

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

static const unsigned BLOCK = 256, BLOCKS_MAX = 2048, LANES = 32;
static const uint64_t STEP = 2 << 20; /* bytes: as small as device memory is mapped */

static void need(cudaError_t status)
{
    if (status != cudaSuccess) {
        errx(1, "%s", cudaGetErrorString(status));
    }
}

static void need(ga_status status)
{
    if (status != GA_OK) {
        errx(1, "%s", ga_error_text());
    }
}

/* ---- graphs -------------------------------------------------------------------------------- */

/* Entry (i, j) of the matrix is an edge from vertex i to vertex j. */
struct task {
    ga_csr graph; /* in host memory */
    uint32_t start;
    uint64_t limit; /* bytes of the frontier; 0: no limit */
};

static uint64_t parse(const char *text, uint64_t max, const char *name)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    if (*end || value < 1 || value > max) {
        errx(1, "%s: %s; expected 1 to %llu", name, text, (unsigned long long)max);
    }
    return value;
}

/* Arguments: FILE START [LIMIT], vertices numbered from 1 as in the file, LIMIT in MiB. */
static task read_task(int argc, char **argv)
{
    ga_matrix *matrix;
    task t = {};
    if (argc != 3 && argc != 4) {
        errx(2, "usage: %s FILE.mtx START [LIMIT]", argv[0]);
    }
    need(ga_matrix_read(&matrix, argv[1], NULL));
    t.graph = ga_matrix_view(matrix);
    if (t.graph.rows != t.graph.columns) {
        errx(1, "%s: %llu x %llu; expected a square matrix", argv[1],
             (unsigned long long)t.graph.rows, (unsigned long long)t.graph.columns);
    }
    t.start = (uint32_t)(parse(argv[2], t.graph.rows, "start vertex") - 1);
    t.limit = argc == 4 ? parse(argv[3], 1 << 20, "limit") << 20 : 0;
    return t;
}

template <class T> static T *to_device(const T *from, uint64_t n)
{
    T *to;
    need(cudaMalloc(&to, n * sizeof(T) + 1)); /* a graph may have no edges */
    need(cudaMemcpy(to, from, n * sizeof(T), cudaMemcpyHostToDevice));
    return to;
}

static ga_csr graph_to_device(ga_csr graph)
{
    uint64_t edges = graph.offsets[graph.rows];
    int devices;
    cudaError_t status = cudaGetDeviceCount(&devices);
    if (status != cudaSuccess) {
        errx(77, "no GPU: %s", cudaGetErrorString(status));
    }
    graph.offsets = to_device(graph.offsets, graph.rows + 1);
    graph.indices = to_device(graph.indices, edges);
    graph.values = to_device((const double *)graph.values, edges);
    return graph;
}

/* ---- rounds on the device ------------------------------------------------------------------ */

/* Passed to kernels by value. Warp w has the entries begin + w, begin + w + warps, ... */
struct frontier_round {
    ga_kernel_vector view;
    uint64_t begin, end;          /* entries of this round */
    unsigned long long *appended; /* by this round, in device memory */
};

static __device__ uint64_t warp_number()
{
    return (blockIdx.x * BLOCK + threadIdx.x) / LANES;
}

static __device__ uint64_t warp_count()
{
    return gridDim.x * BLOCK / LANES;
}

static __device__ uint32_t frontier_vertex(const frontier_round &round, uint64_t at)
{
    return ((const uint32_t *)round.view.data)[at];
}

/* For the next round. Refusals are reported at the end: no round after one appends anything. */
static __device__ void frontier_append(const frontier_round &round, uint32_t vertex)
{
    if (ga_kernel_vector_push_back(round.view, vertex)) {
        atomicAdd(round.appended, 1ull);
    }
}

/* ---- rounds on the host -------------------------------------------------------------------- */

struct frontier {
    ga_vector *vector;
    frontier_round round;
    uint32_t rounds;
    uint64_t largest; /* vertices of one round */
};

static frontier frontier_open(const task *t)
{
    frontier f = {};
    unsigned long long none = 0;
    ga_arena_options memory = {};
    memory.options_size = sizeof memory;
    memory.place = GA_PLACE_DEVICE;
    memory.limit = t->limit;
    need(ga_vector_open(&f.vector, sizeof(uint32_t), &memory, NULL));
    need(ga_vector_push_back(f.vector, &t->start));
    need(ga_vector_lend(f.vector, STEP, &f.round.view));
    f.round.end = f.largest = 1;
    f.round.appended = to_device(&none, 1);
    return f;
}

static unsigned frontier_blocks(const frontier *f)
{
    uint64_t blocks = ((f->round.end - f->round.begin) * LANES + BLOCK - 1) / BLOCK;
    return blocks < BLOCKS_MAX ? (unsigned)blocks : BLOCKS_MAX;
}

/* Wait for the round that was launched. True if there is another one. */
static bool frontier_next(frontier *f)
{
    unsigned long long appended;
    need(cudaGetLastError());
    need(cudaDeviceSynchronize());
    need(cudaMemcpy(&appended, f->round.appended, sizeof appended, cudaMemcpyDeviceToHost));
    need(cudaMemset(f->round.appended, 0, sizeof appended));
    f->rounds++;
    f->round.begin = f->round.end;
    f->round.end += appended;
    f->largest = appended > f->largest ? appended : f->largest;
    return appended > 0;
}

static void frontier_close(frontier *f)
{
    ga_vector_appended all;
    need(ga_vector_end_loan(f->vector, &all));
    if (all.refused) {
        errx(1, "the frontier cannot grow beyond %llu entries: %s",
             (unsigned long long)f->round.end, all.reason);
    }
    printf("rounds    %u\nlargest   %llu vertices in a round\n", f->rounds,
           (unsigned long long)f->largest);
    printf("entries   %llu in all rounds\n", (unsigned long long)ga_vector_size(f->vector));
    printf("growths   %llu while kernels ran, median %.0f us\n", (unsigned long long)all.growths,
           (double)all.grow_ns_p50 / 1e3);
    ga_vector_close(f->vector);
    cudaFree(f->round.appended);
}

#endif
