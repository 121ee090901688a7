/* SPDX-License-Identifier: MIT
 *
 * Blocks, pools, pointer attributes, and finding functions: missing in vmm_driver.
 */
#include "libcuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* functions of one form, in a table */

#define WORDS                                                                                      \
    stand_in_word a, stand_in_word b, stand_in_word c, stand_in_word d, stand_in_word e,           \
        stand_in_word f

enum {
    NOT_FOUND = 500
};

/* ---- blocks, and pools --------------------------------------------------------------------- */

struct CUmemPoolHandle_st {
    int device;
    uint64_t used, reserved, used_high, reserved_high;
    uint64_t max;       /* bytes that it may have; 0: all */
    uint64_t threshold; /* CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, stored without effect */
    unsigned access;    /* a bit for each other device that may reach it */
};

static struct CUmemPoolHandle_st default_pools[VMM_DRIVER_DEVICES];
static CUmemoryPool current_pools[VMM_DRIVER_DEVICES]; /* NULL: the default one */

/* A pool keeps freed blocks until it is trimmed or memory is short. */
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

static CUresult alloc_managed(WORDS)
{
    CUresult result = stand_in_unsafe(false);
    return result == CUDA_SUCCESS
               ? stand_in_table.cuMemAllocManaged((CUdeviceptr *)a, b, (unsigned)c)
               : result;
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
static void trim(CUmemoryPool pool, uint64_t keep)
{
    for (pooled **at = &all_pooled; *at;) {
        pooled *p = *at;
        bool goes = p->freed && (!pool || p->pool == pool) && p->pool->reserved > keep;
        /* If the test lets the free fail, the block stays in the pool. */
        if (!goes || stand_in_table.cuMemFree(p->block) != CUDA_SUCCESS) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        p->pool->reserved -= p->size;
        free(p);
    }
}

static CUresult add_pooled(size_t size, CUmemoryPool pool, pooled **out)
{
    CUdeviceptr block = 0;
    if (pool->max && (size > pool->max || pool->reserved > pool->max - size)) {
        trim(pool, 0);
    }
    if (pool->max && (size > pool->max || pool->reserved > pool->max - size)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = stand_in_table.cuMemAlloc(&block, size);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        trim(NULL, 0);
        result = stand_in_table.cuMemAlloc(&block, size);
    }
    pooled *made = result == CUDA_SUCCESS ? malloc(sizeof *made) : NULL;
    if (!made) {
        return result;
    }
    *made = (pooled){block, size, pool, true, all_pooled};
    all_pooled = *out = made;
    pool->reserved += size;
    pool->reserved_high =
        pool->reserved > pool->reserved_high ? pool->reserved : pool->reserved_high;
    return CUDA_SUCCESS;
}

static CUresult from_pool(CUdeviceptr *out, size_t size, CUmemoryPool pool, CUstream stream)
{
    if (stand_in_capturing(stream)) {
        stand_in_add_node();
    }
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&pool_lock);
    pooled *p = find_freed(pool, size);
    if (!p) {
        result = add_pooled(size, pool, &p);
    }
    if (p && result == CUDA_SUCCESS) {
        p->freed = false;
        pool->used += size;
        pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
        *out = p->block;
    }
    pthread_mutex_unlock(&pool_lock);
    return result;
}

/* Of the current device; NULL: there is none. */
static CUmemoryPool current_pool(void)
{
    CUdevice device;
    if (cuCtxGetDevice(&device) != CUDA_SUCCESS) {
        return NULL;
    }
    return current_pools[device] ? current_pools[device] : &default_pools[device];
}

static CUresult alloc_async(WORDS)
{
    CUmemoryPool pool = current_pool();
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
    trim((CUmemoryPool)a, b);
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
    made->max = props->maxSize;
    *(CUmemoryPool *)a = made;
    return CUDA_SUCCESS;
}

/* Attributes that are stored: the others are flags, without effect here. */
static uint64_t *attribute_of(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

static CUresult pool_get(WORDS)
{
    CUresult result = stand_in_unsafe(false);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&pool_lock);
    const uint64_t *kept = attribute_of((CUmemoryPool)a, (CUmemPool_attribute)b);
    *(uint64_t *)c = kept ? *kept : 0;
    pthread_mutex_unlock(&pool_lock);
    return CUDA_SUCCESS;
}

/* High marks can be set only to 0, which makes them the present value. */
static CUresult pool_set(WORDS)
{
    CUmemoryPool pool = (CUmemoryPool)a;
    uint64_t value = *(const uint64_t *)c;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&pool_lock);
    if (b == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        pool->threshold = value;
    } else if (b == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && !value) {
        pool->reserved_high = pool->reserved;
    } else if (b == CU_MEMPOOL_ATTR_USED_MEM_HIGH && !value) {
        pool->used_high = pool->used;
    } else {
        result = b < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&pool_lock);
    return result;
}

/* The pool's own device has access always. */
static CUresult pool_set_access(WORDS)
{
    CUmemoryPool pool = (CUmemoryPool)a;
    const CUmemAccessDesc *desc = (const CUmemAccessDesc *)b;
    for (size_t i = 0; i < c; i++) {
        unsigned bit = 1u << desc[i].location.id;
        bool none = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
        if (desc[i].location.id == pool->device && none) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        pool->access = none ? pool->access & ~bit : pool->access | bit;
    }
    return CUDA_SUCCESS;
}

static CUresult set_pool(int device, CUmemoryPool pool)
{
    if (!pool || device < 0 || device >= VMM_DRIVER_DEVICES || pool->device != device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    current_pools[device] = pool == &default_pools[device] ? NULL : pool;
    return CUDA_SUCCESS;
}

static CUresult device_set_pool(WORDS)
{
    return set_pool((int)a, (CUmemoryPool)b);
}

static CUresult location_set_pool(WORDS)
{
    const CUmemLocation *location = (const CUmemLocation *)a;
    return b == CU_MEM_ALLOCATION_TYPE_PINNED ? set_pool(location->id, (CUmemoryPool)c)
                                              : CUDA_ERROR_INVALID_VALUE;
}

/* The pool is freed with its last block, which tests wait for. */
static CUresult pool_destroy(WORDS)
{
    CUmemoryPool pool = (CUmemoryPool)a;
    pthread_mutex_lock(&pool_lock);
    trim(pool, 0);
    if (current_pools[pool->device] == pool) {
        current_pools[pool->device] = NULL;
    }
    bool empty = !pool->reserved;
    pthread_mutex_unlock(&pool_lock);
    if (empty) {
        free(pool);
    }
    return CUDA_SUCCESS;
}

STAND_IN_API bool stand_in_pool_reaches(CUdeviceptr block, int device);

bool stand_in_pool_reaches(CUdeviceptr block, int device)
{
    pthread_mutex_lock(&pool_lock);
    const pooled *p = find_pooled(block);
    bool reaches = p && (p->pool->device == device || p->pool->access >> device & 1);
    pthread_mutex_unlock(&pool_lock);
    return reaches;
}

STAND_IN_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
STAND_IN_API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                                           CUdevice device);

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUresult result = stand_in_arrive(true);
    int count = 0;
    if (result == CUDA_SUCCESS) {
        result = stand_in_table.cuDeviceGetCount(&count);
    }
    if (result != CUDA_SUCCESS || device < 0 || device >= count) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_DEVICE;
    }
    default_pools[device].device = device;
    *pool = &default_pools[device];
    return CUDA_SUCCESS;
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

/* ---- arrays -------------------------------------------------------------------------------- */

typedef struct array_shape {
    size_t width, height, depth;
} array_shape;

/* An array is a block of its size in bytes, of 32-bit channels; a sparse one has no block. */
static CUresult make_array(void **array, const array_shape *s, unsigned channels, unsigned levels)
{
    CUdeviceptr block = 0;
    size_t size = 0;
    for (unsigned i = 0; i < levels; i++) {
        size_t height = s->height >> i ? s->height >> i : 1;
        size_t depth = s->depth >> i ? s->depth >> i : 1;
        size += (s->width >> i) * height * depth * channels * 4;
    }
    CUresult result = stand_in_table.cuMemAlloc(&block, size);
    *array = result == CUDA_SUCCESS ? (void *)block : NULL;
    return result;
}

static CUresult array_create(WORDS)
{
    const struct {
        size_t width, height;
        int format;
        unsigned channels;
    } *flat = (const void *)b;
    array_shape shape = {flat->width, flat->height, 0};
    return make_array((void **)a, &shape, flat->channels, 1);
}

static CUresult mipmap_create(WORDS)
{
    const struct {
        array_shape shape;
        int format;
        unsigned channels, flags;
    } *deep = (const void *)b;
    array_shape shape = deep->shape;
    shape.width = deep->flags & 0x40 ? 1 : shape.width;
    return make_array((void **)a, &shape, deep->channels, (unsigned)c);
}

static CUresult array_3d_create(WORDS)
{
    return mipmap_create(a, b, 1, 0, 0, 0);
}

static CUresult array_destroy(WORDS)
{
    return stand_in_table.cuMemFree(a);
}

/* ---- pinned host memory -------------------------------------------------------------------- */

static CUresult host_alloc(WORDS)
{
    return stand_in_table.cuMemHostAlloc((void **)a, b, (unsigned)c);
}

static CUresult alloc_host(WORDS)
{
    return stand_in_table.cuMemHostAlloc((void **)a, b, 0);
}

static CUresult free_host(WORDS)
{
    CUresult result = stand_in_unsafe(false);
    return result == CUDA_SUCCESS ? stand_in_table.cuMemFreeHost((void *)a) : result;
}

/* ---- pointer attributes ------------------------------------------------------------------- */

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
    } else if (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE && pool_of(pointer)) {
        *(int *)value = 0;
    } else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
               attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR) {
        *(CUdeviceptr *)value = known == CUDA_SUCCESS ? base : 0;
    } else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ||
               attribute == CU_POINTER_ATTRIBUTE_MAPPING_SIZE) {
        *(size_t *)value = known == CUDA_SUCCESS ? size : 0;
    } else {
        stand_in_table.cuPointerGetAttributes(1, &attribute, &value, pointer);
    }
}

/* Both results may be omitted. */
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

/* Neither for memory that is mapped nor for a pool's. */
static CUresult set_attribute(WORDS)
{
    if (!a) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return pool_of(c) ? CUDA_ERROR_NOT_SUPPORTED
                      : vmm_driver_set_attribute(c, (CUpointer_attribute)b, *(const unsigned *)a);
}

static CUresult retain_handle(WORDS)
{
    return a ? vmm_driver_retain((CUmemGenericAllocationHandle *)a, b) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_access(WORDS)
{
    return vmm_driver_get_access((unsigned long long *)a, (const CUmemLocation *)b, c);
}

static CUresult range_handle(WORDS)
{
    if (!a || d != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || e > 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return vmm_driver_dma_buf((int *)a, b, c);
}

static CUresult ipc_close(WORDS)
{
    return a >> 12 == 7 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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

/* 64 bytes by value, which the table's words do not have. One of this driver opens as an address
 *    that encodes the flags; others are unknown. */
typedef struct ipc_bytes {
    char bytes[64];
} ipc_bytes;

STAND_IN_API CUresult cuIpcOpenMemHandle(CUdeviceptr *out, ipc_bytes handle, unsigned flags);
STAND_IN_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, ipc_bytes handle, unsigned flags);

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, ipc_bytes handle, unsigned flags)
{
    CUresult result = stand_in_arrive(true);
    stand_in_called("cuIpcOpenMemHandle_v2");
    for (size_t i = 0; i < sizeof handle.bytes && result == CUDA_SUCCESS; i++) {
        result = handle.bytes[i] == 7 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    }
    if (result == CUDA_SUCCESS) {
        *out = 0x7000 + flags;
    }
    return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *out, ipc_bytes handle, unsigned flags)
{
    return cuIpcOpenMemHandle_v2(out, handle, flags);
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
    /* as cuda.h has it; driver 580 answers with cuGraphInstantiate_v2 */
    {"cuGraphInstantiate", 12000, GA_CUDA_ANY, "cuGraphInstantiateWithFlags"},
    {"cuCtxGetDevice", 2000, GA_CUDA_ANY, "cuCtxGetDevice"},
    {"cuCtxGetFlags", 7000, GA_CUDA_ANY, "cuCtxGetFlags"},
    {"cuStreamIsCapturing", 10000, GA_CUDA_ANY, "cuStreamIsCapturing"},
    {"cuStreamGetCtx", 9020, GA_CUDA_ANY, "cuStreamGetCtx"},
    {"cuDeviceGetDefaultMemPool", 11020, GA_CUDA_ANY, "cuDeviceGetDefaultMemPool"},
};

/* By the name, the latest version that is not later than requested. */
static CUresult find(const char *name, void **function, int version, uint64_t flags, int *status)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    bool named = false;
    int latest = -1;
    *function = NULL;
    ga_cuda_streams unwanted = flags == GA_CUDA_THREAD ? GA_CUDA_LEGACY : GA_CUDA_THREAD;
    for (size_t i = 0; i < sizeof findable / sizeof *findable; i++) {
        if (strcmp(findable[i].name, name) != 0 || findable[i].streams == unwanted) {
            continue;
        }
        void *exported = dlsym(driver, findable[i].symbol); /* not by an older driver */
        named = true;
        if (exported && findable[i].since <= version && findable[i].since > latest) {
            latest = findable[i].since;
            *function = exported;
        }
    }
    if (latest == 12000 && strcmp(name, "cuGraphInstantiate") == 0) {
        *function = (void *)(uintptr_t)stand_in_graph_instantiate;
    }
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

/* ---- by symbol ---------------------------------------------------------------------------- */

stand_in_function *stand_in_own_memory(const char *symbol)
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
        {"cuPointerSetAttribute", set_attribute},
        {"cuMemGetHandleForAddressRange", range_handle},
        {"cuMemRetainAllocationHandle", retain_handle},
        {"cuMemGetAccess", get_access},
        {"cuIpcGetMemHandle", ipc_handle},
        {"cuIpcCloseMemHandle", ipc_close},
        {"cuMemPoolCreate", pool_create},
        {"cuMemPoolGetAttribute", pool_get},
        {"cuMemPoolTrimTo", pool_trim},
        {"cuMemPoolSetAttribute", pool_set},
        {"cuMemPoolSetAccess", pool_set_access},
        {"cuMemPoolDestroy", pool_destroy},
        {"cuDeviceSetMemPool", device_set_pool},
        {"cuMemSetMemPool", location_set_pool},
        {"cuMemAllocManaged", alloc_managed},
        {"cuArrayCreate_v2", array_create},
        {"cuArray3DCreate_v2", array_3d_create},
        {"cuMipmappedArrayCreate", mipmap_create},
        {"cuArrayDestroy", array_destroy},
        {"cuMipmappedArrayDestroy", array_destroy},
        {"cuMemHostAlloc", host_alloc},
        {"cuMemAllocHost_v2", alloc_host},
        {"cuMemFreeHost", free_host},
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(own[i].symbol, symbol) == 0) {
            return own[i].function;
        }
    }
    return NULL;
}
