/* SPDX-License-Identifier: MIT
 *
 * Documented behaviour that some versions of glibc do not have: refused alignments, errno after
 * posix_memalign, and C23's sized frees. For the preload only.
 */
#include "check.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>

/* Weak, so that a missing one gives a sentence and not a program that does not start. */
__attribute__((weak)) void free_sized(void *block, size_t size);
__attribute__((weak)) void free_aligned_sized(void *block, size_t align, size_t size);

static volatile size_t opaque;

static size_t hide(size_t value)
{
    opaque = value;
    return opaque;
}

static void test_aligned_alloc(void)
{
    static const size_t bad[] = {0, 3, 24, 4097, SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        errno = 0;
        CHECK(!aligned_alloc(hide(bad[i]), hide(64)) && errno == EINVAL);
    }
}

static void test_posix_memalign(void)
{
    void *block = (void *)&opaque;
    errno = 55;
    CHECK(posix_memalign(&block, hide(24), hide(1)) == EINVAL);
    CHECK(posix_memalign(&block, hide(64), hide(SIZE_MAX)) == ENOMEM);
    CHECK(errno == 55 && block == (void *)&opaque);
}

static void test_sized_frees(void)
{
    static const size_t sizes[] = {0, 1, 100, 5000, 100000, (size_t)3 << 20};
    CHECK(free_sized && free_aligned_sized);
    for (int round = 0; round < 1000; round++) {
        size_t size = sizes[round % 6];
        void *block = malloc(size);
        void *zeroed = calloc(1, size);
        void *aligned = aligned_alloc(256, size);
        CHECK(block && zeroed && aligned);
        errno = 66;
        free_sized(block, size);
        free_sized(zeroed, size);
        free_aligned_sized(aligned, 256, size);
        free_sized(NULL, 0);
        free_aligned_sized(NULL, 256, 0);
        CHECK(errno == 66);
    }
}

int main(void)
{
    test_aligned_alloc();
    test_posix_memalign();
    test_sized_frees();
    puts("as documented");
    return 0;
}
