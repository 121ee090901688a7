/* SPDX-License-Identifier: MIT
 *
 * The names of a card and its driver.
 */
#ifndef BENCH_DEVICE_NAME_H
#define BENCH_DEVICE_NAME_H

#include "../runner/child.h"

/* Fill in report->device and report->driver ("580.159.03, CUDA 13.0": the kernel module's version,
 * if it reports one, and the interface's). They stay as they are if the driver fails. Call it in a
 * child only, because it starts the driver. */
void ga_bench_name_device(int device, ga_bench_report *report);

#endif
