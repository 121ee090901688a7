/* SPDX-License-Identifier: MIT
 *
 * The identity of devices across processes.
 */
#include "sharing.h"

#include "../platform/cuda_driver.h"

#include <gpualloc/backend.h>

#include <string.h>

static ga_status read_id(const ga_cuda_driver *driver, int device, unsigned char id[16])
{
    CUuuid uuid = {{0}};
    ga_status status = driver->cuDeviceGetUuid /* NULL before CUDA 11.4 */
                           ? GA_CUDA_CALL(driver, cuDeviceGetUuid, &uuid, device)
                           : GA_OK;
    memcpy(id, uuid.bytes, 16);
    return status;
}

ga_status ga_device_id_get(int device, unsigned char id[16])
{
    const ga_cuda_driver *driver;
    ga_status status = ga_cuda_driver_get(&driver);
    return status == GA_OK ? read_id(driver, device, id) : status;
}

ga_status ga_device_id_find(const unsigned char id[16], int ordinal, int *out)
{
    static const unsigned char unknown[16];
    const ga_cuda_driver *driver;
    unsigned char other[16];
    int count = 0;
    *out = ordinal;
    ga_status status = ga_cuda_device_count(&count);
    if (status != GA_OK || !memcmp(id, unknown, 16)) {
        return status;
    }
    status = ga_cuda_driver_get(&driver);
    for (int i = 0; status == GA_OK && i < count; i++) {
        status = read_id(driver, i, other);
        if (status == GA_OK && !memcmp(id, other, 16)) {
            *out = i;
            return GA_OK;
        }
    }
    return status == GA_OK ? ga_fail(GA_ERR_DEVICE,
                                     "the publisher's device %d is none of the %d devices that "
                                     "this process may use",
                                     ordinal, count)
                           : status;
}
