/* SPDX-License-Identifier: MIT
 *
 * Replays a trace: the live blocks over time, and those left at the end.
 *
 * A pointer identifies one block, whichever heap it is from, because the host and all devices share
 * one address space.
 */
#ifndef INTERPOSE_CLI_REPLAY_H
#define INTERPOSE_CLI_REPLAY_H

#include "../../liballoc/backends/trace/format.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct ga_replay_event ga_replay_event;

/* Initialise with zeros. */
typedef struct ga_replay {
    ga_replay_event *events;
    size_t count, room;
} ga_replay;

/* Bytes are as requested. */
typedef struct ga_replay_result {
    uint64_t peak_bytes;
    uint64_t peak_blocks; /* live at that moment */
    uint64_t peak_ns;     /* when it was first reached */
    uint64_t left_blocks, left_bytes;
    uint64_t unknown; /* frees and resizes of unknown blocks */
    uint64_t reused;  /* addresses allocated again without a recorded free */
} ga_replay_result;

/* Add a record. Records may come in any order, except that those of one thread with the same time
 * must be in order. False: out of memory. */
bool ga_replay_add(ga_replay *replay, const ga_trace_record *record);

/* Call once, after all records were added. */
void ga_replay_run(ga_replay *replay, ga_replay_result *out);

void ga_replay_clear(ga_replay *replay);

#endif
