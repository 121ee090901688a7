/* SPDX-License-Identifier: MIT
 *
 * Collective calls of MPI. Ranks read each other's vectors (world.h). The calls that the benchmark
 * of warp-coalescing-gpumpi-2022, §4.2, measures take a last argument, `coalesce`: all ranks of a
 * block make this call in the same place, with equal arguments, so that the buffers that the call
 * allocates can be coalesced statically.
 */
#ifndef GPUALLOC_GPU_MPI_COLLECTIVES_H
#define GPUALLOC_GPU_MPI_COLLECTIVES_H

#include "messages.h"

#define MPI_IN_PLACE ((void *)-1)

/* A buffer for the time of the call. */
GA_MPI_CALL char *ga_mpi_buffer(const char *call, size_t bytes, bool coalesce)
{
#if defined(GA_COALESCE_CHECKED) && !defined(GA_MPI_CUDA_MALLOC)
    const ga_mpi_rank *own = ga_mpi_own();
    char *buffer = (char *)ga_mpi_malloc_checked(own->file, own->line, bytes, coalesce);
#else
    char *buffer = (char *)malloc(bytes, coalesce);
#endif
    if (!buffer) {
        ga_mpi_fail(call, "no memory for a buffer of bytes:", (long)bytes);
    }
    return buffer;
}

GA_MPI_CALL int MPI_Barrier(MPI_Comm comm)
{
    if (comm != MPI_COMM_SELF) {
        ga_mpi_check_world("MPI_Barrier", comm);
        ga_mpi_barrier();
    }
    return MPI_SUCCESS;
}

/* It has the argument so that a program can give it to all four calls. */
GA_MPI_CALL int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm,
                          bool coalesce = false)
{
    size_t bytes = ga_mpi_bytes("MPI_Bcast", count, type);
    (void)coalesce;
    ga_mpi_check_world("MPI_Bcast", comm);
    ga_mpi_check_rank("MPI_Bcast", root);
    ga_mpi_begin();
    if (ga_mpi_number() == (uint32_t)root) {
        ga_mpi_share("MPI_Bcast", data, bytes);
    } else {
        ga_mpi_copy(data, ga_mpi_vector_of((uint32_t)root), bytes);
    }
    ga_mpi_finish();
    return MPI_SUCCESS;
}

/* Adds the vectors up in a tree: in step s rank r, a multiple of 2s, takes the sum of rank r + s.
 * Rank 0 ends with the sum of all. */
GA_MPI_CALL void ga_mpi_add_up(char *sum, int count, MPI_Datatype type, MPI_Op op)
{
    uint32_t rank = ga_mpi_number();
    for (uint32_t step = 1; step < ga_mpi.ranks && rank % (2 * step) == 0; step *= 2) {
        if (rank + step < ga_mpi.ranks) {
            ga_mpi_combine(op, type, sum, ga_mpi_vector_of(rank + step), count);
        }
    }
    ga_mpi_publish(sum);
}

/* `to` is NULL in ranks that get no result. */
GA_MPI_CALL int ga_mpi_reduce(const char *call, const void *from, void *to, int count,
                              MPI_Datatype type, MPI_Op op, MPI_Comm comm, bool coalesce)
{
    size_t bytes = ga_mpi_bytes(call, count, type);
    ga_mpi_check_world(call, comm);
    ga_mpi_check_op(call, op, type);
    char *sum = ga_mpi_buffer(call, bytes, coalesce);
    ga_mpi_copy(sum, from == MPI_IN_PLACE ? to : from, bytes);
    ga_mpi_begin();
    ga_mpi_add_up(sum, count, type, op);
    if (to) {
        ga_mpi_copy(to, ga_mpi_vector_of(0), bytes);
    }
    ga_mpi_finish();
    free(sum);
    return MPI_SUCCESS;
}

GA_MPI_CALL int MPI_Reduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                           int root, MPI_Comm comm, bool coalesce = false)
{
    ga_mpi_check_rank("MPI_Reduce", root);
    return ga_mpi_reduce("MPI_Reduce", from, ga_mpi_number() == (uint32_t)root ? to : NULL, count,
                         type, op, comm, coalesce);
}

GA_MPI_CALL int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm, bool coalesce = false)
{
    return ga_mpi_reduce("MPI_Allreduce", from, to, count, type, op, comm, coalesce);
}

/* A rank sends as many bytes as it receives from each. */
GA_MPI_CALL void ga_mpi_check_sent(const char *call, const void *from, int count, MPI_Datatype type,
                                   size_t bytes)
{
    if (from != MPI_IN_PLACE && ga_mpi_bytes(call, count, type) != bytes) {
        ga_mpi_fail(call, "a rank sends another number of bytes than it receives:", (long)bytes);
    }
}

/* Each rank copies its data to a buffer from which the others read, so that the data may be in
 * place. */
GA_MPI_CALL int MPI_Alltoall(const void *from, int count, MPI_Datatype type, void *to, int received,
                             MPI_Datatype received_type, MPI_Comm comm, bool coalesce = false)
{
    size_t bytes = ga_mpi_bytes("MPI_Alltoall", received, received_type);
    ga_mpi_check_sent("MPI_Alltoall", from, count, type, bytes);
    ga_mpi_check_world("MPI_Alltoall", comm);
    char *sent = ga_mpi_buffer("MPI_Alltoall", ga_mpi.ranks * bytes, coalesce);
    ga_mpi_copy(sent, from == MPI_IN_PLACE ? to : from, ga_mpi.ranks * bytes);
    ga_mpi_begin();
    ga_mpi_publish(sent);
    ga_mpi_barrier();
    ga_mpi_copy_from_all((char *)to, ga_mpi_number() * bytes, bytes);
    ga_mpi_finish();
    free(sent);
    return MPI_SUCCESS;
}

/* ---- collective calls without the argument --------------------------------------------------- */

/* Let the other ranks read this rank's part of a vector that is gathered in `to`, and wait until
 * all ranks have done so. */
GA_MPI_CALL void ga_mpi_share_own(const char *call, const void *from, void *to, size_t bytes)
{
    ga_mpi_share(call, from == MPI_IN_PLACE ? (char *)to + ga_mpi_number() * bytes : from, bytes);
    ga_mpi_barrier();
}

GA_MPI_CALL int MPI_Gather(const void *from, int count, MPI_Datatype type, void *to, int received,
                           MPI_Datatype received_type, int root, MPI_Comm comm)
{
    ga_mpi_check_world("MPI_Gather", comm);
    ga_mpi_check_rank("MPI_Gather", root);
    bool is_root = ga_mpi_number() == (uint32_t)root;
    size_t bytes = is_root ? ga_mpi_bytes("MPI_Gather", received, received_type)
                           : ga_mpi_bytes("MPI_Gather", count, type);
    ga_mpi_check_sent("MPI_Gather", from, count, type, bytes);
    ga_mpi_begin();
    ga_mpi_share_own("MPI_Gather", from, to, bytes);
    if (is_root) {
        ga_mpi_copy_from_all((char *)to, 0, bytes);
    }
    ga_mpi_finish();
    return MPI_SUCCESS;
}

GA_MPI_CALL int MPI_Allgather(const void *from, int count, MPI_Datatype type, void *to,
                              int received, MPI_Datatype received_type, MPI_Comm comm)
{
    size_t bytes = ga_mpi_bytes("MPI_Allgather", received, received_type);
    ga_mpi_check_sent("MPI_Allgather", from, count, type, bytes);
    ga_mpi_check_world("MPI_Allgather", comm);
    ga_mpi_begin();
    ga_mpi_share_own("MPI_Allgather", from, to, bytes);
    ga_mpi_copy_from_all((char *)to, 0, bytes);
    ga_mpi_finish();
    return MPI_SUCCESS;
}

GA_MPI_CALL int MPI_Scatter(const void *from, int count, MPI_Datatype type, void *to, int received,
                            MPI_Datatype received_type, int root, MPI_Comm comm)
{
    ga_mpi_check_world("MPI_Scatter", comm);
    ga_mpi_check_rank("MPI_Scatter", root);
    ga_mpi_begin();
    if (ga_mpi_number() == (uint32_t)root) {
        ga_mpi_share("MPI_Scatter", from, ga_mpi.ranks * ga_mpi_bytes("MPI_Scatter", count, type));
    }
    if (to != MPI_IN_PLACE) {
        size_t bytes = ga_mpi_bytes("MPI_Scatter", received, received_type);
        ga_mpi_copy(to, ga_mpi_vector_of((uint32_t)root) + ga_mpi_number() * bytes, bytes);
    }
    ga_mpi_finish();
    return MPI_SUCCESS;
}

#endif
