/* SPDX-License-Identifier: MIT
 *
 * Hazard-pointer domains and threads that stop, end and return: no more objects than the bound
 * wait, and the objects of ended threads are adopted; and several domains at once.
 */
#include "support/reclaim_scene.h"

#include <semaphore.h>
#include <signal.h>
#include <time.h>

static sem_t arrived, go_on;

/* Stays inside a protected section until it is told to continue. */
static void *stand_still(void *at)
{
    ga_hazards *mine = join(domain);
    ga_hazard_set(mine, 0, at);
    sem_post(&arrived);
    sem_wait(&go_on);
    ga_hazard_clear(mine, 0);
    return NULL;
}

static void start_standing(pthread_t *thread, object *at)
{
    cr_assert_eq(pthread_create(thread, NULL, stand_still, at), 0);
    sem_wait(&arrived);
}

static void begin_scene(uint32_t slots, uint32_t batch)
{
    sem_init(&arrived, 0, 0);
    sem_init(&go_on, 0, 0);
    assert_ok(ga_domain_open(&domain, OPTIONS(.slots = slots, .batch = batch)));
}

/* The bound is for the number of threads; the main thread does not retire. */
static void *retire_for_long(void *unused)
{
    ga_hazards *mine = join(domain);
    (void)unused;
    for (int i = 0; i < 40000; i++) {
        assert_ok(ga_hazard_retire(mine, &objects[i % 100], 1, free_object, NULL));
        if (i % 64 == 0) {
            ga_domain_stats stats = stats_of(domain);
            cr_assert_leq(stats.pending, stats.bound);
        }
    }
    return NULL;
}

Test(reclaim_threads, the_bound_holds_while_a_thread_is_stopped)
{
    enum {
        RETIRERS = 3
    };
    pthread_t standing;
    pthread_t retirers[RETIRERS];
    begin_scene(2, 50);
    start_standing(&standing, &objects[4000]);
    retire(4000, 4001);
    for (int i = 0; i < RETIRERS; i++) {
        cr_assert_eq(pthread_create(&retirers[i], NULL, retire_for_long, NULL), 0);
    }
    for (int i = 0; i < RETIRERS; i++) {
        pthread_join(retirers[i], NULL);
    }
    ga_domain_stats stats = stats_of(domain);
    cr_assert_leq(stats.memberships, 2 + RETIRERS);
    cr_assert_eq(stats.bound, stats.memberships * (50 + stats.memberships * 2));
    assert_ok(ga_domain_drain(domain));
    cr_assert_eq(stats_of(domain).pending, 1, "only what is protected is left");
    cr_assert_eq(objects[4000].freed, 0);
    cr_assert_eq(frees, RETIRERS * 40000);
    sem_post(&go_on);
    pthread_join(standing, NULL);
    assert_ok(ga_domain_drain(domain));
    cr_assert_eq(objects[4000].freed, 1);
    assert_ok(ga_domain_close(domain));
}

enum {
    NAPS = 200,
    NAP = 1000000 /* ns */
};

static bool is_over; /* relaxed: publishes nothing */

static void nap(int number)
{
    (void)number;
    nanosleep(&(struct timespec){0, NAP}, NULL);
}

/* `first`: an object to retire once, before all others. */
static void *retire_until_it_is_over(void *first)
{
    ga_hazards *mine = join(domain);
    if (first) {
        assert_ok(ga_hazard_retire(mine, first, 1, free_object, NULL));
        sem_post(&arrived);
    }
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        assert_ok(ga_hazard_retire(mine, &objects[0], 1, free_object, NULL));
    }
    return NULL;
}

static void *read_until_it_is_over(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        ga_domain_stats stats = stats_of(domain);
        cr_assert_leq(stats.pending, stats.bound);
        cr_assert_geq(stats.pending, 1);
        cr_assert_eq(stats.pending, stats.retired - stats.freed);
    }
    return NULL;
}

/* Between two reads of numbers the others retire many times the bound, and scan. One object is
 * protected all the time. */
Test(reclaim_threads, the_bound_holds_for_a_reader_that_is_interrupted)
{
    pthread_t retirers[2], reader;
    struct sigaction action = {.sa_handler = nap};
    void *root = &objects[1];
    cr_assert_eq(sigaction(SIGUSR1, &action, NULL), 0);
    begin_scene(2, 50);
    ga_hazards *mine = join(domain);
    cr_assert_eq(ga_hazard_protect_pointer(mine, 0, &root), &objects[1]);
    sem_init(&arrived, 0, 0);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(pthread_create(&retirers[i], NULL, retire_until_it_is_over,
                                    i == 0 ? &objects[1] : NULL),
                     0);
    }
    sem_wait(&arrived);
    cr_assert_eq(pthread_create(&reader, NULL, read_until_it_is_over, NULL), 0);
    for (int i = 0; i < NAPS; i++) {
        cr_assert_eq(pthread_kill(reader, SIGUSR1), 0);
        nap(0);
        nap(0);
    }
    __atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
    pthread_join(reader, NULL);
    ga_hazard_clear(mine, 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(retirers[i], NULL);
    }
    assert_ok(ga_domain_close(domain));
}

static void *end_inside(void *unused)
{
    ga_hazards *mine = join(domain);
    (void)unused;
    ga_hazard_set(mine, 1, &objects[0]);
    ga_hazard_set(mine, 0, &objects[7]);
    retire(0, 5);
    return NULL; /* with both slots set */
}

Test(reclaim_threads, a_thread_that_ends_protects_nothing)
{
    begin_scene(2, 100);
    in_a_thread(end_inside, NULL);
    cr_assert_eq(frees, 5, "it frees what it can, when it goes");
    cr_assert_eq(stats_of(domain).members, 0);
    retire(7, 8);
    assert_ok(ga_domain_drain(domain));
    cr_assert_eq(frees, 6);
    assert_ok(ga_domain_close(domain));
}

static void *retire_ten(void *unused)
{
    (void)unused;
    retire(0, 10);
    return NULL;
}

Test(reclaim_threads, what_threads_leave_is_taken_over)
{
    pthread_t standing;
    begin_scene(1, 100);
    start_standing(&standing, &objects[3]);
    in_a_thread(retire_ten, NULL);
    cr_assert_eq(frees, 9);
    cr_assert_eq(stats_of(domain).pending, 1);
    sem_post(&go_on);
    pthread_join(standing, NULL); /* its last scan frees the object */
    cr_assert_eq(frees, 10);
    cr_assert_eq(stats_of(domain).inherited, 1);
    assert_ok(ga_domain_close(domain));
}

static void *leave_and_return(void *unused)
{
    (void)unused;
    ga_domain_leave(domain); /* is no member */
    for (int i = 0; i < 100; i++) {
        ga_hazards *mine = join(domain);
        cr_assert_eq(join(domain), mine, "a thread is a member once");
        for (uint32_t slot = 0; slot < mine->count; slot++) {
            cr_assert_eq(mine->slots[slot], 0, "its slots are clear");
        }
        ga_hazard_set(mine, 1, &objects[i]);
        ga_domain_leave(domain);
    }
    return NULL;
}

Test(reclaim_threads, threads_leave_and_return)
{
    begin_scene(3, 100);
    for (int i = 0; i < 20; i++) {
        in_a_thread(leave_and_return, NULL);
    }
    cr_assert_eq(stats_of(domain).memberships, 1, "what one leaves the next one gets");
    assert_ok(ga_domain_close(domain));
}

Test(reclaim_threads, more_threads_than_expected)
{
    enum {
        MANY = 200
    };
    static pthread_t threads[MANY];
    begin_scene(1, 10);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            start_standing(&threads[i], &objects[i]);
        }
        retire((uint64_t)round * 1000, (uint64_t)round * 1000 + 1000);
        assert_ok(ga_domain_drain(domain));
        cr_assert_eq(frees, round * 1000 + 1000 - MANY, "the same are protected again");
        cr_assert_eq(stats_of(domain).members, MANY + 1);
        cr_assert_leq(stats_of(domain).memberships, MANY + 2);
        for (int i = 0; i < MANY; i++) {
            sem_post(&go_on);
        }
        for (int i = 0; i < MANY; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    assert_ok(ga_domain_close(domain));
    cr_assert_eq(frees, 2000);
}

static void free_and_end(void *context, void *retired)
{
    free_object(context, retired);
    pthread_exit(NULL);
}

static void *end_in_the_midst(void *unused)
{
    ga_hazards *mine = join(domain);
    (void)unused;
    ga_hazard_set(mine, 0, &objects[1]);
    retire(0, 4);
    assert_ok(ga_hazard_retire(mine, &objects[4], 1, free_and_end, NULL));
    retire(5, 10);
    return (void *)1;
}

Test(reclaim_threads, a_thread_may_end_in_a_reclaim_function)
{
    begin_scene(1, 8);
    in_a_thread(end_in_the_midst, NULL);
    assert_ok(ga_domain_close(domain));
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(objects[i].freed, 1, "object %d", i);
    }
    cr_assert_eq(frees, 8, "the thread came to its eighth object");
}

/* ---- several domains ----------------------------------------------------------------------- */

static ga_domain *several[5];

static void *use_several(void *unused)
{
    (void)unused;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 5; i++) {
            ga_hazards *mine = join(several[i]);
            ga_hazard_set(mine, 0, &objects[i]);
            assert_ok(ga_hazard_retire(mine, &objects[round * 10 + i], 1, free_object, NULL));
        }
    }
    for (int i = 0; i < 5; i++) {
        ga_hazard_clear(join(several[i]), 0);
    }
    sem_post(&arrived);
    sem_wait(&go_on);
    for (int i = 0; i < 5; i++) { /* these threads are new, most likely with the addresses of the
                                   * old ones */
        ga_hazards *mine = join(several[i]);
        cr_assert_eq(mine->slots[0], 0);
        assert_ok(ga_hazard_retire(mine, &objects[100 + i], 1, free_object, NULL));
    }
    return NULL;
}

Test(reclaim_threads, domains_do_not_know_each_other)
{
    pthread_t thread;
    sem_init(&arrived, 0, 0);
    sem_init(&go_on, 0, 0);
    for (int i = 0; i < 5; i++) {
        assert_ok(ga_domain_open(&several[i], OPTIONS(.slots = 1, .batch = 50)));
    }
    cr_assert_eq(pthread_create(&thread, NULL, use_several, NULL), 0);
    sem_wait(&arrived);
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(stats_of(several[i]).pending, 3);
        assert_ok(ga_domain_close(several[i])); /* the thread is a member of each */
        cr_assert_eq(frees, 3 * (i + 1));
        assert_ok(ga_domain_open(&several[i], NULL));
    }
    sem_post(&go_on);
    pthread_join(thread, NULL);
    cr_assert_eq(freed_so_far(), 20, "it left the new ones when it ended");
    for (int i = 0; i < 5; i++) {
        assert_ok(ga_domain_close(several[i]));
    }
}

Test(reclaim_threads, a_slot_of_another_domain_protects_nothing)
{
    ga_domain *other;
    assert_ok(ga_domain_open(&domain, OPTIONS(.batch = 1)));
    assert_ok(ga_domain_open(&other, NULL));
    ga_hazard_set(join(other), 0, &objects[0]);
    retire(0, 1);
    cr_assert_eq(objects[0].freed, 1);
    ga_hazard_clear_all(join(other));
    assert_ok(ga_domain_close(other));
    assert_ok(ga_domain_close(domain));
}
