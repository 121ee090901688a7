/* SPDX-License-Identifier: MIT
 *
 * Slab hashes that grow while kernels run, on GPUs: one kernel that inserts millions of pairs,
 * beginning with few buckets, searches and deletes at the same time, tables that shrink and are
 * compacted, histories that must be linearizable, two kernels at once, and lack of memory in the
 * middle. Options and exit statuses as in slabhash_tests.cu.
 */
#define GA_SLABHASH_GROWING_KINDS
static const char *arrays_there = "slab/vmm"; /* the heap that kernels have arrays from */
#define GA_SLABHASH_ARRAYS arrays_there
#include <gpualloc/slabhash.cuh>

#include "slabhash_suite.h"

enum {
    GROWS = GA_SLABHASH_GROW_IN_KERNELS,
    MAP32 = GA_SLABHASH_MAP32 | GA_SLABHASH_GROWING,
    MAP64 = GA_SLABHASH_MAP64 | GA_SLABHASH_GROWING
};

static ga_slabhash_growth growth_of(ga_slabhash_device *table)
{
    ga_slabhash_growth growth = {};
    OK(ga_slabhash_device_growth(table, &growth, 0));
    return growth;
}

/* ---- batches -------------------------------------------------------------------------------- */

static void batches(int device)
{
    const subject subjects[] = {
        {narrow_key, GA_SLABHASH_SET32, GROWS, 16, 1},
        {narrow_key, GA_SLABHASH_MAP32, GROWS, 1, 1},
        {narrow_key, GA_SLABHASH_MAP32, GROWS, 1000, 1},
        {wide_key, GA_SLABHASH_MAP64, GROWS, 16, 1},
        {narrow_key, GA_SLABHASH_SET32, GROWS | GA_SLABHASH_MULTI, 9, 1},
        {narrow_key, GA_SLABHASH_MAP32, GROWS | GA_SLABHASH_MULTI, 16, 1},
        {wide_key, GA_SLABHASH_MAP64, GROWS | GA_SLABHASH_MULTI, 16, 1},
    };
    for (const subject &s : subjects) {
        one_subject(device, s);
    }
}

static void all_pairs_of_keys(int device)
{
    for (uint32_t multi = 0; multi < 2; multi++) {
        all_of_each<uint32_t>(device, GA_SLABHASH_SET32, GROWS | multi);
        all_of_each<uint32_t>(device, GA_SLABHASH_MAP32, GROWS | multi);
        all_of_each<uint64_t>(device, GA_SLABHASH_MAP64, GROWS | multi);
    }
}

/* ---- one kernel ----------------------------------------------------------------------------- */

/* Pairs from key `first` on, a lane each; how many did not go in, and how many were there. */
template <uint32_t kind>
static __global__ void put_kernel(ga_slabhash_view table, uint32_t first, uint32_t n,
                                  uint32_t *wrong)
{
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t key = first + i;
    ga_slabhash_answer answer =
        ga_slabhash_lanes<kind>(&session, i < n, GA_SLABHASH_INSERT, key, key ^ 0x5555u);
    if (i < n && answer.result != GA_SLABHASH_ABSENT) {
        atomicAdd(wrong + (answer.result == GA_SLABHASH_FOUND), 1u);
    }
    ga_slabhash_session_end(&session);
}

/* The number of these keys that are absent or have wrong values. */
template <uint32_t kind>
static __global__ void find_kernel(ga_slabhash_view table, uint32_t n, uint32_t *wrong)
{
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    ga_slabhash_answer answer = ga_slabhash_lanes<kind>(&session, i < n, GA_SLABHASH_SEARCH, i, 0);
    if (i < n && (answer.result != GA_SLABHASH_FOUND || answer.value != (i ^ 0x5555u))) {
        atomicAdd(wrong, 1u);
    }
    ga_slabhash_session_end(&session);
}

template <uint32_t kind> static void one_kernel_of(int device, ga_slabhash_mode mode, uint32_t n)
{
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(mode, GROWS, 1024, 1);
    device_array<uint32_t> wrong(2);
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    put_kernel<kind><<<(n + 127) / 128, 128>>>(table.view, 0, n, wrong.data);
    CUDA_DONE(cudaGetLastError());
    find_kernel<kind><<<(n + 127) / 128, 128>>>(table.view, n, wrong.data); /* by itself */
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what did not go in, or was not found", wrong.read()[0], 0);
    EXPECT_EQUAL("what was there before", wrong.read()[1], 0);
    ga_slabhash_growth growth = growth_of(&table);
    EXPECT(growth.arrays + growth.gone > 1);
    EXPECT_EQUAL("arrays that were refused", growth.refused, 0);
    uint64_t places = (uint64_t)growth.buckets * (mode == GA_SLABHASH_MAP64 ? 7 : 15);
    EXPECT(places > n / 2 && places < 16 * (uint64_t)n);
    expect_size(&table, n);
    EXPECT_EQUAL("the buckets", table.view.buckets, growth.buckets);
    put_kernel<kind><<<(n + 127) / 128, 128>>>(table.view, 0, n, wrong.data);
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what is there already", wrong.read()[1], n);
    expect_size(&table, n);
    OK(ga_slabhash_device_clear(&table, 0));
    expect_size(&table, 0);
    EXPECT_EQUAL("arrays of a table that was cleared", growth_of(&table).arrays, 1);
    OK(ga_slabhash_device_close(&table));
}

static void one_kernel(int device)
{
    uint32_t n = suite.quick ? 1u << 15 : 1u << 22;
    one_kernel_of<MAP32>(device, GA_SLABHASH_MAP32, n);
    one_kernel_of<MAP64>(device, GA_SLABHASH_MAP64, n / 4);
}

/* Kernel after kernel, in a table that the host does not read in between. */
static void many_kernels(int device)
{
    uint32_t each = suite.quick ? 1000 : 20000, kernels = suite.quick ? 8 : 100;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, GROWS, 4, 1);
    device_array<uint32_t> wrong(2);
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    for (uint32_t k = 0; k < kernels; k++) {
        put_kernel<MAP32><<<(each + 127) / 128, 128>>>(table.view, k * each, each, wrong.data);
        uint32_t n = (k + 1) * each;
        find_kernel<MAP32><<<(n + 127) / 128, 128>>>(table.view, n, wrong.data);
    }
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what did not go in, or was not found", wrong.read()[0], 0);
    expect_size(&table, each * kernels);
    ga_slabhash_growth growth = growth_of(&table);
    EXPECT(growth.arrays + growth.gone > 3);
    EXPECT(growth.gone > 0); /* kernels have freed older arrays */
    OK(ga_slabhash_device_flush(&table, 0));
    EXPECT_EQUAL("arrays after a flush", growth_of(&table).arrays, 1);
    find_kernel<MAP32>
        <<<(each * kernels + 127) / 128, 128>>>(table.view, each * kernels, wrong.data);
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what was not found after a flush", wrong.read()[0], 0);
    OK(ga_slabhash_device_close(&table));
}

/* One kernel of tiles that insert many keys each: old arrays are freed while it runs, with their
 * slabs, and at the end there is one array. */
static __global__ void long_kernel(ga_slabhash_view table, uint32_t n, uint32_t *wrong)
{
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    uint32_t step = gridDim.x * blockDim.x;
    for (uint32_t first = blockIdx.x * blockDim.x; first < n; first += step) {
        uint32_t i = first + threadIdx.x;
        ga_slabhash_answer answer = ga_slabhash_lanes<MAP32, GA_SLABHASH_INSERT>(
            &session, i < n, GA_SLABHASH_INSERT, i, i ^ 0x5555u);
        if (i < n && answer.result != GA_SLABHASH_ABSENT) {
            atomicAdd(wrong, 1u);
        }
    }
    ga_slabhash_growing *growing = table.growing;
    if (blockIdx.x == 0 && threadIdx.x == 0) {                  /* while it still runs */
        atomicExch(wrong + 1, ga_load_relaxed(&growing->gone)); /* relaxed: a figure */
    }
    ga_slabhash_session_end(&session);
}

static void given_back(int device)
{
    uint32_t n = suite.quick ? 1u << 18 : 1u << 23;
    ga_heap *slabs = NULL;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, GROWS, 64, 1);
    ga_slabhash_census census = {};
    device_array<uint32_t> wrong(2);
    REQUIRE(ga_heap_open(&slabs, GA_PLACE_KERNEL, device,
                         "slab:unit=128,addressing=light,capacity=256M/cuda") == GA_OK);
    options.heap = slabs;
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    long_kernel<<<64, 128>>>(table.view, n, wrong.data);
    CUDA_DONE(cudaGetLastError());
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what did not go in", wrong.read()[0], 0);
    EXPECT(wrong.read()[1] > 0);
    ga_slabhash_growth growth = growth_of(&table);
    for (uint32_t i = 0; i < 1000 && growth.arrays > 1; i++) { /* each call ends a part of it */
        growth = growth_of(&table);
    }
    EXPECT_EQUAL("arrays that are held", growth.arrays, 1);
    find_kernel<MAP32><<<(n + 127) / 128, 128>>>(table.view, n, wrong.data);
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what was not found", wrong.read()[0], 0);
    OK(ga_slabhash_device_count(&table, &census, 0));
    EXPECT_EQUAL("keys", census.live, n);
    EXPECT_EQUAL("slabs that are taken", live_of(slabs), census.chained);
    OK(ga_slabhash_device_close(&table));
    EXPECT_EQUAL("slabs that are still taken", live_of(slabs), 0);
    OK(ga_heap_close(slabs));
}

#include "slabhash_growing_less.h"

/* ---- two kernels ----------------------------------------------------------------------------- */

/* Two streams insert the same keys at once, each from its end: each key is inserted once. */
static __global__ void shared_kernel(ga_slabhash_view table, uint32_t n, bool backwards,
                                     uint32_t *counts)
{
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    for (uint32_t first = blockIdx.x * blockDim.x; first < n; first += gridDim.x * blockDim.x) {
        uint32_t i = first + threadIdx.x;
        uint32_t key = backwards ? n - 1 - i : i;
        ga_slabhash_answer answer =
            ga_slabhash_lanes<MAP32>(&session, i < n, GA_SLABHASH_INSERT, key, key ^ 0x5555u);
        if (i < n) {
            atomicAdd(counts + answer.result, 1u);
        }
    }
    ga_slabhash_session_end(&session);
}

static void two_kernels(int device)
{
    uint32_t n = suite.quick ? 20000 : 1u << 21;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, GROWS, 64, 1);
    device_array<uint32_t> counts(4), wrong(1);
    cudaStream_t streams[2] = {};
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    CUDA_DONE(cudaDeviceSynchronize());
    for (int i = 0; i < 2; i++) {
        CUDA_DONE(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    }
    for (int i = 0; i < 2; i++) {
        shared_kernel<<<64, 128, 0, streams[i]>>>(table.view, n, i == 1, counts.data);
    }
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what went in", counts.read()[GA_SLABHASH_ABSENT], n);
    EXPECT_EQUAL("what was there", counts.read()[GA_SLABHASH_FOUND], n);
    find_kernel<MAP32><<<(n + 127) / 128, 128>>>(table.view, n, wrong.data);
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what was not found", wrong.read()[0], 0);
    expect_size(&table, n);
    for (int i = 0; i < 2; i++) {
        cudaStreamDestroy(streams[i]);
    }
    OK(ga_slabhash_device_close(&table));
}

/* ---- operations beside growth ---------------------------------------------------------------- */

/* Every fourth block inserts keys; the others search for `stay` keys, which are there, and for
 * absent ones; and delete one of `go` keys each, which is there. */
static __global__ void beside_kernel(ga_slabhash_view table, uint32_t stay, uint32_t go, uint32_t n,
                                     uint32_t *wrong)
{
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    uint32_t block = blockIdx.x / 4, role = blockIdx.x % 4;
    uint32_t i = block * blockDim.x + threadIdx.x;
    uint32_t key = role == 0 ? stay + go + i : role == 1 ? i % stay : role == 2 ? stay + i : i;
    bool asks = role == 0 ? i < n : role == 1 || (role == 2 && i < go) || role == 3;
    uint32_t op = role == 0   ? GA_SLABHASH_INSERT
                  : role == 2 ? GA_SLABHASH_DELETE
                              : GA_SLABHASH_SEARCH;
    key += role == 3 ? stay + go + n : 0;
    ga_slabhash_answer answer = ga_slabhash_lanes<MAP32>(&session, asks, op, key, key ^ 0x5555u);
    bool right = role == 0 || role == 3
                     ? answer.result == GA_SLABHASH_ABSENT
                     : answer.result == GA_SLABHASH_FOUND && answer.value == (key ^ 0x5555u);
    if (asks && !right) {
        atomicAdd(wrong + role, 1u);
    }
    ga_slabhash_session_end(&session);
}

static void beside(int device)
{
    uint32_t stay = 4000, go = suite.quick ? 4000 : 200000, n = suite.quick ? 8000 : 1000000;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, GROWS, 1024, 1);
    device_array<uint32_t> wrong(4);
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    put_kernel<MAP32><<<(stay + go + 127) / 128, 128>>>(table.view, 0, stay + go, wrong.data);
    beside_kernel<<<(n + 127) / 128 * 4, 128>>>(table.view, stay, go, n, wrong.data);
    CUDA_DONE(cudaGetLastError());
    CUDA_DONE(cudaDeviceSynchronize());
    std::vector<uint32_t> counts = wrong.read();
    EXPECT_EQUAL("keys that did not go in", counts[0], 0);
    EXPECT_EQUAL("keys that stay and were not found", counts[1], 0);
    EXPECT_EQUAL("keys that could not be taken out", counts[2], 0);
    EXPECT_EQUAL("keys that were found and are nowhere", counts[3], 0);
    expect_size(&table, stay + n);
    OK(ga_slabhash_device_close(&table));
}

/* Each history is TILES blocks, of one tile each, which meet at its gate and then call; one more
 * block inserts keys of its own, so that the table grows. */
template <uint32_t kind>
static __global__ void history_kernel(ga_slabhash_view table, slabhash_record *records,
                                      uint32_t *gates, uint64_t *clock, uint32_t others)
{
    uint32_t history = blockIdx.x / (TILES + 1), tile = blockIdx.x % (TILES + 1);
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    for (uint32_t i = 0; tile == TILES && i < 64; i++) {
        (void)ga_slabhash_tile<kind>(&session, GA_SLABHASH_INSERT, others + history * 64 + i, 1);
    }
    if (tile < TILES) {
        meet(session.tile, gates + history);
        make_calls<kind>(&session, records + ((size_t)history * TILES + tile) * CALLS, clock);
    }
    ga_slabhash_session_end(&session);
}

template <uint32_t kind> static void histories_of(int device, ga_slabhash_mode mode, uint32_t n)
{
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(mode, GROWS, 4, 1);
    device_array<slabhash_record> there(calls_of(n));
    device_array<uint32_t> gates(n);
    device_array<uint64_t> clock(1);
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    history_kernel<kind><<<n *(TILES + 1), GA_SLABHASH_TILE>>>(table.view, there.data, gates.data,
                                                               clock.data, n * KEYS);
    CUDA_DONE(cudaGetLastError());
    CUDA_DONE(cudaDeviceSynchronize());
    expect_linearizable(there.read(), n);
    EXPECT(growth_of(&table).arrays + growth_of(&table).gone > 2);
    OK(ga_slabhash_device_close(&table));
}

static void histories(int device)
{
    uint32_t n = suite.quick ? 200 : 20000;
    EXPECT(!slabhash_try_checker());
    histories_of<MAP32>(device, GA_SLABHASH_MAP32, n);
    histories_of<MAP64>(device, GA_SLABHASH_MAP64, n);
}

/* --operations N: N in all. */
static void books(int device)
{
    keep_books<MAP32>(device, GA_SLABHASH_MAP32, GROWS, book_operations() / 2);
    keep_books<MAP64>(device, GA_SLABHASH_MAP64, GROWS, book_operations() / 2);
}

/* ---- memory that ends ------------------------------------------------------------------------ */

/* There is memory for some arrays and not for the next: pairs are chained, every inserted key is
 * found, and the table grows once there is memory. */
static void no_arrays(int device)
{
    const char *usual = arrays_there;
    uint32_t n = suite.quick ? 100000 : 400000;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, GROWS, 64, 1);
    device_array<uint32_t> wrong(2);
    arrays_there = "slab:unit=classes,capacity=1M/cuda";
    bool opened = ga_slabhash_device_open(&table, &options, device, 0) == GA_OK;
    arrays_there = usual;
    REQUIRE(opened);
    put_kernel<MAP32><<<(n + 127) / 128, 128>>>(table.view, 0, n, wrong.data);
    find_kernel<MAP32><<<(n + 127) / 128, 128>>>(table.view, n, wrong.data);
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what did not go in, or was not found", wrong.read()[0], 0);
    ga_slabhash_growth growth = growth_of(&table);
    EXPECT(growth.refused > 0);
    EXPECT((uint64_t)growth.buckets * 128 <= 1 << 20);
    expect_size(&table, n);
    EXPECT_EQUAL("the status", ga_slabhash_device_reserve(&table, 100 * n, 0), GA_ERR_MEMORY);
    expect_size(&table, n);
    OK(ga_slabhash_device_close(&table));
}

/* 1024 slabs, also for pairs that migrate: every inserted key is there, every refused one (FULL) is
 *      not, also in the middle of a migration; and once the table is cleared it has its slabs
 *      again. */
static void no_slabs(int device)
{
    uint64_t n = 60000;
    ga_heap *slabs = NULL;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, GROWS, 64, 1);
    ga_slabhash_census census = {};
    std::vector<uint64_t> keys = narrow_keys(n);
    REQUIRE(ga_heap_open(&slabs, GA_PLACE_KERNEL, device,
                         "slab:unit=128,blocks=1,capacity=128K/cuda") == GA_OK);
    options.heap = slabs;
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    batch_run in = run(&table, GA_SLABHASH_INSERT, keys, keys);
    uint64_t went = in.counts[GA_SLABHASH_ABSENT];
    EXPECT(went > 64 * 15);
    EXPECT_EQUAL("what went in and what is FULL", went + in.counts[GA_SLABHASH_FULL], n);
    batch_run now = run(&table, GA_SLABHASH_SEARCH, keys, keys);
    bool right = true;
    for (uint64_t i = 0; i < n; i++) {
        right &= (now.results[i] == GA_SLABHASH_FOUND) == (in.results[i] == GA_SLABHASH_ABSENT);
    }
    EXPECT(right);
    ga_status status = ga_slabhash_device_count(&table, &census, 0);
    EXPECT(status == GA_OK ? census.live == went
                           : status == GA_ERR_MEMORY && test_error_has("found no slabs"));
    OK(ga_slabhash_device_clear(&table, 0));
    EXPECT_EQUAL("slabs of a table that was cleared", live_of(slabs), 0);
    EXPECT_EQUAL("the results ABSENT",
                 run(&table, GA_SLABHASH_INSERT, {1, 2}, {1, 2}).counts[GA_SLABHASH_ABSENT], 2);
    expect_size(&table, 2);
    OK(ga_slabhash_device_close(&table));
    EXPECT_EQUAL("slabs that are still taken", live_of(slabs), 0);
    OK(ga_heap_close(slabs));
}

/* ---- calls between kernels, and bad input ---------------------------------------------------- */

static void files(int device)
{
    const uint32_t n = 30000;
    const char *folder = getenv("TMPDIR");
    std::string path =
        std::string(folder ? folder : "/tmp") + "/slabhash-grown-" + std::to_string((long)getpid());
    ga_slabhash_device table, again;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, GROWS, 16, 1);
    device_array<uint32_t> wrong(2);
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    put_kernel<MAP32><<<(n + 127) / 128, 128>>>(table.view, 0, n, wrong.data);
    OK(ga_slabhash_device_save(&table, path.c_str(), 0));
    OK(ga_slabhash_device_close(&table));
    REQUIRE(ga_slabhash_device_open(&again, &options, device, 0) == GA_OK);
    OK(ga_slabhash_device_load(&again, path.c_str(), 0));
    find_kernel<MAP32><<<(n + 127) / 128, 128>>>(again.view, n, wrong.data);
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what was not found in the file", wrong.read()[0], 0);
    expect_size(&again, n);
    OK(ga_slabhash_device_close(&again));
    unlink(path.c_str());
}

/* Room that was reserved is there before the kernel, which then does not grow the table. */
static void reserved(int device)
{
    const uint32_t n = 100000;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, GROWS, 16, 1);
    device_array<uint32_t> wrong(2);
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    put_kernel<MAP32><<<8, 128>>>(table.view, 0, 1024, wrong.data);
    OK(ga_slabhash_device_reserve(&table, 10 * n, 0));
    uint32_t buckets = growth_of(&table).buckets;
    EXPECT((uint64_t)buckets * 15 > 10 * n);
    put_kernel<MAP32><<<(n + 127) / 128, 128>>>(table.view, 1024, n, wrong.data);
    find_kernel<MAP32><<<(n + 127) / 128, 128>>>(table.view, n, wrong.data);
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what did not go in, or was not found", wrong.read()[0], 0);
    EXPECT_EQUAL("the buckets", growth_of(&table).buckets, buckets);
    expect_size(&table, n + 1024);
    OK(ga_slabhash_device_close(&table));
}

static void bad_input(int device)
{
    ga_slabhash_device table;
    ga_slabhash_growth growth = {};
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, GROWS, 64, 2);
    EXPECT(ga_slabhash_device_open(&table, &options, device, 0) == GA_ERR_UNSUPPORTED);
    EXPECT(test_error_has("path=2 of a table that grows in kernels"));
    options.path = 1;
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    batch_run refused =
        run(&table, GA_SLABHASH_INSERT, {0x7ffffffd, 0x7ffffffe, 0x80000000, 5}, {1, 2, 3, 4});
    EXPECT(refused.counts[GA_SLABHASH_REFUSED] == 2 && refused.counts[GA_SLABHASH_ABSENT] == 2);
    OK(ga_slabhash_device_close(&table));
    options.flags = 0;
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    EXPECT(ga_slabhash_device_growth(&table, &growth, 0) == GA_ERR_UNSUPPORTED);
    EXPECT(test_error_has("expected one with GA_SLABHASH_GROW_IN_KERNELS"));
    OK(ga_slabhash_device_close(&table));
}

static const test_case cases[] = {
    {"batches go in, are found and go out", batches},
    {"all pairs of many keys at once", all_pairs_of_keys},
    {"one kernel puts in all there is", one_kernel},
    {"kernel after kernel", many_kernels},
    {"older arrays go back while a kernel runs", given_back},
    {"a table that is emptied has fewer buckets", fewer_buckets},
    {"a table is compacted while a kernel runs", as_many_buckets},
    {"two kernels at once", two_kernels},
    {"searches and deletes beside growth", beside},
    {"histories are linearizable", histories},
    {"books are kept of millions", books},
    {"no memory for the next array", no_arrays},
    {"no slabs in the middle", no_slabs},
    {"grown tables go to files and come from them", files},
    {"room is reserved for kernels", reserved},
    {"bad input is refused", bad_input},
};

static void run_on(int device)
{
    if (suite.no_growing) { /* heaps that do not grow under kernels; tables do */
        arrays_there = "slab:unit=classes,capacity=512M/cuda";
        OK(ga_heap_open(&slabs_there, GA_PLACE_KERNEL, device,
                        "slab:unit=128,addressing=light,capacity=256M/cuda"));
    }
    test_run("slabhash", cases, sizeof cases / sizeof *cases, device, suite.only);
    ga_heap_close(slabs_there);
    slabs_there = NULL;
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, run_on);
}
