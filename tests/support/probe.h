/* SPDX-License-Identifier: MIT
 *
 * A backend that records its calls: tests register it, or copies of its table with members removed.
 * Its blocks come from the C library with their size in front, so that usable sizes are exactly the
 * requested ones; each block can grow in place by 64 bytes.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_PROBE_H
#define GPUALLOC_TESTS_SUPPORT_PROBE_H

#include <gpualloc/backend.h>

/* The number of calls of each member, and the process's live blocks; atomic if threads count. */
typedef struct probe_calls {
    int open, close;
    int alloc, free, realloc, zeroed, aligned, batch, grow, trim, retire, alloc_on, free_on;
    int each_live, stats;
    int fork_prepare, fork_parent, fork_child, thread_exit;
    int64_t live_blocks, live_bytes;
} probe_calls;

extern probe_calls probe;

/* In order, a letter for each event: o open, c close, p fork_prepare, P fork_parent, C fork_child.
 * The letter is followed by the heap's `tag` option. */
extern char probe_story[256];

/* Every member is there but each_live, retire and kernel_view. Options: tag (string), size, flag,
 * number (1 to 9), choice (red, green, blue), fail (bool: refuse to open). */
extern const ga_backend probe_backend;

/* The values that the last probe was opened with, and its parent. */
extern ga_value probe_values[6];
extern ga_heap *probe_parent;

enum {
    PROBE_TAG = 0,
    PROBE_SIZE,
    PROBE_FLAG,
    PROBE_NUMBER,
    PROBE_CHOICE,
    PROBE_FAIL
};

#endif
