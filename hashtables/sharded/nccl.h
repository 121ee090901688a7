/* SPDX-License-Identifier: MIT
 *
 * NCCL as found at run time, and the record of an exchange over it.
 */
#ifndef GPUALLOC_SHARDED_NCCL_H
#define GPUALLOC_SHARDED_NCCL_H

#include "platform/cuda_driver.h"
#include "platform/local_socket.h"

#include <gpualloc/slabhash_nccl.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum {                /* ncclResult_t, ncclDataType_t, ncclRedOp_t */
    NCCL_SUCCESS = 0, /* the only result that is compared */
    NCCL_INT8 = 0,
    NCCL_UINT64 = 5,
    NCCL_MAX = 2,
    NCCL_WINDOW_SYMMETRIC = 1,
    GA_NCCL_BLOCKS = 4 /* that are registered, at most */
};

/* ncclConfig_t as of 2.18; later versions accept it by its size and version. */
typedef struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_size, ctas_min, ctas_max;
    const char *net;
    int splits_share;
} nccl_config;

/* clang-format off */
#define NCCL_FUNCTIONS(X)                                                                          \
    X(ncclGetVersion, (int *version))                                                              \
    X(ncclCommSplit, (void *comm, int color, int key, void **out, nccl_config *config))            \
    X(ncclCommCount, (void *comm, int *count))                                                     \
    X(ncclCommUserRank, (void *comm, int *rank))                                                   \
    X(ncclCommCuDevice, (void *comm, int *device))                                                 \
    X(ncclCommGetAsyncError, (void *comm, int *error))                                             \
    X(ncclCommAbort, (void *comm))                                                                 \
    X(ncclCommDestroy, (void *comm))                                                               \
    X(ncclGroupStart, (void))                                                                      \
    X(ncclGroupEnd, (void))                                                                        \
    X(ncclSend, (const void *from, size_t count, int type, int peer, void *comm, void *stream))    \
    X(ncclRecv, (void *to, size_t count, int type, int peer, void *comm, void *stream))            \
    X(ncclAllReduce, (const void *from, void *to, size_t count, int type, int op, void *comm,      \
                      void *stream))

/* NULL if the library has none. */
#define NCCL_FUNCTIONS_OF_LATER_VERSIONS(X)                                                        \
    X(ncclCommRegister, (void *comm, void *block, size_t bytes, void **handle))                    \
    X(ncclCommDeregister, (void *comm, void *handle))                                              \
    X(ncclMemAlloc, (void **block, size_t bytes))                                                  \
    X(ncclMemFree, (void *block))                                                                  \
    X(ncclCommWindowRegister, (void *comm, void *block, size_t bytes, void **window, int flags))   \
    X(ncclCommWindowDeregister, (void *comm, void *window))                                        \
    X(ncclGetPeerDevicePointer, (void *window, size_t offset, int peer, void **at))
/* clang-format on */

#define NCCL_MEMBER(name, parameters) int(*name) parameters;
typedef struct nccl_functions {
    NCCL_FUNCTIONS(NCCL_MEMBER)
    NCCL_FUNCTIONS_OF_LATER_VERSIONS(NCCL_MEMBER)
    const char *(*ncclGetErrorString)(int error);
    int version;
} nccl_functions;

extern nccl_functions ga_nccl; /* after ga_exchange_nccl() has found the library */

/* Memory that is registered with NCCL. */
typedef struct registered_block {
    void *block, *handle;
} registered_block;

/* Memory that all ranks reach: nccl_window.c. */
typedef struct nccl_window {
    void *block;    /* NULL: none */
    void *comm;     /* of the window alone */
    void *handle;   /* ncclWindow_t */
    char **peers;   /* the address of each rank's block on this device */
    uint64_t *zero; /* behind the block: a number for meetings that stays 0 */
    /* Meetings: nccl_meet.c. */
    bool is_on_streams; /* on all ranks */
    uint32_t *numbers;  /* guarded by the lock */
    CUdeviceptr numbers_at;
    uint32_t meetings; /* so far */
} nccl_window;

typedef struct nccl_link {
    void *comm;    /* NULL: aborted, */
    void *leaving; /* or about to be; then NULL */
    const ga_cuda_driver *driver;
    uint32_t rank, ranks;
    int device;
    uint32_t flags; /* ga_nccl_flags */
    uint64_t limit_ns;
    registered_block blocks[GA_NCCL_BLOCKS];
    nccl_window window;
    uint64_t deadline; /* of the call in progress; 0: none */
    uint64_t patience; /* until then callers wait for the end of an abort */
    bool is_late, is_aborted, ends, is_watched, in_group;
    pthread_t watch;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} nccl_link;

/* nccl.c: an earlier failure. */
ga_status ga_nccl_gone(const nccl_link *l);

/* nccl_watch.c: nanoseconds of the monotonic clock; a condition whose waits end at such a time. */
uint64_t ga_nccl_now(void);
struct timespec ga_nccl_time_of(uint64_t ns);
void ga_nccl_init_condition(pthread_cond_t *condition);
ga_status ga_nccl_start_thread(pthread_t *thread, void *(*run)(void *), void *context);

/* nccl_watch.c: the thread that aborts; end_watch() waits for it. */
ga_status ga_nccl_begin_watch(nccl_link *l);
void ga_nccl_end_watch(nccl_link *l);

/* nccl_watch.c: ends the communicator, and with it work on streams that waits for other ranks. If
 * that takes long, it goes on after the call; await_abort() waits for its end. */
void ga_nccl_abort(nccl_link *l);
void ga_nccl_await_abort(nccl_link *l);

/* nccl_watch.c and nccl.c: around a call that may wait for other ranks. */
void ga_nccl_arm(nccl_link *l);
ga_status ga_nccl_disarm(nccl_link *l, const char *call, ga_status status);

/* nccl.c: the members `largest` and `wait` of the exchange. */
ga_status ga_nccl_largest(void *context, uint64_t *values, uint32_t count, void *stream);
ga_status ga_nccl_wait(void *context, void *stream);

/* nccl.c: makes a communicator of the ranks of `comm`, and in it a window of `block`, if that is
 * not NULL: its `handle` stays NULL if there is none. */
ga_status ga_nccl_split(nccl_link *l, void *comm, void *block, uint64_t bytes, void **out,
                        void **handle);

/* nccl_window.c: `*good` becomes whether it is so on all ranks. `word` is memory of the device. */
ga_status ga_nccl_agree(nccl_link *l, uint64_t *word, bool *good, void *stream);

/* nccl_meet.c: decides on all ranks how they meet; frees that; the member `meet` of the exchange;
 * ends waits of streams after an abort, with the lock held. */
ga_status ga_nccl_begin_meetings(nccl_link *l, uint64_t *word, void *stream);
void ga_nccl_end_meetings(nccl_link *l);
ga_status ga_nccl_meet(void *context, void *stream);
void ga_nccl_release_locked(nccl_link *l);

/* nccl_numbers.c: the file of the numbers of meetings. */
typedef struct nccl_offer {
    int file;                   /* -1: none */
    ga_local_listener listener; /* of rank 0 */
} nccl_offer;

/* Rank 0 makes the file; hands it to the others until `end`, a time of ga_local_now(). They fetch
 * it. end_offer() closes what the others of these functions have opened, also if one failed. */
bool ga_nccl_offer_numbers(nccl_offer *offer, uint64_t name, uint64_t bytes);
bool ga_nccl_hand_numbers(const nccl_offer *offer, uint32_t others, uint64_t bytes, int64_t end);
bool ga_nccl_fetch_numbers(nccl_offer *offer, uint64_t name, uint64_t bytes, int64_t end);
void ga_nccl_end_offer(nccl_offer *offer);

/* nccl_window.c: members of the exchange. */
ga_status ga_nccl_share(void *context, ga_shared *out, uint64_t bytes, uint64_t *word,
                        void *stream);
void ga_nccl_unshare(void *context, void *block);
ga_status ga_nccl_put(void *context, const void *from, void *at, uint64_t bytes, uint32_t to,
                      void *stream);
ga_status ga_nccl_fetch(void *context, void *to, const void *at, uint64_t bytes, uint32_t from,
                        void *stream);

#endif
