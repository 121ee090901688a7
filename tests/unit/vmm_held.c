/* SPDX-License-Identifier: MIT
 *
 * The memory that the vmm backend holds, on a device made of host memory: none is lost to the sizes
 * of blocks; the cache, limits, and memory that grows under kernels; a device that is full.
 */
#include "platform/machine.h"
#include "support/expect.h"
#include "support/random.h"
#include "support/sanitized.h"
#include "support/vmm_scene.h"

#include <gpualloc/backend.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- no fragmentation -------------------------------------------------------------------- */

/* Fill `total` bytes with blocks of the two sizes alternately, free every second, and request one
 * block of the free memory's size. */
static void fill_and_ask(size_t first, size_t second, size_t total)
{
    static void *blocks[4096];
    ga_heap *heap = vmm_open(&(vmm_driver_options){.memory = GIB}, "vmm");
    size_t count = 0;
    size_t used = 0;
    size_t freed = 0;
    while (used + first + second <= total) {
        blocks[count++] = vmm_take(heap, first);
        blocks[count++] = vmm_take(heap, second);
        used += first + second;
    }
    for (size_t i = 0; i < count; i += 2) {
        assert_ok(ga_free(heap, blocks[i]));
        freed += first;
    }
    size_t all = (GIB - used + freed) / (2 * MIB) * (2 * MIB);
    void *block;
    size_t slack = first % (2 * MIB) ? 16 * MIB : 0; /* the last run of a class is not full */
    assert_ok(ga_alloc(heap, all - slack, 0, &block));
    assert_ok(ga_free(heap, block));
    for (size_t i = 1; i < count; i += 2) {
        assert_ok(ga_free(heap, blocks[i]));
    }
    vmm_end(heap);
}

Test(vmm_held, all_that_was_freed_can_be_had_in_one_block)
{
    fill_and_ask(8 * MIB, 8 * MIB, GIB);
    fill_and_ask(8 * MIB, 24 * MIB, GIB / 10 * 9);
    fill_and_ask(24 * MIB, 8 * MIB, GIB / 10 * 9);
    fill_and_ask(24 * MIB, 72 * MIB, GIB / 10 * 9);
    fill_and_ask(512 << 10, 1536 << 10, GIB / 10 * 9);
    fill_and_ask(1536 << 10, 512 << 10, GIB / 10 * 9);
}

Test(vmm_held, nothing_is_lost_over_many_sizes)
{
    ga_heap *heap = vmm_open(&(vmm_driver_options){.memory = 256 * MIB}, "vmm");
    for (size_t size = 2 * MIB; size <= 256 * MIB; size += 2 * MIB) {
        void *block = vmm_take(heap, size);
        assert_ok(ga_free(heap, block));
    }
    void *all = vmm_take(heap, 256 * MIB);
    void *more;
    assert_fails_with(ga_alloc(heap, 1, 0, &more), GA_ERR_MEMORY, "vmm: no block of 1 bytes: ");
    assert_ok(ga_free(heap, all));
    vmm_end(heap);
}

/* ---- held memory -------------------------------------------------------------------------- */

Test(vmm_held, the_cache_stays_near_what_was_in_use_at_once)
{
    ga_heap *heap = vmm_open(&(vmm_driver_options){.memory = 4 * GIB}, "vmm");
    for (size_t round = 0; round < 20; round++) {
        void *blocks[10];
        vmm_take_many(heap, blocks, 10, (190 + round) * MIB);
        vmm_free_many(heap, blocks, 10);
        uint64_t live = 10 * (190 + round) * MIB;
        cr_assert_leq(vmm_held(heap), live + live / 20);
    }
    vmm_end(heap);
}

Test(vmm_held, cache_of_a_size)
{
    ga_heap *heap = vmm_open(NULL, "vmm:cache=16M");
    void *first = vmm_take(heap, 8 * MIB);
    void *second = vmm_take(heap, 16 * MIB);
    assert_ok(ga_free(heap, first));
    assert_ok(ga_free(heap, second));
    void *third = vmm_take(heap, 32 * MIB);
    cr_assert_leq(vmm_held(heap), 48 * MIB);
    assert_ok(ga_free(heap, third));
    vmm_end(heap);
}

Test(vmm_held, what_has_long_been_free_goes_first)
{
    ga_heap *heap = vmm_open(NULL, "vmm:free=now");
    void *old = vmm_take(heap, 16 * MIB);
    void *other = vmm_take(heap, 16 * MIB);
    assert_ok(ga_free(heap, old));
    assert_ok(ga_free(heap, other));
    assert_ok(ga_trim(heap, 16 * MIB));
    uint64_t calls = vmm_driver_calls(NULL);
    cr_assert_eq(vmm_take(heap, 16 * MIB), other);
    cr_assert_eq(vmm_driver_calls(NULL), calls);
    assert_ok(ga_free(heap, other));
    vmm_end(heap);
}

/* Memory right below the new block is unmapped for it. */
Test(vmm_held, a_neighbour_makes_way)
{
    ga_heap *heap = vmm_open(NULL, "vmm:limit=64M,free=now");
    char *large = vmm_take(heap, 64 * MIB);
    assert_ok(ga_free(heap, large));
    char *small = vmm_take(heap, 8 * MIB);
    cr_assert_eq(small, large + 64 * MIB);
    cr_assert_eq(vmm_held(heap), 8 * MIB);
    memset(small, 1, 8 * MIB);
    assert_ok(ga_free(heap, small));
    vmm_end(heap);
}

Test(vmm_held, trim_keeps_what_it_is_told)
{
    ga_heap *heap = vmm_open(NULL, "vmm");
    void *blocks[8];
    vmm_take_many(heap, blocks, 8, 8 * MIB);
    vmm_free_many(heap, blocks + 1, 7);
    assert_ok(ga_trim(heap, 16 * MIB));
    cr_assert_eq(vmm_held(heap), 24 * MIB);
    cr_assert_eq(vmm_driver_count().mapped_bytes, 24 * MIB);
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(vmm_held(heap), 8 * MIB);
    assert_ok(ga_free(heap, blocks[0]));
    vmm_end(heap);
}

Test(vmm_held, limits)
{
    ga_heap *heap = vmm_open(NULL, "vmm:limit=20M,cache=0");
    void *block = vmm_take(heap, 16 * MIB);
    void *more;
    assert_fails(ga_alloc(heap, 6 * MIB, 0, &more), GA_ERR_MEMORY,
                 "vmm: no block of 6291456 bytes: the limit is 20971520 bytes, and 16777216 are in "
                 "use");
    assert_fails(ga_alloc(heap, 32 * MIB, 0, &more), GA_ERR_MEMORY,
                 "vmm: no block of 33554432 bytes: the limit is 20971520 bytes");
    assert_fails_with(ga_grow(heap, block, 24 * MIB), GA_ERR_MEMORY, "vmm: the limit is ");
    assert_ok(ga_free(heap, block));
    block = vmm_take(heap, 20 * MIB);
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
    vmm_driver_start(NULL);
    assert_fails(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:limit=1M"), GA_ERR_SPEC,
                 "vmm: limit: expected at least 2097152 bytes, the smallest chunk, got 1048576");
    assert_fails_with(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:chunk=1M"), GA_ERR_SPEC,
                      "vmm: chunk: ");
    assert_fails_with(ga_heap_open(&heap, GA_PLACE_DEVICE, 7, "vmm"), GA_ERR_DEVICE, "vmm: ");
    vmm_driver_stop();
}

Test(vmm_held, addresses_that_run_out_and_a_device_without_them)
{
    ga_heap *heap = vmm_open(&(vmm_driver_options){.addresses = 8 * GIB}, "vmm:reserve=64M");
    void *blocks[16];
    vmm_take_many(heap, blocks, 16, 48 * MIB);
    cr_assert_eq(vmm_driver_count().ranges, 16);
    void *large;
    assert_ok(ga_alloc(heap, 200 * MIB, 0, &large));
    vmm_free_many(heap, blocks, 16);
    assert_ok(ga_free(heap, large));
    vmm_end(heap);
    vmm_driver_start(&(vmm_driver_options){.no_vmm = true});
    assert_fails(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm"), GA_ERR_DEVICE,
                 "vmm: device 0 cannot map memory piece by piece");
    vmm_driver_stop();
}

Test(vmm_held, another_process_takes_the_memory)
{
    ga_heap *heap = vmm_open(NULL, "vmm");
    void *block;
    vmm_driver_take(0, GIB - 16 * MIB);
    assert_fails_with(ga_alloc(heap, 32 * MIB, 0, &block), GA_ERR_MEMORY,
                      "vmm: no block of 33554432 bytes: ");
    block = vmm_take(heap, 16 * MIB);
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
}

/* ---- cache= holds after each free ----------------------------------------------------------- */

Test(vmm_held, no_cache_gives_back_at_once)
{
    ga_heap *heap = vmm_open(NULL, "vmm:cache=0");
    void *large = vmm_take(heap, 400 * MIB);
    void *small = vmm_take(heap, 1000);
    assert_ok(ga_free(heap, large));
    cr_assert_leq(vmm_driver_count().chunk_bytes, 32 * MIB);
    assert_ok(ga_free(heap, small));
    cr_assert_eq(vmm_driver_count().chunk_bytes, 0);
    cr_assert_eq(vmm_held(heap), 0);
    vmm_end(heap);
}

Test(vmm_held, what_was_freed_first_is_given_back_first)
{
    void *blocks[8];
    ga_heap *heap = vmm_open(NULL, "vmm:cache=16M,free=now");
    vmm_take_many(heap, blocks, 8, 8 * MIB);
    for (size_t i = 0; i < 8; i++) {
        assert_ok(ga_free(heap, blocks[i]));
        size_t live = (7 - i) * 8 * MIB;
        cr_assert_eq(vmm_driver_count().chunk_bytes, live + (i ? 16 : 8) * MIB, "free %zu", i);
    }
    uint64_t calls = vmm_driver_calls(NULL);
    void *again[2] = {vmm_take(heap, 8 * MIB), vmm_take(heap, 8 * MIB)};
    cr_assert(again[0] == blocks[6] || again[0] == blocks[7]);
    cr_assert(again[1] == blocks[6] || again[1] == blocks[7]);
    cr_assert_eq(vmm_driver_calls(NULL), calls);
    vmm_free_many(heap, again, 2);
    vmm_end(heap);
}

/* Twenty of them, so that the stream uses more than one call skips. */
Test(vmm_held, memory_of_streams_is_given_back_once_they_are_done)
{
    void *blocks[20];
    CUstream stream = NULL;
    ga_heap *heap = vmm_open(NULL, "vmm:cache=4M,free=now");
    ga_cuda_scope scope;
    assert_ok(ga_cuda_enter(&scope, 0));
    cr_assert_eq(scope.driver->cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    vmm_take_many(heap, blocks, 20, 4 * MIB);
    void *other = vmm_take(heap, 32 * MIB);
    vmm_driver_hold(stream);
    for (size_t i = 0; i < 20; i++) {
        assert_ok(ga_free_on(heap, blocks[i], stream));
    }
    assert_ok(ga_free(heap, other));
    cr_assert_geq(vmm_driver_count().chunk_bytes, 80 * MIB);
    vmm_driver_let_go(stream);
    other = vmm_take(heap, 1000);
    cr_assert_leq(vmm_driver_count().chunk_bytes, 4 * MIB + 32 * MIB);
    assert_ok(ga_free(heap, other));
    cr_assert_leq(vmm_driver_count().chunk_bytes, 4 * MIB);
    scope.driver->cuStreamDestroy(stream);
    ga_cuda_leave(&scope);
    vmm_end(heap);
}

/* The free has succeeded all the same, and a later one releases the memory that the driver kept. */
Test(vmm_held, a_driver_that_refuses_to_unmap_is_asked_again)
{
    static const char *const calls[] = {"cuMemUnmap", "cuMemRelease"};
    for (size_t i = 0; i < 2; i++) {
        ga_heap *heap = vmm_open(NULL, "vmm:cache=0,free=now");
        void *first = vmm_take(heap, 32 * MIB);
        void *second = vmm_take(heap, 16 * MIB);
        void *third = vmm_take(heap, 16 * MIB);
        vmm_driver_fail_many(calls[i], 1, 1, CUDA_ERROR_UNKNOWN); /* the driver is called twice */
        assert_ok(ga_free(heap, first));
        cr_assert(vmm_driver_has_failed());
        cr_assert_eq(vmm_held(heap), 64 * MIB, "%s", calls[i]);
        assert_ok(ga_free(heap, second));
        assert_ok(ga_free(heap, third));
        cr_assert_eq(vmm_held(heap), 0, "%s", calls[i]);
        vmm_end(heap);
    }
}

Test(vmm_held, a_block_made_shorter_gives_back_its_end)
{
    ga_heap *heap = vmm_open(NULL, "vmm:cache=0");
    void *block = vmm_take(heap, 256 * MIB);
    void *shorter = NULL;
    assert_ok(ga_realloc(heap, block, 100 * MIB, 0, &shorter));
    cr_assert_eq(shorter, block);
    cr_assert_eq(ga_usable_size(heap, block), 128 * MIB); /* two of four chunks */
    cr_assert_eq(vmm_driver_count().chunk_bytes, 128 * MIB);
    assert_ok(ga_realloc(heap, block, 8 * MIB, 0, &shorter));
    cr_assert_eq(vmm_driver_count().chunk_bytes, 8 * MIB);
    assert_ok(ga_free(heap, shorter));
    cr_assert_eq(vmm_driver_count().chunk_bytes, 0);
    vmm_end(heap);
}

/* ---- decay= -------------------------------------------------------------------------------- */

Test(vmm_held, unused_memory_goes_after_a_time)
{
    ga_heap *heap = vmm_open(NULL, "vmm:decay=500,free=now");
    void *large = vmm_take(heap, 400 * MIB);
    void *small = vmm_take(heap, 1000);
    assert_ok(ga_free(heap, large));
    assert_ok(ga_free(heap, small));
    cr_assert_geq(vmm_driver_count().chunk_bytes, 400 * MIB);
    usleep(650000);
    assert_ok(ga_free(heap, vmm_take(heap, 32 * MIB)));
    cr_assert_leq(vmm_driver_count().chunk_bytes, 128 * MIB);
    usleep(650000);
    cr_assert_eq(vmm_held(heap), 0);
    vmm_end(heap);
}

/* Also a unit that waits for a stream, and that no request would check otherwise. */
Test(vmm_held, memory_of_streams_goes_once_they_are_done)
{
    CUstream stream = NULL;
    ga_cuda_scope scope;
    ga_heap *heap = vmm_open(NULL, "vmm:decay=60,free=now");
    assert_ok(ga_cuda_enter(&scope, 0));
    cr_assert_eq(scope.driver->cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    void *large = vmm_take(heap, 64 * MIB);
    void *small = vmm_take(heap, 1000);
    vmm_driver_hold(stream);
    assert_ok(ga_free_on(heap, large, stream));
    assert_ok(ga_free_on(heap, small, stream));
    usleep(100000);
    cr_assert_geq(vmm_held(heap), 64 * MIB);
    vmm_driver_let_go(stream);
    usleep(100000);
    vmm_held(heap); /* the unit's sheet is free from here on */
    usleep(100000);
    cr_assert_eq(vmm_held(heap), 0);
    scope.driver->cuStreamDestroy(stream);
    ga_cuda_leave(&scope);
    vmm_end(heap);
}

Test(vmm_held, a_driver_that_refuses_is_asked_again_after_a_time)
{
    ga_heap *heap = vmm_open(NULL, "vmm:decay=60,free=now");
    assert_ok(ga_free(heap, vmm_take(heap, 32 * MIB)));
    usleep(100000);
    vmm_driver_fail_many("cuMemUnmap", 1, 1, CUDA_ERROR_UNKNOWN); /* the driver is called twice */
    cr_assert_eq(vmm_held(heap), 32 * MIB);
    usleep(30000);
    cr_assert_eq(vmm_held(heap), 0);
    vmm_end(heap);
}

/* ---- memory that grows under kernels ------------------------------------------------------- */

Test(vmm_held, memory_that_grows_counts_as_held_and_keeps_the_limit)
{
    setenv("GPUALLOC_LOG", "error", 1); /* this device has no kernels to try it with */
    ga_heap *heap = vmm_open(NULL, "vmm:limit=32M");
    ga_growing growing = {.step_bytes = {2 * MIB}, .steps = 4, .steps_max = 64};
    void *block = vmm_take(heap, 8 * MIB);
    assert_ok(ga_growing_open(heap, &growing));
    cr_assert_eq(vmm_held(heap), 16 * MIB);
    assert_ok(ga_growing_to(heap, &growing, 12));
    cr_assert_eq(growing.steps, 12);
    cr_assert_eq(vmm_held(heap), 32 * MIB);
    memset(growing.base[0], 1, 24 * MIB);
    assert_fails_with(ga_growing_to(heap, &growing, 13), GA_ERR_MEMORY, "vmm: limit: ");
    ga_growing other = {.step_bytes = {2 * MIB}, .steps = 1, .steps_max = 1};
    assert_fails_with(ga_growing_open(heap, &other), GA_ERR_MEMORY, "vmm: the limit is ");
    ga_growing_close(heap, &growing);
    cr_assert_eq(vmm_held(heap), 8 * MIB);
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
}

/* ---- a device that is full ----------------------------------------------------------------- */

/* The chunks created so far, and those of them that were released. */
static uint64_t refused_chunks(void)
{
    return vmm_driver_calls("cuMemCreate") - vmm_driver_count().chunks -
           vmm_driver_calls("cuMemRelease");
}

/* Once the driver has refused memory it is not called for more before memory is freed, because a
 * refusal takes time. When it has memory again, the heap gets it. */
Test(vmm_held, a_full_device_is_not_called_repeatedly)
{
    enum {
        BLOCKS = 64
    };
    void *blocks[BLOCKS];
    void *large[12];
    uint64_t seed = 1;
    ga_heap *heap = vmm_open(&(vmm_driver_options){.memory = 2 * BLOCKS * MIB}, "vmm:cache=wide");
    vmm_take_many(heap, blocks, BLOCKS, 2 * MIB);
    for (size_t round = 0; round < 12; round++) {
        for (int i = 0; i < 4; i++) {
            size_t at = random_below(&seed, BLOCKS);
            while (!blocks[at]) {
                at = (at + 1) % BLOCKS;
            }
            assert_ok(ga_free(heap, blocks[at]));
            blocks[at] = NULL;
        }
        large[round] = vmm_take(heap, 8 * MIB);
    }
    cr_assert_leq(refused_chunks(), 1);
    cr_assert_eq(vmm_held(heap), 2 * BLOCKS * MIB);
    vmm_free_many(heap, blocks, BLOCKS);
    vmm_free_many(heap, large, 12);
    vmm_end(heap);
}

Test(vmm_held, more_is_had_when_there_is_more)
{
    ga_heap *heap = vmm_open(&(vmm_driver_options){.memory = 64 * MIB}, "vmm");
    void *block = NULL;
    vmm_driver_take(0, 32 * MIB);
    void *half = vmm_take(heap, 32 * MIB);
    cr_assert_eq(ga_alloc(heap, 8 * MIB, 0, &block), GA_ERR_MEMORY);
    vmm_driver_take(0, 0);
    void *rest = vmm_take(heap, 32 * MIB);
    assert_ok(ga_free(heap, half));
    assert_ok(ga_free(heap, rest));
    vmm_end(heap);
}

/* ---- the host ---------------------------------------------------------------------------- */

static size_t resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert(file && fscanf(file, "%*u %lu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

Test(vmm_held, the_host_has_its_pages_back)
{
    ga_heap *heap;
    void *block = NULL;
    void *shorter = NULL;
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "vmm:cache=0"));
    size_t before = resident_bytes();
    assert_ok(ga_alloc(heap, 256 * MIB, 0, &block));
    memset(block, 1, 256 * MIB);
    assert_ok(ga_realloc(heap, block, 200 * MIB, 0, &shorter));
    cr_assert_eq(shorter, block);
    cr_assert_leq(resident_bytes(), before + 202 * MIB);
    assert_ok(ga_realloc(heap, block, MIB, 0, &shorter));
    cr_assert_eq(shorter, block);
    cr_assert_eq(*(char *)block, 1);
    cr_assert_leq(resident_bytes(), before + 3 * MIB);
    assert_ok(ga_grow(heap, block, 64 * MIB));
    memset(block, 2, 64 * MIB);
    assert_ok(ga_free(heap, block));
    cr_assert_leq(resident_bytes(), before + 3 * MIB);
    cr_assert_eq(vmm_held(heap), 0);
    assert_ok(ga_heap_close(heap));
}

Test(vmm_held, the_host_has_unused_pages_back)
{
    ga_heap *heap;
    void *block = NULL;
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "vmm:decay=500"));
    assert_ok(ga_alloc(heap, 64 * MIB, 0, &block));
    memset(block, 1, 64 * MIB);
    assert_ok(ga_free(heap, block));
    cr_assert_eq(vmm_held(heap), 64 * MIB);
    usleep(650000);
    cr_assert_eq(vmm_held(heap), 0);
    assert_ok(ga_heap_close(heap));
    assert_fails_with(ga_heap_open(&heap, GA_PLACE_HOST, 0, "vmm:decay=-2"), GA_ERR_SPEC,
                      "vmm: decay: expected ");
}

static size_t mappings(void)
{
    size_t lines = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    cr_assert(file);
    for (int c; (c = fgetc(file)) != EOF;) {
        lines += c == '\n';
    }
    fclose(file);
    return lines;
}

/* A process has 65,530 mappings by default. Each block between unmapped ones takes two. */
Test(vmm_held, many_holes_of_the_host_take_few_mappings)
{
    enum {
        BLOCKS = 40000
    };
    ga_heap *heap;
    void **blocks = calloc(BLOCKS, sizeof *blocks);
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "vmm"));
    vmm_take_many(heap, blocks, BLOCKS, 128 << 10);
    for (size_t i = 0; i < BLOCKS; i += 2) {
        assert_ok(ga_free(heap, blocks[i]));
    }
    for (size_t i = 0; i < BLOCKS; i += 2) {
        blocks[i] = vmm_take(heap, 132 << 10);
        memset(blocks[i], 1, 1);
    }
    size_t count = mappings();
    cr_assert_leq(count, 20000, "%zu mappings", count);
    vmm_free_many(heap, blocks, BLOCKS);
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(vmm_held(heap), 0);
    assert_ok(ga_heap_close(heap));
    free(blocks);
}

/* Each chunk of such a block would be granted by itself. */
Test(vmm_held, sizes_that_the_machine_cannot_have)
{
    uint64_t total = ga_machine_memory_total();
    ga_heap *heap;
    void *block = NULL;
    if (total > (uint64_t)400 << 30) {
        cr_skip_test("this machine has as much memory as a heap has addresses");
    }
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "vmm"));
    assert_fails_with(ga_alloc(heap, total + ((size_t)1 << 30), 0, &block), GA_ERR_MEMORY,
                      "vmm: no block of ");
    cr_assert(strstr(ga_error_text(), "bytes of memory and swap in all"), "%s", ga_error_text());
    assert_ok(ga_alloc(heap, (size_t)1 << 30, 0, &block));
    assert_fails_with(ga_grow(heap, block, total + ((size_t)1 << 30)), GA_ERR_MEMORY, "vmm: ");
    assert_ok(ga_free(heap, block));
    assert_ok(ga_heap_close(heap));
}

/* The heap's reserved addresses count against the limit, so the rest of the limit says nothing
 * about blocks. */
Test(vmm_held, blocks_where_addresses_are_limited, .disabled = UNDER_ASAN || UNDER_TSAN)
{
    struct rlimit limit;
    void *block = NULL;
    ga_heap *heap;
    if (ga_machine_memory_total() < (uint64_t)8 << 30) {
        cr_skip_test("this machine is small");
    }
    cr_assert_eq(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = (rlim_t)12 << 30;
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "vmm:reserve=10G"));
    assert_ok(ga_alloc(heap, (size_t)5 << 30, 0, &block));
    assert_ok(ga_free(heap, block));
    assert_ok(ga_heap_close(heap));
}
