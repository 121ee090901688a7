/* SPDX-License-Identifier: MIT
 *
 * The functions of malloc's family that return aligned blocks, over the malloc of the library that
 * is preloaded behind this one: for libraries that misalign some blocks or lack some of these
 * functions. `gpualloc run` preloads both. The other calls of malloc's family go to that library
 * directly.
 */
#include "../malloc/aligned.h"
#include "library.h"

void *ga_aligned_alloc(size_t align, size_t size)
{
    const ga_align_library *behind = ga_align_behind();
    return ga_dl_aligned(behind->memalign, behind->free, align, size);
}
