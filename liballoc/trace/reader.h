/* SPDX-License-Identifier: MIT
 *
 * Reads trace files. A damaged or cut file gives every record that is whole, and says so.
 */
#ifndef GPUALLOC_TRACE_READER_H
#define GPUALLOC_TRACE_READER_H

#include "format.h"

#include <gpualloc/gpualloc.h>

typedef struct ga_trace_reader ga_trace_reader;

/* GA_ERR_IO: cannot be read, is no trace file, or its header contradicts itself. GA_ERR_ABI: made
 * by another version; the sentence in ga_error_text() names both. */
ga_status ga_trace_reader_open(ga_trace_reader **out, const char *path);
void ga_trace_reader_close(ga_trace_reader *reader);

const ga_trace_header *ga_trace_reader_header(const ga_trace_reader *reader);

/* The next record, in file order, or NULL after the last. Unwritten slots and records with values
 * out of range are passed over; the latter are counted. The record lives until the next call. */
const ga_trace_record *ga_trace_reader_next(ga_trace_reader *reader);

/* Records passed over because they make no sense, and bytes at the end that are no whole record. */
uint64_t ga_trace_reader_damaged(const ga_trace_reader *reader);
uint64_t ga_trace_reader_cut_bytes(const ga_trace_reader *reader);

/* Whether the file ended within its last chunk: writers make whole ones, so some of it is lost. */
bool ga_trace_reader_cut(const ga_trace_reader *reader);

#endif
