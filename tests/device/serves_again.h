/* SPDX-License-Identifier: MIT
 *
 * A large heap of all sizes, used up and emptied in random order again and again: how much it
 * serves before the first NULL, and that it serves as much each time. For heaps of the kind that
 * GA_KERNEL_ONLY names. Only for CUDA.
 */
#ifndef TESTS_DEVICE_SERVES_AGAIN_H
#define TESTS_DEVICE_SERVES_AGAIN_H

#include "sized_gpu.h"

/* The number of threads that allocate in one launch: a NULL is noticed after it. */
static uint32_t launch_size(void)
{
    return suite.quick ? 1u << 12 : 1u << 18;
}

static __device__ sized_asking mix_of(uint32_t round)
{
    sized_asking asking = {16, 2048, round};
    return asking;
}

/* Thread i allocates block first + i, and marks both its ends. */
static __global__ void serve_kernel(ga_kernel_heap heap, char **blocks, uint32_t first,
                                    uint32_t round, uint64_t *bytes, slab_tally *tally)
{
    uint32_t i = first + slab_thread();
    uint32_t size = sized_of(mix_of(round), i);
    char *block = (char *)ga_kernel_malloc(heap, size);
    blocks[i] = block;
    if (block) {
        *(uint32_t *)block = i;
        *(uint32_t *)(block + (size - 4u) / 4u * 4u) = i;
    }
    uint32_t sum = ga_lanes_sum(ga_tile_of(32), block ? size : 0);
    uint32_t given = ga_bits_count(ga_lanes_nonzero(ga_tile_of(32), block != NULL));
    if (ga_warp_lane() == 0) {
        slab_count(bytes, sum);
        slab_count(&tally->given, given);
        slab_count(&tally->full, 32u - given);
    }
}

/* A number below n, another for each i below n: i's place in an order of chance (a walk through a
 * permutation of the numbers below 2^bits). */
static __device__ uint32_t shuffled(uint32_t i, uint32_t n, uint32_t bits, uint32_t seed)
{
    uint32_t mask = (1u << bits) - 1u;
    do {
        i = (i * 0x9e3779b1u + seed) & mask;
        i ^= i >> (bits / 2u);
        i = (i * 0x85ebca6bu + seed) & mask;
        i ^= i >> (bits / 2u);
    } while (i >= n);
    return i;
}

static __global__ void end_kernel(ga_kernel_heap heap, char **blocks, uint32_t n, uint32_t bits,
                                  uint32_t round, slab_tally *tally)
{
    uint32_t thread = slab_thread();
    if (thread >= n) {
        return;
    }
    uint32_t i = shuffled(thread, n, bits, round * 77u + 13u);
    uint32_t size = sized_of(mix_of(round), i);
    char *block = blocks[i];
    if (block) {
        uint32_t first = *(const volatile uint32_t *)block;
        uint32_t last = *(const volatile uint32_t *)(block + (size - 4u) / 4u * 4u);
        if (first != i || last != i) {
            slab_note_wrong(tally, SLAB_OVERLAP, (uint64_t)block, first != i ? first : last, i);
        }
        slab_count(&tally->released, 1);
        ga_kernel_free(heap, block);
    }
}

/* Bytes requested and allocated before the launch with the first NULL; *asked: blocks. */
static uint64_t serve(sized_rig *r, uint32_t max, uint32_t round, uint64_t *bytes, uint32_t *asked)
{
    uint64_t sum = 0, now = 0;
    slab_tally found = {};
    *asked = 0;
    CUDA_DONE(cudaMemset(bytes, 0, sizeof *bytes));
    while (!found.full && *asked + launch_size() <= max) {
        sum = now;
        serve_kernel<<<launch_size() / SLAB_BLOCK, SLAB_BLOCK>>>(r->view, r->blocks, *asked, round,
                                                                 bytes, r->tally);
        if (!KERNELS_DONE()) {
            break;
        }
        *asked += launch_size();
        found = READ_TALLY(r->tally);
        CUDA_DONE(cudaMemcpy(&now, bytes, sizeof now, cudaMemcpyDeviceToHost));
    }
    return found.full ? sum : now;
}

/* Of 64 GB 52 GB are served before the first NULL, and again after all blocks have been freed in
 * random order. On smaller devices the share is the same. `over`: the layers over the slabs, with a
 * slash after them. */
static void serves_again_under(int device, const char *over)
{
    const uint32_t rounds = suite.quick ? 2 : suite.operations ? (uint32_t)suite.operations : 5;
    size_t free_bytes = 0, total = 0;
    uint64_t capacity = suite.quick ? UINT64_C(256) << 20 : UINT64_C(64) << 30;
    uint64_t *bytes = (uint64_t *)suite_memory(sizeof *bytes);
    uint64_t least = UINT64_MAX;
    char spec[64];
    sized_rig r;
    CUDA_DONE(cudaMemGetInfo(&free_bytes, &total));
    while (capacity + (capacity >> 5) > free_bytes) {
        capacity /= 2;
    }
    uint32_t max = (uint32_t)(capacity / 900 + launch_size()), bits = 1;
    while (1u << bits < max) {
        bits++;
    }
    snprintf(spec, sizeof spec, "%sslab:unit=classes,capacity=%llu/cuda", over,
             (unsigned long long)capacity);
    if (!bytes || !sized_set_up(&r, device, spec, max)) {
        return;
    }
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t asked;
        uint64_t served = serve(&r, max, round, bytes, &asked);
        least = served < least ? served : least;
        if (served < capacity / 64 * 52) {
            FAIL("round %u to serve %llu of %llu bytes before the first NULL, got %llu", round,
                 (unsigned long long)(capacity / 64 * 52), (unsigned long long)capacity,
                 (unsigned long long)served);
            break;
        }
        end_kernel<<<slab_grid(asked), SLAB_BLOCK>>>(r.view, r.blocks, asked, bits, round, r.tally);
        if (!KERNELS_DONE()) {
            break;
        }
        READ_TALLY(r.tally);
        sized_expect_live(&r, 0, 0);
        EXPECT_STATUS(ga_heap_kernel_view(r.heap, &r.view), GA_OK);
        if (round % 100 == 99) {
            printf("    %u times by now, at least %llu MiB\n", round + 1,
                   (unsigned long long)(least >> 20));
            fflush(stdout);
        }
    }
    printf(
        "    %u times all of %llu MiB: at least %llu MiB (%.1f %%) of 16 to 2048 bytes before the "
        "first NULL\n",
        rounds, (unsigned long long)(capacity >> 20), (unsigned long long)(least >> 20),
        100.0 * (double)least / (double)capacity);
    cudaFree(bytes);
    EXPECT_STATUS(ga_heap_reset(r.heap), GA_OK);
    sized_tear_down(&r);
}

#endif
