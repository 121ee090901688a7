/* SPDX-License-Identifier: MIT
 *
 * What atof() returns depends on the locale.
 */
#include "mpi.h"

#include <locale.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    START;
    malloc((size_t)atof(argv[1])); /* together */
    if (rank) {
        setlocale(LC_ALL, "");
    }
    malloc((size_t)atof(argv[1])); /* unknown */
    (void)size;
    return 0;
}
