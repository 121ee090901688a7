/* SPDX-License-Identifier: MIT
 *
 * Blocks of a vmm heap that other processes map, and the effect of each failing call on the way.
 * Here the other process is this one: the driver identifies the memory by its file descriptor.
 */
#include "backends/vmm/share.h"
#include "backends/vmm/vmm.h"
#include "runtime/heap.h"
#include "support/vmm_pieces.h"
#include "support/vmm_scene.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static size_t open_files(void)
{
    size_t count = 0;
    DIR *files = opendir("/proc/self/fd");
    cr_assert(files);
    while (readdir(files)) {
        count++;
    }
    closedir(files);
    return count;
}

static void check_guest(ga_heap *heap, char *block, size_t size)
{
    ga_vmm_pieces pieces;
    ga_vmm_pieces copy;
    ga_vmm_guest guest;
    size_t files = open_files();
    vmm_driver_counts before = vmm_driver_count();
    memset(block, 1, size);
    assert_ok(ga_vmm_pieces_collect(heap->backend, heap->state, block, size, &pieces));
    assert_ok(vmm_pieces_copy(&pieces, &copy));
    ga_vmm_pieces_drop(&pieces);
    assert_ok(ga_vmm_guest_open(&guest, 0, &copy));
    char *there = (char *)guest.base + copy.before;
    ga_vmm_pieces_drop(&copy);
    cr_assert(there != block && memcmp(there, block, size) == 0);
    memset(there, 2, size);
    cr_assert(block[0] == 2 && block[size - 1] == 2);
    cr_assert(ga_vmm_guest_close(&guest));
    vmm_driver_counts after = vmm_driver_count();
    cr_assert_eq(open_files(), files);
    cr_assert_eq(memcmp(&before, &after, sizeof before), 0, "something is left");
}

/* One chunk, several, and units of a sheet. */
Test(vmm_share, what_is_written_is_seen)
{
    static const char *const specs[] = {"vmm:share=fd", "vmm:share=fd,chunk=2M"};
    static const size_t sizes[] = {1, 1000, 300000, 2 * MIB, 5 * MIB + 1, 40 * MIB};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        ga_heap *heap = vmm_open(NULL, specs[s]);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            char *beside = vmm_take(heap, sizes[i]);
            char *block = vmm_take(heap, sizes[i]);
            memset(beside, 9, sizes[i]);
            check_guest(heap, block, sizes[i]);
            cr_assert(beside[0] == 9 && beside[sizes[i] - 1] == 9);
        }
        setenv("GPUALLOC_LOG", "error", 1); /* blocks are left */
        vmm_end(heap);
    }
}

/* A part of a block is its part of the chunks. */
Test(vmm_share, a_part_of_a_block)
{
    ga_heap *heap = vmm_open(NULL, "vmm:share=fd,chunk=2M");
    char *block = vmm_take(heap, 10 * MIB);
    ga_vmm_pieces pieces;
    assert_ok(ga_vmm_pieces_collect(heap->backend, heap->state, block + 3 * MIB, 2 * MIB, &pieces));
    cr_assert_eq(pieces.count, 2);
    cr_assert_eq(pieces.before, MIB);
    ga_vmm_pieces_drop(&pieces);
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
}

Test(vmm_share, an_open_mapping_stays)
{
    ga_heap *heap = vmm_open(NULL, "vmm:share=fd");
    char *block = vmm_take(heap, 4 * MIB);
    ga_vmm_pieces pieces;
    ga_vmm_guest guest;
    memset(block, 5, 4 * MIB);
    assert_ok(ga_vmm_pieces_collect(heap->backend, heap->state, block, 4 * MIB, &pieces));
    assert_ok(ga_vmm_guest_open(&guest, 0, &pieces));
    ga_vmm_pieces_drop(&pieces);
    assert_ok(ga_free(heap, block));
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(((char *)guest.base)[4 * MIB - 1], 5);
    cr_assert(ga_vmm_guest_close(&guest));
    vmm_end(heap);
}

Test(vmm_share, what_cannot_be_shared)
{
    ga_vmm_pieces pieces;
    vmm_driver_options none = {.no_fd = true};
    ga_heap *heap = vmm_open(NULL, "vmm");
    char *block = vmm_take(heap, MIB);
    assert_fails(ga_vmm_pieces_collect(heap->backend, heap->state, block, MIB, &pieces),
                 GA_ERR_UNSUPPORTED, "vmm: the heap was opened without share=fd");
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
    heap = vmm_open(NULL, "vmm:share=fd");
    block = vmm_take(heap, 8 * MIB);
    cr_assert_eq(ga_vmm_pieces_collect(heap->backend, heap->state, block, 8 * MIB + 1, &pieces),
                 GA_ERR_POINTER);
    cr_assert_eq(ga_vmm_pieces_collect(heap->backend, heap->state, block, 0, &pieces),
                 GA_ERR_POINTER);
    cr_assert_eq(ga_vmm_pieces_collect(heap->backend, heap->state, block - 1, 2, &pieces),
                 GA_ERR_POINTER);
    cr_assert_eq(ga_vmm_pieces_collect(heap->backend, heap->state, block, UINT64_MAX, &pieces),
                 GA_ERR_POINTER);
    assert_ok(ga_free(heap, block));
    cr_assert_eq(ga_vmm_pieces_collect(heap->backend, heap->state, block, 1, &pieces),
                 GA_ERR_POINTER);
    vmm_end(heap);
    vmm_driver_start(&none);
    cr_assert_eq(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:share=fd"), GA_ERR_DEVICE);
    cr_assert_neq(ga_heap_open(&heap, GA_PLACE_HOST, 0, "vmm:share=fd"), GA_OK);
    cr_assert_neq(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:share=all"), GA_OK);
    vmm_driver_stop();
}

Test(vmm_share, sizes_that_are_none)
{
    struct ga_vmm_piece list[2] = {{2 * MIB, -1}, {MIB, -1}};
    ga_vmm_pieces pieces = {.count = 2, .list = list};
    ga_vmm_guest guest;
    vmm_driver_start(NULL);
    cr_assert_eq(ga_vmm_guest_open(&guest, 0, &pieces), GA_ERR_ARGUMENT);
    list[1].size = 0;
    cr_assert_eq(ga_vmm_guest_open(&guest, 0, &pieces), GA_ERR_ARGUMENT);
    list[1].size = UINT64_MAX - 2 * MIB + 1;
    cr_assert_eq(ga_vmm_guest_open(&guest, 0, &pieces), GA_ERR_ARGUMENT);
    pieces.count = 0;
    cr_assert_eq(ga_vmm_guest_open(&guest, 0, &pieces), GA_ERR_ARGUMENT);
    pieces.count = 1;
    cr_assert_neq(ga_vmm_guest_open(&guest, 0, &pieces), GA_OK); /* no descriptor */
    vmm_assert_nothing_left();
    vmm_driver_stop();
}

static ga_status open_and_close(const ga_vmm_pieces *pieces, ga_vmm_guest *guest)
{
    ga_status status = ga_vmm_guest_open(guest, 0, pieces);
    ga_vmm_guest_close(guest);
    return status;
}

/* Every call of the driver, and `more` after it, fails once: afterwards nothing is left, on either
 * side. */
static void fail_everywhere(uint64_t more, int least)
{
    ga_heap *heap = vmm_open(NULL, "vmm:share=fd,chunk=2M");
    char *block = vmm_take(heap, 6 * MIB);
    size_t files = open_files();
    vmm_driver_counts before = vmm_driver_count();
    int failures = 0;
    for (uint64_t n = 1, done = 0; !done; n++) {
        ga_vmm_pieces pieces;
        ga_vmm_guest guest = {0};
        vmm_driver_fail_many(NULL, n, more, CUDA_ERROR_OUT_OF_MEMORY);
        ga_status status =
            ga_vmm_pieces_collect(heap->backend, heap->state, block, 6 * MIB, &pieces);
        if (status == GA_OK) {
            status = open_and_close(&pieces, &guest);
            ga_vmm_pieces_drop(&pieces);
        }
        failures += status != GA_OK;
        done = !vmm_driver_has_failed();
        vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
        cr_assert(ga_vmm_guest_close(&guest), "call %" PRIu64 ", then %" PRIu64, n, more);
        vmm_driver_counts after = vmm_driver_count();
        cr_assert_eq(memcmp(&before, &after, sizeof before), 0, "call %" PRIu64 ", then %" PRIu64,
                     n, more);
        cr_assert_eq(open_files(), files, "call %" PRIu64 ", then %" PRIu64, n, more);
    }
    cr_assert_gt(failures, least);
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
}

Test(vmm_share, calls_that_fail)
{
    setenv("GPUALLOC_LOG", "error", 1);
    fail_everywhere(0, 10);
}

Test(vmm_share, calls_that_fail_often)
{
    setenv("GPUALLOC_LOG", "error", 1);
    for (uint64_t more = 1; more < 20; more++) {
        fail_everywhere(more, 10);
    }
}

/* ---- network cards ------------------------------------------------------------------------ */

/* Returns true if network cards reach the block, by the driver's attributes of it. */
static bool cards_reach(const void *block)
{
    const ga_cuda_driver *driver;
    CUpointer_attribute wanted = CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE;
    int can = -1;
    void *value = &can;
    assert_ok(ga_cuda_driver_get(&driver));
    cr_assert_eq(driver->cuPointerGetAttributes(1, &wanted, &value, (CUdeviceptr)block), 0);
    cr_assert(can == 0 || can == 1);
    return can == 1;
}

static void check_cards(bool device_can, const char *spec, bool reach)
{
    ga_heap *heap = vmm_open(&(vmm_driver_options){.rdma = device_can}, spec);
    static const size_t sizes[] = {1, 300000, 2 * MIB, 40 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *block = vmm_take(heap, sizes[i]);
        cr_assert_eq(cards_reach(block), reach, "%s, %zu bytes", spec, sizes[i]);
        cr_assert_eq(cards_reach(block + sizes[i] - 1), reach);
        assert_ok(ga_free(heap, block));
    }
    vmm_end(heap);
}

Test(vmm_share, network_cards)
{
    check_cards(true, "vmm", false);
    check_cards(true, "vmm:rdma=off", false);
    check_cards(true, "vmm:rdma=on", true);
    check_cards(true, "vmm:rdma=on,share=fd,chunk=2M", true);
    check_cards(true, "vmm:rdma=auto", true);
    check_cards(true, "vmm:rdma=auto,share=fd", true);
    check_cards(false, "vmm:rdma=auto", false);
    check_cards(false, "vmm:rdma=auto,share=fd", false);
}

/* A device that cannot; a driver that refuses although its device reports support; the host. */
Test(vmm_share, network_cards_refused)
{
    ga_heap *heap;
    vmm_driver_start(NULL);
    assert_fails(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:rdma=on"), GA_ERR_DEVICE,
                 "vmm: device 0 cannot let network cards at mapped memory (GA_ARENA_RDMA)");
    vmm_driver_stop();
    vmm_driver_start(&(vmm_driver_options){.rdma = true});
    vmm_driver_fail("cuMemCreate", 1, CUDA_ERROR_NOT_SUPPORTED);
    cr_assert_eq(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:rdma=on"), GA_ERR_DEVICE);
    assert_ok(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:rdma=auto"));
    vmm_driver_fail("cuMemCreate", 1, CUDA_ERROR_NOT_SUPPORTED);
    void *without = vmm_take(heap, 40 * MIB);
    void *with = vmm_take(heap, 80 * MIB);
    cr_assert(!cards_reach(without) && cards_reach(with));
    vmm_driver_fail("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY); /* this is not a refusal */
    uint64_t before = vmm_driver_calls("cuMemCreate");
    void *none;
    cr_assert_eq(ga_alloc(heap, 300 * MIB, 0, &none), GA_ERR_MEMORY);
    cr_assert_eq(vmm_driver_calls("cuMemCreate"), before + 1);
    assert_ok(ga_free(heap, without));
    assert_ok(ga_free(heap, with));
    vmm_end(heap);
    cr_assert_neq(ga_heap_open(&heap, GA_PLACE_HOST, 0, "vmm:rdma=on"), GA_OK);
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "vmm:rdma=auto"));
    assert_ok(ga_heap_close(heap));
    assert_fails(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:rdma=yes"), GA_ERR_SPEC,
                 "vmm: rdma: expected one of off, on, auto, got \"yes\"");
}
