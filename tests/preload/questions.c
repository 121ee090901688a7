/* SPDX-License-Identifier: MIT
 *
 * The results of mallinfo(), malloc_info() and cfree(). Prints malloc_info()'s document.
 */
#include "check.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>

enum {
    BYTES = 64 << 20
};

/* As in a program that was linked before glibc 2.26. Newer processors never had it. */
#ifdef __x86_64__
__asm__(".symver old_cfree, cfree@GLIBC_2.2.5");
void old_cfree(void *block);

static void test_cfree(void)
{
    old_cfree(malloc(100));
}
#else
static void test_cfree(void)
{
}
#endif

/* `questions unknown`: the backend has no figures. */
int main(int argc, char **argv)
{
    bool unknown = argc > 1 && strcmp(argv[1], "unknown") == 0;
    void *block = malloc(BYTES);
    CHECK(block);
    check_fill(block, BYTES, 1);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    struct mallinfo info = mallinfo();
#pragma GCC diagnostic pop
    CHECK(unknown || info.uordblks + info.hblkhd >= BYTES);
    CHECK(unknown || info.arena + info.hblkhd >= BYTES);
    test_cfree();
    CHECK(malloc_info(1, stdout) == EINVAL);
    CHECK(malloc_info(0, stdout) == 0);
    free(block);
    return 0;
}
