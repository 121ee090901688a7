/* SPDX-License-Identifier: MIT
 *
 * Two names of one variable.
 */
#include "mpi.h"

#include <stdlib.h>

int first = 4;
extern int second __asm__("first");
static int other = 5;

int main(int argc, char **argv)
{
    START;
    second = rank;
    malloc(first); /* unknown */
    malloc(other); /* unknown */
    (void)size;
    return 0;
}
