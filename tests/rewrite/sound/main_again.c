/* SPDX-License-Identifier: MIT
 *
 * A program that calls main() again.
 */
#include "mpi.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc > 100) {
        malloc(argc); /* unknown */
        return 0;
    }
    START;
    return main(argc + 100 + rank, argv);
}
