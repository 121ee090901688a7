/* SPDX-License-Identifier: MIT
 *
 * The embedded device code, and the modules loaded from it, one for each device in use.
 */
#include "code_file.h"
#include "device.h"

#include "../platform/forks.h"

#include <gpualloc/backend.h>

#include <pthread.h>
#include <string.h>

/* From device_code.S. Its size is 0 in a build without nvcc or with -Ddevice_code=file. The size is
 * data of that file, not the distance to an end symbol, because C assumes that two objects have
 * different addresses. */
extern const unsigned char ga_device_code[] __attribute__((visibility("hidden")));
extern const uint64_t ga_device_code_size __attribute__((visibility("hidden")));
extern const ga_code_sum ga_device_code_sum __attribute__((visibility("hidden")));

static CUmodule modules[GA_CUDA_DEVICES]; /* guarded by modules_lock */
static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;

/* The driver does not outlive a fork, and the thread that held the lock is not in the child. */
static void fork_child(void)
{
    pthread_mutex_init(&modules_lock, NULL);
    memset(modules, 0, sizeof modules);
}

__attribute__((constructor)) static void watch_forks(void)
{
    static bool watched;
    ga_forks_watch(&watched, NULL, NULL, fork_child);
}

static CUfunction (*test_find)(const char *name); /* for tests */

void ga_device_code_set(CUfunction (*find)(const char *name))
{
    test_find = find;
}

static ga_status load_locked(const ga_cuda_driver *driver, int device)
{
    if (modules[device]) {
        return GA_OK;
    }
    ga_code_file file = {0};
    ga_status status = ga_device_code_size ? GA_OK : ga_code_file_open(&file, &ga_device_code_sum);
    if (status != GA_OK) {
        return status;
    }
    status = GA_CUDA_CALL(driver, cuModuleLoadData, &modules[device],
                          file.code ? file.code : ga_device_code);
    ga_code_file_close(&file);
    return status == GA_OK ? GA_OK
                           : ga_fail(status, "device %d: cannot load the device code: %s", device,
                                     ga_error_text());
}

ga_status ga_device_function(CUfunction *out, int device, const char *name)
{
    ga_cuda_scope scope;
    *out = test_find ? test_find(name) : NULL;
    if (test_find) {
        return *out ? GA_OK : ga_fail(GA_ERR_DEVICE, "device %d: no kernel \"%s\"", device, name);
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
