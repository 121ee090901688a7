/* SPDX-License-Identifier: MIT
 *
 * The actions of one tile, for the CPU and the GPU: some of its lanes allocate together, then free
 * step by step. The headers of live payloads show the rest.
 */
#ifndef TESTS_DEVICE_COALESCE_ORACLE_H
#define TESTS_DEVICE_COALESCE_ORACLE_H

#include <stdint.h>

enum {
    COALESCE_STEPS = 8
};

typedef struct coalesce_script {
    uint32_t form;    /* GA_COALESCE_AUTO ..., a form with headers */
    uint32_t wanting; /* not empty */
    uint64_t sizes[32];
    uint32_t
        giving[COALESCE_STEPS]; /* lanes that free their payloads; each once, and all but one */
} coalesce_script;

typedef struct coalesce_outcome {
    uint64_t place[32]; /* from the first payload */
    uint64_t headers[COALESCE_STEPS + 1][32];
} coalesce_outcome;

/* A script of chance. */
void coalesce_make_script(uint64_t *seed, coalesce_script *script);

/* The CPU's outcome. */
void coalesce_expect(const coalesce_script *script, coalesce_outcome *outcome);

#endif
