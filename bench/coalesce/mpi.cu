/* SPDX-License-Identifier: MIT
 *
 * The MPI benchmarks of warp-coalescing-gpumpi-2022, §4.2, with threads as ranks: Reduce, Broadcast
 * and All-to-All, as in Listing 4. Wall-clock times of each rank, the median over the ranks: of
 * malloc, of the operation, of free and of all.
 *
 *   bench-coalesce-mpi [--runs N] [--only WORDS]
 *       the operations whose name contains the words: reduce, broadcast, alltoall
 *
 * Each rank allocates its vectors a and b. Reduce adds them up in a tree, with a barrier after each
 * step. Broadcast copies the root's vector. All-to-All allocates, inside the call, a buffer for the
 * data that the rank sends to all others; the rank copies its data there, waits at a barrier, reads
 * its part from every other buffer, and waits again before it frees the buffer. That malloc and
 * free count as malloc and free, too.
 */
#define PROGRAM "bench-coalesce-mpi"
#include "ways.cuh"

enum operation {
    REDUCE,
    BROADCAST,
    ALLTOALL,
    OPERATIONS
};
static const char *const names[OPERATIONS] = {"coalesce-reduce", "coalesce-broadcast",
                                              "coalesce-alltoall"};

/* ---- ranks ----------------------------------------------------------------------------------- */

typedef struct team {
    uint32_t ranks, count; /* doubles of a vector, or for each rank */
    uint32_t *arrived;
    double **vectors; /* of each rank: vectors that other ranks may read */
} team;

/* A barrier of all threads of the grid, which must be resident together. */
static __device__ void barrier(const team &t, uint32_t *meetings)
{
    *meetings += 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        /* B1: release and acquire. Pairs with B2, at which the other blocks leave. */
        ga_add_acq_rel(t.arrived, 1);
        /* B2: acquire. Pairs with B1. */
        while (ga_load_acquire(t.arrived) < *meetings * gridDim.x) {
        }
    }
    __syncthreads();
}

static __device__ void reduce(const team &t, uint32_t rank, const double *a, double *b,
                              uint32_t *meetings)
{
    for (uint32_t i = 0; i < t.count; i++) {
        b[i] = a[i];
    }
    t.vectors[rank] = b;
    for (uint32_t step = 1; step < t.ranks; step *= 2) {
        barrier(t, meetings);
        if (rank % (2 * step) == 0 && rank + step < t.ranks) {
            const volatile double *other = t.vectors[rank + step];
            for (uint32_t i = 0; i < t.count; i++) {
                b[i] += other[i];
            }
        }
    }
    barrier(t, meetings);
}

static __device__ void broadcast(const team &t, uint32_t rank, double *a, double *b,
                                 uint32_t *meetings)
{
    if (rank == 0) {
        t.vectors[0] = a;
    }
    barrier(t, meetings);
    const volatile double *root = t.vectors[0];
    for (uint32_t i = 0; i < t.count; i++) {
        b[i] = root[i];
    }
    barrier(t, meetings);
}

static __device__ uint64_t now_ns()
{
    return ga_clock_ns();
}

typedef struct rank_times {
    uint64_t malloc, free; /* ns */
} rank_times;

template <call HOW, bool COALESCES>
static __device__ bool alltoall(ga_kernel_heap heap, const team &t, uint32_t rank, const double *a,
                                double *b, uint32_t *meetings, rank_times *times)
{
    uint64_t begin = now_ns();
    double *sent =
        (double *)bench_malloc<HOW, COALESCES>(heap, (size_t)t.ranks * t.count * sizeof(double));
    times->malloc += now_ns() - begin;
    for (uint32_t i = 0; sent && i < t.ranks * t.count; i++) {
        sent[i] = a[i];
    }
    t.vectors[rank] = sent;
    barrier(t, meetings);
    for (uint32_t other = 0; other < t.ranks; other++) {
        const volatile double *theirs = t.vectors[other];
        for (uint32_t i = 0; theirs && i < t.count; i++) {
            b[other * t.count + i] = theirs[rank * t.count + i];
        }
    }
    barrier(t, meetings);
    begin = now_ns();
    bench_free<HOW, COALESCES>(heap, sent);
    times->free += now_ns() - begin;
    return sent != NULL;
}

/* ---- one run --------------------------------------------------------------------------------- */

static __device__ double value_of(uint32_t rank, uint32_t i)
{
    return rank * 3.0 + i;
}

/* Whether rank `rank` has the expected result. */
static __device__ bool is_right(operation what, const team &t, uint32_t rank, const double *b)
{
    if (what == REDUCE) {
        double sum = 3.0 * 0.5 * t.ranks * (t.ranks - 1.0) + t.ranks;
        return rank || (t.count > 1 && b[1] == sum);
    }
    if (what == BROADCAST) {
        return b[t.count - 1] == value_of(0, t.count - 1);
    }
    uint32_t last = t.ranks - 1;
    return b[last * t.count] == value_of(last, rank * t.count);
}

enum part {
    MALLOC,
    OPERATION,
    FREE,
    TOTAL,
    PARTS
};

template <call HOW, bool COALESCES>
__global__ void __launch_bounds__(1024)
    run_kernel(ga_kernel_heap heap, operation what, team t, uint64_t *times, uint64_t *failed)
{
    uint32_t rank = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t n = what == ALLTOALL ? t.ranks * t.count : t.count;
    uint32_t meetings = 0;
    rank_times inside = {0, 0};
    uint64_t t0 = now_ns();
    double *a = (double *)bench_malloc<HOW, COALESCES>(heap, n * sizeof(double));
    double *b = (double *)bench_malloc<HOW, COALESCES>(heap, n * sizeof(double));
    uint64_t t1 = now_ns();
    bool fine = a && b;
    for (uint32_t i = 0; a && i < n; i++) {
        a[i] = value_of(rank, i);
    }
    if (__syncthreads_or(!fine)) { /* stop, because the others would wait forever */
        ga_post_add64_relaxed(failed, 1);
        __trap();
    }
    for (int pass = what == ALLTOALL ? 1 : 0; pass < 2; pass++) { /* the first one warms up */
        barrier(t, &meetings);
        uint64_t t2 = now_ns();
        if (what == REDUCE) {
            reduce(t, rank, a, b, &meetings);
        } else if (what == BROADCAST) {
            broadcast(t, rank, a, b, &meetings);
        } else {
            fine = alltoall<HOW, COALESCES>(heap, t, rank, a, b, &meetings, &inside);
        }
        times[OPERATION * t.ranks + rank] = now_ns() - t2;
    }
    fine = fine && is_right(what, t, rank, b);
    uint64_t t3 = now_ns();
    bench_free<HOW, COALESCES>(heap, a);
    bench_free<HOW, COALESCES>(heap, b);
    uint64_t t4 = now_ns();
    times[MALLOC * t.ranks + rank] = t1 - t0 + inside.malloc;
    times[FREE * t.ranks + rank] = t4 - t3 + inside.free;
    times[TOTAL * t.ranks + rank] = t4 - t0;
    ga_post_add64_relaxed(failed, fine ? 0 : 1); /* relaxed: read afterwards */
}

static uint64_t *times, *failures;

/* The median over the ranks of each part, in ms. */
static uint64_t run_once(int way, operation what, const team &t, uint32_t blocks, uint32_t threads,
                         double *parts)
{
    uint64_t failed;
    std::vector<uint64_t> all(PARTS * t.ranks);
    MUST(cudaMemset(t.arrived, 0, sizeof *t.arrived));
    MUST(cudaMemset(failures, 0, sizeof *failures));
#define RUN(how, coalesces)                                                                        \
    run_kernel<how, coalesces><<<blocks, threads>>>(views[way], what, t, times, failures)
    WITH_WAY(way, RUN);
#undef RUN
    MUST(cudaGetLastError());
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(all.data(), times, all.size() * sizeof all[0], cudaMemcpyDeviceToHost));
    MUST(cudaMemcpy(&failed, failures, sizeof failed, cudaMemcpyDeviceToHost));
    for (int p = 0; p < PARTS; p++) {
        std::vector<double> ranks(all.begin() + p * t.ranks, all.begin() + (p + 1) * t.ranks);
        parts[p] = median_of(ranks) / 1e6;
    }
    return failed;
}

static void compare(operation op, uint32_t blocks, uint32_t threads, uint32_t count)
{
    team t = {blocks * threads, count, NULL, NULL};
    std::vector<double> values[WAYS][PARTS];
    uint64_t failed[WAYS] = {};
    if (!wanted(names[op])) {
        return;
    }
    MUST(cudaMalloc(&t.arrived, sizeof *t.arrived));
    MUST(cudaMalloc(&t.vectors, t.ranks * sizeof *t.vectors));
    MUST(cudaMalloc(&times, PARTS * t.ranks * sizeof *times));
    for (int run = -warmups; run < runs; run++) {
        for (int i = 0; i < WAYS; i++) {
            double parts[PARTS];
            failed[i] += run_once(i, op, t, blocks, threads, parts);
            for (int p = 0; run >= 0 && p < PARTS; p++) {
                values[i][p].push_back(parts[p]);
            }
        }
    }
    static const char *const metrics[PARTS] = {"malloc", "operation", "free", "total"};
    for (int i = 0; i < WAYS; i++) {
        for (int p = 0; p < PARTS; p++) {
            measured what = {names[op], blocks, threads, count * sizeof(double), metrics[p], "ms"};
            line(what, i, values[i][p], values[0][p], failed[i]);
        }
    }
    MUST(cudaFree(t.arrived));
    MUST(cudaFree(t.vectors));
    MUST(cudaFree(times));
}

int main(int argc, char **argv)
{
    int status = begin(argc, argv);
    if (status) {
        return status;
    }
    MUST(cudaMalloc(&failures, sizeof *failures));
    compare(REDUCE, 30, 512, 16);
    compare(BROADCAST, 30, 512, 16);
    compare(ALLTOALL, 8, 32, 4);
    compare(ALLTOALL, 32, 32, 4);
    compare(ALLTOALL, 8, 256, 4); /* 2048 ranks, 64 KiB a buffer, three each */
    close_heaps();
    return 0;
}
