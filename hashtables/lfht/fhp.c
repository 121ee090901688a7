/* SPDX-License-Identifier: MIT
 *
 * FHP and FHPA: shrink by freeze nodes; free removed nodes that no hazard pointer protects. The
 * two differ in the fences of their domain: sequentially consistent, or membarriers.
 */
#define LFHT_SHRINKS LFHT_FREEZES
#define LFHT_HAZARDS 1 /* LFHT_HAZARD_POINTERS */
#include "batch.h"

LFHT_VARIANT(ga_lfht_fhp, "FHP", true);
LFHT_VARIANT(ga_lfht_fhpa, "FHPA", false);
