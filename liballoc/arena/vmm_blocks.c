/* SPDX-License-Identifier: MIT
 *
 * Blocks, taken and given.
 */
#include "vmm_blocks.h"

#include "../platform/libc.h"
#include "../platform/machine.h"
#include "vmm_chunks.h"
#include "vmm_purge.h"

#include <gpualloc/backend.h>

typedef unsigned long long ull; /* what %llu takes */

/* On the host, of one request: from here on /proc is read, which takes some 50 us. */
static const uint64_t ASKED_FROM = (uint64_t)1 << 30;

static void lock(ga_vmm *vmm)
{
    pthread_mutex_lock(&vmm->lock);
    ga_vmm_fences_new_round(&vmm->pool.fences);
}

/* For calls that free memory. Requests need the clock on their slow path alone. */
static void begin(ga_vmm *vmm)
{
    lock(vmm);
    ga_vmm_pool_look_at_clock(&vmm->pool);
}

static void unlock(ga_vmm *vmm)
{
    pthread_mutex_unlock(&vmm->lock);
}

/* Whether units that streams used may be more than cache= allows, once they are free. */
static bool rests_too_much(const ga_vmm *vmm)
{
    return vmm->packed.resting > vmm->pool.cache;
}

/* Units that rest are asked after as well, or those that were freed last would rest for ever. */
static void decay(ga_vmm *vmm)
{
    vmm->looked = vmm->pool.now;
    if (vmm->packed.resting) {
        ga_vmm_packed_settle(&vmm->packed);
    }
    ga_vmm_pool_decay(&vmm->pool);
}

/* Keep to cache= and decay= after blocks were taken or given. A call that has failed does without,
 * because its error is the thread's last. */
static ga_status finish(ga_vmm *vmm, ga_status status)
{
    if (status == GA_OK && !vmm->lost) {
        if (rests_too_much(vmm)) {
            ga_vmm_packed_settle_first(&vmm->packed);
        }
        ga_vmm_pool_bound(&vmm->pool);
        if (__builtin_expect(vmm->pool.now - vmm->looked >= vmm->period, 0)) {
            decay(vmm);
        }
    }
    unlock(vmm);
    return status;
}

/* ---- blocks by their addresses ------------------------------------------------------------- */

/* The run that the block is, or is a unit of; NULL where no live block begins there. */
static ga_vmm_run *find(const ga_vmm *vmm, const void *block)
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
    const ga_vmm_run *run = find(vmm, block);
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

/* ---- taking ------------------------------------------------------------------------------ */

static void count_in(ga_vmm *vmm, uint64_t bytes)
{
    vmm->live_bytes += bytes;
    vmm->live_blocks++;
}

static ga_status take(ga_vmm *vmm, uint64_t size, uint64_t align, const ga_stream *stream,
                      void **out)
{
    ga_vmm_run *run;
    uint64_t usable;
    ga_status status;
    if (ga_vmm_packed_serves(&vmm->packed, size, align)) {
        status = ga_vmm_packed_take(&vmm->packed, size, align, stream, out, &usable);
    } else {
        size = ga_vmm_pool_up(&vmm->pool, size);
        status = ga_vmm_pool_take(&vmm->pool, size, align, stream, &run);
        usable = status == GA_OK ? run->size : 0;
        *out = status == GA_OK ? (void *)run->base : NULL;
    }
    if (status == GA_OK) {
        count_in(vmm, usable);
    }
    return status;
}

/* Wait, without the lock, for whoever was to use freed memory first; what then is free is. False:
 * there was nobody, or waiting fails. */
static bool wait_for_a_stream(ga_vmm *vmm)
{
    CUevent event = ga_vmm_fences_oldest(&vmm->pool.fences);
    if (!event) {
        return false;
    }
    unlock(vmm);
    ga_status status = ga_vmm_fences_wait(vmm->pool.space.device, event);
    lock(vmm);
    ga_vmm_fences_look(&vmm->pool.fences);
    ga_vmm_packed_settle(&vmm->packed);
    return status == GA_OK;
}

/* Units that need not rest any longer, whose streams were seen to be done; or else a wait. */
static bool wait_for_memory(ga_vmm *vmm)
{
    return ga_vmm_packed_settle(&vmm->packed) || wait_for_a_stream(vmm);
}

/* A child of fork() has no driver, and is told so. */
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
    bool asks = !ga_vmm_on_device(vmm) && size >= ASKED_FROM;
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

ga_status ga_vmm_take(ga_vmm *vmm, uint64_t size, uint64_t align, const ga_stream *stream,
                      void **out)
{
    lock(vmm);
    ga_status status = check_size(vmm, size, align);
    if (status == GA_OK) {
        status = check_driver(vmm);
    }
    if (status == GA_OK) {
        do {
            status = take(vmm, size, align, stream, out);
        } while (status == GA_ERR_MEMORY && wait_for_memory(vmm));
    }
    return finish(vmm, status);
}

/* ---- giving ------------------------------------------------------------------------------ */

/* A live block. With a fence, GA_ERR_MEMORY where there is no memory to note it. */
static ga_status give(ga_vmm *vmm, ga_vmm_run *run, const void *block, ga_vmm_fence *fence)
{
    uint64_t bytes = bytes_of(run);
    if (run->sheet) {
        ga_status status = ga_vmm_packed_give(&vmm->packed, run->sheet, block, fence);
        if (status != GA_OK) {
            return status;
        }
    } else {
        ga_vmm_pool_give(&vmm->pool, run, fence);
    }
    vmm->live_bytes -= bytes;
    vmm->live_blocks--;
    return GA_OK;
}

ga_status ga_vmm_give(ga_vmm *vmm, const void *block)
{
    begin(vmm);
    ga_vmm_run *run = find(vmm, block);
    ga_status status = run ? check_driver(vmm) : no_block(block);
    if (status == GA_OK) {
        status = give(vmm, run, block, NULL);
    }
    return finish(vmm, status);
}

/* Where there is no event, or no memory to note what it is for: wait for the stream. */
static ga_status give_after_waiting(ga_vmm *vmm, ga_vmm_run *run, const void *block,
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
    return status == GA_OK ? give(vmm, run, block, NULL) : status;
}

static ga_status give_on(ga_vmm *vmm, ga_vmm_run *run, const void *block, ga_stream stream)
{
    ga_vmm_fence *fence;
    ga_status status = ga_vmm_fence_put(&vmm->pool.fences, stream, &fence);
    if (status == GA_OK) {
        status = give(vmm, run, block, fence);
        if (status != GA_OK) {
            ga_vmm_fence_drop(&vmm->pool.fences, fence, 0);
        }
    }
    return status == GA_OK ? GA_OK : give_after_waiting(vmm, run, block, stream);
}

ga_status ga_vmm_give_on(ga_vmm *vmm, const void *block, ga_stream stream)
{
    begin(vmm);
    ga_vmm_run *run = find(vmm, block);
    ga_status status = run ? check_driver(vmm) : no_block(block);
    if (status == GA_OK) {
        status = give_on(vmm, run, block, stream);
    }
    return finish(vmm, status);
}

/* ---- growing ----------------------------------------------------------------------------- */

static ga_status grow(ga_vmm *vmm, const void *block, uint64_t size)
{
    ga_vmm_run *run = find(vmm, block);
    if (!run) {
        return no_block(block);
    }
    uint64_t before = bytes_of(run);
    if (size <= before) {
        return GA_OK;
    }
    if (run->sheet) {
        return ga_fail(GA_ERR_NO_ROOM, "%p: others stand behind its %llu bytes", block,
                       (ull)before);
    }
    ga_status status = ga_vmm_pool_extend(&vmm->pool, run, ga_vmm_pool_up(&vmm->pool, size));
    vmm->live_bytes += run->size - before;
    return status;
}

ga_status ga_vmm_grow(ga_vmm *vmm, const void *block, uint64_t size)
{
    begin(vmm);
    ga_status status = check_size(vmm, size, 0);
    if (status == GA_OK) {
        status = check_driver(vmm);
    }
    if (status == GA_OK) {
        do {
            status = grow(vmm, block, size);
        } while (status == GA_ERR_MEMORY && wait_for_memory(vmm));
    }
    return finish(vmm, status);
}

/* ---- shrinking --------------------------------------------------------------------------- */

static void shrink(ga_vmm *vmm, ga_vmm_run *run, uint64_t size)
{
    size = ga_vmm_pool_up(&vmm->pool, size);
    if (!run->sheet && size < run->size) {
        vmm->live_bytes -= ga_vmm_pool_shrink(&vmm->pool, run, size);
    }
}

ga_status ga_vmm_shrink(ga_vmm *vmm, const void *block, uint64_t size)
{
    begin(vmm);
    ga_vmm_run *run = find(vmm, block);
    ga_status status = run ? check_driver(vmm) : no_block(block);
    if (status == GA_OK) {
        shrink(vmm, run, size);
    }
    return finish(vmm, status);
}

/* ---- all of them ------------------------------------------------------------------------- */

/* For those that are waited for now; others may go on freeing meanwhile. */
static void wait_for_streams(ga_vmm *vmm)
{
    size_t count = ga_vmm_fences_count(&vmm->pool.fences);
    while (count-- && wait_for_a_stream(vmm)) {
    }
}

ga_status ga_vmm_trim(ga_vmm *vmm, uint64_t keep)
{
    begin(vmm);
    ga_status status = check_driver(vmm);
    if (status == GA_OK) {
        wait_for_streams(vmm);
        ga_vmm_packed_settle(&vmm->packed); /* those whose streams were seen to be done before */
        ga_vmm_pool_trim(&vmm->pool, keep);
    }
    unlock(vmm);
    return status;
}

void ga_vmm_decay(ga_vmm *vmm)
{
    begin(vmm);
    bool looks = !vmm->lost && vmm->pool.now - vmm->looked >= vmm->period;
    if (looks) {
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
    unlock(vmm);
    return status;
}

void ga_vmm_reset(ga_vmm *vmm)
{
    begin(vmm);
    ga_vmm_packed_reset(&vmm->packed);
    while (!ga_vmm_list_empty(&vmm->pool.lives)) {
        ga_vmm_run *run = GA_VMM_OF(vmm->pool.lives.after, ga_vmm_run, link);
        ga_vmm_pool_give(&vmm->pool, run, NULL);
    }
    vmm->live_bytes = vmm->live_blocks = 0;
    finish(vmm, GA_OK);
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
    ga_vmm_link *lives = &vmm->pool.lives;
    listing *list = ga_libc.malloc(sizeof *list + vmm->live_blocks * sizeof *list->blocks);
    if (!list) {
        return NULL;
    }
    list->count = 0;
    for (ga_vmm_link *l = lives->after; l != lives; l = l->after) {
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
