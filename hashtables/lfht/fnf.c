/* SPDX-License-Identifier: MIT
 *
 * FNF: shrinks by freeze nodes, and frees nothing before it is closed.
 */
#define LFHT_SHRINKS LFHT_FREEZES
#define LFHT_HAZARDS 0
#include "batch.h"

LFHT_VARIANT(ga_lfht_fnf, "FNF", false);
