/* SPDX-License-Identifier: MIT
 *
 * The trial of growth on devices of host memory: those that can, those that cannot, and those that
 * are disturbed.
 */
#include "growth/growth_probe.h"

#include "support/expect.h"
#include "support/vmm_driver.h"

/* This driver has no kernels. */
Test(growth_probe, leaves_nothing_behind)
{
    for (uint64_t n = 1; n < 30; n++) {
        vmm_driver_start(NULL);
        vmm_driver_fail(NULL, n, CUDA_ERROR_OUT_OF_MEMORY);
        cr_assert_neq(ga_growth_try(0), GA_OK);
        cr_assert_neq(ga_error_text()[0], 0);
        vmm_driver_counts left = vmm_driver_count();
        cr_assert(!left.pinned && !left.ranges && !left.chunks && !left.blocks, "call %d", (int)n);
        vmm_driver_stop();
    }
    cr_assert_eq(ga_growth_try(-1), GA_ERR_DEVICE);
    cr_assert_eq(ga_growth_try(64), GA_ERR_DEVICE);
}

/* Each call of a probe that succeeds fails once: the result may be either, but all memory is freed,
 * and a refusal is not permanent. */
Test(growth_probe, one_that_is_disturbed_can_be_made_again)
{
    bool reached = true;
    for (uint64_t n = 1; reached; n++) {
        vmm_driver_start(&(vmm_driver_options){.kernels = VMM_KERNELS_GROW});
        vmm_driver_fail(NULL, n, CUDA_ERROR_OUT_OF_MEMORY);
        ga_status status = ga_growth_try(0);
        reached = vmm_driver_has_failed();
        cr_assert(reached || status == GA_OK);
        vmm_driver_fail(NULL, 0, 0);
        vmm_driver_counts left = vmm_driver_count();
        cr_assert(!left.pinned && !left.ranges && !left.chunks && !left.blocks, "call %d", (int)n);
        cr_assert_eq(ga_growth_try(0), GA_OK, "call %d: %s", (int)n, ga_error_text());
        vmm_driver_stop();
    }
}

/* It is tried once, and each device by itself. */
Test(growth_probe, is_made_once)
{
    vmm_driver_start(&(vmm_driver_options){.kernels = VMM_KERNELS_GROW, .devices = 2});
    cr_assert_eq(ga_growth_try(1), GA_OK);
    uint64_t calls = vmm_driver_calls(NULL);
    cr_assert_eq(ga_growth_try(1), GA_OK);
    cr_assert_eq(vmm_driver_calls(NULL), calls);
    cr_assert_eq(ga_growth_try(0), GA_OK);
    cr_assert_gt(vmm_driver_calls(NULL), calls);
    vmm_driver_stop();
}

Test(growth_probe, where_nothing_is_mapped_under_kernels)
{
    vmm_driver_start(&(vmm_driver_options){.kernels = VMM_KERNELS_ALONE});
    for (int i = 0; i < 2; i++) {
        assert_fails(ga_growth_try(0), GA_ERR_UNSUPPORTED,
                     "growth: device 0: memory does not grow while a kernel runs: the driver maps "
                     "nothing until the kernel has ended");
    }
    vmm_driver_counts left = vmm_driver_count();
    cr_assert(!left.pinned && !left.ranges && !left.chunks && !left.blocks);
    vmm_driver_stop();
}

/* A card that is full says nothing about its driver. */
Test(growth_probe, one_on_a_full_card_is_made_again)
{
    vmm_driver_start(&(vmm_driver_options){.kernels = VMM_KERNELS_GROW, .memory = 32 << 20});
    vmm_driver_take(0, 28 << 20);
    assert_fails(ga_growth_try(0), GA_ERR_MEMORY,
                 "growth: device 0: memory does not grow while a kernel runs: no memory could be "
                 "mapped");
    vmm_driver_take(0, 0);
    cr_assert_eq(ga_growth_try(0), GA_OK);
    vmm_driver_stop();
}
