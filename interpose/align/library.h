/* SPDX-License-Identifier: MIT
 *
 * The malloc library that is preloaded behind this one.
 */
#ifndef GPUALLOC_INTERPOSE_ALIGN_LIBRARY_H
#define GPUALLOC_INTERPOSE_ALIGN_LIBRARY_H

#include "../../liballoc/backends/native/dl_aligned.h"

#include <stdbool.h>

typedef struct ga_align_library {
    void *(*malloc)(size_t size);
    ga_dl_free *free;
    ga_dl_memalign *memalign;
    bool has_operators; /* it defines C++'s operator new */
} ga_align_library;

/* The next library that defines malloc, at worst the C library. Calls no other library, so that it
 * works from the first instruction on, in any thread and under any lock. */
const ga_align_library *ga_align_behind(void);

/* C++'s operator of that name, or another replacement if that library defines no operators. NULL if
 * there is none. */
void *ga_align_operator_behind(const char *name);

#endif
