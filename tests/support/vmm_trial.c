/* SPDX-License-Identifier: MIT
 *
 * The one kernel that there is: the library's trial of growth, by a thread with all lanes of a tile.
 */
#include "vmm_state.h"

#include "arena/growth_probe_tile.h"

#include <stdatomic.h>
#include <unistd.h>

static atomic_bool runs_alone; /* a kernel beside which nothing is mapped */

static void run(ga_growth_probe *probe)
{
    runs_alone = vmm.options.trial == VMM_TRIAL_ALONE;
    ga_growth_probe_run(ga_tile_of(GA_GROWTH_PROBE_LANES), probe);
    runs_alone = false;
}

void vmm_trial_begin(void)
{
    ga_growth_probe_set(vmm.options.trial == VMM_TRIAL_NONE ? NULL : run);
}

void vmm_trial_clear(void)
{
    ga_growth_probe_set(NULL);
}

void vmm_trial_wait(void)
{
    while (runs_alone) {
        usleep(1000);
    }
}
