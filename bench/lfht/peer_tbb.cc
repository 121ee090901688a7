/* SPDX-License-Identifier: MIT
 *
 * TBB's concurrent_hash_map, whose elements have locks. Its concurrent_unordered_map is not here:
 * it cannot remove beside other calls.
 */
#include "subject.h"

#include <gpualloc/backend.h>

#include <new>
#include <oneapi/tbb/concurrent_hash_map.h>

namespace
{

struct spread {
    size_t hash(uint64_t key) const
    {
        return ga_bench_hash(key);
    }
    bool equal(uint64_t a, uint64_t b) const
    {
        return a == b;
    }
};

using map_type = tbb::concurrent_hash_map<uint64_t, uint64_t, spread>;

void *open_map(const ga_bench_subject *self, ga_heap *, const ga_bench_shape *, uint64_t)
{
    map_type *map = new (std::nothrow) map_type;
    if (!map) {
        ga_fail(GA_ERR_MEMORY, "%s: no memory for a map", self->name);
    }
    return map;
}

void close_map(void *map)
{
    delete static_cast<map_type *>(map);
}

bool insert(void *map, uint64_t key)
{
    return static_cast<map_type *>(map)->insert({key, key});
}

bool remove(void *map, uint64_t key)
{
    return static_cast<map_type *>(map)->erase(key);
}

bool lookup(void *map, uint64_t key)
{
    map_type::const_accessor found;
    return static_cast<map_type *>(map)->find(found, key) && found->second == key;
}

const ga_bench_subject tbb_maps[] = {{"tbb", false, open_map, close_map, nullptr, nullptr, insert,
                                      remove, lookup, nullptr, nullptr, 0}};

} // namespace

extern "C" const ga_bench_peers ga_bench_peers_tbb = {tbb_maps, 1};
