/* SPDX-License-Identifier: MIT
 *
 * Declarations of the hooks in C. The exported names are the thunks of entries.S, which jump to
 * them.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_ENTRY_H
#define GPUALLOC_INTERPOSE_CUDA_ENTRY_H

/* Declare the function behind the thunk `symbol`. C code calls it `symbol`; its linker name is the
 * one that the thunk jumps to. */
#define GA_CUDA_ENTRY(type, symbol)                                                                \
    __attribute__((visibility("hidden"))) type symbol __asm__("ga_cuda_entry_" #symbol)

#endif
