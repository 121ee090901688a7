/* SPDX-License-Identifier: MIT
 *
 * The `hazard` backend: a freed block keeps its contents while a thread protects it.
 */
#include <gpualloc/backend.h>
#include <gpualloc/reclaim.h>

#include "platform/libc.h"
#include "support/expect.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static ga_heap *heap;
static ga_domain *domain;

static void open_heap(const char *spec)
{
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
    assert_ok(ga_heap_domain(heap, &domain));
}

static ga_hazards *join(void)
{
    ga_hazards *mine;
    assert_ok(ga_domain_join(domain, &mine));
    return mine;
}

static ga_domain_stats stats(void)
{
    ga_domain_stats now;
    ga_domain_get_stats(domain, &now);
    return now;
}

static char *take(size_t size)
{
    void *block;
    assert_ok(ga_alloc(heap, size, 0, &block));
    memset(block, 0x5a, size);
    return block;
}

static void check(const char *block, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        cr_assert_eq(block[i], 0x5a, "byte %zu of a protected block", i);
    }
}

/* ---- reallocation -------------------------------------------------------------------------- */

static void grows_by_steps(const char *spec)
{
    uint32_t moves = 0, moved_within = 0;
    open_heap(spec);
    char *block = take(1000);
    for (size_t size = 2000; size <= 8000000; size += 1000) {
        void *next;
        size_t usable = ga_usable_size(heap, block);
        assert_ok(ga_realloc(heap, block, size, 0, &next));
        moves += next != block;
        moved_within += next != block && size <= usable;
        block = next;
        memset(block + size - 1000, 0x5a, 1000);
    }
    cr_assert_eq(moved_within, 0, "%s: %u moved though there was room", spec, moved_within);
    cr_assert_lt(moves, 60, "%s: %u moves of 8000", spec, moves);
    check(block, 8000000);
    assert_ok(ga_free(heap, block));
    assert_ok(ga_heap_close(heap));
}

Test(reclaim_backend, blocks_grow_by_steps_with_few_moves)
{
    grows_by_steps("hazard/system");
    grows_by_steps("hazard/slab");
    grows_by_steps("hazard/vmm");
}

/* A reader of the old block reads the old contents; the block is retired, not freed. */
Test(reclaim_backend, the_block_that_realloc_leaves_is_retired)
{
    open_heap("hazard:batch=1/slab:check=full");
    char *block = take(100);
    void *moved;
    ga_hazard_set(join(), 0, block);
    assert_ok(ga_realloc(heap, block, 100000, 0, &moved));
    cr_assert_neq(moved, block);
    assert_ok(ga_free(heap, take(100)));
    check(block, 100);
    check(moved, 100);
    cr_assert_eq(stats().pending, 1);
    ga_hazard_clear(join(), 0);
    assert_ok(ga_free(heap, moved));
    assert_ok(ga_heap_close(heap));
}

Test(reclaim_backend, a_block_that_shrinks_moves_when_half_is_unused)
{
    open_heap("hazard/slab");
    void *block = take(100000), *next;
    assert_ok(ga_realloc(heap, block, 60000, 0, &next));
    cr_assert_eq(next, block);
    assert_ok(ga_realloc(heap, block, 100, 0, &next));
    cr_assert_neq(next, block);
    check(next, 100);
    assert_ok(ga_free(heap, next));
    assert_ok(ga_heap_close(heap));
}

/* ---- protection ---------------------------------------------------------------------------- */

Test(reclaim_backend, a_freed_block_stays_while_it_is_protected)
{
    open_heap("hazard:batch=1/slab:check=full");
    char *block = take(100);
    ga_hazard_set(join(), 3, block);
    assert_ok(ga_free(heap, block));
    for (int i = 0; i < 1000; i++) { /* blocks that are freed in between are reused */
        assert_ok(ga_free(heap, take(100)));
    }
    check(block, 100);
    cr_assert_eq(stats().pending, 1);
    ga_hazard_clear(join(), 3);
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(stats().pending, 0);
    ga_stats counted;
    assert_ok(ga_heap_stats(heap, &counted));
    cr_assert_eq(counted.allocs, 1001);
    cr_assert_eq(counted.frees, 1001);
    assert_ok(ga_heap_close(heap));
}

Test(reclaim_backend, retire_is_free)
{
    open_heap("hazard:batch=1");
    char *block = take(50);
    ga_hazard_set(join(), 0, block);
    assert_ok(ga_retire(heap, block));
    cr_assert_eq(stats().pending, 1);
    ga_hazard_clear(join(), 0);
    assert_ok(ga_domain_drain(domain));
    cr_assert_eq(stats().freed, 1);
    assert_ok(ga_heap_close(heap));
}

Test(reclaim_backend, a_block_that_moves_leaves_the_old_one_standing)
{
    open_heap("hazard:batch=1,fences=seq_cst");
    cr_assert(stats().seq_cst);
    char *block = take(100);
    void *moved;
    ga_hazard_set(join(), 0, block);
    assert_ok(ga_realloc(heap, block, 100000, 0, &moved));
    cr_assert_neq(moved, block);
    check(moved, 100);
    check(block, 100);
    ga_hazard_clear(join(), 0);
    assert_ok(ga_free(heap, moved));
    assert_ok(ga_heap_close(heap));
}

Test(reclaim_backend, only_its_heaps_have_a_domain)
{
    ga_heap *plain;
    ga_domain *none = (ga_domain *)&plain;
    assert_ok(ga_heap_open(&plain, GA_PLACE_HOST, 0, "slab/hazard"));
    assert_fails(ga_heap_domain(plain, &none), GA_ERR_UNSUPPORTED,
                 "slab: has no domain; open it as hazard/...");
    cr_assert_null(none);
    assert_fails_with(ga_heap_domain(NULL, &none), GA_ERR_ARGUMENT, "expected a heap");
    assert_fails_with(ga_heap_domain(plain, NULL), GA_ERR_ARGUMENT, "expected room");
    assert_ok(ga_heap_close(plain));
    assert_fails_with(ga_heap_open(&plain, GA_PLACE_HOST, 0, "hazard:slots=0"), GA_ERR_SPEC,
                      "hazard");
}

Test(reclaim_backend, foreign_pointers_are_refused)
{
    int mine;
    open_heap("hazard/slab");
    assert_fails_with(ga_free(heap, &mine), GA_ERR_POINTER, "hazard: ");
    assert_ok(ga_heap_close(heap));
}

Test(reclaim_backend, what_waits_is_freed_where_memory_is_short)
{
    open_heap("hazard/fail:nth=11/system");
    for (int i = 0; i < 10; i++) {
        assert_ok(ga_free(heap, take(10)));
    }
    cr_assert_eq(stats().pending, 10);
    char *block = take(10); /* its first request is refused */
    cr_assert_eq(stats().pending, 0);
    assert_ok(ga_free(heap, block));
    assert_ok(ga_heap_close(heap));
}

static void *refuse_memory(size_t size)
{
    (void)size;
    return NULL;
}

static void *refuse_aligned(size_t align, size_t size)
{
    (void)align;
    (void)size;
    return NULL;
}

Test(reclaim_backend, free_needs_no_memory)
{
    ga_libc_table whole = ga_libc;
    open_heap("hazard/slab");
    char *free_one = take(10);
    char *protected = take(10);
    ga_libc.malloc = refuse_memory;
    ga_libc.memalign = refuse_aligned;
    assert_ok(ga_free(heap, free_one)); /* no membership can be allocated */
    cr_assert_eq(stats().memberships, 0);
    ga_libc = whole;
    ga_hazard_set(join(), 0, protected);
    ga_libc.malloc = refuse_memory;
    assert_fails_with(ga_free(heap, protected), GA_ERR_MEMORY, "domain: ");
    check(protected, 10);
    ga_libc = whole;
    ga_hazard_clear(join(), 0);
    assert_ok(ga_free(heap, protected));
    ga_stats counted;
    assert_ok(ga_heap_stats(heap, &counted));
    cr_assert_eq(counted.live_blocks, 0);
    assert_ok(ga_heap_close(heap));
}

/* ---- threads ------------------------------------------------------------------------------- */

enum {
    ROUNDS = 4 /* PTHREAD_DESTRUCTOR_ITERATIONS of glibc */
};

static pthread_key_t late_key;

/* Runs after the library's own destructor, most likely, and again in the last round of
 * destructors. */
static void free_late(void *block)
{
    static _Thread_local int rounds;
    if (++rounds < ROUNDS) {
        pthread_setspecific(late_key, block);
    } else {
        assert_ok(ga_free(heap, block));
    }
}

static void *free_at_the_end(void *unused)
{
    (void)unused;
    assert_ok(ga_free(heap, take(20)));
    pthread_setspecific(late_key, take(20));
    return NULL;
}

Test(reclaim_backend, a_thread_may_free_until_its_very_end)
{
    open_heap("hazard");
    cr_assert_eq(pthread_key_create(&late_key, free_late), 0);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, free_at_the_end, NULL), 0);
        pthread_join(thread, NULL);
    }
    cr_assert_eq(stats().members, 0, "none stays a member for ever");
    cr_assert_eq(stats().memberships, 1);
    cr_assert_eq(stats().freed, 40);
    assert_ok(ga_heap_close(heap));
}

/* As above, but the thread joins by itself, and keeps the membership. */
static ga_domain *late_domain;

static void join_late(void *unused)
{
    static _Thread_local int rounds;
    ga_hazards *mine;
    if (++rounds < ROUNDS) {
        pthread_setspecific(late_key, unused);
    } else {
        assert_ok(ga_domain_join(late_domain, &mine));
    }
}

/* Some of them have been members of another domain, and so left all before the end. */
static void *join_at_the_end(void *number)
{
    if ((uintptr_t)number % 2) {
        join();
    }
    pthread_setspecific(late_key, &late_domain);
    return NULL;
}

static void join_late_in_a_domain(uintptr_t threads)
{
    ga_domain_stats late;
    assert_ok(ga_domain_open(&late_domain, NULL));
    for (uintptr_t i = 0; i < threads; i++) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, join_at_the_end, (void *)i), 0);
        pthread_join(thread, NULL);
    }
    ga_domain_get_stats(late_domain, &late);
    cr_assert_eq(late.members, threads, "nobody has left for them");
    assert_ok(ga_domain_close(late_domain));
}

/* Bytes that the C library has allocated and not freed; 0 under sanitizers, which look for
 * leaks. */
static size_t in_use(void)
{
    return mallinfo2().uordblks;
}

Test(reclaim_backend, a_thread_that_joins_at_its_very_end_leaves_nothing)
{
    open_heap("hazard"); /* the library's destructor is registered, and runs before */
    join();
    cr_assert_eq(pthread_key_create(&late_key, join_late), 0);
    join_late_in_a_domain(20);
    size_t before = in_use();
    for (int i = 0; i < 10; i++) {
        join_late_in_a_domain(20);
    }
    for (int i = 0; i < 1000 && in_use() > before; i++) { /* the last threads are just ending */
        join_late_in_a_domain(0);
        usleep(1000);
    }
    cr_assert_leq(in_use(), before + 40 * 1024, "200 members of more than 512 bytes are gone");
    assert_ok(ga_heap_close(heap));
}

Test(reclaim_backend, a_heap_closes_whatever_is_protected)
{
    open_heap("hazard");
    char *block = take(10);
    ga_hazard_set(join(), 0, block);
    assert_ok(ga_free(heap, block));
    assert_ok(ga_heap_close(heap)); /* says so in the log, and leaks nothing */
}
