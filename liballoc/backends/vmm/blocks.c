/* SPDX-License-Identifier: MIT
 *
 * Allocating and freeing blocks.
 *
 * ga_vmm_allocate
 *   allocate              a unit (packed.h) or a run (pool.h)
 *   wait_for_memory       out of memory: free deferred units, or wait for the oldest stream; retry
 *   finish_and_unlock     release memory beyond cache=, and memory older than decay=
 */
#include "blocks.h"

#include "../../platform/libc.h"
#include "../../platform/machine.h"
#include "chunks.h"
#include "growing.h"
#include "purge.h"

#include <gpualloc/backend.h>

typedef unsigned long long ull; /* the type of %llu */

/* Host requests of this size and above read /proc first, which takes about 50 us. */
static const uint64_t MACHINE_CHECK_BYTES = (uint64_t)1 << 30;

static void lock(ga_vmm *vmm)
{
    pthread_mutex_lock(&vmm->lock);
    ga_vmm_fences_new_round(&vmm->pool.fences);
}

/* Calls that free memory read the clock. Requests read it on their slow path only. */
static void lock_and_read_clock(ga_vmm *vmm)
{
    lock(vmm);
    ga_vmm_pool_read_clock(&vmm->pool);
}

static void unlock(ga_vmm *vmm)
{
    pthread_mutex_unlock(&vmm->lock);
}

/* True if deferred units may exceed the bound of cache= once they are free. */
static bool defers_too_much(const ga_vmm *vmm)
{
    return vmm->packed.deferred > vmm->pool.cache;
}

/* Also collect deferred units, because those freed last would stay deferred forever. */
static void decay(ga_vmm *vmm)
{
    vmm->decayed_at = vmm->pool.now;
    if (vmm->packed.deferred) {
        ga_vmm_packed_collect(&vmm->packed);
    }
    ga_vmm_pool_decay(&vmm->pool);
}

/* Enforce cache= and decay= after an allocation or a free. A failed call skips this, because its
 * error must stay the thread's last. */
static ga_status finish_and_unlock(ga_vmm *vmm, ga_status status)
{
    if (status == GA_OK && !vmm->lost) {
        if (defers_too_much(vmm)) {
            ga_vmm_packed_collect_oldest(&vmm->packed);
        }
        ga_vmm_pool_bound(&vmm->pool);
        if (__builtin_expect(vmm->pool.now - vmm->decayed_at >= vmm->decay_period, 0)) {
            decay(vmm);
        }
    }
    unlock(vmm);
    return status;
}

/* ---- blocks by their addresses ------------------------------------------------------------- */

/* The run of the block, or of its unit; NULL if no live block begins there. */
static ga_vmm_run *find_run(const ga_vmm *vmm, const void *block)
{
    ga_vmm_run *run = ga_vmm_pool_find(&vmm->pool, block);
    bool begins =
        run && (run->sheet ? ga_vmm_sheet_has(run->sheet, block) : run->base == (uintptr_t)block);
    return begins ? run : NULL;
}

static uint64_t bytes_of(const ga_vmm_run *run)
{
    return run->sheet ? ga_vmm_sheet_unit(run->sheet) : run->size;
}

static ga_status no_block(const void *block)
{
    return ga_fail(GA_ERR_POINTER, "%p begins no live block of this heap", block);
}

ga_status ga_vmm_check(ga_vmm *vmm, const void *block)
{
    return ga_vmm_usable(vmm, block) ? GA_OK : no_block(block);
}

uint64_t ga_vmm_usable(ga_vmm *vmm, const void *block)
{
    lock(vmm);
    const ga_vmm_run *run = find_run(vmm, block);
    uint64_t bytes = run ? bytes_of(run) : 0;
    unlock(vmm);
    return bytes;
}

bool ga_vmm_owns(ga_vmm *vmm, const void *pointer)
{
    lock(vmm);
    const ga_vmm_run *run = ga_vmm_pool_find(&vmm->pool, pointer);
    uint64_t unit = run && run->sheet ? ga_vmm_sheet_unit(run->sheet) : 0;
    uint64_t into = unit ? ((uintptr_t)pointer - run->base) % unit : 0;
    bool owns = run && (!unit || ga_vmm_sheet_has(run->sheet, (const char *)pointer - into));
    unlock(vmm);
    return owns;
}

bool ga_vmm_reserves(ga_vmm *vmm, const void *pointer)
{
    lock(vmm);
    bool reserves = ga_vmm_addresses_has(&vmm->pool.addresses, pointer);
    unlock(vmm);
    return reserves;
}

/* ---- allocating -------------------------------------------------------------------------- */

static void count_live(ga_vmm *vmm, uint64_t bytes)
{
    vmm->live_bytes += bytes;
    vmm->live_blocks++;
}

static ga_status allocate(ga_vmm *vmm, uint64_t size, uint64_t align, const ga_stream *stream,
                          void **out)
{
    ga_vmm_run *run;
    uint64_t usable;
    ga_status status;
    if (!vmm->pool.whole && ga_vmm_packed_serves(&vmm->packed, size, align)) {
        status = ga_vmm_packed_allocate(&vmm->packed, size, align, stream, out, &usable);
    } else {
        size = ga_vmm_pool_round_up(&vmm->pool, size);
        status = ga_vmm_pool_allocate(&vmm->pool, size, align, stream, &run);
        usable = status == GA_OK ? run->size : 0;
        *out = status == GA_OK ? (void *)run->base : NULL;
    }
    if (status == GA_OK) {
        count_live(vmm, usable);
    }
    return status;
}

/* Without the lock, wait for the oldest stream that used freed memory, and collect that memory.
 * Returns false if there is none or the wait fails. */
static bool wait_for_oldest_stream(ga_vmm *vmm)
{
    CUevent event = ga_vmm_fences_oldest(&vmm->pool.fences);
    if (!event) {
        return false;
    }
    unlock(vmm);
    ga_status status = ga_vmm_fences_wait(vmm->pool.space.device, event);
    lock(vmm);
    ga_vmm_fences_poll(&vmm->pool.fences);
    ga_vmm_packed_collect(&vmm->packed);
    return status == GA_OK;
}

/* Free deferred units whose streams are done, or else wait for a stream. */
static bool wait_for_memory(ga_vmm *vmm)
{
    return ga_vmm_packed_collect(&vmm->packed) || wait_for_oldest_stream(vmm);
}

/* A child of fork() cannot use the driver: return the error. */
static ga_status check_driver(const ga_vmm *vmm)
{
    ga_cuda_scope scope;
    if (!vmm->lost) {
        return GA_OK;
    }
    ga_status status = ga_cuda_enter(&scope, vmm->pool.space.device);
    if (status == GA_OK) {
        ga_cuda_leave(&scope);
        status = ga_fail(GA_ERR_DEVICE, "the heap is the parent process's");
    }
    return status;
}

/* On the host a block is mapped chunk by chunk, and the kernel checks each chunk alone. The whole
 * block is checked here, or a single request could bring the OOM killer. */
static ga_status check_machine(const ga_vmm *vmm, uint64_t size)
{
    bool asks = !ga_vmm_on_device(vmm) && size >= MACHINE_CHECK_BYTES;
    uint64_t total = asks ? ga_machine_memory_total() : UINT64_MAX;
    return size <= total
               ? GA_OK
               : ga_fail(GA_ERR_MEMORY, "the machine has %llu bytes of memory and swap in all",
                         (ull)total);
}

static ga_status check_size(const ga_vmm *vmm, uint64_t size, uint64_t align)
{
    if (align > vmm->total || size > vmm->total) {
        return ga_fail(GA_ERR_MEMORY, "there are %llu bytes in all", (ull)vmm->total);
    }
    if (size > vmm->pool.limit) {
        return ga_fail(GA_ERR_MEMORY, "the limit is %llu bytes", (ull)vmm->pool.limit);
    }
    return check_machine(vmm, size);
}

ga_status ga_vmm_allocate(ga_vmm *vmm, uint64_t size, uint64_t align, const ga_stream *stream,
                          void **out)
{
    lock(vmm);
    ga_status status = check_size(vmm, size, align);
    if (status == GA_OK) {
        status = check_driver(vmm);
    }
    if (status == GA_OK) {
        do {
            status = allocate(vmm, size, align, stream, out);
        } while (status == GA_ERR_MEMORY && wait_for_memory(vmm));
    }
    return finish_and_unlock(vmm, status);
}

/* ---- freeing ----------------------------------------------------------------------------- */

/* The block is live. With a fence, GA_ERR_MEMORY if there is no memory to record the deferral. */
static ga_status free_block(ga_vmm *vmm, ga_vmm_run *run, const void *block, ga_vmm_fence *fence)
{
    uint64_t bytes = bytes_of(run);
    if (run->sheet) {
        ga_status status = ga_vmm_packed_free(&vmm->packed, run->sheet, block, fence);
        if (status != GA_OK) {
            return status;
        }
    } else {
        ga_vmm_pool_free(&vmm->pool, run, fence);
    }
    vmm->live_bytes -= bytes;
    vmm->live_blocks--;
    return GA_OK;
}

ga_status ga_vmm_free(ga_vmm *vmm, const void *block)
{
    lock_and_read_clock(vmm);
    ga_vmm_run *run = find_run(vmm, block);
    ga_status status = run ? check_driver(vmm) : no_block(block);
    if (status == GA_OK) {
        status = free_block(vmm, run, block, NULL);
    }
    return finish_and_unlock(vmm, status);
}

/* No event, or no memory to record the deferral: wait for the stream, then free. */
static ga_status free_after_waiting(ga_vmm *vmm, ga_vmm_run *run, const void *block,
                                    ga_stream stream)
{
    ga_cuda_scope scope;
    ga_status status = ga_cuda_enter(&scope, vmm->pool.space.device);
    if (status == GA_OK) {
        status = stream == GA_EVERY_STREAM
                     ? GA_CUDA_CALL(scope.driver, cuCtxSynchronize)
                     : GA_CUDA_CALL(scope.driver, cuStreamSynchronize, stream);
        ga_cuda_leave(&scope);
    }
    return status == GA_OK ? free_block(vmm, run, block, NULL) : status;
}

static ga_status free_block_on(ga_vmm *vmm, ga_vmm_run *run, const void *block, ga_stream stream)
{
    ga_vmm_fence *fence;
    ga_status status = ga_vmm_fence_put(&vmm->pool.fences, stream, &fence);
    if (status == GA_OK) {
        status = free_block(vmm, run, block, fence);
        if (status != GA_OK) {
            ga_vmm_fence_drop(&vmm->pool.fences, fence, 0);
        }
    }
    return status == GA_OK ? GA_OK : free_after_waiting(vmm, run, block, stream);
}

ga_status ga_vmm_free_on(ga_vmm *vmm, const void *block, ga_stream stream)
{
    lock_and_read_clock(vmm);
    ga_vmm_run *run = find_run(vmm, block);
    ga_status status = run ? check_driver(vmm) : no_block(block);
    if (status == GA_OK) {
        status = free_block_on(vmm, run, block, stream);
    }
    return finish_and_unlock(vmm, status);
}

/* ---- extending --------------------------------------------------------------------------- */

static ga_status grow(ga_vmm *vmm, const void *block, uint64_t size)
{
    ga_vmm_run *run = find_run(vmm, block);
    if (!run) {
        return no_block(block);
    }
    uint64_t before = bytes_of(run);
    if (size <= before) {
        return GA_OK;
    }
    if (run->sheet) {
        return ga_fail(GA_ERR_CANNOT_GROW, "%p: other blocks follow its %llu bytes", block,
                       (ull)before);
    }
    ga_status status = ga_vmm_pool_extend(&vmm->pool, run, ga_vmm_pool_round_up(&vmm->pool, size));
    vmm->live_bytes += run->size - before;
    return status;
}

ga_status ga_vmm_grow(ga_vmm *vmm, const void *block, uint64_t size)
{
    lock_and_read_clock(vmm);
    ga_status status = check_size(vmm, size, 0);
    if (status == GA_OK) {
        status = check_driver(vmm);
    }
    if (status == GA_OK) {
        do {
            status = grow(vmm, block, size);
        } while (status == GA_ERR_MEMORY && wait_for_memory(vmm));
    }
    return finish_and_unlock(vmm, status);
}

/* ---- shrinking --------------------------------------------------------------------------- */

static void shrink(ga_vmm *vmm, ga_vmm_run *run, uint64_t size)
{
    size = ga_vmm_pool_round_up(&vmm->pool, size);
    if (!run->sheet && size < run->size) {
        vmm->live_bytes -= ga_vmm_pool_shrink(&vmm->pool, run, size);
    }
}

ga_status ga_vmm_shrink(ga_vmm *vmm, const void *block, uint64_t size)
{
    lock_and_read_clock(vmm);
    ga_vmm_run *run = find_run(vmm, block);
    ga_status status = run ? check_driver(vmm) : no_block(block);
    if (status == GA_OK) {
        shrink(vmm, run, size);
    }
    return finish_and_unlock(vmm, status);
}

/* ---- all of them ------------------------------------------------------------------------- */

/* Wait for the fences that are pending now. Other threads may free blocks during the wait. */
static void wait_for_streams(ga_vmm *vmm)
{
    size_t count = ga_vmm_fences_count(&vmm->pool.fences);
    while (count-- && wait_for_oldest_stream(vmm)) {
    }
}

ga_status ga_vmm_trim(ga_vmm *vmm, uint64_t keep)
{
    lock_and_read_clock(vmm);
    ga_status status = check_driver(vmm);
    if (status == GA_OK) {
        wait_for_streams(vmm);
        /* Those whose streams were already known to be done. */
        ga_vmm_packed_collect(&vmm->packed);
        ga_vmm_pool_trim(&vmm->pool, keep);
    }
    unlock(vmm);
    return status;
}

void ga_vmm_decay(ga_vmm *vmm)
{
    lock_and_read_clock(vmm);
    bool is_due = !vmm->lost && vmm->pool.now - vmm->decayed_at >= vmm->decay_period;
    if (is_due) {
        decay(vmm);
    }
    unlock(vmm);
}

ga_status ga_vmm_allow(ga_vmm *vmm, int peer)
{
    lock(vmm);
    ga_status status = check_driver(vmm);
    if (status == GA_OK) {
        status = ga_vmm_chunks_allow(&vmm->pool, peer);
    }
    status = status ? status : ga_vmm_growing_allow(vmm, peer);
    unlock(vmm);
    return status;
}

void ga_vmm_reset(ga_vmm *vmm)
{
    lock_and_read_clock(vmm);
    ga_vmm_packed_reset(&vmm->packed);
    while (!ga_vmm_list_empty(&vmm->pool.live_runs)) {
        ga_vmm_run *run = GA_VMM_OF(vmm->pool.live_runs.after, ga_vmm_run, link);
        ga_vmm_pool_free(&vmm->pool, run, NULL);
    }
    vmm->live_bytes = vmm->live_blocks = 0;
    finish_and_unlock(vmm, GA_OK);
}

typedef struct listing {
    size_t count;
    struct {
        void *block;
        size_t size;
    } blocks[];
} listing;

static void list_one(void *context, void *block, size_t size)
{
    listing *list = context;
    list->blocks[list->count].block = block;
    list->blocks[list->count++].size = size;
}

static listing *list_all(ga_vmm *vmm)
{
    ga_vmm_link *live_runs = &vmm->pool.live_runs;
    listing *list = ga_libc.malloc(sizeof *list + vmm->live_blocks * sizeof *list->blocks);
    if (!list) {
        return NULL;
    }
    list->count = 0;
    for (ga_vmm_link *l = live_runs->after; l != live_runs; l = l->after) {
        const ga_vmm_run *run = GA_VMM_OF(l, ga_vmm_run, link);
        if (run->sheet) {
            ga_vmm_sheet_each(run->sheet, list_one, list);
        } else {
            list_one(list, (void *)run->base, run->size);
        }
    }
    return list;
}

ga_status ga_vmm_each_live(ga_vmm *vmm, ga_visit *visit, void *context)
{
    lock(vmm);
    listing *list = list_all(vmm);
    unlock(vmm);
    if (!list) {
        return ga_fail(GA_ERR_MEMORY, "no memory for a list of the live blocks");
    }
    for (size_t i = 0; i < list->count; i++) {
        visit(context, list->blocks[i].block, list->blocks[i].size);
    }
    ga_libc.free(list);
    return GA_OK;
}
