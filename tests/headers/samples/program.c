/* SPDX-License-Identifier: MIT
 *
 * The program that the guide calls ./program and ./server: it requests host memory and, by the
 * driver's interface, device memory. It is linked to nothing but the C library. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what)
{
    fprintf(stderr, "program: %s\n", what);
    return 1;
}

static int use_device(void *driver)
{
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*push)(void *) = (int (*)(void *))dlsym(driver, "cuCtxPushCurrent_v2");
    int (*alloc)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(driver, "cuMemAlloc_v2");
    int (*release)(uint64_t) = (int (*)(uint64_t))dlsym(driver, "cuMemFree_v2");
    void *context;
    uint64_t block;

    if (!init || !retain || !push || !alloc || !release) {
        return fail("the driver lacks a function");
    }
    if (init(0) || retain(&context, 0) || push(context) || alloc(&block, 1 << 20)) {
        return fail("no device memory");
    }
    return release(block) ? fail("a block of the device cannot be freed") : 0;
}

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *block = malloc(1 << 20);

    if (!driver || !block) {
        return fail(driver ? "no host memory" : "no driver");
    }
    free(block);
    return use_device(driver);
}
