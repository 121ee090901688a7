/* SPDX-License-Identifier: MIT
 *
 * A cubin: which functions of CUDA it calls, and a copy in which these are functions of ours.
 *
 * A final cubin (one that the driver loads without a linker) keeps `malloc` and `free` as undefined
 * functions. Each call is one of
 *
 *   LDC.64 R2, c[0x4][N]; CALL.ABS R2    compiled as a whole: a relocation of 64 bits against
 *                                        `malloc` in the section .nv.constant4
 *   CALL.ABS malloc                      linked by nvlink (-rdc=true), or compiled with -G: a
 *                                        relocation in the instruction
 *
 * ga_cubin_serve() defines these functions: by stubs, which call the address that a variable has.
 * Relocations of the program's code stay as they are. So the driver puts stubs and variable into
 * each context in which it loads the code, and the address can be another one in each. Code that
 * was compiled as a whole then reads addresses from a copy of .nv.constant4, in which those of our
 * functions are written, too, and calls them without a stub.
 *
 * Kernels whose parameters are at another offset than the callee's kernels expect are refused:
 * their constant bank 0 has another layout.
 *
 * The driver does not know the callee, so the registers and stacks of all kernels are raised, too,
 * to what the callee needs. 32 registers cost no occupancy: a multiprocessor has 65536 for at most
 * 2048 threads.
 */
#ifndef GPUALLOC_INTERPOSE_IMAGES_CUBIN_H
#define GPUALLOC_INTERPOSE_IMAGES_CUBIN_H

#include "cubin_format.h"
#include "image.h"

#include <elf.h>
#include <stdbool.h>

typedef struct ga_cubin {
    ga_image image;
    unsigned sm;   /* 90: compute capability 9.0 */
    bool is_final; /* no linker has to see it before the driver loads it */
    size_t section_count;
    uint64_t sections; /* their table's offset */
    ga_image names;    /* of sections */
    ga_image symbols, strings;
    size_t names_index, symbols_index, strings_index; /* of these sections */
} ga_cubin;

typedef struct ga_cubin_section {
    Elf64_Shdr header;
    const char *name;
    ga_image content;
} ga_cubin_section;

/* The needs of a kernel that calls our functions. */
typedef struct ga_cubin_needs {
    uint32_t registers;
    uint32_t stack;      /* bytes */
    uint32_t recursion;  /* bytes of stack of a kernel whose stack is not known, because it calls
                          * itself: the limit of the context, and `stack` */
    uint32_t parameters; /* offset of a kernel's parameters in constant bank 0. Below are values of
                          * the driver, which the functions read */
} ga_cubin_needs;

/* The stubs, in the order of GA_CALLS_*, and a function that gives NULL instead. */
#define GA_CUBIN_STUBS                                                                             \
    {                                                                                              \
        "gpualloc_call_malloc", "gpualloc_call_free", "gpualloc_call_malloc_aligned"               \
    }
#define GA_CUBIN_NONE "gpualloc_call_none"

/* The variable of the stubs, a constant. The driver writes the address of GA_CUBIN_NONE into each
 * word. */
#define GA_CUBIN_VARIABLE "gpualloc_calls"

typedef struct ga_cubin_variable {
    uint64_t functions[GA_CALLS_COUNT]; /* the address of each function, of the stub's type */
    uint64_t none;                      /* stays as it is */
} ga_cubin_variable;

/* Where kernels that were compiled as a whole find the address of each function, without its stub.
 * A function that has no such calls has its word of the variable there. No name ends as CUDA's do,
 * because a damaged symbol may have its name in the middle of one. */
#define GA_CUBIN_SLOTS                                                                             \
    {                                                                                              \
        "gpualloc_malloc_slot", "gpualloc_free_slot", "gpualloc_malloc_aligned_slot"               \
    }

/* In stubs, the address of this variable stands for the offset of the other in constant bank 3. */
#define GA_CUBIN_OFFSET "gpualloc_offset"

/* Check the tables of sections and symbols. The image must outlive `out`.
 *
 * GA_ERR_UNSUPPORTED  not a cubin, of an unknown version, or damaged
 */
ga_status ga_cubin_open(ga_cubin *out, ga_image image);

/* The section at `index`, which is less than section_count. False: its name or its content is not
 * within the image. */
bool ga_cubin_section_at(const ga_cubin *cubin, size_t index, ga_cubin_section *out);

/* The functions of GA_CALLS_* that the cubin calls without defining them. */
unsigned ga_cubin_calls(const ga_cubin *cubin);

/* A copy in which CUDA's functions are those of `stubs`, a final cubin for the same architecture
 * that has them. `*owned` holds the copy: give it to ga_libc.free().
 *
 * GA_ERR_UNSUPPORTED  relocatable, or a section or attribute that is not understood
 * GA_ERR_MEMORY       no memory for the copy
 */
ga_status ga_cubin_serve(ga_image *out, void **owned, const ga_cubin *cubin, const ga_cubin *stubs,
                         const ga_cubin_needs *needs);

/* Raise the registers and stacks of all kernels, in place: `bytes` is the cubin's image, writable.
 * If this fails, the bytes are of no use.
 *
 * GA_ERR_UNSUPPORTED  an attribute that is not understood, or parameters at another offset
 */
ga_status ga_cubin_raise_needs(const ga_cubin *cubin, uint8_t *bytes, const ga_cubin_needs *needs);

/* Numbers to put into code as constants. Code that reads them takes the address of a variable of
 * that name, which has no other use. */
typedef struct ga_cubin_words {
    const char *const *names;
    const uint64_t *values;
    size_t count;
} ga_cubin_words;

/* Write the numbers into the instructions, in place as above, and remove the relocations against
 * the variables.
 *
 * GA_ERR_UNSUPPORTED  damaged, or an instruction that takes an address in another way
 */
ga_status ga_cubin_write_words(const ga_cubin *cubin, uint8_t *bytes, const ga_cubin_words *words);

/* Set registers, stack and parameters of `out`: those of a kernel with all functions that it calls.
 *
 * GA_ERR_UNSUPPORTED  there is no such kernel with parameters, or its stack is not known
 */
ga_status ga_cubin_read_needs(const ga_cubin *cubin, const char *kernel, ga_cubin_needs *out);

#endif
