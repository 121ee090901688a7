/* SPDX-License-Identifier: MIT
 *
 * The algorithm for processors with AVX2, which compare a slab with a key in four steps. Not built
 * under sanitizers or with planted bugs: those test the portable code.
 */
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && !defined __AVX2__ &&           \
    !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ && !defined GA_SLABHASH_WEAKENED
/* Before any definition, because inlined functions must be compiled for the same target. O3
 * vectorises the loops that compare words. */
#pragma GCC target("avx2,popcnt,bmi")
#pragma GCC optimize("O3")
#define OPS_NAME ga_slabhash_ops_avx2
#include "ops.h"
#else
#include "table.h"
const slabhash_ops *const ga_slabhash_ops_avx2[GA_SLABHASH_KINDS] = {NULL};
#endif
