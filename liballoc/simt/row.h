/* SPDX-License-Identifier: MIT
 *
 * Rows and tiles of the side that is compiled, and functions made of others.
 */
#ifndef GPUALLOC_SIMT_ROW_H
#define GPUALLOC_SIMT_ROW_H

#ifdef __CUDACC__
#include "row_gpu.h"
#else
#include "row_cpu.h"
#endif

/* The mask of the words that are not `key`. */
GA_SIMT uint32_t ga_row_differ(ga_tile tile, ga_row row, uint32_t key)
{
    return ~ga_row_match(tile, row, key);
}

#endif
