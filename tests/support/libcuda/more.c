/* SPDX-License-Identifier: MIT
 *
 * What vmm_driver has not: finding functions, contexts that are not the device's own, pools,
 * captures, and what else the driver is asked by programs and by the preload.
 */
#include "libcuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* functions of one form, in a table */

#define WORDS                                                                                      \
    stand_in_word a, stand_in_word b, stand_in_word c, stand_in_word d, stand_in_word e,           \
        stand_in_word f

enum {
    NOT_FOUND = 500,
    ILLEGAL_STATE = 401,
    CAPTURE_UNSUPPORTED = 900,
    MODE_RELAXED = 2
};

/* ---- beginning ----------------------------------------------------------------------------- */

ga_cuda_driver stand_in_table;
static pid_t starter; /* who called cuInit(); 0: nobody. Relaxed, as all words here: one alone */
static bool shut_down;

/* vmm_driver puts its table here instead of into a runtime of ours. */
void ga_cuda_driver_set(const ga_cuda_driver *driver)
{
    stand_in_table = driver ? *driver : (ga_cuda_driver){0};
}

/* Kernels of the library's are not run here. */
void vmm_kernels_fill(ga_cuda_driver *table);
void vmm_kernels_clear(void);
void vmm_kernels_wait(void);

void vmm_kernels_fill(ga_cuda_driver *table)
{
    (void)table;
}

void vmm_kernels_clear(void)
{
}

void vmm_kernels_wait(void)
{
}

static uint64_t number_in(const char *variable)
{
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, 10) : 0;
}

static void begin(void)
{
    vmm_driver_options options = {.devices = (int)number_in("STAND_IN_DEVICES"),
                                  .memory = number_in("STAND_IN_MEMORY")};
    vmm_driver_start(&options);
}

CUresult stand_in_arrive(bool needs_init)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
    if (__atomic_load_n(&shut_down, __ATOMIC_RELAXED)) {
        return CUDA_ERROR_DEINITIALIZED;
    }
    pid_t who = __atomic_load_n(&starter, __ATOMIC_RELAXED);
    return needs_init && who != getpid() ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

STAND_IN_API CUresult cuInit(unsigned flags);

CUresult cuInit(unsigned flags)
{
    CUresult refusal = stand_in_arrive(false);
    pid_t before = 0;
    if (!__atomic_compare_exchange_n(&starter, &before, getpid(), false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED) &&
        before != getpid()) {
        return CUDA_ERROR_NOT_INITIALIZED; /* it does not outlive fork() */
    }
    return refusal == CUDA_SUCCESS ? stand_in_table.cuInit(flags) : refusal;
}

vmm_driver_counts stand_in_count(void)
{
    return vmm_driver_count();
}

bool stand_in_accessible(const void *start, size_t size, unsigned bits)
{
    return vmm_driver_accessible(start, size, bits);
}

void stand_in_hold(CUstream stream)
{
    vmm_driver_hold(stream);
}

void stand_in_let_go(CUstream stream)
{
    vmm_driver_let_go(stream);
}

void stand_in_shut_down(void)
{
    __atomic_store_n(&shut_down, true, __ATOMIC_RELAXED);
}

/* ---- contexts ------------------------------------------------------------------------------ */

/* A context that is not the device's own: what is asked of it is asked of the device's. `over` is
 * where in the thread's stack it stands. */
static _Thread_local struct {
    CUcontext other;
    int depth, over;
} stack;

static char others[VMM_DRIVER_DEVICES]; /* an address for each */

STAND_IN_API CUresult cuCtxPushCurrent_v2(CUcontext context);
STAND_IN_API CUresult cuCtxPopCurrent_v2(CUcontext *context);
STAND_IN_API CUresult cuCtxGetCurrent(CUcontext *context);
STAND_IN_API CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
STAND_IN_API CUresult cuCtxGetDevice(CUdevice *device);
STAND_IN_API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = stand_in_arrive(true);
    result = result == CUDA_SUCCESS ? stand_in_table.cuCtxPushCurrent(context) : result;
    stack.depth += result == CUDA_SUCCESS;
    return result;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUresult result = stand_in_arrive(true);
    result = result == CUDA_SUCCESS ? stand_in_table.cuCtxPopCurrent(context) : result;
    stack.depth -= result == CUDA_SUCCESS;
    if (stack.other && stack.depth < stack.over) {
        stack.other = NULL;
    }
    return result;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = stand_in_arrive(true);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (stack.other && stack.depth == stack.over) {
        *context = stack.other;
        return CUDA_SUCCESS;
    }
    return stand_in_table.cuCtxGetCurrent(context);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    CUcontext own;
    CUresult result = stand_in_arrive(true);
    result =
        result == CUDA_SUCCESS ? stand_in_table.cuDevicePrimaryCtxRetain(&own, device) : result;
    result = result == CUDA_SUCCESS ? cuCtxPushCurrent_v2(own) : result;
    if (result == CUDA_SUCCESS) {
        stack.other = *context = (CUcontext)(void *)&others[device];
        stack.over = stack.depth;
    }
    return result;
}

static CUcontext own_context(CUdevice device)
{
    CUcontext own = NULL;
    stand_in_table.cuDevicePrimaryCtxRetain(&own, device);
    stand_in_table.cuDevicePrimaryCtxRelease(device);
    return own;
}

static int device_count(void)
{
    int count = 0;
    stand_in_table.cuDeviceGetCount(&count);
    return count;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    CUcontext current = NULL;
    CUresult result = stand_in_arrive(true);
    result = result == CUDA_SUCCESS ? stand_in_table.cuCtxGetCurrent(&current) : result;
    for (*device = 0; result == CUDA_SUCCESS && current && *device < device_count(); ++*device) {
        if (own_context(*device) == current) {
            return CUDA_SUCCESS;
        }
    }
    return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_CONTEXT : result;
}

static int active[VMM_DRIVER_DEVICES]; /* somebody has used the device's own context */

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *is_active)
{
    CUresult result = stand_in_arrive(true);
    *flags = 0;
    *is_active = result == CUDA_SUCCESS && __atomic_load_n(&active[device], __ATOMIC_RELAXED);
    return result;
}

STAND_IN_API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result = stand_in_arrive(true);
    result =
        result == CUDA_SUCCESS ? stand_in_table.cuDevicePrimaryCtxRetain(context, device) : result;
    if (result == CUDA_SUCCESS) {
        __atomic_store_n(&active[device], 1, __ATOMIC_RELAXED);
    }
    return result;
}

static CUresult reset(WORDS)
{
    vmm_driver_destroy_context((CUdevice)a);
    __atomic_store_n(&active[a], 0, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

static CUresult done(WORDS)
{
    return CUDA_SUCCESS;
}

/* ---- captures ------------------------------------------------------------------------------ */

static struct {
    pthread_mutex_t lock;
    CUstream streams[STAND_IN_CAPTURES];
    int modes[STAND_IN_CAPTURES];
    int count;
    uint64_t violations, nodes;
} captures = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int capture_of(CUstream stream)
{
    for (int i = 0; i < captures.count; i++) {
        if (captures.streams[i] == stream) {
            return i;
        }
    }
    return -1;
}

static bool is_capturing(CUstream stream)
{
    pthread_mutex_lock(&captures.lock);
    bool capturing = capture_of(stream) >= 0;
    pthread_mutex_unlock(&captures.lock);
    return capturing;
}

CUresult stand_in_unsafe(bool always)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&captures.lock);
    for (int i = 0; i < captures.count; i++) {
        if (always || captures.modes[i] != MODE_RELAXED) {
            result = CAPTURE_UNSUPPORTED;
        }
    }
    captures.violations += result != CUDA_SUCCESS;
    pthread_mutex_unlock(&captures.lock);
    return result;
}

uint64_t stand_in_violations(void)
{
    return captures.violations;
}

uint64_t stand_in_nodes(void)
{
    return captures.nodes;
}

static CUresult begin_capture(CUstream stream, int mode)
{
    pthread_mutex_lock(&captures.lock);
    bool fits = captures.count < STAND_IN_CAPTURES && capture_of(stream) < 0;
    if (fits) {
        captures.streams[captures.count] = stream;
        captures.modes[captures.count++] = mode;
    }
    pthread_mutex_unlock(&captures.lock);
    return fits ? CUDA_SUCCESS : ILLEGAL_STATE;
}

static CUresult end_of(CUstream stream)
{
    pthread_mutex_lock(&captures.lock);
    int at = capture_of(stream);
    if (at >= 0) {
        captures.count--;
        captures.streams[at] = captures.streams[captures.count];
        captures.modes[at] = captures.modes[captures.count];
    }
    pthread_mutex_unlock(&captures.lock);
    return at >= 0 ? CUDA_SUCCESS : ILLEGAL_STATE;
}

static CUresult begin_v1(WORDS)
{
    return begin_capture((CUstream)a, 0);
}

static CUresult begin_v2(WORDS)
{
    return begin_capture((CUstream)a, (int)b);
}

static CUresult begin_to_graph(WORDS)
{
    return begin_capture((CUstream)a, (int)f);
}

static CUresult end_capture(WORDS)
{
    *(void **)b = NULL;
    return end_of((CUstream)a);
}

static CUresult stream_destroy(WORDS)
{
    end_of((CUstream)a);
    return stand_in_table.cuStreamDestroy((CUstream)a);
}

STAND_IN_API CUresult cuStreamIsCapturing(CUstream stream, int *status);
STAND_IN_API CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);
STAND_IN_API CUresult cuCtxSynchronize(void);
STAND_IN_API CUresult cuEventQuery(CUevent event);

CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    CUresult result = stand_in_arrive(true);
    *status = is_capturing(stream);
    return result;
}

/* All streams here are of the context that is current. */
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    return cuCtxGetCurrent(context);
}

CUresult cuCtxSynchronize(void)
{
    CUresult result = stand_in_arrive(true);
    result = result == CUDA_SUCCESS ? stand_in_unsafe(true) : result;
    return result == CUDA_SUCCESS ? stand_in_table.cuCtxSynchronize() : result;
}

CUresult cuEventQuery(CUevent event)
{
    CUresult result = stand_in_arrive(true);
    result = result == CUDA_SUCCESS ? stand_in_unsafe(false) : result;
    return result == CUDA_SUCCESS ? stand_in_table.cuEventQuery(event) : result;
}

/* ---- blocks, and pools --------------------------------------------------------------------- */

struct CUmemPoolHandle_st {
    int device;
    uint64_t used, reserved;
};

static struct CUmemPoolHandle_st default_pools[VMM_DRIVER_DEVICES];

/* A pool keeps what is freed, until it is trimmed or memory is short. */
typedef struct pooled {
    CUdeviceptr block;
    size_t size;
    CUmemoryPool pool;
    bool freed;
    struct pooled *next;
} pooled;

static pooled *all_pooled; /* under pool_lock */
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult mem_alloc(WORDS)
{
    CUresult result = stand_in_unsafe(false);
    return result == CUDA_SUCCESS ? stand_in_table.cuMemAlloc((CUdeviceptr *)a, b) : result;
}

static CUresult alloc_pitch(WORDS)
{
    if (e != 4 && e != 8 && e != 16) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *(size_t *)b = (c + 511) / 512 * 512;
    return mem_alloc(a, *(size_t *)b * d, 0, 0, 0, 0);
}

/* All under pool_lock. */
static pooled *find_pooled(CUdeviceptr block)
{
    pooled *p = all_pooled;
    while (p && (p->freed || p->block != block)) {
        p = p->next;
    }
    return p;
}

static pooled *find_freed(CUmemoryPool pool, size_t size)
{
    pooled *p = all_pooled;
    while (p && (!p->freed || p->pool != pool || p->size != size)) {
        p = p->next;
    }
    return p;
}

/* NULL: of all pools. */
static void trim(CUmemoryPool pool)
{
    for (pooled **at = &all_pooled; *at;) {
        pooled *p = *at;
        if (!p->freed || (pool && p->pool != pool)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        p->pool->reserved -= p->size;
        stand_in_table.cuMemFree(p->block);
        free(p);
    }
}

static CUresult add_pooled(size_t size, CUmemoryPool pool, pooled **out)
{
    CUdeviceptr block = 0;
    CUresult result = stand_in_table.cuMemAlloc(&block, size);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        trim(NULL);
        result = stand_in_table.cuMemAlloc(&block, size);
    }
    pooled *made = result == CUDA_SUCCESS ? malloc(sizeof *made) : NULL;
    if (!made) {
        return result;
    }
    *made = (pooled){block, size, pool, true, all_pooled};
    all_pooled = *out = made;
    pool->reserved += size;
    return CUDA_SUCCESS;
}

static CUresult from_pool(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream)
{
    bool node = is_capturing(stream);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&pool_lock);
    captures.nodes += node;
    pooled *p = find_freed(pool, size);
    if (!p) {
        result = add_pooled(size, pool, &p);
    }
    if (p && result == CUDA_SUCCESS) {
        p->freed = false;
        pool->used += size;
        *out = p->block;
    }
    pthread_mutex_unlock(&pool_lock);
    return result;
}

/* Of the current device; NULL: there is none. */
static CUmemoryPool default_pool(void)
{
    CUdevice device;
    return cuCtxGetDevice(&device) == CUDA_SUCCESS ? &default_pools[device] : NULL;
}

static CUresult alloc_async(WORDS)
{
    CUmemoryPool pool = default_pool();
    return pool ? from_pool((CUdeviceptr *)a, b, pool, (CUstream)c) : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult alloc_async_thread(WORDS)
{
    return alloc_async(a, b, c ? c : 2, d, e, f);
}

static CUresult alloc_from_pool(WORDS)
{
    return from_pool((CUdeviceptr *)a, b, (CUmemoryPool)c, (CUstream)d);
}

/* False: it is no block of a pool's. */
static bool free_pooled(CUdeviceptr block)
{
    pthread_mutex_lock(&pool_lock);
    pooled *found = find_pooled(block);
    if (found) {
        found->freed = true;
        found->pool->used -= found->size;
    }
    pthread_mutex_unlock(&pool_lock);
    return found != NULL;
}

static bool is_kept(CUdeviceptr block)
{
    pthread_mutex_lock(&pool_lock);
    const pooled *p = all_pooled;
    while (p && p->block != block) {
        p = p->next;
    }
    pthread_mutex_unlock(&pool_lock);
    return p != NULL;
}

static CUresult free_async(WORDS)
{
    return free_pooled(a) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult mem_free(WORDS)
{
    CUresult result = stand_in_unsafe(false);
    if (result == CUDA_SUCCESS && is_kept(a)) {
        stand_in_table.cuCtxSynchronize();
        return free_async(a, 0, 0, 0, 0, 0);
    }
    return result == CUDA_SUCCESS ? stand_in_table.cuMemFree(a) : result;
}

static CUresult pool_trim(WORDS)
{
    pthread_mutex_lock(&pool_lock);
    trim((CUmemoryPool)a);
    pthread_mutex_unlock(&pool_lock);
    return CUDA_SUCCESS;
}

static CUresult pool_create(WORDS)
{
    const CUmemPoolProps *props = (const CUmemPoolProps *)b;
    CUmemoryPool made = calloc(1, sizeof *made);
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->device = props->location.id;
    *(CUmemoryPool *)a = made;
    return CUDA_SUCCESS;
}

static CUresult pool_get(WORDS)
{
    pthread_mutex_lock(&pool_lock);
    const struct CUmemPoolHandle_st *pool = (CUmemoryPool)a;
    *(uint64_t *)c = b == CU_MEMPOOL_ATTR_USED_MEM_CURRENT       ? pool->used
                     : b == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool->reserved
                                                                 : 0;
    pthread_mutex_unlock(&pool_lock);
    return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
STAND_IN_API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                                           CUdevice device);

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    *pool = &default_pools[device];
    return stand_in_arrive(true);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CUresult result = stand_in_arrive(true);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = stand_in_table.cuDeviceGetAttribute(value, attribute, device);
    if (attribute == CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) {
        *value = 1;
    } else if (attribute == CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) {
        *value = 512;
    }
    return result;
}

/* ---- what is asked of pointers ------------------------------------------------------------- */

static CUmemoryPool pool_of(CUdeviceptr pointer)
{
    CUmemoryPool pool = NULL;
    pthread_mutex_lock(&pool_lock);
    for (const pooled *p = all_pooled; p; p = p->next) {
        if (!p->freed && pointer - p->block < p->size) {
            pool = p->pool;
        }
    }
    pthread_mutex_unlock(&pool_lock);
    return pool;
}

/* The driver knows no context for memory that is mapped. */
static void describe(CUpointer_attribute attribute, void *value, CUdeviceptr pointer)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    CUresult known = stand_in_table.cuMemGetAddressRange(&base, &size, pointer);
    if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
        *(CUmemoryPool *)value = pool_of(pointer);
    } else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT) {
        *(CUcontext *)value = NULL;
    } else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
        *(CUdeviceptr *)value = known == CUDA_SUCCESS ? base : 0;
    } else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
        *(size_t *)value = known == CUDA_SUCCESS ? size : 0;
    } else {
        stand_in_table.cuPointerGetAttributes(1, &attribute, &value, pointer);
    }
}

/* Both answers may be left out. */
static CUresult address_range(WORDS)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    CUresult result = stand_in_table.cuMemGetAddressRange(&base, &size, c);
    if (result == CUDA_SUCCESS && a) {
        *(CUdeviceptr *)a = base;
    }
    if (result == CUDA_SUCCESS && b) {
        *(size_t *)b = size;
    }
    return result;
}

static CUresult pointer_attributes(WORDS)
{
    for (unsigned i = 0; i < (unsigned)a; i++) {
        describe(((CUpointer_attribute *)b)[i], ((void **)c)[i], d);
    }
    return CUDA_SUCCESS;
}

static CUresult pointer_attribute(WORDS)
{
    describe((CUpointer_attribute)b, (void *)a, c);
    return CUDA_SUCCESS;
}

/* Memory that is mapped has no handle of this kind. */
static CUresult ipc_handle(WORDS)
{
    CUdeviceptr base;
    size_t size;
    uint64_t blocks = vmm_driver_count().block_bytes;
    CUresult known = stand_in_table.cuMemGetAddressRange(&base, &size, b);
    bool mapped = vmm_driver_accessible((void *)b, 1, 1);
    if (known != CUDA_SUCCESS || mapped || !blocks) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset((void *)a, 7, 64);
    return CUDA_SUCCESS;
}

/* ---- finding functions --------------------------------------------------------------------- */

#define HOOK(kind, name, since, symbol, streams, what) {#name, since, GA_CUDA_##streams, #symbol},
#define FUNCTION(name, symbol, parameters)             {#name, 0, GA_CUDA_ANY, symbol},

static const struct {
    const char *name;
    int since;
    ga_cuda_streams streams;
    const char *symbol;
} findable[] = {
    GA_CUDA_FUNCTIONS(FUNCTION) GA_CUDA_HOOKS(HOOK) /* the later in the table, the later in time */
    {"cuCtxGetDevice", 2000, GA_CUDA_ANY, "cuCtxGetDevice"},
    {"cuCtxCreate", 3020, GA_CUDA_ANY, "cuCtxCreate_v2"},
    {"cuStreamIsCapturing", 10000, GA_CUDA_ANY, "cuStreamIsCapturing"},
    {"cuStreamGetCtx", 9020, GA_CUDA_ANY, "cuStreamGetCtx"},
    {"cuDeviceGetDefaultMemPool", 11020, GA_CUDA_ANY, "cuDeviceGetDefaultMemPool"},
};

/* By the name, the latest version that is not later than asked for. */
static CUresult find(const char *name, void **function, int version, uint64_t flags, int *status)
{
    const char *symbol = NULL;
    bool named = false;
    int latest = -1;
    ga_cuda_streams unwanted = flags == GA_CUDA_THREAD ? GA_CUDA_LEGACY : GA_CUDA_THREAD;
    for (size_t i = 0; i < sizeof findable / sizeof *findable; i++) {
        if (strcmp(findable[i].name, name) != 0 || findable[i].streams == unwanted) {
            continue;
        }
        named = true;
        if (findable[i].since <= version && findable[i].since > latest) {
            latest = findable[i].since;
            symbol = findable[i].symbol;
        }
    }
    *function = symbol ? dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), symbol) : NULL;
    *status = *function ? 0 : named ? 2 : 1;
    return *function ? CUDA_SUCCESS : NOT_FOUND;
}

static CUresult find_v1(WORDS)
{
    int status;
    return find((const char *)a, (void **)b, (int)c, d, &status);
}

static CUresult find_v2(WORDS)
{
    int status;
    CUresult result = find((const char *)a, (void **)b, (int)c, d, &status);
    if (e) {
        *(int *)e = status;
    }
    return result;
}

STAND_IN_API CUresult cuGetExportTable(const void **table, const void *id);

CUresult cuGetExportTable(const void **table, const void *id)
{
    *table = NULL;
    return NOT_FOUND;
}

/* ---- by symbol ----------------------------------------------------------------------------- */

stand_in_function *stand_in_own(const char *symbol)
{
    static const struct {
        const char *symbol;
        stand_in_function *function;
    } own[] = {
        {"cuGetProcAddress", find_v1},
        {"cuGetProcAddress_v2", find_v2},
        {"cuMemAlloc_v2", mem_alloc},
        {"cuMemAllocPitch_v2", alloc_pitch},
        {"cuMemFree_v2", mem_free},
        {"cuMemAllocAsync", alloc_async},
        {"cuMemAllocAsync_ptsz", alloc_async_thread},
        {"cuMemAllocFromPoolAsync", alloc_from_pool},
        {"cuMemAllocFromPoolAsync_ptsz", alloc_from_pool},
        {"cuMemFreeAsync", free_async},
        {"cuMemFreeAsync_ptsz", free_async},
        {"cuMemGetAddressRange_v2", address_range},
        {"cuPointerGetAttribute", pointer_attribute},
        {"cuPointerGetAttributes", pointer_attributes},
        {"cuStreamBeginCapture", begin_v1},
        {"cuStreamBeginCapture_ptsz", begin_v1},
        {"cuStreamBeginCapture_v2", begin_v2},
        {"cuStreamBeginCapture_v2_ptsz", begin_v2},
        {"cuStreamBeginCaptureToGraph", begin_to_graph},
        {"cuStreamBeginCaptureToGraph_ptsz", begin_to_graph},
        {"cuStreamEndCapture", end_capture},
        {"cuStreamEndCapture_ptsz", end_capture},
        {"cuStreamDestroy_v2", stream_destroy},
        {"cuDevicePrimaryCtxReset", reset},
        {"cuDevicePrimaryCtxReset_v2", reset},
        {"cuCtxDestroy_v2", done},
        {"cuCtxEnablePeerAccess", done},
        {"cuIpcGetMemHandle", ipc_handle},
        {"cuMemPoolCreate", pool_create},
        {"cuMemPoolSetAttribute", done},
        {"cuMemPoolGetAttribute", pool_get},
        {"cuMemPoolTrimTo", pool_trim},
        {"cuMemAllocManaged", mem_alloc},
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(own[i].symbol, symbol) == 0) {
            return own[i].function;
        }
    }
    return NULL;
}
