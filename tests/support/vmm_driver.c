/* SPDX-License-Identifier: MIT
 *
 * Starting and stopping, calls that fail, devices and contexts.
 */
#include "vmm_state.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h> /* memfd_create */
#include <unistd.h>

vmm_state vmm;

void vmm_require(bool condition, const char *text, const char *function)
{
    if (!condition) {
        fprintf(stderr, "vmm_driver: %s: expected %s\n", function, text);
        abort();
    }
}

/* ---- calls, and those that fail ---------------------------------------------------------- */

#define NAME(name, symbol, parameters) #name,

static const char *const names[] = {GA_CUDA_FUNCTIONS(NAME)};

static struct {
    pthread_mutex_t lock;
    uint64_t calls[VMM_FUNCTIONS], all;
    int planned;         /* the function, or -1 for any */
    uint64_t left, more; /* calls of it until it fails; how many more then do */
    CUresult error;
    bool has_failed, shut_down;
} traffic = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int index_of(const char *name)
{
    for (int i = 0; i < VMM_FUNCTIONS; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    fprintf(stderr, "vmm_driver: no function %s\n", name);
    abort();
}

/* Returns true if the plan of failures includes this call. */
static bool is_planned(vmm_function function)
{
    if (!traffic.left || (traffic.planned >= 0 && traffic.planned != (int)function)) {
        return false;
    }
    if (traffic.left > 1) {
        traffic.left--;
        return false;
    }
    traffic.has_failed = true;
    traffic.left = traffic.more ? 1 : 0;
    traffic.more -= traffic.more ? 1 : 0;
    return true;
}

CUresult vmm_arrive(vmm_function function)
{
    pthread_mutex_lock(&traffic.lock);
    traffic.calls[function]++;
    traffic.all++;
    if (traffic.shut_down) {
        return CUDA_ERROR_DEINITIALIZED;
    }
    return is_planned(function) ? traffic.error : CUDA_SUCCESS;
}

void vmm_lock(void)
{
    pthread_mutex_lock(&traffic.lock);
}

void vmm_unlock(const int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&traffic.lock);
}

uint64_t vmm_driver_calls(const char *name)
{
    vmm_lock();
    uint64_t calls = name ? traffic.calls[index_of(name)] : traffic.all;
    vmm_unlock(NULL);
    return calls;
}

void vmm_driver_fail_many(const char *name, uint64_t n, uint64_t more, CUresult error)
{
    vmm_lock();
    traffic.planned = name ? index_of(name) : -1;
    traffic.left = n;
    traffic.more = more;
    traffic.error = error;
    traffic.has_failed = false;
    vmm_unlock(NULL);
}

void vmm_driver_fail(const char *name, uint64_t n, CUresult error)
{
    vmm_driver_fail_many(name, n, 0, error);
}

bool vmm_driver_has_failed(void)
{
    vmm_lock();
    bool has_failed = traffic.has_failed;
    vmm_unlock(NULL);
    return has_failed;
}

void vmm_driver_shut_down(void)
{
    vmm_lock();
    traffic.shut_down = true;
    vmm_unlock(NULL);
}

/* ---- errors ------------------------------------------------------------------------------ */

#define ERROR(name)                                                                                \
    {                                                                                              \
        name, #name                                                                                \
    }

static const struct {
    CUresult error;
    const char *name;
} errors[] = {
    ERROR(CUDA_SUCCESS),
    ERROR(CUDA_ERROR_INVALID_VALUE),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY),
    ERROR(CUDA_ERROR_DEINITIALIZED),
    ERROR(CUDA_ERROR_NO_DEVICE),
    ERROR(CUDA_ERROR_INVALID_DEVICE),
    ERROR(CUDA_ERROR_INVALID_CONTEXT),
    ERROR(CUDA_ERROR_INVALID_HANDLE),
    ERROR(CUDA_ERROR_NOT_READY),
    ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED),
    ERROR(CUDA_ERROR_NOT_PERMITTED),
    ERROR(CUDA_ERROR_NOT_SUPPORTED),
};

static CUresult error_name(CUresult error, const char **name)
{
    *name = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].error == error) {
            *name = errors[i].name;
        }
    }
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult error_string(CUresult error, const char **text)
{
    (void)error;
    *text = "says the stand-in";
    return CUDA_SUCCESS;
}

/* ---- devices and contexts ---------------------------------------------------------------- */

enum {
    DEPTH = 16 /* contexts pushed by one thread */
};

static _Thread_local struct {
    CUcontext stack[DEPTH];
    int depth;
} contexts;

/* An address for each context that a device has had: earlier ones are invalid. */
static CUcontext context_of(int device)
{
    VMM_REQUIRE(vmm.devices[device].generation < sizeof(vmm_device));
    return (CUcontext)(void *)((char *)&vmm.devices[device] + vmm.devices[device].generation);
}

static int device_of(CUcontext context)
{
    for (int i = 0; i < vmm.options.devices; i++) {
        if ((uintptr_t)context - (uintptr_t)&vmm.devices[i] < sizeof(vmm_device)) {
            return i;
        }
    }
    return -1;
}

static bool is_gone(CUcontext context)
{
    int device = device_of(context);
    return vmm.devices[device].destroyed || context != context_of(device);
}

int vmm_current_device(void)
{
    CUcontext context = contexts.depth ? contexts.stack[contexts.depth - 1] : NULL;
    return context && !is_gone(context) ? device_of(context) : -1;
}

bool vmm_use(int device, size_t size)
{
    vmm_device *d = &vmm.devices[device];
    if (size > vmm.options.memory - d->used) {
        return false;
    }
    d->used += size;
    return true;
}

void vmm_driver_take(int device, size_t bytes)
{
    vmm_lock();
    vmm.devices[device].used -= vmm.devices[device].taken;
    VMM_REQUIRE(vmm_use(device, bytes));
    vmm.devices[device].taken = bytes;
    vmm_unlock(NULL);
}

void vmm_driver_destroy_context(int device)
{
    vmm_lock();
    vmm_blocks_unpin(device);
    vmm.devices[device].destroyed = true;
    vmm.devices[device].generation++;
    vmm_unlock(NULL);
}

static bool is_device(CUdevice device)
{
    return device >= 0 && device < vmm.options.devices;
}

static CUresult init(unsigned flags)
{
    VMM_CALL(cuInit)
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult driver_version(int *version)
{
    VMM_CALL(cuDriverGetVersion)
    *version = 13000;
    return CUDA_SUCCESS;
}

static CUresult device_count(int *count)
{
    VMM_CALL(cuDeviceGetCount)
    *count = vmm.options.devices;
    return CUDA_SUCCESS;
}

static CUresult device_get(CUdevice *device, int ordinal)
{
    VMM_CALL(cuDeviceGet)
    *device = ordinal;
    return is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult device_name(char *name, int size, CUdevice device)
{
    VMM_CALL(cuDeviceGetName)
    snprintf(name, (size_t)size, "stand-in %d", device);
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult device_uuid(CUuuid *uuid, CUdevice device)
{
    VMM_CALL(cuDeviceGetUuid)
    *uuid = (CUuuid){{'s', 'a', (char)(1 + vmm.options.hidden + device)}};
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult total_mem(size_t *bytes, CUdevice device)
{
    VMM_CALL(cuDeviceTotalMem)
    *bytes = vmm.options.memory;
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static int attribute_of(CUdevice_attribute attribute)
{
    const vmm_driver_options *o = &vmm.options;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return o->sm ? o->sm / 10 : 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return o->sm % 10;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
        return 1;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
        return !o->no_managed;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
        return !o->no_concurrent;
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
        return !o->no_cooperative;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return !o->no_vmm;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        return !o->no_fd;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
        return o->fabric;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        return o->rdma;
    default:
        return 0;
    }
}

static CUresult device_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    VMM_CALL(cuDeviceGetAttribute)
    *value = attribute_of(attribute);
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult can_access_peer(int *can, CUdevice device, CUdevice peer)
{
    VMM_CALL(cuDeviceCanAccessPeer)
    *can = device != peer && !vmm.options.no_peers;
    return is_device(device) && is_device(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult retain(CUcontext *context, CUdevice device)
{
    VMM_CALL(cuDevicePrimaryCtxRetain)
    if (!is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    vmm.devices[device].retained = true;
    vmm.devices[device].destroyed = false; /* a new one */
    *context = context_of(device);
    return CUDA_SUCCESS;
}

static CUresult release(CUdevice device)
{
    VMM_CALL(cuDevicePrimaryCtxRelease)
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult push(CUcontext context)
{
    VMM_CALL(cuCtxPushCurrent)
    if (device_of(context) < 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (is_gone(context)) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    VMM_REQUIRE(contexts.depth < DEPTH);
    contexts.stack[contexts.depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context)
{
    if (!contexts.depth) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *context = contexts.stack[--contexts.depth];
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *context)
{
    VMM_CALL(cuCtxGetCurrent)
    int device = vmm_current_device();
    *context = device >= 0 ? context_of(device) : NULL;
    return CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
    VMM_CALL(cuCtxSynchronize)
    int device = vmm_current_device();
    if (device < 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    vmm_finish(device);
    return CUDA_SUCCESS;
}

static CUresult mem_info(size_t *available, size_t *total)
{
    VMM_CALL(cuMemGetInfo)
    int device = vmm_current_device();
    if (device < 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (total) { /* either may be left out */
        *total = vmm.options.memory;
    }
    if (available) {
        *available = vmm.options.memory - vmm.devices[device].used;
    }
    return CUDA_SUCCESS;
}

/* ---- the table --------------------------------------------------------------------------- */

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define REFUSE(name, symbol, parameters)                                                           \
    static CUresult refuse_##name parameters                                                       \
    {                                                                                              \
        VMM_CALL(name)                                                                             \
        return CUDA_ERROR_NOT_SUPPORTED;                                                           \
    }

GA_CUDA_FUNCTIONS(REFUSE)

#pragma GCC diagnostic pop

#define MEMBER(name, symbol, parameters) .name = refuse_##name,

static void fill(ga_cuda_driver *table)
{
    *table = (ga_cuda_driver){GA_CUDA_FUNCTIONS(MEMBER)};
    table->cuInit = init;
    table->cuDriverGetVersion = driver_version;
    table->cuGetErrorName = error_name;
    table->cuGetErrorString = error_string;
    table->cuDeviceGetCount = device_count;
    table->cuDeviceGet = device_get;
    table->cuDeviceGetName = device_name;
    table->cuDeviceGetUuid = device_uuid;
    table->cuDeviceTotalMem = total_mem;
    table->cuDeviceGetAttribute = device_attribute;
    table->cuDeviceCanAccessPeer = can_access_peer;
    table->cuDevicePrimaryCtxRetain = retain;
    table->cuDevicePrimaryCtxRelease = release;
    table->cuCtxPushCurrent = push;
    table->cuCtxPopCurrent = pop;
    table->cuCtxGetCurrent = get_current;
    table->cuCtxSynchronize = synchronize;
    table->cuMemGetInfo = mem_info;
    vmm_memory_fill(table);
    vmm_work_fill(table);
    vmm_blocks_fill(table);
    vmm_kernels_fill(table);
}

static vmm_driver_options with_defaults(const vmm_driver_options *options)
{
    vmm_driver_options o = options ? *options : (vmm_driver_options){0};
    o.devices = o.devices ? o.devices : 1;
    o.memory = o.memory ? o.memory : (size_t)1 << 30;
    o.granularity = o.granularity ? o.granularity : (size_t)2 << 20;
    o.addresses = o.addresses ? o.addresses : (uint64_t)16 << 40;
    o.pinned = o.pinned ? o.pinned : (size_t)1 << 40;
    VMM_REQUIRE(o.devices <= VMM_DRIVER_DEVICES);
    return o;
}

static void empty(void)
{
    vmm_kernels_clear();
    vmm_memory_clear();
    vmm_work_clear();
    vmm_blocks_clear();
    for (int i = 0; i < vmm.options.devices; i++) {
        close(vmm.devices[i].file);
    }
    memset(&vmm, 0, sizeof vmm);
}

void vmm_driver_start(const vmm_driver_options *options)
{
    static ga_cuda_driver table;
    empty();
    vmm.options = with_defaults(options);
    for (int i = 0; i < vmm.options.devices; i++) {
        vmm.devices[i].file = memfd_create("vmm_driver", MFD_CLOEXEC);
        vmm.devices[i].null_stream = (vmm_stream){.device = i, .ours = true};
        VMM_REQUIRE(vmm.devices[i].file >= 0);
    }
    vmm_memory_begin();
    memset(traffic.calls, 0, sizeof traffic.calls);
    traffic.all = 0;
    traffic.left = 0;
    traffic.has_failed = traffic.shut_down = false;
    fill(&table);
    ga_cuda_driver_set(&table);
}

void vmm_driver_stop(void)
{
    ga_cuda_driver_set(NULL);
    empty();
}

/* ---- live objects ------------------------------------------------------------------------- */

static void count_memory(vmm_driver_counts *counts)
{
    for (const vmm_range *r = vmm.ranges; r; r = r->next) {
        counts->ranges++;
        counts->range_bytes += r->size;
        for (const vmm_mapping *m = r->mappings; m; m = m->next) {
            counts->mappings++;
            counts->mapped_bytes += m->size;
        }
    }
    for (const vmm_chunk *c = vmm.chunks; c; c = c->next) {
        counts->chunks++;
        counts->chunk_bytes += c->size;
        counts->handles += c->handles;
    }
    for (const vmm_block *b = vmm.blocks; b; b = b->next) {
        bool pinned = vmm_block_is_on_host(b);
        *(pinned ? &counts->pinned : &counts->blocks) += 1;
        *(pinned ? &counts->pinned_bytes : &counts->block_bytes) += b->size;
    }
}

vmm_driver_counts vmm_driver_count(void)
{
    vmm_driver_counts counts = {0};
    vmm_lock();
    count_memory(&counts);
    for (const vmm_stream *s = vmm.streams; s; s = s->next) {
        counts.streams += !s->ours;
    }
    for (const struct CUevent_st *e = vmm.events; e; e = e->next) {
        counts.events++;
    }
    counts.waits = vmm.waits;
    vmm_unlock(NULL);
    return counts;
}
