/* SPDX-License-Identifier: MIT
 *
 * Performs a script on a heap, in a process of its own.
 */
#ifndef INTERPOSE_CLI_PERFORMANCE_H
#define INTERPOSE_CLI_PERFORMANCE_H

#include "runner/child.h"
#include "script.h"

/* In ga_bench_report.values. */
enum {
    GA_PERFORMANCE_SECONDS = 0, /* of a timed performance */
    GA_PERFORMANCE_PEAK = 0     /* of another: bytes of memory held at the peak */
};

/* Open a heap of the spec and perform the script, timed: each thread of the script is a thread,
 * which performs its operations without pauses, except that an operation waits for those on the
 * same block that come before it in the script. Blocks on the host are written to. Blocks that are
 * left are freed once the clock has stopped. */
void ga_performance_time(const ga_script *script, const char *spec, ga_bench_report *report);

/* Perform the script with one thread, in the order of time. On the host the peak is that of the
 * process's resident memory, less that before the heap was opened; on a device it is the heap's own
 * figure. */
void ga_performance_measure(const ga_script *script, const char *spec, ga_bench_report *report);

#endif
