/* SPDX-License-Identifier: MIT
 *
 * A static function that two files define, with other macros. Flags: -I.
 * Files: more/included.c
 */
#include "mpi.h"

#include <stdlib.h>

#define BYTES (argc)
int bytes(int argc);
#include <included.h>

int other(int argc);

int main(int argc, char **argv)
{
    START;
    malloc(bytes(rank) + other(argc)); /* sizes differ */
    malloc(bytes(argc) + other(rank)); /* together: the other file has 8 bytes */
    return 0;
}
