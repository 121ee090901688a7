/* SPDX-License-Identifier: MIT
 *
 * What a port can get wrong without a word: local variables in collective calls, sizeof of a
 * rank's variable in constants and types, functions of numbers whose arguments C converts, two
 * static variables of one name, and an include in a comment.
 */
/* #include <mpi.h> */
static int early = 3;

#include <math.h>
#include <mpi.h> /* begins
                    and ends */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char buffer[10];
static const int room = sizeof buffer;
enum {
    TWICE = 2 * sizeof buffer
};
struct box {
    char text[sizeof buffer];
};

static int count(int how)
{
    if (how) {
        static int calls = 10;
        return ++calls;
    } else {
        static int calls = 20;
        return ++calls;
    }
}

int main(int argc, char **argv)
{
    int rank, size, number = -1, parts[3] = {0};
    float small = 0.3f;
    double large = -2.75;
    char copy[sizeof buffer];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    early += rank;
    if (rank == size - 1) {
        number = 42;
    }
    MPI_Bcast(&number, 1, MPI_INT, size - 1, MPI_COMM_WORLD);
    int *all = malloc(size * sizeof *all);
    double own = rank * 0.5, mine[20] = {rank, 1, rank},
           *theirs = malloc(20 * size * sizeof *theirs);
    MPI_Gather(&early, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Allgather(mine, 20, MPI_DOUBLE, theirs, 20, MPI_DOUBLE, MPI_COMM_WORLD);
    MPI_Scatter(all, 1, MPI_INT, &parts[1], 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) {
        own += theirs[20 * i] + theirs[20 * i + 2];
    }
    int calls[] = {count(0), count(1), count(1)};
    printf("%d: %d %d %g | %d %d %d %d | %.9f %.9f %d | %d %d %d\n", rank, number, parts[1], own,
           room, TWICE, (int)sizeof(struct box), (int)sizeof copy, sqrt(small), pow(small, small),
           abs(large), calls[0], calls[1], calls[2]);
    free(all);
    free(theirs);
    MPI_Finalize();
    return 0;
}
