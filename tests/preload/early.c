/* SPDX-License-Identifier: MIT
 *
 * A library that the program needs: the dynamic linker runs its constructor before those of all
 * preloaded libraries, and its destructor after theirs.
 */
#include "early.h"

#include "check.h"

#include <stdlib.h>

unsigned char *early_blocks[EARLY_BLOCKS];
pthread_key_t early_key;
int early_destroyed;

/* Allocates, and runs again once: the other keys' destructors run between the two. */
static void destroy(void *value)
{
    void *block = realloc(value, 5000);
    CHECK(block);
    free(calloc(3, 1000));
    if (__atomic_add_fetch(&early_destroyed, 1, __ATOMIC_RELAXED) % 2) {
        CHECK(pthread_setspecific(early_key, block) == 0);
    } else {
        free(block);
    }
}

/* Around a fork: registered once malloc was in use, and before the preload's constructors. The
 * preload's own handlers are older: they hold no lock yet before a fork, and none any more after
 * it. */
static void allocate(void)
{
    free(malloc(3000));
    free(malloc(300000));
}

__attribute__((constructor)) static void begin(void)
{
    CHECK(pthread_key_create(&early_key, destroy) == 0);
    for (size_t i = 0; i < EARLY_BLOCKS; i++) {
        early_blocks[i] = i % 2 ? malloc(i * 100 + 1) : calloc(1, i * 100 + 1);
        CHECK(early_blocks[i]);
        check_fill(early_blocks[i], i * 100 + 1, (int)i);
    }
    free(realloc(malloc(10), 100000));
    CHECK(pthread_atfork(allocate, allocate, allocate) == 0);
}

__attribute__((destructor)) static void end(void)
{
    for (size_t i = 0; i < EARLY_BLOCKS; i++) {
        free(early_blocks[i]);
        free(malloc(i * 1000));
    }
    ssize_t written = write(STDOUT_FILENO, "end of the early library\n", 25);
    (void)written;
}
