/* SPDX-License-Identifier: MIT
 *
 * Shared by the parts of coalesce_tests: heaps, failures that name values, and results of kernels.
 * Only for CUDA.
 */
#ifndef TESTS_DEVICE_COALESCE_GPU_H
#define TESTS_DEVICE_COALESCE_GPU_H

#include <gpualloc/coalesce.cuh>

#include "gpu_suite.h"

extern "C" {
#include "coalesce_oracle.h"
}

#define COALESCE_CASES(part)                                                                       \
    extern const test_case coalesce_##part##_cases[];                                              \
    extern const size_t coalesce_##part##_case_count;
COALESCE_CASES(lone)
COALESCE_CASES(many)
COALESCE_CASES(large)
COALESCE_CASES(sizes)
COALESCE_CASES(static)

/* ---- heaps ----------------------------------------------------------------------------------- */

/* The specs that every case but the lone tile's runs over. */
extern const char *const coalesce_specs[];
extern size_t coalesce_spec_count;
#define EACH_SPEC(spec)                                                                            \
    for (const char *const *spec = coalesce_specs; spec < coalesce_specs + coalesce_spec_count;    \
         spec++)

typedef struct coalesce_test_heap {
    const char *spec;
    ga_heap *heap;
    ga_kernel_heap view;
} coalesce_test_heap;

/* False where there is no heap, and the case has failed. */
bool coalesce_open(coalesce_test_heap *heap, int device, const char *spec);

/* The number of live blocks in its parent, for slabs; other parents keep no count. */
bool coalesce_counts(const coalesce_test_heap *heap);
uint64_t coalesce_live(const coalesce_test_heap *heap);

/* True if it grows while its kernels run, to more than these cases need. */
bool coalesce_grows(const coalesce_test_heap *heap);

/* Its record must be clean: no faults, an empty map; no unit may be live in slabs below. */
void coalesce_close(coalesce_test_heap *heap);

/* The present record. */
bool coalesce_record(const coalesce_test_heap *heap, ga_coalesce_heap *record);

/* ---- results of kernels ------------------------------------------------------------------- */

typedef struct coalesce_tally {
    uint64_t given, refused;
    uint64_t wrong; /* payloads with wrong contents, or misaligned */
} coalesce_tally;

/* Returns its contents and clears them; errors fail the case. */
coalesce_tally coalesce_read(const char *file, int line, const char *spec, coalesce_tally *tally);
#define READ_TALLY(heap, tally) coalesce_read(__FILE__, __LINE__, (heap)->spec, tally)

/* ---- for kernels ----------------------------------------------------------------------------- */

static __device__ inline uint32_t coalesce_thread(void)
{
    uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    return block * (blockDim.x * blockDim.y * blockDim.z) + ga_coalesce_rank();
}

/* The size that thread i requests: all sizes, most of them small. */
static __device__ inline uint32_t coalesce_size(uint32_t i, uint32_t seed)
{
    uint32_t hash = ga_bits_mix(i * 2u + seed);
    uint32_t bound = hash % 16u == 0 ? 2000u : hash % 3u == 0 ? 4u : 300u;
    return ga_bits_mix(hash) % bound;
}

static __device__ inline void coalesce_write(char *payload, uint32_t size, uint32_t i)
{
    for (uint32_t byte = 0; byte < size; byte++) {
        payload[byte] = (char)(i * 7u + byte);
    }
}

static __device__ inline void coalesce_check(const volatile char *payload, uint32_t size,
                                             uint32_t i, coalesce_tally *tally)
{
    bool holds = true;
    for (uint32_t byte = 0; byte < size; byte++) {
        holds = holds && payload[byte] == (char)(i * 7u + byte);
    }
    if (!holds) {
        ga_post_add64_relaxed(&tally->wrong, 1); /* relaxed: read when the kernel has ended */
    }
}

/* Record a thread's payload, and write to all of it. */
static __device__ inline void coalesce_note_given(ga_kernel_heap heap, char *payload, uint32_t size,
                                                  uint32_t i, coalesce_tally *tally)
{
    uint32_t form = GA_COALESCE_WORDS_BITS(heap.words, GA_COALESCE_AT_FORM);
    uint32_t align = form >= GA_COALESCE_SIXTEEN ? 16u
                     : form == GA_COALESCE_EIGHT ? 8u
                     : size < 4u                 ? 2u
                     : size % 8u                 ? 4u
                                                 : 8u;
    ga_post_add64_relaxed(payload ? &tally->given : &tally->refused, 1);
    if ((uint64_t)payload % align) {
        ga_post_add64_relaxed(&tally->wrong, 1);
    }
    if (payload) {
        coalesce_write(payload, size, i);
    }
}

#endif
