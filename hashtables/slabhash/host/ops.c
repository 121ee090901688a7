/* SPDX-License-Identifier: MIT
 *
 * The algorithm for any processor. ga_slabhash_ops has its function tables.
 */
#if defined __OPTIMIZE__ && !defined __clang__ && !defined __SANITIZE_ADDRESS__ &&                 \
    !defined __SANITIZE_THREAD__
#pragma GCC optimize("O3") /* vectorises the loops that compare words */
#endif
#define OPS_NAME ga_slabhash_ops
#include "ops.h"
