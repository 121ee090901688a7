/* SPDX-License-Identifier: MIT
 *
 * A bin: all runs of one size class in one arena, with the lock that guards them.
 *
 * STRUCTURE  a range of reserved addresses holds run, guard, run, guard, ... Metadata is elsewhere:
 *            a table with an entry for each run, in a mapping with unreadable pages around it.
 * INVARIANT  a slot is free, live or in quarantine. Free and quarantined slots that were live once
 *            hold zeros only. A run is on the list of partial runs if and only if it has a free
 *            slot and one that is not.
 * PROGRESS   one mutex a bin; a thread uses the bins of one arena, chosen by its id.
 *
 * Slots and guards follow hardened_malloc's design (GrapheneOS): out-of-line bitmaps, a quarantine
 * of a random part and a queue, canaries, zero on free.
 */
#ifndef GPUALLOC_HARDENED_BIN_H
#define GPUALLOC_HARDENED_BIN_H

#include "classes.h"
#include "misuse.h"
#include "random.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    GA_HARDENED_WORDS = GA_HARDENED_SLOTS / 64,
    GA_HARDENED_NO_RUN = UINT32_MAX
};

typedef enum ga_hardened_run_state {
    GA_HARDENED_RESERVED = 0, /* never used */
    GA_HARDENED_COMMITTED,
    GA_HARDENED_PURGED /* was used; its pages are the kernel's again */
} ga_hardened_run_state;

typedef struct ga_hardened_run {
    uint64_t taken[GA_HARDENED_WORDS]; /* live or in quarantine; bits past the last slot set */
    uint64_t quarantined[GA_HARDENED_WORDS]; /* a subset of `taken` */
    uint64_t used[GA_HARDENED_WORDS];        /* was live since the run was committed */
    uint64_t canary;
    uint32_t previous, next; /* on one of the bin's lists */
    uint16_t taken_count;
    uint8_t state; /* ga_hardened_run_state */
    bool guarded;
    uint32_t unused; /* makes it 128 bytes */
} ga_hardened_run;

/* Runs in a row, by index. */
typedef struct ga_hardened_runs {
    uint32_t first, last;
} ga_hardened_runs;

/* Shared by all bins of a heap. */
typedef struct ga_hardened_limits {
    int64_t guards_left; /* guards that may still be made: each costs the process two mappings */
} ga_hardened_limits;

typedef struct ga_hardened_bin {
    pthread_mutex_t lock;
    const ga_hardened_class *class;
    ga_hardened_limits *limits;
    uint8_t *base; /* of run 0 */
    uint8_t *table_base;
    size_t table_committed; /* bytes from table_base on */
    ga_hardened_run *runs;
    uint32_t runs_used; /* runs below this index have been committed once */
    uint32_t runs_max;
    ga_hardened_runs partial;
    ga_hardened_runs empty;  /* committed, all slots free: kept for the next request */
    ga_hardened_runs purged; /* reused in order, the oldest first */
    uint32_t empty_count;
    /* The quarantine: a slot goes into a random place of `random_part`, and the slot that was there
     * goes into the queue. Each has `quarantine` places. */
    uint32_t quarantine;
    uint32_t queue_next;
    uint64_t *random_part;
    uint64_t *queue;
    ga_hardened_random random;
    uint64_t live;      /* blocks */
    uint64_t committed; /* runs */
    uint64_t commits;   /* times a run was committed */
} ga_hardened_bin;

/* Bytes of table that a bin of `address_bytes` needs. */
size_t ga_hardened_bin_table(const ga_hardened_class *class, size_t address_bytes);

/* Set up a bin over reserved addresses and a reserved table; commits nothing. */
void ga_hardened_bin_open(ga_hardened_bin *bin, const ga_hardened_class *class,
                          ga_hardened_limits *limits, uint8_t *addresses, size_t address_bytes,
                          uint8_t *table);

/* A block of zeros, aligned as its class says; NULL where memory or addresses are used up. Ends the
 * program if the slot was written to while it was free; `call` is named then. */
void *ga_hardened_bin_alloc(ga_hardened_bin *bin, const char *call);

/* Clear the block and put it into quarantine; it is not handed out again before others have
 * followed it. Anything but GA_HARDENED_FINE: nothing was done. */
ga_hardened_misuse ga_hardened_bin_free(ga_hardened_bin *bin, void *block);

/* Whether a live block begins at `block`. */
ga_hardened_misuse ga_hardened_bin_check(ga_hardened_bin *bin, const void *block);

/* Give the pages of empty runs back to the kernel. */
void ga_hardened_bin_purge(ga_hardened_bin *bin);

#endif
