/* SPDX-License-Identifier: MIT
 *
 * Hazard-pointer domains in one thread: protected objects stay, others are freed; and the layout of
 * slots.
 */
#include "support/reclaim_scene.h"
#include <pthread.h>
#include <stdlib.h>

/* ---- one thread ---------------------------------------------------------------------------- */

Test(reclaim, options_out_of_range_are_refused)
{
    assert_fails_with(ga_domain_open(NULL, NULL), GA_ERR_ARGUMENT, "domain: nowhere to put");
    ga_domain *d = (ga_domain *)&objects;
    assert_fails_with(ga_domain_open(&d, &(ga_domain_options){.slots = 1}), GA_ERR_ARGUMENT,
                      "domain: options of 0 bytes; expected");
    cr_assert_null(d);
    assert_fails(ga_domain_open(&d, OPTIONS(.flags = 6)), GA_ERR_ARGUMENT,
                 "domain: flags 0x6; expected GA_DOMAIN_SEQ_CST or 0");
    assert_fails(ga_domain_open(&d, OPTIONS(.slots = GA_DOMAIN_SLOTS_MAX + 1)), GA_ERR_ARGUMENT,
                 "domain: slots 65537; expected 0 to 65536");
    assert_fails(ga_domain_open(&d, OPTIONS(.batch = GA_DOMAIN_BATCH_MAX + 1)), GA_ERR_ARGUMENT,
                 "domain: batch 16777217; expected 0 to 16777216");
    ga_hazards *mine = (ga_hazards *)&objects;
    assert_fails_with(ga_domain_join(NULL, &mine), GA_ERR_ARGUMENT, "domain: NULL to join");
    cr_assert_null(mine);
    assert_ok(ga_domain_open(&d, NULL));
    assert_fails_with(ga_domain_join(d, NULL), GA_ERR_ARGUMENT, "domain: nowhere to put");
    mine = join(d);
    cr_assert_eq(mine->count, 8);
    assert_fails_with(ga_hazard_retire(mine, NULL, 1, free_object, NULL), GA_ERR_ARGUMENT,
                      "domain: the object is NULL");
    assert_fails_with(ga_hazard_retire(mine, objects, 1, NULL, NULL), GA_ERR_ARGUMENT,
                      "domain: the reclaim function is NULL");
    assert_fails_with(ga_hazard_retire_to(mine, objects, 1, NULL), GA_ERR_ARGUMENT,
                      "domain: the heap is NULL");
    assert_fails_with(ga_hazard_retire(NULL, objects, 1, free_object, NULL), GA_ERR_ARGUMENT,
                      "domain: the membership is NULL");
    assert_fails_with(ga_hazard_reserve(NULL, 1), GA_ERR_ARGUMENT, "domain: no membership");
    assert_ok(ga_domain_close(d));
    assert_ok(ga_domain_close(NULL));
    ga_domain_get_stats(NULL, NULL);
    cr_assert_eq(stats_of(NULL).memberships, 0);
}

static void protects_and_frees(uint32_t flags)
{
    assert_ok(ga_domain_open(&domain, OPTIONS(.flags = flags, .slots = 3, .batch = 10)));
    ga_hazards *mine = join(domain);
    void *root = &objects[4];
    cr_assert_eq(ga_hazard_protect_pointer(mine, 2, &root), &objects[4]);
    root = NULL;
    retire(0, 9);
    cr_assert_eq(frees, 0, "it frees in batches");
    retire(9, 10);
    cr_assert_eq(frees, 9, "a batch is freed");
    cr_assert_eq(objects[4].freed, 0, "but for what is protected");
    assert_ok(ga_domain_drain(domain));
    cr_assert_eq(objects[4].freed, 0);
    cr_assert_eq(stats_of(domain).pending, 1);
    ga_hazard_clear(mine, 2);
    assert_ok(ga_domain_drain(domain));
    for (int i = 0; i < 10; i++) {
        cr_assert_eq(objects[i].freed, 1);
    }
    ga_domain_stats stats = stats_of(domain);
    cr_assert_eq(stats.retired, 10);
    cr_assert_eq(stats.freed, 10);
    cr_assert_eq(stats.scans, 3);
    cr_assert_eq(stats.members, 1);
    cr_assert_eq(stats.memberships, 1);
    cr_assert_eq(stats.bound, 13);
    assert_ok(ga_domain_close(domain));
}

Test(reclaim, what_is_protected_is_not_freed)
{
    protects_and_frees(0);
}

Test(reclaim, what_is_protected_is_not_freed_without_membarriers)
{
    protects_and_frees(GA_DOMAIN_SEQ_CST);
    assert_ok(ga_domain_open(&domain, OPTIONS(.flags = GA_DOMAIN_SEQ_CST)));
    cr_assert(stats_of(domain).seq_cst);
    assert_ok(ga_domain_close(domain));
}

Test(reclaim, many_slots_protect_each)
{
    enum {
        SLOTS = 700
    };
    assert_ok(ga_domain_open(&domain, OPTIONS(.slots = SLOTS, .batch = 64)));
    ga_hazards *mine = join(domain);
    cr_assert_eq(mine->count, SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++) {
        ga_hazard_set(mine, i,
                      &objects[(i * 2003) % OBJECTS]); /* odd and even objects interleaved */
    }
    retire(0, OBJECTS);
    assert_ok(ga_domain_drain(domain));
    cr_assert_eq(frees, OBJECTS - SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++) {
        cr_assert_eq(objects[(i * 2003) % OBJECTS].freed, 0);
    }
    assert_fails(ga_domain_close(domain), GA_ERR_ARGUMENT,
                 "domain: to be closed with 700 slots set; expected all to be clear");
    cr_assert_eq(frees, OBJECTS - SLOTS, "nothing is freed by a close that fails");
    ga_hazard_clear_all(mine);
    assert_ok(ga_domain_close(domain));
    cr_assert_eq(frees, OBJECTS);
}

Test(reclaim, tags_are_no_part_of_the_address)
{
    assert_ok(ga_domain_open(&domain, OPTIONS(.slots = 1, .batch = 1)));
    ga_hazards *mine = join(domain);
    ga_hazard_word root = (uintptr_t)&objects[0] | 5;
    cr_assert_eq(ga_hazard_protect(mine, 0, &root, 7), (uintptr_t)&objects[0] | 5);
    retire(0, 2);
    cr_assert_eq(objects[0].freed, 0);
    cr_assert_eq(objects[1].freed, 1);
    uintptr_t word = root;
    root = (uintptr_t)&objects[2] | 1;
    cr_assert(!ga_hazard_try(mine, 0, &root, 7, &word), "it has changed");
    cr_assert_eq(word, root);
    cr_assert(ga_hazard_try(mine, 0, &root, 7, &word));
    retire(2, 3);
    cr_assert_eq(objects[0].freed, 1);
    cr_assert_eq(objects[2].freed, 0);
    ga_hazard_clear(mine, 0);
    assert_ok(ga_domain_close(domain));
    cr_assert_eq(objects[2].freed, 1);
}

Test(reclaim, bytes_make_a_batch_too)
{
    assert_ok(ga_domain_open(&domain, OPTIONS(.slots = 1, .batch_bytes = 4096)));
    ga_hazards *mine = join(domain);
    ga_hazard_set(mine, 0, &objects[0]);
    for (int i = 0; i < 4; i++) {
        assert_ok(ga_hazard_retire(mine, &objects[i], 1023, free_object, NULL));
    }
    cr_assert_eq(frees, 0);
    assert_ok(ga_hazard_retire(mine, &objects[4], 10, free_object, NULL));
    cr_assert_eq(frees, 4);
    assert_ok(ga_hazard_retire(mine, &objects[5], 4095, free_object, NULL));
    cr_assert_eq(frees, 4, "what was left does not count");
    assert_ok(ga_hazard_retire(mine, &objects[6], 1, free_object, NULL));
    cr_assert_eq(frees, 6);
    ga_hazard_clear(mine, 0);
    assert_ok(ga_domain_close(domain));
    cr_assert_eq(frees, 7);
}

static void free_malloced(void *context, void *block)
{
    (void)context;
    free(block);
}

/* ---- bytes of the whole domain ------------------------------------------------------------- */

enum {
    IDLE = 40
};

static pthread_barrier_t retired_all, checked;

/* Retire the greatest number of blocks that a thread may hold, and more; then stay idle. */
static void *retire_and_idle(void *size)
{
    ga_hazards *mine = join(domain);
    for (int i = 0; i < 64; i++) {
        assert_ok(ga_hazard_retire(mine, malloc(1), (size_t)size, free_malloced, NULL));
    }
    pthread_barrier_wait(&retired_all);
    pthread_barrier_wait(&checked);
    return NULL;
}

static void idle_threads_hold(uint64_t budget, size_t size)
{
    pthread_t threads[IDLE];
    ga_domain_stats stats;
    assert_ok(ga_domain_open(&domain, OPTIONS(.batch_bytes = budget)));
    pthread_barrier_init(&retired_all, NULL, IDLE + 1);
    pthread_barrier_init(&checked, NULL, IDLE + 1);
    for (int i = 0; i < IDLE; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, retire_and_idle, (void *)size), 0);
    }
    pthread_barrier_wait(&retired_all);
    stats = stats_of(domain);
    cr_assert_gt(stats.pending_bytes, 0);
    cr_assert_eq(stats.bound_bytes, budget + stats.memberships * 65536);
    cr_assert_leq(stats.pending_bytes, stats.bound_bytes + stats.memberships * size, "%llu",
                  (unsigned long long)stats.pending_bytes);
    pthread_barrier_wait(&checked);
    for (int i = 0; i < IDLE; i++) {
        pthread_join(threads[i], NULL);
    }
    cr_assert_eq(stats_of(domain).pending_bytes, 0);
    assert_ok(ga_domain_close(domain));
}

Test(reclaim, idle_threads_share_the_bytes_of_the_domain)
{
    idle_threads_hold(UINT64_C(32) << 20, 1 << 20);
    idle_threads_hold(UINT64_C(32) << 20, 60000);
    idle_threads_hold(UINT64_C(1) << 20, 40000);
}

/* One thread alone has an eighth of the budget, and has it again after each scan. */
Test(reclaim, a_thread_may_hold_an_eighth)
{
    uint64_t max = 0;
    assert_ok(ga_domain_open(&domain, OPTIONS(.batch_bytes = UINT64_C(8) << 20)));
    ga_hazards *mine = join(domain);
    for (int i = 0; i < 10000; i++) {
        assert_ok(ga_hazard_retire(mine, malloc(1), 1000, free_malloced, NULL));
        uint64_t now = stats_of(domain).pending_bytes;
        max = now > max ? now : max;
    }
    cr_assert_gt(max, (1 << 20) * 3 / 4);
    cr_assert_leq(max, (1 << 20) + 65536 + 1000);
    cr_assert_lt(stats_of(domain).scans, 20);
    assert_ok(ga_domain_close(domain));
}

/* The greatest number of bytes means no limit, also in addition to the rest of a scan. */
Test(reclaim, bytes_may_be_no_limit)
{
    assert_ok(ga_domain_open(&domain, OPTIONS(.batch = 1, .batch_bytes = UINT64_MAX)));
    ga_hazards *mine = join(domain);
    ga_hazard_set(mine, 0, &objects[0]);
    retire(0, 3);
    cr_assert_eq(stats_of(domain).pending, 1);
    ga_hazard_clear(mine, 0);
    assert_ok(ga_domain_drain(domain));
    cr_assert_eq(freed_so_far(), 3);
    assert_ok(ga_domain_close(domain));
}

static void drain_inside(void *context, void *retired)
{
    (void)context;
    (void)retired;
    assert_fails(
        ga_domain_drain(domain), GA_ERR_ARGUMENT,
        "domain: to be drained in a reclaim function; expected to be called outside of it");
    __atomic_fetch_add(&frees, 1, __ATOMIC_RELAXED); /* relaxed: a count */
}

Test(reclaim, nothing_is_drained_in_a_reclaim_function)
{
    assert_ok(ga_domain_open(&domain, NULL));
    ga_hazards *mine = join(domain);
    ga_hazard_set(mine, 0, &objects[0]);
    for (int i = 0; i < 5; i++) {
        assert_ok(ga_hazard_retire(mine, &objects[i], 1, drain_inside, NULL));
    }
    assert_ok(ga_domain_drain(domain));
    cr_assert_eq(freed_so_far(), 4, "each once, and not what is protected");
    ga_hazard_clear(mine, 0);
    assert_ok(ga_domain_close(domain));
    cr_assert_eq(freed_so_far(), 5);
    assert_fails(ga_domain_drain(NULL), GA_ERR_ARGUMENT,
                 "domain: NULL to drain; expected ga_domain_open()'s");
}

Test(reclaim, what_is_freed_may_retire_more)
{
    assert_ok(ga_domain_open(&domain, OPTIONS(.slots = 1, .batch = 16)));
    for (int i = 0; i + 1 < OBJECTS; i++) {
        objects[i].child = i % 100 ? &objects[i + 1] : NULL;
    }
    for (int i = 0; i < OBJECTS; i += 100) {
        retire((uint64_t)i, (uint64_t)i + 1);
        if (i + 1 < OBJECTS) {
            retire((uint64_t)i + 1, (uint64_t)i + 2);
        }
    }
    assert_ok(ga_domain_drain(domain));
    cr_assert_eq(stats_of(domain).pending, 0, "draining goes to the end of each chain");
    for (int i = 0; i < OBJECTS; i++) {
        cr_assert_eq(objects[i].freed, i && i % 100 == 0 ? 2 : 1, "object %d", i);
    }
    assert_ok(ga_domain_close(domain));
}

Test(reclaim, closing_frees_all_and_what_that_retires)
{
    assert_ok(ga_domain_open(&domain, NULL));
    for (int i = 0; i + 1 < OBJECTS; i++) {
        objects[i].child = &objects[i + 1];
    }
    retire(0, 1);
    assert_ok(ga_domain_close(domain));
    cr_assert_eq(frees, OBJECTS);
}

Test(reclaim, blocks_go_back_to_their_heap)
{
    ga_heap *heap;
    ga_heap *refusing;
    void *block;
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "system"));
    assert_ok(ga_heap_open(&refusing, GA_PLACE_HOST, 0, "null"));
    assert_ok(ga_domain_open(&domain, OPTIONS(.batch = 100)));
    ga_hazards *mine = join(domain);
    for (int i = 0; i < 250; i++) {
        assert_ok(ga_alloc(heap, 48, 0, &block));
        assert_ok(ga_hazard_retire_to(mine, block, 48, heap));
    }
    assert_ok(ga_hazard_retire_to(mine, objects, 1, refusing));
    ga_stats stats;
    assert_ok(ga_heap_stats(heap, &stats));
    cr_assert_eq(stats.live_blocks, 50);
    assert_ok(ga_domain_drain(domain));
    assert_ok(ga_heap_stats(heap, &stats));
    cr_assert_eq(stats.live_blocks, 0);
    cr_assert_eq(stats_of(domain).not_freed, 1);
    assert_ok(ga_domain_close(domain));
    assert_ok(ga_heap_close(refusing));
    assert_ok(ga_heap_close(heap));
}

/* ---- layout of slots ---------------------------------------------------------------------- */

static void *look_at_slots(void *theirs)
{
    ga_hazards *mine = join(domain);
    uintptr_t a = (uintptr_t)mine->slots;
    uintptr_t b = (uintptr_t)((ga_hazards *)theirs)->slots;
    cr_assert_eq(a % 128, 0);
    cr_assert_eq(b % 128, 0);
    cr_assert_neq(a, b);
    return NULL;
}

Test(reclaim, slots_have_lines_of_their_own)
{
    assert_ok(ga_domain_open(&domain, OPTIONS(.slots = 1)));
    in_a_thread(look_at_slots, join(domain));
    assert_ok(ga_domain_close(domain));
}
