/* SPDX-License-Identifier: MIT
 *
 * The same for processors with AVX2, where a slab is compared with a key in four steps.
 */
#if defined __x86_64__ && !defined __AVX2__
#define OPS_NAME   ga_slabhash_ops_avx2
#define OPS_TARGET __attribute__((target("avx2,popcnt,bmi")))
#include "ops.h"
#else
#include "table.h"
const slabhash_ops *const ga_slabhash_ops_avx2[GA_SLABHASH_KINDS] = {NULL};
#endif
