/* SPDX-License-Identifier: MIT
 *
 * Threads that begin while the kernel gives no memory: their allocations return NULL or a block,
 * and nothing crashes. Their stacks were mapped before.
 */
#include "check.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum {
    THREADS = 8,
    STACK = 256 << 10
};

static void use(size_t size)
{
    char *block = malloc(size);
    if (block) {
        memset(block, 1, size);
        char *moved = realloc(block, size * 2);
        block = moved ? moved : block;
    } else {
        CHECK(errno == ENOMEM);
    }
    free(block);
    free(memalign(256, size));
    free(calloc(3, size));
}

static void *begin(void *unused)
{
    for (size_t i = 0; i < 2000; i++) {
        use(1 + i * 61 % 40000);
    }
    return unused;
}

static pthread_t start(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, stack, STACK) == 0);
    struct rlimit none = {0, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &none) == 0);
    int error = pthread_create(&thread, &attributes, begin, NULL);
    CHECK(error == 0 || error == EAGAIN || error == ENOMEM);
    return error ? pthread_self() : thread;
}

int main(void)
{
    free(malloc(100));
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread = start();
        CHECK(pthread_equal(thread, pthread_self()) || pthread_join(thread, NULL) == 0);
        struct rlimit any = {RLIM_INFINITY, RLIM_INFINITY};
        CHECK(setrlimit(RLIMIT_AS, &any) == 0);
    }
    puts("threads without memory: survived");
    return 0;
}
