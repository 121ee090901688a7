/* SPDX-License-Identifier: MIT
 *
 * Static functions with one name, in files with one name. Files: one/util.c two/util.c
 */
#include "mpi.h"

#include <stdlib.h>

int one(int x);
int two(int x);

int main(int argc, char **argv)
{
    START;
    malloc(one(rank)); /* together */
    malloc(two(rank)); /* sizes differ */
    return 0;
}
