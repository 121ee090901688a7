/* SPDX-License-Identifier: MIT
 *
 * Under `fail:nth=7,every` each seventh request is refused: the program gets NULL and ENOMEM, keeps
 * its blocks, and the C library continues to work.
 *
 * usage: failing NTH
 */
#include "check.h"

#include <stdint.h>
#include <stdlib.h>

enum {
    ROUNDS = 700
};

static int refused(const void *block)
{
    if (!block) {
        CHECK(errno == ENOMEM);
    }
    errno = 0;
    return !block;
}

static int ask(int round)
{
    size_t size = (size_t)round * 10 + 1;
    void *out = NULL;
    switch (round % 5) {
    case 0:
        out = malloc(size);
        break;
    case 1:
        out = calloc(3, size);
        break;
    case 2:
        out = aligned_alloc(64, size);
        break;
    case 3:
        out = reallocarray(NULL, size, 2);
        break;
    default:
        if (posix_memalign(&out, 128, size) == ENOMEM) {
            errno = ENOMEM; /* as other backends set it */
        }
    }
    int failed = refused(out);
    free(out);
    return failed;
}

/* A refused realloc leaves the block as it was. */
static int resize(void)
{
    unsigned char *block = NULL;
    while (!block) {
        block = malloc(100);
    }
    check_fill(block, 100, 8);
    int failures = 0;
    for (size_t size = 200; size < 20000; size += 100) {
        errno = 0;
        unsigned char *moved = realloc(block, size);
        failures += refused(moved);
        block = moved ? moved : block;
        check_filled(block, 100, 8);
    }
    free(block);
    return failures;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    int nth = atoi(argv[1]);
    int failures = 0;
    errno = 0;
    for (int round = 0; round < ROUNDS; round++) {
        failures += ask(round);
    }
    CHECK(failures == ROUNDS / nth || failures == ROUNDS / nth + 1);
    CHECK(resize() >= 198 / nth - 1);
    puts("failing: survived");
    return 0;
}
