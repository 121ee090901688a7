/* SPDX-License-Identifier: MIT
 *
 * The device code that is built into the library: compiled by nvcc, embedded as it is, and loaded
 * through the driver on first need, once for each device.
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

/* Ask `find` for kernels from now on, instead of the driver: for tests with a driver that is none
 * (ga_cuda_driver_set()), while no other thread is in here. It answers NULL for names that it does not
 * know. NULL undoes it. */
void ga_device_code_set(CUfunction (*find)(const char *name));

/* Before the primary context of `device` is destroyed: forget what lives in it, our module and what
 * the platform keeps. They come back on next need. Nothing of ours may be at work on the device. */
void ga_device_forget(int device);

/* Run the probe kernel on `device` and check its answers: GA_OK means that our device code runs
 * there. */
ga_status ga_device_probe(int device);

#endif
