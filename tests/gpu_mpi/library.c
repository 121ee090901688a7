/* SPDX-License-Identifier: MIT
 *
 * C's library: strings, numbers, memory, random numbers.
 */
#include <assert.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, spread = 0, seen = 0;
    char text[32], moved[] = "abcdef";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    strcpy(text, "left");
    strcat(text, ", right");
    memmove(moved + 1, moved, 4);
    memmove(moved, moved + 2, 3);
    assert(rank >= 0);
    srand((unsigned)rank + 1);
    for (int i = 0; i < 1000; i++) {
        int number = rand();
        spread += number >= 0 && number <= RAND_MAX;
        seen |= 1 << number % 16;
    }
    srand(3);
    int first = rand();
    srand(3);
    int *zeros = calloc(4, sizeof *zeros);
    fprintf(stdout, "%d: %s %d %s %d %d %d %d\n", rank, text, (int)strlen(text), moved,
            strcmp(text, "left") > 0, strncmp(text, "left!", 4), atoi(" -12x"), (int)atol("+77"));
    printf("%d: %d %d %d %g %d %d\n", rank, spread, seen == 0xffff, first == rand(), sqrt(2.25),
           zeros[0] | zeros[3], memcmp("ab", "ac", 2) < 0);
    free(zeros);
    if (rank == 0) {
        puts("last");
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
