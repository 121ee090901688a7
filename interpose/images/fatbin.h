/* SPDX-License-Identifier: MIT
 *
 * The entries of a fat binary.
 */
#ifndef GPUALLOC_INTERPOSE_IMAGES_FATBIN_H
#define GPUALLOC_INTERPOSE_IMAGES_FATBIN_H

#include "cubin_format.h"
#include "image.h"

#include <stdbool.h>

typedef struct ga_fatbin_entry {
    ga_fatbin_record record;
    ga_image payload; /* as stored: maybe compressed */
} ga_fatbin_entry;

/* Iterate: `*at` is 0 before the first call. False: there are no more entries, or the rest is
 * damaged; then `*at` is not the size of the fat binary. */
bool ga_fatbin_next(ga_fatbin_entry *out, ga_image fatbin, size_t *at);

/* The entry that the driver takes for a device of compute capability `sm` (90: 9.0), as CUDA's
 * documentation has the rules: machine code for the closest architecture, else the newest PTX.
 *
 * GA_ERR_UNSUPPORTED  damaged, or without an entry for the device
 */
ga_status ga_fatbin_choose(ga_fatbin_entry *out, ga_image fatbin, unsigned sm);

/* Whether the driver may find code for `sm` in it, also such as ga_fatbin_choose() refuses: of
 * another kind, or for another GPU with that major number. */
bool ga_fatbin_may_run(ga_image fatbin, unsigned sm);

/* A fat binary of this entry alone, with all its fields. `*owned` holds it: give it to
 * ga_libc.free().
 *
 * GA_ERR_MEMORY  no memory for it
 */
ga_status ga_fatbin_single(ga_image *out, void **owned, const ga_fatbin_entry *entry);

/* The fields of an entry in front of its payload, the options of the compiler among them. */
ga_image ga_fatbin_fields(const ga_fatbin_entry *entry);

/* The image in an entry. `*owned` is NULL, or memory that holds it: give it to ga_libc.free().
 *
 * GA_ERR_UNSUPPORTED  intermediate code, damaged, or compressed in a way that this build cannot
 *                     undo
 * GA_ERR_MEMORY       no memory to decompress to
 */
ga_status ga_fatbin_unpack(ga_image *out, void **owned, const ga_fatbin_entry *entry);

#endif
