/* SPDX-License-Identifier: MIT
 *
 * The contexts in which the kernels of executable graphs run. Thread safe.
 */
#ifndef GPUALLOC_INTERPOSE_CUDA_KERNEL_GRAPHS_H
#define GPUALLOC_INTERPOSE_CUDA_KERNEL_GRAPHS_H

/* `graph` was instantiated as `exec`. */
void ga_cuda_graph_instantiated(const void *exec, void *graph);

/* Before `exec` is destroyed. */
void ga_cuda_graph_destroying(const void *exec);

/* Before `exec` is launched: the contexts of its kernels get malloc, as by
 * ga_cuda_kernel_launching(); all contexts do if those are not known. */
void ga_cuda_graph_launching(const void *exec);

/* In the child of a fork. */
void ga_cuda_graphs_child(void);

#endif
