/* SPDX-License-Identifier: MIT
 *
 * SNF: never shrinks; frees nothing before the map is closed.
 */
#define LFHT_SHRINKS LFHT_NEVER
#define LFHT_HAZARDS 0 /* LFHT_NO_HAZARDS */
#include "batch.h"

LFHT_VARIANT(ga_lfht_snf, "SNF", false);
