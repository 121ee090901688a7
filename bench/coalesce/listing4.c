/* SPDX-License-Identifier: MIT
 *
 * Listing 4 of warp-coalescing-gpumpi-2022 as an MPI program in C: each rank allocates two vectors,
 * calls Reduce, Broadcast or All-to-All, checks the result and frees the vectors.
 *
 *     listing4 reduce|broadcast|alltoall COUNT
 *
 * COUNT: doubles of a vector, or of All-to-All for each rank. As in the paper, Reduce and Broadcast
 * run once before they are measured, and All-to-All does not. Prints the wall-clock time in ms of
 * malloc, of the operation, of free and of all three, each the median over the ranks.
 *
 * It runs under mpirun as it is. `gpualloc rewrite --port` makes it a program for a GPU.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum operation {
    REDUCE,
    BROADCAST,
    ALLTOALL,
    OPERATIONS
};
static const char *const names[OPERATIONS] = {"reduce", "broadcast", "alltoall"};

enum part {
    MALLOC,
    OPERATION,
    FREE,
    TOTAL,
    PARTS
};

static void operate(int what, double *a, double *b, int count)
{
    if (what == REDUCE) {
        MPI_Reduce(a, b, count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    } else if (what == BROADCAST) {
        MPI_Bcast(a, count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    } else {
        MPI_Alltoall(a, count, MPI_DOUBLE, b, count, MPI_DOUBLE, MPI_COMM_WORLD);
    }
}

static double value_of(int rank, int i)
{
    return rank * 3.0 + i;
}

static int is_right(int what, int rank, int size, const double *a, const double *b, int count)
{
    if (what == REDUCE) {
        double sum = 3.0 * 0.5 * size * (size - 1.0) + (count - 1.0) * size;
        return rank != 0 || b[count - 1] == sum;
    }
    if (what == BROADCAST) {
        return a[count - 1] == value_of(0, count - 1);
    }
    for (int other = 0; other < size; other++) {
        if (b[other * count] != value_of(other, rank * count)) {
            return 0;
        }
    }
    return 1;
}

static double median(double *values, int count)
{
    for (int gap = count / 2; gap > 0; gap /= 2) {
        for (int i = gap; i < count; i++) {
            double value = values[i];
            int at = i;
            for (; at >= gap && values[at - gap] > value; at -= gap) {
                values[at] = values[at - gap];
            }
            values[at] = value;
        }
    }
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void print_times(const char *name, int rank, int size, int count, const double *times)
{
    static const char *const parts[PARTS] = {"malloc", "operation", "free", "total"};
    double *all = malloc(size * sizeof *all);
    for (int part = 0; part < PARTS; part++) {
        MPI_Gather(&times[part], 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("%s %d ranks %d doubles: %s %.6f ms\n", name, size, count, parts[part],
                   median(all, size));
        }
    }
    free(all);
}

int main(int argc, char **argv)
{
    int rank, size, wrong, any_wrong;
    double times[PARTS];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int what = argc < 3                            ? OPERATIONS
               : strcmp(argv[1], "reduce") == 0    ? REDUCE
               : strcmp(argv[1], "broadcast") == 0 ? BROADCAST
               : strcmp(argv[1], "alltoall") == 0  ? ALLTOALL
                                                   : OPERATIONS;
    int count = argc < 3 ? 0 : atoi(argv[2]);
    if (what == OPERATIONS || count < 1) {
        if (rank == 0) {
            fprintf(stderr, "usage: listing4 reduce|broadcast|alltoall COUNT\n");
        }
        MPI_Finalize();
        return 2;
    }
    int each = what == ALLTOALL ? size * count : count;
    MPI_Barrier(MPI_COMM_WORLD);
    double t0 = MPI_Wtime();
    double *a = malloc(each * sizeof *a);
    double *b = malloc(each * sizeof *b);
    double t1 = MPI_Wtime();
    if (!a || !b) {
        fprintf(stderr, "listing4: rank %d: no memory for %d doubles\n", rank, each);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 0; i < each; i++) {
        a[i] = value_of(rank, i);
    }
    if (what != ALLTOALL) {
        operate(what, a, b, count);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double t2 = MPI_Wtime();
    operate(what, a, b, count);
    double t3 = MPI_Wtime();
    wrong = !is_right(what, rank, size, a, b, count);
    double t4 = MPI_Wtime();
    free(a);
    free(b);
    double t5 = MPI_Wtime();
    times[MALLOC] = 1e3 * (t1 - t0);
    times[OPERATION] = 1e3 * (t3 - t2);
    times[FREE] = 1e3 * (t5 - t4);
    times[TOTAL] = times[MALLOC] + times[OPERATION] + times[FREE];
    MPI_Allreduce(&wrong, &any_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    print_times(names[what], rank, size, count, times);
    MPI_Finalize();
    return any_wrong ? 1 : 0;
}
