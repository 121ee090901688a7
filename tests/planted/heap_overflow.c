/* SPDX-License-Identifier: MIT */
/* A planted bug, built only with the address sanitizer: CI fails unless this is caught. */
#include <criterion/criterion.h>
#include <stdlib.h>

Test(planted, heap_overflow)
{
    volatile size_t size = 16;
    volatile char *block = malloc(size);
    cr_assert_not_null((char *)block);
    block[size] = 1;
    free((char *)block);
}
