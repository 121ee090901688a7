/* SPDX-License-Identifier: MIT
 *
 * What a trace with call stacks tells about the places that allocate: leaks, folded stacks, and the
 * places with the most memory.
 */
#ifndef INTERPOSE_CLI_STACK_REPORT_H
#define INTERPOSE_CLI_STACK_REPORT_H

#include "../../liballoc/backends/trace/reader.h"

#include <stdio.h>

typedef enum ga_stack_form {
    GA_STACK_LEAKS,
    GA_STACK_FOLDED,
    GA_STACK_TOP
} ga_stack_form;

/* A figure to fold: bytes or blocks requested, or bytes live at the peak or never freed. */
typedef enum ga_fold {
    GA_FOLD_BYTES,
    GA_FOLD_BLOCKS,
    GA_FOLD_PEAK,
    GA_FOLD_LEAKS,
    GA_FOLD_COUNT
} ga_fold;

typedef struct ga_stack_request {
    ga_stack_form form;
    ga_fold fold;           /* of GA_STACK_FOLDED */
    unsigned count;         /* of GA_STACK_TOP: places of each list */
    const char *symbolizer; /* as ga_symbols has it */
    uint64_t file_bytes;    /* for the progress line; 0: unknown */
} ga_stack_request;

/* Read the trace to its end and print the report. *damaged is set to the number of definitions of
 * stacks and modules that are not complete in the file. GA_ERR_UNSUPPORTED: the trace has no call
 * stacks. GA_ERR_MEMORY: it does not fit into memory. */
ga_status ga_stack_report(FILE *stream, ga_trace_reader *reader, const ga_stack_request *request,
                          uint64_t *damaged);

#endif
