/* SPDX-License-Identifier: MIT
 *
 * Reads trace files. From a damaged or cut file it returns every complete record, and reports the
 * damage. A reader is not thread safe.
 */
#ifndef GPUALLOC_TRACE_READER_H
#define GPUALLOC_TRACE_READER_H

#include "format.h"

#include <gpualloc/gpualloc.h>

typedef struct ga_trace_reader ga_trace_reader;

/* GA_ERR_IO: the file cannot be read, is not a trace, or has an inconsistent header. GA_ERR_ABI: it
 * has another version; ga_error_text() names both. The caller closes the reader; NULL is
 * ignored. */
ga_status ga_trace_reader_open(ga_trace_reader **out, const char *path);
void ga_trace_reader_close(ga_trace_reader *reader);

const ga_trace_header *ga_trace_reader_header(const ga_trace_reader *reader);

/* The next record in file order, or NULL after the last. Skips unwritten slots, and records with
 * values out of range, which are counted. A trace with call stacks has parts of definitions among
 * the records (GA_TRACE_STACK and further kinds; the record is then a ga_trace_part). The record is
 * valid until the next call. */
const ga_trace_record *ga_trace_reader_next(ga_trace_reader *reader);

/* Number of records skipped for values out of range, and bytes at the end that are not a complete
 * record. */
uint64_t ga_trace_reader_damaged(const ga_trace_reader *reader);
uint64_t ga_trace_reader_cut_bytes(const ga_trace_reader *reader);

/* Whether the file ended within its last chunk. Writers extend the file by complete chunks, so part
 * of it is lost then. */
bool ga_trace_reader_cut(const ga_trace_reader *reader);

#endif
