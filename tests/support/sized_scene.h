/* SPDX-License-Identifier: MIT
 *
 * Shared by the tests of size-class heaps for kernels, in addition to kernel_scene.h: programs'
 * kernels are threads that claim with all lanes of a tile.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SIZED_SCENE_H
#define GPUALLOC_TESTS_SUPPORT_SIZED_SCENE_H

#include "backends/slab/classes/sized_words.h"
#include "device/kinds.h"

#include "kernel_scene.h"
#include "random.h"
#include "sized_actor.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    MIB = 1 << 20,
    LIMIT = 12 * MIB,
    REGION = 128 << 10, /* the region size for that limit */
    WARPS = 3,
    SMALL = 16,  /* the smallest block in mixed sizes, */
    LARGE = 2048 /* and the largest */
};

static const char growing[] = "slab:unit=classes,capacity=4M,limit=12M/vmm";
static const char fixed[] = "slab:unit=classes,capacity=12M/cuda";

static inline ga_kernel_heap view_of(ga_heap *heap)
{
    ga_kernel_heap view;
    assert_ok(ga_heap_kernel_view(heap, &view));
    cr_assert_eq(view.abi, GA_KERNEL_HEAP_ABI);
    cr_assert_eq(view.kind, GA_KERNEL_KIND_SIZED);
    return view;
}

static inline void expect_live(ga_heap *heap, uint64_t blocks, uint64_t bytes)
{
    ga_stats stats = stats_of(heap);
    cr_assert(stats.live_blocks == blocks && stats.live_bytes == bytes,
              "%" PRIu64 " blocks of %" PRIu64 " bytes", stats.live_blocks, stats.live_bytes);
}

/* ---- kernels ------------------------------------------------------------------------------- */

typedef struct warp {
    ga_sized_heap *heap;
    uint32_t number, size; /* size 0: mixed */
    uint32_t retries;
    uint32_t held, held_max;
    uint64_t bytes;
    char **blocks;
    uint32_t *classes;
} warp;

static inline uint64_t mark_of(const warp *w, uint32_t i)
{
    return (uint64_t)w->number << 32 | i;
}

/* Write the owner to both ends. */
static inline void keep(warp *w, char *block, uint32_t class)
{
    uint64_t mark = mark_of(w, w->held);
    memcpy(block, &mark, sizeof mark);
    memcpy(block + ga_sized_unit(class) - sizeof mark, &mark, sizeof mark);
    w->blocks[w->held] = block;
    w->classes[w->held++] = class;
    w->bytes += ga_sized_unit(class);
}

/* Claims until it is refused. */
static inline void *run_warp(void *argument)
{
    warp *w = argument;
    ga_sized_view view = ga_sized_view_of(w->heap);
    uint64_t random = w->number + 1;
    while (w->held + 32 <= w->held_max) {
        uint32_t classes[32], got;
        char *blocks[32];
        for (uint32_t lane = 0; lane < 32; lane++) {
            size_t size = w->size ? w->size : 1 + random_below(&random, LARGE);
            classes[lane] = ga_sized_class_of(view, size);
        }
        got = sized_claim(w->heap, GA_ALL_BITS, classes, w->number, blocks);
        for (uint32_t lane = 0; lane < 32; lane++) {
            if (blocks[lane]) {
                keep(w, blocks[lane], classes[lane]);
            }
        }
        if (!got && !w->retries--) {
            break;
        }
        if (!got) {
            usleep(1000); /* a refusal is believed for a while */
        }
    }
    return NULL;
}

static inline void give_back(warp *w)
{
    for (uint32_t i = 0; i < w->held; i++) {
        uint64_t mark = mark_of(w, i);
        uint64_t *last = (uint64_t *)(w->blocks[i] + ga_sized_unit(w->classes[i])) - 1;
        cr_assert(*(uint64_t *)w->blocks[i] == mark && *last == mark, "a block of class %u",
                  w->classes[i]);
        cr_assert(sized_release(w->heap, 1, &w->blocks[i]));
    }
    free(w->blocks);
    free(w->classes);
}

/* Several warps claim all blocks that they can, and free them. Returns the bytes. With `heap`, live
 * blocks are checked. */
static inline uint64_t run(ga_kernel_heap view, ga_heap *heap, uint32_t size, uint32_t retries)
{
    pthread_t threads[WARPS];
    warp warps[WARPS];
    uint64_t bytes = 0, held = 0;
    /* Of blocks of this size alone; meson's tests write all memory that malloc() returns. */
    uint32_t held_max = (uint32_t)LIMIT / (size ? size : SMALL) + 32;
    for (uint32_t i = 0; i < WARPS; i++) {
        warps[i] = (warp){.heap = (ga_sized_heap *)view.words[GA_SIZED_WORD_HEAP],
                          .number = i,
                          .size = size,
                          .retries = retries,
                          .held_max = held_max,
                          .blocks = malloc(held_max * sizeof(char *)),
                          .classes = malloc(held_max * sizeof(uint32_t))};
        pthread_create(&threads[i], NULL, run_warp, &warps[i]);
    }
    for (uint32_t i = 0; i < WARPS; i++) {
        pthread_join(threads[i], NULL);
        bytes += warps[i].bytes;
        held += warps[i].held;
    }
    if (heap) {
        expect_live(heap, held, bytes);
    }
    for (uint32_t i = 0; i < WARPS; i++) {
        give_back(&warps[i]);
    }
    if (heap) {
        expect_live(heap, 0, 0);
    }
    return bytes;
}

#endif
