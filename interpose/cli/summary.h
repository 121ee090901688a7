/* SPDX-License-Identifier: MIT
 *
 * The summary of a trace.
 */
#ifndef INTERPOSE_CLI_SUMMARY_H
#define INTERPOSE_CLI_SUMMARY_H

#include "../../liballoc/backends/trace/reader.h"

#include <stdio.h>

/* Read the trace to its end and print the summary. GA_ERR_MEMORY: the trace does not fit into
 * memory. `file_bytes` is for the progress line; 0: unknown. */
ga_status ga_summary_print(FILE *stream, ga_trace_reader *reader, uint64_t file_bytes);

/* "alloc", "free", ...; also used by the dump. */
const char *ga_trace_op_text(unsigned operation);

#endif
