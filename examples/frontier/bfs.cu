/* SPDX-License-Identifier: MIT
 *
 * Breadth-first search with a frontier that grows inside the kernel: a warp visits the neighbours
 * of one vertex, and appends those that no warp has seen to the frontier of the next round. Each
 * vertex enters the frontier at most once.
 *
 *     nvcc -std=c++17 -arch=sm_90 bfs.cu -o bfs $(pkg-config --cflags --libs gpualloc)
 *     ./bfs graph.mtx 1              from vertex 1; ./bfs graph.mtx 1 64: a frontier of 64 MiB
 *
 * A search on the host checks the depths. Exit status 77: no GPU.
 */
#include "frontier.cuh"

static const uint32_t UNSEEN = 0xffffffffu;

/* The racing load below only spares an atomic: at worst it returns an old UNSEEN. */
__global__ void visit(ga_csr graph, frontier_round round, uint32_t *depths, uint32_t depth)
{
    for (uint64_t at = round.begin + warp_number(); at < round.end; at += warp_count()) {
        uint32_t from = frontier_vertex(round, at);
        uint64_t end = graph.offsets[from + 1ull];
        for (uint64_t edge = graph.offsets[from] + threadIdx.x % LANES; edge < end; edge += LANES) {
            uint32_t to = graph.indices[edge];
            if (depths[to] == UNSEEN && atomicCAS(&depths[to], UNSEEN, depth) == UNSEEN) {
                frontier_append(round, to);
            }
        }
    }
}

static std::vector<uint32_t> initial_depths(const task *t)
{
    std::vector<uint32_t> depths(t->graph.rows, UNSEEN);
    depths[t->start] = 0;
    return depths;
}

static std::vector<uint32_t> search(const task *t)
{
    std::vector<uint32_t> depths = initial_depths(t);
    size_t bytes = depths.size() * sizeof depths[0];
    ga_csr graph = graph_to_device(t->graph);
    uint32_t *on_device = to_device(depths.data(), depths.size());
    frontier f = frontier_open(t);
    do {
        visit<<<frontier_blocks(&f), BLOCK>>>(graph, f.round, on_device, f.rounds + 1);
    } while (frontier_next(&f));
    frontier_close(&f);
    need(cudaMemcpy(depths.data(), on_device, bytes, cudaMemcpyDeviceToHost));
    return depths;
}

static std::vector<uint32_t> search_on_host(const task *t)
{
    std::vector<uint32_t> depths = initial_depths(t), queue = {t->start};
    for (size_t at = 0; at < queue.size(); at++) {
        uint32_t from = queue[at];
        for (uint64_t e = t->graph.offsets[from]; e < t->graph.offsets[from + 1ull]; e++) {
            uint32_t to = t->graph.indices[e];
            if (depths[to] == UNSEEN) {
                depths[to] = depths[from] + 1;
                queue.push_back(to);
            }
        }
    }
    return depths;
}

int main(int argc, char **argv)
{
    task t = read_task(argc, argv);
    std::vector<uint32_t> depths = search(&t), expected = search_on_host(&t);
    uint64_t reached = 0;
    uint32_t deepest = 0;
    for (size_t i = 0; i < depths.size(); i++) {
        if (depths[i] != expected[i]) {
            errx(1, "vertex %zu has depth %u; expected %u", i + 1, depths[i], expected[i]);
        }
        if (depths[i] != UNSEEN) {
            reached++;
            deepest = depths[i] > deepest ? depths[i] : deepest;
        }
    }
    printf("reached   %llu of %zu vertices\ndeepest   %u edges\n", (unsigned long long)reached,
           depths.size(), deepest);
    return 0;
}
