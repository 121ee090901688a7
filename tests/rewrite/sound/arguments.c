/* SPDX-License-Identifier: MIT
 *
 * argv, as far as nothing changes its strings.
 */
#include "mpi.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    START;
    malloc(atoi(argv[1]));             /* together */
    malloc(strtol(argv[2], NULL, 10)); /* together */
    malloc(argv[1][0]);                /* together */
    malloc(atoi(argv[rank]));          /* sizes differ */
    return 0;
}
