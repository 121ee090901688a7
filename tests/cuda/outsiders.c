/* SPDX-License-Identifier: MIT
 *
 * The preload over a plugin's backend: it decides by capabilities, as for the backends of the
 * library.
 *
 *   outsiders CASE plain|able
 */
#include "cases.h"

#include <dlfcn.h>
#include <stdlib.h>

static bool able;

/* The preload waits for the device before a free, unless the backend does: this one does not, so
 * after a missing wait the work would still be there. */
static void waits(void)
{
    CUdeviceptr block = 0;
    CUstream stream;
    CHECK_SAME(0, cu.alloc(&block, MIB));
    CHECK_SAME(0, cu.stream(&stream, 1));
    cu.hold(stream);
    CHECK_SAME(0, cu.fill_on(block, 0, 1, stream));
    uint64_t before = cu.count().waits;
    CHECK_SAME(0, cu.free(block));
    CHECK_SAME(before + (able ? 0 : 1), cu.count().waits);
    cu.let_go(stream);
}

/* The program enables peer access: the heap enables it, too, or the driver serves from then on. */
static void peers(void)
{
    CUcontext one, first, second;
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, MIB));
    CHECK_SAME(0, cu.get_current(&first));
    CHECK_SAME(0, cu.retain(&second, 1));
    CHECK_SAME(0, cu.push(second));
    CHECK_SAME(0, cu.peer(first, 0));
    CHECK_SAME(0, cu.pop(&one));
    CHECK_SAME(0, cu.free(block));
    void *plugin = dlopen(getenv("GPUALLOC_PLUGINS"), RTLD_LAZY | RTLD_NOLOAD);
    unsigned *enabled = plugin ? dlsym(plugin, "outsider_peers") : NULL;
    CHECK(enabled, "the plugin is not loaded");
    CHECK_SAME(able ? 2 : 0, enabled ? *enabled : 0);
}

static const cu_case cases[] = {{"waits", waits}, {"peers", peers}};

int main(int argc, char **argv)
{
    able = argc > 2 && strcmp(argv[2], "able") == 0;
    cu_open(0);
    return RUN_CASE(argc, argv, cases);
}
