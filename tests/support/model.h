/* SPDX-License-Identifier: MIT
 *
 * A heap against a model: a random script of allocations, resizes and frees, where every block must
 * be aligned, must not overlap others, and must keep its contents until it is freed.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_MODEL_H
#define GPUALLOC_TESTS_SUPPORT_MODEL_H

#include <gpualloc/gpualloc.h>

enum {
    MODEL_BLOCKS = 256
};

typedef struct model_block {
    unsigned char *start;
    size_t size;
    unsigned char fill;
} model_block;

typedef struct model {
    ga_heap *heap;
    bool touch; /* the blocks can be read and written here */
    uint64_t random;
    size_t largest;
    model_block blocks[MODEL_BLOCKS];
    char trouble[256]; /* the first error; "" if there is none */
} model;

void model_begin(model *m, ga_heap *heap, uint64_t seed, size_t largest);

/* Run `operations` operations. Returns false, with a sentence in `trouble`, if one failed. */
bool model_run(model *m, size_t operations);

/* Check and free everything that is left. */
bool model_end(model *m);

#endif
