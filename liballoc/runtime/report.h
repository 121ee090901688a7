/* SPDX-License-Identifier: MIT
 *
 * Reports of statistics to the destination that GPUALLOC_STATS names, when a heap closes and when
 * the process exits. All functions are thread safe.
 */
#ifndef GPUALLOC_RUNTIME_REPORT_H
#define GPUALLOC_RUNTIME_REPORT_H

#include "../platform/text.h"
#include "heap.h"

/* Whether GPUALLOC_STATS requests reports, and GPUALLOC_STATS_PID, if set, names this process. The
 * first call reads the variables; the first heap to be opened makes it at the latest. */
bool ga_report_wanted(void);

/* Append a report to `text`: whole lines, JSON if `json`. Called twice; the first call measures. */
typedef void ga_report_compose(ga_text *text, bool json, const void *context);

/* Write the report that `compose` makes, if reports are requested. Calls no malloc. */
void ga_report_composed(ga_report_compose *compose, const void *context);

/* Append the beginning of a report: "gpualloc: " and `subject` with the program and the process, or
 * the first members of a JSON object. */
void ga_report_head(ga_text *text, const char *subject);
void ga_report_json_head(ga_text *text, ga_place place);

/* Report on one heap, if requested. */
void ga_report(const ga_heap *heap);

/* Report, if requested, that in-kernel malloc of a module is CUDA's own although the program was
 * linked to replace it. */
void ga_report_unreplaced(int device);

/* If reports are requested, register once that heaps which are open at exit are reported then. */
void ga_report_when_exiting(void);

#endif
