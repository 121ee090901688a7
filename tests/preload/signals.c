/* SPDX-License-Identifier: MIT
 *
 * A thousand signals a second, in any running thread, while four threads allocate. The handler does
 * not allocate, as it must not; it interrupts, and changes errno.
 */
#include "churn.h"

#include <signal.h>
#include <time.h>

enum {
    THREADS = 4
};

static volatile sig_atomic_t signals;

static void handle(int number)
{
    int saved = errno;
    (void)number;
    signals++;
    errno = EINTR;
    errno = saved;
}

static timer_t start_timer(void)
{
    struct sigaction action = {.sa_handler = handle}; /* no SA_RESTART: calls are cut short */
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    struct itimerspec every = {{0, 1000000}, {0, 1000000}};
    timer_t timer;
    CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &every, NULL) == 0);
    return timer;
}

static void wait_for_signals(int count)
{
    const struct timespec pause = {0, 20000000};
    while (signals < count) {
        nanosleep(&pause, NULL);
        churn(5, 100);
    }
}

int main(void)
{
    pthread_t threads[THREADS];
    timer_t timer = start_timer();
    churn_begin(threads, THREADS);
    wait_for_signals(500);
    churn_end(threads, THREADS);
    timer_delete(timer);
    puts("signals: 500 and more");
    return 0;
}
