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
    malloc(bytes(rank) + other(argc)); /* unknown */
    return 0;
}
