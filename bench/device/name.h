/* SPDX-License-Identifier: MIT
 *
 * What a card and its driver are called.
 */
#ifndef BENCH_DEVICE_NAME_H
#define BENCH_DEVICE_NAME_H

#include "../runner/child.h"

/* Fill in report->device and report->driver ("580.159.03, CUDA 13.0": the kernel module's version,
 * where it says it, and the interface's). Left as they are where the driver does not answer. In a
 * child only: it starts the driver. */
void ga_bench_name_device(int device, ga_bench_report *report);

#endif
