/* SPDX-License-Identifier: MIT */
#include "variables.h"

int other_count = 1;
static int counter = 100;

int count_others(int more)
{
    counter += more;
    return other_count + counter;
}
