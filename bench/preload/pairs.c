/* SPDX-License-Identifier: MIT
 *
 * COUNT pairs of malloc and free and little else, to count their instructions: two runs differ only
 * in the number of pairs. `pairs COUNT SIZE` allocates and frees one block of SIZE bytes at a time;
 * `pairs COUNT mixed` frees one of 64 blocks and allocates another of 16 to 4096 bytes in its
 * place, in an order that is equal in every run.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLOTS = 64
};

/* Through a volatile pointer: the compiler may not drop the pair. */
static void *volatile sink;

static void constant(unsigned long count, size_t size)
{
    for (unsigned long i = 0; i < count; i++) {
        sink = malloc(size);
        free(sink);
    }
}

static void mixed(unsigned long count)
{
    void *slots[SLOTS] = {NULL};
    uint32_t state = 1;
    for (unsigned long i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        void **slot = &slots[(state >> 8) % SLOTS];
        free(*slot);
        *slot = malloc((size_t)16 << (state >> 20) % 9);
        sink = *slot;
    }
    for (int i = 0; i < SLOTS; i++) {
        free(slots[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: pairs COUNT SIZE|mixed\n", stderr);
        return 2;
    }
    unsigned long count = strtoul(argv[1], NULL, 10);
    if (strcmp(argv[2], "mixed") == 0) {
        mixed(count);
    } else {
        constant(count, strtoul(argv[2], NULL, 10));
    }
    return 0;
}
