/* SPDX-License-Identifier: MIT
 *
 * The functions that a library finds if it is loaded as others are, with RTLD_DEEPBIND, or into a
 * namespace of its own; and blocks that are passed between it and the program.
 *
 *   scopes plain|deepbind|namespace LIBRARY SERVING-LIBRARY
 *
 * The last argument names the library in which the program itself finds the driver's functions.
 */
#include "apart.h"
#include "cu.h"

#include <string.h>

enum {
    INVALID = CUDA_ERROR_INVALID_VALUE
};

static const char *owner_of(void *function)
{
    Dl_info info = {0};
    return function && dladdr(function, &info) && info.dli_fname ? info.dli_fname : "nowhere";
}

static void check_owner(const apart_functions *found, const char *owner)
{
    CHECK(strstr(owner_of(*(void *const *)&found->alloc), owner), "linked: in %s",
          owner_of(*(void *const *)&found->alloc));
    CHECK(strstr(owner_of(found->looked_up), owner), "looked up: in %s",
          owner_of(found->looked_up));
}

static void *load(const char *how, const char *path)
{
    if (strcmp(how, "namespace") == 0) {
        return dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
    }
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | (strcmp(how, "deepbind") == 0 ? RTLD_DEEPBIND : 0));
}

/* The library's block is the driver's, and is passed on; the program's is unknown to the driver,
 * and stays. */
static void deepbind(const apart_functions *found, bool by_us)
{
    CUdeviceptr theirs = 0;
    CUdeviceptr ours = 0;
    check_owner(found, "libcuda.so.1");
    CHECK_SAME(0, found->alloc(&theirs, 1000));
    CHECK_SAME(0, cu.free(theirs));
    CHECK_SAME(0, cu.alloc(&ours, 1000));
    CHECK_SAME(by_us ? INVALID : 0, found->free(ours));
    CHECK_SAME(by_us ? 0 : INVALID, cu.free(ours));
}

static void plain(const apart_functions *found, const char *server)
{
    CUdeviceptr block = 0;
    check_owner(found, server);
    CHECK_SAME(0, found->alloc(&block, 1000));
    CHECK_SAME(0, cu.free(block));
    CHECK_SAME(0, cu.alloc(&block, 1000));
    CHECK_SAME(0, found->free(block));
}

/* A driver of its own, which is not initialised; the program's continues to work. */
static void of_namespace(const apart_functions *found)
{
    CUdeviceptr block = 0;
    void *same = dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), "stand_in_calls");
    check_owner(found, "libcuda.so.1");
    CHECK(same && *(void *const *)&cu.calls == same, "two drivers in one namespace");
    CHECK_SAME(CUDA_ERROR_NOT_INITIALIZED, found->alloc(&block, 1000));
    CHECK_SAME(0, cu.alloc(&block, 1000));
    CHECK_SAME(0, cu.free(block));
}

int main(int argc, char **argv)
{
    apart_functions found = {0};
    apart_find *find = NULL;
    if (argc < 4) {
        return 2;
    }
    cu_open(0);
    void *library = load(argv[1], argv[2]);
    CHECK(library, "%s", dlerror());
    if (library) {
        *(void **)&find = dlsym(library, "apart_found");
    }
    if (!find) {
        puts("scopes: nothing loaded");
        return 1;
    }
    find(&found);
    if (strcmp(argv[1], "deepbind") == 0) {
        deepbind(&found, strstr(argv[3], "gpualloc") != NULL);
    } else if (strcmp(argv[1], "namespace") == 0) {
        of_namespace(&found);
    } else {
        plain(&found, argv[3]);
    }
    printf("scopes: %d not so\n", not_so);
    return not_so != 0;
}
