/* SPDX-License-Identifier: MIT
 *
 * Memory of the parent's that goes back although nobody could handle a refusal.
 */
#ifndef GPUALLOC_SLAB_GIVE_BACK_H
#define GPUALLOC_SLAB_GIVE_BACK_H

#include "../platform/log.h"

#include <gpualloc/gpualloc.h>

/* NULL is ignored. A parent that refuses is asked twice; then the loss is logged. */
static inline void ga_slab_give_back(ga_heap *parent, void *block)
{
    if (block && ga_free(parent, block) != GA_OK && ga_free(parent, block) != GA_OK) {
        ga_log(GA_LOG_WARN, "slab: a block of %zu bytes at %p is lost: %s",
               ga_usable_size(parent, block), block, ga_error_text());
    }
}

#endif
