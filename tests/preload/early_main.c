/* SPDX-License-Identifier: MIT
 *
 * Allocation before and after everything else: in an indirect function's resolver, which runs
 * while the program is being relocated, in a constructor that runs before the preload's, in the
 * destructors of keys that are older and younger than the preload's own, and in handlers around a
 * fork that are older.
 */
#include "check.h"
#include "early.h"

#include <malloc.h>
#include <stdlib.h>
#include <sys/wait.h>

/* ---- the resolver -------------------------------------------------------------------------- */

static unsigned char *resolver_block;

static int answer(void)
{
    return 42;
}

/* A block that stays, and other allocations beside it. */
__attribute__((used)) static int (*resolve(void))(void)
{
    resolver_block = malloc(333);
    if (resolver_block) {
        for (int i = 0; i < 333; i++) {
            resolver_block[i] = 0x33;
        }
    }
    free(realloc(calloc(4, 4), 70000));
    return answer;
}

int indirect(void) __attribute__((ifunc("resolve")));

/* Keeps the call to the resolver in the relocations of the program, not in the first call. */
static int (*volatile indirect_address)(void) = indirect;

static void test_resolver(void)
{
    CHECK(indirect_address() == 42);
    CHECK(resolver_block);
    check_filled(resolver_block, 333, 0x33);
    CHECK(malloc_usable_size(resolver_block) >= 333);
    resolver_block = realloc(resolver_block, 20000);
    CHECK(resolver_block);
    check_filled(resolver_block, 333, 0x33);
    free(resolver_block);
    puts("resolver: served");
}

/* ---- the constructor ----------------------------------------------------------------------- */

static void test_constructor(void)
{
    for (size_t i = 0; i < EARLY_BLOCKS; i++) {
        size_t size = i * 100 + 1;
        CHECK(malloc_usable_size(early_blocks[i]) >= size);
        check_filled(early_blocks[i], size, (int)i);
        if (i % 3 == 0) {
            early_blocks[i] = realloc(early_blocks[i], size * 3);
            CHECK(early_blocks[i]);
            check_filled(early_blocks[i], size, (int)i);
        }
    }
    puts("constructor: served");
}

/* ---- keys ---------------------------------------------------------------------------------- */

static pthread_key_t late_key;
static int late_destroyed;

static void destroy_late(void *value)
{
    CHECK(malloc_usable_size(value) >= 700);
    free(value);
    free(malloc(100000));
    __atomic_add_fetch(&late_destroyed, 1, __ATOMIC_RELAXED);
}

static void *use_keys(void *unused)
{
    (void)unused;
    CHECK(pthread_setspecific(early_key, malloc(600)) == 0);
    CHECK(pthread_setspecific(late_key, malloc(700)) == 0);
    return malloc(800);
}

static void test_keys(void)
{
    CHECK(pthread_key_create(&late_key, destroy_late) == 0);
    for (int i = 0; i < 300; i++) {
        pthread_t thread;
        void *result;
        CHECK(pthread_create(&thread, NULL, use_keys, NULL) == 0);
        CHECK(pthread_join(thread, &result) == 0 && result);
        free(result);
    }
    CHECK(early_destroyed == 600 && late_destroyed == 300);
    puts("keys: served");
}

/* ---- forks --------------------------------------------------------------------------------- */

static void test_fork(void)
{
    for (int i = 0; i < 3; i++) {
        int status = 1;
        pid_t child = fork();
        if (child == 0) {
            free(malloc(700));
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    puts("forks: served");
}

int main(void)
{
    test_resolver();
    test_constructor();
    test_keys();
    test_fork();
    fflush(stdout);
    return 0;
}
