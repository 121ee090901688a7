/* SPDX-License-Identifier: MIT
 *
 * CNF: shrinks by counters, and frees nothing before it is closed.
 */
#define LFHT_SHRINKS LFHT_COUNTS
#define LFHT_HAZARDS 0
#include "batch.h"

LFHT_VARIANT(ga_lfht_cnf, "CNF", false);
