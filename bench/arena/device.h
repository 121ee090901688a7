/* SPDX-License-Identifier: MIT
 *
 * What bench-arena-device is made of: workloads of the runner, and the bars they are held to.
 */
#ifndef BENCH_ARENA_DEVICE_H
#define BENCH_ARENA_DEVICE_H

#include "../runner/suite.h"
#include "trace.h"

/* What the workloads read besides their case. Set before the first child starts; nobody writes it
 * afterwards. */
typedef struct arena_settings {
    uint64_t card;   /* bytes of the card that are used; 0: all that is free */
    uint64_t budget; /* most bytes that are live at once in the traces that are made */
    uint64_t seed;
    bool fill;        /* replays write to each block */
    const char *file; /* the trace of `replay-file` */
} arena_settings;

extern arena_settings arena_set;

extern const ga_bench_workload arena_warm;
extern const ga_bench_workload arena_brim;
extern const ga_bench_workload arena_holes;
extern const ga_bench_workload arena_replay_torch;
extern const ga_bench_workload arena_replay_rmm;
extern const ga_bench_workload arena_replay_file;

/* The trace of a workload above by its last word: torch, rmm or file. False with why. */
bool arena_trace_make(trace *t, const char *name, char why[TRACE_WHY]);

/* Make the driver's own stream-ordered allocator known as the backend `cudaMallocAsync`: its calls
 * and nothing around them. */
ga_status arena_driver_pool_register(void);

/* Print a line `bar: ... held` or `bar: ... missed` for each bar that the results are about, and
 * answer how many were missed. */
unsigned arena_bars_print(FILE *out, const ga_bench_results *results);

/* The program. */
int arena_device_main(int argc, char **argv);

#endif
