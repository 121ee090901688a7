/* SPDX-License-Identifier: MIT
 *
 * The litmus tests' bodies on the host.
 */
#include "simt_host.h"

void simt_host_messages(litmus_cell *cells, litmus_edge edge, bool writes, uint32_t count,
                        uint32_t patience, litmus_result *result)
{
    uint32_t missed = 0;
    for (uint32_t index = 0; index < count && missed < LITMUS_GIVE_UP; index++) {
        if (!litmus_message_system(cells, edge, writes, index, patience, result)) {
            missed++;
        }
    }
}

uint32_t simt_host_turns(litmus_cell *cell, uint32_t first, uint32_t turns, uint32_t patience,
                         litmus_result *result)
{
    return litmus_turns_system(cell, first, turns, patience, result);
}

uint32_t simt_host_own(uint32_t *bitmap, litmus_cell *slots, uint32_t count, uint32_t attempts,
                       litmus_result *result)
{
    uint32_t owned = 0;
    for (uint32_t i = 0; i < attempts; i++) {
        uint32_t slot = ga_bits_mix(~i) % count;
        owned += litmus_own_system(bitmap, slots, slot, true, result) ? 1u : 0u;
    }
    return owned;
}
