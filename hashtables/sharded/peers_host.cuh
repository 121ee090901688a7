/* SPDX-License-Identifier: MIT
 *
 * Opens, refreshes and closes a view of the shards of all ranks. Included by
 * gpualloc/slabhash_peers.cuh.
 *
 * STRUCTURE  In memory of this rank's device: for each rank a view of its shard and a copy of the
 *            record of its slab heap; and one word that says whether the tables are ordered.
 *
 *              own memory                                       memory of rank i
 *              | view 0 | view 1 | ... | ordered | heap 0 | heap 1 | ...
 *                           | rows ------------------------>    buckets
 *                           | heap ------------------> heap 1
 *                                                       | units, rows, free -> slabs, bitmaps
 *
 *            So a kernel follows a link of another shard without a load of the other heap's record,
 *            and what tiles note there, as hints, is between tiles of one device. The copy has no
 *            mailbox: growth compares clocks, and those of two devices differ. Of a shard in
 *            another process this one maps the blocks (peers_process.cuh), and the view and the
 *            copy have its own addresses.
 */
#ifndef GPUALLOC_SHARDED_PEERS_HOST_CUH
#define GPUALLOC_SHARDED_PEERS_HOST_CUH

#include "peers_kernel.cuh"
#include "peers_process.cuh"

#include <gpualloc/slabhash_sharded.h>

enum {
    GA_SLABHASH_PEERS = 16 /* ranks at most */
};

typedef struct ga_slabhash_peers {
    ga_slabhash_peers_view view;
    ga_slabhash_sharded *table;
    int device;
    void *memory;
    bool has_processes; /* ranks of several */
    uint64_t process;   /* of this rank */
    ga_slabhash_imported imported[GA_SLABHASH_PEERS];
} ga_slabhash_peers;

/* Records that a rank passes to the others: its name, once, and its shard. */
typedef struct ga_slabhash_peer_name {
    uint64_t process;
    cudaUUID_t identity; /* of the device */
    int32_t device;      /* its number, in the rank's process */
    uint32_t padding;
} ga_slabhash_peer_name;

typedef struct ga_slabhash_peer {
    ga_slabhash_view view;
    uint64_t process;
    ga_slabhash_exported exported; /* with ranks of several processes */
    uint32_t is_ordered, padding;
} ga_slabhash_peer;

static inline ga_slabhash_device *ga_slabhash_peers_own(const ga_slabhash_peers *peers)
{
    return (ga_slabhash_device *)ga_slabhash_sharded_table(peers->table);
}

/* ---- access ---------------------------------------------------------------------------------- */

/* Lets this rank's device use the memory of another one, and sees whether it has atomics there. */
static inline ga_status ga_slabhash_peers_reach(ga_slabhash_peers *peers, int other)
{
    int can = 0, has_atomics = 0;
    ga_status status = ga_slabhash_cuda("ask for access to another device",
                                        cudaDeviceCanAccessPeer(&can, peers->device, other));
    if (status == GA_OK && !can) {
        status = ga_fail(GA_ERR_UNSUPPORTED,
                         "slabhash: device %d cannot access the memory of device %d, which has "
                         "another shard",
                         peers->device, other);
    }
    if (status != GA_OK) {
        return status;
    }
    cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
        error = cudaSuccess;
    }
    status = ga_slabhash_cuda("enable access to another device", error);
    status = status
                 ? status
                 : ga_slabhash_cuda("ask for atomics on another device's memory",
                                    cudaDeviceGetP2PAttribute(&has_atomics,
                                                              cudaDevP2PAttrNativeAtomicSupported,
                                                              peers->device, other));
    peers->view.may_change = peers->view.may_change && has_atomics;
    return status;
}

/* Lets another device use the memory of this rank's shard. */
static inline ga_status ga_slabhash_peers_admit(const ga_slabhash_device *own, int other)
{
    ga_status status = ga_heap_enable_peer(own->slabs, other);
    status = status ? status : ga_heap_enable_peer(own->arrays, other);
    return status ? status : ga_heap_enable_peer(own->buckets, other);
}

/* The number of a rank's device in this process. */
static inline ga_status ga_slabhash_peers_device(const ga_slabhash_peers *peers, uint32_t rank,
                                                 const ga_slabhash_peer_name *name, int *out)
{
    bool is_own = name->process == peers->process;
    *out = is_own ? name->device : ga_slabhash_device_of(&name->identity);
    return *out >= 0 ? GA_OK
                     : ga_fail(GA_ERR_UNSUPPORTED,
                               "slabhash: the device of rank %u is not visible in the process of "
                               "rank %u: expected devices of one host, and all of them in "
                               "CUDA_VISIBLE_DEVICES",
                               rank, peers->view.rank);
}

static inline ga_status ga_slabhash_peers_connect(ga_slabhash_peers *peers,
                                                  const ga_slabhash_peer_name *all)
{
    ga_status status = GA_OK;
    peers->view.may_change = 1;
    for (uint32_t i = 0; i < peers->view.division.ranks && status == GA_OK; i++) {
        int device;
        status = ga_slabhash_peers_device(peers, i, &all[i], &device);
        if (status == GA_OK && device != peers->device) {
            status = ga_slabhash_peers_reach(peers, device);
            status = status || all[i].process != peers->process
                         ? status
                         : ga_slabhash_peers_admit(ga_slabhash_peers_own(peers), device);
        }
    }
    return status;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Offsets in `memory`, each at a multiple of 256 bytes. */
static inline size_t ga_slabhash_peers_ordered_at(uint32_t ranks)
{
    return (ranks * sizeof(ga_slabhash_view) + 255u) / 256u * 256u;
}

static inline size_t ga_slabhash_peers_heap_at(uint32_t ranks, uint32_t rank)
{
    return ga_slabhash_peers_ordered_at(ranks) + 256u +
           rank * ((sizeof(ga_slab_heap) + 255u) / 256u * 256u);
}

/* Copies the record of another rank's heap, without its mailbox and its hints: a tile of the other
 * device may just be computing one. Kernels of the owner may be adding slabs meanwhile; the number
 * of words is then that before or after. */
static inline ga_status ga_slabhash_peers_copy_heap(ga_slab_heap *to, const ga_slab_heap *from,
                                                    cudaStream_t stream)
{
    ga_status status =
        ga_slabhash_cuda("copy the record of another heap",
                         cudaMemcpyAsync(to, from, sizeof *to, cudaMemcpyDefault, stream));
    status = status ? status
                    : ga_slabhash_cuda("forget another heap's mailbox",
                                       cudaMemsetAsync(&to->growth, 0, sizeof to->growth, stream));
    return status ? status
                  : ga_slabhash_cuda("forget another heap's hints",
                                     cudaMemsetAsync(to->hints, 0, sizeof to->hints, stream));
}

/* The view of another rank's shard, with the addresses that this process has for it. `copy`: room
 * for the record of its heap. */
static inline ga_status ga_slabhash_peers_adopt(ga_slabhash_peers *peers, uint32_t rank,
                                                const ga_slabhash_peer *from,
                                                ga_slabhash_view *view, ga_slab_heap *copy,
                                                cudaStream_t stream)
{
    ga_slabhash_imported *at = &peers->imported[rank];
    bool is_far = from->process != peers->process;
    ga_status status = is_far && !at->buckets ? ga_slabhash_import(at, &from->exported) : GA_OK;
    const ga_slab_heap *heap = is_far ? (const ga_slab_heap *)at->heap : view->heap;
    status = status ? status : ga_slabhash_peers_copy_heap(copy, heap, stream);
    view->heap = copy;
    if (status != GA_OK || !is_far) {
        return status;
    }
    view->rows = (uint32_t *)at->buckets;
#ifdef GA_SLABHASH_CHECKED
    view->use = NULL; /* the other process's calls alone are checked */
#endif
    return ga_slabhash_relocate(copy, at, &from->exported, stream);
}

/* Writes the views of all shards, for kernels after the work on `stream`. */
static inline ga_status ga_slabhash_peers_write(ga_slabhash_peers *peers,
                                                const ga_slabhash_peer *all, cudaStream_t stream)
{
    uint32_t ranks = peers->view.division.ranks;
    ga_slabhash_view views[GA_SLABHASH_PEERS];
    char *memory = (char *)peers->memory;
    uint32_t *ordered = (uint32_t *)(void *)(memory + ga_slabhash_peers_ordered_at(ranks));
    bool all_ordered = true;
    ga_status status = GA_OK;
    for (uint32_t i = 0; i < ranks; i++) {
        all_ordered = all_ordered && all[i].is_ordered;
    }
    for (uint32_t i = 0; i < ranks && status == GA_OK; i++) {
        views[i] = all[i].view;
        views[i].ordered = ordered;
        views[i].exceeds_l2 = GA_SLABHASH_BEHIND_LINK;
        if (i != peers->view.rank) {
            ga_slab_heap *copy =
                (ga_slab_heap *)(void *)(memory + ga_slabhash_peers_heap_at(ranks, i));
            status = ga_slabhash_peers_adopt(peers, i, &all[i], &views[i], copy, stream);
        }
    }
    if (status == GA_OK && !all_ordered) { /* a flushed table does not become ordered again */
        status = ga_slabhash_device_set_ordered(ga_slabhash_peers_own(peers), false, stream);
    }
    status = status ? status
                    : ga_slabhash_cuda("say in what order keys stand",
                                       cudaMemsetAsync(ordered, all_ordered ? 0xff : 0,
                                                       sizeof *ordered, stream));
    status = status ? status
                    : ga_slabhash_cuda("write the views of all shards",
                                       cudaMemcpyAsync(memory, views, ranks * sizeof *views,
                                                       cudaMemcpyHostToDevice, stream));
    return status ? status
                  : ga_slabhash_cuda("wait for the views of all shards",
                                     cudaStreamSynchronize(stream));
}

/* ---- for the program ------------------------------------------------------------------------- */

/* The record of this rank, once the work on `stream` is done. */
static inline ga_status ga_slabhash_peers_describe(ga_slabhash_peers *peers, ga_slabhash_peer *mine,
                                                   cudaStream_t stream)
{
    ga_slabhash_device *own = ga_slabhash_peers_own(peers);
    ga_status status = ga_slabhash_cuda("wait for work on a shard", cudaStreamSynchronize(stream));
    status = status ? status : ga_slabhash_device_update_heap(own);
    mine->view = own->view;
    status = status || !peers->has_processes ? status : ga_slabhash_export(own, &mine->exported);
    return status ? status
                  : ga_slabhash_cuda("ask in what order keys stand",
                                     cudaMemcpy(&mine->is_ordered, own->view.ordered,
                                                sizeof mine->is_ordered, cudaMemcpyDeviceToHost));
}

/* Gets the shards of all ranks as they are after the work on `stream` of each rank. `status`: of
 * this rank until now. */
static inline ga_status ga_slabhash_peers_update(ga_slabhash_peers *peers, ga_status status,
                                                 cudaStream_t stream)
{
    ga_slabhash_peer mine = {}, all[GA_SLABHASH_PEERS];
    bool one_process = false;
    mine.process = peers->process;
    status = status ? status : ga_slabhash_peers_describe(peers, &mine, stream);
    status = ga_slabhash_sharded_share(peers->table, status, &mine, all, sizeof mine, &one_process);
    if (status != GA_OK) {
        return status;
    }
    status = ga_slabhash_peers_write(peers, all, stream);
    /* no rank goes on before all of them have written theirs */
    return ga_slabhash_sharded_share(peers->table, status, NULL, NULL, 0, &one_process);
}

static inline ga_status ga_slabhash_peers_close(ga_slabhash_peers *peers)
{
    ga_status status = GA_OK;
    if (peers && peers->memory) {
        ga_slabhash_device_scope scope(peers->device);
        status = ga_slabhash_cuda("free the views of all shards", cudaFree(peers->memory));
        for (ga_slabhash_imported &one : peers->imported) {
            ga_status unmapped = ga_slabhash_unimport(&one);
            status = status ? status : unmapped;
        }
    }
    if (peers) {
        *peers = ga_slabhash_peers{};
    }
    return status;
}

/* Whether the tables of all ranks can be used from kernels of this one. */
static inline ga_status ga_slabhash_peers_check(const ga_slabhash_peers *peers)
{
    const ga_slabhash_device *own = ga_slabhash_peers_own(peers);
    ga_status status = ga_slabhash_device_check(own);
    return status || !GA_SLABHASH_IS_GROWING(own->view.kind)
               ? status
               : ga_fail(GA_ERR_UNSUPPORTED,
                         "slabhash: shards that grow while kernels run: expected none for kernels "
                         "of other devices");
}

static inline ga_status ga_slabhash_peers_name(const ga_slabhash_peers *peers,
                                               ga_slabhash_peer_name *mine)
{
    cudaDeviceProp properties;
    ga_status status = ga_slabhash_peers_check(peers);
    mine->process = peers->process;
    mine->device = peers->device;
    status = status ? status
                    : ga_slabhash_cuda("ask which device it is",
                                       cudaGetDeviceProperties(&properties, peers->device));
    mine->identity = status ? cudaUUID_t{} : properties.uuid;
    return status;
}

/* Lets the devices of all ranks use each other's memory. */
static inline ga_status ga_slabhash_peers_set_up(ga_slabhash_peers *peers)
{
    ga_slabhash_peer_name mine = {}, all[GA_SLABHASH_PEERS];
    bool one_process = false;
    uint32_t ranks = peers->view.division.ranks;
    ga_status status = ga_slabhash_peers_name(peers, &mine);
    status = ga_slabhash_sharded_share(peers->table, status, &mine, all, sizeof mine, &one_process);
    if (status != GA_OK) {
        return status;
    }
    peers->has_processes = !one_process;
    status = ga_slabhash_peers_connect(peers, all);
    return status ? status
                  : ga_slabhash_cuda(
                        "get memory for the views of all shards",
                        cudaMalloc(&peers->memory, ga_slabhash_peers_heap_at(ranks, ranks)));
}

static inline ga_status ga_slabhash_peers_open(ga_slabhash_peers *peers, ga_slabhash_sharded *table,
                                               cudaStream_t stream)
{
    if (!peers || !table) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: no %s: expected a pointer",
                       peers ? "sharded table" : "place for a view of all shards");
    }
    *peers = ga_slabhash_peers{};
    uint32_t rank = 0, ranks = ga_slabhash_sharded_ranks(table, &rank);
    if (ranks > GA_SLABHASH_PEERS) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: %u ranks: expected at most %d", ranks,
                       GA_SLABHASH_PEERS);
    }
    if (ga_slabhash_sharded_device(table) < 0) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: a sharded table in memory of the host: expected "
                                        "one of devices for a view for kernels");
    }
    peers->table = table;
    peers->process = ga_slabhash_sharded_process();
    const ga_slabhash_device *own = ga_slabhash_peers_own(peers);
    peers->device = own->device;
    peers->view.rank = rank;
    peers->view.kind = own->view.kind;
    peers->view.division.a = own->view.a;
    peers->view.division.b = own->view.b;
    peers->view.division.ranks = ranks;
    ga_slabhash_device_scope scope(own->device);
    ga_status status = scope.status ? scope.status : ga_slabhash_peers_set_up(peers);
    status = ga_slabhash_peers_update(peers, status, stream);
    peers->view.shards = (const ga_slabhash_view *)peers->memory;
    if (status != GA_OK) {
        (void)ga_slabhash_peers_close(peers);
    }
    return status;
}

static inline ga_status ga_slabhash_peers_refresh(ga_slabhash_peers *peers, cudaStream_t stream)
{
    if (!peers || !peers->memory) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "slabhash: no view of all shards: expected one that is open");
    }
    ga_slabhash_device_scope scope(peers->device);
    return ga_slabhash_peers_update(peers, scope.status, stream);
}

#endif
