/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of vmm_driver. All of it is under one lock, which VMM_CALL takes.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_VMM_STATE_H
#define GPUALLOC_TESTS_SUPPORT_VMM_STATE_H

#include "vmm_driver.h"

#include <sys/types.h>

#define VMM_INDEX(name, symbol, parameters) VMM_##name,

typedef enum vmm_function {
    GA_CUDA_FUNCTIONS(VMM_INDEX) VMM_FUNCTIONS
} vmm_function;

/* ---- devices, their streams and events --------------------------------------------------- */

typedef struct CUstream_st vmm_stream;

/* Work put on a stream after it waits for `done` of `on`. */
typedef struct vmm_gate {
    vmm_stream *on;
    uint64_t done;
    uint64_t from; /* the stream's own work from this number on */
} vmm_gate;

enum {
    VMM_GATES = 64 /* marks that one stream remembers */
};

struct CUstream_st {
    int device;
    bool held;
    bool ours;          /* the library's, or the default stream */
    uint64_t put, done; /* pieces of work, numbered from 1 */
    vmm_gate gates[VMM_GATES];
    unsigned gate_count;
    int priority;
    vmm_stream *next;
};

/* The work that a stream, or each stream of a context, had queued when the mark was recorded. */
typedef struct vmm_mark {
    vmm_stream *on; /* NULL: it is gone */
    uint64_t number;
} vmm_mark;

struct CUevent_st {
    vmm_mark *marks;
    size_t count; /* 0: never recorded */
    struct CUevent_st *next;
};

typedef struct vmm_device {
    size_t used;  /* bytes of its memory */
    size_t taken; /* of these held by another process */
    int file;     /* its memory: chunks are parts of it, each at an offset of its own */
    off_t end;
    bool destroyed;
    unsigned generation; /* of its context: how often it was destroyed */
    bool retained;       /* and the next stream made is the library's */
    vmm_stream null_stream;
} vmm_device;

/* ---- memory ------------------------------------------------------------------------------ */

/* A physical chunk; its address is its handle. */
typedef struct vmm_chunk {
    int device;
    size_t size;
    unsigned handles, mappings;
    int types; /* CU_MEM_HANDLE_TYPE_* that it can be exported as */
    bool rdma; /* network cards may reach it */
    uint64_t id;
    int file; /* the device's, or its own where it can be exported */
    off_t offset;
    ino_t identity; /* of its own file */
    bool foreign;   /* of another process, whose memory it counts against */
    struct vmm_chunk *next;
} vmm_chunk;

typedef struct vmm_mapping {
    uintptr_t start;
    size_t size;
    vmm_chunk *chunk;
    unsigned access; /* a bit for each device */
    bool read_only;  /* for all of them */
    struct vmm_mapping *next;
} vmm_mapping;

typedef struct vmm_range {
    uintptr_t base;
    size_t size;
    vmm_mapping *mappings; /* by address */
    struct vmm_range *next;
} vmm_range;

typedef enum vmm_block_kind {
    VMM_BLOCK_DEVICE,    /* cuMemAlloc */
    VMM_BLOCK_MANAGED,   /* cuMemAllocManaged */
    VMM_BLOCK_HOST,      /* cuMemHostAlloc */
    VMM_BLOCK_REGISTERED /* cuMemHostRegister */
} vmm_block_kind;

typedef struct vmm_block {
    char *start;
    size_t size;
    vmm_block_kind kind;
    int device;
    uint64_t id;
    bool synchronous; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
    struct vmm_block *next;
} vmm_block;

typedef struct vmm_state {
    vmm_driver_options options;
    vmm_device devices[VMM_DRIVER_DEVICES];
    uintptr_t span; /* all addresses that there are to reserve */
    size_t span_size;
    vmm_range *ranges; /* by address */
    vmm_chunk *chunks;
    vmm_block *blocks;
    size_t pinned; /* bytes of cuMemHostAlloc */
    vmm_stream *streams;
    struct CUevent_st *events;
    uint64_t waits;
    uint64_t last_id; /* of a chunk or block, CU_POINTER_ATTRIBUTE_BUFFER_ID */
} vmm_state;

extern vmm_state vmm;

/* ---- calls ------------------------------------------------------------------------------- */

/* Count a call and take the lock; returns the error of the plan of failures or the shut-down. */
CUresult vmm_arrive(vmm_function function);
void vmm_lock(void);
void vmm_unlock(const int *unused);

/* At the beginning of each function of the driver: it holds the lock to its end. */
#define VMM_CALL(name)                                                                             \
    CUresult refusal_ = vmm_arrive(VMM_##name);                                                    \
    __attribute__((cleanup(vmm_unlock), unused)) const int locked_ = 0;                            \
    if (refusal_ != CUDA_SUCCESS) {                                                                \
        return refusal_;                                                                           \
    }

/* The device of the thread's current context; -1: none. */
int vmm_current_device(void);

/* Take memory of the device; returns false if it has less. */
bool vmm_use(int device, size_t size);

/* Wait, as each mapping call does, for kernels during which nothing can be mapped. */
void vmm_kernels_wait(void);

/* Put the functions of each file into the table, and remove all remaining objects. */
void vmm_memory_begin(void);
void vmm_memory_fill(ga_cuda_driver *table);
void vmm_work_fill(ga_cuda_driver *table);
void vmm_blocks_fill(ga_cuda_driver *table);
void vmm_kernels_fill(ga_cuda_driver *table);
void vmm_memory_clear(void);
void vmm_work_clear(void);
void vmm_blocks_clear(void);
void vmm_kernels_clear(void);

/* End all work of a device, or of all (-1), as a wait does. */
void vmm_finish(int device);

/* Free the pinned memory of a device's context. */
void vmm_blocks_unpin(int device);

/* The mapping, and the block, that a pointer lies in; NULL: none. */
const vmm_mapping *vmm_mapping_at(uintptr_t address);
vmm_block *vmm_block_at(uintptr_t address);
bool vmm_block_is_on_host(const vmm_block *block);

#define VMM_REQUIRE(condition) vmm_require((condition), #condition, __func__)
void vmm_require(bool condition, const char *text, const char *function);

#endif
