/* SPDX-License-Identifier: MIT
 *
 * The kernel that completes moves of tables that grow while kernels run. Launched by grow_host.cuh;
 * docs/internals/slabhash-growth.md.
 */
#ifndef GPUALLOC_SLABHASH_KERNEL_GROWTH_GROW_KERNEL_CUH
#define GPUALLOC_SLABHASH_KERNEL_GROWTH_GROW_KERNEL_CUH

#include "../device/batch_kernel.cuh"

enum {
    GA_SLABHASH_BACK_STEPS = 16 /* the most steps of freeing that a tile does */
};

/* Complete the moves that kernels have begun: clear all parts of an array that is being made, or
 * open all buckets of one that is there (`opens`). Buckets that find no slab stay as they are. Then
 * each tile does some steps of freeing older arrays, outside of all epochs. */
template <uint32_t kind, bool opens>
static __global__ void __launch_bounds__(GA_SLABHASH_BLOCK)
    ga_slabhash_settle_kernel(ga_slabhash_view table)
{
    ga_slabhash_session session = ga_slabhash_session_of<kind>(table);
    ga_slabhash_growing *growing = table.growing;
    if (!opens) {
        while (ga_slabhash_clear_some(growing, session.tile)) {
        }
    } else if (session.next_rows) {
        ga_slabhash_shift shift = ga_slabhash_shift_of(table, growing, &session);
        uint32_t opened = 0;
        for (uint64_t group = ga_slabhash_grid_tile(); group < ga_slabhash_groups(shift);
             group += ga_slabhash_grid_tiles()) {
            opened += ga_slabhash_open_from(kind, shift, session.tile, &session.claimed, group, 1u);
        }
        ga_slabhash_note_opened(growing, session.tile, &session, opened);
    }
    ga_slabhash_session_end(&session);
    uint32_t steps = GA_SLABHASH_BACK_STEPS;
    while (steps && ga_slabhash_give_some(table.heap, growing, session.tile)) {
        steps--;
    }
}

#endif
