/* SPDX-License-Identifier: MIT
 *
 * A third-party library with a function that has the name of one of the driver's.
 */
__attribute__((visibility("default"))) int cuMemAlloc_v2(void);

int cuMemAlloc_v2(void)
{
    return 42;
}
