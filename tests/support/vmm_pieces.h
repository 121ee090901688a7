/* SPDX-License-Identifier: MIT
 *
 * Copies lists of exported memory.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_VMM_PIECES_H
#define GPUALLOC_TESTS_SUPPORT_VMM_PIECES_H

#include "backends/vmm/share.h"

#include <fcntl.h>

/* Copy the pieces, with duplicated descriptors. */
static inline ga_status vmm_pieces_copy(const ga_vmm_pieces *from, ga_vmm_pieces *out)
{
    ga_status status = GA_OK;
    *out = (ga_vmm_pieces){0};
    for (size_t i = 0; status == GA_OK && i < from->count; i++) {
        status =
            ga_vmm_pieces_add(out, from->list[i].size, fcntl(from->list[i].fd, F_DUPFD_CLOEXEC, 0));
    }
    out->before = from->before;
    return status;
}

#endif
