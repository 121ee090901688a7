/* SPDX-License-Identifier: MIT
 *
 * Tables for bench-slabhash-kernels with the operations on each: slab hashes of a utilisation, and
 * the baselines.
 */
#ifndef GPUALLOC_BENCH_SLABHASH_WAYS_CUH
#define GPUALLOC_BENCH_SLABHASH_WAYS_CUH

#include "world.cuh"

#include <functional>
#include <memory>
#include <random>

enum {
    BUILD = 0,
    HIT,
    MISS,
    METRICS
};
static const char *const metric_names[METRICS] = {"build", "hit", "miss"};

/* A table and its operations, which only launch kernels. */
typedef struct way {
    point what;
    std::function<void()> clear, build;
    std::function<void(const void *keys, uint64_t n)> search;
    std::function<void(const ga_slabhash_batch *batch)> run; /* operations of any kind */
    std::function<void(point *what)> weigh;                  /* measures the bytes that it holds,
                                                              * once it is built */
    std::vector<double> rates[METRICS];
    bool deletes_silently = false; /* a deletion does not return the value */
} way;

static const char *const mode_names[] = {"set32", "map32", "map64"};
static const uint32_t slots_of[] = {30, 15, 7};
static const double bytes_of[] = {4, 8, 16};

/* The share of the slots that is filled where the utilisation is `u`. */
static double share_of(uint32_t mode, double u)
{
    return u * 128 / (slots_of[mode] * bytes_of[mode]);
}

/* Slabs for each bucket when the number of keys is `fill` times the slots of the buckets; by a
 * simulation with few keys. */
static double slabs_each(uint32_t path, uint32_t slots, double fill)
{
    const uint32_t n = 1u << 17;
    uint32_t count = std::max((uint32_t)(n / (slots * fill)), 2 * path);
    std::vector<uint32_t> filled(count), chained(count);
    std::mt19937_64 random(7);
    uint64_t slabs = count;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bits = random();
        uint32_t home = (uint32_t)(bits >> 32) % count, bucket = home, k = 0;
        uint32_t step = 1 + (uint32_t)bits % (path > 1 ? count / path : 1);
        while (k < path && filled[bucket] == slots) {
            bucket = (bucket + step) % count;
            k++;
        }
        if (k < path) {
            filled[bucket]++;
        } else {
            slabs += chained[home]++ % slots == 0;
        }
    }
    return (double)slabs / count;
}

/* The largest number of buckets for which n keys have utilisation u (Figure 4c), or 0 if there is
 * none. */
static uint32_t buckets_for(uint32_t mode, uint32_t path, uint64_t n, double u)
{
    double full = slots_of[mode] * bytes_of[mode] / 128;
    for (double fill = u / full; fill<(path > 1 ? 1.0 : 60.0); fill *= path> 1 ? 1.01 : 1.03) {
        if (fill * full / slabs_each(path, slots_of[mode], fill) >= u - 0.002) {
            return (uint32_t)((double)n / (slots_of[mode] * fill)) + 1;
        }
    }
    return 0;
}

typedef struct slab_table {
    ga_slabhash_device device;
    ga_heap *heap;
    ~slab_table()
    {
        ga_slabhash_device_close(&device);
        ga_heap_close(heap);
    }
} slab_table;

/* Pairs' bytes over those of slabs in use (§III-C), and over those held. */
static void weigh_slabs(slab_table *t, uint32_t mode, point *what)
{
    ga_slabhash_census census = {};
    ga_stats stats = {};
    must_ga(ga_slabhash_device_count(&t->device, &census, 0));
    must_ga(ga_heap_stats(t->device.slabs, &stats));
    double slabs = (double)t->device.view.buckets + (double)census.chained;
    double bytes = (double)census.live * bytes_of[mode];
    what->used = bytes / (slabs * 128);
    what->held = bytes / (t->device.view.buckets * 128.0 + (double)stats.held_bytes);
    what->share = (double)census.live / (slabs * slots_of[mode]);
}

static ga_slabhash_batch search_batch(uint32_t mode, const void *keys, uint64_t n)
{
    ga_slabhash_batch batch = {};
    batch.count = n;
    batch.keys = keys;
    batch.op = GA_SLABHASH_SEARCH;
    if (mode == GA_SLABHASH_SET32) {
        batch.results = world.results;
    } else {
        batch.found = world.found;
    }
    return batch;
}

/* How a batch gets to the device. */
typedef void launcher(const ga_slabhash_device *table, const ga_slabhash_batch *batch);

/* Without buckets a table that grows, as `grows` says, and is made anew in place of being cleared.
 * `builds`: how it is built, if not by the library's call. */
static way slab_way(const point &base, uint32_t mode, uint32_t path, uint32_t buckets,
                    const char *spec, const char *name, uint32_t grows = GA_SLABHASH_GROW,
                    launcher *builds = NULL)
{
    std::shared_ptr<slab_table> t(new slab_table());
    ga_slabhash_options options = {};
    options.options_size = sizeof options;
    options.mode = (ga_slabhash_mode)mode;
    options.flags = buckets ? 0 : grows;
    options.buckets = buckets || grows == GA_SLABHASH_GROW ? buckets : 1024;
    options.path = path;
    options.seed = 11;
    if (spec) {
        must_ga(ga_heap_open(&t->heap, GA_PLACE_KERNEL, 0, spec));
        options.heap = t->heap;
    }
    must_ga(ga_slabhash_device_open(&t->device, &options, 0, 0));
    way w;
    uint64_t n = UINT64_C(1) << base.log2;
    w.what = base;
    w.what.way = name ? name : "path " + std::to_string(path);
    w.what.path = path;
    w.what.buckets = buckets;
    w.what.spec = ga_heap_spec(t->device.slabs);
    w.clear = [=] {
        if (buckets) {
            must_ga(ga_slabhash_device_clear(&t->device, 0));
        } else {
            must_ga(ga_slabhash_device_close(&t->device));
            must_ga(ga_slabhash_device_open(&t->device, &options, 0, 0));
        }
    };
    w.run = [=](const ga_slabhash_batch *b) {
        must_ga(ga_slabhash_device_run(&t->device, b, NULL, 0));
    };
    w.build = [=] {
        ga_slabhash_batch batch = {};
        batch.count = n;
        batch.keys = world.keys;
        batch.values = mode == GA_SLABHASH_SET32 ? NULL : world.values;
        batch.op = GA_SLABHASH_INSERT;
        if (builds) {
            builds(&t->device, &batch);
        } else {
            must_ga(ga_slabhash_device_run(&t->device, &batch, NULL, 0));
        }
    };
    w.search = [=](const void *keys, uint64_t count) {
        ga_slabhash_batch batch = search_batch(mode, keys, count);
        must_ga(ga_slabhash_device_run(&t->device, &batch, NULL, 0));
    };
    w.weigh = [=](point *what) {
        weigh_slabs(t.get(), mode, what);
        what->buckets = t->device.view.buckets;
    };
    return w;
}

/* Memory of the device's with all bits set. */
static std::shared_ptr<void> device_memory(size_t bytes)
{
    void *memory;
    MUST(cudaMalloc(&memory, bytes));
    MUST(cudaMemset(memory, 0xff, bytes));
    return std::shared_ptr<void>(memory, [](void *m) { cudaFree(m); });
}

static void fill_out(way *w, const point &base, const char *name, double share)
{
    w->what = base;
    w->what.way = name;
    w->what.path = 0;
    w->what.used = w->what.held = w->what.share = share;
    w->what.buckets = 0;
    w->weigh = [](point *) {};
}

template <uint32_t MODE> static way open_way(const point &base, double share)
{
    typedef word_of<MODE> T;
    uint64_t n = UINT64_C(1) << base.log2;
    open_table t = {NULL, (uint64_t)((double)n / share) + 1};
    size_t bytes = t.count * (size_t)bytes_of[MODE];
    std::shared_ptr<void> memory = device_memory(bytes);
    t.places = memory.get();
    way w;
    fill_out(&w, base, "open", share);
    w.clear = [=] { MUST(cudaMemsetAsync(memory.get(), 0xff, bytes)); };
    w.build = [=] {
        open_build<MODE, T>
            <<<blocks_for(n), THREADS>>>(t, (const T *)world.keys, (const T *)world.values, n);
    };
    w.search = [=](const void *keys, uint64_t count) {
        open_find<MODE, T><<<blocks_for(count), THREADS>>>(t, (const T *)keys, count,
                                                           (T *)world.found, world.results);
    };
    w.run = [=](const ga_slabhash_batch *b) { open_mix<<<blocks_for(b->count), THREADS>>>(t, *b); };
    return w;
}

static uint32_t *cuckoo_failed()
{
    static uint32_t *failed;
    if (!failed) {
        MUST(cudaMalloc(&failed, sizeof *failed));
        MUST(cudaMemset(failed, 0, sizeof *failed));
    }
    return failed;
}

static way cuckoo_way(const point &base, double share)
{
    uint64_t n = UINT64_C(1) << base.log2;
    cuckoo_table t = {NULL, (uint64_t)((double)n / share) + 1, 5};
    size_t bytes = t.count * sizeof *t.places;
    std::shared_ptr<void> memory = device_memory(bytes);
    t.places = (uint64_t *)memory.get();
    uint32_t *failed = cuckoo_failed();
    way w;
    fill_out(&w, base, "cuckoo", share);
    w.clear = [=] { MUST(cudaMemsetAsync(memory.get(), 0xff, bytes)); };
    w.build = [=] {
        cuckoo_build<<<blocks_for(n), THREADS>>>(t, (const uint32_t *)world.keys,
                                                 (const uint32_t *)world.values, n, failed);
    };
    w.search = [=](const void *keys, uint64_t count) {
        cuckoo_find<<<blocks_for(count), THREADS>>>(t, (const uint32_t *)keys, count,
                                                    (uint32_t *)world.found);
    };
    return w;
}

#endif
