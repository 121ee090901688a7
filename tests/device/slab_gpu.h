/* SPDX-License-Identifier: MIT
 *
 * Shared by the parts of slab_tests: heaps, failures that name values, and kernels that claim,
 * check and release. Only for CUDA.
 */
#ifndef TESTS_DEVICE_SLAB_GPU_H
#define TESTS_DEVICE_SLAB_GPU_H

#include <gpualloc/device.cuh>

#include "gpu_suite.h"

extern "C" {
#include "backends/slab/units/kernel.h"
}

#define SLAB_CASES(part)                                                                           \
    extern const test_case slab_##part##_cases[];                                                  \
    extern const size_t slab_##part##_case_count;
SLAB_CASES(lone)
SLAB_CASES(many)
SLAB_CASES(property)
SLAB_CASES(host)
SLAB_CASES(fault)
SLAB_CASES(public)
SLAB_CASES(growing)
SLAB_CASES(sized)
SLAB_CASES(sized_large)
SLAB_CASES(sized_full)
SLAB_CASES(sized_checked)
SLAB_CASES(sized_coalesced)
SLAB_CASES(sized_growing)

/* ---- failures --------------------------------------------------------------------------- */

#define EXPECT_STATUS(call, expected)                                                              \
    do {                                                                                           \
        ga_status status_ = (call);                                                                \
        if (status_ != (expected)) {                                                               \
            FAIL("%s to answer \"%s\", got \"%s\"", #call, ga_status_text(expected),               \
                 ga_status_text(status_));                                                         \
        }                                                                                          \
    } while (0)

/* ---- heaps ------------------------------------------------------------------------------ */

typedef struct slab_options {
    uint32_t unit, super_bits, supers;
    uint32_t first; /* superblocks to begin with */
    bool light, check;
    const char *parent; /* NULL: cuda */
} slab_options;

typedef struct slab_test_heap {
    slab_options options;
    ga_heap *parent;
    ga_slab_kernel *slab;
    ga_kernel_heap view; /* as of the last slab_view() */
} slab_test_heap;

/* Opens a heap, with a first view. Returns false if there is no heap, and the case has failed. */
bool slab_open(slab_test_heap *heap, int device, const slab_options *options);
void slab_close(slab_test_heap *heap);
bool slab_view(slab_test_heap *heap);

/* Units there are now. */
uint32_t slab_units(const slab_test_heap *heap);

/* A copy of the heap's present data on the device. */
bool slab_image(const slab_test_heap *heap, ga_slab_heap *image);

/* Check that `live` units are live: by the count, by each_live and by the bitmaps; and that the
 * count of each memory block matches its bitmap. */
void slab_audit(const char *file, int line, slab_test_heap *heap, uint64_t live);
#define EXPECT_LIVE(heap, live) slab_audit(__FILE__, __LINE__, heap, live)

/* Redirect standard error to a file; the end returns the text. */
typedef struct slab_capture {
    FILE *file;
    int saved;
} slab_capture;

bool slab_capture_begin(slab_capture *c);
void slab_capture_end(slab_capture *c, char *text, size_t size);

/* ---- results of kernels ------------------------------------------------------------------- */

typedef enum slab_wrong {
    SLAB_OVERLAP = 0, /* a unit was allocated that had an owner */
    SLAB_LOST,        /* a unit was no longer its owner's */
    SLAB_CONTENT,     /* contents that its owner had not written */
    SLAB_POINTER,     /* misaligned, or no unit's */
    SLAB_ANSWER,      /* a result that was not expected */
    SLAB_WRONGS
} slab_wrong;

typedef struct slab_tally {
    uint64_t given, released, full;
    uint64_t wrong; /* number of errors; the first one: */
    uint64_t what, at, got, expected;
} slab_tally;

/* A tally in device memory. Read: returns its contents and clears them; errors fail the case. */
slab_tally *slab_tally_new(void);
slab_tally slab_tally_read(const char *file, int line, slab_tally *tally);
#define READ_TALLY(tally) slab_tally_read(__FILE__, __LINE__, tally)

/* ---- work ------------------------------------------------------------------------------- */

enum {
    SLAB_BLOCK = 256 /* threads */
};

static inline uint32_t slab_grid(uint64_t threads)
{
    return (uint32_t)((threads + SLAB_BLOCK - 1) / SLAB_BLOCK);
}

/* Thread i of n claims a unit, records it in units[i] (NULL too) and writes all of it. */
void slab_claim_all(ga_kernel_heap heap, char **units, uint32_t n, slab_tally *tally,
                    cudaStream_t stream);

/* Check that every unit[i] that is not NULL is aligned, is a unit, has the contents of thread i,
 * and occurs once: `seen` has a bit for each unit of the heap, all 0 before. */
void slab_check_all(ga_kernel_heap heap, char **units, uint32_t n, uint32_t *seen,
                    slab_tally *tally, cudaStream_t stream);

/* Thread i releases units[(i * stride + 1) % n], where `stride` and n have no common divisor. */
void slab_release_all(ga_kernel_heap heap, char **units, uint32_t n, uint32_t stride,
                      slab_tally *tally, cudaStream_t stream);

/* ---- for kernels ------------------------------------------------------------------------ */

static __device__ inline uint32_t slab_thread(void)
{
    uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    uint32_t within = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    return block * (blockDim.x * blockDim.y * blockDim.z) + within;
}

static __device__ inline void slab_note_wrong(slab_tally *tally, uint32_t what, uint64_t at,
                                              uint64_t got, uint64_t expected)
{
    if (ga_add64_relaxed(&tally->wrong, 1) == 0) { /* relaxed: read when the kernel has ended */
        tally->what = what;
        tally->at = at;
        tally->got = got;
        tally->expected = expected;
    }
}

static __device__ inline void slab_count(uint64_t *count, uint64_t n)
{
    if (n) {
        ga_post_add64_relaxed(count, n); /* relaxed: read when the kernel has ended */
    }
}

/* The content of word i of the unit that the owner `tag` writes. */
static __device__ inline uint32_t slab_content(uint32_t tag, uint32_t i)
{
    return ga_bits_mix(tag) + i * 0x01000193u;
}

static __device__ inline void slab_write(void *unit, uint32_t bytes, uint32_t tag)
{
    uint32_t *words = (uint32_t *)unit;
    for (uint32_t i = 0; i < bytes / 4; i++) {
        words[i] = slab_content(tag, i);
    }
}

static __device__ inline bool slab_holds(const void *unit, uint32_t bytes, uint32_t tag,
                                         slab_tally *tally)
{
    const volatile uint32_t *words = (const volatile uint32_t *)unit;
    for (uint32_t i = 0; i < bytes / 4; i++) {
        uint32_t got = words[i];
        if (got != slab_content(tag, i)) {
            slab_note_wrong(tally, SLAB_CONTENT, (uint64_t)(words + i), got, slab_content(tag, i));
            return false;
        }
    }
    return true;
}

/* Release each of them, one right after the other; NULLs as well. */
static __device__ __forceinline__ void slab_release_group(ga_kernel_heap heap, void *const *units,
                                                          uint32_t n)
{
#pragma unroll
    for (uint32_t i = 0; i < n; i++) {
        ga_slab_release(heap, units[i]);
    }
}

static __device__ inline uint32_t slab_unit_bytes(ga_kernel_heap heap)
{
    return GA_SLAB_WORDS_UNIT(heap.words);
}

/* The number of the unit that begins there; GA_SLAB_FULL, and a wrong, where none does. */
static __device__ inline uint32_t slab_number(ga_kernel_heap heap, const void *unit,
                                              slab_tally *tally)
{
    uint32_t number = ga_slab_unit(ga_slab_view_of_kernel(heap), unit);
    if (number == GA_SLAB_FULL || (uint64_t)unit % 16) {
        slab_note_wrong(tally, SLAB_POINTER, (uint64_t)unit, number, 0);
    }
    return number;
}

#endif
