/* SPDX-License-Identifier: MIT
 *
 * The sections of bench-slabhash-kernels on tables that change: batches that are inserted one after
 * another, and operations of all kinds in one launch. Part of kernels.cu.
 */
#ifndef GPUALLOC_BENCH_SLABHASH_CHANGES_CUH
#define GPUALLOC_BENCH_SLABHASH_CHANGES_CUH

#include "builds.cuh"

/* ---- incremental batches: Figure 6 ----------------------------------------------------------- */

static const uint32_t BATCHES_LOG2 = 21;

/* Insert batches of `size` keys until all are inserted; returns keys a second over the whole time.
 * `add` gets the numbers of keys before and after the batch. */
static double grow_by(uint64_t size, const std::function<void(uint64_t, uint64_t)> &add)
{
    uint64_t n = UINT64_C(1) << BATCHES_LOG2;
    return rate_of((double)n, [&] {
        for (uint64_t there = 0; there < n; there += size) {
            add(there, std::min(there + size, n));
        }
    });
}

typedef struct grower {
    way table;
    std::function<void(uint64_t, uint64_t)> add;
} grower;

/* The final utilisation is 0.65, as in the paper, but where the table grows as it will. */
static grower slab_grower(const point &base, uint32_t path, bool grows)
{
    uint32_t buckets = buckets_for(GA_SLABHASH_MAP32, path, UINT64_C(1) << BATCHES_LOG2, 0.65);
    grower g;
    g.table = slab_way(base, GA_SLABHASH_MAP32, path, grows ? 0 : buckets, slabs_from,
                       grows ? "grows" : NULL);
    std::function<void(const ga_slabhash_batch *)> run = g.table.run;
    g.add = [=](uint64_t first, uint64_t end) {
        ga_slabhash_batch batch = {};
        batch.count = end - first;
        batch.keys = (const uint32_t *)world.keys + first;
        batch.values = (const uint32_t *)world.values + first;
        batch.op = GA_SLABHASH_INSERT;
        run(&batch);
    };
    return g;
}

static grower open_grower(const point &base)
{
    uint64_t n = UINT64_C(1) << BATCHES_LOG2;
    open_table t = {NULL, (uint64_t)((double)n / share_of(GA_SLABHASH_MAP32, 0.65)) + 1};
    std::shared_ptr<void> memory = device_memory(t.count * sizeof(uint64_t));
    t.places = memory.get();
    grower g;
    fill_out(&g.table, base, "open", share_of(GA_SLABHASH_MAP32, 0.65));
    g.table.clear = [=] { MUST(cudaMemsetAsync(memory.get(), 0xff, t.count * sizeof(uint64_t))); };
    g.table.search = [=](const void *keys, uint64_t count) {
        open_find<GA_SLABHASH_MAP32, uint32_t><<<blocks_for(count), THREADS>>>(
            t, (const uint32_t *)keys, count, (uint32_t *)world.found, world.results);
    };
    g.add = [=](uint64_t first, uint64_t end) {
        open_build<GA_SLABHASH_MAP32, uint32_t><<<blocks_for(end - first), THREADS>>>(
            t, (const uint32_t *)world.keys + first, (const uint32_t *)world.values + first,
            end - first);
    };
    return g;
}

/* Rebuilt for each batch, with the size for all keys so far at 0.65. */
static grower cuckoo_grower(const point &base)
{
    uint64_t most = (uint64_t)((double)(UINT64_C(1) << BATCHES_LOG2) / 0.65) + 1;
    std::shared_ptr<void> memory = device_memory(most * sizeof(uint64_t));
    std::shared_ptr<cuckoo_table> t(new cuckoo_table{(uint64_t *)memory.get(), most, 5});
    uint32_t *failed = cuckoo_failed();
    grower g;
    fill_out(&g.table, base, "cuckoo, rebuilt", 0.65);
    g.table.clear = [=] { (void)memory; };
    g.table.search = [=](const void *keys, uint64_t count) {
        cuckoo_find<<<blocks_for(count), THREADS>>>(*t, (const uint32_t *)keys, count,
                                                    (uint32_t *)world.found);
    };
    g.add = [=](uint64_t, uint64_t end) {
        t->count = (uint64_t)((double)end / 0.65) + 1;
        MUST(cudaMemsetAsync(t->places, 0xff, t->count * sizeof *t->places));
        cuckoo_build<<<blocks_for(end), THREADS>>>(*t, (const uint32_t *)world.keys,
                                                   (const uint32_t *)world.values, end, failed);
    };
    return g;
}

static void batches_of(uint64_t size)
{
    uint64_t n = UINT64_C(1) << BATCHES_LOG2;
    point base = point_of("batches", GA_SLABHASH_MAP32, BATCHES_LOG2, (double)size);
    std::vector<grower> growers;
    growers.push_back(open_grower(base));
    growers.push_back(cuckoo_grower(base));
    for (uint32_t path : {1u, 4u}) {
        growers.push_back(slab_grower(base, path, false));
    }
    growers.push_back(slab_grower(base, 4u, true));
    fill_world<GA_SLABHASH_MAP32>(n);
    for (int round = 0; round <= rounds; round++) {
        for (size_t i = 0; i < growers.size(); i++) {
            grower &g = growers[(i + (size_t)round) % growers.size()];
            g.table.clear();
            double rate = grow_by(size, g.add);
            poison<GA_SLABHASH_MAP32>(n);
            g.table.search(world.keys, n);
            check<GA_SLABHASH_MAP32>(g.table.what, world.keys, true, n);
            if (round) {
                g.table.rates[BUILD].push_back(rate);
            }
        }
    }
    for (grower &g : growers) {
        g.table.weigh(&g.table.what);
        g.table.what.metric = "insert";
        g.table.what.baseline = "open";
        say(g.table.what, g.table.rates[BUILD], growers[0].table.rates[BUILD]);
    }
}

static void batches()
{
    for (uint64_t size : {UINT64_C(1) << 15, UINT64_C(1) << 16, UINT64_C(1) << 17}) {
        batches_of(size);
    }
}

/* ---- operations of all kinds at once: Figure 7 ---------------------------------------------- */

/* Percent of insertions of new keys, of deletions and searches of present keys, and of searches of
 * absent ones: the paper's three distributions. */
typedef struct mix {
    const char *name;
    uint32_t insert, erase, hit, miss;
} mix;

static const mix mixes_of[] = {
    {"updates 100 %", 50, 50, 0, 0},
    {"updates 40 %", 20, 20, 30, 30},
    {"updates 20 %", 10, 10, 40, 40},
};

/* Operation i uses key i of the present or of the absent keys, so that no two use one key and each
 * has one right result. `mixed` are the keys. */
static __global__ void make_mix(mix m, const uint32_t *there, const uint32_t *others,
                                uint32_t *mixed, uint32_t *values, uint8_t *ops, uint8_t *expected,
                                uint64_t n)
{
    uint64_t i = own_number();
    if (i >= n) {
        return;
    }
    uint32_t random = (uint32_t)(mix64(i * 77u + 5u) % 100u);
    bool inserts = random < m.insert;
    bool erases = !inserts && random < m.insert + m.erase;
    bool hits = !inserts && !erases && random < m.insert + m.erase + m.hit;
    mixed[i] = erases || hits ? there[i] : others[i];
    values[i] = ~mixed[i];
    ops[i] = inserts ? GA_SLABHASH_INSERT : erases ? GA_SLABHASH_DELETE : GA_SLABHASH_SEARCH;
    expected[i] = erases || hits ? GA_SLABHASH_FOUND : GA_SLABHASH_ABSENT;
}

/* `found` may be NULL. `silent`: the values of deletions are not checked. */
static __global__ void check_mix(ga_slabhash_batch batch, const uint8_t *expected, bool silent,
                                 uint32_t *wrong)
{
    const uint32_t *keys = (const uint32_t *)batch.keys, *found = (const uint32_t *)batch.found;
    uint64_t i = own_number();
    if (i < batch.count) {
        uint32_t value = expected[i] == GA_SLABHASH_FOUND ? ~keys[i] : 0;
        bool valued = found && !(silent && batch.ops[i] == GA_SLABHASH_DELETE);
        if (batch.results[i] != expected[i] || (valued && found[i] != value)) {
            ga_add_relaxed(wrong, 1u);
        }
    }
}

/* In the second half of the arrays; half of the first are the present keys. */
static ga_slabhash_batch mix_batch(const mix &m, uint64_t n, bool valued)
{
    ga_slabhash_batch batch = {};
    uint32_t *keys = (uint32_t *)world.keys + n;
    uint32_t *values = (uint32_t *)world.values + n;
    make_mix<<<blocks_for(n), THREADS>>>(m, (const uint32_t *)world.keys,
                                         (const uint32_t *)world.others, keys, values, world.ops,
                                         world.expected, n);
    batch.count = n;
    batch.keys = keys;
    batch.values = valued ? values : NULL;
    batch.ops = world.ops;
    batch.results = world.results;
    batch.found = valued ? world.found : NULL;
    return batch;
}

static double run_mix(way *w, const mix &m, uint64_t n, bool valued)
{
    ga_slabhash_batch batch = mix_batch(m, n, valued);
    w->clear();
    w->build();
    poison<GA_SLABHASH_MAP32>(n);
    double rate = rate_of((double)n, [&] { w->run(&batch); });
    check_mix<<<blocks_for(n), THREADS>>>(batch, world.expected, w->deletes_silently, world.wrong);
    expect_none_wrong(w->what);
    return rate;
}

/* All ways in turn on one mix. Utilisation is that before the mix. */
static void compare_mix(std::vector<way> *ways, const mix &m, bool valued,
                        baseline_kind kind = FIRST)
{
    uint64_t n = UINT64_C(1) << (*ways)[0].what.log2;
    for (int round = 0; round <= rounds; round++) {
        for (size_t i = 0; i < ways->size(); i++) {
            way *w = &(*ways)[(i + (size_t)round) % ways->size()];
            w->what.metric = m.name;
            double rate = run_mix(w, m, n, valued);
            if (round) {
                w->rates[BUILD].push_back(rate);
            }
        }
    }
    const way &baseline = baseline_of(*ways, kind, BUILD);
    for (way &w : *ways) {
        w.clear();
        w.build();
        w.weigh(&w.what);
        w.what.baseline = baseline.what.way;
        say(w.what, w.rates[BUILD], baseline.rates[BUILD]);
    }
}

static void mixed_at(double u, const mix &m)
{
    point base = point_of("mixes", GA_SLABHASH_MAP32, 22, u);
    uint64_t n = UINT64_C(1) << base.log2;
    double share = share_of(GA_SLABHASH_MAP32, u);
    std::vector<way> ways;
    if (share * (1 + m.insert / 100.0) < 0.97) { /* deleted keys' places are not used again */
        ways.push_back(open_way<GA_SLABHASH_MAP32>(base, share));
    }
    for (uint32_t path : {1u, 4u, 6u, 16u}) {
        uint32_t buckets = buckets_for(GA_SLABHASH_MAP32, path, n, u);
        if (asks(asked_paths, path) && buckets) {
            ways.push_back(slab_way(base, GA_SLABHASH_MAP32, path, buckets, slabs_from, NULL));
        }
    }
    if (!ways.empty()) {
        compare_mix(&ways, m, true);
    }
}

/* Figure 7a. */
static void mixes()
{
    fill_world<GA_SLABHASH_MAP32>(UINT64_C(1) << 22);
    for (double u : {0.2, 0.4, 0.5, 0.6, 0.65, 0.7, 0.8, 0.9}) {
        for (const mix &m : mixes_of) {
            if (asks(asked_uses, u)) {
                mixed_at(u, m);
            }
        }
    }
}

/* The nodes for the keys that are there from the start come before those for the mix. */
static way list_way(const point &base, uint32_t count)
{
    uint64_t n = UINT64_C(1) << base.log2;
    std::shared_ptr<void> heads = device_memory(count * sizeof(uint32_t));
    std::shared_ptr<void> nodes = device_memory(4 * n * sizeof(uint32_t));
    list_table t = {(uint32_t *)heads.get(), count, (uint32_t *)nodes.get(),
                    (uint32_t *)nodes.get() + 2 * n};
    way w;
    fill_out(&w, base, "list", 0.5 * (double)n / ((double)n + count / 2.0));
    w.what.buckets = count;
    w.clear = [=] {
        (void)nodes;
        set_words<<<blocks_for(count), THREADS>>>((uint32_t *)heads.get(), LIST_END, count);
    };
    w.build = [=] {
        ga_slabhash_batch batch = {};
        batch.count = n;
        batch.keys = world.keys;
        batch.op = GA_SLABHASH_INSERT;
        batch.results = world.results;
        list_mix<<<blocks_for(n), THREADS>>>(t, batch, 0u);
    };
    w.run = [=](const ga_slabhash_batch *b) {
        list_mix<<<blocks_for(b->count), THREADS>>>(t, *b, (uint32_t)n);
    };
    return w;
}

static void listed_at(uint32_t count, const mix &m)
{
    point base = point_of("lists", GA_SLABHASH_SET32, 20, count);
    std::vector<way> ways;
    ways.push_back(list_way(base, count));
    for (uint32_t path : {1u, 4u}) {
        if (asks(asked_paths, path)) {
            ways.push_back(slab_way(base, GA_SLABHASH_SET32, path, count, slabs_from, NULL));
        }
    }
    compare_mix(&ways, m, false);
}

/* Figure 7b: sets with as many buckets as there are lists, a million keys and operations. */
static void lists()
{
    fill_world<GA_SLABHASH_SET32>(UINT64_C(1) << 20);
    for (uint32_t count = 1u << 12; count <= 1u << 20; count *= 2) {
        for (const mix &m : mixes_of) {
            listed_at(count, m);
        }
    }
}

#endif
