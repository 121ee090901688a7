/* SPDX-License-Identifier: MIT
 *
 * Writes trace files (format.h).
 *
 * A thread keeps up to GA_RECORDER_BATCH - 1 records in a buffer. It writes them when there are
 * more, when 0.1 ms have passed since its last write, and when it ends, the heap is closed or the
 * process exits. A process that a signal, _exit() or exec() ends loses them; a batch of 1 loses
 * nothing.
 *
 * Thread safe. The child of fork(), _Fork() or clone() continues in a file of its own. No event of
 * the file ends the program: see ga_recorder_note().
 */
#ifndef GPUALLOC_TRACE_RECORDER_H
#define GPUALLOC_TRACE_RECORDER_H

#include "format.h"

#include <gpualloc/gpualloc.h>

enum {
    GA_RECORDER_BATCH = 128 /* records of a buffer */
};

typedef struct ga_recorder ga_recorder;

/* Start a trace in `path`, or join the one that this process already writes there. "%p" in the path
 * becomes the process id; if the file exists, the id is appended instead. A thread writes after
 * `batch` records, 1 to GA_RECORDER_BATCH; of two heaps that share a trace, the smaller value is
 * used. `depth`: frames of the call stacks to record, 0 to GA_TRACE_DEPTH_MAX; 0: none. GA_ERR_IO
 * if the file cannot be written, GA_ERR_ARGUMENT if a trace to join has another depth. Each open is
 * paired with one ga_recorder_close(). */
ga_status ga_recorder_open(ga_recorder **out, const char *path, unsigned batch, unsigned depth);

/* Write the records that threads have buffered. */
void ga_recorder_close(ga_recorder *recorder);

/* Nanoseconds since the start of the trace, for `time_ns`. */
uint64_t ga_recorder_now(const ga_recorder *recorder);

/* The id of the caller's call stack, for `stack`; 0 if the trace has none. Keeps errno. */
uint32_t ga_recorder_stack(ga_recorder *recorder, uint64_t now_ns);

/* Append a record; this call sets its thread. If the disk is full, the limit on file sizes is
 * reached, or another process has removed, replaced or truncated the file, the trace ends with one
 * log message and the program continues. Keeps errno. */
void ga_recorder_note(ga_recorder *recorder, const ga_trace_record *record);

/* The lock of all recorders, for the tables of call stacks. */
void ga_recorder_lock(void);
void ga_recorder_unlock(void);

#endif
