/* SPDX-License-Identifier: MIT
 *
 * Registrations that begin and end later than their calls. Without any, a poll takes no lock: there
 * is no operation that began.
 */
#include "../../interpose/cuda/registered.h"

#include <criterion/criterion.h>

char ga_cuda_dlsym, ga_cuda_dlvsym; /* only the preload has them */

static char owner, other_owner, block[64];

static uint64_t add(const void *handle)
{
    ga_cuda_registration *made = ga_cuda_registration_new(&owner, block, sizeof block);
    cr_assert_not_null(made);
    return ga_cuda_registration_made(made, handle);
}

static void end_late(void)
{
    ga_cuda_registration_end(ga_cuda_registration_take_ended(&owner));
}

Test(cuda_registered, one_that_is_made_later)
{
    void *handle = NULL;
    uint64_t number = add(NULL);
    cr_assert_eq(ga_cuda_registration_begun(), 0);
    ga_cuda_registration_await(number, &handle);
    cr_assert_gt(ga_cuda_registration_begun(), number);
    ga_cuda_registration_settle(&other_owner, ga_cuda_registration_begun());
    cr_assert_gt(ga_cuda_registration_begun(), number);
    handle = block;
    ga_cuda_registration_settle(&owner, ga_cuda_registration_begun());
    cr_assert_eq(ga_cuda_registration_begun(), 0);
    end_late();
    ga_cuda_registration_end(ga_cuda_registration_take(&owner, block));
    cr_assert_null(ga_cuda_registration_take_number(number));
}

Test(cuda_registered, one_that_fails_later)
{
    void *handle = NULL;
    uint64_t number = add(NULL);
    ga_cuda_registration_await(number, &handle);
    ga_cuda_registration_settle(&owner, ga_cuda_registration_begun());
    cr_assert_gt(ga_cuda_registration_begun(), number); /* it is to end */
    end_late();
    cr_assert_eq(ga_cuda_registration_begun(), 0);
    cr_assert_null(ga_cuda_registration_take_number(number));
}

Test(cuda_registered, one_that_ends_later)
{
    uint64_t number = add(block);
    ga_cuda_registration_restore(ga_cuda_registration_take(&owner, block), true);
    uint64_t begun = ga_cuda_registration_begun();
    cr_assert_gt(begun, number);
    ga_cuda_registration_settle(&owner, begun - 1); /* a poll from before */
    cr_assert_null(ga_cuda_registration_take_ended(&owner));
    ga_cuda_registration_settle(&owner, begun);
    end_late();
    cr_assert_eq(ga_cuda_registration_begun(), 0);
    cr_assert_null(ga_cuda_registration_take_number(number));
}

Test(cuda_registered, those_of_a_device_that_is_reset)
{
    void *handle = NULL;
    ga_cuda_registration_await(add(NULL), &handle);
    add(block);
    ga_cuda_registration *taken = ga_cuda_registration_take(&owner, block);
    cr_assert_null(ga_cuda_registered_reset(-1)); /* as none is known without a driver */
    ga_cuda_registration_restore(taken, true);
    cr_assert_eq(ga_cuda_registration_begun(), 0);
}
