/* SPDX-License-Identifier: MIT */
/* A planted bug, built only with the address sanitizer: CI fails unless it is reported. Criterion
 * reports this test as passed and exits 0, so only the sanitizer's own report shows it.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

/* Volatile, so that the compiler cannot drop the allocation. */
static void *volatile held;

Test(planted, leak)
{
    held = malloc(100);
    cr_assert_not_null(held);
    held = NULL;
}
