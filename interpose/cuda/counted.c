/* SPDX-License-Identifier: MIT
 *
 * Memory other than blocks within limit=: physical memory of cuMemCreate(), and arrays. Without a
 * limit nothing is counted.
 *
 * STRUCTURE  by handle: the memory behind it, and its size; by address: its mappings
 * INVARIANT  memory counts from its creation until it has neither handles nor mappings, which is
 *            when the driver frees it
 * ORDER      one lock, held across the driver's calls that create and release handles, because the
 *            driver may reuse a handle as soon as it is released
 * PROGRESS   a thread waits for the holder of the lock; no other lock of the preload is taken under
 *            it
 */
#include "counted.h"

#include "../../liballoc/platform/forks.h"
#include "../../liballoc/platform/libc.h"
#include "contexts.h"
#include "entry.h"
#include "lookup.h"
#include "next.h"

#include <pthread.h>
#include <string.h>

typedef struct memory {
    uint64_t size;
    int device;
    unsigned uses; /* mappings, and handles, each as often as it must be released */
} memory;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ga_cuda_blocks handles =
    GA_CUDA_BLOCKS_INIT; /* `number`: the memory; `generation`: releases needed */
static ga_cuda_blocks mappings = GA_CUDA_BLOCKS_INIT; /* `number`: the memory */
static ga_cuda_blocks arrays = GA_CUDA_BLOCKS_INIT;   /* `size`: 1; `number`: bytes */

/* The child does not have the parent's memory, so it forgets the records. */
static void fork_child(void)
{
    static const ga_cuda_blocks none = GA_CUDA_BLOCKS_INIT;
    pthread_mutex_init(&lock, NULL);
    handles = mappings = arrays = none;
}

__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, NULL, NULL, fork_child);
}

static bool is_limited(void)
{
    return ga_cuda_limit() != UINT64_MAX;
}

static memory *memory_of(const ga_cuda_block *block)
{
    return (memory *)(uintptr_t)block->number;
}

/* With the lock held. */
static void release_use(memory *m)
{
    if (--m->uses == 0) {
        ga_cuda_uncharge_outside(m->device, m->size);
        ga_libc.free(m);
    }
}

/* ---- physical memory ----------------------------------------------------------------------- */

typedef CUresult create_fn(CUmemGenericAllocationHandle *handle, size_t size,
                           const CUmemAllocationProp *prop, unsigned long long flags);
typedef CUresult release_fn(CUmemGenericAllocationHandle handle);

/* Allocate the records before the driver's call, so that it need not be undone. */
static memory *make_records(ga_cuda_block *record, int device, size_t size)
{
    memory *made = ga_libc.malloc(sizeof *made);
    *record = (ga_cuda_block){.size = 1, .generation = 1, .number = (uintptr_t)made};
    if (!made || !ga_cuda_blocks_new_record(record)) {
        ga_libc.free(made);
        return NULL;
    }
    *made = (memory){.size = size, .device = device, .uses = 1};
    return made;
}

static CUresult create_recorded(create_fn *next, CUmemGenericAllocationHandle *handle, size_t size,
                                const CUmemAllocationProp *prop, unsigned long long flags,
                                ga_cuda_block *record)
{
    pthread_mutex_lock(&lock);
    CUresult result = next(handle, size, prop, flags);
    if (result == CUDA_SUCCESS) {
        record->start = *handle;
        ga_cuda_blocks_insert(&handles, record);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Try again after the caches have given memory back to the driver. */
static CUresult create_retry(create_fn *next, CUmemGenericAllocationHandle *handle, size_t size,
                             const CUmemAllocationProp *prop, unsigned long long flags,
                             ga_cuda_block *record)
{
    CUresult result = create_recorded(next, handle, size, prop, flags, record);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && ga_cuda_served_trim()) {
        result = create_recorded(next, handle, size, prop, flags, record);
    }
    return result;
}

static CUresult create_counted(create_fn *next, CUmemGenericAllocationHandle *handle, size_t size,
                               const CUmemAllocationProp *prop, unsigned long long flags)
{
    int device = prop->location.id;
    ga_cuda_block record;
    memory *made = make_records(&record, device, size);
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool fits = ga_cuda_charge_outside(device, size);
    CUresult result =
        fits ? create_retry(next, handle, size, prop, flags, &record) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        ga_cuda_blocks_free_record(&record);
        ga_libc.free(made);
    }
    if (result != CUDA_SUCCESS && fits) {
        ga_cuda_uncharge_outside(device, size);
    }
    return result;
}

GA_CUDA_ENTRY(create_fn, cuMemCreate);
GA_CUDA_ENTRY(release_fn, cuMemRelease);

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    create_fn *next = GA_CUDA_NEXT(create_fn, cuMemCreate);
    ga_cuda_count(GA_HOOK_cuMemCreate);
    if (!next) {
        return ga_cuda_next_missing();
    }
    if (handle && prop && is_limited() && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        ga_cuda_is_device(prop->location.id)) {
        return create_counted(next, handle, size, prop, flags);
    }
    CUresult result = next(handle, size, prop, flags);
    bool retry = result == CUDA_ERROR_OUT_OF_MEMORY && ga_cuda_served_trim();
    return retry ? next(handle, size, prop, flags) : result;
}

/* With the lock held. A handle without a record was imported, or created without a limit. */
static void forget_handle(CUmemGenericAllocationHandle handle)
{
    ga_cuda_block record;
    if (!ga_cuda_blocks_remove(&handles, handle, &record)) {
        return;
    }
    memory *m = memory_of(&record);
    if (--record.generation) {
        ga_cuda_blocks_insert(&handles, &record);
    } else {
        ga_cuda_blocks_discard(&handles, &record);
    }
    release_use(m);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    release_fn *next = GA_CUDA_NEXT(release_fn, cuMemRelease);
    ga_cuda_count(GA_HOOK_cuMemRelease);
    if (!next || !is_limited()) {
        return next ? next(handle) : ga_cuda_next_missing();
    }
    pthread_mutex_lock(&lock);
    CUresult result = next(handle);
    if (result == CUDA_SUCCESS) {
        forget_handle(handle);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* With the lock held: one more handle, new or known, of the memory that is mapped at `at`. */
static void record_handle(CUmemGenericAllocationHandle handle, CUdeviceptr at,
                          ga_cuda_block *record)
{
    ga_cuda_block old;
    ga_cuda_block mapping;
    if (ga_cuda_blocks_remove(&handles, handle, &old)) {
        old.generation++;
        memory_of(&old)->uses++;
        ga_cuda_blocks_insert(&handles, &old);
    } else if (ga_cuda_blocks_find(&mappings, at, &mapping)) {
        record->start = handle;
        record->number = mapping.number;
        memory_of(&mapping)->uses++;
        ga_cuda_blocks_insert(&handles, record);
    }
}

CUresult ga_cuda_counted_retain(ga_cuda_retain_fn *next, CUmemGenericAllocationHandle *handle,
                                void *pointer)
{
    ga_cuda_block record = {.size = 1, .generation = 1};
    if (!handle || !is_limited()) {
        return next(handle, pointer);
    }
    if (!ga_cuda_blocks_new_record(&record)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    CUresult result = next(handle, pointer);
    if (result == CUDA_SUCCESS) {
        record_handle(*handle, (CUdeviceptr)(uintptr_t)pointer, &record);
    }
    pthread_mutex_unlock(&lock);
    ga_cuda_blocks_free_record(&record); /* if it was not used */
    return result;
}

CUresult ga_cuda_counted_map(ga_cuda_map_fn *next, CUdeviceptr start, size_t size, size_t offset,
                             CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    ga_cuda_block record = {.start = start, .size = size};
    ga_cuda_block handle_record;
    if (!is_limited()) {
        return next(start, size, offset, handle, flags);
    }
    if (!ga_cuda_blocks_new_record(&record)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    CUresult result = next(start, size, offset, handle, flags);
    if (result == CUDA_SUCCESS && ga_cuda_blocks_find(&handles, handle, &handle_record)) {
        record.number = handle_record.number;
        memory_of(&record)->uses++;
        ga_cuda_blocks_insert(&mappings, &record);
    }
    pthread_mutex_unlock(&lock);
    ga_cuda_blocks_free_record(&record);
    return result;
}

CUresult ga_cuda_counted_unmap(ga_cuda_unmap_fn *next, CUdeviceptr start, size_t size)
{
    ga_cuda_block gone;
    if (!is_limited()) {
        return next(start, size);
    }
    pthread_mutex_lock(&lock);
    CUresult result = next(start, size);
    while (result == CUDA_SUCCESS && ga_cuda_blocks_remove_within(&mappings, start, size, &gone)) {
        release_use(memory_of(&gone));
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- arrays -------------------------------------------------------------------------------- */

/* CUDA_ARRAY_DESCRIPTOR and CUDA_ARRAY3D_DESCRIPTOR. */
typedef struct descriptor_2d {
    size_t width, height;
    int format;
    unsigned channels;
} descriptor_2d;

typedef struct descriptor_3d {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
} descriptor_3d;

enum {
    WITHOUT_MEMORY = 0x40 | 0x80 /* CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING */
};

/* Bytes per channel; 0: the format has no channels of whole bytes (compressed, say) and is not
 * counted. */
static size_t channel_bytes(int format)
{
    switch (format) {
    case 0x01: /* CU_AD_FORMAT_UNSIGNED_INT8, ..._SIGNED_INT8 */
    case 0x08:
        return 1;
    case 0x02: /* 16 bits, and half floats */
    case 0x09:
    case 0x10:
        return 2;
    case 0x03: /* 32 bits, and floats */
    case 0x0a:
    case 0x20:
        return 4;
    default:
        return 0;
    }
}

/* 0: overflow; the driver then reports the error. */
static uint64_t array_bytes(const descriptor_3d *d)
{
    uint64_t bytes = channel_bytes(d->format);
    const size_t factors[] = {d->channels, d->width, d->height ? d->height : 1,
                              d->depth ? d->depth : 1};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        if (__builtin_mul_overflow(bytes, factors[i], &bytes)) {
            return 0;
        }
    }
    return d->flags & WITHOUT_MEMORY ? 0 : bytes;
}

/* Each level has half of the width, height and depth of the one before. */
static uint64_t mipmap_bytes(descriptor_3d d, unsigned levels)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < levels && i < 64; i++) {
        bytes += array_bytes(&d);
        d.width = d.width > 1 ? d.width / 2 : 1;
        d.height = d.height > 1 ? d.height / 2 : d.height;
        d.depth = d.depth > 1 ? d.depth / 2 : d.depth;
    }
    return bytes;
}

typedef CUresult create_array_fn(void **array, const void *descriptor, unsigned levels);
typedef CUresult destroy_array_fn(void *array);

static CUresult create_array_retry(create_array_fn *next, void **array, const void *descriptor,
                                   unsigned levels)
{
    CUresult result = next(array, descriptor, levels);
    bool retry = result == CUDA_ERROR_OUT_OF_MEMORY && ga_cuda_served_trim();
    return retry ? next(array, descriptor, levels) : result;
}

/* The current device, where an array is allocated; -1: arrays are not counted. */
static int device_to_charge(void)
{
    const ga_cuda_api *api = is_limited() ? ga_cuda_next_api() : NULL;
    CUcontext context;
    return api ? ga_cuda_context_device(api, &context) : -1;
}

static CUresult create_array(create_array_fn *next, void **array, const void *descriptor,
                             unsigned levels, uint64_t bytes)
{
    int device = bytes && array ? device_to_charge() : -1;
    ga_cuda_block record = {.size = 1, .device = device, .number = bytes};
    if (device < 0) {
        return create_array_retry(next, array, descriptor, levels);
    }
    if (!ga_cuda_charge_on(device, bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = ga_cuda_blocks_new_record(&record)
                          ? create_array_retry(next, array, descriptor, levels)
                          : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        record.start = (uintptr_t)*array;
        ga_cuda_blocks_insert(&arrays, &record);
    } else {
        ga_cuda_blocks_free_record(&record);
        ga_cuda_uncharge_on(device, bytes);
    }
    return result;
}

/* The record is removed first, because the driver may reuse the handle as soon as it is
 * destroyed. */
static CUresult destroy_array(destroy_array_fn *next, void *array)
{
    ga_cuda_block record;
    bool known = ga_cuda_blocks_remove(&arrays, (uintptr_t)array, &record);
    CUresult result = next ? next(array) : ga_cuda_next_missing();
    if (known && result == CUDA_SUCCESS) {
        ga_cuda_uncharge_on(record.device, record.number);
        ga_cuda_blocks_discard(&arrays, &record);
    } else if (known) {
        ga_cuda_blocks_insert(&arrays, &record);
    }
    return result;
}

/* The context's arrays are destroyed with it. The caller resets the device's count itself. */
void ga_cuda_counted_reset(int device)
{
    ga_cuda_block gone;
    while (ga_cuda_blocks_remove_of(&arrays, device, &gone)) {
    }
}

GA_CUDA_ENTRY(create_array_fn, cuArrayCreate_v2);
GA_CUDA_ENTRY(create_array_fn, cuArray3DCreate_v2);
GA_CUDA_ENTRY(create_array_fn, cuMipmappedArrayCreate);
GA_CUDA_ENTRY(destroy_array_fn, cuArrayDestroy);
GA_CUDA_ENTRY(destroy_array_fn, cuMipmappedArrayDestroy);

/* The two calls without levels take two arguments; the driver ignores the third. */
CUresult cuArrayCreate_v2(void **array, const void *descriptor, unsigned unused)
{
    create_array_fn *next = GA_CUDA_NEXT(create_array_fn, cuArrayCreate_v2);
    const descriptor_2d *f = descriptor;
    descriptor_3d d =
        f ? (descriptor_3d){f->width, f->height, 0, f->format, f->channels, 0} : (descriptor_3d){0};
    ga_cuda_count(GA_HOOK_cuArrayCreate_v2);
    return next ? create_array(next, array, descriptor, unused, array_bytes(&d))
                : ga_cuda_next_missing();
}

CUresult cuArray3DCreate_v2(void **array, const void *descriptor, unsigned unused)
{
    create_array_fn *next = GA_CUDA_NEXT(create_array_fn, cuArray3DCreate_v2);
    const descriptor_3d *d = descriptor;
    ga_cuda_count(GA_HOOK_cuArray3DCreate_v2);
    return next ? create_array(next, array, descriptor, unused, d ? array_bytes(d) : 0)
                : ga_cuda_next_missing();
}

CUresult cuMipmappedArrayCreate(void **array, const void *descriptor, unsigned levels)
{
    create_array_fn *next = GA_CUDA_NEXT(create_array_fn, cuMipmappedArrayCreate);
    const descriptor_3d *d = descriptor;
    ga_cuda_count(GA_HOOK_cuMipmappedArrayCreate);
    return next ? create_array(next, array, descriptor, levels, d ? mipmap_bytes(*d, levels) : 0)
                : ga_cuda_next_missing();
}

CUresult cuArrayDestroy(void *array)
{
    ga_cuda_count(GA_HOOK_cuArrayDestroy);
    return destroy_array(GA_CUDA_NEXT(destroy_array_fn, cuArrayDestroy), array);
}

CUresult cuMipmappedArrayDestroy(void *array)
{
    ga_cuda_count(GA_HOOK_cuMipmappedArrayDestroy);
    return destroy_array(GA_CUDA_NEXT(destroy_array_fn, cuMipmappedArrayDestroy), array);
}
