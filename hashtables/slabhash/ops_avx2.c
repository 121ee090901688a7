/* SPDX-License-Identifier: MIT
 *
 * The same for processors with AVX2, where a slab is compared with a key in four steps. Not under
 * sanitizers, which have enough to do with the other.
 */
#include "table.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define OPS_SANITIZED
#endif
#if defined __x86_64__ && !defined __AVX2__ && !defined OPS_SANITIZED && !GA_SLABHASH_MUTANT
#define OPS_NAME   ga_slabhash_ops_avx2
#define OPS_TARGET __attribute__((target("avx2,popcnt,bmi")))
#include "ops.h"
#else
const slabhash_ops *const ga_slabhash_ops_avx2[GA_SLABHASH_KINDS] = {NULL};
#endif
