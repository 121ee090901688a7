/* SPDX-License-Identifier: MIT
 *
 * The parts of bench-arena-device: workloads of the runner, and the bars that limit their results.
 */
#ifndef BENCH_ARENA_DEVICE_H
#define BENCH_ARENA_DEVICE_H

#include "../runner/suite.h"
#include "trace.h"

/* Settings that the workloads read beside their case. Set before the first child starts, constant
 * afterwards. */
typedef struct arena_settings {
    uint64_t card;   /* bytes of the card that are used; 0: all that is free */
    uint64_t budget; /* most live bytes in a generated trace */
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

/* Make the trace of a workload above by the last word of its name: torch, rmm or file. False with
 * the reason in `why`. */
bool arena_trace_make(trace *t, const char *name, char why[TRACE_WHY]);

/* Register the driver's own stream-ordered allocator as the backend `cudaMallocAsync`: its calls
 * alone. */
ga_status arena_driver_pool_register(void);

/* Print a line `bar: ... held` or `bar: ... missed` for each bar that applies to the results.
 * Returns the number of missed bars. */
unsigned arena_bars_print(FILE *out, const ga_bench_results *results);

/* The program. */
int arena_device_main(int argc, char **argv);

#endif
