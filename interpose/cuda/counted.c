/* SPDX-License-Identifier: MIT
 *
 * Memory that is no block, within limit=: physical memory of cuMemCreate(), and arrays. Without a
 * limit nothing is counted.
 *
 * STRUCTURE  by handle: the memory behind it, and its size; by address: its mappings
 * INVARIANT  memory counts from its creation until it has neither a handle nor a mapping, as with
 *            the driver
 * ORDER      one lock, held across the driver's calls that make handles and take them back: a
 *            handle may be another's as soon as it is released
 * PROGRESS   blocks while another thread is in here. No lock of ours is asked for under it
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
    unsigned uses; /* handles, each as often as it must be released, and mappings */
} memory;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ga_cuda_blocks handles = GA_CUDA_BLOCKS_INIT; /* `number`: the memory; `generation`: times */
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

static bool counts(void)
{
    return ga_cuda_limit() != UINT64_MAX;
}

static memory *memory_of(const ga_cuda_block *block)
{
    return (memory *)(uintptr_t)block->number;
}

/* Under the lock. */
static void drop_use(memory *m)
{
    if (--m->uses == 0) {
        ga_cuda_release_outside(m->device, m->size);
        ga_libc.free(m);
    }
}

/* ---- physical memory ----------------------------------------------------------------------- */

typedef CUresult create_fn(CUmemGenericAllocationHandle *handle, size_t size,
                           const CUmemAllocationProp *prop, unsigned long long flags);
typedef CUresult release_fn(CUmemGenericAllocationHandle handle);

/* Memory for the records, before anything is made. */
static memory *make_records(ga_cuda_block *note, int device, size_t size)
{
    memory *made = ga_libc.malloc(sizeof *made);
    *note = (ga_cuda_block){.size = 1, .generation = 1, .number = (uintptr_t)made};
    if (!made || !ga_cuda_blocks_reserve(note)) {
        ga_libc.free(made);
        return NULL;
    }
    *made = (memory){.size = size, .device = device, .uses = 1};
    return made;
}

static CUresult create_noted(create_fn *next, CUmemGenericAllocationHandle *handle, size_t size,
                             const CUmemAllocationProp *prop, unsigned long long flags,
                             ga_cuda_block *note)
{
    pthread_mutex_lock(&lock);
    CUresult result = next(handle, size, prop, flags);
    if (result == CUDA_SUCCESS) {
        note->start = *handle;
        ga_cuda_blocks_put(&handles, note);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Try again after our caches have given memory back to the driver. */
static CUresult create_twice(create_fn *next, CUmemGenericAllocationHandle *handle, size_t size,
                             const CUmemAllocationProp *prop, unsigned long long flags,
                             ga_cuda_block *note)
{
    CUresult result = create_noted(next, handle, size, prop, flags, note);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && ga_cuda_served_trim()) {
        result = create_noted(next, handle, size, prop, flags, note);
    }
    return result;
}

static CUresult create_counted(create_fn *next, CUmemGenericAllocationHandle *handle, size_t size,
                               const CUmemAllocationProp *prop, unsigned long long flags)
{
    int device = prop->location.id;
    ga_cuda_block note;
    memory *made = make_records(&note, device, size);
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool fits = ga_cuda_reserve_outside(device, size);
    CUresult result =
        fits ? create_twice(next, handle, size, prop, flags, &note) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        ga_cuda_blocks_unreserve(&note);
        ga_libc.free(made);
    }
    if (result != CUDA_SUCCESS && fits) {
        ga_cuda_release_outside(device, size);
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
    if (handle && prop && counts() && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        ga_cuda_is_device(prop->location.id)) {
        return create_counted(next, handle, size, prop, flags);
    }
    CUresult result = next(handle, size, prop, flags);
    bool again = result == CUDA_ERROR_OUT_OF_MEMORY && ga_cuda_served_trim();
    return again ? next(handle, size, prop, flags) : result;
}

/* Under the lock: one that is not known was imported, or made without a limit. */
static void forget_handle(CUmemGenericAllocationHandle handle)
{
    ga_cuda_block note;
    if (!ga_cuda_blocks_take(&handles, handle, &note)) {
        return;
    }
    memory *m = memory_of(&note);
    if (--note.generation) {
        ga_cuda_blocks_put(&handles, &note);
    } else {
        ga_cuda_blocks_gone(&handles, &note);
    }
    drop_use(m);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    release_fn *next = GA_CUDA_NEXT(release_fn, cuMemRelease);
    ga_cuda_count(GA_HOOK_cuMemRelease);
    if (!next || !counts()) {
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

/* Under the lock: one more handle of the memory that is mapped there; perhaps one that is known. */
static void note_handle(CUmemGenericAllocationHandle handle, CUdeviceptr at, ga_cuda_block *note)
{
    ga_cuda_block old;
    ga_cuda_block mapping;
    if (ga_cuda_blocks_take(&handles, handle, &old)) {
        old.generation++;
        memory_of(&old)->uses++;
        ga_cuda_blocks_put(&handles, &old);
    } else if (ga_cuda_blocks_find(&mappings, at, &mapping)) {
        note->start = handle;
        note->number = mapping.number;
        memory_of(&mapping)->uses++;
        ga_cuda_blocks_put(&handles, note);
    }
}

CUresult ga_cuda_counted_retain(ga_cuda_retain_fn *next, CUmemGenericAllocationHandle *handle,
                                void *pointer)
{
    ga_cuda_block note = {.size = 1, .generation = 1};
    if (!handle || !counts()) {
        return next(handle, pointer);
    }
    if (!ga_cuda_blocks_reserve(&note)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    CUresult result = next(handle, pointer);
    if (result == CUDA_SUCCESS) {
        note_handle(*handle, (CUdeviceptr)(uintptr_t)pointer, &note);
    }
    pthread_mutex_unlock(&lock);
    ga_cuda_blocks_unreserve(&note); /* where it was not needed */
    return result;
}

CUresult ga_cuda_counted_map(ga_cuda_map_fn *next, CUdeviceptr start, size_t size, size_t offset,
                             CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    ga_cuda_block note = {.start = start, .size = size};
    ga_cuda_block of_handle;
    if (!counts()) {
        return next(start, size, offset, handle, flags);
    }
    if (!ga_cuda_blocks_reserve(&note)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    CUresult result = next(start, size, offset, handle, flags);
    if (result == CUDA_SUCCESS && ga_cuda_blocks_find(&handles, handle, &of_handle)) {
        note.number = of_handle.number;
        memory_of(&note)->uses++;
        ga_cuda_blocks_put(&mappings, &note);
    }
    pthread_mutex_unlock(&lock);
    ga_cuda_blocks_unreserve(&note);
    return result;
}

CUresult ga_cuda_counted_unmap(ga_cuda_unmap_fn *next, CUdeviceptr start, size_t size)
{
    ga_cuda_block gone;
    if (!counts()) {
        return next(start, size);
    }
    pthread_mutex_lock(&lock);
    CUresult result = next(start, size);
    while (result == CUDA_SUCCESS && ga_cuda_blocks_take_within(&mappings, start, size, &gone)) {
        drop_use(memory_of(&gone));
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- arrays -------------------------------------------------------------------------------- */

/* CUDA_ARRAY_DESCRIPTOR and CUDA_ARRAY3D_DESCRIPTOR, which begin alike. */
typedef struct flat {
    size_t width, height;
    int format;
    unsigned channels;
} flat;

typedef struct deep {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
} deep;

enum {
    WITHOUT_MEMORY = 0x40 | 0x80 /* CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING */
};

/* Bytes of a channel; 0: of a format that is not made of channels, and is not counted. */
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

/* 0: too many to be had, which the driver says in its own words. */
static uint64_t array_bytes(const deep *d)
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
static uint64_t mipmap_bytes(deep d, unsigned levels)
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

typedef CUresult make_array_fn(void **array, const void *descriptor, unsigned levels);
typedef CUresult drop_array_fn(void *array);

static CUresult make_twice(make_array_fn *next, void **array, const void *descriptor,
                           unsigned levels)
{
    CUresult result = next(array, descriptor, levels);
    bool again = result == CUDA_ERROR_OUT_OF_MEMORY && ga_cuda_served_trim();
    return again ? next(array, descriptor, levels) : result;
}

/* The device of the current context, where an array goes; -1: it is not counted. */
static int device_to_count(void)
{
    const ga_cuda_asks *asks = counts() ? ga_cuda_next_asks() : NULL;
    CUcontext context;
    return asks ? ga_cuda_context_device(asks, &context) : -1;
}

static CUresult make_array(make_array_fn *next, void **array, const void *descriptor,
                           unsigned levels, uint64_t bytes)
{
    int device = bytes && array ? device_to_count() : -1;
    ga_cuda_block note = {.size = 1, .device = device, .number = bytes};
    if (device < 0) {
        return make_twice(next, array, descriptor, levels);
    }
    if (!ga_cuda_reserve_on(device, bytes)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = ga_cuda_blocks_reserve(&note) ? make_twice(next, array, descriptor, levels)
                                                    : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        note.start = (uintptr_t)*array;
        ga_cuda_blocks_put(&arrays, &note);
    } else {
        ga_cuda_blocks_unreserve(&note);
        ga_cuda_release_on(device, bytes);
    }
    return result;
}

/* It is struck out first: its handle may be another's as soon as it is destroyed. */
static CUresult drop_array(drop_array_fn *next, void *array)
{
    ga_cuda_block note;
    bool known = ga_cuda_blocks_take(&arrays, (uintptr_t)array, &note);
    CUresult result = next ? next(array) : ga_cuda_next_missing();
    if (known && result == CUDA_SUCCESS) {
        ga_cuda_release_on(note.device, note.number);
        ga_cuda_blocks_gone(&arrays, &note);
    } else if (known) {
        ga_cuda_blocks_put(&arrays, &note);
    }
    return result;
}

/* The context and all its arrays are destroyed, and its count was set to 0. */
void ga_cuda_counted_reset(int device)
{
    ga_cuda_block gone;
    while (ga_cuda_blocks_take_any(&arrays, device, &gone)) {
    }
}

GA_CUDA_ENTRY(make_array_fn, cuArrayCreate_v2);
GA_CUDA_ENTRY(make_array_fn, cuArray3DCreate_v2);
GA_CUDA_ENTRY(make_array_fn, cuMipmappedArrayCreate);
GA_CUDA_ENTRY(drop_array_fn, cuArrayDestroy);
GA_CUDA_ENTRY(drop_array_fn, cuMipmappedArrayDestroy);

/* Those without levels take two arguments, and overlook the third. */
CUresult cuArrayCreate_v2(void **array, const void *descriptor, unsigned unused)
{
    make_array_fn *next = GA_CUDA_NEXT(make_array_fn, cuArrayCreate_v2);
    const flat *f = descriptor;
    deep d = f ? (deep){f->width, f->height, 0, f->format, f->channels, 0} : (deep){0};
    ga_cuda_count(GA_HOOK_cuArrayCreate_v2);
    return next ? make_array(next, array, descriptor, unused, array_bytes(&d))
                : ga_cuda_next_missing();
}

CUresult cuArray3DCreate_v2(void **array, const void *descriptor, unsigned unused)
{
    make_array_fn *next = GA_CUDA_NEXT(make_array_fn, cuArray3DCreate_v2);
    const deep *d = descriptor;
    ga_cuda_count(GA_HOOK_cuArray3DCreate_v2);
    return next ? make_array(next, array, descriptor, unused, d ? array_bytes(d) : 0)
                : ga_cuda_next_missing();
}

CUresult cuMipmappedArrayCreate(void **array, const void *descriptor, unsigned levels)
{
    make_array_fn *next = GA_CUDA_NEXT(make_array_fn, cuMipmappedArrayCreate);
    const deep *d = descriptor;
    ga_cuda_count(GA_HOOK_cuMipmappedArrayCreate);
    return next ? make_array(next, array, descriptor, levels, d ? mipmap_bytes(*d, levels) : 0)
                : ga_cuda_next_missing();
}

CUresult cuArrayDestroy(void *array)
{
    ga_cuda_count(GA_HOOK_cuArrayDestroy);
    return drop_array(GA_CUDA_NEXT(drop_array_fn, cuArrayDestroy), array);
}

CUresult cuMipmappedArrayDestroy(void *array)
{
    ga_cuda_count(GA_HOOK_cuMipmappedArrayDestroy);
    return drop_array(GA_CUDA_NEXT(drop_array_fn, cuMipmappedArrayDestroy), array);
}
