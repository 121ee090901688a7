/* SPDX-License-Identifier: MIT
 *
 * A slab hash over the processes of an MPI communicator: gpualloc/slabhash_sharded.h, with a table
 * of host threads (gpualloc/slabhash.h) on each.
 *
 *     ga_slabhash_sharded *table;
 *     ga_slabhash_options options = {.options_size = sizeof options, .mode = GA_SLABHASH_MAP32,
 *                                    .buckets = 1000000};
 *     ga_slabhash_mpi_open(&table, &options, MPI_COMM_WORLD, NULL);     on each rank
 *     ga_slabhash_sharded_run(table, &batch, counts, NULL);
 *     ga_slabhash_sharded_close(table);                                 before MPI_Finalize()
 *
 * Header only, because an MPI library has an interface of its own for machine code; compiles with
 * mpicc as C11 and C++17; link with -lgpualloc.
 *
 * MPI cannot end an exchange with a rank that is gone: after the time limit the call fails, and the
 * messages stay in progress until the process ends. So does the memory for them.
 *
 * MPI_THREAD_SINGLE is enough if one thread makes all calls of MPI and of such tables. While a call
 * waits, MPI_COMM_WORLD and MPI_COMM_SELF have the error handler MPI_ERRORS_RETURN.
 */
#ifndef GPUALLOC_SLABHASH_MPI_H
#define GPUALLOC_SLABHASH_MPI_H

#include <gpualloc/backend.h>
#include <gpualloc/slabhash_sharded.h>

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GA_MPI_BYTES   ((uint64_t)1 << 30) /* of a message at most: MPI counts in int */
#define GA_MPI_SECONDS 600.0               /* default of the time limit */
#define GA_MPI_TAG     0x6761              /* of all messages */

typedef struct ga_mpi_link {
    MPI_Comm comm; /* of its own */
    MPI_Request *requests;
    MPI_Status *statuses; /* not read: compilers warn of the constant for none */
    int count, room;
    double seconds; /* time limit */
    bool is_late;
} ga_mpi_link;

/* ---- the calls of a ga_exchange -------------------------------------------------------------- */

static inline ga_status ga_mpi_check(int error, const char *call)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (error == MPI_SUCCESS) {
        return GA_OK;
    }
    MPI_Error_string(error, text, &length);
    return ga_fail(GA_ERR_DEVICE, "mpi: %s: %.*s: expected success", call, length, text);
}

/* Messages may be in progress: the requests stay. */
static inline ga_status ga_mpi_failed(ga_mpi_link *link, ga_status status)
{
    link->is_late = true;
    return status;
}

static inline ga_status ga_mpi_begin(void *context)
{
    ga_mpi_link *link = (ga_mpi_link *)context;
    link->count = 0;
    return link->is_late ? ga_fail(GA_ERR_DEVICE, "mpi: an earlier exchange did not end in time")
                         : GA_OK;
}

static inline ga_status ga_mpi_add(ga_mpi_link *link, MPI_Request **out)
{
    if (link->count == link->room) {
        int room = link->room ? 2 * link->room : 64;
        void *requests = realloc(link->requests, (size_t)room * sizeof *link->requests);
        link->requests = requests ? (MPI_Request *)requests : link->requests;
        void *statuses = realloc(link->statuses, (size_t)room * sizeof *link->statuses);
        link->statuses = statuses ? (MPI_Status *)statuses : link->statuses;
        if (!requests || !statuses) {
            return ga_fail(GA_ERR_MEMORY, "mpi: no memory for %d messages", room);
        }
        link->room = room;
    }
    *out = link->requests + link->count++;
    return GA_OK;
}

static inline ga_status ga_mpi_send(void *context, const void *from, uint64_t bytes, uint32_t to,
                                    void *stream)
{
    ga_mpi_link *link = (ga_mpi_link *)context;
    ga_status status = GA_OK;
    (void)stream;
    for (uint64_t at = 0; status == GA_OK && at < bytes; at += GA_MPI_BYTES) {
        MPI_Request *request = NULL;
        uint64_t some = bytes - at < GA_MPI_BYTES ? bytes - at : GA_MPI_BYTES;
        status = ga_mpi_add(link, &request);
        status = status ? status
                        : ga_mpi_check(MPI_Isend((const char *)from + at, (int)some, MPI_BYTE,
                                                 (int)to, GA_MPI_TAG, link->comm, request),
                                       "MPI_Isend");
    }
    return status ? ga_mpi_failed(link, status) : GA_OK;
}

static inline ga_status ga_mpi_receive(void *context, void *to, uint64_t bytes, uint32_t from,
                                       void *stream)
{
    ga_mpi_link *link = (ga_mpi_link *)context;
    ga_status status = GA_OK;
    (void)stream;
    for (uint64_t at = 0; status == GA_OK && at < bytes; at += GA_MPI_BYTES) {
        MPI_Request *request = NULL;
        uint64_t some = bytes - at < GA_MPI_BYTES ? bytes - at : GA_MPI_BYTES;
        status = ga_mpi_add(link, &request);
        status = status ? status
                        : ga_mpi_check(MPI_Irecv((char *)to + at, (int)some, MPI_BYTE, (int)from,
                                                 GA_MPI_TAG, link->comm, request),
                                       "MPI_Irecv");
    }
    return status ? ga_mpi_failed(link, status) : GA_OK;
}

static inline ga_status ga_mpi_test_all(ga_mpi_link *link, const char *call)
{
    double start = MPI_Wtime();
    int done = 0;
    ga_status status = GA_OK;
    while (status == GA_OK && !done) { /* as MPI waits */
        status =
            ga_mpi_check(MPI_Testall(link->count, link->requests, &done, link->statuses), call);
        if (status == GA_OK && !done && MPI_Wtime() - start > link->seconds) {
            status = ga_fail(GA_ERR_DEVICE,
                             "mpi: %s: no end after %g s: expected that all ranks take part", call,
                             link->seconds);
        }
    }
    return status ? ga_mpi_failed(link, status) : GA_OK;
}

/* The requests of MPI_Testall() may be of several communicators. So MPI reports its errors to the
 * handler of a predefined one: MPICH to that of MPI_COMM_WORLD, MPI 4 wants that of MPI_COMM_SELF.
 * By default these end the process, if a rank is gone. */
static inline ga_status ga_mpi_finish(ga_mpi_link *link, const char *call)
{
    MPI_Errhandler world, self;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &world);
    MPI_Comm_get_errhandler(MPI_COMM_SELF, &self);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    ga_status status = ga_mpi_test_all(link, call);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, world);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, self);
    MPI_Errhandler_free(&world);
    MPI_Errhandler_free(&self);
    return status;
}

static inline ga_status ga_mpi_end(void *context, void *stream)
{
    (void)stream;
    return ga_mpi_finish((ga_mpi_link *)context, "an exchange");
}

static inline ga_status ga_mpi_largest(void *context, uint64_t *values, uint32_t count,
                                       void *stream)
{
    ga_mpi_link *link = (ga_mpi_link *)context;
    MPI_Request *request = NULL;
    ga_status status = ga_mpi_begin(context);
    (void)stream;
    status = status ? status : ga_mpi_add(link, &request);
    status = status ? status
                    : ga_mpi_check(MPI_Iallreduce(MPI_IN_PLACE, values, (int)count, MPI_UINT64_T,
                                                  MPI_MAX, link->comm, request),
                                   "MPI_Iallreduce");
    return status ? ga_mpi_failed(link, status) : ga_mpi_finish(link, "an agreement");
}

static inline ga_status ga_mpi_wait(void *context, void *stream)
{
    (void)context;
    (void)stream;
    return GA_OK; /* each call has waited */
}

static inline void ga_mpi_close(void *context)
{
    ga_mpi_link *link = (ga_mpi_link *)context;
    if (!link->is_late) {
        MPI_Comm_free(&link->comm);
        free(link->requests);
        free(link->statuses);
    }
    free(link);
}

/* Makes an exchange among the ranks of `comm`, which stays the caller's. Collective. `seconds` is
 * the time limit of one exchange; 0: 10 minutes.
 *
 * GA_ERR_DEVICE  MPI reported an error */
static inline ga_status ga_exchange_mpi(ga_exchange *out, MPI_Comm comm, double seconds)
{
    int rank = 0, ranks = 1;
    ga_mpi_link *link = (ga_mpi_link *)calloc(1, sizeof *link);
    if (!link) {
        return ga_fail(GA_ERR_MEMORY, "mpi: no memory for an exchange");
    }
    ga_status status = ga_mpi_check(MPI_Comm_dup(comm, &link->comm), "MPI_Comm_dup");
    if (status != GA_OK) {
        free(link);
        return status;
    }
    MPI_Comm_set_errhandler(link->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(link->comm, &rank);
    MPI_Comm_size(link->comm, &ranks);
    link->seconds = seconds > 0 ? seconds : GA_MPI_SECONDS;
    memset(out, 0, sizeof *out); /* members without a function here */
    out->exchange_size = sizeof *out;
    out->context = link;
    out->rank = (uint32_t)rank;
    out->ranks = (uint32_t)ranks;
    out->device = -1;
    out->begin = ga_mpi_begin;
    out->send = ga_mpi_send;
    out->receive = ga_mpi_receive;
    out->end = ga_mpi_end;
    out->largest = ga_mpi_largest;
    out->wait = ga_mpi_wait;
    out->close = ga_mpi_close;
    return GA_OK;
}

/* Opens a sharded table on the ranks of `comm`. Collective. `options` as for ga_slabhash_open(),
 * equal on all ranks; `buckets` is the number of all shards together. NULL for `sharded` are the
 * defaults.
 *
 * Errors as of ga_slabhash_open() and ga_slabhash_sharded_open() */
static inline ga_status ga_slabhash_mpi_open(ga_slabhash_sharded **out,
                                             const ga_slabhash_options *options, MPI_Comm comm,
                                             const ga_sharded_options *sharded)
{
    ga_exchange exchange;
    ga_status status = ga_exchange_mpi(&exchange, comm, 0);
    return status ? status : ga_slabhash_sharded_open_host(out, &exchange, options, sharded);
}

#ifdef __cplusplus
}
#endif
#endif
