/* SPDX-License-Identifier: MIT
 *
 * The host's side of the litmus tests, as the C compiler makes it. For C and CUDA.
 */
#ifndef TESTS_DEVICE_SIMT_HOST_H
#define TESTS_DEVICE_SIMT_HOST_H

#include "simt_litmus.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The messages 0 to `count` - 1 in order; stops after LITMUS_GIVE_UP that did not arrive. */
void simt_host_messages(litmus_cell *cells, litmus_edge edge, bool writes, uint32_t count,
                        uint32_t patience, litmus_result *result);

uint32_t simt_host_turns(litmus_cell *cell, uint32_t first, uint32_t turns, uint32_t patience,
                         litmus_result *result);

/* Own slots below `count`, `attempts` times; returns how often one was free. */
uint32_t simt_host_own(uint32_t *bitmap, litmus_cell *slots, uint32_t count, uint32_t attempts,
                       litmus_result *result);

#ifdef __cplusplus
}
#endif

#endif
