/* SPDX-License-Identifier: MIT
 *
 * Heavy fences that scans of several threads share: which objects they free, which they do not, and
 * that no thread waits for the thread that makes one.
 */
#include <gpualloc/reclaim.h>

#include "platform/membarrier.h"
#include "support/expect.h"

#include <pthread.h>
#include <semaphore.h>

enum {
    OBJECTS = 1000,
    BATCH = 80,
    PART = BATCH / 8, /* a list takes a ticket after PART objects */
    NEARLY = BATCH - 2 * PART,
    THREADS = 8
};

#define OPTIONS(...) (&(ga_domain_options){.options_size = sizeof(ga_domain_options), __VA_ARGS__})

static uint32_t freed[OBJECTS]; /* number of times that each was freed; relaxed: read when all
                                 * threads wait */
static ga_domain *domain;

static void free_object(void *context, void *object)
{
    (void)context;
    __atomic_fetch_add((uint32_t *)object, 1, __ATOMIC_RELAXED);
}

static ga_hazards *join(void)
{
    ga_hazards *mine;
    assert_ok(ga_domain_join(domain, &mine));
    return mine;
}

static void retire(int from, int to, size_t size)
{
    for (int i = from; i < to; i++) {
        assert_ok(ga_hazard_retire(join(), &freed[i], size, free_object, NULL));
    }
}

static ga_domain_stats stats(void)
{
    ga_domain_stats now;
    ga_domain_get_stats(domain, &now);
    return now;
}

static void expect_freed(int from, int to, uint32_t times)
{
    for (int i = from; i < to; i++) {
        cr_assert_eq(freed[i], times, "object %d was freed %u times", i, freed[i]);
    }
}

/* ---- membarriers, counted ------------------------------------------------------------------ */

static ga_membarrier_table real;
static uint64_t issued; /* relaxed: a count */

static bool count_and_issue(void)
{
    __atomic_fetch_add(&issued, 1, __ATOMIC_RELAXED);
    return real.issue();
}

/* With marks from the first object on, as after any scan. */
static void begin(const ga_domain_options *options)
{
    assert_ok(ga_domain_open(&domain, options));
    if (stats().seq_cst) {
        cr_skip("no membarriers here");
    }
    assert_ok(ga_domain_drain(domain));
    real = ga_membarrier;
    ga_membarrier.issue = count_and_issue;
}

static void end(void)
{
    ga_membarrier = real;
    assert_ok(ga_domain_close(domain));
}

static void *drain(void *unused)
{
    assert_ok(ga_domain_drain(domain));
    return unused;
}

static void another_thread_drains(void)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, drain, NULL), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

/* ---- freed objects ------------------------------------------------------------------------ */

static void frees_what_was_marked_before(size_t size, int batch, uint64_t batch_bytes)
{
    begin(OPTIONS(.batch = (uint32_t)batch, .batch_bytes = batch_bytes));
    ga_hazard_set(join(), 0, &freed[3]);
    retire(0, 45, size);
    another_thread_drains();
    uint64_t before = issued;
    uint64_t scans = stats().scans;
    retire(45, NEARLY - 1, size);
    expect_freed(0, OBJECTS, 0);
    retire(NEARLY - 1, NEARLY, size);
    cr_assert_eq(issued, before, "the other thread's membarrier will do");
    cr_assert_eq(stats().scans, scans + 1);
    cr_assert_eq(stats().shared, 1);
    expect_freed(0, 3, 1);
    expect_freed(3, 4, 0);
    expect_freed(4, 40, 1);
    expect_freed(40, OBJECTS, 0); /* the last mark before it was at 40 */
    ga_hazard_clear(join(), 0);
    end();
    expect_freed(0, NEARLY, 1);
}

Test(reclaim_sharing, a_list_is_freed_up_to_the_last_mark_before)
{
    frees_what_was_marked_before(1, BATCH, 0);
}

Test(reclaim_sharing, the_same_by_bytes)
{
    frees_what_was_marked_before(100, 1 << 20, BATCH * 100);
}

Test(reclaim_sharing, for_less_than_a_third_of_a_list_a_membarrier_is_made)
{
    begin(OPTIONS(.batch = BATCH));
    retire(0, 15, 1); /* the last mark is at 10 */
    another_thread_drains();
    uint64_t before = issued;
    retire(15, NEARLY, 1);
    cr_assert_eq(issued, before + 1);
    cr_assert_eq(stats().shared, 0);
    expect_freed(0, NEARLY, 1);
    end();
}

Test(reclaim_sharing, a_thread_alone_makes_one_for_a_batch)
{
    begin(OPTIONS(.batch = BATCH));
    uint64_t before = issued;
    retire(0, OBJECTS, 1);
    cr_assert_eq(issued - before, OBJECTS / BATCH);
    cr_assert_eq(stats().shared, 0);
    end();
}

/* ---- one that runs ------------------------------------------------------------------------- */

static sem_t arrived, go_on;
static pthread_t stander;
static bool stands; /* relaxed: any of the racing threads may be first */

static bool stand_and_issue(void)
{
    if (__atomic_exchange_n(&stands, false, __ATOMIC_RELAXED)) {
        sem_post(&arrived);
        sem_wait(&go_on);
    }
    return count_and_issue();
}

/* Drain, so that leaving does not make another fence. */
static void *drain_and_stand(void *unused)
{
    drain(unused);
    sem_post(&arrived);
    sem_wait(&go_on);
    return unused;
}

/* Another thread begins a heavy fence, behind a ticket at 40, and stops in it. */
static void begin_with_one_that_runs(void)
{
    sem_init(&arrived, 0, 0);
    sem_init(&go_on, 0, 0);
    begin(OPTIONS(.batch = BATCH));
    retire(0, 45, 1);
    stands = true;
    ga_membarrier.issue = stand_and_issue;
    cr_assert_eq(pthread_create(&stander, NULL, drain_and_stand, NULL), 0);
    sem_wait(&arrived);
    retire(45, BATCH - 1, 1);
    cr_assert_eq(issued, 0, "one runs that would do");
    expect_freed(0, OBJECTS, 0);
}

static void let_it_end(void)
{
    sem_post(&go_on);
    sem_wait(&arrived);
}

static void end_all(void)
{
    sem_post(&go_on);
    pthread_join(stander, NULL);
    end();
}

Test(reclaim_sharing, no_thread_waits_for_a_stopped_one, .timeout = 60)
{
    begin_with_one_that_runs();
    retire(BATCH - 1, BATCH, 1);
    cr_assert_eq(issued, 1, "a full list is scanned, whoever stands where");
    expect_freed(0, BATCH, 1);
    retire(BATCH, OBJECTS, 1);
    cr_assert_leq(stats().pending, BATCH);
    let_it_end();
    end_all();
}

Test(reclaim_sharing, one_that_has_ended_meanwhile_is_shared, .timeout = 60)
{
    begin_with_one_that_runs();
    let_it_end();
    retire(BATCH - 1, BATCH, 1);
    cr_assert_eq(issued, 1, "the other thread's");
    cr_assert_eq(stats().shared, 1);
    expect_freed(0, 40, 1);
    expect_freed(40, OBJECTS, 0);
    end_all();
}

/* ---- many threads, one after the other ---------------------------------------------------- */

static pthread_barrier_t turn;

/* Nothing is protected, so a member may hold at most a batch, and so may all members after each
 * thread's turn. */
static void *retire_in_turn(void *number)
{
    for (int round = 0; round < 400; round++) {
        for (uintptr_t i = 0; i < THREADS; i++) {
            if (i == (uintptr_t)number) {
                retire(0, 7, 1);
                cr_assert_leq(stats().pending, THREADS * BATCH);
            }
            pthread_barrier_wait(&turn);
        }
    }
    return NULL;
}

Test(reclaim_sharing, threads_in_turn_share_membarriers, .timeout = 60)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&turn, NULL, THREADS);
    begin(OPTIONS(.batch = BATCH));
    uint64_t scans = stats().scans;
    for (uintptr_t i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, retire_in_turn, (void *)i), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    uint64_t batches = THREADS * 400 * 7 / BATCH;
    ga_domain_stats now = stats();
    cr_assert_eq(issued, now.scans - scans - now.shared);
    cr_assert_lt(issued, batches / 2, "%llu membarriers for %llu batches",
                 (unsigned long long)issued, (unsigned long long)batches);
    end();
    expect_freed(0, 7, THREADS * 400);
}
