/* SPDX-License-Identifier: MIT
 *
 * The words of the vocabulary on the CPU.
 */
#include "simt_reference.h"

#include <string.h>

void simt_cpu_words(uint32_t width, simt_input *in, simt_output *out)
{
    memset(out, 0, sizeof *out);
    switch (width) {
    case 4:
        simt_words(ga_tile_of(4), false, in, out);
        break;
    case 8:
        simt_words(ga_tile_of(8), false, in, out);
        break;
    case 16:
        simt_words(ga_tile_of(16), false, in, out);
        break;
    default:
        simt_words(ga_tile_of(32), false, in, out);
        break;
    }
}

void simt_cpu_atomics(const simt_atomic_input *in, simt_atomic_output *out)
{
    memset(out, 0, sizeof *out);
    simt_atomics(in, out);
}
