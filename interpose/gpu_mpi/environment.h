/* SPDX-License-Identifier: MIT
 *
 * MPI's calls about the program itself.
 */
#ifndef GPUALLOC_GPU_MPI_ENVIRONMENT_H
#define GPUALLOC_GPU_MPI_ENVIRONMENT_H

#include "messages.h"

/* The program's main(), by each rank. */
GA_MPI_CALL int ga_mpi_call(int (*program)(void))
{
    return program();
}

GA_MPI_CALL int ga_mpi_call(int (*program)(int, char **))
{
    return program((int)ga_mpi.argc, ga_mpi_own()->argv);
}

#define MPI_VERSION            1
#define MPI_SUBVERSION         3
#define MPI_MAX_PROCESSOR_NAME 16

GA_MPI_CALL int MPI_Init(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return MPI_SUCCESS;
}

GA_MPI_CALL int MPI_Finalize(void)
{
    ga_mpi_barrier();
    ga_mpi_own()->finalized = true;
    return MPI_SUCCESS;
}

GA_MPI_CALL int MPI_Abort(MPI_Comm comm, int code)
{
    (void)comm;
    printf("gpualloc: rank %u: MPI_Abort with status %d\n", ga_mpi_number(), code);
    ga_mpi_abort(code);
    return MPI_SUCCESS;
}

GA_MPI_CALL int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    if (comm != MPI_COMM_SELF) {
        ga_mpi_check_world("MPI_Comm_rank", comm);
    }
    *rank = comm == MPI_COMM_SELF ? 0 : (int)ga_mpi_number();
    return MPI_SUCCESS;
}

GA_MPI_CALL int MPI_Comm_size(MPI_Comm comm, int *size)
{
    if (comm != MPI_COMM_SELF) {
        ga_mpi_check_world("MPI_Comm_size", comm);
    }
    *size = comm == MPI_COMM_SELF ? 1 : (int)ga_mpi.ranks;
    return MPI_SUCCESS;
}

/* "GPU" */
GA_MPI_CALL int MPI_Get_processor_name(char *name, int *length)
{
    for (int i = 0; i < 4; i++) {
        name[i] = "GPU"[i];
    }
    *length = 3;
    return MPI_SUCCESS;
}

/* Seconds since an arbitrary moment, equal for all ranks. */
GA_MPI_CALL double MPI_Wtime(void)
{
    return (double)ga_clock_ns() * 1e-9;
}

/* The resolution of MPI_Wtime(), in seconds. */
GA_MPI_CALL double MPI_Wtick(void)
{
    return 1e-6;
}

#endif
