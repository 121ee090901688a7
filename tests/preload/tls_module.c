/* SPDX-License-Identifier: MIT
 *
 * A library with a variable of each thread's own; loader.c opens many copies of it.
 */
__attribute__((visibility("default"))) int count(void);

static _Thread_local int counter[100];

int count(void)
{
    return ++counter[50];
}
