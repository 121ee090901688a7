/* SPDX-License-Identifier: MIT
 *
 * Heaps with register=on, whose blocks communication libraries register: to the driver each block
 * is one allocation, shared and accessible as ncclMemAlloc() makes it. And share=fabric.
 */
#include "support/random.h"
#include "support/scene.h"
#include "support/vmm_recover.h"
#include "support/vmm_scene.h"

#include "backends/vmm/share.h"
#include "runtime/heap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FD = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    FABRIC = CU_MEM_HANDLE_TYPE_FABRIC,
    BLOCKS = 24
};

static const vmm_driver_options all_of_it = {
    .devices = 4, .fabric = true, .rdma = true, .recommended = 4 * MIB, .memory = 4 * GIB};

/* ---- what the driver answers ------------------------------------------------------------- */

/* The allocation behind the block is the block. */
static void check_is_one_allocation(const void *block, size_t size, size_t granule)
{
    vmm_driver_memory memory = vmm_driver_memory_at(block);
    cr_assert_eq(memory.start, (uintptr_t)block);
    cr_assert_eq(memory.size, (size + granule - 1) / granule * granule, "%zu bytes of %zu",
                 memory.size, size);
}

Test(vmm_register, a_block_is_as_nccl_makes_it)
{
    static const size_t sizes[] = {1, 4 * MIB, 5 * MIB, 300 * MIB, 1200 * MIB};
    ga_heap *heap = vmm_open(&all_of_it, "vmm:register=on");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *block = vmm_take(heap, sizes[i]);
        vmm_driver_memory memory = vmm_driver_memory_at(block);
        check_is_one_allocation(block, sizes[i], 4 * MIB);
        cr_assert_eq(memory.types, FD | FABRIC);
        cr_assert(memory.rdma);
        cr_assert(vmm_driver_accessible(block, sizes[i], 0xf));
        cr_assert_eq((uintptr_t)block % (4 * MIB), 0);
        assert_ok(ga_free(heap, block));
    }
    vmm_end(heap);
}

/* As UCX, and MPI over it, export a block for network cards, and NVSHMEM retains it. */
Test(vmm_register, a_block_for_other_libraries)
{
    ga_heap *heap = vmm_open(&all_of_it, "vmm:register=on");
    char *block = vmm_take(heap, 5 * MIB);
    int file = -1;
    CUmemGenericAllocationHandle handle;
    cr_assert_eq(vmm_driver_dma_buf(&file, (CUdeviceptr)block, 5 * MIB), CUDA_SUCCESS);
    close(file);
    cr_assert_eq(vmm_driver_retain(&handle, (CUdeviceptr)block), CUDA_SUCCESS);
    assert_ok(ga_free(heap, block));
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(vmm_driver_count().chunk_bytes, 8 * MIB, "the library's memory went with ours");
    const ga_cuda_driver *driver;
    assert_ok(ga_cuda_driver_get(&driver));
    cr_assert_eq(driver->cuMemRelease(handle), CUDA_SUCCESS);
    vmm_end(heap);
}

/* A device that can do less gets what it can. */
Test(vmm_register, a_block_of_a_lesser_device)
{
    ga_heap *heap =
        vmm_open(&(vmm_driver_options){.devices = 2, .no_peers = true}, "vmm:register=on");
    char *block = vmm_take(heap, 3 * MIB);
    check_is_one_allocation(block, 3 * MIB, 2 * MIB);
    cr_assert_eq(vmm_driver_memory_at(block).types, FD);
    cr_assert_not(vmm_driver_memory_at(block).rdma);
    cr_assert(vmm_driver_accessible(block, 3 * MIB, 1));
    cr_assert_not(vmm_driver_accessible(block, 3 * MIB, 2));
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
}

/* The driver refuses access to the second of three peers. */
Test(vmm_register, a_peer_that_is_refused_is_left_out)
{
    ga_heap *heap;
    vmm_driver_start(&all_of_it);
    vmm_driver_fail_many("cuMemSetAccess", 3, 0, CUDA_ERROR_INVALID_VALUE);
    assert_ok(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:register=on"));
    cr_assert(vmm_driver_has_failed());
    char *block = vmm_take(heap, MIB);
    cr_assert(vmm_driver_accessible(block, MIB, 0xb));
    cr_assert_not(vmm_driver_accessible(block, MIB, 4));
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
}

/* Opening creates no context on a peer: those take memory of a device that others may use. */
Test(vmm_register, peers_get_no_context)
{
    ga_heap *heap;
    vmm_driver_start(&all_of_it);
    assert_ok(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm"));
    uint64_t retained = vmm_driver_calls("cuDevicePrimaryCtxRetain");
    assert_ok(ga_heap_close(heap));
    assert_ok(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:register=on"));
    cr_assert_eq(vmm_driver_calls("cuDevicePrimaryCtxRetain"), retained);
    vmm_end(heap);
}

/* ---- blocks over time -------------------------------------------------------------------- */

/* Sizes that the pool would serve from parts of freed runs, or several of them, without
 * register=on. */
Test(vmm_register, a_block_is_one_allocation_whatever_was_freed)
{
    void *blocks[BLOCKS] = {0};
    size_t sizes[BLOCKS] = {0};
    uint64_t seed = 47;
    ga_heap *heap = vmm_open(&all_of_it, "vmm:register=on,cache=wide,free=now,limit=2G");
    for (int step = 0; step < 2000; step++) {
        size_t i = random_below(&seed, BLOCKS);
        if (blocks[i]) {
            assert_ok(ga_free(heap, blocks[i]));
            blocks[i] = NULL;
        } else if (ga_alloc(heap, sizes[i] = (1 + random_below(&seed, 60)) * 3 * MIB, 0,
                            &blocks[i]) != GA_OK) {
            blocks[i] = NULL; /* the limit */
        }
        for (size_t b = 0; b < BLOCKS; b++) {
            if (blocks[b]) {
                check_is_one_allocation(blocks[b], sizes[b], 4 * MIB);
            }
        }
    }
    for (size_t b = 0; b < BLOCKS; b++) {
        assert_ok(blocks[b] ? ga_free(heap, blocks[b]) : GA_OK);
    }
    vmm_end(heap);
}

/* A freed block serves a request of its size without a driver call, and no other. */
Test(vmm_register, a_freed_block_serves_its_size)
{
    ga_heap *heap = vmm_open(NULL, "vmm:register=on,free=now");
    void *large = vmm_take(heap, 40 * MIB);
    assert_ok(ga_free(heap, large));
    uint64_t calls = vmm_driver_calls(NULL);
    void *again = vmm_take(heap, 40 * MIB - 5);
    cr_assert_eq(again, large);
    cr_assert_eq(vmm_driver_calls(NULL), calls);
    assert_ok(ga_free(heap, again));
    void *small = vmm_take(heap, 38 * MIB); /* the pool would waste 2 MiB for it */
    cr_assert_neq(small, large);
    assert_ok(ga_free(heap, small));
    vmm_end(heap);
}

/* What is live stays mapped as it is through a trim, other requests and lack of memory. */
Test(vmm_register, a_live_block_is_not_remapped)
{
    ga_heap *heap = vmm_open(NULL, "vmm:register=on,free=now,cache=0");
    char *block = vmm_take(heap, 100 * MIB);
    memset(block, 7, 100 * MIB);
    void *beside = vmm_take(heap, 800 * MIB);
    assert_ok(ga_free(heap, beside));
    assert_ok(ga_trim(heap, 0));
    void *none = NULL;
    cr_assert_eq(ga_alloc(heap, 1000 * MIB, 0, &none), GA_ERR_MEMORY);
    void *rest = vmm_take(heap, 900 * MIB);
    check_is_one_allocation(block, 100 * MIB, 2 * MIB);
    cr_assert(block[0] == 7 && block[100 * MIB - 1] == 7);
    assert_ok(ga_free(heap, rest));
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
}

/* Free blocks of other sizes go before a request fails. */
Test(vmm_register, memory_of_other_sizes_is_released)
{
    ga_heap *heap = vmm_open(NULL, "vmm:register=on,free=now,cache=wide");
    void *blocks[3];
    vmm_take_many(heap, blocks, 3, 300 * MIB);
    vmm_free_many(heap, blocks, 3);
    void *block = vmm_take(heap, 1000 * MIB);
    check_is_one_allocation(block, 1000 * MIB, 2 * MIB);
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
}

Test(vmm_register, a_block_does_not_grow_in_place)
{
    ga_heap *heap = vmm_open(NULL, "vmm:register=on,free=now");
    char *block = vmm_take(heap, 4 * MIB);
    block[4 * MIB - 1] = 3;
    assert_ok(ga_grow(heap, block, 4 * MIB));
    assert_fails(ga_grow(heap, block, 5 * MIB), GA_ERR_CANNOT_GROW,
                 "vmm: with register=on its 4194304 bytes are one chunk");
    void *moved = NULL;
    assert_ok(ga_realloc(heap, block, 9 * MIB, 0, &moved));
    check_is_one_allocation(moved, 9 * MIB, 2 * MIB);
    cr_assert_eq(((char *)moved)[4 * MIB - 1], 3);
    assert_ok(ga_realloc(heap, moved, 6 * MIB, 0, &moved));
    check_is_one_allocation(moved, 9 * MIB, 2 * MIB);
    assert_ok(ga_free(heap, moved));
    vmm_end(heap);
}

/* A block that a stream still uses serves that stream at once, and others after it. */
Test(vmm_register, streams)
{
    ga_heap *heap = vmm_open(NULL, "vmm:register=on,limit=100M");
    CUstream stream = (CUstream)(uintptr_t)1; /* the legacy stream */
    void *block;
    void *again;
    assert_ok(ga_alloc_on(heap, 60 * MIB, 0, stream, &block));
    vmm_driver_hold(NULL);
    assert_ok(ga_free_on(heap, block, stream));
    assert_ok(ga_alloc_on(heap, 60 * MIB, 0, stream, &again));
    cr_assert_eq(again, block);
    assert_ok(ga_free_on(heap, again, stream));
    assert_ok(ga_alloc(heap, 80 * MIB, 0, &again)); /* the limit makes it wait */
    check_is_one_allocation(again, 80 * MIB, 2 * MIB);
    assert_ok(ga_free(heap, again));
    vmm_driver_let_go(NULL);
    vmm_end(heap);
}

/* Memory that the driver refuses to release stays; a later block is not made of it. */
Test(vmm_register, refused_releases)
{
    ga_heap *heap = vmm_open(NULL, "vmm:register=on,free=now");
    void *block = vmm_take(heap, 4 * MIB);
    assert_ok(ga_free(heap, block));
    vmm_driver_fail_many("cuMemRelease", 1, 1, CUDA_ERROR_UNKNOWN);
    assert_ok(ga_trim(heap, 0));
    cr_assert(vmm_recover());
    block = vmm_take(heap, 10 * MIB);
    check_is_one_allocation(block, 10 * MIB, 2 * MIB);
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
}

/* ---- opening ----------------------------------------------------------------------------- */

/* The n-th call fails, for all n: the heap opens or says why, and nothing is left. */
Test(vmm_register, a_call_fails_at_opening)
{
    setenv("GPUALLOC_LOG", "error", 1);
    for (uint64_t n = 1, more = 1; more; n++) {
        ga_heap *heap = NULL;
        vmm_driver_start(&all_of_it);
        vmm_driver_fail(NULL, n, CUDA_ERROR_UNKNOWN);
        ga_status status = ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:register=on");
        more = vmm_recover();
        if (status == GA_OK) {
            void *block = vmm_take(heap, 4 * MIB);
            check_is_one_allocation(block, 4 * MIB, 4 * MIB);
            assert_ok(ga_free(heap, block));
            assert_ok(ga_heap_close(heap));
        } else {
            cr_assert(more && strlen(ga_error_text()));
        }
        vmm_assert_nothing_left();
        vmm_driver_stop();
    }
}

Test(vmm_register, opens_on_a_full_device)
{
    ga_heap *heap;
    vmm_driver_start(&all_of_it);
    vmm_driver_take(0, 4 * GIB);
    assert_ok(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:register=on"));
    vmm_driver_take(0, 0);
    void *block = vmm_take(heap, MIB);
    cr_assert(vmm_driver_accessible(block, MIB, 1));
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
}

Test(vmm_register, what_cannot_be)
{
    ga_heap *heap;
    vmm_driver_start(&(vmm_driver_options){.no_fd = true});
    assert_fails(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:register=on"), GA_ERR_DEVICE,
                 "vmm: device 0 cannot share memory by file descriptors (GA_ARENA_SHARE_FD)");
    cr_assert_eq(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:register=on,rdma=on"), GA_ERR_DEVICE);
    cr_assert_neq(ga_heap_open(&heap, GA_PLACE_HOST, 0, "vmm:register=on"), GA_OK);
    cr_assert_eq(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:register=maybe"), GA_ERR_SPEC);
    vmm_assert_nothing_left();
    vmm_driver_stop();
}

/* ---- share=fabric ------------------------------------------------------------------------ */

static int types_of_a_block(const vmm_driver_options *options, const char *spec)
{
    ga_heap *heap = vmm_open(options, spec);
    void *block = vmm_take(heap, 4 * MIB);
    int types = vmm_driver_memory_at(block).types;
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
    return types;
}

Test(vmm_register, a_fabric)
{
    scene_capture_begin();
    cr_assert_eq(types_of_a_block(&all_of_it, "vmm:share=fabric"), FD | FABRIC);
    cr_assert_eq(types_of_a_block(&all_of_it, "vmm:share=auto,register=on"), FD | FABRIC);
    cr_assert_eq(types_of_a_block(&all_of_it, "vmm:share=fd,register=on"), FD);
    cr_assert_eq(types_of_a_block(&all_of_it, "vmm:share=auto"), FD);
    cr_assert_str_eq(scene_capture_end(), "");
}

/* One line says why there are file descriptors only, if the spec names the fabric. */
Test(vmm_register, no_fabric)
{
    vmm_driver_options lesser = all_of_it;
    lesser.fabric = false;
    scene_capture_begin();
    cr_assert_eq(types_of_a_block(&lesser, "vmm:share=fabric"), FD);
    cr_assert_str_eq(scene_capture_end(),
                     "gpualloc: vmm: no memory for a fabric, going on with file descriptors: "
                     "device 0 cannot share memory over a fabric (GA_ARENA_SHARE_FABRIC)\n");
    scene_capture_begin();
    cr_assert_eq(types_of_a_block(&lesser, "vmm:register=on"), FD);
    cr_assert_str_eq(scene_capture_end(), "");
}

/* The device could, but its machine has no fabric: the driver refuses the first chunk. */
Test(vmm_register, no_fabric_daemon)
{
    vmm_driver_options lesser = all_of_it;
    lesser.no_fabric_daemon = true;
    scene_capture_begin();
    cr_assert_eq(types_of_a_block(&lesser, "vmm:share=fabric"), FD);
    const char *told = scene_capture_end();
    cr_assert(strstr(told, "going on with file descriptors: the driver refuses memory"), "%s",
              told);
    cr_assert_eq(strchr(told, '\n'), told + strlen(told) - 1);
    cr_assert_eq(types_of_a_block(&lesser, "vmm:register=on"), FD);
}

/* Other processes map blocks of both kinds of handles by their file descriptors. */
Test(vmm_register, a_guest)
{
    ga_heap *heap = vmm_open(&all_of_it, "vmm:register=on");
    char *block = vmm_take(heap, 9 * MIB);
    ga_vmm_pieces pieces;
    ga_vmm_guest guest;
    memset(block, 5, 9 * MIB);
    assert_ok(ga_vmm_pieces_collect(heap->backend, heap->state, block, 9 * MIB, &pieces));
    cr_assert(pieces.count == 1 && pieces.before == 0);
    assert_ok(ga_vmm_guest_open(&guest, 0, &pieces));
    ga_vmm_pieces_drop(&pieces);
    cr_assert_eq(((char *)guest.base)[9 * MIB - 1], 5);
    cr_assert(ga_vmm_guest_close(&guest));
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
}
