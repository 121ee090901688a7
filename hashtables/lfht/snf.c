/* SPDX-License-Identifier: MIT
 *
 * SNF: never shrinks, and frees nothing before it is closed.
 */
#define LFHT_SHRINKS LFHT_NEVER
#define LFHT_HAZARDS 0
#include "batch.h"

LFHT_VARIANT(ga_lfht_snf, "SNF", false);
