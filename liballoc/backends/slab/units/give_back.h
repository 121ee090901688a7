/* SPDX-License-Identifier: MIT
 *
 * Free memory to the parent where no caller could handle a refusal.
 */
#ifndef GPUALLOC_SLAB_UNITS_GIVE_BACK_H
#define GPUALLOC_SLAB_UNITS_GIVE_BACK_H

#include "../../../platform/log.h"

#include <gpualloc/gpualloc.h>

/* NULL is ignored. If the parent refuses, it is asked once more; then the loss is logged. */
static inline void ga_slab_free_to_parent(ga_heap *parent, void *block)
{
    if (block && ga_free(parent, block) != GA_OK && ga_free(parent, block) != GA_OK) {
        ga_log(GA_LOG_WARN, "slab: a block of %zu bytes at %p is lost: %s",
               ga_usable_size(parent, block), block, ga_error_text());
    }
}

#endif
