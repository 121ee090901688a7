/* SPDX-License-Identifier: MIT
 *
 * What the library itself asks about the thread's error sentence; ga_fail() and ga_error_text()
 * are in the public headers.
 */
#ifndef GPUALLOC_PLATFORM_ERROR_H
#define GPUALLOC_PLATFORM_ERROR_H

/* How many sentences this thread has had: unchanged after a failure, nobody gave a reason here. */
unsigned ga_error_count(void);

#endif
