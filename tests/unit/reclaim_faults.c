/* SPDX-License-Identifier: MIT
 *
 * Hazard-pointer domains where memory runs out, the kernel refuses, or the process forks.
 */
#include <gpualloc/reclaim.h>

#include "platform/libc.h"
#include "platform/membarrier.h"
#include "support/expect.h"
#include "support/first_call.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    OBJECTS = 1000
};

static uint8_t freed[OBJECTS]; /* number of times that each was freed */
static ga_domain *domain;

static void free_object(void *context, void *object)
{
    (void)context;
    /* relaxed: counts, read when the threads are gone. */
    __atomic_fetch_add((uint8_t *)object, 1, __ATOMIC_RELAXED);
}

#define OPTIONS(...) (&(ga_domain_options){.options_size = sizeof(ga_domain_options), __VA_ARGS__})

static ga_hazards *join(void)
{
    ga_hazards *mine;
    assert_ok(ga_domain_join(domain, &mine));
    return mine;
}

static void retire(int from, int to)
{
    for (int i = from; i < to; i++) {
        assert_ok(ga_hazard_retire(join(), &freed[i], 1, free_object, NULL));
    }
}

static ga_domain_stats stats(void)
{
    ga_domain_stats now;
    ga_domain_get_stats(domain, &now);
    return now;
}

static int count_freed(int from, int to)
{
    int count = 0;
    for (int i = from; i < to; i++) {
        cr_assert_leq(freed[i], 1, "object %d was freed %d times", i, freed[i]);
        count += freed[i];
    }
    return count;
}

/* ---- memory -------------------------------------------------------------------------------- */

static ga_libc_table whole; /* the C library's */
static int requests, refuse_at, refuse_from;

static bool refuses(void)
{
    requests++;
    return requests == refuse_at || (refuse_from && requests >= refuse_from);
}

static void *short_malloc(size_t size)
{
    return refuses() ? NULL : whole.malloc(size);
}

static void *short_memalign(size_t align, size_t size)
{
    return refuses() ? NULL : whole.memalign(align, size);
}

static void run_short(int at, int from)
{
    whole = whole.malloc ? whole : ga_libc;
    requests = 0;
    refuse_at = at;
    refuse_from = from;
    ga_libc.malloc = short_malloc;
    ga_libc.memalign = short_memalign;
}

static void run_well(void)
{
    ga_libc = whole;
}

/* All calls of a domain. Returns the number of objects that it took; the test keeps the others. */
static int live_through(void)
{
    int taken = 0;
    ga_hazards *mine;
    if (ga_domain_open(&domain, OPTIONS(.slots = 2, .batch = 300)) != GA_OK) {
        cr_assert_null(domain);
        return 0;
    }
    if (ga_domain_join(domain, &mine) == GA_OK) {
        ga_hazard_set(mine, 1, &freed[5]);
        while (taken < OBJECTS && ga_hazard_reserve(mine, 3) == GA_OK) {
            for (int i = 0; i < 3 && taken < OBJECTS; i++) {
                assert_ok(ga_hazard_retire(mine, &freed[taken++], 1, free_object, NULL));
            }
        }
        cr_assert_eq(freed[5], 0);
        ga_hazard_clear(mine, 1);
    } else {
        cr_assert_null(mine);
    }
    assert_ok(ga_domain_close(domain));
    return taken;
}

/* Refuse memory from the n-th request on, for a while or forever: no object is lost or freed
 * twice. */
static void refuse_each(bool for_ever)
{
    int points = 0;
    int taken;
    do {
        memset(freed, 0, sizeof freed);
        points++;
        run_short(for_ever ? 0 : points, for_ever ? points : 0);
        taken = live_through();
        run_well();
        cr_assert_eq(count_freed(0, taken), taken);
        cr_assert_eq(count_freed(taken, OBJECTS), 0);
    } while (requests >= points);
    cr_assert_gt(points, 5, "there were requests to refuse");
    cr_assert_eq(taken, OBJECTS, "the last round was refused nothing");
}

Test(reclaim_faults, memory_is_refused_once_at_every_point)
{
    refuse_each(false);
}

Test(reclaim_faults, memory_is_refused_from_every_point_on)
{
    refuse_each(true);
}

Test(reclaim_faults, what_was_reserved_cannot_be_refused)
{
    assert_ok(ga_domain_open(&domain, OPTIONS(.batch = OBJECTS + 1)));
    ga_hazards *mine = join();
    assert_ok(ga_hazard_reserve(mine, OBJECTS));
    run_short(0, 1);
    retire(0, OBJECTS);
    run_well();
    cr_assert_eq(requests, 0);
    assert_ok(ga_domain_close(domain));
    cr_assert_eq(count_freed(0, OBJECTS), OBJECTS);
}

Test(reclaim_faults, a_full_list_without_memory_is_scanned)
{
    assert_ok(ga_domain_open(&domain, NULL));
    ga_hazards *mine = join();
    assert_ok(ga_hazard_reserve(mine, 1));
    run_short(0, 1);
    ga_hazard_set(mine, 0, &freed[0]);
    retire(0, 600);
    run_well();
    cr_assert_gt(requests, 0, "the list was full");
    cr_assert_eq(freed[0], 0);
    cr_assert_gt(count_freed(0, 600), 400, "and scanned without memory for what the slots hold");
    ga_hazard_clear(mine, 0);
    assert_ok(ga_domain_close(domain));
    cr_assert_eq(count_freed(0, 600), 600);
}

Test(reclaim_faults, what_there_is_no_room_for_stays_the_callers)
{
    assert_ok(ga_domain_open(&domain, OPTIONS(.slots = 100)));
    ga_hazards *mine = join();
    for (uint32_t i = 0; i < 100; i++) {
        ga_hazard_set(mine, i, &freed[i]);
    }
    int taken = 0;
    assert_ok(ga_hazard_reserve(mine, 1));
    run_short(0, 1);
    while (ga_hazard_retire(mine, &freed[taken], 1, free_object, NULL) == GA_OK) {
        taken++;
    }
    run_well();
    cr_assert_lt(taken, 100);
    assert_fails_with(GA_ERR_MEMORY, GA_ERR_MEMORY, "domain: no memory for a list of ");
    ga_hazard_clear_all(mine);
    assert_ok(ga_domain_close(domain));
    cr_assert_eq(count_freed(0, taken), taken);
    cr_assert_eq(freed[taken], 0);
}

/* ---- membarrier ---------------------------------------------------------------------------- */

static bool refuse_call(void)
{
    errno = EPERM;
    return false;
}

Test(reclaim_faults, without_membarrier_protection_is_seq_cst)
{
    ga_membarrier.enroll = refuse_call;
    ga_membarrier.issue = refuse_call;
    assert_ok(ga_domain_open(&domain, OPTIONS(.batch = 10)));
    cr_assert(stats().seq_cst);
    cr_assert_eq(join()->fence_mode, GA_HAZARD_SEQ_CST);
    ga_hazard_set(join(), 0, &freed[3]);
    retire(0, 10);
    cr_assert_eq(count_freed(0, 10), 9);
    ga_hazard_clear(join(), 0);
    assert_ok(ga_domain_drain(domain));
    cr_assert_eq(stats().refused, 0);
    assert_ok(ga_domain_close(domain));
}

/* ---- refused later ------------------------------------------------------------------------- */

static void open_and_refuse(void)
{
    assert_ok(ga_domain_open(&domain, OPTIONS(.slots = 2, .batch = 10)));
    if (stats().seq_cst) {
        cr_skip("no membarriers here");
    }
    ga_hazard_set(join(), 0, &freed[3]);
    ga_membarrier.issue = refuse_call;
    ga_membarrier.interrupt = refuse_call;
}

static void expect_all_but_one_freed(void)
{
    cr_assert_eq(count_freed(0, 35), 34);
    cr_assert_eq(freed[3], 0, "it is protected since before");
    cr_assert(stats().seq_cst);
    cr_assert_gt(stats().bound, 0);
    ga_hazard_clear(join(), 0);
    assert_ok(ga_domain_drain(domain));
    cr_assert_eq(freed[3], 1);
}

/* The scanning thread needs no other thread to confirm its own stores. */
Test(reclaim_faults, a_membarrier_refused_later_changes_the_fences)
{
    open_and_refuse();
    retire(0, 35);
    assert_ok(ga_domain_drain(domain));
    expect_all_but_one_freed();
    cr_assert_eq(stats().refused, 0);
    assert_ok(ga_domain_close(domain));
}

static uint32_t told, heard; /* the step that the other thread is to do, and the one that it has
                              * done */

/* Runs, and never waits in the kernel, so no other thread can confirm that its slot is visible. */
static void *stay_busy(void *unused)
{
    ga_hazards *mine = join();
    (void)unused;
    ga_hazard_set(mine, 1, &freed[4]);
    uint32_t now, done = 0;
    __atomic_store_n(&heard, 1, __ATOMIC_RELEASE); /* Pairs with the load in tell(). */
    /* Acquire. Pairs with the store in tell(). */
    while ((now = __atomic_load_n(&told, __ATOMIC_ACQUIRE)) != 3) {
        if (now == 2 && done != now) {
            ga_hazard_set(mine, 0, &freed[5]);
            done = now;
            __atomic_store_n(&heard, 2, __ATOMIC_RELEASE); /* Pairs with the load in tell(). */
        }
    }
    ga_hazard_clear_all(mine);
    return NULL;
}

static void tell(uint32_t what)
{
    __atomic_store_n(&told, what, __ATOMIC_RELEASE); /* Pairs with the load in stay_busy(). */
    /* Acquire. Pairs with the stores in stay_busy(). */
    while (__atomic_load_n(&heard, __ATOMIC_ACQUIRE) != what) {
        sched_yield();
    }
}

static void end_busy(pthread_t busy)
{
    __atomic_store_n(&told, 3, __ATOMIC_RELEASE); /* Pairs with the load in stay_busy(). */
    pthread_join(busy, NULL);
    ga_hazard_clear_all(join());
    assert_ok(ga_domain_close(domain));
}

static pthread_t begin_busy(void)
{
    pthread_t busy;
    open_and_refuse();
    cr_assert_eq(pthread_create(&busy, NULL, stay_busy, NULL), 0);
    tell(1);
    return busy;
}

/* The kernel may have put it off its processor for a moment, which would be as good. */
Test(reclaim_faults, a_thread_that_runs_changes_its_fences_by_its_next_set)
{
    pthread_t busy = begin_busy();
    retire(0, 10);
    if (stats().refused) {
        cr_assert_eq(count_freed(0, 10), 0);
        cr_assert_eq(stats().bound + stats().bound_bytes, 0, "there is none");
        assert_fails(ga_domain_drain(domain), GA_ERR_UNSUPPORTED,
                     "domain: the kernel refused a membarrier that it had granted before; "
                     "expected all threads to have changed to fences of their own since");
    }
    tell(2);
    assert_ok(ga_domain_drain(domain));
    cr_assert_eq(count_freed(0, 10), 7, "3, 4 and 5 are protected");
    cr_assert_gt(stats().bound, 0);
    end_busy(busy);
    cr_assert_eq(count_freed(0, 10), 10);
}

static uint32_t interrupts;

static bool count_interrupt(void)
{
    interrupts++;
    return true;
}

Test(reclaim_faults, an_interrupt_of_all_threads_confirms_the_change)
{
    pthread_t busy = begin_busy();
    ga_membarrier.interrupt = count_interrupt;
    retire(0, 10);
    cr_assert_eq(count_freed(0, 10), 8, "3 and 4 are protected");
    cr_assert_leq(interrupts, 1, "the threads order what they set from then on");
    retire(10, 100);
    cr_assert_leq(interrupts, 1);
    cr_assert_eq(stats().refused, 0);
    end_busy(busy);
}

static sem_t joined, over;

static void *wait_in_the_kernel(void *unused)
{
    (void)unused;
    ga_hazard_set(join(), 1, &freed[4]);
    sem_post(&joined);
    sem_wait(&over);
    ga_hazard_clear_all(join());
    return NULL;
}

Test(reclaim_faults, a_thread_that_waits_in_the_kernel_needs_no_confirmation)
{
    pthread_t waits;
    open_and_refuse();
    sem_init(&joined, 0, 0);
    sem_init(&over, 0, 0);
    cr_assert_eq(pthread_create(&waits, NULL, wait_in_the_kernel, NULL), 0);
    sem_wait(&joined);
    retire(0, 10);
    for (int i = 0; i < 10000 && ga_domain_drain(domain) != GA_OK; i++) {
        usleep(1000); /* it is about to wait */
    }
    cr_assert_eq(count_freed(0, 10), 8, "3 and 4 are protected");
    sem_post(&over);
    pthread_join(waits, NULL);
    ga_hazard_clear_all(join());
    assert_ok(ga_domain_close(domain));
}

Test(reclaim_faults, a_thread_that_joins_later_has_the_new_fences)
{
    open_and_refuse();
    retire(0, 35);
    ga_domain_leave(domain);
    cr_assert_eq(join()->fence_mode, GA_HAZARD_SEQ_CST);
    assert_ok(ga_domain_close(domain));
}

/* With the real membarrier: true or false by the machine, and never a crash. */
Test(reclaim_faults, rights_are_taken_from_pages)
{
    for (int i = 0; i < 100; i++) {
        ga_membarrier.interrupt();
    }
}

/* ---- fork ---------------------------------------------------------------------------------- */

static sem_t arrived, go_on;

static void *stand_still(void *unused)
{
    ga_hazards *mine = join();
    (void)unused;
    ga_hazard_set(mine, 0, &freed[0]);
    retire(100, 120);
    sem_post(&arrived);
    sem_wait(&go_on);
    ga_hazard_clear(mine, 0);
    return NULL;
}

/* Exits with a number that says which of these did not hold. */
static void be_child(void)
{
    ga_hazards *mine = join();
    if (mine->slots[1] != (uintptr_t)&freed[1] || stats().members != 1) {
        _exit(1);
    }
    if (ga_domain_drain(domain) != GA_OK || freed[0] != 1 || freed[1] != 0) {
        _exit(2); /* the other thread's protection is void, ours is not */
    }
    if (count_freed(100, 120) != 20 || stats().pending != 1) {
        _exit(3); /* the objects that the other thread had retired are adopted */
    }
    ga_hazard_clear_all(mine);
    retire(500, 600);
    if (ga_domain_close(domain) != GA_OK || count_freed(500, 600) != 100 || freed[1] != 1) {
        _exit(4);
    }
    _exit(0);
}

static void must_end_well(pid_t child)
{
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x", status);
}

Test(reclaim_faults, a_forked_child_goes_on_alone)
{
    pthread_t thread;
    sem_init(&arrived, 0, 0);
    sem_init(&go_on, 0, 0);
    assert_ok(ga_domain_open(&domain, OPTIONS(.slots = 2, .batch = 300)));
    cr_assert_eq(pthread_create(&thread, NULL, stand_still, NULL), 0);
    sem_wait(&arrived);
    ga_hazard_set(join(), 1, &freed[1]);
    retire(0, 2);
    pid_t child = fork();
    if (child == 0) {
        be_child();
    }
    must_end_well(child);
    assert_ok(ga_domain_drain(domain));
    cr_assert_eq(freed[0] + freed[1], 0, "the parent's are as they were");
    cr_assert_eq(stats().members, 2);
    sem_post(&go_on);
    pthread_join(thread, NULL);
    ga_hazard_clear_all(join());
    assert_ok(ga_domain_close(domain));
    cr_assert_eq(count_freed(0, OBJECTS), 22);
}

static pthread_t standing;

static void *open_and_stand(void *unused)
{
    assert_ok(ga_domain_open(&domain, OPTIONS(.slots = 2, .batch = 300)));
    cr_assert_eq(pthread_create(&standing, NULL, stand_still, NULL), 0);
    sem_wait(&arrived);
    return unused;
}

/* Objects that a thread retired which the child does not have belong to the child. */
Test(reclaim_faults, a_fork_that_began_before_the_first_domain, .timeout = 60)
{
    sem_init(&arrived, 0, 0);
    sem_init(&go_on, 0, 0);
    pid_t child = first_call_fork_around(open_and_stand);
    if (child == 0) {
        assert_ok(ga_domain_drain(domain));
        _exit(count_freed(100, 120) == 20 ? 0 : 1);
    }
    must_end_well(child);
    sem_post(&go_on);
    pthread_join(standing, NULL);
    assert_ok(ga_domain_close(domain));
}

Test(reclaim_faults, a_forked_child_may_be_refused_membarriers)
{
    assert_ok(ga_domain_open(&domain, OPTIONS(.slots = 2, .batch = 10)));
    bool before = stats().seq_cst;
    ga_hazard_set(join(), 1, &freed[1]);
    ga_membarrier.enroll = refuse_call;
    pid_t child = fork();
    if (child == 0) {
        ga_membarrier.issue = refuse_call;
        ga_hazard_set(join(), 0, &freed[0]);
        retire(0, 10);
        _exit(stats().seq_cst && join()->fence_mode == GA_HAZARD_SEQ_CST && count_freed(0, 10) == 8
                  ? 0
                  : 1);
    }
    must_end_well(child);
    cr_assert_eq(stats().seq_cst, before, "the parent goes on as it was");
    ga_hazard_clear_all(join());
    assert_ok(ga_domain_close(domain));
}

/* Forks in the midst of a scan, of which the child does the rest. */
static pid_t forked;

static void fork_and_free(void *context, void *object)
{
    forked = fork();
    free_object(context, object);
}

Test(reclaim_faults, a_fork_in_a_reclaim_function_goes_on_twice)
{
    assert_ok(ga_domain_open(&domain, OPTIONS(.slots = 2, .batch = 30)));
    ga_hazard_set(join(), 0, &freed[2]);
    retire(0, 10);
    assert_ok(ga_hazard_retire(join(), &freed[10], 1, fork_and_free, NULL));
    retire(11, 30);
    int count = count_freed(0, 30);
    ga_hazard_clear(join(), 0);
    bool closed = ga_domain_close(domain) == GA_OK;
    if (forked == 0) {
        _exit(count == 29 && closed && count_freed(0, 30) == 30 ? 0 : 1);
    }
    must_end_well(forked);
    cr_assert_eq(count, 29);
    cr_assert_eq(count_freed(0, 30), 30);
}

/* A thread scans all the time, and the process forks at random points: in the child each object has
 * been freed once, or is on a list, or, for one object of that thread, is being freed. */
static bool stop;
static uint32_t rounds;

static void *retire_round_and_round(void *unused)
{
    ga_hazards *mine = join();
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) { /* relaxed: seen some time */
        for (int i = 0; i < OBJECTS; i++) {
            ga_hazard_set(mine, (uint32_t)i % 2, &freed[i]);
            ga_hazard_retire(mine, &freed[i], 1, free_object, NULL);
        }
        ga_hazard_clear_all(mine);
        ga_domain_drain(domain);
        __atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED); /* relaxed: a count */
    }
    return NULL;
}

/* In round r an object has count r, or r + 1 once it is freed, modulo 256: all objects up to some
 * index are freed. */
static void check_forked(void)
{
    if (ga_domain_drain(domain) != GA_OK) {
        _exit(1);
    }
    uint8_t last = freed[OBJECTS - 1];
    int ahead = 0; /* how many objects the round has freed */
    int behind[2] = {0};
    for (int i = OBJECTS - 1; i >= 0; i--) {
        uint8_t beyond = (uint8_t)(freed[i] - last);
        ahead = ahead || beyond != 1 ? ahead : i + 1;
        behind[0] += beyond == 0 && i < ahead;
        behind[1] += beyond == 255;
        if (beyond != 0 && beyond != 1 && beyond != 255) {
            _exit(2);
        }
    }
    _exit(behind[ahead ? 0 : 1] > 1 || (ahead && behind[1]) ? 3 : 0);
}

Test(reclaim_faults, a_fork_beside_a_scan_finds_every_object_once)
{
    pthread_t thread;
    assert_ok(ga_domain_open(&domain, OPTIONS(.slots = 2, .batch = 5)));
    cr_assert_eq(pthread_create(&thread, NULL, retire_round_and_round, NULL), 0);
    for (int i = 0; i < 40; i++) {
        uint32_t seen = __atomic_load_n(&rounds, __ATOMIC_RELAXED); /* relaxed: a count */
        while (__atomic_load_n(&rounds, __ATOMIC_RELAXED) == seen) {
            sched_yield();
        }
        for (volatile int wait = 0; wait < i * 50; wait++) {
        }
        pid_t child = fork();
        if (child == 0) {
            check_forked();
        }
        must_end_well(child);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED); /* relaxed: seen some time */
    pthread_join(thread, NULL);
    assert_ok(ga_domain_close(domain));
}
