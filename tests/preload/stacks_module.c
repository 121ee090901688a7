/* SPDX-License-Identifier: MIT
 *
 * A library that test_stacks.py has loaded. It is compiled under several names, which differ in the
 * name of the function that allocates only, so that one is loaded where another was.
 */
#include <stdlib.h>

__attribute__((visibility("default"))) void *leak(void);

static volatile int after; /* written after calls, so that none of them is a tail call */

__attribute__((noinline, noclone)) static void *MODULE_FUNCTION(void)
{
    void *block = malloc(300);
    after++;
    return block;
}

void *leak(void)
{
    void *block = MODULE_FUNCTION();
    after++;
    return block;
}
