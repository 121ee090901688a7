/* SPDX-License-Identifier: MIT */
/* A planted bug, built only with the undefined-behaviour sanitizer: CI fails unless it is reported.
 * The result is not used: without -fno-sanitize-recover this test would pass.
 */
#include <criterion/criterion.h>
#include <limits.h>

Test(planted, signed_overflow)
{
    volatile int number = INT_MAX;
    number = number + 1;
    cr_assert(true);
}
