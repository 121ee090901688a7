/* SPDX-License-Identifier: MIT
 *
 * A third-party library with functions that have the names of the driver's and NCCL's.
 */
__attribute__((visibility("default"))) int cuMemAlloc_v2(void);
__attribute__((visibility("default"))) int ncclMemAlloc(void);

int cuMemAlloc_v2(void)
{
    return 42;
}

int ncclMemAlloc(void)
{
    return 43;
}
