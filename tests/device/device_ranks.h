/* SPDX-License-Identifier: MIT
 *
 * Sharded tables whose ranks are threads, and views of their shards (gpualloc/slabhash_peers.cuh).
 * The exchange has no messages: it is enough for the calls that agree, not for batches. Only for
 * CUDA, after slabhash_suite.h.
 */
#ifndef TESTS_DEVICE_DEVICE_RANKS_H
#define TESTS_DEVICE_DEVICE_RANKS_H

#include <gpualloc/slabhash_sharded.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

struct meeting {
    std::mutex lock;
    std::condition_variable changed;
    uint32_t count = 0, arrived = 0, round = 0;
    std::vector<uint64_t> largest, result;
};

struct member {
    meeting *all;
    uint32_t rank;
};

/* Waits for all ranks; the values become the largest of all. */
static inline void meet(meeting &m, std::vector<uint64_t> *values)
{
    std::unique_lock<std::mutex> held(m.lock);
    uint32_t round = m.round;
    m.largest.resize(values->size());
    for (size_t i = 0; i < values->size(); i++) {
        m.largest[i] = std::max(m.largest[i], (*values)[i]);
    }
    if (++m.arrived == m.count) {
        m.result.swap(m.largest);
        m.largest.clear();
        m.arrived = 0;
        m.round++;
        m.changed.notify_all();
    }
    m.changed.wait(held, [&] { return m.round != round; });
    *values = m.result;
}

static inline ga_status largest(void *context, uint64_t *values, uint32_t count, void *stream)
{
    std::vector<uint64_t> host(count);
    size_t bytes = count * sizeof *values;
    cudaStream_t on = (cudaStream_t)stream;
    CUDA_DONE(cudaMemcpyAsync(host.data(), values, bytes, cudaMemcpyDeviceToHost, on));
    CUDA_DONE(cudaStreamSynchronize(on));
    meet(*((member *)context)->all, &host);
    CUDA_DONE(cudaMemcpyAsync(values, host.data(), bytes, cudaMemcpyHostToDevice, on));
    CUDA_DONE(cudaStreamSynchronize(on));
    return GA_OK;
}

static inline ga_status wait_for(void *, void *stream)
{
    return CUDA_DONE(cudaStreamSynchronize((cudaStream_t)stream)) ? GA_OK : GA_ERR_DEVICE;
}

static inline ga_exchange exchange_of(member *in, int device)
{
    ga_exchange exchange = {};
    exchange.exchange_size = sizeof exchange;
    exchange.context = in;
    exchange.rank = in->rank;
    exchange.ranks = in->all->count;
    exchange.device = device;
    exchange.largest = largest;
    exchange.wait = wait_for;
    exchange.close = [](void *) {};
    return exchange;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* The device of each rank. */
inline std::vector<int> placement;

struct rank {
    member in;
    int device;
    cudaStream_t stream;
    ga_heap *slabs; /* NULL: the shard's own */
    ga_slabhash_device shard;
    ga_slabhash_sharded *table;
    ga_slabhash_peers peers;
};

struct world {
    meeting all;
    std::vector<rank> ranks;
    bool is_open;
};

/* Calls `work` on a thread for each rank, and waits for all. */
template <typename F> static inline void on_all(world &w, F work)
{
    std::vector<std::thread> threads;
    for (rank &r : w.ranks) {
        threads.emplace_back([&] {
            CUDA_DONE(cudaSetDevice(r.device));
            work(r);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

static inline ga_status close_shard(void *shard)
{
    return ga_slabhash_device_close((ga_slabhash_device *)shard);
}

static inline void open_rank(rank &r, ga_slabhash_options options, const char *slabs)
{
    ga_exchange exchange = exchange_of(&r.in, r.device);
    ga_shard of = {};
    ga_sharded_options sharded = {};
    CUDA_DONE(cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    if (slabs) {
        OK(ga_heap_open(&r.slabs, GA_PLACE_KERNEL, r.device, slabs));
        options.heap = r.slabs;
    }
    OK(ga_slabhash_device_open(&r.shard, &options, r.device, r.stream));
    of.shard_size = sizeof of;
    of.table = &r.shard;
    of.mode = options.mode;
    of.is_multi = options.flags & GA_SLABHASH_MULTI;
    of.a = r.shard.view.a;
    of.b = r.shard.view.b;
    of.clear = ga_slabhash_nccl_clear;
    of.close = close_shard;
    sharded.options_size = sizeof sharded;
    sharded.piece = 1024;
    OK(ga_slabhash_sharded_open(&r.table, &exchange, &of, &sharded));
    OK(ga_slabhash_peers_open(&r.peers, r.table, r.stream));
}

/* `slabs`: the spec of the heaps of slabs; NULL: the default. */
static inline void begin(world &w, ga_slabhash_mode mode, uint32_t flags, uint32_t buckets,
                         uint32_t path, const char *slabs = NULL)
{
    ga_slabhash_options options = options_of(mode, flags, buckets, path);
    w.ranks.resize(placement.size());
    w.all.count = (uint32_t)placement.size();
    for (uint32_t i = 0; i < placement.size(); i++) {
        w.ranks[i].in = member{&w.all, i};
        w.ranks[i].device = placement[i];
    }
    on_all(w, [&](rank &r) { open_rank(r, options, slabs); });
    w.is_open = true;
    for (const rank &r : w.ranks) {
        w.is_open = w.is_open && r.peers.memory;
    }
    CUDA_DONE(cudaSetDevice(placement[0]));
}

static inline void end(world &w)
{
    on_all(w, [&](rank &r) {
        OK(ga_slabhash_peers_close(&r.peers));
        std::vector<uint64_t> nothing;
        meet(w.all, &nothing); /* no shard is closed before all views are */
        OK(ga_slabhash_sharded_close(r.table));
        OK(ga_heap_close(r.slabs));
        CUDA_DONE(cudaStreamDestroy(r.stream));
    });
}

#endif
