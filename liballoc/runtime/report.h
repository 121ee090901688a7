/* SPDX-License-Identifier: MIT
 *
 * Statistics on paper: as GPUALLOC_STATS says, when a heap closes and when the process exits.
 */
#ifndef GPUALLOC_RUNTIME_REPORT_H
#define GPUALLOC_RUNTIME_REPORT_H

#include "heap.h"

/* Whether GPUALLOC_STATS asks for reports. */
bool ga_report_wanted(void);

/* Report on one heap, if asked for. */
void ga_report(const ga_heap *heap);

/* Report, if asked for, that malloc in the kernels of a module is CUDA's own although the program was
 * linked to replace it. */
void ga_report_unreplaced(int device);

/* Report, if asked for, one of two texts, each of whole lines: for a file of JSON, or else. */
void ga_report_text(const char *plain, const char *json);

/* See to it, once, that heaps still open at exit are reported, if asked for. */
void ga_report_when_exiting(void);

#endif
