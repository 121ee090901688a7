/* SPDX-License-Identifier: MIT
 *
 * <malloc.h> with struct mallinfo2, which glibc's has from 2.33 on. A library that is compiled for
 * an older glibc may run with a newer one, which has mallinfo2().
 */
#ifndef GPUALLOC_PLATFORM_MALLINFO_H
#define GPUALLOC_PLATFORM_MALLINFO_H

#include <malloc.h>
#include <stddef.h>

#if !__GLIBC_PREREQ(2, 33)
struct mallinfo2 { /* the fields of struct mallinfo */
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

extern struct mallinfo2 mallinfo2(void); /* of the preload */
#endif

#endif
