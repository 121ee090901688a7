/* SPDX-License-Identifier: MIT
 *
 * Facts for results: the machine, the commit, the date, and resident memory.
 */
#ifndef BENCH_RUNNER_MACHINE_H
#define BENCH_RUNNER_MACHINE_H

#include <stddef.h>

/* The processor's full name. Static. Not thread safe. */
const char *ga_bench_processor(void);

/* Processors that this process may run on. */
unsigned ga_bench_cores(void);

/* The commit that was built, as `git describe` names it, or "unknown". */
const char *ga_bench_commit(void);

/* Now, in UTC: 2026-11-21T09:30:00Z. */
typedef struct ga_bench_date {
    char text[32];
} ga_bench_date;
ga_bench_date ga_bench_today(void);

/* Resident bytes of this process; 0 if the system does not report them. */
size_t ga_bench_resident(void);

#endif
