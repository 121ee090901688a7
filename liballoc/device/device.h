/* SPDX-License-Identifier: MIT
 *
 * Loads the device code that is embedded in the library. nvcc compiles it to a fatbin; the driver
 * loads it on first use, once for each device.
 *
 * Thread safe.
 */
#ifndef GPUALLOC_DEVICE_DEVICE_H
#define GPUALLOC_DEVICE_DEVICE_H

#include "../platform/cuda_driver.h"

/* The kernel `name` on `device`. Launch it between ga_cuda_enter() and ga_cuda_leave().
 *
 * GA_ERR_DEVICE  no driver, no such device, a build without device code, or device code that this
 *                device or driver cannot run
 */
ga_status ga_device_function(CUfunction *out, int device, const char *name);

/* Make `find` the source of kernels instead of the driver, for tests with a fake driver
 * (ga_cuda_driver_set()). No other thread may be in a call of this header. `find` returns NULL for
 * unknown names. NULL restores the driver. */
void ga_device_code_set(CUfunction (*find)(const char *name));

/* Call this before the primary context of `device` is destroyed. It forgets the module in that
 * context and the platform's state there; both are created again on next use. None of our kernels
 * or copies may be in progress on the device. */
void ga_device_forget(int device);

/* Run the probe kernel on `device` and check its results. GA_OK: our device code runs there. */
ga_status ga_device_probe(int device);

#endif
