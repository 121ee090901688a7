/* SPDX-License-Identifier: MIT
 *
 * UCX's own hooks over the driver, as its memory-type cache and its registration cache install
 * them: they are notified of each allocation and free.
 *
 *   ucx FOLDER
 *
 * FOLDER holds libucs.so.0, as libucx/lib of PyPI's libucx-cu13 does.
 */
#include "check.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>

extern int cuInit(unsigned flags);
extern int cuDevicePrimaryCtxRetain(void **context, int device);
extern int cuCtxPushCurrent_v2(void *context);
extern int cuMemAlloc_v2(unsigned long long *block, size_t size);
extern int cuMemFree_v2(unsigned long long block);

/* Of ucm/api/ucm.h, stable since UCX 1.0. */
enum {
    MEM_TYPE_ALLOC = 1 << 20,
    MEM_TYPE_FREE = 1 << 21
};

typedef void callback(int kind, void *event, void *arg);
typedef int set_handler(int events, int priority, callback *handler, void *arg);

static int made, freed;

static void on_event(int kind, void *event, void *arg)
{
    (void)event;
    (void)arg;
    made += kind == MEM_TYPE_ALLOC;
    freed += kind == MEM_TYPE_FREE;
}

/* libucs loads libucm, and libucm needs libucs: lazily bound, in one scope. */
static set_handler *load(const char *folder)
{
    static const char *const names[] = {"libucs.so.0", "libucm.so.0", "ucx/libucm_cuda.so.0"};
    void *library[3] = {NULL};
    char path[4096];
    set_handler *set = NULL;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        library[i] = dlopen(path, RTLD_LAZY | RTLD_GLOBAL);
        CHECK(library[i] != NULL, "%s", dlerror());
    }
    if (library[1]) {
        *(void **)&set = dlsym(library[1], "ucm_set_event_handler");
    }
    return set;
}

int main(int argc, char **argv)
{
    void *context;
    unsigned long long block = 0;
    set_handler *set = argc > 1 ? load(argv[1]) : NULL;
    CHECK(set != NULL, "no ucm_set_event_handler");
    if (set) {
        CHECK_SAME(0, cuInit(0));
        CHECK_SAME(0, cuDevicePrimaryCtxRetain(&context, 0));
        CHECK_SAME(0, cuCtxPushCurrent_v2(context));
        CHECK_SAME(0, set(MEM_TYPE_ALLOC | MEM_TYPE_FREE, 0, on_event, NULL));
        CHECK_SAME(0, cuMemAlloc_v2(&block, 1 << 20));
        CHECK_SAME(0, cuMemFree_v2(block));
        CHECK_SAME(1, made);
        CHECK_SAME(1, freed);
    }
    printf("ucx: %d not so\n", not_so);
    return not_so != 0;
}
