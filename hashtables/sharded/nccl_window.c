/* SPDX-License-Identifier: MIT
 *
 * Memory of all ranks that each of them reaches through windows of NCCL (ncclCommWindowRegister, of
 * 2.28 or later), and copies by the engines of the device, which leave its multiprocessors to the
 * shard. NCCL makes the memory and maps that of the other ranks.
 *
 * STRUCTURE  The window has a communicator of its own, on which nothing runs. When the other one is
 *            aborted, copies behind its work may still begin. The memory of other ranks, which an
 *            abort unmaps, must then be there.
 *
 * MEETINGS   Behind the block are numbers, one for each rank. In a meeting each rank writes the
 *            meeting's number to the others, and waits until all of theirs have reached it, on the
 *            stream and without a kernel. For a kernel there may be no room before the shard's has
 *            ended. To end the waits of an abort, the numbers are set far ahead, and again, because
 *            one that another rank has sent may arrive after that. That needs the driver. Where a
 *            call of the shard may wait in it, a meeting is a kernel, which NCCL can end without.
 *
 * ORDER      `meetings` is relaxed: a later number than that of the last meeting is enough.
 *
 * NCCL's own all-to-all of copy engines (ncclAlltoAll with NCCL_CTA_POLICY_ZERO) is not used: it
 * waits for other ranks on the stream without a kernel, and ncclCommAbort() does not end that. All
 * ranks would have to send the same number of bytes, too.
 */
#include "nccl.h"

#include "platform/environment.h"
#include "platform/libc.h"
#include "platform/log.h"

#include <gpualloc/backend.h>

#include <stdlib.h>
#include <string.h>

enum {
    OLDEST_WITH_WINDOWS = 22800,
    OLDEST_WITH_ADDRESSES = 22900, /* by ncclGetPeerDevicePointer() */
    WORD = sizeof(uint64_t),
    LINE = 256, /* bytes, at a multiple of which the numbers begin */
    FAR_AHEAD = 1 << 30,
    QUEUES_LEAST = 8, /* as by default */
    MARK = 0x5a       /* of rank 0, and so on: a byte at the beginning of its block */
};

/* The beginning of an ncclWindow_t in device memory, as nccl_device/impl/core__types.h of 2.28 and
 * all later versions until 2.32 has it. Blocks of ranks are at multiples of `stride` 4-GiB units
 * from the base. From 2.29 on a function has the address. */
typedef struct window_head {
    void *host;
    char *base;
    int local_rank, rank;
    uint32_t stride, multicast;
} window_head;

static bool has_windows(const nccl_link *l)
{
    return ga_nccl.version >= OLDEST_WITH_WINDOWS && ga_nccl.ncclMemAlloc && ga_nccl.ncclMemFree &&
           ga_nccl.ncclCommWindowRegister && ga_nccl.ncclCommWindowDeregister &&
           !(l->flags & GA_NCCL_NO_WINDOWS) && l->ranks > 1;
}

/* With few hardware queues the release of a stream could be queued behind it. */
static bool waits_on_streams(const nccl_link *l)
{
    const char *queues = ga_environment("CUDA_DEVICE_MAX_CONNECTIONS");
    return l->driver->cuStreamWriteValue32 && l->driver->cuStreamWaitValue32 &&
           (!queues || atoi(queues) >= QUEUES_LEAST);
}

/* ---- small work on the device ---------------------------------------------------------------- */

/* Whether no rank says that it failed. `word` is memory of the device. */
static ga_status agree(nccl_link *l, uint64_t *word, bool *good, void *stream)
{
    uint64_t failed = 1;
    ga_status status = GA_CUDA_CALL(l->driver, cuMemsetD8Async, (CUdeviceptr)word, 0, WORD, stream);
    status = status
                 ? status
                 : GA_CUDA_CALL(l->driver, cuMemsetD8Async, (CUdeviceptr)word, !*good, 1, stream);
    status = status ? status : ga_nccl_largest(l, word, 1, stream);
    status = status ? status : ga_nccl_wait(l, stream);
    status = status ? status
                    : GA_CUDA_CALL(l->driver, cuMemcpyDtoHAsync, &failed, (CUdeviceptr)word, WORD,
                                   stream);
    status = status ? status : ga_nccl_wait(l, stream);
    *good = status == GA_OK && failed == 0;
    return status;
}

/* Whether the driver knows it as memory of a device. */
static bool is_on_device(const nccl_link *l, const void *at)
{
    ga_cuda_scope scope = {.driver = l->driver};
    ga_cuda_pointer pointer;
    return ga_cuda_describe(&scope, at, &pointer) == GA_OK &&
           pointer.memory_type == CU_MEMORYTYPE_DEVICE;
}

static bool reads(const nccl_link *l, void *to, const void *at, uint64_t bytes, void *stream)
{
    return is_on_device(l, at) &&
           l->driver->cuMemcpyDtoHAsync(to, (CUdeviceptr)at, bytes, stream) == CUDA_SUCCESS &&
           l->driver->cuStreamSynchronize(stream) == CUDA_SUCCESS;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* From the window itself. */
static bool find_by_head(nccl_link *l, void *stream)
{
    window_head head;
    if (!reads(l, &head, l->window.handle, sizeof head, stream) || head.rank != (int)l->rank ||
        head.local_rank != (int)l->rank) { /* also if not all ranks are on this host */
        return false;
    }
    for (uint32_t rank = 0; rank < l->ranks; rank++) {
        l->window.peers[rank] = head.base + ((uint64_t)head.stride << 32) * rank;
    }
    return true;
}

static bool find_peers(nccl_link *l, void *stream)
{
    bool found = true;
    l->window.peers = ga_libc.calloc(l->ranks, sizeof *l->window.peers);
    if (!l->window.peers || ga_nccl.version < OLDEST_WITH_ADDRESSES ||
        !ga_nccl.ncclGetPeerDevicePointer) {
        return l->window.peers && find_by_head(l, stream);
    }
    for (uint32_t rank = 0; found && rank < l->ranks; rank++) {
        void *at = NULL;
        found =
            ga_nccl.ncclGetPeerDevicePointer(l->window.handle, 0, (int)rank, &at) == NCCL_SUCCESS &&
            at;
        l->window.peers[rank] = at;
    }
    return found;
}

static uint32_t mark_of(uint32_t rank)
{
    return MARK + rank;
}

/* Whether each address leads to the block of that rank. */
static bool check_peers(const nccl_link *l, void *stream)
{
    bool good = true;
    for (uint32_t rank = 0; good && rank < l->ranks; rank++) {
        uint32_t mark = 0;
        good = reads(l, &mark, l->window.peers[rank], sizeof mark, stream) && mark == mark_of(rank);
    }
    return good;
}

/* ---- the block ------------------------------------------------------------------------------- */

static void end_window(nccl_link *l)
{
    nccl_window *w = &l->window;
    if (w->comm && !l->comm) { /* a failure: other ranks may be gone */
        ga_nccl.ncclCommAbort(w->comm);
    } else if (w->comm) {
        if (w->handle) {
            ga_nccl.ncclCommWindowDeregister(w->comm, w->handle);
        }
        ga_nccl.ncclCommDestroy(w->comm);
    }
    pthread_mutex_lock(&l->lock); /* beside the watch */
    CUstream releases = w->releases;
    w->releases = NULL;
    pthread_mutex_unlock(&l->lock);
    if (releases && ga_cuda_has_context(l->device)) {
        (void)l->driver->cuStreamDestroy(releases);
    }
    if (w->block) {
        ga_nccl.ncclMemFree(w->block);
    }
    ga_libc.free(w->peers);
    *w = (nccl_window){0};
}

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* The mark, and numbers for meetings. */
static bool begin_block(nccl_link *l, void *stream)
{
    nccl_window *w = &l->window;
    CUdeviceptr start = (CUdeviceptr)w->block;
    CUdeviceptr numbers = (CUdeviceptr)w->numbers;
    uint64_t bytes = (l->ranks + 1) * sizeof *w->numbers;
    CUresult result = l->driver->cuMemsetD32Async(start, mark_of(l->rank), 1, stream);
    result = result ? result : l->driver->cuMemsetD8Async(numbers, 0, bytes, stream);
    if (result == CUDA_SUCCESS && w->is_on_streams) {
        result = l->driver->cuStreamCreate(&w->releases, CU_STREAM_NON_BLOCKING);
    }
    return result == CUDA_SUCCESS;
}

/* All ranks have a block. False: some rank has no window, or does not reach another one. */
static ga_status connect(nccl_link *l, uint64_t *word, uint64_t bytes, bool *good, void *stream)
{
    nccl_window *w = &l->window;
    ga_status status = ga_nccl_split(l, l->comm, w->block, bytes, &w->comm, &w->handle);
    if (status != GA_OK) {
        w->block = NULL; /* a thread that is left behind may use it */
        return status;
    }
    w->is_on_streams = waits_on_streams(l);
    status = agree(l, word, &w->is_on_streams, stream);
    if (status != GA_OK) {
        return status;
    }
    *good = w->handle && find_peers(l, stream) && begin_block(l, stream);
    status = agree(l, word, good, stream);
    if (status == GA_OK && *good) {
        *good = check_peers(l, stream);
        status = agree(l, word, good, stream);
    }
    return status;
}

/* Once in a process. */
static void say_without(const nccl_link *l)
{
    static bool is_said;
    if (!__atomic_exchange_n(&is_said, true, __ATOMIC_RELAXED)) { /* relaxed: nothing follows it */
        ga_log(GA_LOG_INFO,
               "nccl: version %d: no windows that all %u ranks reach: messages by kernels of NCCL "
               "instead of copies",
               ga_nccl.version, l->ranks);
    }
}

ga_status ga_nccl_share(void *context, ga_shared *out, uint64_t bytes, uint64_t *word, void *stream)
{
    nccl_link *l = context;
    nccl_window *w = &l->window;
    uint64_t all = rounded(bytes) + (l->ranks + 1) * sizeof *w->numbers;
    bool good = has_windows(l) && ga_nccl.ncclMemAlloc(&w->block, all) == NCCL_SUCCESS;
    ga_status status = agree(l, word, &good, stream);
    if (status == GA_OK && good) {
        w->numbers = (uint64_t *)((char *)w->block + rounded(bytes));
        status = connect(l, word, all, &good, stream);
    }
    if (status == GA_OK && !good) {
        say_without(l);
    }
    *out = (ga_shared){w->block, status == GA_OK && good};
    return status;
}

void ga_nccl_unshare(void *context, void *block)
{
    nccl_link *l = context;
    if (block == l->window.block) {
        end_window(l);
    }
}

/* ---- meetings -------------------------------------------------------------------------------- */

static CUdeviceptr at_rank(const nccl_link *l, const void *at, uint32_t rank)
{
    return (CUdeviceptr)(l->window.peers[rank] + ((const char *)at - (char *)l->window.block));
}

static ga_status meet_on_stream(nccl_link *l, CUstream stream)
{
    const nccl_window *w = &l->window;
    uint32_t number =
        __atomic_add_fetch(&l->window.meetings, 1, __ATOMIC_RELAXED); /* relaxed: ORDER */
    ga_status status = GA_OK;
    for (uint32_t rank = 0; status == GA_OK && rank < l->ranks; rank++) {
        if (rank != l->rank) {
            status = GA_CUDA_CALL(l->driver, cuStreamWriteValue32, stream,
                                  at_rank(l, w->numbers + l->rank, rank), number, 0);
        }
    }
    for (uint32_t rank = 0; status == GA_OK && rank < l->ranks; rank++) {
        if (rank != l->rank) {
            status =
                GA_CUDA_CALL(l->driver, cuStreamWaitValue32, stream,
                             (CUdeviceptr)(w->numbers + rank), number, CU_STREAM_WAIT_VALUE_GEQ);
        }
    }
    return status;
}

/* By a kernel of NCCL, for a number that stays 0: with a driver without such waits; and if the
 * driver may be busy with a call that waits for the device, because it could not release the
 * stream then. */
ga_status ga_nccl_meet(void *context, bool waits, void *stream)
{
    nccl_link *l = context;
    if (waits || !l->window.is_on_streams) {
        return ga_nccl_largest(l, l->window.numbers + l->ranks, 1, stream);
    }
    if (!l->comm) {
        return ga_nccl_gone(l);
    }
    ga_nccl_arm(l);
    return ga_nccl_disarm(l, "a meeting", meet_on_stream(l, stream));
}

void ga_nccl_release_locked(nccl_link *l)
{
    const nccl_window *w = &l->window;
    ga_cuda_scope scope;
    if (!w->releases || ga_cuda_enter(&scope, l->device) != GA_OK) {
        return;
    }
    uint32_t number =
        __atomic_load_n(&w->meetings, __ATOMIC_RELAXED) + FAR_AHEAD; /* relaxed: see ORDER */
    for (uint32_t rank = 0; rank < l->ranks; rank++) {
        (void)l->driver->cuStreamWriteValue32(w->releases, (CUdeviceptr)(w->numbers + rank), number,
                                              0);
    }
    ga_cuda_leave(&scope);
}

/* ---- copies ---------------------------------------------------------------------------------- */

ga_status ga_nccl_put(void *context, const void *from, void *at, uint64_t bytes, uint32_t to,
                      void *stream)
{
    const nccl_link *l = context;
    return l->comm ? GA_CUDA_CALL(l->driver, cuMemcpyDtoDAsync, at_rank(l, at, to),
                                  (CUdeviceptr)from, bytes, stream)
                   : ga_nccl_gone(l);
}

ga_status ga_nccl_fetch(void *context, void *to, const void *at, uint64_t bytes, uint32_t from,
                        void *stream)
{
    const nccl_link *l = context;
    return l->comm ? GA_CUDA_CALL(l->driver, cuMemcpyDtoDAsync, (CUdeviceptr)to,
                                  at_rank(l, at, from), bytes, stream)
                   : ga_nccl_gone(l);
}
