/* SPDX-License-Identifier: MIT
 *
 * Tables that kernels make smaller, or compact, while they run: part of slabhash_growing_tests.cu,
 * which has the kernels that fill them.
 */
#ifndef GPUALLOC_TESTS_SLABHASH_GROWING_LESS_H
#define GPUALLOC_TESTS_SLABHASH_GROWING_LESS_H

/* Keys from `stay` on are deleted; then each lane deletes absent keys, `more` times. */
static __global__ void empty_kernel(ga_slabhash_view table, uint32_t stay, uint32_t n,
                                    uint32_t more, uint32_t *wrong)
{
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    uint32_t step = gridDim.x * blockDim.x;
    uint32_t all = (n - stay + step - 1) / step + more;
    for (uint32_t round = 0; round < all; round++) {
        uint32_t i = stay + round * step + blockIdx.x * blockDim.x + threadIdx.x;
        ga_slabhash_answer answer =
            ga_slabhash_lanes<MAP32, GA_SLABHASH_DELETE>(&session, true, GA_SLABHASH_DELETE, i, 0);
        if ((answer.result == GA_SLABHASH_FOUND) != (i < n)) {
            atomicAdd(wrong, 1u);
        }
    }
    ga_slabhash_session_end(&session);
}

/* A kernel fills a table, another empties it nearly: it has few buckets then, and no slabs but
 * those behind them. */
static void fewer_buckets(int device)
{
    uint32_t n = suite.quick ? 1u << 18 : 1u << 23, stay = n / 1024;
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
    empty_kernel<<<64, 128>>>(table.view, stay, n, 2048, wrong.data);
    CUDA_DONE(cudaGetLastError());
    CUDA_DONE(cudaDeviceSynchronize());
    ga_slabhash_growth growth = growth_of(&table);
    EXPECT(growth.shrunk > 0);
    /* It had at least n / 30. An array is freed by the checks of a thousand tiles, 32 buckets each,
     * and then the table may shrink again. */
    for (uint32_t i = 0; i < 64 && growth.buckets >= n / 60; i++) {
        empty_kernel<<<64, 128>>>(table.view, n, n, 2048, wrong.data);
        growth = growth_of(&table);
    }
    EXPECT(growth.buckets < n / 60);
    EXPECT_EQUAL("what did not go in, or out", wrong.read()[0], 0);
    for (uint32_t i = 0; i < 1000 && growth.arrays > 1; i++) { /* each call ends a part of it */
        growth = growth_of(&table);
    }
    EXPECT_EQUAL("arrays that are held", growth.arrays, 1);
    find_kernel<MAP32><<<(stay + 127) / 128, 128>>>(table.view, stay, wrong.data);
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what stays and was not found", wrong.read()[0], 0);
    OK(ga_slabhash_device_count(&table, &census, 0));
    EXPECT_EQUAL("keys", census.live, stay);
    EXPECT_EQUAL("slabs that are taken", live_of(slabs), census.chained);
    put_kernel<MAP32><<<(n - stay + 127) / 128, 128>>>(table.view, stay, n - stay, wrong.data);
    find_kernel<MAP32><<<(n + 127) / 128, 128>>>(table.view, n, wrong.data); /* and again more */
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what did not go in again, or was not found", wrong.read()[0], 0);
    expect_size(&table, n);
    OK(ga_slabhash_device_close(&table));
    OK(ga_heap_close(slabs));
}

/* Each lane inserts keys, and deletes them two rounds later: their slots are filled again. */
static __global__ void churn_kernel(ga_slabhash_view table, uint32_t rounds, uint32_t *wrong)
{
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    uint32_t lanes = gridDim.x * blockDim.x, lane = blockIdx.x * blockDim.x + threadIdx.x;
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t key = round * lanes + lane;
        ga_slabhash_answer in =
            ga_slabhash_lanes<MAP32>(&session, true, GA_SLABHASH_INSERT, key, key ^ 0x5555u);
        ga_slabhash_answer out =
            ga_slabhash_lanes<MAP32>(&session, round >= 2, GA_SLABHASH_DELETE, key - 2 * lanes, 0);
        if (in.result != GA_SLABHASH_ABSENT || (round >= 2 && out.result != GA_SLABHASH_FOUND)) {
            atomicAdd(wrong, 1u);
        }
    }
    ga_slabhash_session_end(&session);
}

/* A table in which few keys are at a time stays as large as it is, and chains next to no slabs. */
static void as_many_buckets(int device)
{
    const uint32_t lanes = 64 * 128, rounds = suite.quick ? 40 : 400;
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, GROWS, 64, 1);
    ga_slabhash_census census = {};
    device_array<uint32_t> wrong(2);
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    OK(ga_slabhash_device_reserve(&table, 8 * lanes, 0));
    uint32_t buckets = growth_of(&table).buckets;
    churn_kernel<<<64, 128>>>(table.view, rounds, wrong.data);
    CUDA_DONE(cudaGetLastError());
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("what did not go in, or out", wrong.read()[0], 0);
    ga_slabhash_growth growth = growth_of(&table);
    EXPECT(growth.compacted > 0);
    EXPECT_EQUAL("buckets", growth.buckets, buckets);
    OK(ga_slabhash_device_count(&table, &census, 0));
    EXPECT_EQUAL("keys", census.live, 2 * lanes);
    EXPECT(census.chained < buckets);
    OK(ga_slabhash_device_close(&table));
}

#endif
