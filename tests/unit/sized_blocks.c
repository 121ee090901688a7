/* SPDX-License-Identifier: MIT
 *
 * Blocks of size-class heaps as the host allocates them: every size, at alignments, all memory, and
 * beside kernels; invalid pointers.
 */
#include "support/sized_scene.h"

#include <stdio.h>

typedef struct seen {
    ga_heap *heap;
    void *blocks[64];
    size_t sizes[64];
    uint32_t count;
} seen;

static void note(void *context, void *block, size_t size)
{
    seen *s = context;
    cr_assert_lt(s->count, 64);
    cr_assert_eq(ga_usable_size(s->heap, block), size); /* the visitor may call the heap */
    s->blocks[s->count] = block;
    s->sizes[s->count++] = size;
}

static bool has(const seen *s, const void *block, size_t size)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->blocks[i] == block) {
            return s->sizes[i] == size;
        }
    }
    return false;
}

static const size_t host_sizes[] = {0,     1,     16,     17,     100,     128,          129,
                                    160,   161,   999,    1025,   4000,    8192,         10000,
                                    16384, 65536, 131072, 131073, 1 << 20, (3 << 20) + 1};
enum {
    HOST_SIZES = sizeof host_sizes / sizeof *host_sizes
};

static void blocks_for_the_host(const char *spec)
{
    void *blocks[HOST_SIZES];
    uint64_t bytes = 0;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(spec);
    seen live = {.heap = heap};
    for (size_t i = 0; i < HOST_SIZES; i++) {
        assert_ok(ga_alloc(heap, host_sizes[i], 0, &blocks[i]));
        size_t usable = ga_usable_size(heap, blocks[i]);
        size_t max = host_sizes[i] <= REGION / 2 ? host_sizes[i] * 5 / 4 + 16
                                                 : (host_sizes[i] + REGION - 1) / REGION * REGION;
        cr_assert(usable >= host_sizes[i] && usable <= max, "%zu: %zu", host_sizes[i], usable);
        cr_assert_eq((uintptr_t)blocks[i] % 16, 0);
        memset(blocks[i], (int)i, usable);
        bytes += usable;
        expect_live(heap, i + 1, bytes);
    }
    assert_ok(ga_heap_each_live(heap, note, &live));
    cr_assert_eq(live.count, HOST_SIZES);
    for (size_t i = 0; i < HOST_SIZES; i++) {
        size_t usable = ga_usable_size(heap, blocks[i]);
        cr_assert(has(&live, blocks[i], usable));
        cr_assert(ga_owns(heap, blocks[i]) && ga_owns(heap, (char *)blocks[i] + usable - 1));
        cr_assert_eq(*((char *)blocks[i] + usable - 1), (char)i);
        assert_ok(ga_free(heap, blocks[i]));
    }
    expect_live(heap, 0, 0);
    end(heap);
}

Test(sized_blocks, the_host_has_blocks_of_all_sizes)
{
    blocks_for_the_host(growing);
    blocks_for_the_host(fixed);
}

Test(sized_blocks, what_is_no_block_is_refused)
{
    static char foreign[64];
    char *block, *other, text[128];
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    assert_ok(ga_alloc(heap, 100, 0, (void **)&block));
    assert_ok(ga_alloc(heap, 100, 0, (void **)&other));
    snprintf(text, sizeof text, "slab: no block of this heap begins at %p", (void *)(block + 16));
    assert_fails(ga_free(heap, block + 16), GA_ERR_POINTER, text);
    snprintf(text, sizeof text, "slab: no block of this heap begins at %p", (void *)foreign);
    assert_fails(ga_free(heap, foreign), GA_ERR_POINTER, text);
    cr_assert(!ga_owns(heap, foreign) && !ga_owns(heap, NULL));
    cr_assert_eq(ga_usable_size(heap, foreign), 0);
    cr_assert_eq(ga_usable_size(heap, block + 16), 0);
    assert_ok(ga_free(heap, NULL));
    assert_ok(ga_free(heap, block));
    snprintf(text, sizeof text, "slab: %p is free already", (void *)block);
    assert_fails(ga_free(heap, block), GA_ERR_POINTER, text);
    expect_live(heap, 1, ga_usable_size(heap, other));
    assert_ok(ga_free(heap, other));
    assert_ok(ga_trim(heap, 0)); /* its region has no class now */
    cr_assert_eq(ga_free(heap, other), GA_ERR_POINTER);
    end(heap);
}

/* Over vmm at every alignment for which there are addresses. */
Test(sized_blocks, the_host_has_blocks_at_multiples)
{
    void *block;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    for (size_t align = 16; align <= 2 * MIB; align *= 2) {
        for (size_t size = 1; size < 4 * MIB; size = size * 3 + 5) {
            assert_ok(ga_alloc(heap, size, align, &block));
            cr_assert_eq((uintptr_t)block % align, 0, "%zu at %zu", size, align);
            cr_assert_geq(ga_usable_size(heap, block), size);
            memset(block, 1, size);
            assert_ok(ga_free(heap, block));
        }
    }
    assert_fails_with(ga_alloc(heap, 1, (size_t)1 << 62, &block), GA_ERR_MEMORY, "slab: ");
    expect_live(heap, 0, 0);
    end(heap);
}

/* A run takes all memory, and again after classes had the regions. */
Test(sized_blocks, the_host_has_all_of_it)
{
    static const char *const specs[] = {growing, fixed};
    for (size_t i = 0; i < 2; i++) {
        void *block, *other;
        char text[128];
        begin(VMM_KERNELS_GROW);
        ga_heap *heap = open_heap(specs[i]);
        for (int round = 0; round < 3; round++) {
            assert_ok(ga_alloc(heap, LIMIT, 0, &block));
            cr_assert_eq(ga_usable_size(heap, block), LIMIT);
            memset(block, 3, LIMIT);
            expect_live(heap, 1, LIMIT);
            assert_fails_with(ga_alloc(heap, 16, 0, &other), GA_ERR_MEMORY, "slab: ");
            cr_assert(ga_owns(heap, (char *)block + LIMIT - 1));
            cr_assert_eq(ga_usable_size(heap, (char *)block + REGION), 0);
            cr_assert_eq(ga_free(heap, (char *)block + REGION), GA_ERR_POINTER);
            assert_ok(ga_free(heap, block));
            snprintf(text, sizeof text, "slab: no block of this heap begins at %p", block);
            assert_fails(ga_free(heap, block), GA_ERR_POINTER, text);
            expect_live(heap, 0, 0);
            cr_assert_eq(run(view_of(heap), NULL, 1024, 0), LIMIT);
            assert_ok(ga_heap_reset(heap));
            /* Size classes own all regions, which are empty: the request takes them. */
            assert_ok(ga_alloc(heap, LIMIT, 0, &block));
            assert_ok(ga_free(heap, block));
            assert_ok(ga_trim(heap, 0));
        }
        assert_ok(ga_alloc(heap, LIMIT, 0, &block));
        assert_ok(ga_heap_reset(heap));
        expect_live(heap, 0, 0);
        assert_ok(ga_alloc(heap, LIMIT, 0, &other));
        cr_assert_eq(block, other);
        assert_ok(ga_free(heap, other));
        end(heap);
    }
}

Test(sized_blocks, sizes_and_alignments_that_are_refused)
{
    void *block = NULL;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    cr_assert_eq(ga_alloc(heap, LIMIT + 1, 0, &block), GA_ERR_SIZE);
    cr_assert_eq(ga_alloc(heap, (size_t)1 << 31, 0, &block), GA_ERR_SIZE);
    cr_assert_eq(ga_alloc(heap, ((size_t)1 << 32) + 16, 0, &block), GA_ERR_SIZE);
    cr_assert_neq(ga_alloc(heap, SIZE_MAX, 0, &block), GA_OK);
    assert_ok(ga_alloc(heap, 100, 16, &block));
    assert_ok(ga_free(heap, block));
    expect_live(heap, 0, 0);
    end(heap);
}

/* A request that the host cannot serve fails with an error, and nothing leaks. */
Test(sized_blocks, the_host_takes_the_last_block)
{
    void *blocks[16];
    uint32_t count = 0;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap("slab:unit=classes,capacity=128K/cuda");
    while (count < 16 && ga_alloc(heap, 16384, 0, &blocks[count]) == GA_OK) {
        count++;
    }
    cr_assert_eq(count, 8);
    assert_fails(ga_alloc(heap, 16384, 0, &blocks[8]), GA_ERR_MEMORY,
                 "slab: no more memory for 16384 bytes");
    assert_fails(ga_alloc(heap, 16, 0, &blocks[8]), GA_ERR_MEMORY,
                 "slab: no more memory for 16 bytes");
    while (count) {
        assert_ok(ga_free(heap, blocks[--count]));
    }
    assert_ok(ga_trim(heap, 0));
    assert_ok(ga_alloc(heap, 16, 0, &blocks[0]));
    assert_ok(ga_free(heap, blocks[0]));
    end(heap);
}

/* Kernels and the host allocate side by side; and reset. */
Test(sized_blocks, the_host_and_kernels_share)
{
    void *block, *other;
    begin(VMM_KERNELS_GROW);
    ga_heap *heap = open_heap(growing);
    assert_ok(ga_alloc(heap, 1000, 0, &block));
    cr_assert_eq(run(view_of(heap), NULL, 1024, 0), LIMIT - 1024);
    assert_ok(ga_alloc(heap, 1000, 0, &other));
    expect_live(heap, 2, 2048);
    assert_ok(ga_heap_reset(heap));
    expect_live(heap, 0, 0);
    cr_assert_eq(ga_free(heap, block), GA_ERR_POINTER);
    cr_assert_eq(run(view_of(heap), heap, 1024, 0), LIMIT);
    end(heap);
}
