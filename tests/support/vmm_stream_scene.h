/* SPDX-License-Identifier: MIT
 *
 * Shared by the tests of the vmm backend and streams: a heap, two streams of its device, and blocks
 * allocated on a stream.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_VMM_STREAM_SCENE_H
#define GPUALLOC_TESTS_SUPPORT_VMM_STREAM_SCENE_H

#include "backends/vmm/vmm.h"

#include "vmm_scene.h"

static const ga_cuda_driver *cuda;
static CUstream one, two;

static inline CUstream make_stream(void)
{
    CUstream stream;
    ga_cuda_scope scope;
    assert_ok(ga_cuda_enter(&scope, 0));
    cr_assert_eq(cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ga_cuda_leave(&scope);
    return stream;
}

static inline ga_heap *begin(const vmm_driver_options *options, const char *spec)
{
    ga_heap *heap = vmm_open(options, spec);
    assert_ok(ga_cuda_driver_get(&cuda));
    one = make_stream();
    two = make_stream();
    return heap;
}

static inline void *take_on(ga_heap *heap, size_t size, CUstream stream)
{
    void *block = NULL;
    assert_ok(ga_alloc_on(heap, size, 0, stream, &block));
    return block;
}

/* Allocate several blocks of one size. */
static inline void take_many_on(ga_heap *heap, void **blocks, size_t count, size_t size,
                                CUstream stream)
{
    for (size_t i = 0; i < count; i++) {
        blocks[i] = take_on(heap, size, stream);
    }
}

static inline void free_many_on(ga_heap *heap, void *const *blocks, size_t count, CUstream stream)
{
    for (size_t i = 0; i < count; i++) {
        assert_ok(ga_free_on(heap, blocks[i], stream));
    }
}

/* Both kinds of blocks: packed, and runs of their own. */
static const size_t sizes[] = {512 << 10, 8 << 20};

enum {
    SIZES = sizeof sizes / sizeof *sizes
};

#endif
