/* SPDX-License-Identifier: MIT
 *
 * Records of served code, of which the driver gives handles out again.
 */
#include "../../interpose/cuda/kernel_codes.h"

#include <criterion/criterion.h>

static char handle, first, second; /* only their addresses count */

static CUcontext context_at(char *address)
{
    return (CUcontext)(void *)address;
}

static const ga_cuda_code *code_in(char *context)
{
    const ga_cuda_code *found = ga_cuda_codes_next(NULL, 0, context_at(context));
    cr_assert(!found || !ga_cuda_codes_next(found, 0, context_at(context)), "there are more");
    return found;
}

static uint64_t add(char *context)
{
    return ga_cuda_codes_add(&handle, context_at(context), NULL);
}

static void unload(uint64_t number)
{
    const ga_cuda_code *code = ga_cuda_codes_leave(&handle);
    cr_assert(code && code->number == number);
    cr_assert_eq(ga_cuda_codes_left(code, true), 0);
    cr_assert_null(ga_cuda_codes_leave(&handle));
    cr_assert(!code_in(&first) && !code_in(&second));
}

Test(cuda_codes, a_refused_unload_keeps_the_code)
{
    uint64_t number = add(&first);
    const ga_cuda_code *code = ga_cuda_codes_leave(&handle);
    cr_assert_null(code_in(&first));
    uint64_t later = ga_cuda_codes_left(code, false);
    cr_assert(later > number && code_in(&first)->number == later);
    unload(later);
}

Test(cuda_codes, a_handle_that_is_given_out_again)
{
    add(&first);
    uint64_t number = add(&second);
    cr_assert_null(code_in(&first));
    cr_assert_eq(code_in(&second)->number, number);
    unload(number);
}

Test(cuda_codes, a_handle_that_is_given_out_while_its_record_is_used)
{
    add(&first);
    const ga_cuda_code *used = ga_cuda_codes_next(NULL, 0, context_at(&first));
    uint64_t number = add(&second);
    cr_assert_null(ga_cuda_codes_next(used, 0, context_at(&first)));
    cr_assert_null(code_in(&first));
    unload(number);
}

/* The driver answers with an error, although the code is gone. */
Test(cuda_codes, a_handle_that_is_given_out_before_an_unload_returns)
{
    add(&first);
    const ga_cuda_code *code = ga_cuda_codes_leave(&handle);
    uint64_t number = add(&second);
    cr_assert_eq(ga_cuda_codes_left(code, false), 0);
    cr_assert_null(code_in(&first));
    unload(number);
}
