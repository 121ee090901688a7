/* SPDX-License-Identifier: MIT
 *
 * Stream captures, as far as a library sees them that does not intercept the program's calls: a
 * stream can be asked whether it captures, and a graph can say when it is destroyed.
 *
 * While any thread captures in global mode, the driver refuses calls that may wait to all threads,
 * and ends the capture. A thread in relaxed mode may make them. ga_cuda_enter() puts a thread into
 * that mode until ga_cuda_leave().
 *
 * Drivers before CUDA 11.3 lack some of the calls: for them no stream captures, and the driver
 * refuses calls that would wait. Thread safe.
 */
#ifndef GPUALLOC_PLATFORM_CUDA_CAPTURES_H
#define GPUALLOC_PLATFORM_CUDA_CAPTURES_H

#include "cuda_types.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ga_cuda_capture_state {
    GA_CUDA_CAPTURE_NONE = 0,
    GA_CUDA_CAPTURE_OWN,     /* the stream does */
    GA_CUDA_CAPTURE_IMPLICIT /* the legacy stream: a stream that waits for it does */
} ga_cuda_capture_state;

/* For the preload, which watches captures itself: nothing is asked and no mode is changed from now
 * on. Called while the process has one thread. */
void ga_cuda_captures_unwatch(void);

/* Whether captures can be seen: the driver is loaded and has the calls. */
bool ga_cuda_captures_watched(void);

/* Whether a stream captures. For the default streams (NULL, CU_STREAM_LEGACY,
 * CU_STREAM_PER_THREAD) those of the current context are meant. */
ga_cuda_capture_state ga_cuda_is_capturing(CUstream stream);

/* The capture of a stream: a number that no other capture of the process has. `destroyed(context)`
 * is called once, by a thread of the driver's and with no CUDA call allowed, when the graph and all
 * that was instantiated from it are destroyed and no launch of them runs any more. */
bool ga_cuda_capture_number(CUstream stream, uint64_t *number);
bool ga_cuda_capture_watch(CUstream stream, void (*destroyed)(void *context), void *context);

/* Put the thread into relaxed mode; the mode that it had, for ga_cuda_restore_mode(). */
int ga_cuda_relax_mode(void);
void ga_cuda_restore_mode(int mode);

#endif
