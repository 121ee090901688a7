/* SPDX-License-Identifier: MIT
 *
 * The sections of bench-slabhash-kernels on tables that are built, then searched: by utilisation,
 * by size, growing, and by the source of slabs and slots.
 */
#ifndef GPUALLOC_BENCH_SLABHASH_BUILDS_CUH
#define GPUALLOC_BENCH_SLABHASH_BUILDS_CUH

#include "ways.cuh"

/* Clear, build, and search once for present and once for absent keys. */
template <uint32_t MODE> static void one_round(way *w, uint64_t n, bool counts)
{
    double rates[METRICS];
    w->clear();
    rates[BUILD] = rate_of((double)n, w->build);
    for (int metric = HIT; metric <= MISS; metric++) {
        const void *keys = metric == HIT ? world.keys : world.others;
        poison<MODE>(n);
        rates[metric] = rate_of((double)n, [&] { w->search(keys, n); });
        check<MODE>(w->what, keys, metric == HIT, n);
    }
    for (int metric = 0; counts && metric < METRICS; metric++) {
        w->rates[metric].push_back(rates[metric]);
    }
}

/* The baseline of a metric: the first, or the fastest of those that are no slab hash. */
typedef enum baseline_kind {
    FIRST,
    FASTEST
} baseline_kind;

static const way &baseline_of(const std::vector<way> &ways, baseline_kind kind, int metric)
{
    const way *best = &ways[0];
    for (const way &w : ways) {
        if (kind == FASTEST && !w.what.path &&
            median_of(w.rates[metric]) > median_of(best->rates[metric])) {
            best = &w;
        }
    }
    return *best;
}

/* All in turn, `rounds` times after one that does not count. */
template <uint32_t MODE> static void compare(std::vector<way> *ways, baseline_kind kind = FIRST)
{
    uint64_t n = UINT64_C(1) << (*ways)[0].what.log2;
    fill_world<MODE>(n);
    for (int round = 0; round <= rounds; round++) {
        for (size_t i = 0; i < ways->size(); i++) {
            one_round<MODE>(&(*ways)[(i + (size_t)round) % ways->size()], n, round > 0);
        }
    }
    for (way &w : *ways) {
        w.weigh(&w.what);
        for (int metric = 0; metric < METRICS; metric++) {
            const way &baseline = baseline_of(*ways, kind, metric);
            w.what.metric = metric_names[metric];
            w.what.baseline = baseline.what.way;
            say(w.what, w.rates[metric], baseline.rates[metric]);
        }
    }
}

static point point_of(const char *section, uint32_t mode, uint32_t log2, double target)
{
    point p = {};
    p.section = section;
    p.mode = mode_names[mode];
    p.log2 = log2;
    p.target = target;
    p.held = p.used = p.share = NAN;
    return p;
}

/* The baselines have the same share of their slots filled. */
template <uint32_t MODE>
static void at_use(const char *section, uint32_t log2, double u, std::vector<uint32_t> paths)
{
    point base = point_of(section, MODE, log2, u);
    std::vector<way> ways;
    double share = share_of(MODE, u);
    if (share >= 0.99) { /* more than slabs can hold */
        return;
    }
    ways.push_back(open_way<MODE>(base, share));
    if (MODE == GA_SLABHASH_MAP32 && share < 0.9) { /* more does not always end */
        ways.push_back(cuckoo_way(base, share));
    }
    for (uint32_t path : paths) {
        uint32_t buckets = buckets_for(MODE, path, UINT64_C(1) << log2, u);
        if (asks(asked_paths, path) && buckets) {
            ways.push_back(slab_way(base, MODE, path, buckets, slabs_from, NULL));
        }
    }
    compare<MODE>(&ways);
}

/* Figure 4. */
static void utilisation()
{
    for (uint32_t log2 : {22u, 26u}) {
        for (double u : {0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.8, 0.9}) {
            if (asks(asked_keys, log2) && asks(asked_uses, u)) {
                at_use<GA_SLABHASH_MAP32>("utilisation", log2, u, {1, 4, 6, 16});
                at_use<GA_SLABHASH_SET32>("utilisation", log2, u, {1, 4, 6});
                at_use<GA_SLABHASH_MAP64>("utilisation", log2, u, {1, 4, 6, 16});
            }
        }
    }
}

/* Figure 5. */
static void sizes()
{
    for (uint32_t log2 = 16; log2 <= LOG2_MAX; log2++) {
        if (asks(asked_keys, log2)) {
            at_use<GA_SLABHASH_MAP32>("sizes", log2, 0.6, {1, 4});
        }
    }
}

/* Tables without a hint of the number of keys, filled by one batch, beside one with the hint. */
static void growing()
{
    for (uint32_t log2 : {16u, 22u, 26u}) {
        point base = point_of("growing", GA_SLABHASH_MAP32, log2, 0);
        uint32_t buckets = buckets_for(GA_SLABHASH_MAP32, 4, UINT64_C(1) << log2, 0.6);
        if (asks(asked_keys, log2)) {
            std::vector<way> ways;
            ways.push_back(open_way<GA_SLABHASH_MAP32>(base, share_of(GA_SLABHASH_MAP32, 0.6)));
            ways.push_back(slab_way(base, GA_SLABHASH_MAP32, 4, buckets, slabs_from, "known"));
            ways.push_back(slab_way(base, GA_SLABHASH_MAP32, 4, 0, slabs_from, "grows"));
            compare<GA_SLABHASH_MAP32>(&ways);
        }
    }
}

/* Tables with a path of one, that grow between calls, and within the one kernel that inserts all,
 * from 1024 buckets. */
static void growing_inside()
{
    world.narrow = true;
    for (uint32_t log2 : {16u, 22u, 26u}) {
        point base = point_of("inside", GA_SLABHASH_MAP32, log2, 0);
        uint32_t buckets = buckets_for(GA_SLABHASH_MAP32, 1, UINT64_C(1) << log2, 0.5);
        if (asks(asked_keys, log2)) {
            std::vector<way> ways;
            ways.push_back(slab_way(base, GA_SLABHASH_MAP32, 1, buckets, slabs_from, "known"));
            ways.push_back(slab_way(base, GA_SLABHASH_MAP32, 1, 0, slabs_from, "between calls"));
            ways.push_back(slab_way(base, GA_SLABHASH_MAP32, 1, 0, slabs_from, "in one kernel",
                                    GA_SLABHASH_GROW_IN_KERNELS));
            compare<GA_SLABHASH_MAP32>(&ways);
        }
    }
    world.narrow = false;
}

/* Slabs in one array beside a table of super blocks (§V), where chains are long. */
static void addressing()
{
    for (uint32_t log2 : {22u, 26u}) {
        for (double u : {0.5, 0.65, 0.8, 0.9}) {
            point base = point_of("addressing", GA_SLABHASH_MAP32, log2, u);
            uint32_t buckets = buckets_for(GA_SLABHASH_MAP32, 1, UINT64_C(1) << log2, u);
            if (!asks(asked_keys, log2) || !asks(asked_uses, u)) {
                continue;
            }
            std::vector<way> ways;
            for (const char *how : {"light", "table"}) {
                std::string spec =
                    std::string("slab:unit=128,capacity=2G,addressing=") + how + "/cuda";
                ways.push_back(slab_way(base, GA_SLABHASH_MAP32, 1, buckets, spec.c_str(), how));
            }
            compare<GA_SLABHASH_MAP32>(&ways);
        }
    }
}

/* Build in one launch of the kernel for such batches; slabs are preallocated or added while it
 * runs. */
template <uint32_t kind>
static void launch_build(const ga_slabhash_device *table, const ga_slabhash_batch *batch)
{
    ga_slabhash_progress_settings teller = {};
    teller.progress = table->progress;
    ga_slabhash_batches batches = {{*batch}};
    ga_slabhash_batch_kernel<kind, GA_SLABHASH_INSERT>
        <<<ga_slabhash_device_batch_grid(table, batch), GA_SLABHASH_BLOCK>>>(table->view, batches,
                                                                             NULL, teller);
}

/* Places of 64-bit maps filled by one compare-and-swap of 128 bits, which is the library's way on
 * sm_90 and later, and by two of 64. */
static void swaps()
{
    for (uint32_t log2 : {22u, 26u}) {
        for (double u : {0.6, 0.8}) {
            const uint32_t path = 16;
            point base = point_of("swaps", GA_SLABHASH_MAP64, log2, u);
            uint32_t buckets = buckets_for(GA_SLABHASH_MAP64, path, UINT64_C(1) << log2, u);
            if (!asks(asked_keys, log2) || !asks(asked_uses, u)) {
                continue;
            }
            std::vector<way> ways;
            const uint32_t kind = GA_SLABHASH_KIND(GA_SLABHASH_MAP64, false);
            ways.push_back(slab_way(base, GA_SLABHASH_MAP64, path, buckets, slabs_from, "two of 64",
                                    0, launch_build<kind | GA_SLABHASH_STEPWISE>));
            ways.push_back(slab_way(base, GA_SLABHASH_MAP64, path, buckets, slabs_from,
                                    "one of 128", 0, launch_build<kind>));
            compare<GA_SLABHASH_MAP64>(&ways);
        }
    }
}

#endif
