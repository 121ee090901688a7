/* SPDX-License-Identifier: MIT
 *
 * Variables of another file. Files: more/definitions.c
 */
#include "mpi.h"

#include <stdlib.h>

extern int defined, changed, missing;
extern __attribute__((weak)) int weak;
void change(int to);

int main(int argc, char **argv)
{
    START;
    change(rank);
    malloc(defined); /* together */
    malloc(changed); /* sizes differ */
    malloc(missing); /* unknown */
    malloc(weak);    /* unknown */
    return 0;
}
