/* SPDX-License-Identifier: MIT
 *
 * FHP and FHPA: shrinks by freeze nodes, and frees what no hazard pointer protects. Which of the
 * two is the domain's affair.
 */
#define LFHT_SHRINKS LFHT_FREEZES
#define LFHT_HAZARDS 1
#include "batch.h"

LFHT_VARIANT(ga_lfht_fhp, "FHP", true);
LFHT_VARIANT(ga_lfht_fhpa, "FHPA", false);
