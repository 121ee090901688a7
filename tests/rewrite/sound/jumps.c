/* SPDX-License-Identifier: MIT
 *
 * Loops that some ranks leave earlier, jumps into loops, and Duff's device.
 */
#include "mpi.h"

#include <stdlib.h>

static int sum;

static void duff(int count)
{
    int left = (count + 3) / 4;
    switch (count % 4) {
    case 0:
        do {
            sum++;
            malloc(8); /* divergent */
        case 3:
            sum++;
        case 2:
            sum++;
        case 1:
            sum++;
        } while (--left > 0);
    }
}

int main(int argc, char **argv)
{
    START;
    int i = 0, turns = 0;
    if (argc > 3) {
        goto inside;
    }
    for (i = 0; i < 10; i++) {
    inside:
        malloc(8); /* together */
        if (i == size) {
            break;
        }
    }
    for (i = 0; i < 10; i++) {
        malloc(8); /* divergent */
        if (i == rank) {
            break;
        }
    }
    malloc(i); /* sizes differ */
    do {
        turns++;
    } while (turns < rank && (malloc(8), 1)); /* divergent */
    malloc(turns);                            /* sizes differ */
    duff(rank);
    malloc(8); /* together */
    return 0;
}
