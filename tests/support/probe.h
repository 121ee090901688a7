/* SPDX-License-Identifier: MIT
 *
 * A backend that tells what was called: tests register it, or copies of its table with members
 * taken away. Its blocks come from the C library with their size in front, so that usable sizes
 * are exactly what was asked for; each can grow by 64 bytes where it stands.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_PROBE_H
#define GPUALLOC_TESTS_SUPPORT_PROBE_H

#include <gpualloc/backend.h>

/* How often each member was called, and the process's live blocks; atomic where threads count. */
typedef struct probe_calls {
    int open, close;
    int alloc, free, realloc, zeroed, aligned, batch, grow, trim, retire, alloc_on, free_on;
    int each_live, stats;
    int fork_prepare, fork_parent, fork_child, thread_exit;
    int64_t live_blocks, live_bytes;
} probe_calls;

extern probe_calls probe;

/* In the order of their happening, a letter each: o open, c close, p fork_prepare, P fork_parent,
 * C fork_child. The letter is followed by the heap's `tag` option. */
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
