/* SPDX-License-Identifier: MIT
 *
 * Collective calls, with roots other than rank 0, in place and with counts that are no multiples of
 * a word. Allocations that all ranks make together.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long sum_of(const int *values, int count)
{
    long sum = 0;
    for (int i = 0; i < count; i++) {
        sum = (sum * 31 + values[i]) % 1000003;
    }
    return sum;
}

static int *numbers(int count, int first)
{
    int *values = malloc(count * sizeof *values);
    for (int i = 0; i < count; i++) {
        values[i] = first + i;
    }
    return values;
}

static void reduce_all(int rank, int size)
{
    static const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX,  MPI_MIN, MPI_LAND,
                                 MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR};
    for (int i = 0; i < 10; i++) {
        int values[3] = {rank % 3, rank + 1, -rank}, results[3] = {0};
        double real = rank + 0.5, all;
        unsigned char bytes[5] = {1, (unsigned char)rank, 3, 4, 255};
        MPI_Reduce(values, results, 3, MPI_INT, ops[i], i % size, MPI_COMM_WORLD);
        MPI_Allreduce(MPI_IN_PLACE, bytes, 5, MPI_UNSIGNED_CHAR, ops[i], MPI_COMM_WORLD);
        if (i < 4 && i != 1) {
            MPI_Allreduce(&real, &all, 1, MPI_DOUBLE, ops[i], MPI_COMM_WORLD);
            printf("all %d %d: %g\n", i, rank, all);
        }
        if (rank == i % size) {
            printf("reduce %d: %d %d %d, %d %d\n", i, results[0], results[1], results[2], bytes[1],
                   bytes[4]);
        }
    }
}

static void exchange(int rank, int size)
{
    int each = 3, *sent = numbers(each * size, rank * 100), *got = numbers(each * size, 0);
    MPI_Alltoall(sent, each, MPI_INT, got, each, MPI_INT, MPI_COMM_WORLD);
    printf("alltoall %d: %ld\n", rank, sum_of(got, each * size));
    MPI_Alltoall(MPI_IN_PLACE, each, MPI_INT, got, each, MPI_INT, MPI_COMM_WORLD);
    printf("back %d: %d\n", rank, memcmp(sent, got, each * size * sizeof *sent));
    MPI_Bcast(sent, each * size, MPI_INT, size - 1, MPI_COMM_WORLD);
    printf("bcast %d: %ld\n", rank, sum_of(sent, each * size));
    MPI_Allgather(&rank, 1, MPI_INT, got, 1, MPI_INT, MPI_COMM_WORLD);
    printf("allgather %d: %ld\n", rank, sum_of(got, size));
    MPI_Gather(got, each, MPI_INT, sent, each, MPI_INT, size / 2, MPI_COMM_WORLD);
    if (rank == size / 2) {
        printf("gather %d: %ld\n", rank, sum_of(sent, each * size));
    }
    MPI_Scatter(sent, each, MPI_INT, rank == size / 2 ? MPI_IN_PLACE : got, each, MPI_INT, size / 2,
                MPI_COMM_WORLD);
    printf("scatter %d: %ld\n", rank, sum_of(got, each));
    free(sent);
    free(got);
}

/* Each rank has five bytes of a vector, which all ranks gather; then rank 2 clears most of its
 * vector and gathers it again. */
static void gather_in_place(int rank, int size)
{
    unsigned char *all = calloc(size, 5);
    int sum = 0, half = size / 2 * 5;
    for (int i = 0; i < 5; i++) {
        all[5 * rank + i] = (unsigned char)(7 * rank + i);
    }
    MPI_Allgather(MPI_IN_PLACE, 5, MPI_UNSIGNED_CHAR, all, 5, MPI_UNSIGNED_CHAR, MPI_COMM_WORLD);
    for (int i = 0; i < 5 * size; i++) {
        sum = (sum * 31 + all[i]) % 1000003;
    }
    printf("allgather in place %d: %d\n", rank, sum);
    if (rank == 2) {
        memset(all, 0, 5 * rank);
        memset(all + half, 0, 5 * size - half);
    }
    MPI_Gather(rank == 2 ? MPI_IN_PLACE : all + 5 * rank, 5, MPI_UNSIGNED_CHAR, all, 5,
               MPI_UNSIGNED_CHAR, 2, MPI_COMM_WORLD);
    for (int i = 0; rank == 2 && i < 5 * size; i++) {
        sum = (sum * 31 + all[i]) % 1000003;
    }
    printf("gather in place %d: %d\n", rank, sum);
    free(all);
}

int main(int argc, char **argv)
{
    int rank, size, one, self;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_SELF, &self);
    MPI_Comm_size(MPI_COMM_SELF, &one);
    reduce_all(rank, size);
    MPI_Barrier(MPI_COMM_WORLD);
    exchange(rank, size);
    gather_in_place(rank, size);
    MPI_Barrier(MPI_COMM_SELF);
    printf("self %d: %d %d\n", rank, self, one);
    MPI_Finalize();
}
