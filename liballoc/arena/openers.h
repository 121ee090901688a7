/* SPDX-License-Identifier: MIT
 *
 * The count of the processes that have an arena open, as locks on bytes of an empty file in memory.
 * Each opening has an open file description of its own, which holds a lock on a byte of its own.
 * The kernel releases the lock with the description's last descriptor, however the process ends.
 * So the count needs no daemon and no living publisher: each process that has the file counts the
 * locks.
 *
 * Other means were not enough. A counter in shared memory stays too high after SIGKILL. A robust
 * mutex belongs to a thread, which may end before its process. An open connection for each opening
 * is counted by the publisher alone, until it ends, and costs it a descriptor.
 *
 * Functions set an error text without a prefix. Thread safe.
 */
#ifndef GPUALLOC_ARENA_OPENERS_H
#define GPUALLOC_ARENA_OPENERS_H

#include <gpualloc/arena.h>

typedef enum ga_opener {
    GA_OPENER_PUBLISHER,
    GA_OPENER_READER,
    GA_OPENER_WRITER
} ga_opener;

/* Create the file. The descriptor belongs to the publisher, and holds no lock yet. */
ga_status ga_openers_create(int *file);

/* Say that the arena is published from now on, or no longer. For the publisher's descriptor. */
ga_status ga_openers_publish(int file, bool published);

/* A descriptor for a new opening, which is counted from now on. `number` is another one for each
 * opening. GA_ERR_MEMORY: no descriptor. GA_ERR_UNSUPPORTED: there is no /proc. */
ga_status ga_openers_add(int file, ga_opener kind, uint64_t number, int *out);

/* Count by the descriptor of a `kind` of opening, which is counted, too. The publisher's does not
 * see that the arena is published. */
ga_status ga_openers_count(int file, ga_opener kind, ga_arena_openers *out);

/* Open the file of a descriptor again, for reading alone. Errors as ga_openers_add(). */
ga_status ga_openers_reopen(int file, int *out);

#endif
