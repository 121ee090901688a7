/* SPDX-License-Identifier: MIT
 *
 * The vocabulary that warp algorithms are written in, once for CPU and GPU (docs/simt.md).
 *
 *     row    128 bytes, 32 words of 32 bits, on a boundary of 128 bytes
 *     tile   whoever works on a row together: 4, 8, 16 or 32 lanes of a GPU warp, the lanes of a
 *            warp that happen to be present, or one CPU thread
 *     lanes  one 32-bit value for each lane of a tile. On the GPU a register; on the CPU a vector
 *            of 32, so that `if (lanes)` does not compile: what decides a branch must be uniform
 *     mask   32 bits, uniform over the tile: bit i stands for word i of a row, or for lane i
 *
 * Everything that is not a row or lanes is uniform: the same in each lane of the tile. All words
 * are collective (each lane of the tile calls them, together) but for those on bits, the atomics
 * and what stands inside GA_EACH_LANE.
 *
 *     bits.h             counting and choosing bits of one word
 *     atomic.h           atomics that state order and scope
 *     clock.h            time and sleep
 *     lanes_cpu.h        tiles and lanes on the CPU
 *     lanes_gpu.h        the same on the GPU
 *     row_cpu.h          rows on the CPU
 *     row_gpu.h          the same on the GPU
 *     row.h              the two, and words made of others
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
