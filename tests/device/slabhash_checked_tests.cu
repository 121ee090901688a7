/* SPDX-License-Identifier: MIT
 *
 * Programs of kernels that check how tables are used (GA_SLABHASH_CHECKED): a session during a
 * flush is reported by the next call that waits, once; sessions and flushes one after the other are
 * not reported.
 */
#define GA_SLABHASH_CHECKED
#define GA_SLABHASH_ONLY_KIND GA_SLABHASH_KIND(GA_SLABHASH_MAP32, false)
#include <gpualloc/slabhash.cuh>

#include "slabhash_suite.h"

/* Signals between the host and a kernel. */
struct signals {
    volatile uint32_t begun, over;
};

/* A session that lasts until the host ends it; it has a time limit. */
static __global__ void long_session(ga_slabhash_view table, signals *told)
{
    ga_slabhash_session session = ga_slabhash_session_begin(table);
    if (session.tile.lane == 0) {
        told->begun = 1;
        for (uint32_t i = 0; i < 20000000 && !told->over; i++) {
        }
    }
    ga_tile_sync(session.tile);
    (void)ga_slabhash_tile<GA_SLABHASH_MAP32>(&session, GA_SLABHASH_INSERT, 5, 6);
    ga_slabhash_session_end(&session);
}

/* One after the other, any number of times. */
static void in_order(int device)
{
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, 0, 64, 1);
    std::vector<uint64_t> keys = narrow_keys(500);
    REQUIRE(ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    for (uint32_t i = 0; i < 5; i++) {
        run(&table, GA_SLABHASH_INSERT, keys, keys);
        OK(ga_slabhash_device_flush(&table, 0));
        expect_size(&table, keys.size());
        OK(ga_slabhash_device_clear(&table, 0));
        expect_size(&table, 0);
    }
    OK(ga_slabhash_device_close(&table));
}

/* A session is under way on one stream, and a flush begins on another. */
static void beside(int device)
{
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_MAP32, 0, 64, 1);
    ga_slabhash_census census = {};
    cudaStream_t streams[2] = {};
    signals *told = NULL;
    CUDA_DONE(cudaHostAlloc((void **)&told, sizeof *told, cudaHostAllocMapped));
    REQUIRE(told && ga_slabhash_device_open(&table, &options, device, 0) == GA_OK);
    CUDA_DONE(cudaDeviceSynchronize());
    for (cudaStream_t &stream : streams) {
        CUDA_DONE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    told->begun = told->over = 0;
    long_session<<<1, GA_SLABHASH_TILE, 0, streams[0]>>>(table.view, told);
    CUDA_DONE(cudaGetLastError());
    while (!told->begun && cudaStreamQuery(streams[0]) == cudaErrorNotReady) {
    }
    OK(ga_slabhash_device_flush(&table, streams[1]));
    CUDA_DONE(cudaStreamSynchronize(streams[1]));
    told->over = 1;
    CUDA_DONE(cudaDeviceSynchronize());
    EXPECT_EQUAL("the status", ga_slabhash_device_count(&table, &census, 0), GA_ERR_ARGUMENT);
    EXPECT(test_error_has("sessions of tiles beside a flush or clear"));
    expect_size(&table, 1); /* it was reported, once */
    OK(ga_slabhash_device_close(&table));
    for (cudaStream_t stream : streams) {
        cudaStreamDestroy(stream);
    }
    cudaFreeHost(told);
}

/* Tables of kinds that the program was not compiled for. */
static void other_kinds(int device)
{
    ga_slabhash_device table;
    ga_slabhash_options options = options_of(GA_SLABHASH_SET32, 0, 64, 1);
    EXPECT(ga_slabhash_device_open(&table, &options, device, 0) == GA_ERR_UNSUPPORTED);
    EXPECT(test_error_has("kind 0: expected 1, which is GA_SLABHASH_ONLY_KIND"));
}

static const test_case cases[] = {
    {"sessions and flushes in order", in_order},
    {"a session beside a flush is told", beside},
    {"a program of one kind refuses others", other_kinds},
};

static void run_on(int device)
{
    if (suite.no_growing) {
        OK(ga_heap_open(&slabs_there, GA_PLACE_KERNEL, device,
                        "slab:unit=128,addressing=light,capacity=64M/cuda"));
    }
    test_run("checked slabhash", cases, sizeof cases / sizeof *cases, device, suite.only);
    ga_heap_close(slabs_there);
    slabs_there = NULL;
}

int main(int argc, char **argv)
{
    return suite_main(argc, argv, run_on);
}
