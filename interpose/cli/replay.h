/* SPDX-License-Identifier: MIT
 *
 * A trace played again: what was live when, and what is left at its end.
 *
 * A pointer is one block, whatever heap it came from: the addresses of the host and of all
 * devices are one space.
 */
#ifndef INTERPOSE_CLI_REPLAY_H
#define INTERPOSE_CLI_REPLAY_H

#include "../../liballoc/trace/format.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct ga_replay_event ga_replay_event;

/* Begins as zeros. */
typedef struct ga_replay {
    ga_replay_event *events;
    size_t count, room;
} ga_replay;

/* Bytes are those asked for. */
typedef struct ga_replay_result {
    uint64_t peak_bytes;
    uint64_t peak_blocks; /* live at that moment */
    uint64_t peak_ns;     /* when it was first reached */
    uint64_t left_blocks, left_bytes;
    uint64_t unknown; /* frees and resizes of blocks that the trace does not know */
    uint64_t reused;  /* addresses handed out again although no free of them was recorded */
} ga_replay_result;

/* Take in a record; in any order, but that of one thread for records of the same nanosecond.
 * False where there is no memory for it. */
bool ga_replay_add(ga_replay *replay, const ga_trace_record *record);

/* Once, when all records are in. */
void ga_replay_run(ga_replay *replay, ga_replay_result *out);

void ga_replay_clear(ga_replay *replay);

#endif
