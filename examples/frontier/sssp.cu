/* SPDX-License-Identifier: MIT
 *
 * Single-source shortest paths with a frontier that grows inside the kernel: a warp relaxes the
 * edges of one vertex, and appends each vertex whose distance falls to the frontier of the next
 * round, unless it is there. The number of entries is not known in advance: a vertex enters the
 * frontier in each round in which its distance falls.
 *
 *     nvcc -std=c++17 -arch=sm_90 sssp.cu -o sssp $(pkg-config --cflags --libs gpualloc)
 *     ./sssp graph.mtx 1             from vertex 1; ./sssp graph.mtx 1 64: a frontier of 64 MiB
 *
 * Weights must not be negative. Dijkstra's algorithm on the host checks the distances: both take
 * the least of all paths' sums, each added from the start on, so they agree to the last bit. Exit
 * status 77: no GPU.
 */
#include "frontier.cuh"

#include <functional>
#include <math.h>
#include <queue>
#include <utility>

/* As 64-bit integers, doubles that are not negative have their own order. The racing load only
 * spares an atomic: at worst it returns an older and larger distance. */
static __device__ bool lower(double *distance, double to)
{
    unsigned long long bits = (unsigned long long)__double_as_longlong(to);
    return to < *distance && atomicMin((unsigned long long *)distance, bits) > bits;
}

/* `entered` has the last round in which a vertex was appended. A distance may fall while the warp
 * of its vertex uses the larger one: then the vertex is in the next round, too. */
__global__ void relax(ga_csr graph, frontier_round round, double *distances, uint32_t *entered,
                      uint32_t number)
{
    for (uint64_t at = round.begin + warp_number(); at < round.end; at += warp_count()) {
        uint32_t from = frontier_vertex(round, at);
        double distance = distances[from];
        uint64_t end = graph.offsets[from + 1ull];
        for (uint64_t edge = graph.offsets[from] + threadIdx.x % LANES; edge < end; edge += LANES) {
            uint32_t to = graph.indices[edge];
            double weight = ((const double *)graph.values)[edge];
            if (lower(&distances[to], distance + weight) &&
                atomicExch(&entered[to], number) != number) {
                frontier_append(round, to);
            }
        }
    }
}

static void check_weights(const ga_csr *graph)
{
    const double *weights = (const double *)graph->values;
    for (uint64_t row = 0; row < graph->rows; row++) {
        for (uint64_t e = graph->offsets[row]; e < graph->offsets[row + 1]; e++) {
            if (!(weights[e] >= 0)) {
                errx(1, "the edge from %llu to %llu has weight %g; expected at least 0",
                     (unsigned long long)row + 1, graph->indices[e] + 1ull, weights[e]);
            }
        }
    }
}

static std::vector<double> initial_distances(const task *t)
{
    std::vector<double> distances(t->graph.rows, HUGE_VAL);
    distances[t->start] = 0;
    return distances;
}

static std::vector<double> search(const task *t)
{
    std::vector<double> distances = initial_distances(t);
    std::vector<uint32_t> never(t->graph.rows, 0);
    size_t bytes = distances.size() * sizeof distances[0];
    ga_csr graph = graph_to_device(t->graph);
    double *on_device = to_device(distances.data(), distances.size());
    uint32_t *entered = to_device(never.data(), never.size());
    frontier f = frontier_open(t);
    do {
        relax<<<frontier_blocks(&f), BLOCK>>>(graph, f.round, on_device, entered, f.rounds + 1);
    } while (frontier_next(&f));
    frontier_close(&f);
    need(cudaMemcpy(distances.data(), on_device, bytes, cudaMemcpyDeviceToHost));
    return distances;
}

static std::vector<double> search_on_host(const task *t)
{
    typedef std::pair<double, uint32_t> entry;
    std::vector<double> distances = initial_distances(t);
    std::priority_queue<entry, std::vector<entry>, std::greater<entry>> queue;
    for (queue.push(entry(0, t->start)); !queue.empty();) {
        entry nearest = queue.top();
        uint64_t from = nearest.second;
        queue.pop();
        uint64_t end = nearest.first > distances[from] ? 0 : t->graph.offsets[from + 1];
        for (uint64_t e = t->graph.offsets[from]; e < end; e++) {
            uint32_t to = t->graph.indices[e];
            double distance = nearest.first + ((const double *)t->graph.values)[e];
            if (distance < distances[to]) {
                distances[to] = distance;
                queue.push(entry(distance, to));
            }
        }
    }
    return distances;
}

int main(int argc, char **argv)
{
    task t = read_task(argc, argv);
    check_weights(&t.graph);
    std::vector<double> distances = search(&t), expected = search_on_host(&t);
    uint64_t reached = 0;
    double farthest = 0;
    for (size_t i = 0; i < distances.size(); i++) {
        if (distances[i] != expected[i]) {
            errx(1, "vertex %zu is %.17g away; expected %.17g", i + 1, distances[i], expected[i]);
        }
        if (distances[i] < HUGE_VAL) {
            reached++;
            farthest = fmax(farthest, distances[i]);
        }
    }
    printf("reached   %llu of %zu vertices\nfarthest  %g\n", (unsigned long long)reached,
           distances.size(), farthest);
    return 0;
}
