/* SPDX-License-Identifier: MIT */
#include "nccl.h"

#include "ranks.h"

#include <gpualloc/backend.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    SYSTEM_ERROR = 2,
    INVALID_ARGUMENT = 4,
    REMOTE_ERROR = 6,
    VERSION = 22803,
    BLOCKS_MOST = 64,
    OLD_CONFIG = 48, /* bytes of ncclConfig_t in NCCL 2.18 */
    WORLDS_MOST = 4096
};

#define CONFIG_MAGIC 0xcafebeefu

typedef struct comm comm;

/* All ranks of a communicator. */
typedef struct world {
    ranks all;
    comm *members[RANKS_MOST]; /* not destroyed yet */
    struct world *child;       /* that is being split off */
    uint32_t taken, splits;    /* ranks that have it; splits so far */
    uint32_t waiting;          /* threads that wait for ranks of a split */
    bool is_over;              /* they are to give up */
    int files[RANKS_MOST];     /* of the blocks that become a window */
    uint32_t registered;       /* ranks that have come for it */
    bool is_aborted;           /* by a rank */
} world;

#define STRIDE (UINT64_C(1) << 32)

/* As in device memory, and what belongs to it. */
typedef struct window {
    void *host;
    char *base;
    int local_rank, rank;
    uint32_t stride, multicast;
    uint32_t ranks;
} window;

struct comm {
    world *of;
    window *made;
    uint32_t rank;
    ga_exchange exchange;
    bool is_split;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all of the following */
static world *worlds[WORLDS_MOST];
static pthread_cond_t splitting = PTHREAD_COND_INITIALIZER;
static int world_count, aborts;
static int fail_at[RANKS_MOST], fail_with[RANKS_MOST], calls[RANKS_MOST];
static int version = VERSION, fault, windows, windows_made;

/* With the lock held. */
static world *make_world(uint32_t count)
{
    world *w = calloc(1, sizeof *w);
    if (!w || world_count == WORLDS_MOST) {
        abort();
    }
    ranks_begin(&w->all, count);
    w->all.seconds = 60; /* the library has a shorter limit */
    worlds[world_count++] = w;
    return w;
}

static comm *make_comm(world *of, uint32_t rank, bool is_split)
{
    comm *c = calloc(1, sizeof *c);
    *c = (comm){.of = of, .rank = rank, .is_split = is_split};
    c->exchange = ranks_exchange(&of->all, rank);
    of->members[rank] = c;
    return c;
}

static void drop_window(comm *c)
{
    if (c->made) {
        munmap(c->made->base, c->made->ranks * STRIDE);
        free(c->made);
        c->made = NULL;
        windows--;
    }
}

static void drop(comm *c)
{
    drop_window(c);
    c->of->members[c->rank] = NULL;
    c->exchange.close(c->exchange.context);
    free(c);
}

/* The exchange's: here nobody reads the sentence. */
ga_status ga_fail(ga_status status, const char *format, ...)
{
    (void)format;
    return status;
}

EXPORT nccl_begin_fn nccl_begin;
EXPORT nccl_end_fn nccl_end;
EXPORT nccl_fail_fn nccl_fail;
EXPORT nccl_calls_fn nccl_calls;
EXPORT nccl_aborts_fn nccl_aborts;

void nccl_begin(void **comms, uint32_t count)
{
    pthread_mutex_lock(&lock);
    world *w = make_world(count);
    for (uint32_t i = 0; i < count; i++) {
        comms[i] = make_comm(w, i, false);
        fail_at[i] = RANKS_NEVER;
    }
    pthread_mutex_unlock(&lock);
}

void nccl_end(void)
{
    pthread_mutex_lock(&lock);
    while (world_count) {
        world *w = worlds[--world_count];
        w->is_over = true;
        pthread_cond_broadcast(&splitting);
        while (w->waiting) {
            pthread_cond_wait(&splitting, &lock);
        }
        for (uint32_t i = 0; i < w->all.count; i++) {
            if (w->members[i]) {
                drop(w->members[i]);
            }
        }
        ranks_end(&w->all);
        free(w);
    }
    pthread_mutex_unlock(&lock);
}

void nccl_fail(uint32_t rank, int n, int error)
{
    pthread_mutex_lock(&lock);
    fail_at[rank] = n < 0 ? RANKS_NEVER : calls[rank] + n;
    fail_with[rank] = error;
    pthread_mutex_unlock(&lock);
}

EXPORT nccl_set_waiting_fn nccl_set_waiting;
static int (*work_that_waits)(void);

void nccl_set_waiting(int (*waiting)(void))
{
    work_that_waits = waiting;
}

static void wait_for_devices(void)
{
    for (int ms = 0; work_that_waits && work_that_waits() != 0; ms++) {
        if (ms == 10000) {
            fprintf(stderr, "ncclCommAbort: work on a device waits for ever\n");
            abort();
        }
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

EXPORT nccl_set_windows_fn nccl_set_windows;
EXPORT nccl_windows_fn nccl_windows;
EXPORT nccl_is_on_device_fn nccl_is_on_device;

void nccl_set_windows(int new_version, nccl_fault new_fault)
{
    pthread_mutex_lock(&lock);
    version = new_version;
    fault = (int)new_fault;
    pthread_mutex_unlock(&lock);
}

int nccl_windows(int *made)
{
    pthread_mutex_lock(&lock);
    int left = windows;
    *made = windows_made;
    pthread_mutex_unlock(&lock);
    return left;
}

int nccl_calls(uint32_t rank)
{
    return calls[rank];
}

int nccl_aborts(void)
{
    return aborts;
}

/* Counts a call. Returns the error with which it is to fail. */
static int count(const comm *c)
{
    int error = SUCCESS;
    pthread_mutex_lock(&lock);
    if (c->is_split && calls[c->rank]++ == fail_at[c->rank]) {
        error = fail_with[c->rank];
    }
    pthread_mutex_unlock(&lock);
    return error;
}

/* ---- NCCL ------------------------------------------------------------------------------------ */

typedef struct config {
    size_t size;
    unsigned magic, version;
} config;

/* The group of this thread. */
static _Thread_local comm *grouped; /* the communicator of its messages */

#define NCCL(name, ...)                                                                            \
    EXPORT int name(__VA_ARGS__);                                                                  \
    int name(__VA_ARGS__)

NCCL(ncclGetVersion, int *out)
{
    *out = version;
    return SUCCESS;
}

EXPORT const char *ncclGetErrorString(int error);
const char *ncclGetErrorString(int error)
{
    return error == SUCCESS ? "no error" : error == REMOTE_ERROR ? "remote error" : "an error";
}

NCCL(ncclCommCount, const comm *c, int *out)
{
    *out = (int)c->of->all.count;
    return SUCCESS;
}

NCCL(ncclCommUserRank, const comm *c, int *out)
{
    *out = (int)c->rank;
    return SUCCESS;
}

NCCL(ncclCommCuDevice, const comm *c, int *out)
{
    *out = (int)c->rank;
    return SUCCESS;
}

NCCL(ncclCommGetAsyncError, const comm *c, int *out)
{
    *out = count(c);
    return SUCCESS;
}

NCCL(ncclCommSplit, comm *c, int color, int key, comm **out, const config *how)
{
    if (color != 0 || key != (int)c->rank || !how || how->size < OLD_CONFIG ||
        how->magic != CONFIG_MAGIC) {
        return INVALID_ARGUMENT;
    }
    pthread_mutex_lock(&lock);
    world *w = c->of;
    if (!w->taken) {
        w->child = make_world(w->all.count);
        w->splits++;
    }
    uint32_t split = w->splits;
    *out = make_comm(w->child, c->rank, true);
    w->taken = (w->taken + 1) % w->all.count;
    pthread_cond_broadcast(&splitting);
    w->waiting++;
    while (w->taken && w->splits == split && !w->is_over) { /* for all ranks */
        pthread_cond_wait(&splitting, &lock);
    }
    w->waiting--;
    pthread_cond_broadcast(&splitting);
    bool is_over = w->is_over;
    pthread_mutex_unlock(&lock);
    return is_over ? REMOTE_ERROR : SUCCESS;
}

NCCL(ncclCommDestroy, comm *c)
{
    pthread_mutex_lock(&lock);
    drop(c);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

/* With the lock held. A thread that was left behind may come after nccl_end(). */
static bool is_known(const comm *c)
{
    bool found = false;
    for (int i = 0; i < world_count; i++) {
        for (uint32_t rank = 0; rank < worlds[i]->all.count; rank++) {
            found |= worlds[i]->members[rank] == c;
        }
    }
    return found;
}

/* The communicator stays, because a thread may be in a call of it. */
NCCL(ncclCommAbort, comm *c)
{
    pthread_mutex_lock(&lock);
    aborts++;
    if (is_known(c)) {
        c->of->is_aborted = true;
        drop_window(c);
        pthread_cond_broadcast(&splitting);
        ranks_leave(&c->of->all, c->rank);
    }
    pthread_mutex_unlock(&lock);
    wait_for_devices();
    return SUCCESS;
}

NCCL(ncclGroupStart, void)
{
    grouped = NULL;
    return SUCCESS;
}

static int begin_group(comm *c)
{
    if (grouped != c) {
        grouped = c;
        return c->exchange.begin(c->exchange.context) ? REMOTE_ERROR : SUCCESS;
    }
    return SUCCESS;
}

NCCL(ncclSend, const void *from, size_t bytes, int type, int peer, comm *c, void *stream)
{
    int error = type ? INVALID_ARGUMENT : count(c);
    error = error ? error : begin_group(c);
    return error ? error
           : c->exchange.send(c->exchange.context, from, bytes, (uint32_t)peer, stream)
               ? REMOTE_ERROR
               : SUCCESS;
}

NCCL(ncclRecv, void *to, size_t bytes, int type, int peer, comm *c, void *stream)
{
    int error = type ? INVALID_ARGUMENT : count(c);
    error = error ? error : begin_group(c);
    return error ? error
           : c->exchange.receive(c->exchange.context, to, bytes, (uint32_t)peer, stream)
               ? REMOTE_ERROR
               : SUCCESS;
}

NCCL(ncclGroupEnd, void)
{
    comm *c = grouped;
    int error = c ? count(c) : SUCCESS;
    return error                                                      ? error
           : c && c->exchange.end(c->exchange.context, NULL) != GA_OK ? REMOTE_ERROR
                                                                      : SUCCESS;
}

NCCL(ncclAllReduce, const void *from, void *to, size_t elements, int type, int op, comm *c,
     void *stream)
{
    int error = from != to || type != 5 || op != 2 ? INVALID_ARGUMENT : count(c);
    return error                                                                      ? error
           : c->exchange.largest(c->exchange.context, to, (uint32_t)elements, stream) ? REMOTE_ERROR
                                                                                      : SUCCESS;
}

/* ---- windows --------------------------------------------------------------------------------- */

static struct {
    void *start;
    size_t bytes;
    int file;
} blocks[BLOCKS_MOST]; /* guarded by `lock` */

static bool is_within(const void *at, const void *start, uint64_t bytes)
{
    return (uintptr_t)at >= (uintptr_t)start && (uintptr_t)at - (uintptr_t)start < bytes;
}

static bool is_in_window(const void *at, const window *w)
{
    return w && (is_within(at, w, sizeof *w) || is_within(at, w->base, w->ranks * STRIDE));
}

bool nccl_is_on_device(const void *at)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < BLOCKS_MOST; i++) {
        found |= is_within(at, blocks[i].start, blocks[i].bytes);
    }
    for (int i = 0; i < world_count; i++) {
        for (uint32_t rank = 0; rank < worlds[i]->all.count; rank++) {
            found |= worlds[i]->members[rank] && is_in_window(at, worlds[i]->members[rank]->made);
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static int find_block(const void *start)
{
    int i = 0;
    while (i < BLOCKS_MOST && (blocks[i].start != start || !blocks[i].bytes)) {
        i++;
    }
    return i;
}

NCCL(ncclMemAlloc, void **block, size_t bytes)
{
    pthread_mutex_lock(&lock);
    bool fails = fault == NCCL_NO_MEMORY;
    fault = fails ? NCCL_NO_FAULT : fault;
    int at = 0;
    while (at < BLOCKS_MOST && blocks[at].bytes) {
        at++;
    }
    if (fails || at == BLOCKS_MOST) {
        pthread_mutex_unlock(&lock);
        return SYSTEM_ERROR;
    }
    int file = memfd_create("nccl", MFD_CLOEXEC);
    void *start = !ftruncate(file, (off_t)bytes)
                      ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                      : MAP_FAILED;
    if (start == MAP_FAILED) {
        abort();
    }
    blocks[at].start = *block = start;
    blocks[at].bytes = bytes;
    blocks[at].file = file;
    windows++;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

NCCL(ncclMemFree, void *block)
{
    pthread_mutex_lock(&lock);
    int at = find_block(block);
    if (at == BLOCKS_MOST) {
        abort();
    }
    munmap(block, blocks[at].bytes);
    close(blocks[at].file);
    blocks[at].bytes = 0;
    windows--;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

/* With the lock held: all ranks have come. */
static window *make_window(comm *c, size_t bytes)
{
    window *made = calloc(1, sizeof *made);
    uint32_t count = c->of->all.count;
    *made = (window){.local_rank = (int)c->rank, .rank = (int)c->rank, .stride = 1, .ranks = count};
    made->base =
        mmap(NULL, count * STRIDE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (uint32_t rank = 0; rank < count; rank++) {
        if (mmap(made->base + rank * STRIDE, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 c->of->files[rank], 0) == MAP_FAILED) {
            abort();
        }
    }
    made->stride = c->rank == 1 && fault == NCCL_WRONG_ADDRESS ? 0 : 1;
    windows++;
    windows_made++;
    c->made = made;
    return made;
}

NCCL(ncclCommWindowRegister, comm *c, void *block, size_t bytes, window **out, int flags)
{
    int error = flags == 1 ? count(c) : INVALID_ARGUMENT;
    *out = NULL;
    if (error) {
        return error;
    }
    pthread_mutex_lock(&lock);
    world *w = c->of;
    int at = find_block(block);
    w->files[c->rank] = at < BLOCKS_MOST ? blocks[at].file : -1;
    w->registered++;
    pthread_cond_broadcast(&splitting);
    w->waiting++;
    while (w->registered % w->all.count && !w->is_over && !w->is_aborted) {
        pthread_cond_wait(&splitting, &lock);
    }
    w->waiting--;
    bool is_over = w->is_over || w->is_aborted;
    bool has_none = c->rank == 1 && fault == NCCL_NO_WINDOW;
    *out = is_over || has_none ? NULL : make_window(c, bytes);
    if (*out && fault == NCCL_HOST_HANDLE) {
        static window host;
        drop_window(c);
        *out = &host;
    }
    pthread_cond_broadcast(&splitting);
    pthread_mutex_unlock(&lock);
    return is_over ? REMOTE_ERROR : SUCCESS;
}

NCCL(ncclCommWindowDeregister, comm *c, const window *of)
{
    pthread_mutex_lock(&lock);
    if (c->made && c->made != of) {
        abort();
    }
    drop_window(c);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

NCCL(ncclGetPeerDevicePointer, window *of, size_t offset, int peer, void **at)
{
    *at = of->base + (uint64_t)peer * of->stride * STRIDE + offset;
    return SUCCESS;
}
