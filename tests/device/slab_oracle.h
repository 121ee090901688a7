/* SPDX-License-Identifier: MIT
 *
 * Scripts for a lone tile, and the CPU's results. For C and CUDA.
 */
#ifndef TESTS_DEVICE_SLAB_ORACLE_H
#define TESTS_DEVICE_SLAB_ORACLE_H

#include "slab_script.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct slab_plot {
    uint32_t unit, super_bits, supers;
    bool light;
    uint32_t filled; /* of 1000 units, the number claimed when the script begins */
    uint32_t seed;
    uint32_t count; /* steps */
} slab_plot;

/* A heap on the CPU, laid out as kernels have it, and the script it went through. */
typedef struct slab_oracle {
    slab_plot plot;
    ga_slab_heap heap;
    uint32_t *rows; /* of all superblocks, one after the other; now, and before the script */
    uint32_t *rows_before;
    uint32_t *counts; /* as they are in memory */
    uint32_t *counts_before;
    size_t rows_size, counts_size; /* bytes */
    slab_step *steps;
    uint32_t full;   /* claims that were answered FULL */
    uint32_t served; /* units served */
} slab_oracle;

/* Make a script up and play it; free with slab_oracle_free(). False where there is no memory. */
bool slab_oracle_make(slab_oracle *oracle, const slab_plot *plot);
void slab_oracle_free(slab_oracle *oracle);

const char *slab_step_name(uint32_t kind);

#ifdef __cplusplus
}
#endif

#endif
