/* SPDX-License-Identifier: MIT
 *
 * membarrier(2): a full fence in every thread of the process, for the price of a system call in one
 * thread. As a table of functions, so that tests can make it fail. Thread safe.
 */
#ifndef GPUALLOC_PLATFORM_MEMBARRIER_H
#define GPUALLOC_PLATFORM_MEMBARRIER_H

#include <stdbool.h>

typedef struct ga_membarrier_table {
    /* Announce to the kernel that this process will use it; a forked child has to announce it
     * again. False: the kernel refuses. */
    bool (*enroll)(void);
    /* Heavy fence: every running thread of the process, and the caller, executes a full fence
     * between the call and its return. False: refused, with errno. */
    bool (*issue)(void);
    /* Heavy fence by other means, for a process that is refused membarrier(2) after it was granted:
     * the kernel interrupts every processor that runs a thread of the process to revoke write
     * access to a page. False: this machine does that without interrupts, or the kernel refuses.
     * Slower than issue(). */
    bool (*interrupt)(void);
} ga_membarrier_table;

extern ga_membarrier_table ga_membarrier;

#endif
