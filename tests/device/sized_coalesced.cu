/* SPDX-License-Identifier: MIT
 *
 * Heaps of all sizes behind coalescing, as malloc in kernels has them by default: a warp that wants several
 * sizes has one block of all of them, which goes back when the last of them is free.
 */
#define GA_KERNEL_ONLY GA_KERNEL_KIND_COALESCE
#define GA_COALESCE_ONLY_SIZED
#include "serves_again.h"

static void coalesced_serves_again(int device)
{
    serves_again_under(device, "coalesce/");
}

extern const test_case slab_sized_coalesced_cases[] = {
    {"sized, coalesced: a large heap serves again", coalesced_serves_again},
};
extern const size_t slab_sized_coalesced_case_count =
    sizeof slab_sized_coalesced_cases / sizeof *slab_sized_coalesced_cases;
