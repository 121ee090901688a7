/* SPDX-License-Identifier: MIT
 *
 * A cubin: which functions of CUDA it calls, and a patch that makes it call others.
 *
 * A final cubin (one that the driver loads without a linker) keeps `malloc` and `free` as undefined
 * functions. Each call is one of
 *
 *   LDC.64 R2, c[0x4][N]; CALL.ABS R2    compiled as a whole: a relocation of 64 bits against
 *                                        `malloc` in the section .nv.constant4
 *   CALL.ABS malloc                      linked by nvlink (-rdc=true), or compiled with -G: a
 *                                        relocation in the instruction
 *
 * The patch writes the absolute address of another function to these places and removes the
 * relocations. The driver would refuse them as they are with another type. All other relocations
 * stay, as those of vprintf and __assertfail.
 *
 * Kernels whose parameters are at another offset than the callee's kernels expect are refused:
 * their constant bank 0 has another layout.
 *
 * The driver then no longer knows the callee, so the patch also raises the registers and stacks of
 * all kernels to what the callee needs. 32 registers cost no occupancy: a multiprocessor has 65536
 * for at most 2048 threads.
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
} ga_cubin;

typedef struct ga_cubin_section {
    Elf64_Shdr header;
    const char *name;
    ga_image content;
} ga_cubin_section;

/* The functions to call instead of CUDA's. */
typedef struct ga_cubin_callee {
    uint64_t addresses[GA_CALLS_COUNT]; /* by the bit's number in GA_CALLS_* */
    uint32_t registers;                 /* that a kernel needs which calls them */
    uint32_t stack;                     /* bytes that they need */
    uint32_t recursion;  /* bytes of stack of a kernel whose stack is not known, because it calls
                         * itself: the limit of the context, and `stack` */
    uint32_t parameters; /* offset of a kernel's parameters in constant bank 0. Below are values of
                          * the driver, which the functions read */
} ga_cubin_callee;

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

/* Patch the cubin in place: `bytes` is its image, writable. If this fails, the bytes are of no use.
 *
 * GA_ERR_UNSUPPORTED  relocatable, or a relocation, instruction or attribute that is not
 *                     understood
 */
ga_status ga_cubin_patch(const ga_cubin *cubin, uint8_t *bytes, const ga_cubin_callee *callee);

/* Numbers to put into code as constants. Code that reads them takes the address of a variable of
 * that name, which has no other use. */
typedef struct ga_cubin_words {
    const char *const *names;
    const uint64_t *values;
    size_t count;
} ga_cubin_words;

/* Write the numbers into the instructions, in place as ga_cubin_patch(), and remove the relocations
 * against the variables.
 *
 * GA_ERR_UNSUPPORTED  damaged, or an instruction that takes an address in another way
 */
ga_status ga_cubin_write_words(const ga_cubin *cubin, uint8_t *bytes, const ga_cubin_words *words);

/* Set the members of `out` that say what a kernel needs, with all functions that it calls.
 *
 * GA_ERR_UNSUPPORTED  there is no such kernel with parameters, or its stack is not known
 */
ga_status ga_cubin_needs(const ga_cubin *cubin, const char *kernel, ga_cubin_callee *out);

#endif
