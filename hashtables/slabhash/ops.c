/* SPDX-License-Identifier: MIT
 *
 * The algorithm for any processor.
 */
#if defined __OPTIMIZE__ && !defined __clang__ && !defined __SANITIZE_ADDRESS__ &&                 \
    !defined __SANITIZE_THREAD__
#pragma GCC optimize("O3") /* what compares words is made of loops */
#endif
#define OPS_NAME ga_slabhash_ops
#include "ops.h"
