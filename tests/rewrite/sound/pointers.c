/* SPDX-License-Identifier: MIT
 *
 * Functions that are called by their addresses, and one without a prototype.
 */
#include "mpi.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>

static jmp_buf here;
static int state = 1;

static void handler(int number)
{
    state = number;
}

static int first(int x)
{
    return x;
}

static int second(x, y)
int x, y;
{
    malloc(x); /* unknown: the function can get no parameter */
    return y;
}

int main(int argc, char **argv)
{
    START;
    int (*call)(int) = first;
    malloc(second(rank, 5)); /* together */
    malloc(second(5, rank)); /* sizes differ */
    malloc(8);               /* together */
    malloc(call(5));         /* unknown */
    signal(SIGUSR1, handler);
    malloc(state); /* unknown */
    if (setjmp(here) == 0) {
        malloc(8); /* unknown */
    }
    return 0;
}
