/* SPDX-License-Identifier: MIT
 *
 * The embedded device code and its modules, one for each device that has asked for a kernel.
 */
#include "device.h"

#include <gpualloc/backend.h>

#include <pthread.h>

/* From device_code.S. The size is 0 in a build without nvcc; it is data of that file, since C
 * takes two objects to have different addresses. */
extern const unsigned char ga_device_code[] __attribute__((visibility("hidden")));
extern const uint64_t ga_device_code_size __attribute__((visibility("hidden")));

static CUmodule modules[GA_CUDA_DEVICES]; /* guarded by modules_lock */
static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;

static CUfunction (*stand_in)(const char *name); /* of tests */

void ga_device_code_set(CUfunction (*find)(const char *name))
{
    stand_in = find;
}

static ga_status load_locked(const ga_cuda_driver *driver, int device)
{
    if (modules[device]) {
        return GA_OK;
    }
    ga_status status = GA_CUDA_CALL(driver, cuModuleLoadData, &modules[device], ga_device_code);
    return status == GA_OK ? GA_OK
                           : ga_fail(status, "device %d: cannot load the device code: %s", device,
                                     ga_error_text());
}

ga_status ga_device_function(CUfunction *out, int device, const char *name)
{
    ga_cuda_scope scope;
    *out = stand_in ? stand_in(name) : NULL;
    if (stand_in) {
        return *out ? GA_OK : ga_fail(GA_ERR_DEVICE, "device %d: no kernel \"%s\"", device, name);
    }
    if (ga_device_code_size == 0) {
        return ga_fail(GA_ERR_DEVICE, "this build has no device code: nvcc was not found for it");
    }
    ga_status status = ga_cuda_enter(&scope, device);
    if (status != GA_OK) {
        return status;
    }
    pthread_mutex_lock(&modules_lock);
    status = load_locked(scope.driver, device);
    if (status == GA_OK) {
        status = GA_CUDA_CALL(scope.driver, cuModuleGetFunction, out, modules[device], name);
    }
    pthread_mutex_unlock(&modules_lock);
    ga_cuda_leave(&scope);
    return status;
}

void ga_device_forget(int device)
{
    pthread_mutex_lock(&modules_lock);
    modules[device] = NULL; /* the driver frees it with the context */
    pthread_mutex_unlock(&modules_lock);
    ga_cuda_forget(device);
}
