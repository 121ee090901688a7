/* SPDX-License-Identifier: MIT
 *
 * A lock that forks take along where it was ever wanted.
 */
#include "platform/forks.h"
#include "support/scene.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <semaphore.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static ga_forked_lock lock = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static int whole; /* guarded by `lock`: 0, but while it is changed */
static sem_t taken, go_on;

static void *keep_it(void *unused)
{
    ga_forked_lock_use(&lock);
    pthread_mutex_lock(&lock.mutex);
    whole = 1;
    sem_post(&taken);
    sem_wait(&go_on);
    whole = 0;
    pthread_mutex_unlock(&lock.mutex);
    return unused;
}

/* A thread that has the lock when this returns. */
static pthread_t start_keeper(void)
{
    pthread_t thread;
    sem_init(&taken, 0, 0);
    sem_init(&go_on, 0, 0);
    cr_assert_eq(pthread_create(&thread, NULL, keep_it, NULL), 0);
    sem_wait(&taken);
    return thread;
}

static void *end_later(void *unused)
{
    usleep(20000);
    sem_post(&go_on);
    return unused;
}

static bool is_free(void)
{
    bool got = pthread_mutex_trylock(&lock.mutex) == 0;
    if (got) {
        pthread_mutex_unlock(&lock.mutex);
    }
    return got;
}

static int begin_child(void *unused)
{
    (void)unused;
    int found = whole;
    ga_forked_lock_child(&lock);
    return found || !is_free();
}

Test(forks, a_holder_of_the_lock_is_waited_for)
{
    pthread_t helper, keeper = start_keeper();
    cr_assert_eq(pthread_create(&helper, NULL, end_later, NULL), 0);
    ga_forked_lock_prepare(&lock);
    cr_expect_eq(whole, 0, "a fork went on while the lock was somebody's");
    cr_expect_eq(scene_in_child(begin_child, NULL), 0);
    cr_expect_not(is_free(), "the parent let the lock go before its handler ran");
    ga_forked_lock_parent(&lock);
    cr_expect(is_free());
    pthread_join(helper, NULL);
    pthread_join(keeper, NULL);
}

static int begin_child_without(void *unused)
{
    (void)unused;
    ga_forked_lock_child(&lock); /* `whole` is not: nothing was to be found yet */
    return !is_free();
}

Test(forks, the_first_waiter_continues)
{
    ga_forked_lock_prepare(&lock);
    pthread_t keeper = start_keeper();
    cr_expect_eq(scene_in_child(begin_child_without, NULL), 0);
    ga_forked_lock_parent(&lock);
    cr_expect_not(is_free(), "the parent let go what another thread has");
    sem_post(&go_on);
    pthread_join(keeper, NULL);
    cr_expect(is_free());
}

static void *fork_for_itself(void *unused)
{
    ga_forked_lock_prepare(&lock);
    sem_post(&taken);
    sem_wait(&go_on);
    ga_forked_lock_parent(&lock);
    return unused;
}

/* One fork began before the lock was requested, one after. */
Test(forks, each_of_two_gives_up_its_own)
{
    pthread_t other;
    sem_init(&taken, 0, 0);
    sem_init(&go_on, 0, 0);
    ga_forked_lock_prepare(&lock);
    ga_forked_lock_use(&lock);
    cr_assert_eq(pthread_create(&other, NULL, fork_for_itself, NULL), 0);
    sem_wait(&taken);
    ga_forked_lock_parent(&lock);
    cr_expect_not(is_free(), "one let go what the other has");
    sem_post(&go_on);
    pthread_join(other, NULL);
    cr_expect(is_free());
}

/* ---- handlers of rooms ---------------------------------------------------------------------- */

static char order[64];
static bool fork_within; /* the prepare handler forks once more */

static void note(char what)
{
    size_t length = strlen(order);
    if (length < sizeof order - 1) {
        order[length] = what;
    }
}

static void prepare_first(void)
{
    note('a');
}

static void parent_first(void)
{
    note('A');
}

static void child_first(void)
{
    note('1');
}

/* As a signal handler may do. */
static void prepare_second(void)
{
    note('b');
    if (fork_within) {
        fork_within = false;
        pid_t pid = fork();
        if (pid == 0) {
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
}

static void parent_second(void)
{
    note('B');
}

static void child_second(void)
{
    note('2');
}

static void prepare_below(void)
{
    note('x');
}

static void parent_below(void)
{
    note('X');
}

static void child_below(void)
{
    note('3');
}

static void watch_all(void)
{
    static bool first, second;
    ga_forks_watch(&first, prepare_first, parent_first, child_first);
    ga_forks_watch(&second, prepare_second, parent_second, child_second);
    ga_forks_watch(&second, prepare_second, parent_second, child_second);
    ga_forks_atfork(prepare_below, parent_below, child_below); /* refused where jemalloc has it */
    memset(order, 0, sizeof order);
}

/* Forks. Returns true if the child recorded `expected`. */
static bool child_notes(const char *expected)
{
    pid_t pid = fork();
    int status = 0;
    if (pid == 0) {
        _exit(strcmp(order, expected) == 0 ? 0 : 1);
    }
    return waitpid(pid, &status, 0) == pid && status == 0;
}

Test(forks, rooms_prepare_in_reverse_order_and_the_allocator_below_comes_last)
{
    watch_all();
    cr_expect(child_notes("bax312"), "the child's handlers ran in another order");
    cr_expect_str_eq(order, "baxXAB");
    cr_expect_eq(ga_forks_atfork(prepare_below, NULL, NULL), ENOMEM);
}

Test(forks, a_fork_within_a_fork_runs_no_handler_again, .timeout = 20)
{
    watch_all();
    fork_within = true;
    cr_expect(child_notes("bax312"), "the outer fork's child");
    cr_expect_str_eq(order, "baxXAB");
}

static void *fork_beside(void *unused)
{
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
    return unused;
}

Test(forks, threads_that_fork_together_take_turns, .timeout = 60)
{
    pthread_t threads[4];
    watch_all();
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, fork_beside, NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}
