/* SPDX-License-Identifier: MIT
 *
 * The vocabulary of warp algorithms: one source compiles for CPU and GPU (docs/internals/simt.md).
 *
 *     row    128 bytes, 32 words of 32 bits, aligned to 128 bytes
 *     tile   the group that works on a row together: 4, 8, 16 or 32 lanes of a GPU warp, the lanes
 *            of a warp that happen to be present, or one CPU thread
 *     lanes  one 32-bit value for each lane of a tile. On the GPU a register; on the CPU a vector
 *            of 32, so that `if (lanes)` does not compile: a branch condition must be uniform
 *     mask   32 bits, uniform over the tile: bit i stands for word i of a row, or for lane i
 *
 * Every value that is not a row or lanes is uniform: equal in all lanes of the tile. All functions
 * are collective (all lanes of the tile call them together), except those on bits, the atomics and
 * those inside GA_EACH_LANE.
 *
 *     bits.h             counting and selecting bits of one word
 *     atomic.h           atomics that state order and scope
 *     clock.h            time and sleep
 *     lanes_cpu.h        tiles and lanes on the CPU
 *     lanes_gpu.h        tiles and lanes on the GPU
 *     row_cpu.h          rows on the CPU
 *     row_gpu.h          rows on the GPU
 *     row.h              the rows of the side that is compiled, and functions made of others
 *     share.h            warp-cooperative work sharing
 */
#ifndef GPUALLOC_SIMT_SIMT_H
#define GPUALLOC_SIMT_SIMT_H

#include "atomic.h"
#include "bits.h"
#include "clock.h"
#include "row.h"
#include "share.h"

#endif
