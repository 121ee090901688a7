/* SPDX-License-Identifier: MIT
 *
 * The workloads of the device; each is described where it is defined.
 */
#ifndef BENCH_DEVICE_WORKLOADS_H
#define BENCH_DEVICE_WORKLOADS_H

#include "../runner/workload.h"

extern const ga_bench_workload ga_bench_device_alloc;

#endif
