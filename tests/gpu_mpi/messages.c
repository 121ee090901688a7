/* SPDX-License-Identifier: MIT
 *
 * Messages: a ring, messages of one rank in their order, tags that are out of order, any source,
 * a message to the rank itself, and one to no rank.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    ROUNDS = 5
};

static void ring(int rank, int size)
{
    int token = rank;
    for (int i = 0; i < size; i++) {
        int received;
        MPI_Status status;
        MPI_Sendrecv(&token, 1, MPI_INT, (rank + 1) % size, i, &received, 1, MPI_INT,
                     (rank + size - 1) % size, i, MPI_COMM_WORLD, &status);
        token = received;
    }
    printf("ring %d: %d\n", rank, token);
}

static void in_order(int rank, int size)
{
    long sum = 0;
    if (rank == 0) {
        for (int i = 0; i < ROUNDS * (size - 1); i++) {
            long value[2];
            int count;
            MPI_Status status;
            MPI_Recv(value, 2, MPI_LONG, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_LONG, &count);
            sum += value[0] * status.MPI_SOURCE * count;
        }
        printf("any source: %ld\n", sum);
        for (int other = 1; other < size; other++) {
            for (long i = 0; i < ROUNDS; i++) {
                long value;
                MPI_Recv(&value, 1, MPI_LONG, other, MPI_ANY_TAG, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
                sum = sum * 3 + (value == i ? 1 : 1000);
            }
        }
        printf("in order: %ld\n", sum % 1000003);
        return;
    }
    for (long i = 0; i < ROUNDS; i++) {
        long value[2] = {rank + i, i};
        MPI_Send(&value[1], 1, MPI_LONG, 0, 8, MPI_COMM_WORLD);
        MPI_Send(value, 1 + (int)i % 2, MPI_LONG, 0, 7, MPI_COMM_WORLD);
    }
}

static void to_itself(int rank)
{
    char text[] = "own", other[8] = "none";
    int none = 5;
    MPI_Status status;
    MPI_Send(text, sizeof text, MPI_CHAR, rank, 1, MPI_COMM_WORLD);
    MPI_Send(text, 1, MPI_CHAR, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    MPI_Recv(other, sizeof other, MPI_CHAR, rank, 1, MPI_COMM_WORLD, &status);
    printf("itself %d: %s from %d with %d\n", rank, other, status.MPI_SOURCE, status.MPI_TAG);
    MPI_Recv(&none, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status);
    printf("nobody %d: %d\n", rank, none);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    ring(rank, size);
    in_order(rank, size);
    to_itself(rank);
    MPI_Finalize();
    return 0;
}
