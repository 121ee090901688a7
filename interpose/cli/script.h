/* SPDX-License-Identifier: MIT
 *
 * A trace as a script that can be performed on any heap: blocks have numbers instead of addresses.
 * The records of one place and device make one script; the others are left out.
 */
#ifndef INTERPOSE_CLI_SCRIPT_H
#define INTERPOSE_CLI_SCRIPT_H

#include "../../liballoc/backends/trace/format.h"

#include <gpualloc/gpualloc.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct ga_script_op {
    uint64_t size;  /* bytes; 0 for a free */
    uint32_t block; /* its number */
    uint32_t turn;  /* how many operations on the block come before this one */
    uint32_t thread;
    uint8_t kind; /* GA_TRACE_ALLOC, _ZEROED, _REALLOC, _GROW or _FREE */
    uint8_t align_log2;
    bool in_order; /* in the order of a stream */
} ga_script_op;

typedef struct ga_script {
    ga_place place;
    ga_script_op *ops; /* in the order of time */
    uint32_t count;
    uint32_t *by_thread; /* indices of `ops`: thread i has those from begins[i] to begins[i + 1] */
    uint32_t *begins;
    unsigned threads;
    uint32_t blocks;     /* blocks have numbers below this */
    uint64_t peak_bytes; /* the most requested bytes live at once, in the order of time */
    uint64_t left_out;   /* frees and resizes of unknown blocks, and requests that failed */
    uint64_t elsewhere;  /* records of other places and devices */
} ga_script;

enum {
    GA_SCRIPT_THREADS_MAX = 1024
};

/* Read a trace. `place` is GA_PLACE_COUNT for the host if the trace has records of it, else for
 * devices. `threads` is the most threads to use, each for several of the trace; 0: as in the trace.
 * GA_ERR_IO, GA_ERR_ABI: as ga_trace_reader_open(). GA_ERR_ARGUMENT: the trace has no allocation of
 * the place. GA_ERR_MEMORY. */
ga_status ga_script_read(ga_script *out, const char *file, ga_place place, unsigned threads);
void ga_script_clear(ga_script *script);

#endif
