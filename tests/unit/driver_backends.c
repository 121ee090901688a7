/* SPDX-License-Identifier: MIT
 *
 * The backends `cuda`, `managed` and `pinned`, over a driver made of host memory.
 */
#include "support/vmm_scene.h"

#include <stdio.h>

static const struct {
    const char *name, *call;
    bool pinned;
} kinds[] = {
    {"cuda", "cuMemAlloc", false},
    {"managed", "cuMemAllocManaged", false},
    {"pinned", "cuMemHostAlloc", true},
};

enum {
    KINDS = sizeof kinds / sizeof *kinds
};

static void end(ga_heap *heap)
{
    vmm_driver_counts left = vmm_driver_count();
    cr_assert(!left.blocks && !left.pinned, "%s: blocks are left", ga_heap_spec(heap));
    vmm_end(heap);
}

Test(driver_backends, memory_of_each_kind)
{
    for (int i = 0; i < KINDS; i++) {
        ga_heap *heap = vmm_open(NULL, kinds[i].name);
        char *block = vmm_take(heap, 5000);
        vmm_driver_counts now = vmm_driver_count();
        cr_assert_eq(now.pinned, kinds[i].pinned);
        cr_assert_eq(now.blocks, !kinds[i].pinned);
        cr_assert_eq(vmm_driver_calls(kinds[i].call), 1);
        memset(block, 1, 5000);
        assert_ok(ga_realloc(heap, block, 9000, 0, (void **)&block));
        cr_assert(block[0] == 1 && block[4999] == 1 && ga_usable_size(heap, block) >= 9000);
        assert_ok(ga_free(heap, block));
        end(heap);
    }
}

Test(driver_backends, blocks_of_the_others_are_refused)
{
    for (int i = 0; i < KINDS; i++) {
        char sentence[100];
        ga_heap *heap = vmm_open(NULL, kinds[i].name), *other = NULL;
        char *block = vmm_take(heap, 5000);
        assert_ok(ga_heap_open(&other, GA_PLACE_DEVICE, 0, kinds[(i + 1) % KINDS].name));
        void *foreign = vmm_take(other, 5000), *moved = NULL;
        snprintf(sentence, sizeof sentence, "%s: %p is no block of %s's on device 0", kinds[i].name,
                 foreign, kinds[i].call);
        cr_assert(ga_owns(heap, block + 4999) && !ga_owns(heap, foreign));
        assert_fails(ga_free(heap, foreign), GA_ERR_POINTER, sentence);
        assert_fails_with(ga_free(heap, block + 256), GA_ERR_POINTER, kinds[i].name);
        assert_fails_with(ga_free(heap, sentence), GA_ERR_POINTER, kinds[i].name);
        assert_fails_with(ga_realloc(heap, sentence, 10, 0, &moved), GA_ERR_POINTER, kinds[i].name);
        assert_ok(ga_free(heap, block));
        assert_fails_with(ga_free(heap, block), GA_ERR_POINTER, kinds[i].name);
        assert_ok(ga_free(other, foreign));
        assert_ok(ga_heap_close(other));
        end(heap);
    }
}

Test(driver_backends, memory_that_ends)
{
    for (int i = 0; i < KINDS; i++) {
        char sentence[120];
        void *none = &none;
        ga_heap *heap =
            vmm_open(&(vmm_driver_options){.memory = 8 * MIB, .pinned = 8 * MIB}, kinds[i].name);
        void *block = vmm_take(heap, 5 * MIB);
        snprintf(sentence, sizeof sentence,
                 "%s: no block of 5242880 bytes on device 0: %s: CUDA_ERROR_OUT_OF_MEMORY",
                 kinds[i].name, kinds[i].call);
        assert_fails_with(ga_alloc(heap, 5 * MIB, 0, &none), GA_ERR_MEMORY, sentence);
        cr_assert_null(none);
        assert_ok(ga_free(heap, block));
        end(heap);
    }
}

/* More managed memory than the device has, or more pinned than the host has, harms others. */
Test(driver_backends, too_much_does_not_reach_the_driver)
{
    static const char beginning[] = ": no block of 1125899906842624 bytes on device 0: expected at "
                                    "most ";
    for (int i = 1; i < KINDS; i++) {
        char sentence[120];
        void *none = NULL;
        ga_heap *heap = vmm_open(NULL, kinds[i].name);
        snprintf(sentence, sizeof sentence, "%s%s", kinds[i].name, beginning);
        assert_fails_with(ga_alloc(heap, (size_t)1 << 50, 0, &none), GA_ERR_MEMORY, sentence);
        cr_assert_eq(vmm_driver_calls(kinds[i].call), 0);
        end(heap);
    }
}

Test(driver_backends, devices_that_cannot)
{
    ga_heap *heap;
    vmm_driver_start(&(vmm_driver_options){.no_managed = true});
    assert_fails(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "managed"), GA_ERR_DEVICE,
                 "managed: device 0 does not have managed memory");
    vmm_driver_start(&(vmm_driver_options){.no_concurrent = true});
    assert_fails(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "managed"), GA_ERR_DEVICE,
                 "managed: device 0 does not have concurrent access to managed memory by host and "
                 "device");
    assert_fails_with(ga_heap_open(&heap, GA_PLACE_HOST, 0, "pinned"), GA_ERR_PLACE, "pinned");
    vmm_driver_stop();
}

Test(driver_backends, a_free_waits_for_the_device)
{
    for (int i = 0; i < KINDS; i++) {
        ga_heap *heap = vmm_open(NULL, kinds[i].name);
        void *block = vmm_take(heap, 5000);
        const ga_cuda_driver *driver;
        ga_cuda_scope scope;
        assert_ok(ga_cuda_driver_get(&driver));
        vmm_driver_hold(NULL);
        assert_ok(ga_cuda_enter(&scope, 0));
        driver->cuMemsetD8Async((CUdeviceptr)block, 1, 5000, NULL);
        ga_cuda_leave(&scope);
        assert_ok(ga_free(heap, block));
        cr_assert_eq(vmm_driver_count().waits, 1, "%s", kinds[i].name);
        end(heap);
    }
}

/* Each call of the driver fails, once or several times: no block is lost. */
Test(driver_backends, a_driver_that_fails)
{
    for (int i = 0; i < KINDS; i++) {
        bool failed = true;
        for (uint64_t n = 1; failed; n++) {
            ga_heap *heap = vmm_open(NULL, kinds[i].name);
            void *block = vmm_take(heap, 100), *zeroed = NULL;
            vmm_driver_fail_many(NULL, n, 2, CUDA_ERROR_UNKNOWN);
            ga_realloc(heap, block, 200, 0, &block);
            ga_alloc_zeroed(heap, 5000, 0, &zeroed);
            failed = vmm_driver_has_failed();
            vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
            assert_ok(ga_free(heap, block));
            assert_ok(ga_free(heap, zeroed));
            end(heap);
        }
    }
}

Test(driver_backends, layers_over_them)
{
    static const char *const specs[] = {"slab/managed", "slab:unit=1K/pinned", "fail:nth=0/pinned"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        ga_heap *heap = vmm_open(NULL, specs[i]);
        char *block = vmm_take(heap, 1000);
        memset(block, 1, 1000);
        assert_ok(ga_free(heap, block));
        vmm_end(heap);
    }
}
