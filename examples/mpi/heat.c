/* SPDX-License-Identifier: MIT
 *
 * Heat in a rod, an MPI program in C: each rank has a piece of the rod, exchanges the ends of the
 * piece with its neighbours, and takes a step. README.md makes it a program for a GPU.
 *
 *     heat [CELLS [STEPS]]        cells of a piece, and steps; 8 and 100 unless given
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int steps_done;

/* The cells of a piece, with one more at each end. */
static double *make_piece(int cells)
{
    double *piece = malloc((cells + 2) * sizeof *piece);
    for (int i = 0; piece && i < cells + 2; i++) {
        piece[i] = 0;
    }
    return piece;
}

static void exchange_ends(double *piece, int cells, int rank, int size)
{
    int left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(&piece[1], 1, MPI_DOUBLE, left, 0, &piece[cells + 1], 1, MPI_DOUBLE, right, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&piece[cells], 1, MPI_DOUBLE, right, 1, &piece[0], 1, MPI_DOUBLE, left, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void take_step(const double *from, double *to, int cells)
{
    for (int i = 1; i <= cells; i++) {
        to[i] = from[i] + 0.25 * (from[i - 1] - 2 * from[i] + from[i + 1]);
    }
    steps_done++;
}

int main(int argc, char **argv)
{
    int rank, size;
    int cells = argc > 1 ? atoi(argv[1]) : 8;
    int steps = argc > 2 ? atoi(argv[2]) : 100;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double *now = make_piece(cells);
    double *next = make_piece(cells);
    if (!now || !next) {
        fprintf(stderr, "heat: no memory for %d cells\n", cells);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (rank == 0) {
        now[1] = 1000;
    }
    for (int i = 0; i < steps; i++) {
        exchange_ends(now, cells, rank, size);
        take_step(now, next, cells);
        double *old = now;
        now = next;
        next = old;
    }
    double heat = 0, all_heat = 0, *maxima = NULL, maximum = 0;
    for (int i = 1; i <= cells; i++) {
        heat += now[i];
        maximum = now[i] > maximum ? now[i] : maximum;
    }
    MPI_Reduce(&heat, &all_heat, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        maxima = malloc(size * sizeof *maxima);
    }
    MPI_Gather(&maximum, 1, MPI_DOUBLE, maxima, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("after %d steps: %.3f in all, at most", steps_done, all_heat);
        for (int i = 0; i < 4 && i < size; i++) {
            printf(" %.3f", maxima[i]);
        }
        printf("\n");
    }
    free(maxima);
    free(now);
    free(next);
    MPI_Finalize();
    return 0;
}
