/* SPDX-License-Identifier: MIT
 *
 * The slab hash in kernels: Figures 4 to 7 of slab-hash-2018, §VI, beside baselines of the same
 * run. A figure is the median over the rounds, and the 5th and 95th percentile; "times" is the
 * ratio to open addressing, the median of the same rounds. Every answer is checked: a wrong one is
 * exit status 1. Prints GPU, driver and date. docs/bench.md explains the sections.
 *
 *   bench-slabhash-kernels [--only NAME,NAME] [--rounds N] [--keys LOG2,LOG2] [--at U,U]
 *                          [--paths K,K] [--slabs SPEC] [--json FILE]
 */
#define PROGRAM "bench-slabhash-kernels"
#define GA_SLABHASH_GROWING_KINDS
#include "baselines.cuh"
#include "report.cuh"

#include <functional>
#include <memory>
#include <random>
#include <type_traits>

/* ---- what is asked for ---------------------------------------------------------------------- */

static std::vector<double> asked_keys, asked_uses, asked_paths; /* empty: the section's own */
static const char *slabs_from;                                  /* NULL: the library's default */

static bool asks(const std::vector<double> &list, double value)
{
    bool found = list.empty();
    for (double one : list) {
        found |= fabs(one - value) < 1e-6;
    }
    return found;
}

/* Whether the section's name is in the list of --only. */
static bool asks_for(const char *section)
{
    std::string list = only ? std::string(",") + only + "," : "";
    return !only || list.find("," + std::string(section) + ",") != std::string::npos;
}

static void must_ga(ga_status status)
{
    if (status != GA_OK) {
        fprintf(stderr, PROGRAM ": %s\n", ga_error_text());
        exit(1);
    }
}

/* ---- keys ----------------------------------------------------------------------------------- */

template <uint32_t MODE>
using word_of = typename std::conditional<MODE == GA_SLABHASH_MAP64, uint64_t, uint32_t>::type;

/* Another key for each i below 2^28, none of them reserved; its value is the complement. */
template <class T> static __device__ __forceinline__ T key_of(uint32_t i)
{
    if (sizeof(T) == sizeof(uint64_t)) {
        return (T)mix64((uint64_t)i + 1u);
    }
    uint32_t key = ga_bits_mix(i);
    return (T)(key >= GA_SLABHASH_DELETED ? ga_bits_mix(key) : key);
}

/* The same in 31 bits, for tables that grow in kernels. */
template <class T> static __device__ __forceinline__ T narrow_key_of(uint32_t i)
{
    return (T)(i * 2654435761u & 0x7fffffffu);
}

template <class T>
__global__ void make_keys(T *keys, T *values, uint32_t first, uint64_t n, bool narrow)
{
    uint64_t i = own_number();
    if (i < n) {
        uint32_t number = first + (uint32_t)i;
        keys[i] = narrow ? narrow_key_of<T>(number) : key_of<T>(number);
        values[i] = ~keys[i];
    }
}

/* In device memory, for the most keys there are: keys that go in and others, and answers. */
static struct {
    void *keys, *others, *values, *found;
    uint8_t *results, *ops, *expected;
    uint32_t *wrong; /* answers */
    bool narrow;     /* keys of 31 bits */
} world;

static const uint32_t MOST_LOG2 = 27;

static unsigned blocks_for(uint64_t n)
{
    return (unsigned)((n + THREADS - 1) / THREADS);
}

static void prepare_world(uint32_t log2)
{
    uint64_t n = UINT64_C(1) << log2;
    for (void **array : {&world.keys, &world.others, &world.values, &world.found}) {
        MUST(cudaMalloc(array, n * sizeof(uint64_t)));
    }
    MUST(cudaMalloc(&world.results, n));
    MUST(cudaMalloc(&world.ops, n));
    MUST(cudaMalloc(&world.expected, n));
    MUST(cudaMalloc(&world.wrong, sizeof *world.wrong));
    MUST(cudaMemset(world.wrong, 0, sizeof *world.wrong));
}

/* n keys, and n others that are not put in. */
template <uint32_t MODE> static void fill_world(uint64_t n)
{
    typedef word_of<MODE> T;
    make_keys<<<blocks_for(n), THREADS>>>((T *)world.others, (T *)world.values, (uint32_t)n, n,
                                          world.narrow);
    make_keys<<<blocks_for(n), THREADS>>>((T *)world.keys, (T *)world.values, 0u, n, world.narrow);
}

template <class T>
__global__ void check_search(const T *keys, const T *found, const uint8_t *results, bool there,
                             uint64_t n, uint32_t *wrong)
{
    uint64_t i = own_number();
    if (i < n) {
        bool right = results ? results[i] == (there ? GA_SLABHASH_FOUND : GA_SLABHASH_ABSENT)
                             : found[i] == (there ? (T)~keys[i] : 0);
        if (!right) {
            ga_add_relaxed(wrong, 1u);
        }
    }
}

static void expect_none_wrong(const point &p)
{
    uint32_t n;
    MUST(cudaMemcpy(&n, world.wrong, sizeof n, cudaMemcpyDeviceToHost));
    MUST(cudaMemset(world.wrong, 0, sizeof n));
    if (n) {
        printf("WRONG: %u answers of %s %s, %s, 2^%u keys, %.5g\n", n, p.mode.c_str(),
               p.way.c_str(), p.section, p.log2, p.target);
        failures++;
    }
}

template <uint32_t MODE> static void poison(uint64_t n)
{
    MUST(cudaMemsetAsync(world.results, 0xee, n));
    MUST(cudaMemsetAsync(world.found, 0xee, n * sizeof(word_of<MODE>)));
}

template <uint32_t MODE> static void check(const point &p, const void *keys, bool there, uint64_t n)
{
    typedef word_of<MODE> T;
    check_search<<<blocks_for(n), THREADS>>>((const T *)keys, (const T *)world.found,
                                             MODE == GA_SLABHASH_SET32 ? world.results : NULL,
                                             there, n, world.wrong);
    expect_none_wrong(p);
}

/* ---- time ----------------------------------------------------------------------------------- */

/* The host gets ahead of the device, so that a launch is not part of the time. */
static __global__ void head_start()
{
    uint64_t begin = ga_clock_ns();
    while (ga_clock_ns() - begin < 40000) {
    }
}

template <class RUN> static double rate_of(double n, RUN run)
{
    head_start<<<1, 1>>>();
    double us = time_behind(run);
    MUST(cudaGetLastError());
    return n / us / 1e3;
}

/* ---- ways ----------------------------------------------------------------------------------- */

enum {
    BUILD = 0,
    HIT,
    MISS,
    METRICS
};
static const char *const metric_names[METRICS] = {"build", "hit", "miss"};

/* A table, and what is done with it; launches only. */
typedef struct way {
    point what;
    std::function<void()> clear, build;
    std::function<void(const void *keys, uint64_t n)> search;
    std::function<void(const ga_slabhash_batch *batch)> run; /* operations of any kind */
    std::function<void(point *what)> weigh;                  /* what it holds, once it is built */
    std::vector<double> rates[METRICS];
} way;

static const char *const mode_names[] = {"set32", "map32", "map64"};
static const uint32_t slots_of[] = {30, 15, 7};
static const double bytes_of[] = {4, 8, 16};

/* The share of the slots that is filled where the utilisation is `u`. */
static double share_of(uint32_t mode, double u)
{
    return u * 128 / (slots_of[mode] * bytes_of[mode]);
}

/* How many slabs there are for each bucket when keys are `fill` times as many as the slots of the
 * buckets: by a play with few keys. */
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

/* The buckets for which n keys have utilisation u (Figure 4c), or 0 where there are none: the most
 * buckets of all that do. */
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

/* ---- building and searching: Figures 4 and 5 ------------------------------------------------- */

/* Cleared, built, and searched for what is there and what is not, once. */
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

/* All in turn, `rounds` times after one that does not count; ratios are to the first. */
template <uint32_t MODE> static void compare(std::vector<way> *ways)
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
        w.what.baseline = (*ways)[0].what.way;
        for (int metric = 0; metric < METRICS; metric++) {
            w.what.metric = metric_names[metric];
            say(w.what, w.rates[metric], (*ways)[0].rates[metric]);
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
    for (uint32_t log2 = 16; log2 <= MOST_LOG2; log2++) {
        if (asks(asked_keys, log2)) {
            at_use<GA_SLABHASH_MAP32>("sizes", log2, 0.6, {1, 4});
        }
    }
}

/* Tables that nobody has told how many keys will come, in one batch, beside one that knows. */
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

/* The same of tables with a path of one, that grow between calls, and inside the one kernel that
 * puts all in, from 1024 buckets. */
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

/* Building in one launch of the kernel for such batches; slabs are there or come while it runs. */
template <uint32_t kind>
static void launch_build(const ga_slabhash_device *table, const ga_slabhash_batch *batch)
{
    ga_slabhash_teller teller = {};
    teller.news = table->news;
    ga_slabhash_batch_kernel<kind, GA_SLABHASH_INSERT>
        <<<ga_slabhash_device_batch_grid(table, batch), GA_SLABHASH_BLOCK>>>(table->view, *batch,
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

#include "changes.cuh"

/* ---- the program ---------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)();
} sections[] = {
    {"utilisation", utilisation}, {"sizes", sizes},           {"growing", growing},
    {"batches", batches},         {"mixes", mixes},           {"lists", lists},
    {"addressing", addressing},   {"inside", growing_inside}, {"swaps", swaps},
};

static std::vector<double> numbers(const char *text)
{
    std::vector<double> list;
    for (char *end; *text; text = *end ? end + 1 : end) {
        list.push_back(strtod(text, &end));
        if (end == text || (*end && *end != ',')) {
            fprintf(stderr, PROGRAM ": \"%s\": expected numbers with commas between\n", text);
            exit(2);
        }
    }
    return list;
}

static bool read_option(const char *name, const char *value)
{
    if (!strcmp(name, "--rounds") && atoi(value) > 0) {
        rounds = atoi(value);
    } else if (!strcmp(name, "--only")) {
        only = value;
    } else if (!strcmp(name, "--keys")) {
        asked_keys = numbers(value);
    } else if (!strcmp(name, "--at")) {
        asked_uses = numbers(value);
    } else if (!strcmp(name, "--paths")) {
        asked_paths = numbers(value);
    } else if (!strcmp(name, "--slabs")) {
        slabs_from = value;
    } else if (!strcmp(name, "--json")) {
        json = fopen(value, "w");
        return json != NULL;
    } else {
        return false;
    }
    return true;
}

static void usage()
{
    fprintf(stderr, "usage: " PROGRAM " [--only NAME,NAME] [--rounds N] [--keys LOG2,LOG2] "
                    "[--at U,U] [--paths K,K] [--slabs SPEC] [--json FILE]\nsections:");
    for (const auto &section : sections) {
        fprintf(stderr, " %s", section.name);
    }
    fprintf(stderr, "\n");
}

int main(int argc, char **argv)
{
    int devices = 0;
    rounds = 7;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 >= argc || !read_option(argv[i], argv[i + 1])) {
            usage();
            return 2;
        }
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("skipped, this machine has no GPU\n");
        return 77;
    }
    describe_gpu();
    printf("medians of %d rounds after a warm-up (5th to 95th percentile); times: over open "
           "addressing with the same share of its slots filled\n",
           rounds);
    prepare_measuring();
    prepare_world(MOST_LOG2);
    for (const auto &section : sections) {
        if (asks_for(section.name)) {
            section.run();
        }
    }
    print_bars();
    return failures != 0;
}
