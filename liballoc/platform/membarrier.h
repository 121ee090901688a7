/* SPDX-License-Identifier: MIT
 *
 * membarrier(2): a fence in every thread of the process at once, for the price of a system call in
 * one. As a table of functions, so that tests can refuse it.
 */
#ifndef GPUALLOC_PLATFORM_MEMBARRIER_H
#define GPUALLOC_PLATFORM_MEMBARRIER_H

#include <stdbool.h>

typedef struct ga_membarrier_table {
    /* Tell the kernel that this process will; again in a forked child. False: it cannot. */
    bool (*enroll)(void);
    /* Every thread of the process that runs meanwhile has a full fence between the call and its
     * return; the calling one, too. False: refused, with errno. */
    bool (*issue)(void);
    /* The same by other means, for a process that is refused membarrier(2) after it was granted: the
     * kernel interrupts every processor that runs a thread of the process to take a right to a page
     * away. False: this machine does that without interrupts, or the kernel refuses. Slow. */
    bool (*interrupt)(void);
} ga_membarrier_table;

extern ga_membarrier_table ga_membarrier;

#endif
