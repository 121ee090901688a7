/* SPDX-License-Identifier: MIT
 *
 * The code of stubs, for a place in another cubin.
 */
#ifndef GPUALLOC_INTERPOSE_IMAGES_STUBS_H
#define GPUALLOC_INTERPOSE_IMAGES_STUBS_H

#include "cubin.h"

typedef struct ga_stub {
    ga_cubin_section section; /* its code, which begins with the stub */
    uint32_t section_index, symbol;
} ga_stub;

/* Find a function of GA_CUBIN_STUBS, or GA_CUBIN_NONE.
 *
 * GA_ERR_UNSUPPORTED  the cubin has none
 */
ga_status ga_stub_find(ga_stub *out, const ga_cubin *cubin, const char *name);

/* Finish `code`, a copy of the stub's code: for the variable at `offset` of constant bank 3, and
 * such that the function returns to the stub's caller. It needs no relocations then.
 *
 * GA_ERR_UNSUPPORTED  another form than that of interpose/kernel/stubs.cuh by ptxas
 */
ga_status ga_stub_finish(uint8_t *code, const ga_stub *stub, const ga_cubin *cubin,
                         uint32_t offset);

#endif
