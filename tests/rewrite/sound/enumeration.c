/* SPDX-License-Identifier: MIT
 *
 * An enumeration may have a value that none of the cases has.
 */
#include "mpi.h"

#include <stdlib.h>

enum one {
    ONLY
};

int main(int argc, char **argv)
{
    START;
    enum one value = (enum one)rank;
    switch (value) {
    case ONLY:
        malloc(8); /* divergent */
    }
    malloc(8); /* together */
    return 0;
}
