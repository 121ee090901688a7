/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

static void inner(void)
{
    malloc(4);
}

static void outer(void)
{
    inner();
}
