/* SPDX-License-Identifier: MIT */
#include "libnccl.h"

#include "../../../liballoc/platform/cuda_types.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT                              __attribute__((visibility("default")))
#define DECLARE(member, symbol, parameters) EXPORT int symbol parameters;
#define NAME(member, symbol, parameters)    #symbol,
#define INDEX(member, symbol, parameters)   AT_##symbol,

NCCL_FUNCTIONS(DECLARE)

enum {
    NCCL_FUNCTIONS(INDEX) FUNCTIONS,
    PAGE = 4096
};

/* The driver's, by the linker. */
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags which);
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemAddressReserve(CUdeviceptr *base, size_t size, size_t align, CUdeviceptr at,
                             unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr base, size_t size);
CUresult cuMemMap(CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr at, size_t size);
CUresult cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc *access, size_t count);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr at);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *at);

static const char *const names[] = {NCCL_FUNCTIONS(NAME)};
static int calls[FUNCTIONS], planned[FUNCTIONS];

EXPORT nccl_stand_in_fail_fn nccl_stand_in_fail;
EXPORT nccl_stand_in_calls_fn nccl_stand_in_calls;
EXPORT nccl_stand_in_block_fn nccl_stand_in_block;
EXPORT nccl_stand_in_proceed_fn nccl_stand_in_proceed;
EXPORT nccl_stand_in_during_fn nccl_stand_in_during;

static int index_of(const char *symbol)
{
    int i = 0;
    while (i < FUNCTIONS && strcmp(names[i], symbol) != 0) {
        i++;
    }
    return i < FUNCTIONS ? i : (abort(), -1);
}

/* Results are stored with 1 added: 0 plans nothing. */
void nccl_stand_in_fail(const char *symbol, int result)
{
    planned[index_of(symbol)] = result + 1;
}

int nccl_stand_in_calls(const char *symbol)
{
    return __atomic_load_n(&calls[index_of(symbol)], __ATOMIC_RELAXED);
}

/* Count a call. True: it is to return *result. */
static bool is_planned(int at, int *result)
{
    __atomic_fetch_add(&calls[at], 1, __ATOMIC_RELAXED);
    int plan = __atomic_exchange_n(&planned[at], 0, __ATOMIC_RELAXED);
    *result = plan - 1;
    return plan != 0;
}

static void (*during[FUNCTIONS])(void);

void nccl_stand_in_during(const char *symbol, void (*call)(void))
{
    during[index_of(symbol)] = call;
}

static void call_during(int at)
{
    void (*call)(void) = during[at];
    during[at] = NULL;
    if (call) {
        call();
    }
}

#define ARRIVE(symbol)                                                                             \
    int result_;                                                                                   \
    if (is_planned(AT_##symbol, &result_)) {                                                       \
        return result_;                                                                            \
    }

/* ---- memory ------------------------------------------------------------------------------ */

static bool make(CUdeviceptr *at, size_t size, int device)
{
    size_t granule = 0;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
        return false;
    }
    size = (size + granule - 1) / granule * granule;
    if (cuMemCreate(&handle, size, &prop, 0)) {
        return false;
    }
    bool made = !cuMemAddressReserve(at, size, granule, 0, 0) &&
                !cuMemMap(*at, size, 0, handle, 0) && !cuMemSetAccess(*at, size, &access, 1);
    cuMemRelease(handle);
    return made;
}

int ncclMemAlloc(void **block, size_t size)
{
    ARRIVE(ncclMemAlloc)
    CUdevice device;
    CUdeviceptr at = 0;
    bool made = block && size && !cuCtxGetDevice(&device) && make(&at, size, device);
    if (made) {
        *block = (void *)(uintptr_t)at;
    }
    return made ? NCCL_SUCCESS : NCCL_CUDA_ERROR;
}

int ncclMemFree(void *block)
{
    ARRIVE(ncclMemFree)
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)block;
    size_t size;
    bool freed = !cuMemRetainAllocationHandle(&handle, block) && !cuMemRelease(handle) &&
                 !cuMemGetAddressRange_v2(NULL, &size, at) && !cuMemUnmap(at, size) &&
                 !cuMemAddressFree(at, size);
    return freed ? NCCL_SUCCESS : NCCL_CUDA_ERROR;
}

/* ---- registrations ----------------------------------------------------------------------- */

/* A range, whose memory is retained if the driver allows it. */
typedef struct slot {
    const void *comm;
    uintptr_t start, end;
    CUmemGenericAllocationHandle memory; /* 0: none */
    unsigned uses;
    struct slot *next;
} slot;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static slot *slots;

static CUmemGenericAllocationHandle retain(void *start)
{
    CUdeviceptr base;
    CUmemGenericAllocationHandle memory;
    bool known = !cuMemGetAddressRange_v2(&base, NULL, (CUdeviceptr)(uintptr_t)start) &&
                 !cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)base);
    return known ? memory : 0;
}

static slot *add(const void *comm, void *start, size_t size)
{
    slot *made = calloc(1, sizeof *made);
    *made = (slot){.comm = comm,
                   .start = (uintptr_t)start / PAGE * PAGE,
                   .end = ((uintptr_t)start + size + PAGE - 1) / PAGE * PAGE,
                   .memory = retain(start),
                   .uses = 1,
                   .next = slots};
    slots = made;
    return made;
}

static void end(slot **at)
{
    slot *gone = *at;
    *at = gone->next;
    if (gone->memory) {
        cuMemRelease(gone->memory);
    }
    free(gone);
}

/* A part of a range that is registered is another use of it. */
int ncclCommRegister(const void *comm, void *start, size_t size, void **handle)
{
    call_during(AT_ncclCommRegister);
    ARRIVE(ncclCommRegister)
    uintptr_t at = (uintptr_t)start;
    pthread_mutex_lock(&lock);
    slot *found = slots;
    while (found && (found->comm != comm || at < found->start || at + size > found->end)) {
        found = found->next;
    }
    if (found) {
        found->uses++;
    } else {
        found = add(comm, start, size);
    }
    *handle = found;
    pthread_mutex_unlock(&lock);
    return NCCL_SUCCESS;
}

static int end_handle(const void *comm, const void *handle)
{
    pthread_mutex_lock(&lock);
    slot **at = &slots;
    while (*at && (*at != handle || (*at)->comm != comm)) {
        at = &(*at)->next;
    }
    bool found = *at != NULL;
    if (found && --(*at)->uses == 0) {
        end(at);
    }
    pthread_mutex_unlock(&lock);
    return found ? NCCL_SUCCESS : NCCL_INVALID_USAGE;
}

int ncclCommDeregister(const void *comm, void *handle)
{
    ARRIVE(ncclCommDeregister)
    return handle ? end_handle(comm, handle) : NCCL_SUCCESS;
}

static void end_all(const void *comm)
{
    pthread_mutex_lock(&lock);
    for (slot **at = &slots; *at;) {
        if ((*at)->comm == comm) {
            end(at);
        } else {
            at = &(*at)->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* ---- groups, and what they do when they end ---------------------------------------------- */

/* A window to be registered, or without one a communicator to be destroyed. */
typedef struct task {
    void *comm, *start, **window;
    size_t size;
    struct task *next;
} task;

static _Thread_local task *tasks;
static _Thread_local unsigned depth;

static bool is_nonblocking;
static task *later; /* of communicators that do not block */
static int state;   /* of these */

static int make_window(const task *t)
{
#ifdef NCCL_STAND_IN_OLD
    (void)t;
    return NCCL_INVALID_USAGE;
#else
    pthread_mutex_lock(&lock);
    slot *made = add(t->comm, t->start, t->size);
    bool retained = made->memory != 0;
    if (!retained) {
        end(&slots);
    }
    pthread_mutex_unlock(&lock);
    *t->window = retained ? made : NULL;
    return retained ? NCCL_SUCCESS : NCCL_CUDA_ERROR;
#endif
}

static int carry_out(const task *t)
{
    if (t->window) {
        return make_window(t);
    }
    end_all(t->comm);
    return NCCL_SUCCESS;
}

/* All of a list, in reverse; none of it, if `failed` is an error. Returns the first error. */
static int carry_out_all(task **list, int failed)
{
    int result = failed;
    while (*list) {
        task *t = *list;
        *list = t->next;
        int done = failed ? failed : carry_out(t);
        result = result ? result : done;
        free(t);
    }
    return result;
}

/* A group with a communicator that is destroyed blocks. */
static bool group_blocks(void)
{
    bool destroys = false;
    for (const task *t = tasks; t; t = t->next) {
        destroys = destroys || !t->window;
    }
    return !is_nonblocking || !tasks || destroys;
}

static int end_group(int failed)
{
    depth -= depth > 0;
    if (depth) {
        return failed;
    }
    if (failed || group_blocks()) {
        return carry_out_all(&tasks, failed);
    }
    later = tasks;
    tasks = NULL;
    state = NCCL_IN_PROGRESS;
    return NCCL_IN_PROGRESS;
}

/* Each call is a group of its own, unless it is in one. */
static int enqueue(const task *now)
{
    tasks = malloc(sizeof *tasks);
    *tasks = *now;
    depth++;
    int result = end_group(NCCL_SUCCESS);
    return result == NCCL_IN_PROGRESS ? NCCL_SUCCESS : result;
}

void nccl_stand_in_block(int blocks)
{
    is_nonblocking = !blocks;
}

void nccl_stand_in_proceed(int result)
{
    state = carry_out_all(&later, result);
}

int ncclCommGetAsyncError(void *comm, int *error)
{
    ARRIVE(ncclCommGetAsyncError)
    *error = comm ? state : NCCL_INVALID_ARGUMENT;
    call_during(AT_ncclCommGetAsyncError);
    return NCCL_SUCCESS;
}

int ncclGroupStart(void)
{
    ARRIVE(ncclGroupStart)
    depth++;
    return NCCL_SUCCESS;
}

int ncclGroupEnd(void)
{
    int result = NCCL_SUCCESS;
    return end_group(is_planned(AT_ncclGroupEnd, &result) ? result : NCCL_SUCCESS);
}

int ncclGroupSimulateEnd(void *info)
{
    int result = NCCL_SUCCESS;
    (void)info;
    return end_group(is_planned(AT_ncclGroupSimulateEnd, &result) ? result : NCCL_SUCCESS);
}

/* ---- communicators, and windows ---------------------------------------------------------- */

static int destroy(void *comm)
{
    task now = {.comm = comm, .next = tasks};
    return state == NCCL_IN_PROGRESS ? NCCL_INVALID_ARGUMENT : enqueue(&now);
}

int ncclCommDestroy(void *comm)
{
    ARRIVE(ncclCommDestroy)
    return destroy(comm);
}

int ncclCommAbort(void *comm)
{
    ARRIVE(ncclCommAbort)
    return destroy(comm);
}

#ifndef NCCL_STAND_IN_OLD
int ncclCommWindowRegister(void *comm, void *start, size_t size, void **window, int flags)
{
    (void)flags;
    call_during(AT_ncclCommWindowRegister);
    ARRIVE(ncclCommWindowRegister)
    if (!window) {
        return NCCL_INVALID_ARGUMENT;
    }
    task now = {.comm = comm, .start = start, .window = window, .size = size, .next = tasks};
    *window = NULL;
    return enqueue(&now);
}

int ncclCommWindowDeregister(void *comm, void *window)
{
    ARRIVE(ncclCommWindowDeregister)
    return window ? end_handle(comm, window) : NCCL_SUCCESS;
}
#endif
