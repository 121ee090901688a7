/* SPDX-License-Identifier: MIT
 *
 * Queries the names of the card, of the driver and of its kernel module.
 */
#include "name.h"

#include "platform/cuda_driver.h"

#include <stdio.h>

static void name_driver(int cuda, char *out, size_t size)
{
    char module[32] = "";
    FILE *stream = fopen("/sys/module/nvidia/version", "re");
    if (stream) {
        if (fscanf(stream, "%31s", module) != 1) {
            module[0] = '\0';
        }
        fclose(stream);
    }
    snprintf(out, size, "%s%sCUDA %d.%d", module, module[0] ? ", " : "", cuda / 1000,
             cuda % 1000 / 10);
}

void ga_bench_name_device(int device, ga_bench_report *report)
{
    const ga_cuda_driver *driver;
    CUdevice card;
    int version = 0;
    if (ga_cuda_driver_get(&driver) == GA_OK &&
        driver->cuDeviceGet(&card, device) == CUDA_SUCCESS &&
        driver->cuDeviceGetName(report->device, sizeof report->device, card) == CUDA_SUCCESS &&
        driver->cuDriverGetVersion(&version) == CUDA_SUCCESS) {
        name_driver(version, report->driver, sizeof report->driver);
    }
}
