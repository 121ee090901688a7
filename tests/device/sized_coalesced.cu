/* SPDX-License-Identifier: MIT
 *
 * Size-class heaps behind coalescing, as malloc in kernels has by default: a warp that requests
 * several sizes gets one block for all of them, which is freed with the last of them.
 */
#define GA_KERNEL_ONLY GA_KERNEL_KIND_COALESCE
#define GA_COALESCE_ONLY_SIZED
#include "serves_again.h"

static void coalesced_serves_again(int device)
{
    serves_again_under(device, "coalesce/");
}

extern const test_case slab_sized_coalesced_cases[] = {
    {"size classes, coalesced: a large heap serves again", coalesced_serves_again},
};
extern const size_t slab_sized_coalesced_case_count =
    sizeof slab_sized_coalesced_cases / sizeof *slab_sized_coalesced_cases;
