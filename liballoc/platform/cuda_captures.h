/* SPDX-License-Identifier: MIT
 *
 * Stream captures, as seen by a library that does not intercept the program's calls: the driver
 * says whether a stream captures, and reports when a graph is destroyed.
 *
 * While any thread captures in global mode, the driver refuses calls that may wait to all threads,
 * and invalidates the capture. A thread in relaxed mode may make such calls. ga_cuda_enter() puts
 * the thread into that mode until ga_cuda_leave().
 *
 * Drivers before CUDA 11.3 do not have all of these functions. With them no stream seems to
 * capture, and the driver refuses calls that would wait. Thread safe.
 */
#ifndef GPUALLOC_PLATFORM_CUDA_CAPTURES_H
#define GPUALLOC_PLATFORM_CUDA_CAPTURES_H

#include "cuda_types.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ga_cuda_capture_state {
    GA_CUDA_CAPTURE_NONE = 0,
    GA_CUDA_CAPTURE_OWN,     /* the stream itself captures */
    GA_CUDA_CAPTURE_IMPLICIT /* asked of the legacy stream: a stream that waits for it captures */
} ga_cuda_capture_state;

/* For the preload, which watches captures itself: from now on this file queries no stream and
 * changes no mode. Called while the process has one thread. */
void ga_cuda_captures_unwatch(void);

/* Whether captures can be seen: the driver is loaded and has the functions. */
bool ga_cuda_captures_watched(void);

/* The capture state of a stream. Default streams (NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD) are
 * those of the current context. */
ga_cuda_capture_state ga_cuda_is_capturing(CUstream stream);

/* ga_cuda_capture_number(): a number that identifies the stream's capture within the process.
 * ga_cuda_capture_watch(): have `destroyed(context)` called once when the graph, and everything
 * instantiated from it, has been destroyed and no launch of it runs any more. A thread of the
 * driver calls it; it must not call CUDA. Both return false if the stream does not capture or the
 * driver refuses. */
bool ga_cuda_capture_number(CUstream stream, uint64_t *number);
bool ga_cuda_capture_watch(CUstream stream, void (*destroyed)(void *context), void *context);

/* Put the thread into relaxed capture mode. Returns the previous mode, for
 * ga_cuda_restore_mode(). */
int ga_cuda_relax_mode(void);
void ga_cuda_restore_mode(int mode);

#endif
