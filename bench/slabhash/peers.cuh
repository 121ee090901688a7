/* SPDX-License-Identifier: MIT
 *
 * The section of bench-slabhash-kernels on tables of other projects: cuCollections' static_map
 * beside slab hashes of the same utilisation. Part of kernels.cu.
 */
#ifndef GPUALLOC_BENCH_SLABHASH_PEERS_CUH
#define GPUALLOC_BENCH_SLABHASH_PEERS_CUH

#include "changes.cuh"
#include "peer_cuco.cuh"

static __global__ void make_pairs(const uint32_t *keys, const uint32_t *values, uint64_t *pairs,
                                  uint64_t n)
{
    uint64_t i = own_number();
    if (i < n) {
        pairs[i] = keys[i] | (uint64_t)values[i] << 32;
    }
}

/* Utilisation of a static_map is the load factor: it has no other bytes than its slots. */
static void weigh_cuco(const cuco_map &map, uint64_t n, point *what)
{
    uint64_t count = map.count();
    what->used = what->held = what->share = (double)count / (double)map.slots();
    if (count != n) {
        printf("WRONG: %s has %llu pairs: expected %llu\n", what->way.c_str(),
               (unsigned long long)count, (unsigned long long)n);
        failures++;
    }
}

/* `lanes`: threads of an operation, cuCollections' cg. It is built from an array of pairs, which
 * is its own interface; clear() writes the array, so that this is not part of the time. */
static way cuco_way(const point &base, uint32_t lanes, double u)
{
    uint64_t n = UINT64_C(1) << base.log2;
    std::shared_ptr<cuco_map> map = cuco_open(lanes, (uint64_t)ceil((double)n / u));
    std::shared_ptr<void> memory = device_memory(n * sizeof(uint64_t));
    uint64_t *pairs = (uint64_t *)memory.get();
    way w;
    fill_out(&w, base, lanes == 1 ? "cuCollections cg1" : "cuCollections cg4", u);
    w.what.spec = "cuco::static_map, commit " BENCH_CUCO;
    w.deletes_silently = true;
    w.clear = [=] {
        make_pairs<<<blocks_for(n), THREADS>>>((const uint32_t *)world.keys,
                                               (const uint32_t *)world.values, pairs, n);
        map->clear();
    };
    w.build = [=] {
        (void)memory;
        map->insert(pairs, n);
    };
    w.search = [=](const void *keys, uint64_t count) {
        map->search((const uint32_t *)keys, count, (uint32_t *)world.found);
    };
    w.run = [=](const ga_slabhash_batch *batch) { map->run(*batch); };
    w.weigh = [=](point *what) { weigh_cuco(*map, n, what); };
    return w;
}

static std::vector<way> beside_cuco(const point &base, double u)
{
    std::vector<way> ways;
    for (uint32_t lanes : {1u, 4u}) {
        ways.push_back(cuco_way(base, lanes, u));
    }
    for (uint32_t path : {1u, 4u, 16u}) {
        uint32_t buckets = buckets_for(GA_SLABHASH_MAP32, path, UINT64_C(1) << base.log2, u);
        if (asks(asked_paths, path) && buckets) {
            ways.push_back(slab_way(base, GA_SLABHASH_MAP32, path, buckets, slabs_from, NULL));
        }
    }
    return ways;
}

static void peers_at(uint32_t log2, double u)
{
    point base = point_of("peers", GA_SLABHASH_MAP32, log2, u);
    std::vector<way> ways = beside_cuco(base, u);
    compare<GA_SLABHASH_MAP32>(&ways, FASTEST);
    if (u > 0.8) { /* a search of static_map ends at an empty slot, and insertions fill them */
        return;
    }
    for (const mix &m : mixes_of) {
        for (way &w : ways) {
            w.rates[BUILD].clear();
        }
        compare_mix(&ways, m, true, FASTEST);
    }
}

static void peers()
{
    uint32_t cccl = cuco_cccl_version();
    printf("cuCollections, commit " BENCH_CUCO ", CCCL %u.%u.%u; times: over the faster one of its "
           "two\n",
           cccl / 1000000, cccl / 1000 % 1000, cccl % 1000);
    for (uint32_t log2 : {22u, 24u, 26u}) {
        for (double u : {0.5, 0.6, 0.65, 0.8, 0.9}) {
            if (asks(asked_keys, log2) && asks(asked_uses, u)) {
                peers_at(log2, u);
            }
        }
    }
}

#endif
