/* SPDX-License-Identifier: MIT
 *
 * The `slab` backend over parents that refuse, and for a device made of host memory.
 */
#include "support/refused_maps.h"
#include "support/slab_scene.h"

#include <inttypes.h>
#include <string.h>

/* ---- parents that refuse --------------------------------------------------------------------- */

/* The parent serves two superblocks and one block, and then refuses. */
Test(slab_faults, a_parent_that_fails_at_the_third_superblock)
{
    ga_heap *heap = open_host("slab:unit=1K,blocks=1/tight");
    static unsigned char *blocks[2048];
    void *none;
    tight_left = 2;
    for (int i = 0; i < 2048; i++) {
        blocks[i] = take(heap, 1024);
        memset(blocks[i], i, 1024);
    }
    for (int i = 0; i < 3; i++) {
        assert_fails_with(ga_alloc(heap, 1024, 0, &none), GA_ERR_MEMORY,
                          "tight: refused 1024 bytes");
    }
    for (int i = 0; i < 2048; i++) {
        cr_assert(blocks[i][0] == (unsigned char)i && blocks[i][1023] == (unsigned char)i,
                  "block %d", i);
    }
    assert_ok(ga_free(heap, blocks[7]));
    blocks[7] = take(heap, 1024);
    tight_left = 1; /* the parent serves another superblock */
    void *late = take(heap, 1024);
    cr_assert_eq(stats_of(heap).growths, 3);
    assert_ok(ga_free(heap, late));
    for (int i = 0; i < 2048; i++) {
        assert_ok(ga_free(heap, blocks[i]));
    }
    assert_ok(ga_heap_close(heap));
    cr_assert_eq(tight_live, 0, "%" PRId64 " blocks of the parent's left", tight_live);
}

/* One superblock is refused: that request goes to the parent, and the next ones grow again. */
Test(slab_faults, a_parent_that_fails_once)
{
    ga_heap *heap = open_host("slab:unit=1K,blocks=1/fail:nth=3/system");
    static void *blocks[4000];
    for (int i = 0; i < 4000; i++) {
        blocks[i] = take(heap, 1024);
        memset(blocks[i], i, 1024);
    }
    cr_assert_eq(stats_of(heap).growths, 4, "%" PRIu64, stats_of(heap).growths);
    for (int i = 0; i < 4000; i++) {
        cr_assert_eq(*(unsigned char *)blocks[i], (unsigned char)i, "block %d", i);
        assert_ok(ga_free(heap, blocks[i]));
    }
    assert_ok(ga_heap_close(heap));
}

Test(slab_faults, a_parent_without_memory)
{
    ga_heap *heap = open_host("slab/fail:nth=1,every=yes/system");
    void *none;
    assert_fails_with(ga_alloc(heap, 100, 0, &none), GA_ERR_MEMORY, "fail: refused");
    assert_fails_with(ga_alloc(heap, 100000, 0, &none), GA_ERR_MEMORY, "fail: refused");
    assert_fails_with(ga_alloc(heap, 100, 64, &none), GA_ERR_MEMORY, "fail: refused");
    assert_ok(ga_heap_close(heap));
    assert_fails_with(
        ga_heap_open(&heap, GA_PLACE_HOST, 0, "slab:unit=128,capacity=1M/fail:nth=1/system"),
        GA_ERR_MEMORY, "slab: capacity: cannot take 1048576 bytes: fail: refused");
}

/* ---- a device made of host memory --------------------------------------------------------- */

Test(slab_faults, units_of_device_memory)
{
    ga_heap *heap = open_at(GA_PLACE_DEVICE, "slab/tight");
    static void *blocks[HELD];
    tight_left = 1000;
    for (size_t i = 0; i < HELD; i++) {
        blocks[i] = take(heap, 1 + i * 37 % 40000);
        cr_assert_eq((uintptr_t)blocks[i] % 256, 0, "%zu: %p", i, blocks[i]);
    }
    for (size_t i = 0; i < HELD; i++) {
        assert_ok(ga_free(heap, blocks[i]));
    }
    cr_assert_eq(ga_free(heap, blocks[0]), GA_ERR_POINTER);
    assert_ok(ga_heap_close(heap));
    cr_assert_eq(tight_live, 0, "%" PRId64 " blocks of the parent's left", tight_live);
}

Test(slab_faults, checks_for_device_memory)
{
    ga_heap *heap = open_at(GA_PLACE_DEVICE, "slab:unit=512,check=full/tight");
    tight_left = 1;
    char *block = take(heap, 100);
    memset(block, 5, 512);
    assert_ok(ga_free(heap, block));
    cr_assert_eq(block[0], 5, "the host must not write to a device's memory");
    cr_assert_eq(ga_free(heap, block), GA_ERR_POINTER);
    cr_assert_eq(faults(heap, GA_SLAB_DOUBLE_FREE), 1);
    assert_ok(ga_heap_close(heap));
}

/* ---- a set of starts that has no memory ------------------------------------------------------ */

/* The parent could move the block, but the heap could not record its new address. */
Test(slab_faults, a_move_that_cannot_be_noted_does_not_happen)
{
    ga_heap *heap = open_host("slab/system");
    unsigned char *block = take(heap, 1 << 20);
    void *moved = NULL;
    memset(block, 7, 1 << 20);
    refuse_maps(true);
    assert_fails_with(ga_realloc(heap, block, 64 << 20, 0, &moved), GA_ERR_MEMORY,
                      "slab: no memory to remember where");
    cr_assert(maps_refused > 0 && moved == block && ga_owns(heap, block));
    assert_ok(ga_realloc(heap, block, 1 << 19, 0, &moved)); /* large enough as it is */
    cr_assert_eq(moved, block);
    refuse_maps(false);
    assert_ok(ga_realloc(heap, block, 64 << 20, 0, &moved));
    cr_assert(((unsigned char *)moved)[(1 << 20) - 1] == 7);
    cr_assert(ga_owns(heap, moved));
    assert_ok(ga_free(heap, moved));
    cr_assert_eq(stats_of(heap).live_bytes, 0);
    assert_ok(ga_heap_close(heap));
}

/* The parent's cached memory is freed as well; some parents cache none. */
Test(slab_faults, a_trim_reaches_the_parent)
{
    static const char *const specs[] = {"slab/tight", "slab:unit=128/tight",
                                        "fail:nth=0/slab/tight", "hazard/slab/tight"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        ga_heap *heap = open_host(specs[i]);
        tight_trims = 0;
        assert_ok(ga_trim(heap, 4096));
        cr_assert_eq(tight_trims, 1, "%s", specs[i]);
        assert_ok(ga_heap_close(heap));
    }
    ga_heap *device = open_at(GA_PLACE_DEVICE, "slab/tight");
    tight_trims = 0;
    assert_ok(ga_trim(device, 4096));
    cr_assert_eq(tight_trims, 1);
    assert_ok(ga_heap_close(device));
    ga_heap *without = open_host("slab/null");
    assert_ok(ga_trim(without, 4096));
    assert_ok(ga_heap_close(without));
}
