/* SPDX-License-Identifier: MIT
 *
 * A query about the thread's error sentence for the library itself; ga_fail() and ga_error_text()
 * are in the public headers.
 */
#ifndef GPUALLOC_PLATFORM_ERROR_H
#define GPUALLOC_PLATFORM_ERROR_H

/* The number of error sentences that this thread has set. If it is the same after a failure, the
 * failing code set none here. */
unsigned ga_error_count(void);

#endif
