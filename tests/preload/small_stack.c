/* SPDX-License-Identifier: MIT
 *
 * Threads with the smallest permitted stack: all of malloc must fit besides the stack that the
 * dynamic linker and the C library take.
 */
#include "check.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

static void *work(void *unused)
{
    for (size_t size = 1; size < (size_t)4 << 20; size = size * 2 + 1) {
        char *block = calloc(1, size);
        CHECK(block);
        block = realloc(block, size + size / 2);
        CHECK(block);
        block[size - 1] = 1;
        free(block);
        CHECK(posix_memalign((void **)&block, 4096, size) == 0);
        free(block);
    }
    CHECK(!malloc(PTRDIFF_MAX) && errno == ENOMEM); /* the path of errors is longer */
    return unused;
}

int main(void)
{
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)) == 0);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, &attributes, work, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    puts("small stacks: enough");
    return 0;
}
