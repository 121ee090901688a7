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

/* Initialise with zeros, and `keeps_stacks` as ga_replay_each_live() needs it. */
typedef struct ga_replay {
    ga_replay_event *events;
    uint32_t *stacks; /* of each event, in the order of adding; NULL without `keeps_stacks` */
    size_t count, room;
    bool keeps_stacks;
} ga_replay;

/* Bytes are as requested. */
typedef struct ga_replay_result {
    uint64_t peak_bytes;
    uint64_t peak_blocks; /* live at that moment */
    uint64_t peak_ns;     /* when it was first reached */
    uint32_t peak_order;  /* the event of that time that reached it */
    uint64_t left_blocks, left_bytes;
    uint64_t unknown; /* frees and resizes of unknown blocks */
    uint64_t reused;  /* addresses allocated again without a recorded free */
} ga_replay_result;

/* Add a record. Records may come in any order, except that those of one thread with the same time
 * must be in order. False: out of memory. */
bool ga_replay_add(ga_replay *replay, const ga_trace_record *record);

/* Call once, after all records were added. */
void ga_replay_run(ga_replay *replay, ga_replay_result *out);

/* After ga_replay_run(): visit each block that was live at the peak, and each that was never freed,
 * with the stack of the request that made or last resized it. */
typedef enum ga_replay_moment {
    GA_REPLAY_PEAK,
    GA_REPLAY_END
} ga_replay_moment;

typedef void ga_replay_visit(void *context, ga_replay_moment moment, uint32_t stack,
                             uint64_t bytes);

void ga_replay_each_live(ga_replay *replay, const ga_replay_result *result, ga_replay_visit *visit,
                         void *context);

void ga_replay_clear(ga_replay *replay);

#endif
