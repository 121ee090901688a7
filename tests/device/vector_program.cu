/* SPDX-License-Identifier: MIT
 *
 * The parts of vector_tests in one translation unit, because nvcc takes 7 s to read Thrust in each.
 */
#include "vector_tests.cu" /* must be included first, as CCCL in it */

#include "vector_append.cu"
#include "vector_devices.cu"
#include "vector_processes.cu"
