/* SPDX-License-Identifier: MIT
 *
 * A trace in figures.
 */
#ifndef INTERPOSE_CLI_SUMMARY_H
#define INTERPOSE_CLI_SUMMARY_H

#include "../../liballoc/trace/reader.h"

#include <stdio.h>

/* Reads the trace to its end and prints. GA_ERR_MEMORY where it does not fit into memory. The size
 * of the file is for the progress line; 0 where it is unknown. */
ga_status ga_summary_print(FILE *stream, ga_trace_reader *reader, uint64_t file_bytes);

/* "alloc", "free", ...; also for a line of the dump. */
const char *ga_trace_op_text(unsigned operation);

#endif
