/* SPDX-License-Identifier: MIT
 *
 * Our module in one context, and the variables of the program's code there. A caller's lock guards
 * an instance.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_KERNEL_INSTANCE_H
#define GPUALLOC_INTERPOSE_CUDA_KERNEL_INSTANCE_H

#include "../../liballoc/platform/cuda_types.h"
#include "../images/cubin.h"
#include "kernel_codes.h"

#include <stdbool.h>

/* All zeros: not loaded. */
typedef struct ga_cuda_instance {
    CUcontext context;
    CUmodule module;
    CUstream stream; /* which waits for no other */
    uint64_t functions[GA_CALLS_COUNT];
} ga_cuda_instance;

/* Look up the driver's functions. To be called before a lock is taken: dlsym() takes the lock of
 * the dynamic linker, which a thread holds that unloads a library of the program, and with it
 * code. */
void ga_cuda_instance_prepare(void);

/* Exchange the capture mode of the thread: code may be loaded while a stream captures, and calls
 * made here concern none of the program's streams, so the capture need not end for them. */
int ga_cuda_instance_relax(void);
void ga_cuda_instance_restore(int mode);

/* Load our module in a context. */
ga_status ga_cuda_instance_load(ga_cuda_instance *out, CUcontext context, ga_image module);

/* The driver says that there is no such context. */
bool ga_cuda_instance_is_gone(CUcontext context);

/* False: the context is gone, or the driver, which shuts down at exit. */
bool ga_cuda_instance_lives(const ga_cuda_instance *it);

/* Take it out of the context. With `waits`, the context's kernels end before. */
void ga_cuda_instance_unload(ga_cuda_instance *it, bool waits);

/* The addresses of our functions to the variable of `code`, in the instance's context; or that of
 * the function which gives NULL, as at first. The driver then loads a library there, if it has not
 * yet. */
ga_status ga_cuda_instance_write(const ga_cuda_instance *it, const ga_cuda_code *code,
                                 bool is_open);

/* The limit on the stack of kernels whose need is not known, in a context, or by default. */
uint32_t ga_cuda_instance_stack_limit(CUcontext context);

#endif
