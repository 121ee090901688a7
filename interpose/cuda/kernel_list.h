/* SPDX-License-Identifier: MIT
 *
 * The contexts that the preload has seen, and how far each one is with the program's code there.
 * Thread safe. A caller that uses a context holds the lock of its device, with which alone a
 * context is removed.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_KERNEL_LIST_H
#define GPUALLOC_INTERPOSE_CUDA_KERNEL_LIST_H

#include "kernel_contexts.h"
#include "kernel_instance.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ga_cuda_listed {
    ga_cuda_target at;
    bool is_open; /* this, and the instance then: the lock of the device guards them */
    ga_cuda_instance instance;

    /* The lock of the list guards the rest. */
    bool has_failed;         /* until the heap closes */
    bool is_delayed;         /* there was no memory */
    int64_t due;             /* ms of the monotonic clock: if delayed, the earliest next try */
    int place;               /* of the context in ga_cuda_listed_behind, from 1; 0: none */
    uint64_t filled, wanted; /* numbers of code: whose variables are written, and are to be */
    struct ga_cuda_listed *next;
} ga_cuda_listed;

/* The context, which is added if it is not in the list. NULL: no memory. */
ga_cuda_listed *ga_cuda_listed_add(const ga_cuda_target *target);

/* NULL: it is not in the list. */
ga_cuda_listed *ga_cuda_listed_find(CUcontext context);

void ga_cuda_listed_remove(ga_cuda_listed *gone);

/* The next context of a device. NULL as `before`: the first. NULL: there is none. */
ga_cuda_listed *ga_cuda_listed_next(int device, const ga_cuda_listed *before);

/* The device of a context; -1: it is not in the list. */
int ga_cuda_listed_device(CUcontext context);

/* ---- the program's code ---------------------------------------------------------------------- */

/* Code up to `number` is to be written in a context; or in all but `done`. */
void ga_cuda_listed_want(CUcontext context, uint64_t number);
void ga_cuda_listed_want_all(uint64_t number, CUcontext done);

/* The number up to which it is wanted, and up to which it is there. */
uint64_t ga_cuda_listed_wants(const ga_cuda_listed *c, uint64_t *filled);

/* All code up to `number` is there. Returns true if the context was delayed. */
bool ga_cuda_listed_filled(ga_cuda_listed *c, uint64_t number);

/* The code with `number`, the last one, is there; others may not be. */
void ga_cuda_listed_loaded(ga_cuda_listed *c, uint64_t number);

/* None is there, and that up to `number` is wanted. */
void ga_cuda_listed_emptied(ga_cuda_listed *c, uint64_t number);

/* The context cannot be opened, and wants nothing until it is emptied, or filled by other means. */
void ga_cuda_listed_failed(ga_cuda_listed *c);

/* There was no memory for code behind `number`, in a try that began at `began`, in ms of the
 * monotonic clock. The next one is due after 20 times the time of this one, and after 100 ms at
 * least. Returns true if the context was delayed before. */
bool ga_cuda_listed_delay(ga_cuda_listed *c, uint64_t number, int64_t began);

/* ---- contexts that are behind: they lack code ------------------------------------------------ */

enum {
    GA_CUDA_BEHIND_PLACES = 8
};

typedef struct ga_cuda_behind {
    unsigned count;                          /* contexts that are behind */
    unsigned unplaced;                       /* of these, the ones without a place */
    CUcontext places[GA_CUDA_BEHIND_PLACES]; /* of the others; NULL: free */
} ga_cuda_behind;

extern ga_cuda_behind ga_cuda_listed_behind;

/* Whether any context is behind. */
static inline bool ga_cuda_listed_any_is_behind(void)
{
    /* KL2: acquire. Pairs with KL1. */
    return __builtin_expect(__atomic_load_n(&ga_cuda_listed_behind.count, __ATOMIC_ACQUIRE) != 0,
                            0);
}

/* Whether a context may be behind. Takes no lock. */
bool ga_cuda_listed_may_be_behind(CUcontext context);

/* Whether a context is behind, and not delayed. The second form: any of a device. */
bool ga_cuda_listed_is_due(CUcontext context);
bool ga_cuda_listed_device_is_due(int device);

/* In the child of a fork. */
void ga_cuda_listed_child(void);

#endif
