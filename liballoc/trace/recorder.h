/* SPDX-License-Identifier: MIT
 *
 * Writes trace files (format.h).
 *
 * A record is in the page cache the moment it is noted: exit, exec, a crash or SIGKILL lose
 * nothing. Thread safe; after a fork the child goes on in a file of its own. Noting never blocks
 * but for a new chunk, once in 4096 records of a thread.
 */
#ifndef GPUALLOC_TRACE_RECORDER_H
#define GPUALLOC_TRACE_RECORDER_H

#include "format.h"

#include <gpualloc/gpualloc.h>

typedef struct ga_recorder ga_recorder;

/* Start a trace in `path`, or join the one this process writes there already. "%p" in the path
 * becomes the process id; where the file exists already, the id is appended instead.
 * GA_ERR_IO with the reason where it cannot be written. */
ga_status ga_recorder_open(ga_recorder **out, const char *path);
void ga_recorder_close(ga_recorder *recorder);

/* Nanoseconds since the trace began, for `time_ns`. */
uint64_t ga_recorder_now(const ga_recorder *recorder);

/* Append a record; its thread is filled in here. Where the disk is full the trace ends with one
 * message and the program goes on. */
void ga_recorder_note(ga_recorder *recorder, const ga_trace_record *record);

#endif
