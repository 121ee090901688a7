/* SPDX-License-Identifier: MIT
 *
 * The same for processors with AVX2, where a slab is compared with a key in four steps. Not under
 * sanitizers, nor in programs with a weakened step, which have enough to do with the other.
 */
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && !defined __AVX2__ &&           \
    !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ && !defined GA_SLABHASH_MUTANT
/* Before anything is defined: what is inlined must have been compiled for it, too, and what
 * compares words is made of loops. */
#pragma GCC target("avx2,popcnt,bmi")
#pragma GCC optimize("O3")
#define OPS_NAME ga_slabhash_ops_avx2
#include "ops.h"
#else
#include "table.h"
const slabhash_ops *const ga_slabhash_ops_avx2[GA_SLABHASH_KINDS] = {NULL};
#endif
