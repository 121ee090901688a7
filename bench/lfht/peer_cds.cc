/* SPDX-License-Identifier: MIT
 *
 * libcds: Feldman's multi-level array trie, with hazard pointers, and Michael's hash table, which
 * has its size from the start.
 */
#include "subject.h"

#include <gpualloc/backend.h>

/* Which first: hazard pointers before the containers that use them. */
#include <cds/gc/hp.h>
#include <cds/init.h>

#include <cds/container/feldman_hashmap_hp.h>
#include <cds/container/michael_kvlist_hp.h>
#include <cds/container/michael_map.h>

namespace
{

enum {
    HAZARDS = 16,
    THREADS = 1100
};

struct spread {
    size_t operator()(uint64_t key) const
    {
        return ga_bench_hash(key);
    }
};

struct feldman_traits : cds::container::feldman_hashmap::traits {
    typedef spread hash;
};
typedef cds::container::FeldmanHashMap<cds::gc::HP, uint64_t, uint64_t, feldman_traits> feldman;

struct list_traits : cds::container::michael_list::traits {
    typedef std::less<uint64_t> less;
};
struct table_traits : cds::container::michael_map::traits {
    typedef spread hash;
};
typedef cds::container::MichaelKVList<cds::gc::HP, uint64_t, uint64_t, list_traits> chain;
typedef cds::container::MichaelHashMap<cds::gc::HP, chain, table_traits> table;

/* Hazard pointers are the process's: each measurement has a process of its own. */
void begin()
{
    cds::Initialize();
    new cds::gc::HP(HAZARDS, THREADS); // the process's from now on
    cds::threading::Manager::attachThread();
}

void *open_feldman(const ga_bench_subject *, ga_heap *, const ga_bench_shape *, uint64_t)
{
    begin();
    return new feldman(8, 4);
}

void *open_table(const ga_bench_subject *, ga_heap *, const ga_bench_shape *, uint64_t keys)
{
    begin();
    return new table(keys, 1);
}

template <class map_type> void close_map(void *map)
{
    delete static_cast<map_type *>(map);
    cds::threading::Manager::detachThread();
}

void enter()
{
    cds::threading::Manager::attachThread();
}

void leave()
{
    cds::threading::Manager::detachThread();
}

template <class map_type> bool insert(void *map, uint64_t key)
{
    return static_cast<map_type *>(map)->insert(key, key);
}

template <class map_type> bool remove(void *map, uint64_t key)
{
    return static_cast<map_type *>(map)->erase(key);
}

template <class map_type> bool lookup(void *map, uint64_t key)
{
    uint64_t value = ~key;
    return static_cast<map_type *>(map)->find(key, [&](typename map_type::value_type &pair) {
        value = pair.second;
    }) && value == key;
}

void drain(void *)
{
    cds::gc::HP::force_dispose();
}

template <class map_type>
constexpr ga_bench_subject subject(const char *name,
                                   void *(*open)(const ga_bench_subject *, ga_heap *,
                                                 const ga_bench_shape *, uint64_t))
{
    return {name,
            false,
            open,
            close_map<map_type>,
            enter,
            leave,
            insert<map_type>,
            remove<map_type>,
            lookup<map_type>,
            drain,
            nullptr,
            0};
}

const ga_bench_subject cds_maps[] = {subject<feldman>("cds-feldman", open_feldman),
                                     subject<table>("cds-michael-presized", open_table)};

} // namespace

extern "C" const ga_bench_peers ga_bench_peers_cds = {cds_maps, 2};
