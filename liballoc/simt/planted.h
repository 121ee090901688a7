/* SPDX-License-Identifier: MIT
 *
 * Planted bugs. GA_PLANTED(name) marks a place where a test breaks one rule of an algorithm, to
 * show that it detects this. The name begins with the room and says which rule is broken. The macro
 * is 0, also in #if, except in test programs, for which tests/support/planted.h defines it.
 * `scripts/planted-bugs` lists the names.
 */
#ifndef GPUALLOC_SIMT_PLANTED_H
#define GPUALLOC_SIMT_PLANTED_H

#ifndef GA_PLANTED
#define GA_PLANTED(name) 0
#endif

/* The memory order of an atomic, or relaxed order if the bug is planted. */
#define GA_PLANTED_ORDER(name, order) (GA_PLANTED(name) ? __ATOMIC_RELAXED : (order))

#endif
