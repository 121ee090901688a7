/* SPDX-License-Identifier: MIT
 *
 * A library with the interface of a CUDA driver from before memory pools.
 */
__attribute__((visibility("default"))) int cuInit(unsigned flags);

int cuInit(unsigned flags)
{
    return (int)flags;
}
