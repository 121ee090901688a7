/* SPDX-License-Identifier: MIT
 *
 * The algorithm for any processor.
 */
#define OPS_NAME ga_slabhash_ops
#define OPS_TARGET
#include "ops.h"
