/* SPDX-License-Identifier: MIT
 *
 * cuCollections' static_map with keys and values of 32 bits, for bench-slabhash-kernels, behind a
 * class whose users need no headers of cuCollections.
 */
#ifndef GPUALLOC_BENCH_SLABHASH_PEER_CUCO_CUH
#define GPUALLOC_BENCH_SLABHASH_PEER_CUCO_CUH

#include <gpualloc/slabhash.h>

#include <memory>

/* All but count() launch kernels on the default stream. An error of CUDA ends the program. */
typedef struct cuco_map {
    virtual ~cuco_map() = default;
    virtual uint64_t slots() const = 0;
    virtual void clear() = 0;
    /* Pairs have the key in the low bits. */
    virtual void insert(const uint64_t *pairs, uint64_t n) = 0;
    /* The value of an absent key is 0. */
    virtual void search(const uint32_t *keys, uint64_t n, uint32_t *found) = 0;
    /* With an array of operations. A deletion does not return the value. */
    virtual void run(const ga_slabhash_batch &batch) = 0;
    virtual uint64_t count() const = 0; /* pairs; waits for the device */
} cuco_map;

/* A map whose operations are performed by `lanes` threads each, 1 or 4, with at least `slots`
 * slots. */
std::unique_ptr<cuco_map> cuco_open(uint32_t lanes, uint64_t slots);

/* The version of CCCL that it was compiled with. */
uint32_t cuco_cccl_version();

#endif
