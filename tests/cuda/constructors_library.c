/* SPDX-License-Identifier: MIT
 *
 * First calls in constructors, of programs that are linked with the library.
 */
#include "constructors.h"

#include <gpualloc/frameworks.h>
#include <gpualloc/kernel.h>

static void allocate(void)
{
    void *block = ga_framework_alloc(MIB, 0, NULL);
    CHECK(block, "%s", ga_error_text());
    ga_framework_free(block, MIB, 0, NULL);
}

static void test_frameworks(void)
{
    call_in_constructor(allocate);
}

static CUdeviceptr variable;

static void publish(void)
{
    ga_kernel_prepare();
    CHECK_SAME(0, ga_kernel_publish(0, (void *)variable));
}

static void test_kernels(void)
{
    CHECK_SAME(0, cu.alloc(&variable, sizeof(ga_kernel_heap)));
    call_in_constructor(publish);
}

int main(int argc, char **argv)
{
    static const cu_case cases[] = {{"frameworks", test_frameworks}, {"kernels", test_kernels}};
    cu_open(0);
    return RUN_CASE(argc, argv, cases);
}
