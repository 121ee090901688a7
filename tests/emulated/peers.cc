/* SPDX-License-Identifier: MIT
 *
 * Operations of kernels on the shards of all ranks (hashtables/sharded/peers_kernel.cuh),
 * emulated. Ranks are blocks of one launch, and their shards are in one address space: each has a
 * slab heap of its own and, as on devices, copies of the records of the others.
 *
 *   emulated-peers SEED SECONDS
 */
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <stdio.h>

#define EMULATED_ROWS
#include "cuda.h"

#include "kernels.h"

#include <gpualloc/backend.h>
#include <gpualloc/slabhash.h>

typedef void *cudaStream_t; /* in declarations of the host's functions */
#define GA_SLABHASH_HASH(table, key) ga_slabhash_seeded(table, key)
#include <gpualloc/detail/slabhash/kernel_growth/no_hooks.cuh>

#include <gpualloc/detail/sharded/peers_kernel.cuh>

namespace
{

enum {
    RANKS = 5,        /* at most */
    HEAP_BLOCKS = 16, /* memory blocks of 1024 units */
    THREADS = 64,
    REQUESTS = 400
};

uint64_t state;

uint64_t draw(uint64_t below)
{
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = (state ^ state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return (z ^ z >> 31) % below;
}

[[noreturn]] void fail(uint64_t seed, const char *what, uint64_t key)
{
    printf("seed %llu: %s: key %llu\n", (unsigned long long)seed, what, (unsigned long long)key);
    exit(1);
}

/* ---- shards ---------------------------------------------------------------------------------- */

struct alignas(128) slab {
    uint32_t words[GA_SLABHASH_WORDS];
};

struct shard {
    std::vector<slab> buckets, units;
    std::vector<uint32_t> bitmaps, counts;
    std::unique_ptr<ga_slab_heap> heap;
    ga_slabhash_view view;
};

/* Of a rank, as peers_host.cuh makes it. */
struct member {
    std::vector<ga_slabhash_view> views;
    std::vector<std::unique_ptr<ga_slab_heap>> copies;
    ga_slabhash_peers_view peers;
};

struct world {
    uint64_t seed;
    uint32_t kind, ranks, ordered;
    bool is_tight; /* heaps have 32 slabs */
    shard shards[RANKS];
    member members[RANKS];
};

void open_heap(shard &s, bool is_tight)
{
    s.units.resize(HEAP_BLOCKS * GA_SLAB_BLOCK_UNITS);
    s.bitmaps.assign(HEAP_BLOCKS * GA_SLAB_ROW_WORDS, 0);
    s.counts.assign((size_t)GA_SLAB_ROW_WORDS << GA_SLAB_SPREAD, 0);
    for (uint32_t i = 0; i < HEAP_BLOCKS; i++) {
        s.counts[ga_slab_count_index(GA_SLAB_SPREAD, i)] = GA_SLAB_BLOCK_UNITS;
    }
    if (is_tight) { /* all others are taken */
        uint32_t word = (uint32_t)draw(s.bitmaps.size());
        s.bitmaps.assign(s.bitmaps.size(), GA_ALL_BITS);
        s.bitmaps[word] = 0;
        s.counts.assign(s.counts.size(), 0);
        s.counts[ga_slab_count_index(GA_SLAB_SPREAD, word / GA_SLAB_ROW_WORDS)] = 32;
    }
    s.heap.reset(new ga_slab_heap());
    s.heap->rows = s.bitmaps.data();
    s.heap->units = (char *)s.units.data();
    s.heap->unit = sizeof(slab);
    s.heap->shift = 7;
    s.heap->free = s.counts.data();
    s.heap->spread = GA_SLAB_SPREAD;
    s.heap->super_count = 1;
    s.heap->words = HEAP_BLOCKS * GA_SLAB_ROW_WORDS;
}

/* Buckets of shards differ in number, as those of tables that grow. */
void open_shard(world &w, shard &s, uint64_t a, uint64_t b)
{
    uint32_t path = draw(3) ? 1u + (uint32_t)draw(4) : 1u;
    open_heap(s, w.is_tight);
    s.buckets.resize(path + draw(20));
    memset((void *)s.buckets.data(), 0xff, s.buckets.size() * sizeof(slab));
    s.view = ga_slabhash_view{};
    s.view.rows = s.buckets[0].words;
    s.view.heap = s.heap.get();
    s.view.buckets = (uint32_t)s.buckets.size();
    s.view.path = path;
    s.view.stride_max = s.view.buckets / path;
    s.view.kind = w.kind;
    s.view.a = a;
    s.view.b = b;
    s.view.ordered = &w.ordered;
    s.view.exceeds_l2 = GA_SLABHASH_BEHIND_LINK;
}

void open_member(world &w, uint32_t rank)
{
    member &m = w.members[rank];
    m.views.clear();
    m.copies.clear();
    for (uint32_t i = 0; i < w.ranks; i++) {
        m.views.push_back(w.shards[i].view);
        m.copies.emplace_back(new ga_slab_heap(*w.shards[i].heap));
        if (i != rank) {
            m.views[i].heap = m.copies[i].get();
        }
    }
    m.peers = ga_slabhash_peers_view{};
    m.peers.shards = m.views.data();
    m.peers.division.a = w.shards[0].view.a;
    m.peers.division.b = w.shards[0].view.b;
    m.peers.division.ranks = w.ranks;
    m.peers.rank = rank;
    m.peers.kind = w.kind;
    m.peers.may_change = 1;
}

/* ---- requests -------------------------------------------------------------------------------- */

struct request {
    uint64_t key, value;
    uint32_t op;
    ga_slabhash_answer answer;
};

struct load {
    const world *in;
    std::vector<request> of[RANKS];
};

/* Block i is rank i modulo the number of ranks, and shares the requests with its others. */
template <uint32_t kind> void serve(load &all)
{
    const world &w = *all.in;
    uint32_t rank = blockIdx.x % w.ranks, part = blockIdx.x / w.ranks, parts = gridDim.x / w.ranks;
    std::vector<request> &requests = all.of[rank];
    ga_slabhash_peers_session session = ga_slabhash_peers_begin(w.members[rank].peers);
    for (uint64_t first = part * THREADS; first < requests.size(); first += parts * THREADS) {
        uint64_t i = first + threadIdx.x;
        bool asks = i < requests.size();
        request to = asks ? requests[i] : request{};
        ga_slabhash_answer a = ga_slabhash_peers_lanes<kind, GA_SLABHASH_OP_COUNT, true>(
            &session, asks, to.op, to.key, to.value, GA_SLABHASH_ADD);
        if (asks) {
            requests[i].answer = a;
        }
    }
    ga_slabhash_peers_end(&session);
}

void run(world &w, load &all)
{
    static load *current;
    current = &all;
    all.in = &w;
    emulated_kernel kernel = {"serve", NULL, NULL, w.ranks * 2u, THREADS, 0};
    switch (w.kind) {
    case GA_SLABHASH_KIND(GA_SLABHASH_SET32, false):
        kernel.run = [](const emulated_kernel *) { serve<0u>(*current); };
        break;
    case GA_SLABHASH_KIND(GA_SLABHASH_MAP32, false):
        kernel.run = [](const emulated_kernel *) { serve<1u>(*current); };
        break;
    case GA_SLABHASH_KIND(GA_SLABHASH_MAP64, false):
        kernel.run = [](const emulated_kernel *) { serve<2u>(*current); };
        break;
    default:
        kernel.run = [](const emulated_kernel *) { serve<5u>(*current); };
    }
    emulated_run(&kernel);
}

/* ---- the shards as they are ------------------------------------------------------------------ */

uint64_t word64(const slab &s, uint32_t at)
{
    return s.words[at] | (uint64_t)s.words[at + 1] << 32;
}

/* Adds the pairs of a slab. */
void add_pairs(const world &w, const slab &s, std::multimap<uint64_t, uint64_t> *pairs)
{
    uint32_t mode = GA_SLABHASH_MODE(w.kind);
    uint32_t width = ga_slabhash_slot_words(w.kind), end = ga_slabhash_slots_end(w.kind);
    for (uint32_t at = 0; at < end; at += width) {
        uint64_t key = mode == GA_SLABHASH_MAP64 ? word64(s, at) : s.words[at];
        uint64_t value = mode == GA_SLABHASH_SET32   ? 0
                         : mode == GA_SLABHASH_MAP32 ? s.words[at + 1]
                                                     : word64(s, at + 2);
        if (key <= ga_slabhash_key_max(w.kind) && ga_slabhash_is_set(w.kind, value)) {
            pairs->emplace(key, value);
        }
    }
}

/* The pairs of a shard. All are of its rank, and a slab is taken if and only if it is linked. */
std::multimap<uint64_t, uint64_t> pairs_of(const world &w, uint32_t rank)
{
    const shard &s = w.shards[rank];
    std::multimap<uint64_t, uint64_t> pairs;
    std::set<uint32_t> linked;
    for (const slab &bucket : s.buckets) {
        add_pairs(w, bucket, &pairs);
        for (uint32_t unit = bucket.words[GA_SLABHASH_NEXT]; unit != GA_SLABHASH_NO_SLAB;
             unit = s.units[unit].words[GA_SLABHASH_NEXT]) {
            if (unit >= s.units.size() || !linked.insert(unit).second ||
                !(s.bitmaps[unit / 32] >> unit % 32 & 1)) {
                fail(w.seed, "a slab is free, or linked twice", unit);
            }
            add_pairs(w, s.units[unit], &pairs);
        }
    }
    size_t taken = 0;
    for (uint32_t word : s.bitmaps) {
        taken += ga_bits_count(word);
    }
    taken -= w.is_tight ? s.units.size() - 32 : 0;
    if (taken != linked.size()) {
        fail(w.seed, "slabs are lost", taken - linked.size());
    }
    for (const auto &pair : pairs) {
        if (ga_slabhash_peers_owner(w.members[0].peers, pair.first) != rank) {
            fail(w.seed, "a key is in another rank's shard", pair.first);
        }
    }
    return pairs;
}

std::multimap<uint64_t, uint64_t> all_pairs(const world &w)
{
    std::multimap<uint64_t, uint64_t> all;
    for (uint32_t i = 0; i < w.ranks; i++) {
        auto pairs = pairs_of(w, i);
        all.insert(pairs.begin(), pairs.end());
    }
    return all;
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Values that follow from the key, so that any rank may insert it. */
uint64_t value_of(const world &w, uint64_t key)
{
    return GA_SLABHASH_MODE(w.kind) == GA_SLABHASH_SET32   ? 0
           : GA_SLABHASH_MODE(w.kind) == GA_SLABHASH_MAP32 ? (uint32_t)key * 5u
                                                           : key * 5u << 20 >> 1;
}

/* Requests of one operation on keys of a common range. */
void fill(const world &w, load &all, uint32_t op, const std::vector<uint64_t> &keys)
{
    for (uint32_t i = 0; i < w.ranks; i++) {
        all.of[i].clear();
        for (uint64_t j = draw(REQUESTS) + 1; j; j--) {
            uint64_t key = keys[draw(keys.size())];
            all.of[i].push_back(request{key, value_of(w, key), op, {}});
        }
    }
}

/* Insertions: of a unique key exactly one finds it absent. */
void try_inserts(world &w, load &all, const std::vector<uint64_t> &keys)
{
    auto before = all_pairs(w);
    std::map<uint64_t, uint64_t> inserted, asked, full;
    fill(w, all, GA_SLABHASH_INSERT, keys);
    run(w, all);
    for (uint32_t i = 0; i < w.ranks; i++) {
        for (const request &r : all.of[i]) {
            asked[r.key]++;
            inserted[r.key] += r.answer.result == GA_SLABHASH_ABSENT;
            full[r.key] += r.answer.result == GA_SLABHASH_FULL;
            if (r.answer.result > (w.is_tight ? GA_SLABHASH_FULL : GA_SLABHASH_FOUND) ||
                (r.answer.result == GA_SLABHASH_FOUND && r.answer.value != r.value)) {
                fail(w.seed, "an insert has a wrong answer", r.key);
            }
        }
    }
    auto pairs = all_pairs(w);
    for (const auto &key : asked) {
        uint64_t there = before.count(key.first);
        uint64_t expected = GA_SLABHASH_IS_MULTI(w.kind)              ? key.second - full[key.first]
                            : full[key.first] && !inserted[key.first] ? 0
                                                                      : 1 - there;
        if (inserted[key.first] != expected || pairs.count(key.first) != there + expected) {
            fail(w.seed, "a key was not inserted as often as it should be", key.first);
        }
    }
}

void try_searches(world &w, load &all, const std::vector<uint64_t> &keys)
{
    auto pairs = all_pairs(w);
    fill(w, all, GA_SLABHASH_SEARCH, keys);
    run(w, all);
    for (uint32_t i = 0; i < w.ranks; i++) {
        for (const request &r : all.of[i]) {
            bool is = pairs.count(r.key);
            if (r.answer.result != (is ? GA_SLABHASH_FOUND : GA_SLABHASH_ABSENT) ||
                (is && r.answer.value != r.value)) {
                fail(w.seed, "a search has a wrong answer", r.key);
            }
        }
    }
}

/* Additions of all ranks to values: none is lost. */
void try_additions(world &w, load &all, const std::vector<uint64_t> &keys)
{
    auto pairs = all_pairs(w);
    fill(w, all, GA_SLABHASH_APPLY, keys);
    std::map<uint64_t, uint64_t> sums(pairs.begin(), pairs.end());
    for (uint32_t i = 0; i < w.ranks; i++) {
        for (request &r : all.of[i]) {
            r.value = 1 + draw(9);
            sums[r.key] += r.value;
        }
    }
    run(w, all);
    for (const auto &pair : all_pairs(w)) {
        if (pair.second != (GA_SLABHASH_MODE(w.kind) == GA_SLABHASH_MAP32
                                ? (uint32_t)sums[pair.first]
                                : sums[pair.first])) {
            fail(w.seed, "an addition is lost", pair.first);
        }
        sums.erase(pair.first);
    }
    if (!sums.empty()) {
        fail(w.seed, "a key is missing", sums.begin()->first);
    }
}

/* Deletions: as many find a key as there were pairs of it. */
void try_deletions(world &w, load &all, const std::vector<uint64_t> &keys)
{
    auto pairs = all_pairs(w);
    std::map<uint64_t, uint64_t> found, asked;
    fill(w, all, GA_SLABHASH_DELETE, keys);
    run(w, all);
    auto left = all_pairs(w);
    for (uint32_t i = 0; i < w.ranks; i++) {
        for (const request &r : all.of[i]) {
            asked[r.key]++;
            found[r.key] += r.answer.result == GA_SLABHASH_FOUND;
        }
    }
    for (const auto &key : asked) {
        uint64_t before = pairs.count(key.first);
        uint64_t expected = key.second < before ? key.second : before;
        if (found[key.first] != expected || left.count(key.first) != before - expected) {
            fail(w.seed, "a key was not deleted as often as it should be", key.first);
        }
    }
}

void try_one(uint64_t seed)
{
    static const uint32_t kinds[] = {0, 1, 2, 5};
    world w = {};
    load all;
    state = seed;
    emulated.seed = seed;
    emulated.order = (emulated_order)draw(EMULATED_ORDERS);
    emulated.seconds = 60;
    w.seed = seed;
    w.kind = kinds[draw(4)];
    w.ranks = 1 + (uint32_t)draw(RANKS);
    w.is_tight = draw(4) == 0;
    w.ordered = GA_SLABHASH_IS_MULTI(w.kind) ? 0 : (uint32_t)draw(2);
    uint64_t a = draw(GA_SLABHASH_PRIME - 1) * 8 + 8, b = draw(GA_SLABHASH_PRIME);
    for (uint32_t i = 0; i < w.ranks; i++) {
        open_shard(w, w.shards[i], a, b);
    }
    for (uint32_t i = 0; i < w.ranks; i++) {
        open_member(w, i);
    }
    std::vector<uint64_t> keys;
    for (uint64_t i = 1 + draw(draw(2) ? 2000 : 20); i; i--) {
        keys.push_back(
            draw(GA_SLABHASH_MODE(w.kind) == GA_SLABHASH_MAP64 ? UINT64_MAX >> 3 : UINT32_MAX - 2));
    }
    try_searches(w, all, keys);
    try_inserts(w, all, keys);
    try_searches(w, all, keys);
    if (!w.is_tight && !GA_SLABHASH_IS_MULTI(w.kind) &&
        GA_SLABHASH_MODE(w.kind) != GA_SLABHASH_SET32 && draw(2)) {
        try_additions(w, all, keys);
        return; /* values do not follow from keys any more */
    }
    try_deletions(w, all, keys);
    try_searches(w, all, keys);
    try_inserts(w, all, keys);
    try_searches(w, all, keys);
}

} // namespace

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    time_t until = time(NULL) + (argc > 2 ? atoi(argv[2]) : 8);
    uint64_t done = 0;
    do {
        try_one(seed + done++);
    } while (time(NULL) < until);
    printf("%llu tables\n", (unsigned long long)done);
    return 0;
}
