/* SPDX-License-Identifier: MIT
 *
 * The declarations that the programs of this folder need, as MPICH has them.
 */
#ifndef GPUALLOC_TESTS_REWRITE_SOUND_MPI_H
#define GPUALLOC_TESTS_REWRITE_SOUND_MPI_H

typedef int MPI_Comm, MPI_Datatype, MPI_Op, MPI_Request, MPI_Fint;
typedef long MPI_Aint;
typedef struct {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR;
} MPI_Status;
typedef void *MPI_File;

#define MPI_COMM_WORLD    ((MPI_Comm)0x44000000)
#define MPI_COMM_SELF     ((MPI_Comm)0x44000001)
#define MPI_INT           ((MPI_Datatype)0x4c000405)
#define MPI_CHAR          ((MPI_Datatype)0x4c000101)
#define MPI_SUM           ((MPI_Op)0x58000003)
#define MPI_SUCCESS       0
#define MPI_STATUS_IGNORE ((MPI_Status *)1)

int MPI_Init(int *, char ***);
int MPI_Finalize(void);
int MPI_Abort(MPI_Comm, int);
int MPI_Barrier(MPI_Comm);
int MPI_Bcast(void *, int, MPI_Datatype, int, MPI_Comm);
int MPI_Allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
int MPI_Comm_rank(MPI_Comm, int *);
int MPI_Comm_size(MPI_Comm, int *);
int MPI_Comm_split(MPI_Comm, int, int, MPI_Comm *);
int MPI_Comm_dup(MPI_Comm, MPI_Comm *);
MPI_Comm MPI_Comm_f2c(MPI_Fint);
MPI_Fint MPI_Comm_c2f(MPI_Comm);
MPI_Aint MPI_Aint_add(MPI_Aint, MPI_Aint);
int MPI_Send(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int MPI_Bsend(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int MPI_Recv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
int MPI_Irecv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int MPI_Wait(MPI_Request *, MPI_Status *);
int MPI_Buffer_attach(void *, int);
int MPI_Buffer_detach(void *, int *);
int MPI_File_open(MPI_Comm, const char *, int, int, MPI_File *);

/* The first statements of main(). */
#define START                                                                                      \
    int rank = 0, size = 0;                                                                        \
    MPI_Init(&argc, &argv);                                                                        \
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);                                                          \
    MPI_Comm_size(MPI_COMM_WORLD, &size)

#endif
