/* SPDX-License-Identifier: MIT
 *
 * FNF: shrinks by freeze nodes; frees nothing before the map is closed.
 */
#define LFHT_SHRINKS LFHT_FREEZES
#define LFHT_HAZARDS 0 /* LFHT_NO_HAZARDS */
#include "batch.h"

LFHT_VARIANT(ga_lfht_fnf, "FNF", false);
