/* SPDX-License-Identifier: MIT
 *
 * cuCollections' static_map with its default hash function and probing. Builds and searches are its
 * own bulk operations; operations of several kinds in one launch go through its device references.
 */
#include "peer_cuco.cuh"

#include <cuda/std/functional>
#include <cuda/version>

#if CCCL_MAJOR_VERSION >= 3
/* CCCL 3 has removed it, and cuCollections of October 2024 uses it. */
namespace thrust
{
template <class T = void> struct identity : cuda::std::identity {
};
} // namespace thrust
#endif

#include <cuco/static_map.cuh>

namespace
{

enum {
    BLOCK = 128 /* threads, as in the bulk operations */
};

using pair = cuco::pair<uint32_t, uint32_t>;

template <uint32_t LANES>
using map_of =
    cuco::static_map<uint32_t, uint32_t, cuco::extent<std::size_t>, cuda::thread_scope_device,
                     thrust::equal_to<uint32_t>,
                     cuco::linear_probing<(int32_t)LANES, cuco::default_hash_function<uint32_t>>>;

static_assert(std::is_same_v<map_of<4>, cuco::static_map<uint32_t, uint32_t>>);
static_assert(sizeof(pair) == sizeof(uint64_t));

/* One operation of a batch; `tile` is empty or the group of the operation's lanes. The result is
 * the same in all of these. */
template <class REF, class... TILE>
__device__ __forceinline__ uint32_t perform(REF &map, const ga_slabhash_batch &batch, uint64_t i,
                                            uint32_t *value, const TILE &...tile)
{
    const uint32_t key = ((const uint32_t *)batch.keys)[i], op = batch.ops[i];
    if (op == GA_SLABHASH_INSERT) {
        bool is_new = map.insert(tile..., pair{key, ((const uint32_t *)batch.values)[i]});
        return is_new ? GA_SLABHASH_ABSENT : GA_SLABHASH_FOUND;
    }
    if (op == GA_SLABHASH_DELETE) {
        return map.erase(tile..., key) ? GA_SLABHASH_FOUND : GA_SLABHASH_ABSENT;
    }
    auto slot = map.find(tile..., key);
    if (slot == map.end()) {
        return GA_SLABHASH_ABSENT;
    }
    *value = slot->second;
    return GA_SLABHASH_FOUND;
}

template <class REF>
__global__ void __launch_bounds__(BLOCK) run_batch(REF map, ga_slabhash_batch batch)
{
    const uint32_t lanes = REF::cg_size;
    const uint64_t i = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) / lanes;
    if (i >= batch.count) {
        return;
    }
    uint32_t value = 0, result;
    if constexpr (lanes == 1) {
        result = perform(map, batch, i, &value);
    } else {
        auto block = cooperative_groups::this_thread_block();
        result = perform(map, batch, i, &value, cooperative_groups::tiled_partition<lanes>(block));
    }
    if (threadIdx.x % lanes == 0) {
        batch.results[i] = (uint8_t)result;
        ((uint32_t *)batch.found)[i] = value;
    }
}

template <uint32_t LANES> struct opened : cuco_map {
    map_of<LANES> map;

    explicit opened(uint64_t slots)
        : map(cuco::extent<std::size_t>{slots}, cuco::empty_key<uint32_t>{UINT32_MAX},
              cuco::empty_value<uint32_t>{0}, cuco::erased_key<uint32_t>{UINT32_MAX - 1})
    {
    }
    uint64_t slots() const override
    {
        return map.capacity();
    }
    void clear() override
    {
        map.clear_async();
    }
    void insert(const uint64_t *pairs, uint64_t n) override
    {
        const pair *first = reinterpret_cast<const pair *>(pairs);
        map.insert_async(first, first + n);
    }
    void search(const uint32_t *keys, uint64_t n, uint32_t *found) override
    {
        map.find_async(keys, keys + n, found);
    }
    void run(const ga_slabhash_batch &batch) override
    {
        run_batch<<<(unsigned)((batch.count * LANES + BLOCK - 1) / BLOCK), BLOCK>>>(
            map.ref(cuco::op::insert, cuco::op::erase, cuco::op::find), batch);
    }
    uint64_t count() const override
    {
        return map.size();
    }
};

} // namespace

std::unique_ptr<cuco_map> cuco_open(uint32_t lanes, uint64_t slots)
{
    if (lanes == 1) {
        return std::make_unique<opened<1>>(slots);
    }
    return std::make_unique<opened<4>>(slots);
}

uint32_t cuco_cccl_version()
{
    return CCCL_VERSION;
}
