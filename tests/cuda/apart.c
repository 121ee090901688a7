/* SPDX-License-Identifier: MIT
 *
 * The functions that this library finds depend on how it was loaded: scopes.c compares.
 */
#include "apart.h"

#include <dlfcn.h>

extern CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size);
extern CUresult cuMemFree_v2(CUdeviceptr block);

__attribute__((visibility("default"))) apart_find apart_found;

void apart_found(apart_functions *out)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    *out = (apart_functions){cuMemAlloc_v2, cuMemFree_v2, dlsym(driver, "cuMemAlloc_v2")};
}
