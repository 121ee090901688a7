/* SPDX-License-Identifier: MIT
 *
 * memalign() and its kin, as glibc documents them.
 */
#include "aligned.h"

#include "entry.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static void *refuse(int error)
{
    errno = error;
    return NULL;
}

static bool power_of_two(size_t n)
{
    return n && !(n & (n - 1));
}

/* glibc rounds an alignment up to a power of two. */
static size_t round_to_power(size_t align)
{
    size_t power = 16;
    while (power < align) {
        power <<= 1;
    }
    return power;
}

ENTRY void *memalign(size_t align, size_t size)
{
    if (align > SIZE_MAX / 2 + 1) {
        return refuse(EINVAL);
    }
    size_t power = round_to_power(align);
    if (power > PTRDIFF_MAX || size > PTRDIFF_MAX - power) {
        return refuse(ENOMEM);
    }
    void *block = ga_aligned_alloc(power, size + !size); /* jemalloc does not align 0 bytes */
    return block ? block : refuse(ENOMEM);
}

EXPORT void *aligned_alloc(size_t align, size_t size)
{
    return power_of_two(align) ? memalign(align, size) : refuse(EINVAL);
}

EXPORT int posix_memalign(void **out, size_t align, size_t size)
{
    if (!power_of_two(align) || align % sizeof(void *) != 0) {
        return EINVAL;
    }
    int saved = errno;
    void *block = memalign(align, size);
    errno = saved;
    if (!block) {
        return ENOMEM;
    }
    *out = block;
    return 0;
}

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

EXPORT void *valloc(size_t size)
{
    return memalign(page_size(), size);
}

EXPORT void *pvalloc(size_t size)
{
    size_t page = page_size();
    if (size > PTRDIFF_MAX - page) {
        return refuse(ENOMEM);
    }
    return memalign(page, (size + page - 1) & ~(page - 1));
}
