/* SPDX-License-Identifier: MIT
 *
 * The stubs of the CUDA preload, for all architectures: see images_nvcc.c.
 */
#include "../../interpose/kernel/stubs.cuh"
