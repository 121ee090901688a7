/* SPDX-License-Identifier: MIT
 *
 * A library of another's with a function that is called like one of the driver's.
 */
__attribute__((visibility("default"))) int cuMemAlloc_v2(void);

int cuMemAlloc_v2(void)
{
    return 42;
}
