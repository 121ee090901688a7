/* SPDX-License-Identifier: MIT
 *
 * Messages from rank to rank. A message is a block of the heap with a copy of the data, so that a
 * send waits for nothing. The receiver frees the block.
 *
 * STRUCTURE  ga_mpi_rank.posted is a stack: senders push, and the receiver takes all at once and
 *            appends them in the order of their arrival to a list of its own.
 * INVARIANT  Messages of one sender stay in their order, as MPI demands.
 * ORDER      MS1, MS2, below.
 */
#ifndef GPUALLOC_GPU_MPI_MESSAGES_H
#define GPUALLOC_GPU_MPI_MESSAGES_H

#include "types.h"

typedef int MPI_Comm;
typedef struct MPI_Status {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR;
    size_t bytes; /* of the message */
} MPI_Status;

#define MPI_COMM_NULL  0
#define MPI_COMM_WORLD 1
#define MPI_COMM_SELF  2

#define MPI_SUCCESS   0
#define MPI_ERR_OTHER 15
#define MPI_UNDEFINED (-32766)

#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_ANY_SOURCE    (-2)
#define MPI_ANY_TAG       (-1)
#define MPI_PROC_NULL     (-1)

/* The data of a message, aligned to 16. */
enum {
    GA_MPI_DATA_AT = (sizeof(ga_mpi_message) + 15) & ~(size_t)15
};

/* These end the program if the argument is invalid. */
GA_MPI_CALL void ga_mpi_check_world(const char *call, MPI_Comm comm)
{
    if (comm != MPI_COMM_WORLD) {
        ga_mpi_fail(call, "expected MPI_COMM_WORLD, not communicator", comm);
    }
}

GA_MPI_CALL void ga_mpi_check_rank(const char *call, int rank)
{
    if (rank < 0 || (uint32_t)rank >= ga_mpi.ranks) {
        ga_mpi_fail(call, "expected a rank of the program, not", rank);
    }
}

GA_MPI_CALL void ga_mpi_post(ga_mpi_rank *to, ga_mpi_message *message)
{
    uint64_t before = ga_load64_relaxed(&to->posted); /* relaxed: a guess */
    for (;;) {
        message->next = (ga_mpi_message *)before;
        /* MS1: release. Pairs with MS2: the message is complete. */
        uint64_t found = ga_cas64_release(&to->posted, before, (uint64_t)message);
        if (found == before) {
            return;
        }
        before = found;
    }
}

/* Take the messages that have been posted to this rank. False if there are none. */
GA_MPI_CALL bool ga_mpi_take(ga_mpi_rank *own)
{
    if (!ga_load64_relaxed(&own->posted)) { /* relaxed: the exchange reads it again */
        return false;
    }
    /* MS2: acquire. Pairs with MS1. */
    ga_mpi_message *latest = (ga_mpi_message *)ga_exchange64_acquire(&own->posted, 0);
    ga_mpi_message *last = latest, *earliest = NULL;
    while (latest) {
        ga_mpi_message *before = latest->next;
        latest->next = earliest;
        earliest = latest;
        latest = before;
    }
    if (own->last) {
        own->last->next = earliest;
    } else {
        own->first = earliest;
    }
    own->last = last;
    return true;
}

/* Unlink the first message that matches; NULL if there is none. */
GA_MPI_CALL ga_mpi_message *ga_mpi_match(ga_mpi_rank *own, int source, int tag)
{
    ga_mpi_message *before = NULL;
    for (ga_mpi_message *m = own->first; m; before = m, m = m->next) {
        if ((source == MPI_ANY_SOURCE || m->source == source) &&
            (tag == MPI_ANY_TAG || m->tag == tag)) {
            *(before ? &before->next : &own->first) = m->next;
            own->last = own->last == m ? before : own->last;
            return m;
        }
    }
    return NULL;
}

GA_MPI_CALL int MPI_Send(const void *data, int count, MPI_Datatype type, int to, int tag,
                         MPI_Comm comm)
{
    size_t bytes = ga_mpi_bytes("MPI_Send", count, type);
    ga_mpi_check_world("MPI_Send", comm);
    if (to == MPI_PROC_NULL) {
        return MPI_SUCCESS;
    }
    ga_mpi_check_rank("MPI_Send", to);
    ga_mpi_message *message = (ga_mpi_message *)malloc(GA_MPI_DATA_AT + bytes);
    if (!message) {
        ga_mpi_fail("MPI_Send", "no memory for a message of bytes:", (long)bytes);
        return MPI_ERR_OTHER;
    }
    message->source = (int)ga_mpi_number();
    message->tag = tag;
    message->bytes = bytes;
    ga_mpi_copy((char *)message + GA_MPI_DATA_AT, data, bytes);
    ga_mpi_post(ga_mpi.of_ranks + to, message);
    return MPI_SUCCESS;
}

GA_MPI_CALL int MPI_Recv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                         MPI_Status *status)
{
    ga_mpi_rank *own = ga_mpi_own();
    ga_mpi_message *message = NULL, none = {NULL, MPI_PROC_NULL, MPI_ANY_TAG, 0};
    size_t bytes = ga_mpi_bytes("MPI_Recv", count, type);
    ga_mpi_check_world("MPI_Recv", comm);
    if (from != MPI_PROC_NULL) {
        if (from != MPI_ANY_SOURCE) {
            ga_mpi_check_rank("MPI_Recv", from);
        }
        (void)ga_mpi_take(own);
        while (!(message = ga_mpi_match(own, from, tag))) {
            while (!ga_mpi_take(own)) {
                ga_mpi_pause();
            }
        }
    }
    const ga_mpi_message *got = message ? message : &none;
    if (status) {
        status->MPI_SOURCE = got->source;
        status->MPI_TAG = got->tag;
        status->MPI_ERROR = MPI_SUCCESS;
        status->bytes = got->bytes;
    }
    if (got->bytes > bytes) {
        ga_mpi_fail("MPI_Recv",
                    "the buffer is too small for a message of bytes:", (long)got->bytes);
        return MPI_ERR_OTHER;
    }
    if (message) {
        ga_mpi_copy(data, (char *)message + GA_MPI_DATA_AT, got->bytes);
        free(message);
    }
    return MPI_SUCCESS;
}

GA_MPI_CALL int MPI_Sendrecv(const void *data, int count, MPI_Datatype type, int to, int tag,
                             void *buffer, int room, MPI_Datatype received, int from, int with,
                             MPI_Comm comm, MPI_Status *status)
{
    int sent = MPI_Send(data, count, type, to, tag, comm);
    return sent ? sent : MPI_Recv(buffer, room, received, from, with, comm, status);
}

GA_MPI_CALL int MPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *count)
{
    size_t bytes = ga_mpi_type_bytes("MPI_Get_count", type);
    *count = bytes && status->bytes % bytes == 0 ? (int)(status->bytes / bytes) : MPI_UNDEFINED;
    return MPI_SUCCESS;
}

#endif
