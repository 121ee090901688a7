/* SPDX-License-Identifier: MIT
 *
 *   export  cuIpcGetMemHandle -> export_block -> add_export_once -> add_export
 *   answer  find_pieces, in the thread of handover.c
 *   import  cuIpcOpenMemHandle -> open_import -> open_existing, else make_import -> map_import
 *   close   cuIpcCloseMemHandle -> close_import -> unmap_import, else unmap_import_later
 *
 * STRUCTURE  two lists, each under its own lock: exported blocks and imported blocks. Frees read
 *            the number of exports without a lock. A third list, under the imports' lock, has
 *            imports to unmap later: those closed during a capture, and those that the driver
 *            refused to unmap
 * INVARIANT  an exported block is live. An import stays mapped while it was opened more often than
 *            closed, or its unmapping is deferred
 * ORDER      II1/II2 for the number of exports. A block is exported before the program has its
 *            handle, and the export is dropped before the block is freed
 * PROGRESS   no lock is held while a thread waits for another process, a heap, a device or a
 *            capture
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
    LAZY_PEER_ACCESS = 1 /* the only flag, which callers must pass */
};

/* The program passes it as a CUipcMemHandle. */
typedef struct handle {
    char magic[8];
    ga_cuda_socket_name name;
    uint64_t number, size;
    char unused[24];
} handle;

_Static_assert(sizeof(handle) == sizeof(ga_cuda_ipc_bytes), "64 bytes");

static const char MAGIC[8] = {'g', 'p', 'u', 'a', 'l', 'l', 'o', 'c'};

typedef struct exported {
    ga_cuda_block block;
    handle handle;
    struct exported *next_in_list;
} exported;

typedef struct imported {
    ga_cuda_block block; /* under its address in this process */
    handle handle;
    unsigned open_count;
    ga_vmm_guest memory;
    struct imported *next_in_list;
} imported;

static pthread_mutex_t exports_lock = PTHREAD_MUTEX_INITIALIZER;
static exported *all_exports;
static uint64_t last_number;
static unsigned export_count;

static pthread_mutex_t imports_lock = PTHREAD_MUTEX_INITIALIZER;
static imported *all_imports, *deferred;

/* ---- exporting ---------------------------------------------------------------------------- */

/* With the lock held. */
static void drop_export(exported **at)
{
    exported *gone = *at;
    *at = gone->next_in_list;
    ga_libc.free(gone);
    /* II1: release. Pairs with II2. */
    __atomic_fetch_sub(&export_count, 1, __ATOMIC_RELEASE);
}

void ga_cuda_ipc_lock(void)
{
    pthread_mutex_lock(&exports_lock);
}

void ga_cuda_ipc_unlock(void)
{
    pthread_mutex_unlock(&exports_lock);
}

/* The parent's mappings do not exist in the child. The thread that held the other lock does not
 * either, so that lock is initialised again. */
void ga_cuda_ipc_child(void)
{
    ga_cuda_handover_child();
    while (all_exports) {
        drop_export(&all_exports);
    }
    pthread_mutex_init(&imports_lock, NULL);
    all_imports = deferred = NULL;
    ga_cuda_ipc_unlock();
}

void ga_cuda_ipc_freed(CUdeviceptr start)
{
    /* II2: acquire. Pairs with II1: a free that must drop an export comes after the program got the
     * handle, and so after II1. */
    if (__builtin_expect(!__atomic_load_n(&export_count, __ATOMIC_ACQUIRE), 1)) {
        return;
    }
    pthread_mutex_lock(&exports_lock);
    for (exported **at = &all_exports; *at; at = &(*at)->next_in_list) {
        if ((*at)->block.start == start) {
            drop_export(at);
            break;
        }
    }
    pthread_mutex_unlock(&exports_lock);
}

static bool find_export_by_number(uint64_t number, ga_cuda_block *out)
{
    pthread_mutex_lock(&exports_lock);
    const exported *entry = all_exports;
    while (entry && entry->handle.number != number) {
        entry = entry->next_in_list;
    }
    if (entry) {
        *out = entry->block;
    }
    pthread_mutex_unlock(&exports_lock);
    return entry != NULL;
}

/* Called in the answering thread. Descriptors are made per request, because a process may not have
 * enough of them for all exports. If the block was freed during the export, its memory may belong
 * to another block, so the pieces are dropped. */
static bool find_pieces(uint64_t number, ga_vmm_pieces *out)
{
    ga_cuda_block block;
    bool found =
        find_export_by_number(number, &block) && ga_cuda_share(&block, out) == CUDA_SUCCESS;
    if (found && !find_export_by_number(number, &block)) {
        ga_vmm_pieces_drop(out);
        found = false;
    }
    return found;
}

static exported *find_export(CUdeviceptr start)
{
    exported *entry = all_exports;
    while (entry && entry->block.start != start) {
        entry = entry->next_in_list;
    }
    return entry;
}

static CUresult add_export(const ga_cuda_block *block, exported **out)
{
    ga_cuda_socket_name name;
    exported *made = ga_libc.calloc(1, sizeof *made);
    if (!made || ga_cuda_handover_begin(find_pieces, &name) != GA_OK) {
        ga_libc.free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made = (exported){.block = *block,
                       .handle = {.name = name, .number = ++last_number, .size = block->size},
                       .next_in_list = all_exports};
    memcpy(made->handle.magic, MAGIC, sizeof MAGIC);
    all_exports = *out = made;
    /* II1: release. Pairs with II2. */
    __atomic_fetch_add(&export_count, 1, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

static bool copy_handle(const exported *entry, void *out)
{
    if (entry) {
        memcpy(out, &entry->handle, sizeof entry->handle);
    }
    return entry != NULL;
}

/* Another thread may have exported the block first. */
static CUresult add_export_once(const ga_cuda_block *block, void *out)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&exports_lock);
    exported *entry = find_export(block->start);
    if (!entry) {
        result = add_export(block, &entry);
    }
    if (result == CUDA_SUCCESS) {
        copy_handle(entry, out);
    }
    pthread_mutex_unlock(&exports_lock);
    return result;
}

/* A block keeps its handle for life. A trial export shows at once whether the memory can be
 * exported. */
static CUresult export_block(const ga_cuda_block *block, void *out)
{
    ga_vmm_pieces pieces;
    pthread_mutex_lock(&exports_lock);
    bool known = copy_handle(find_export(block->start), out);
    pthread_mutex_unlock(&exports_lock);
    if (known) {
        return CUDA_SUCCESS;
    }
    CUresult result = ga_cuda_share(block, &pieces);
    if (result == CUDA_SUCCESS) {
        ga_vmm_pieces_drop(&pieces);
        result = add_export_once(block, out);
    }
    return result;
}

/* Once per process, a warning with the setting that would help. */
static void warn_compat(const ga_cuda_block *block)
{
    static bool warned;
    /* relaxed: only limits the warning to once */
    if (!__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED)) {
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
    CUresult result = ours && out ? export_block(&block, out) : CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_ERROR_NOT_SUPPORTED) {
        return result;
    }
    /* The driver's handle would be for the whole allocation, so a block that is part of one has
     * none. */
    bool part = ours && !block.driver_owned;
    result = !next ? ga_cuda_next_missing() : part ? CUDA_ERROR_INVALID_VALUE : next(out, pointer);
    if (result != CUDA_SUCCESS && ours) {
        warn_compat(&block);
    }
    return result;
}

/* ---- importing ------------------------------------------------------------------------------ */

static imported **find_import(CUdeviceptr start)
{
    imported **at = &all_imports;
    while (*at && (*at)->block.start != start) {
        at = &(*at)->next_in_list;
    }
    return at;
}

static imported *find_open_import(const handle *requested, int device)
{
    imported *entry = all_imports;
    while (entry && (entry->block.device != device ||
                     memcmp(&entry->handle, requested, sizeof *requested) != 0)) {
        entry = entry->next_in_list;
    }
    return entry;
}

bool ga_cuda_ipc_find(CUdeviceptr address, ga_cuda_block *out)
{
    /* relaxed: a thread that api about an imported address was ordered after its opening */
    if (__builtin_expect(!__atomic_load_n(&all_imports, __ATOMIC_RELAXED), 1)) {
        return false;
    }
    pthread_mutex_lock(&imports_lock);
    const imported *entry = all_imports;
    while (entry && address - entry->block.start >= entry->block.size) {
        entry = entry->next_in_list;
    }
    if (entry) {
        *out = entry->block;
    }
    pthread_mutex_unlock(&imports_lock);
    return entry != NULL;
}

/* The driver's results for its own handles: an unknown handle, or memory that cannot be mapped. */
static CUresult open_error(ga_status status)
{
    ga_log(GA_LOG_WARN, "cuIpcOpenMemHandle: %s", ga_error_text());
    return status == GA_ERR_POINTER ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_MAP_FAILED;
}

static ga_status check_pieces(const handle *requested, const ga_vmm_pieces *pieces)
{
    uint64_t all = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        all += pieces->list[i].size;
    }
    bool fits = requested->size && pieces->before < all && requested->size <= all - pieces->before;
    return fits ? GA_OK
                : ga_fail(GA_ERR_POINTER,
                          "a block of %llu bytes exceeds the memory that was received",
                          (unsigned long long)requested->size);
}

static ga_status map_import(imported *made)
{
    ga_vmm_pieces pieces;
    const handle *requested = &made->handle;
    ga_status status = ga_cuda_handover_request(&requested->name, requested->number, &pieces);
    if (status != GA_OK) {
        return status;
    }
    status = check_pieces(requested, &pieces);
    if (status == GA_OK) {
        status = ga_vmm_guest_open(&made->memory, made->block.device, &pieces);
    }
    made->block.start = made->memory.base + pieces.before;
    ga_vmm_pieces_drop(&pieces);
    return status;
}

/* Without the lock held. */
static void defer_unmap(imported *gone)
{
    pthread_mutex_lock(&imports_lock);
    gone->next_in_list = deferred;
    deferred = gone;
    pthread_mutex_unlock(&imports_lock);
}

/* If the driver refuses to unmap it, try again when another import is opened or closed. */
static void unmap_or_defer(imported *gone)
{
    if (ga_vmm_guest_close(&gone->memory)) {
        ga_libc.free(gone);
        return;
    }
    ga_log(GA_LOG_INFO, "device %d: the driver keeps a block of %zu bytes of another process: %s",
           gone->block.device, gone->block.size, ga_error_text());
    defer_unmap(gone);
}

static CUresult make_import(const handle *requested, int device, imported **out)
{
    imported *made = ga_libc.calloc(1, sizeof *made);
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->handle = *requested;
    made->block = (ga_cuda_block){
        .size = requested->size, .device = device, .generation = 1, .imported = true};
    ga_status status = map_import(made);
    if (status != GA_OK) {
        CUresult result = open_error(status); /* before the next call replaces the error text */
        unmap_or_defer(made);
        return result;
    }
    *out = made;
    return CUDA_SUCCESS;
}

/* Open once more the import with that handle; if there is none, add `made`. Returns the import that
 * is open; NULL: none. */
static imported *open_existing(const handle *requested, int device, imported *made,
                               CUdeviceptr *out)
{
    pthread_mutex_lock(&imports_lock);
    imported *entry = find_open_import(requested, device);
    if (!entry && made) {
        made->next_in_list = all_imports;
        __atomic_store_n(&all_imports, made, __ATOMIC_RELAXED); /* relaxed: under the lock */
        entry = made;
    }
    if (entry) {
        entry->open_count++;
        *out = entry->block.start;
    }
    pthread_mutex_unlock(&imports_lock);
    return entry;
}

/* No lock is held during the request to the other process, so another thread may open it first. */
static CUresult open_import(CUdeviceptr *out, const handle *requested)
{
    const ga_cuda_api *api = ga_cuda_next_api();
    CUcontext context;
    int device = api ? ga_cuda_context_device(api, &context) : -1;
    if (device < 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (open_existing(requested, device, NULL, out)) {
        return CUDA_SUCCESS;
    }
    ga_cuda_ipc_unmap_deferred();
    if (ga_cuda_handover_is_ours(&requested->name)) {
        return CUDA_ERROR_INVALID_CONTEXT; /* as the driver answers for its own process's handle */
    }
    imported *made = NULL;
    CUresult result = make_import(requested, device, &made);
    if (result == CUDA_SUCCESS && open_existing(requested, device, made, out) != made) {
        unmap_or_defer(made);
    }
    return result;
}

/* Wait for this process's work on the device, which may use the memory, then unmap it. False: a
 * capture forbids it. */
static bool unmap_import(imported *gone)
{
    bool held = ga_cuda_captures_hold_off();
    if (held) {
        ga_cuda_wait_for(gone->block.device);
        unmap_or_defer(gone);
        ga_cuda_captures_allow();
    }
    return held;
}

/* If the last capture ended before the import was on the list, no other thread unmaps it. */
static void unmap_import_later(imported *gone)
{
    defer_unmap(gone);
    if (!ga_cuda_capturing()) {
        ga_cuda_ipc_unmap_deferred();
    }
}

void ga_cuda_ipc_unmap_deferred(void)
{
    pthread_mutex_lock(&imports_lock);
    imported *list = deferred;
    deferred = NULL;
    pthread_mutex_unlock(&imports_lock);
    while (list) {
        imported *gone = list;
        list = gone->next_in_list;
        if (!unmap_import(gone)) {
            unmap_import_later(gone);
        }
    }
}

/* With the lock held. */
static imported *remove_import(imported **at)
{
    imported *gone = *at;
    __atomic_store_n(at, gone->next_in_list, __ATOMIC_RELAXED); /* relaxed: under the lock */
    return gone;
}

/* False: the address is not an import's. */
static bool close_import(CUdeviceptr start)
{
    imported *gone = NULL;
    pthread_mutex_lock(&imports_lock);
    imported **at = find_import(start);
    bool found = *at != NULL;
    if (found && --(*at)->open_count == 0) {
        gone = remove_import(at);
    }
    pthread_mutex_unlock(&imports_lock);
    if (found) {
        ga_cuda_ipc_unmap_deferred();
    }
    if (gone && !unmap_import(gone)) {
        unmap_import_later(gone);
    }
    return found;
}

/* Remove an import of the device from the open or the deferred list. NULL: there is none. */
static imported *remove_import_of(int device)
{
    imported **const lists[] = {&all_imports, &deferred};
    imported *gone = NULL;
    pthread_mutex_lock(&imports_lock);
    for (size_t i = 0; !gone && i < 2; i++) {
        imported **at = lists[i];
        while (*at && (*at)->block.device != device) {
            at = &(*at)->next_in_list;
        }
        gone = *at ? remove_import(at) : NULL;
    }
    pthread_mutex_unlock(&imports_lock);
    return gone;
}

/* The context is about to be destroyed with all that the driver still has mapped, so do not
 * defer. */
static void unmap_for_good(imported *gone)
{
    if (!ga_vmm_guest_close(&gone->memory)) {
        ga_log(GA_LOG_WARN,
               "device %d: the driver keeps a block of %zu bytes of another process: %s",
               gone->block.device, gone->block.size, ga_error_text());
    }
    ga_libc.free(gone->memory.handles);
    ga_libc.free(gone);
}

/* If a capture is in progress it ends with the context, so the imports are unmapped without holding
 * captures off. */
void ga_cuda_ipc_reset(int device)
{
    pthread_mutex_lock(&exports_lock);
    for (exported **at = &all_exports; *at;) {
        if ((*at)->block.device == device) {
            drop_export(at);
        } else {
            at = &(*at)->next_in_list;
        }
    }
    pthread_mutex_unlock(&exports_lock);
    for (imported *gone; (gone = remove_import_of(device)) != NULL;) {
        bool held = ga_cuda_captures_hold_off();
        if (held) {
            ga_cuda_wait_for(device);
        }
        unmap_for_good(gone);
        if (held) {
            ga_cuda_captures_allow();
        }
    }
}

typedef CUresult open_fn(CUdeviceptr *out, ga_cuda_ipc_bytes bytes, unsigned flags);
typedef CUresult close_fn(CUdeviceptr block);

static CUresult open_handle(ga_cuda_hook_index row, CUdeviceptr *out,
                            const ga_cuda_ipc_bytes *bytes, unsigned flags)
{
    open_fn *next = (open_fn *)(uintptr_t)ga_cuda_next_find(row);
    handle requested;
    memcpy(&requested, bytes, sizeof requested);
    ga_cuda_count(row);
    if (memcmp(requested.magic, MAGIC, sizeof MAGIC) != 0) {
        return next ? next(out, *bytes, flags) : ga_cuda_next_missing();
    }
    return out && flags == LAZY_PEER_ACCESS ? open_import(out, &requested)
                                            : CUDA_ERROR_INVALID_VALUE;
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
    if (close_import(block)) {
        return CUDA_SUCCESS;
    }
    return next ? next(block) : ga_cuda_next_missing();
}
