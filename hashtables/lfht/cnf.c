/* SPDX-License-Identifier: MIT
 *
 * CNF: shrinks by counters; frees nothing before the map is closed.
 */
#define LFHT_SHRINKS LFHT_COUNTS
#define LFHT_HAZARDS 0 /* LFHT_NO_HAZARDS */
#include "batch.h"

LFHT_VARIANT(ga_lfht_cnf, "CNF", false);
