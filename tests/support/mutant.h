/* SPDX-License-Identifier: MIT
 *
 * The step of the algorithm under test that is weakened, in programs that are compiled for that:
 * with GA_..._MUTANT as this variable, where the library has 0. GA_MUTANT in the environment sets
 * it; without it no step is weakened. The numbers: tests/stress/meson.build,
 * tests/planted/meson.build.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_MUTANT_H
#define GPUALLOC_TESTS_SUPPORT_MUTANT_H

extern int ga_mutant; /* constant from before main() */

#endif
