/* SPDX-License-Identifier: MIT
 *
 * Variables that each rank has of its own: those with static storage, as each process of MPI has
 * them. The program declares
 *
 *     static __device__ ga_mpi_global<int> counter = {5};
 *     GA_MPI_EACH_RANK(counter)
 *
 * and uses counter.own().
 *
 * STRUCTURE  The host gives all variables of a rank one piece of memory, in which each has a fixed
 *            offset, and copies the initial values there before the launch.
 */
#ifndef GPUALLOC_GPU_MPI_GLOBALS_H
#define GPUALLOC_GPU_MPI_GLOBALS_H

#include "world.h"

enum {
    GA_MPI_GLOBAL_ALIGN = 16
};

template <typename T> struct ga_mpi_global {
    static_assert(alignof(T) <= GA_MPI_GLOBAL_ALIGN, "the variable's alignment is at most 16");
    T initial;
    char *first; /* rank 0's; those of other ranks follow at distances of ga_mpi.global_stride */

    __device__ T &own()
    {
        return *(T *)(first + ga_mpi_number() * ga_mpi.global_stride);
    }
};

/* The host's record of such a variable. All files share the list. */
struct ga_mpi_variable {
    const void *symbol;
    size_t bytes, first_at; /* of `initial`, and where `first` is */
    ga_mpi_variable *next;
    static inline ga_mpi_variable *all;

    template <typename T>
    explicit ga_mpi_variable(const ga_mpi_global<T> &variable)
        : symbol(&variable), bytes(sizeof(T)), first_at(offsetof(ga_mpi_global<T>, first)),
          next(all)
    {
        all = this;
    }
};

/* Bytes of a rank's memory for the variable. */
static inline size_t ga_mpi_global_bytes(const ga_mpi_variable *variable)
{
    return (variable->bytes + GA_MPI_GLOBAL_ALIGN - 1) & ~(size_t)(GA_MPI_GLOBAL_ALIGN - 1);
}

#define GA_MPI_EACH_RANK(variable) static ga_mpi_variable variable##_of_each_rank(variable);

#endif
