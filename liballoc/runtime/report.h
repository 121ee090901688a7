/* SPDX-License-Identifier: MIT
 *
 * Statistics on paper: as GPUALLOC_STATS says, when a heap closes and when the process exits.
 */
#ifndef GPUALLOC_RUNTIME_REPORT_H
#define GPUALLOC_RUNTIME_REPORT_H

#include "../platform/text.h"
#include "heap.h"

/* Whether GPUALLOC_STATS asks for reports. It is read at the first call, which is at the latest when
 * the first heap is opened. */
bool ga_report_wanted(void);

/* Adds a report to `text`: whole lines, as JSON or else. Called twice, first to measure. */
typedef void ga_report_compose(ga_text *text, bool json, const void *context);

/* Report, if asked for, on what `compose` says. Calls no malloc. */
void ga_report_composed(ga_report_compose *compose, const void *context);

/* The beginning of each report: "gpualloc: WHAT" with the program and the process, and the first
 * members of a JSON object. */
void ga_report_head(ga_text *text, const char *what);
void ga_report_json_head(ga_text *text, ga_place place);

/* Report on one heap, if asked for. */
void ga_report(const ga_heap *heap);

/* Report, if asked for, that malloc in the kernels of a module is CUDA's own although the program was
 * linked to replace it. */
void ga_report_unreplaced(int device);

/* See to it, once, that heaps still open at exit are reported, if asked for. */
void ga_report_when_exiting(void);

#endif
