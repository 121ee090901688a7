/* SPDX-License-Identifier: MIT
 *
 * A program that limits its own addresses once it runs: threads, mappings and libraries are still
 * available, and malloc() fails at the limit.
 */
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

static const size_t MIB = (size_t)1 << 20;

static void *nothing(void *argument)
{
    return argument;
}

int main(void)
{
    size_t max = 600 * MIB;
    size_t taken = 0;
    pthread_t thread;
    free(malloc(1000000));
    CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){max, max}) == 0);
    CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(mmap(NULL, 16 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    CHECK(dlopen("libm.so.6", RTLD_NOW));
    while (taken < 2 * max && malloc(MIB)) {
        taken += MIB;
    }
    CHECK(taken <= max);
    CHECK(taken >= max / 6);
    puts("self_limited: limited");
    return 0;
}
