/* SPDX-License-Identifier: MIT
 *
 * The attributes of functions in .nv.info, symbols and relocations: the parts of a cubin that its
 * reader and its writers share.
 */
#ifndef GPUALLOC_INTERPOSE_IMAGES_INFO_H
#define GPUALLOC_INTERPOSE_IMAGES_INFO_H

#include "cubin.h"

typedef struct ga_info_entry {
    unsigned attribute;
    bool is_number;       /* `symbol` and `number` are set */
    uint32_t symbol;      /* the function's index */
    uint32_t number;      /* registers, bytes of stack, or the place of parameters */
    size_t number_offset; /* of `number` in the section */
} ga_info_entry;

/* The section of attributes that name their function, and a section of those of one function, whose
 * name follows. */
#define GA_INFO_LOCAL ".nv.info."
bool ga_info_is_global(const ga_cubin_section *section);
bool ga_info_is_local(const ga_cubin_section *section);

/* Iterate: `*at` is 0 before the first call. False: there are no more entries, or the rest is
 * damaged; then `*at` is not the size of the section. */
bool ga_info_next(ga_info_entry *out, ga_image section, size_t *at);

/* The offset of parameters in constant bank 0, from a section of one kernel; 0: it has none. */
uint32_t ga_info_parameters(ga_image section);

/* False: no such symbol, or its name is not within the image. */
bool ga_cubin_symbol_at(const ga_cubin *cubin, uint64_t index, Elf64_Sym *out, const char **name);

/* The bit of the undefined function at `index`; 0: another symbol. */
unsigned ga_cubin_call_at(const ga_cubin *cubin, uint64_t index);

typedef struct ga_cubin_relocation {
    uint64_t offset, addend;
    uint32_t type, symbol;
} ga_cubin_relocation;

bool ga_cubin_has_relocations(const ga_cubin_section *section);

/* The section that `section` relocates, and the size of an entry.
 *
 * GA_ERR_UNSUPPORTED  damaged
 */
ga_status ga_cubin_relocates(const ga_cubin *cubin, const ga_cubin_section *section,
                             ga_cubin_section *target, size_t *step);

/* The entry at `offset`, which is within the section. */
ga_cubin_relocation ga_cubin_relocation_at(const ga_cubin_section *section, size_t offset);

#endif
