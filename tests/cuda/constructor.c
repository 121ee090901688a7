/* SPDX-License-Identifier: MIT
 *
 * A library whose constructor, which runs under the lock of the dynamic linker, calls the program.
 */
void in_constructor(void);

__attribute__((constructor)) static void call(void)
{
    in_constructor();
}
