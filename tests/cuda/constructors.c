/* SPDX-License-Identifier: MIT
 *
 * First calls in constructors, under the preload.
 */
#include "modules.h"

#include "constructors.h"

static void allocate(void)
{
    CUdeviceptr block = 0;
    CHECK_SAME(0, cu.alloc(&block, MIB));
    CHECK_SAME(0, cu.free(block));
}

static void test_blocks(void)
{
    uint64_t before = cu.calls("cuMemAlloc_v2");
    call_in_constructor(allocate);
    CHECK_SAME(before, cu.calls("cuMemAlloc_v2"));
}

static void load_code(void)
{
    expect_filled(load_library(scene.bytes));
}

static void test_kernels(void)
{
    find_all();
    build(true);
    call_in_constructor(load_code);
}

int main(int argc, char **argv)
{
    static const cu_case cases[] = {{"blocks", test_blocks}, {"kernels", test_kernels}};
    cu_open(0);
    return RUN_CASE(argc, argv, cases);
}
