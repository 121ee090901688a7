/* SPDX-License-Identifier: MIT
 *
 * The backend's table: options, and blocks (blocks.h) in the form that the runtime calls.
 *
 * alloc_on() and free_on() order a block by its stream. alloc() returns memory that no stream uses
 * any more. free() first waits for all work on the device by default, as cudaFree does, because
 * work on some stream may still use the block; with free=now the caller is responsible for that.
 */
#include "vmm.h"

#include "access.h"
#include "share.h"

#include "../../arena/growing.h"
#include "../../platform/libc.h"
#include "growing.h"

#include <string.h>
#include <unistd.h>

enum {
    OPTION_LIMIT = 0,
    OPTION_RESERVE,
    OPTION_CHUNK,
    OPTION_CACHE,
    OPTION_DECAY,
    OPTION_FREE,
    OPTION_SHARE,
    OPTION_RDMA,
    OPTION_REGISTER
};

enum {
    FREE_WAIT = 0,
    FREE_NOW
};

enum {
    HOST_ALIGN = 16,
    DEVICE_ALIGN = 256,
    HOST_GRANULE = 64 << 10
};

static const uint64_t DEVICE_RESERVE = (uint64_t)1 << 40;
/* Bound of block sizes on the host. */
static const uint64_t HOST_BYTES_END = (uint64_t)1 << 47;

typedef struct vmm_state {
    ga_vmm vmm;
    int free_mode;
} vmm_state;

/* ---- opening ----------------------------------------------------------------------------- */

static ga_status prefix_error(ga_status status)
{
    return status == GA_OK ? GA_OK : ga_fail(status, "vmm: %s", ga_error_text());
}

static uint64_t round_down(uint64_t size, uint64_t granule)
{
    return size / granule * granule;
}

static ga_status set_sizes(ga_vmm_pool *pool, const ga_value *values)
{
    uint64_t granule = pool->space.granule;
    uint64_t limit = values[OPTION_LIMIT].size;
    uint64_t chunk = values[OPTION_CHUNK].size;
    if (limit < granule || chunk < granule) {
        return ga_fail(GA_ERR_SPEC,
                       "%s: expected at least %llu bytes, the smallest chunk, got %llu",
                       limit < granule ? "limit" : "chunk", (unsigned long long)granule,
                       (unsigned long long)(limit < granule ? limit : chunk));
    }
    pool->limit = limit == UINT64_MAX ? limit : round_down(limit, granule);
    pool->chunk = round_down(chunk, granule);
    pool->cache = values[OPTION_CACHE].size; /* `auto` and `wide` have the pool's values */
    return GA_OK;
}

/* Checking every eighth of the decay time is late enough and rare enough. Deferred units are
 * checked even if nothing decays. With decay=0 nothing is cached. */
static void set_decay(ga_vmm *vmm, int64_t milliseconds)
{
    bool never = milliseconds < 0;
    vmm->pool.decay = never ? UINT64_MAX : (uint64_t)milliseconds;
    vmm->decay_period = never ? 1000 : (uint64_t)milliseconds / 8 + 1;
    if (milliseconds == 0) {
        vmm->pool.cache = 0;
    }
}

static ga_status find_total(ga_vmm *vmm)
{
    vmm->total = HOST_BYTES_END;
    return ga_vmm_on_device(vmm) ? ga_space_memory(&vmm->pool.space, &vmm->total) : GA_OK;
}

/* A device without virtual memory management cannot serve this heap. */
static ga_status open_space(ga_vmm *vmm, const ga_open_args *args)
{
    ga_space *space = &vmm->pool.space;
    ga_vmm_access access = {.share = (ga_vmm_share)args->values[OPTION_SHARE].choice,
                            .rdma = (ga_vmm_rdma)args->values[OPTION_RDMA].choice,
                            .registers = args->values[OPTION_REGISTER].choice};
    ga_status status = ga_vmm_access_open(space, args->place, args->device, access);
    if (args->place == GA_PLACE_HOST && space->granule < HOST_GRANULE) {
        space->granule = HOST_GRANULE;
    }
    vmm->pool.whole = access.registers;
    status = status == GA_OK ? find_total(vmm) : status;
    return status == GA_ERR_UNSUPPORTED ? GA_ERR_DEVICE : status;
}

/* On the host addresses count against RLIMIT_AS, which the program may set later. */
static uint64_t reserve_of(const ga_vmm *vmm, const ga_value *values)
{
    uint64_t bytes = values[OPTION_RESERVE].size;
    return bytes != UINT64_MAX ? bytes : ga_vmm_on_device(vmm) ? DEVICE_RESERVE : 0;
}

static ga_status open_pool(ga_vmm *vmm, const ga_value *values)
{
    uint32_t quantum = ga_vmm_on_device(vmm) ? DEVICE_ALIGN : HOST_ALIGN;
    ga_status status = set_sizes(&vmm->pool, values);
    vmm->pool.total = vmm->total;
    set_decay(vmm, values[OPTION_DECAY].integer);
    if (status == GA_OK) {
        status = ga_vmm_packed_open(&vmm->packed, &vmm->pool, quantum);
    }
    if (status != GA_OK) {
        return status;
    }
    status = ga_vmm_pool_open(&vmm->pool, reserve_of(vmm, values));
    if (status != GA_OK) {
        ga_libc.free(vmm->packed.classes);
    }
    return status;
}

static ga_status vmm_open(const ga_open_args *args, void **state)
{
    vmm_state *s = ga_libc.calloc(1, sizeof *s);
    if (!s) {
        return ga_fail(GA_ERR_MEMORY, "vmm: no memory for the heap's record");
    }
    ga_status status = open_space(&s->vmm, args);
    if (status == GA_OK) {
        status = open_pool(&s->vmm, args->values);
    }
    if (status != GA_OK) {
        ga_libc.free(s);
        return prefix_error(status);
    }
    pthread_mutex_init(&s->vmm.lock, NULL);
    s->free_mode = args->values[OPTION_FREE].choice;
    *state = s;
    return GA_OK;
}

static void vmm_close(void *state)
{
    vmm_state *s = state;
    ga_vmm_packed_close(&s->vmm.packed);
    ga_vmm_pool_close(&s->vmm.pool);
    pthread_mutex_destroy(&s->vmm.lock);
    ga_libc.free(s);
}

/* ---- allocating --------------------------------------------------------------------------- */

static uint64_t natural_align(const ga_vmm *vmm)
{
    return ga_vmm_on_device(vmm) ? DEVICE_ALIGN : HOST_ALIGN;
}

static ga_status allocate(vmm_state *s, size_t size, size_t align, const ga_stream *stream,
                          void **out)
{
    uint64_t natural = natural_align(&s->vmm);
    ga_status status =
        ga_vmm_allocate(&s->vmm, size, align > natural ? align : natural, stream, out);
    return status == GA_OK
               ? GA_OK
               : ga_fail(status, "vmm: no block of %zu bytes: %s", size, ga_error_text());
}

static ga_status vmm_alloc(void *state, size_t size, void **out)
{
    return allocate(state, size, 0, NULL, out);
}

static ga_status vmm_alloc_aligned(void *state, size_t size, size_t align, void **out)
{
    return allocate(state, size, align, NULL, out);
}

static ga_status no_streams(void)
{
    return ga_fail(GA_ERR_UNSUPPORTED, "vmm: the host has no streams");
}

static ga_status vmm_alloc_on(void *state, size_t size, size_t align, ga_stream stream, void **out)
{
    vmm_state *s = state;
    return ga_vmm_on_device(&s->vmm) ? allocate(s, size, align, &stream, out) : no_streams();
}

static ga_status clear(const vmm_state *s, void *block, size_t size)
{
    ga_cuda_scope scope;
    if (!ga_vmm_on_device(&s->vmm)) {
        memset(block, 0, size);
        return GA_OK;
    }
    ga_status status = ga_cuda_enter(&scope, s->vmm.pool.space.device);
    if (status == GA_OK) {
        status = ga_cuda_clear(&scope, block, size);
        ga_cuda_leave(&scope);
    }
    return status;
}

static ga_status vmm_alloc_zeroed(void *state, size_t size, void **out)
{
    vmm_state *s = state;
    ga_status status = allocate(s, size, 0, NULL, out);
    if (status == GA_OK) {
        status = prefix_error(clear(s, *out, size));
        if (status != GA_OK) {
            ga_vmm_free(&s->vmm, *out);
        }
    }
    return status;
}

/* ---- freeing ------------------------------------------------------------------------------ */

/* Wait until all work on the device is done, so that nothing uses blocks freed up to now. */
static ga_status wait_for_device(const vmm_state *s)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, s->vmm.pool.space.device);
    if (status == GA_OK) {
        status = ga_cuda_check(scope.driver, scope.driver->cuCtxSynchronize(), "cuCtxSynchronize");
        ga_cuda_leave(&scope);
    }
    return status;
}

static ga_status free_status(ga_status status)
{
    return ga_cuda_is_gone() ? GA_OK : prefix_error(status);
}

static ga_status vmm_free(void *state, void *block)
{
    vmm_state *s = state;
    ga_status status = GA_OK;
    if (ga_vmm_on_device(&s->vmm) && s->free_mode == FREE_WAIT) {
        status = ga_vmm_check(&s->vmm, block);
        if (status == GA_OK) {
            status = wait_for_device(s);
        }
    }
    return free_status(status == GA_OK ? ga_vmm_free(&s->vmm, block) : status);
}

static ga_status vmm_free_on(void *state, void *block, ga_stream stream)
{
    vmm_state *s = state;
    return ga_vmm_on_device(&s->vmm) ? free_status(ga_vmm_free_on(&s->vmm, block, stream))
                                     : no_streams();
}

/* ---- other sizes -------------------------------------------------------------------------- */

static ga_status vmm_grow(void *state, void *block, size_t size)
{
    vmm_state *s = state;
    return prefix_error(ga_vmm_grow(&s->vmm, block, size));
}

/* On a device this waits for all work there, so that nothing uses the old block afterwards. */
static ga_status copy(const vmm_state *s, void *to, const void *from, size_t size)
{
    ga_cuda_scope scope;
    if (!ga_vmm_on_device(&s->vmm)) {
        memcpy(to, from, size);
        return GA_OK;
    }
    ga_status status = ga_cuda_enter(&scope, s->vmm.pool.space.device);
    if (status == GA_OK) {
        status = ga_cuda_copy(&scope, to, from, size);
        ga_cuda_leave(&scope);
    }
    return status;
}

static ga_status move(vmm_state *s, void *block, size_t before, size_t size, void **out)
{
    ga_status status = allocate(s, size, 0, NULL, out);
    if (status != GA_OK) {
        return status;
    }
    status = prefix_error(copy(s, *out, block, before < size ? before : size));
    ga_vmm_free(&s->vmm, status == GA_OK ? block : *out);
    return status;
}

/* Free the block's end beyond `size`, if it is more than an eighth. Waits for the device first, as
 * a free does, because its work may still use that end. On failure the block stays as it is.
 * Returns its bytes. */
static size_t shrink(vmm_state *s, void *block, size_t before, size_t size)
{
    if (size >= before - before / 8) {
        return before;
    }
    bool waits = ga_vmm_on_device(&s->vmm) && s->free_mode == FREE_WAIT;
    if (!waits || wait_for_device(s) == GA_OK) {
        ga_vmm_shrink(&s->vmm, block, size);
    }
    return ga_vmm_usable(&s->vmm, block);
}

/* In place if possible: extended, or shrunk as long as at most half stays unused. */
static ga_status vmm_realloc(void *state, void *block, size_t size, void **out)
{
    vmm_state *s = state;
    size_t before = ga_vmm_usable(&s->vmm, block);
    if (!before) {
        return prefix_error(ga_vmm_check(&s->vmm, block));
    }
    before = shrink(s, block, before, size);
    bool fits = size <= before;
    if (fits ? size >= before / 2 : ga_vmm_grow(&s->vmm, block, size) == GA_OK) {
        *out = block;
        return GA_OK;
    }
    ga_status status = move(s, block, before, size, out);
    if (status == GA_ERR_MEMORY && fits) {
        *out = block; /* no smaller block is available: keep this one */
        return GA_OK;
    }
    return status;
}

/* ---- all of them -------------------------------------------------------------------------- */

static ga_status vmm_trim(void *state, size_t keep)
{
    vmm_state *s = state;
    return prefix_error(ga_vmm_trim(&s->vmm, keep));
}

static ga_status vmm_reset(void *state)
{
    vmm_state *s = state;
    ga_status status = ga_vmm_on_device(&s->vmm) ? wait_for_device(s) : GA_OK;
    if (status == GA_OK) {
        ga_vmm_reset(&s->vmm);
    }
    return prefix_error(status);
}

static ga_status vmm_each_live(void *state, ga_visit *visit, void *context)
{
    vmm_state *s = state;
    return prefix_error(ga_vmm_each_live(&s->vmm, visit, context));
}

static bool vmm_owns(void *state, const void *pointer)
{
    vmm_state *s = state;
    return ga_vmm_owns(&s->vmm, pointer);
}

static size_t vmm_usable_size(void *state, const void *block)
{
    vmm_state *s = state;
    return ga_vmm_usable(&s->vmm, block);
}

/* ---- memory that grows under kernels ------------------------------------------------------- */

static ga_status vmm_growing_open(void *state, ga_growing *growing)
{
    vmm_state *s = state;
    return ga_vmm_growing_open(&s->vmm, growing);
}

static ga_status vmm_growing_to(void *state, ga_growing *growing, uint32_t steps)
{
    (void)state;
    return ga_growing_reach(growing, steps);
}

static void vmm_growing_close(void *state, ga_growing *growing)
{
    vmm_state *s = state;
    ga_vmm_growing_close(&s->vmm, growing);
}

static ga_status vmm_enable_peer(void *state, int peer)
{
    vmm_state *s = state;
    return ga_vmm_on_device(&s->vmm) ? prefix_error(ga_vmm_allow(&s->vmm, peer))
                                     : ga_fail(GA_ERR_PLACE, "vmm: the host is reached by all");
}

/* Pass each piece and its descriptor to the receiver, until it fails. */
static ga_status pass_pieces(ga_vmm_pieces *pieces, ga_export_piece *piece, void *context)
{
    ga_status status = GA_OK;
    size_t passed = 0;
    while (status == GA_OK && passed < pieces->count) {
        const struct ga_vmm_piece *p = &pieces->list[passed++];
        status = piece(context, pieces->before, p->size, p->fd);
    }
    for (size_t i = 0; i < passed; i++) {
        pieces->list[i].fd = -1; /* owned by the receiver */
    }
    ga_vmm_pieces_drop(pieces);
    return status;
}

static ga_status vmm_export_memory(void *state, const void *start, uint64_t size,
                                   ga_export_piece *piece, void *context)
{
    vmm_state *s = state;
    ga_vmm_pieces pieces = {0};
    if (!piece) {
        return s->vmm.pool.space.flags & GA_ARENA_SHARE_FD
                   ? GA_OK
                   : ga_fail(GA_ERR_UNSUPPORTED, "vmm: the heap was opened without share=fd");
    }
    ga_status status = prefix_error(ga_vmm_export(&s->vmm, start, size, &pieces));
    return status == GA_OK ? pass_pieces(&pieces, piece, context) : status;
}

static bool vmm_reserves(void *state, const void *pointer)
{
    vmm_state *s = state;
    return ga_vmm_reserves(&s->vmm, pointer);
}

/* ---- statistics --------------------------------------------------------------------------- */

static void vmm_stats(void *state, ga_backend_stats *out)
{
    vmm_state *s = state;
    ga_vmm_decay(&s->vmm); /* memory due for release does not count as held */
    pthread_mutex_lock(&s->vmm.lock);
    *out = (ga_backend_stats){.live_bytes = s->vmm.live_bytes,
                              .held_bytes = s->vmm.pool.held + ga_vmm_growing_held(&s->vmm),
                              .growths = s->vmm.pool.growths,
                              .live_blocks = s->vmm.live_blocks};
    pthread_mutex_unlock(&s->vmm.lock);
}

/* ---- forks -------------------------------------------------------------------------------- */

static void vmm_fork_prepare(void *state)
{
    vmm_state *s = state;
    pthread_mutex_lock(&s->vmm.lock);
}

static void vmm_fork_parent(void *state)
{
    vmm_state *s = state;
    pthread_mutex_unlock(&s->vmm.lock);
}

static void vmm_fork_child(void *state)
{
    vmm_state *s = state;
    s->vmm.lost = ga_vmm_on_device(&s->vmm);
    pthread_mutex_unlock(&s->vmm.lock);
}

/* ---- the table ---------------------------------------------------------------------------- */

static const char *const free_choices[] = {[FREE_WAIT] = "wait", [FREE_NOW] = "now", NULL};
static const char *const share_choices[] = {[GA_VMM_SHARE_NONE] = "none",
                                            [GA_VMM_SHARE_FD] = "fd",
                                            [GA_VMM_SHARE_FABRIC] = "fabric",
                                            [GA_VMM_SHARE_AUTO] = "auto",
                                            NULL};
static const char *const rdma_choices[] = {
    [GA_VMM_RDMA_OFF] = "off", [GA_VMM_RDMA_ON] = "on", [GA_VMM_RDMA_AUTO] = "auto", NULL};
static const char *const register_choices[] = {"off", "on", NULL};
static const char *const none[] = {"none", NULL};
static const char *const autos[] = {"auto", NULL};
static const char *const caches[] = {"auto", "wide", NULL};

static const ga_option options[] = {
    [OPTION_LIMIT] = {.name = "limit",
                      .type = GA_OPTION_SIZE,
                      .fallback = "none",
                      .help = "bytes: maximum memory to hold",
                      .choices = none},
    [OPTION_RESERVE] = {.name = "reserve",
                        .type = GA_OPTION_SIZE,
                        .fallback = "auto",
                        .help =
                            "bytes of addresses to reserve at a time, less where refused; auto: "
                            "1T, on the host 64M and twice as many each time",
                        .choices = autos,
                        .min = 1,
                        .max = (int64_t)1 << 47},
    [OPTION_CHUNK] = {.name = "chunk",
                      .type = GA_OPTION_SIZE,
                      .fallback = "1G",
                      .help = "bytes: largest chunk of memory to create"},
    [OPTION_CACHE] = {.name = "cache",
                      .type = GA_OPTION_SIZE,
                      .fallback = "auto",
                      .help = "bytes of free memory to keep mapped; auto: no more in all than was "
                              "in use at once, and a little; wide: half as much again",
                      .choices = caches},
    [OPTION_DECAY] = {.name = "decay",
                      .type = GA_OPTION_INTEGER,
                      .fallback = "10000",
                      .help = "milliseconds until unused memory is returned; 0: at once, -1: never",
                      .min = -1,
                      .max = (int64_t)1 << 40},
    [OPTION_FREE] = {.name = "free",
                     .type = GA_OPTION_ENUM,
                     .fallback = "wait",
                     .help = "free without a stream: wait for the device, or free now",
                     .choices = free_choices},
    [OPTION_SHARE] = {.name = "share",
                      .type = GA_OPTION_ENUM,
                      .fallback = "none",
                      .help = "fd: other processes may map its memory, on a device; fabric: other "
                              "machines, too, else fd; auto: fd where the device can do that",
                      .choices = share_choices},
    [OPTION_RDMA] = {.name = "rdma",
                     .type = GA_OPTION_ENUM,
                     .fallback = "off",
                     .help = "on: network cards may read and write its memory, on a device "
                             "(GPUDirect); auto: where the device can do that",
                     .choices = rdma_choices},
    [OPTION_REGISTER] = {.name = "register",
                         .type = GA_OPTION_ENUM,
                         .fallback = "off",
                         .help = "on: each block is one allocation of the driver, which NCCL and "
                                 "other libraries can register, on a device; implies share=fabric "
                                 "and rdma=auto",
                         .choices = register_choices},
};

const ga_backend ga_vmm_backend = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "vmm",
    .help = "behind reserved addresses: large blocks fit any free memory",
    .places = GA_PLACE_BIT(GA_PLACE_HOST) | GA_PLACE_BIT(GA_PLACE_DEVICE),
    .parent_rule = GA_PARENT_NONE,
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .capabilities = GA_CAP_FREE_WAITS | GA_CAP_EVERY_STREAM,
    .open = vmm_open,
    .close = vmm_close,
    .alloc = vmm_alloc,
    .free = vmm_free,
    .owns = vmm_owns,
    .usable_size = vmm_usable_size,
    .realloc = vmm_realloc,
    .alloc_zeroed = vmm_alloc_zeroed,
    .alloc_aligned = vmm_alloc_aligned,
    .grow = vmm_grow,
    .trim = vmm_trim,
    .alloc_on = vmm_alloc_on,
    .free_on = vmm_free_on,
    .each_live = vmm_each_live,
    .stats = vmm_stats,
    .fork_prepare = vmm_fork_prepare,
    .fork_parent = vmm_fork_parent,
    .fork_child = vmm_fork_child,
    .reset = vmm_reset,
    .growing_open = vmm_growing_open,
    .growing_to = vmm_growing_to,
    .growing_close = vmm_growing_close,
    .enable_peer = vmm_enable_peer,
    .reserves = vmm_reserves,
    .export_memory = vmm_export_memory,
};
