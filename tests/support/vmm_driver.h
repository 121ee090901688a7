/* SPDX-License-Identifier: MIT
 *
 * A CUDA driver made of host memory, for tests on machines without a GPU. Reserved addresses are a
 * mapping without access, physical chunks are parts of a file in memory, and device pointers are
 * host pointers. Contents are visible through every range in which a chunk is mapped. An access to
 * addresses that are not mapped, or without permission, is a segmentation fault.
 *
 * It enforces the real driver's rules and returns CUDA_ERROR_INVALID_VALUE if a call breaks one:
 *
 *   - sizes and addresses are multiples of the granularity
 *   - a chunk is mapped whole, from its start, into addresses of one reservation that are free
 *   - access is given to, and an unmap takes, whole mappings without gaps, of one reservation
 *   - a range is freed as it was reserved, once nothing is mapped in it
 *   - a chunk may be released while it is mapped: its memory is free once it is released and
 *     unmapped
 *   - streams, events, copies and blocks need a current context
 *   - a block is freed by the function for its kind, and pinned memory ends with its context
 *
 * Managed memory stays on the device where it was allocated, which cannot have more. Copies and
 * fills are done at once. Streams are done at once too, unless a test holds them; events and
 * cuStreamWaitEvent() follow. A wait for a held stream ends its work, as time would. Pools, modules
 * and kernels are CUDA_ERROR_NOT_SUPPORTED, except for the library's own kernels, if requested: its
 * service kernels, the trial of growth, and those of sparse products, which do nothing. Calls of a
 * forked child are refused as by the real driver, until it starts a driver of its own.
 *
 * Thread safe but for vmm_driver_start() and vmm_driver_stop(). Misuse ends the program.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_VMM_DRIVER_H
#define GPUALLOC_TESTS_SUPPORT_VMM_DRIVER_H

#include "platform/cuda_driver.h"

#include <stdint.h>

enum {
    VMM_DRIVER_DEVICES = 4 /* the most */
};

/* The library's own kernels. */
typedef enum vmm_driver_kernels {
    VMM_KERNELS_NONE,
    VMM_KERNELS_GROW, /* memory is mapped while they run */
    VMM_KERNELS_ALONE /* nothing is mapped until they have ended */
} vmm_driver_kernels;

/* The properties of the machine. Zeros are good defaults. */
typedef struct vmm_driver_options {
    int devices;            /* 0: 1 */
    int hidden;             /* devices of the machine before these; identities count them */
    int sm;                 /* 90: compute capability 9.0; 0: 90 */
    size_t memory;          /* bytes of each device; 0: 1 GiB */
    size_t granularity;     /* a multiple of the page size; 0: 2 MiB */
    size_t recommended;     /* granularity, at least the other; 0: equal */
    uint64_t addresses;     /* there are to reserve, from the lowest that are free on; 0: 16 TiB */
    size_t pinned;          /* bytes of host memory to pin by cuMemHostAlloc; 0: 1 TiB */
    bool no_vmm;            /* a device without virtual memory management */
    bool no_managed;        /* devices without managed memory */
    bool no_concurrent;     /* devices whose managed memory the host must not use meanwhile */
    bool no_cooperative;    /* devices without cooperative launches */
    bool no_peers;          /* devices cannot reach each other's memory */
    bool no_fd;             /* memory cannot be shared as a file descriptor */
    bool fabric, rdma;      /* the device can do these */
    bool no_fabric_daemon;  /* and memory for a fabric is refused nevertheless */
    bool no_context_events; /* a driver before CUDA 12.5 */
    bool (*others)(const void *at); /* whether memory of another library is that of a device */
    bool no_stream_values; /* a driver without cuStreamWriteValue32 and cuStreamWaitValue32 */
    vmm_driver_kernels kernels;
} vmm_driver_options;

/* Install it in place of the real driver, new and empty. NULL: the defaults. */
void vmm_driver_start(const vmm_driver_options *options);

/* Remove it, with all that is left in it. */
void vmm_driver_stop(void);

/* Live objects. Streams without those that the library keeps for each device. */
typedef struct vmm_driver_counts {
    uint64_t ranges, range_bytes; /* reserved */
    uint64_t chunks, chunk_bytes; /* physical, held or mapped */
    uint64_t handles;             /* chunks that are not released yet */
    uint64_t mappings, mapped_bytes;
    uint64_t blocks, block_bytes;  /* of cuMemAlloc and cuMemAllocManaged */
    uint64_t pinned, pinned_bytes; /* of cuMemHostAlloc and cuMemHostRegister */
    uint64_t streams, events;
    uint64_t waits; /* calls so far that waited for work that had not ended */
} vmm_driver_counts;

vmm_driver_counts vmm_driver_count(void);

/* Calls so far of the function of that name ("cuMemMap"); NULL: of all. Functions that name errors,
 * and cuCtxPopCurrent, which have no lasting effect, are not counted and never fail. */
uint64_t vmm_driver_calls(const char *name);

/* Threads that wait in cuStreamWaitValue32(), as streams of a device would. */
int vmm_driver_waiting(void);

/* Let the n-th call from now on (1: the next) of that function (NULL: of any) fail with `error`,
 * and do nothing; `more` calls of the kind after it fail as well. One such plan at a time; n = 0
 * has none. */
void vmm_driver_fail(const char *name, uint64_t n, CUresult error);
void vmm_driver_fail_many(const char *name, uint64_t n, uint64_t more, CUresult error);

/* Returns true if the plan's n-th call was made. */
bool vmm_driver_has_failed(void);

/* Let another process hold `bytes` of the device's memory in all. */
void vmm_driver_take(int device, size_t bytes);

/* Destroy the device's primary context, as cudaDeviceReset() does: pushing it is
 * CUDA_ERROR_CONTEXT_IS_DESTROYED from then on. */
void vmm_driver_destroy_context(int device);

/* Let the driver shut down: every call is CUDA_ERROR_DEINITIALIZED from then on. */
void vmm_driver_shut_down(void);

/* Work that is put on the stream (NULL: the default stream of device 0) from now on does not end;
 * end held work, and let new work end at once again. */
void vmm_driver_hold(CUstream stream);
void vmm_driver_let_go(CUstream stream);

/* cuPointerSetAttribute(), which has SYNC_MEMOPS and nothing else; no attribute of memory that is
 * mapped is supported. */
CUresult vmm_driver_set_attribute(CUdeviceptr pointer, CUpointer_attribute attribute,
                                  unsigned value);

/* cuMemGetHandleForAddressRange(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD): whole pages of one block, or
 * of memory that is mapped without a gap, of one device and created with equal properties for
 * network cards. The descriptor is only of a file of that size. */
CUresult vmm_driver_dma_buf(int *file, CUdeviceptr start, size_t size);

/* cuMemRetainAllocationHandle(): of memory that is mapped, and of no block. */
CUresult vmm_driver_retain(CUmemGenericAllocationHandle *handle, CUdeviceptr pointer);

/* cuMemGetAccess(), of memory that is mapped. */
CUresult vmm_driver_get_access(unsigned long long *flags, const CUmemLocation *location,
                               CUdeviceptr pointer);

/* Properties of the memory that is mapped at an address. Size 0: nothing is. */
typedef struct vmm_driver_memory {
    uintptr_t start; /* of its mapping */
    size_t size;
    int types; /* CU_MEM_HANDLE_TYPE_* */
    bool rdma;
} vmm_driver_memory;

vmm_driver_memory vmm_driver_memory_at(const void *address);

/* Returns true if the devices of the bits in `access` may use all of [start, start + size). */
bool vmm_driver_accessible(const void *start, size_t size, unsigned access);

#endif
