/* SPDX-License-Identifier: MIT
 *
 * strtol() sets a pointer into a string of argv, which then changes.
 */
#include "mpi.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    START;
    char *end;
    strtol(argv[1], &end, 10);
    *end = '0' + rank;
    malloc(atoi(argv[1])); /* unknown */
    return 0;
}
