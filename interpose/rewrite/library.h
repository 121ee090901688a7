/* SPDX-License-Identifier: MIT
 *
 * The effects of functions whose bodies the analysis does not see: C's library, MPI and CUDA. A
 * function that is not here may do anything: leave some threads behind, wait for a message, return
 * another value in each thread.
 */
#ifndef GPUALLOC_REWRITE_LIBRARY_H
#define GPUALLOC_REWRITE_LIBRARY_H

#include <llvm/ADT/StringRef.h>

namespace rewrite
{

/* LLVM renamed its own functions for this. */
inline bool has_prefix(llvm::StringRef text, llvm::StringRef prefix)
{
    return text.take_front(prefix.size()) == prefix;
}

inline bool has_suffix(llvm::StringRef text, llvm::StringRef suffix)
{
    return text.take_back(suffix.size()) == suffix;
}

/* Where a value comes from. */
enum class source {
    nothing,   /* no value */
    constant,  /* equal in all threads */
    arguments, /* equal where the arguments that are no pointers are equal, and the strings, if they
                * are elements of main's argv */
    divergent, /* another value in each thread */
    unknown,   /* such as the contents of memory */
    agreed,    /* equal in all threads after a collective call on MPI_COMM_WORLD */
    status     /* of an MPI call, which ends the program unless it succeeds, if the program nowhere
                * gives MPI an error handler */
};

/* Effects of a call beside its result. */
enum effects : unsigned {
    LEAVES = 1,      /* does not return, and the other threads go on: exit() */
    ENDS_ALL = 2,    /* does not return, and ends the whole kernel: __trap() */
    EXCHANGES = 4,   /* may wait for one thread, or end the wait of one: MPI_Recv() */
    MEETS = 8,       /* waits for other threads that make this call: a collective call */
    BARRIER = 16,    /* MEETS, and no thread returns before all have called */
    ALLOCATES = 32,  /* its result is a new block */
    KEEPS_ARGV = 64, /* does not write to the strings of argv, and keeps no pointer to them or to
                      * any other argument */
    KEEPS_ARGUMENTS = 128, /* leaves variables whose addresses it gets as they are: MPI_Init() */
    FAILS = 256,           /* LEAVES, but with a failure it ends all ranks (endings.h): exit() */
    COMPARES = 512         /* calls its last argument: qsort() */
};

struct library_function {
    const char *name;
    source result;
    unsigned effects;
    int out;          /* this argument is the address of a variable that it sets, or -1 */
    source set;       /* the value it sets there */
    int communicator; /* this argument is a communicator, or -1 */
};

/* Returns NULL if the function is not known. */
const library_function *find_library_function(llvm::StringRef name);

/* Arguments whose product is the size of the block that the function allocates; -1: none. Calls of
 * `collective` functions can be made collective. */
struct allocation_function {
    const char *name;
    int size, count;
    bool collective;
};

/* Returns NULL if the function does not allocate. */
const allocation_function *find_allocation_function(llvm::StringRef name);

/* MPI's basic types. */
struct mpi_type {
    const char *name;
    unsigned bytes;
};
constexpr mpi_type mpi_types[] = {{"MPI_CHAR", 1},          {"MPI_SIGNED_CHAR", 1},
                                  {"MPI_UNSIGNED_CHAR", 1}, {"MPI_BYTE", 1},
                                  {"MPI_SHORT", 2},         {"MPI_UNSIGNED_SHORT", 2},
                                  {"MPI_INT", 4},           {"MPI_UNSIGNED", 4},
                                  {"MPI_FLOAT", 4},         {"MPI_LONG", 8},
                                  {"MPI_UNSIGNED_LONG", 8}, {"MPI_LONG_LONG", 8},
                                  {"MPI_LONG_LONG_INT", 8}, {"MPI_UNSIGNED_LONG_LONG", 8},
                                  {"MPI_DOUBLE", 8}};

} // namespace rewrite

#endif
