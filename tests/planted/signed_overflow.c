/* SPDX-License-Identifier: MIT */
/* A planted bug, built only with the undefined-behaviour sanitizer: CI fails unless this is caught.
 * The result is not looked at: without -fno-sanitize-recover this test would be green.
 */
#include <criterion/criterion.h>
#include <limits.h>

Test(planted, signed_overflow)
{
    volatile int number = INT_MAX;
    number = number + 1;
    cr_assert(true);
}
