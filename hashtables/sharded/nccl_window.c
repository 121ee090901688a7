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
 * NCCL's own all-to-all of copy engines (ncclAlltoAll with NCCL_CTA_POLICY_ZERO) is not used: it
 * waits for other ranks on the stream without a kernel, and ncclCommAbort() does not end that. All
 * ranks would have to send the same number of bytes, too.
 */
#include "nccl.h"

#include "platform/libc.h"
#include "platform/log.h"

#include <gpualloc/backend.h>

#include <string.h>

enum {
    OLDEST_WITH_WINDOWS = 22800,
    OLDEST_WITH_ADDRESSES = 22900, /* by ncclGetPeerDevicePointer() */
    WORD = sizeof(uint64_t),
    LINE = 256, /* bytes, at a multiple of which the zero behind a block is */
    MARK = 0x5a /* of rank 0, and so on: a byte at the beginning of its block */
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

/* ---- small work on the device ---------------------------------------------------------------- */

/* Whether no rank says that it failed. `word` is memory of the device. */
ga_status ga_nccl_agree(nccl_link *l, uint64_t *word, bool *good, void *stream)
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
    ga_nccl_await_abort(l);
    if (w->comm && !l->comm) { /* a failure: other ranks may be gone */
        ga_nccl.ncclCommAbort(w->comm);
    } else if (w->comm) {
        if (w->handle) {
            ga_nccl.ncclCommWindowDeregister(w->comm, w->handle);
        }
        ga_nccl.ncclCommDestroy(w->comm);
    }
    ga_nccl_end_meetings(l);
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

/* The mark, and the zero. */
static bool begin_block(const nccl_link *l, void *stream)
{
    const nccl_window *w = &l->window;
    CUdeviceptr start = (CUdeviceptr)w->block;
    CUdeviceptr zero = (CUdeviceptr)w->zero;
    return l->driver->cuMemsetD32Async(start, mark_of(l->rank), 1, stream) == CUDA_SUCCESS &&
           l->driver->cuMemsetD8Async(zero, 0, WORD, stream) == CUDA_SUCCESS;
}

/* All ranks have a block. False: some rank has no window, or does not reach another one. */
static ga_status connect(nccl_link *l, uint64_t *word, uint64_t bytes, bool *good, void *stream)
{
    nccl_window *w = &l->window;
    ga_status status = ga_nccl_split(l, l->comm, w->block, bytes, &w->comm, &w->handle);
    if (status != GA_OK) {
        return status;
    }
    *good = w->handle && find_peers(l, stream) && begin_block(l, stream);
    status = ga_nccl_agree(l, word, good, stream);
    if (status == GA_OK && *good) {
        *good = check_peers(l, stream);
        status = ga_nccl_agree(l, word, good, stream);
    }
    return status || !*good ? status : ga_nccl_begin_meetings(l, word, stream);
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
    uint64_t all = rounded(bytes) + WORD;
    bool good = has_windows(l) && ga_nccl.ncclMemAlloc(&w->block, all) == NCCL_SUCCESS;
    ga_status status = ga_nccl_agree(l, word, &good, stream);
    if (status == GA_OK && good) {
        w->zero = (uint64_t *)((char *)w->block + rounded(bytes));
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

/* ---- copies ---------------------------------------------------------------------------------- */

static CUdeviceptr at_rank(const nccl_link *l, const void *at, uint32_t rank)
{
    return (CUdeviceptr)(l->window.peers[rank] + ((const char *)at - (char *)l->window.block));
}

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
