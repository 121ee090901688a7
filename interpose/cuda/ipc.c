/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  two lists, each under a lock of its own: blocks given away, and blocks of others,
 *            mapped here. A count of the first that frees read without it. What was closed during a
 *            capture is in a third list, under the second's lock, until there is none; so is what
 *            the driver would not take back, until it does.
 * INVARIANT  a block given away is live. A block of another process is mapped as long as it was
 *            opened more often than closed, or put off
 * ORDER      I1/I2 for the count. A block is given away before its handle is anybody's, and its
 *            handle is struck out before it is free
 * PROGRESS   no lock is held while another process, a heap, a device or a capture is waited for
 */
#include "ipc.h"

#include "../../liballoc/platform/libc.h"
#include "../../liballoc/platform/log.h"
#include "captures.h"
#include "contexts.h"
#include "entry.h"
#include "handover.h"
#include "lookup.h"
#include "next.h"
#include "served.h"

#include <gpualloc/gpualloc.h>

#include <pthread.h>
#include <string.h>

enum {
    LAZY_PEER_ACCESS = 1 /* the one flag there is, and it must be given */
};

/* What the program takes for the driver's. */
typedef struct handle {
    char mark[8];
    ga_cuda_name name;
    uint64_t number, size;
    char rest[24];
} handle;

_Static_assert(sizeof(handle) == sizeof(ga_cuda_ipc_bytes), "64 bytes");

static const char MARK[8] = {'g', 'p', 'u', 'a', 'l', 'l', 'o', 'c'};

typedef struct given {
    ga_cuda_block block;
    handle handle;
    struct given *following;
} given;

typedef struct guest {
    ga_cuda_block block; /* where it stands here */
    handle handle;
    unsigned opened;
    ga_vmm_guest memory;
    struct guest *following;
} guest;

static pthread_mutex_t given_lock = PTHREAD_MUTEX_INITIALIZER;
static given *all_given;
static uint64_t last_number;
static unsigned given_count;

static pthread_mutex_t guest_lock = PTHREAD_MUTEX_INITIALIZER;
static guest *all_guests, *put_off;

/* ---- giving away -------------------------------------------------------------------------- */

/* Under the lock. */
static void drop_given(given **at)
{
    given *gone = *at;
    *at = gone->following;
    ga_libc.free(gone);
    /* I1: release. Pairs with I2. */
    __atomic_fetch_sub(&given_count, 1, __ATOMIC_RELEASE);
}

void ga_cuda_ipc_lock(void)
{
    pthread_mutex_lock(&given_lock);
}

void ga_cuda_ipc_unlock(void)
{
    pthread_mutex_unlock(&given_lock);
}

/* What is mapped is the parent's; who held the other lock is not here. */
void ga_cuda_ipc_child(void)
{
    ga_cuda_handover_child();
    while (all_given) {
        drop_given(&all_given);
    }
    pthread_mutex_init(&guest_lock, NULL);
    all_guests = put_off = NULL;
    ga_cuda_ipc_unlock();
}

void ga_cuda_ipc_freed(CUdeviceptr start)
{
    /* I2: acquire. Pairs with I1: who frees a block knows of its handle, which came later. */
    if (__builtin_expect(!__atomic_load_n(&given_count, __ATOMIC_ACQUIRE), 1)) {
        return;
    }
    pthread_mutex_lock(&given_lock);
    for (given **at = &all_given; *at; at = &(*at)->following) {
        if ((*at)->block.start == start) {
            drop_given(at);
            break;
        }
    }
    pthread_mutex_unlock(&given_lock);
}

static bool is_given(uint64_t number, ga_cuda_block *out)
{
    pthread_mutex_lock(&given_lock);
    const given *g = all_given;
    while (g && g->handle.number != number) {
        g = g->following;
    }
    if (g) {
        *out = g->block;
    }
    pthread_mutex_unlock(&given_lock);
    return g != NULL;
}

/* For whoever asks for it, in the thread that answers. Descriptors are made then and there: kept,
 * they would be more than a process may have. Should the block have been freed meanwhile, they may
 * be another's. */
static bool find_pieces(uint64_t number, ga_vmm_pieces *out)
{
    ga_cuda_block block;
    bool found = is_given(number, &block) && ga_cuda_share(&block, out) == CUDA_SUCCESS;
    if (found && !is_given(number, &block)) {
        ga_vmm_pieces_drop(out);
        found = false;
    }
    return found;
}

static given *find_given(CUdeviceptr start)
{
    given *g = all_given;
    while (g && g->block.start != start) {
        g = g->following;
    }
    return g;
}

static CUresult add_given(const ga_cuda_block *block, given **out)
{
    ga_cuda_name name;
    given *made = ga_libc.calloc(1, sizeof *made);
    if (!made || ga_cuda_handover_begin(find_pieces, &name) != GA_OK) {
        ga_libc.free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = (given){.block = *block,
                    .handle = {.name = name, .number = ++last_number, .size = block->size},
                    .following = all_given};
    memcpy(made->handle.mark, MARK, sizeof MARK);
    all_given = *out = made;
    /* I1: release. Pairs with I2. */
    __atomic_fetch_add(&given_count, 1, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

static bool copy_handle(const given *g, void *out)
{
    if (g) {
        memcpy(out, &g->handle, sizeof g->handle);
    }
    return g != NULL;
}

/* Another thread may have been faster. */
static CUresult add_once(const ga_cuda_block *block, void *out)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&given_lock);
    given *g = find_given(block->start);
    if (!g) {
        result = add_given(block, &g);
    }
    if (result == CUDA_SUCCESS) {
        copy_handle(g, out);
    }
    pthread_mutex_unlock(&given_lock);
    return result;
}

/* A block keeps its handle as long as it lives. That it can be had is tried out at once. */
static CUresult give_away(const ga_cuda_block *block, void *out)
{
    ga_vmm_pieces pieces;
    pthread_mutex_lock(&given_lock);
    bool known = copy_handle(find_given(block->start), out);
    pthread_mutex_unlock(&given_lock);
    if (known) {
        return CUDA_SUCCESS;
    }
    CUresult result = ga_cuda_share(block, &pieces);
    if (result == CUDA_SUCCESS) {
        ga_vmm_pieces_drop(&pieces);
        result = add_once(block, out);
    }
    return result;
}

/* Once: what would help. */
static void say_compat(const ga_cuda_block *block)
{
    static bool said;
    /* relaxed: it is said once, or by two at once */
    if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED)) {
        ga_log(GA_LOG_WARN,
               "cuIpcGetMemHandle: a block of %zu bytes is not the driver's own; with "
               "ipc=compat it would be, with ipc=handle other processes under this preload "
               "could map it",
               block->size);
    }
}

typedef CUresult get_fn(void *handle, CUdeviceptr block);

GA_CUDA_ENTRY(get_fn, cuIpcGetMemHandle);

CUresult cuIpcGetMemHandle(void *out, CUdeviceptr pointer)
{
    get_fn *next = (get_fn *)(uintptr_t)ga_cuda_next_find(GA_HOOK_cuIpcGetMemHandle);
    ga_cuda_block block;
    ga_cuda_count(GA_HOOK_cuIpcGetMemHandle);
    bool ours = ga_cuda_blocks_find(&ga_cuda_live, pointer, &block) && block.generation;
    CUresult result = ours && out ? give_away(&block, out) : CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_ERROR_NOT_SUPPORTED) {
        return result;
    }
    /* A part of a block of the driver's has none: the driver's would be of the whole. */
    bool part = ours && !block.drivers;
    result = !next ? ga_cuda_next_missing() : part ? CUDA_ERROR_INVALID_VALUE : next(out, pointer);
    if (result != CUDA_SUCCESS && ours) {
        say_compat(&block);
    }
    return result;
}

/* ---- what others have given away ------------------------------------------------------------ */

static guest **find_guest(CUdeviceptr start)
{
    guest **at = &all_guests;
    while (*at && (*at)->block.start != start) {
        at = &(*at)->following;
    }
    return at;
}

static guest *find_opened(const handle *wanted, int device)
{
    guest *g = all_guests;
    while (g && (g->block.device != device || memcmp(&g->handle, wanted, sizeof *wanted) != 0)) {
        g = g->following;
    }
    return g;
}

bool ga_cuda_ipc_find(CUdeviceptr address, ga_cuda_block *out)
{
    /* relaxed: whoever asks for an address of a guest's has opened it */
    if (__builtin_expect(!__atomic_load_n(&all_guests, __ATOMIC_RELAXED), 1)) {
        return false;
    }
    pthread_mutex_lock(&guest_lock);
    const guest *g = all_guests;
    while (g && address - g->block.start >= g->block.size) {
        g = g->following;
    }
    if (g) {
        *out = g->block;
    }
    pthread_mutex_unlock(&guest_lock);
    return g != NULL;
}

/* What the driver says to the same: an unknown handle, or memory that cannot be mapped. */
static CUresult refused(ga_status status)
{
    ga_log(GA_LOG_WARN, "cuIpcOpenMemHandle: %s", ga_error_text());
    return status == GA_ERR_POINTER ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_MAP_FAILED;
}

static ga_status check_pieces(const handle *wanted, const ga_vmm_pieces *pieces)
{
    uint64_t all = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        all += pieces->list[i].size;
    }
    bool fits = wanted->size && pieces->before < all && wanted->size <= all - pieces->before;
    return fits ? GA_OK
                : ga_fail(GA_ERR_POINTER, "a block of %llu bytes does not lie in what came",
                          (unsigned long long)wanted->size);
}

static ga_status map_guest(guest *made)
{
    ga_vmm_pieces pieces;
    const handle *wanted = &made->handle;
    ga_status status = ga_cuda_handover_ask(&wanted->name, wanted->number, &pieces);
    if (status != GA_OK) {
        return status;
    }
    status = check_pieces(wanted, &pieces);
    if (status == GA_OK) {
        status = ga_vmm_guest_open(&made->memory, made->block.device, &pieces);
    }
    made->block.start = made->memory.base + pieces.before;
    ga_vmm_pieces_drop(&pieces);
    return status;
}

/* Under no lock. */
static void put_it_off(guest *gone)
{
    pthread_mutex_lock(&guest_lock);
    gone->following = put_off;
    put_off = gone;
    pthread_mutex_unlock(&guest_lock);
}

/* What the driver would not take back is asked for again: when another is opened or closed. */
static void end_guest(guest *gone)
{
    if (ga_vmm_guest_close(&gone->memory)) {
        ga_libc.free(gone);
        return;
    }
    ga_log(GA_LOG_INFO, "device %d: the driver keeps a block of %zu bytes of another process: %s",
           gone->block.device, gone->block.size, ga_error_text());
    put_it_off(gone);
}

static CUresult make_guest(const handle *wanted, int device, guest **out)
{
    guest *made = ga_libc.calloc(1, sizeof *made);
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->handle = *wanted;
    made->block =
        (ga_cuda_block){.size = wanted->size, .device = device, .generation = 1, .guest = true};
    ga_status status = map_guest(made);
    if (status != GA_OK) {
        CUresult result = refused(status); /* before what follows has a sentence of its own */
        end_guest(made);
        return result;
    }
    *out = made;
    return CUDA_SUCCESS;
}

/* The one of that handle that is open here, or `made`, where none is: that one is it then. NULL:
 * none is. */
static guest *open_once_more(const handle *wanted, int device, guest *made, CUdeviceptr *out)
{
    pthread_mutex_lock(&guest_lock);
    guest *g = find_opened(wanted, device);
    if (!g && made) {
        made->following = all_guests;
        __atomic_store_n(&all_guests, made, __ATOMIC_RELAXED); /* relaxed: under the lock */
        g = made;
    }
    if (g) {
        g->opened++;
        *out = g->block.start;
    }
    pthread_mutex_unlock(&guest_lock);
    return g;
}

/* While the other process is asked nobody is kept waiting; another thread may be faster. */
static CUresult open_guest(CUdeviceptr *out, const handle *wanted)
{
    const ga_cuda_asks *asks = ga_cuda_next_asks();
    CUcontext context;
    int device = asks ? ga_cuda_context_device(asks, &context) : -1;
    if (device < 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (open_once_more(wanted, device, NULL, out)) {
        return CUDA_SUCCESS;
    }
    ga_cuda_ipc_put_off();
    if (ga_cuda_handover_is_ours(&wanted->name)) {
        return CUDA_ERROR_INVALID_CONTEXT; /* the driver's answer to that */
    }
    guest *made = NULL;
    CUresult result = make_guest(wanted, device, &made);
    if (result == CUDA_SUCCESS && open_once_more(wanted, device, made, out) != made) {
        end_guest(made);
    }
    return result;
}

/* Work of this process on the device is waited for: nothing may use what is unmapped. False: a
 * capture forbids it. */
static bool drop_guest(guest *gone)
{
    bool calm = ga_cuda_captures_hold();
    if (calm) {
        ga_cuda_wait_for(gone->block.device);
        end_guest(gone);
        ga_cuda_captures_let_go();
    }
    return calm;
}

/* A capture that ends meanwhile may have looked too early. */
static void drop_guest_later(guest *gone)
{
    put_it_off(gone);
    if (!ga_cuda_capturing()) {
        ga_cuda_ipc_put_off();
    }
}

void ga_cuda_ipc_put_off(void)
{
    pthread_mutex_lock(&guest_lock);
    guest *list = put_off;
    put_off = NULL;
    pthread_mutex_unlock(&guest_lock);
    while (list) {
        guest *gone = list;
        list = gone->following;
        if (!drop_guest(gone)) {
            drop_guest_later(gone);
        }
    }
}

/* Under the lock. */
static guest *take_guest(guest **at)
{
    guest *gone = *at;
    __atomic_store_n(at, gone->following, __ATOMIC_RELAXED); /* relaxed: under the lock */
    return gone;
}

/* False: it is none of ours. */
static bool close_guest(CUdeviceptr start)
{
    guest *gone = NULL;
    pthread_mutex_lock(&guest_lock);
    guest **at = find_guest(start);
    bool found = *at != NULL;
    if (found && --(*at)->opened == 0) {
        gone = take_guest(at);
    }
    pthread_mutex_unlock(&guest_lock);
    if (found) {
        ga_cuda_ipc_put_off();
    }
    if (gone && !drop_guest(gone)) {
        drop_guest_later(gone);
    }
    return found;
}

/* One of the device, open or put off; NULL: there is none. */
static guest *take_guest_of(int device)
{
    guest **const lists[] = {&all_guests, &put_off};
    guest *gone = NULL;
    pthread_mutex_lock(&guest_lock);
    for (size_t i = 0; !gone && i < 2; i++) {
        guest **at = lists[i];
        while (*at && (*at)->block.device != device) {
            at = &(*at)->following;
        }
        gone = *at ? take_guest(at) : NULL;
    }
    pthread_mutex_unlock(&guest_lock);
    return gone;
}

/* What the driver keeps of it goes with the context: nobody asks for it again. */
static void end_guest_for_good(guest *gone)
{
    if (!ga_vmm_guest_close(&gone->memory)) {
        ga_log(GA_LOG_WARN,
               "device %d: the driver keeps a block of %zu bytes of another process: %s",
               gone->block.device, gone->block.size, ga_error_text());
    }
    ga_libc.free(gone->memory.handles);
    ga_libc.free(gone);
}

/* The context goes, and captures in it. */
void ga_cuda_ipc_reset(int device)
{
    pthread_mutex_lock(&given_lock);
    for (given **at = &all_given; *at;) {
        if ((*at)->block.device == device) {
            drop_given(at);
        } else {
            at = &(*at)->following;
        }
    }
    pthread_mutex_unlock(&given_lock);
    for (guest *gone; (gone = take_guest_of(device)) != NULL;) {
        bool calm = ga_cuda_captures_hold();
        if (calm) {
            ga_cuda_wait_for(device);
        }
        end_guest_for_good(gone);
        if (calm) {
            ga_cuda_captures_let_go();
        }
    }
}

typedef CUresult open_fn(CUdeviceptr *out, ga_cuda_ipc_bytes bytes, unsigned flags);
typedef CUresult close_fn(CUdeviceptr block);

static CUresult open_handle(ga_cuda_hook_index row, CUdeviceptr *out,
                            const ga_cuda_ipc_bytes *bytes, unsigned flags)
{
    open_fn *next = (open_fn *)(uintptr_t)ga_cuda_next_find(row);
    handle wanted;
    memcpy(&wanted, bytes, sizeof wanted);
    ga_cuda_count(row);
    if (memcmp(wanted.mark, MARK, sizeof MARK) != 0) {
        return next ? next(out, *bytes, flags) : ga_cuda_next_missing();
    }
    return out && flags == LAZY_PEER_ACCESS ? open_guest(out, &wanted) : CUDA_ERROR_INVALID_VALUE;
}

#define DEFINE_OPEN(symbol)                                                                        \
    GA_CUDA_ENTRY(open_fn, symbol);                                                                \
    CUresult symbol(CUdeviceptr *out, ga_cuda_ipc_bytes bytes, unsigned flags)                     \
    {                                                                                              \
        return open_handle(GA_HOOK_##symbol, out, &bytes, flags);                                  \
    }

DEFINE_OPEN(cuIpcOpenMemHandle)
DEFINE_OPEN(cuIpcOpenMemHandle_v2)

GA_CUDA_ENTRY(close_fn, cuIpcCloseMemHandle);

CUresult cuIpcCloseMemHandle(CUdeviceptr block)
{
    close_fn *next = (close_fn *)(uintptr_t)ga_cuda_next_find(GA_HOOK_cuIpcCloseMemHandle);
    ga_cuda_count(GA_HOOK_cuIpcCloseMemHandle);
    if (close_guest(block)) {
        return CUDA_SUCCESS;
    }
    return next ? next(block) : ga_cuda_next_missing();
}
