/* SPDX-License-Identifier: MIT
 *
 * Declarations of MPI for the tests of `gpualloc rewrite`, which only parse the programs. In C++,
 * MPI_Alltoall takes the argument that a rewritten program gives it.
 */
#ifndef GPUALLOC_TESTS_REWRITE_MPI_H
#define GPUALLOC_TESTS_REWRITE_MPI_H

#ifdef __cplusplus
#define TEST_COALESCE , bool coalesce = false
extern "C" {
#else
#define TEST_COALESCE
#endif

typedef struct test_communicator *MPI_Comm;
typedef int MPI_Datatype;
typedef int MPI_Op;
typedef struct MPI_Status {
    int MPI_SOURCE, MPI_TAG;
} MPI_Status;
typedef int MPI_Request;
typedef int MPI_Errhandler;

extern struct test_communicator test_world, test_self;
#define MPI_COMM_WORLD        ((MPI_Comm)&test_world)
#define MPI_COMM_SELF         ((MPI_Comm)&test_self)
#define MPI_CHAR              1
#define MPI_INT               2
#define MPI_LONG              3
#define MPI_DOUBLE            4
#define MPI_UNSIGNED_CHAR     5
#define MPI_SUM               1
#define MPI_PROD              2
#define MPI_MAX               3
#define MPI_MIN               4
#define MPI_LAND              5
#define MPI_LOR               6
#define MPI_LXOR              7
#define MPI_BAND              8
#define MPI_BOR               9
#define MPI_BXOR              10
#define MPI_SUCCESS           0
#define MPI_STATUS_IGNORE     ((MPI_Status *)0)
#define MPI_ANY_SOURCE        (-2)
#define MPI_ANY_TAG           (-1)
#define MPI_PROC_NULL         (-1)
#define MPI_IN_PLACE          ((void *)-1)
#define MPI_ERRORS_RETURN     1
#define MPI_THREAD_SERIALIZED 2

int MPI_Init(int *argc, char ***argv);
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Finalize(void);
int MPI_Abort(MPI_Comm comm, int code);
double MPI_Wtime(void);
int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_size(MPI_Comm comm, int *size);
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *copy);
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *part);
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler);
int MPI_Barrier(MPI_Comm comm);
int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm);
int MPI_Reduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, int root,
               MPI_Comm comm);
int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm);
int MPI_Gather(const void *from, int count, MPI_Datatype type, void *to, int received,
               MPI_Datatype received_type, int root, MPI_Comm comm);
int MPI_Allgather(const void *from, int count, MPI_Datatype type, void *to, int received,
                  MPI_Datatype received_type, MPI_Comm comm);
int MPI_Scatter(const void *from, int count, MPI_Datatype type, void *to, int received,
                MPI_Datatype received_type, int root, MPI_Comm comm);
int MPI_Alltoall(const void *from, int count, MPI_Datatype type, void *to, int received,
                 MPI_Datatype received_type, MPI_Comm comm TEST_COALESCE);
int MPI_Send(const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm);
int MPI_Recv(void *to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
             MPI_Status *status);
int MPI_Sendrecv(const void *from, int count, MPI_Datatype type, int to, int tag, void *received,
                 int most, MPI_Datatype received_type, int source, int received_tag, MPI_Comm comm,
                 MPI_Status *status);
int MPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *count);
int MPI_Irecv(void *to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request);
int MPI_Wait(MPI_Request *request, MPI_Status *status);

#ifdef __cplusplus
}
#endif

#endif
