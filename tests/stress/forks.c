/* SPDX-License-Identifier: MIT
 *
 * Fork, again and again, while threads allocate, trace, open and close heaps: no child finds a
 * lock taken or a heap half changed. A child that hangs is ended by its alarm.
 */
#include "stress.h"

#include "support/model.h"
#include "support/random.h"
#include "support/sanitized.h"
#include "support/scene.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    THREADS = 3,
    HEAPS = 3
};

static ga_heap *heaps[HEAPS];
static char trace[256];

static bool use(ga_heap *heap, uint64_t seed, size_t operations)
{
    model m;
    model_begin(&m, heap, seed, 1 << 12);
    return model_run(&m, operations) && model_end(&m);
}

static void churn(size_t number)
{
    uint64_t random = number;
    while (stress_goes_on()) {
        ga_heap *own = stress_open(random_below(&random, 2) ? "fail:nth=0" : trace);
        stress_need(use(own, random_next(&random), 50), "a heap of one's own");
        stress_need(use(heaps[number % HEAPS], random_next(&random), 200), "a shared heap");
        ga_heap_close(own);
    }
}

static int live_on(void *unused)
{
    ga_heap *fresh;
    (void)unused;
    alarm(30);
    for (int i = 0; i < HEAPS; i++) {
        if (!use(heaps[i], 7, 200)) {
            return 2;
        }
    }
    if (ga_heap_open(&fresh, GA_PLACE_HOST, 0, "fail:nth=0") != GA_OK || !use(fresh, 8, 50)) {
        return 3;
    }
    return ga_heap_close(fresh) == GA_OK ? 0 : 4;
}

static void *churn_all(void *unused)
{
    stress_threads(THREADS, churn);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t others;
    int forks = 0;
    if (UNDER_ASAN) {
        puts("skipped: the address sanitizer's own malloc does not survive a fork among threads");
        return STRESS_SKIP;
    }
    scene_enter_folder();
    snprintf(trace, sizeof trace, "trace:file=\"%s\"/system", scene_path("t"));
    heaps[0] = stress_open("system");
    heaps[1] = stress_open(trace);
    if (UNDER_TSAN || ga_heap_open(&heaps[2], GA_PLACE_HOST, 0, "jemalloc") != GA_OK) {
        heaps[2] = stress_open("fail:nth=0"); /* the sanitizer does not see into jemalloc */
    }
    stress_begin(argc, argv);
    stress_need(pthread_create(&others, NULL, churn_all, NULL) == 0, "a thread");
    for (; stress_goes_on(); forks++) {
        int status = scene_in_child(live_on, NULL);
        if (status != 0) {
            fprintf(stderr, "child %d: status %d\n", forks, status);
            stress_need(false, "a forked child");
        }
    }
    pthread_join(others, NULL);
    stress_need(forks > 0, "forks");
    for (int i = 0; i < HEAPS; i++) {
        ga_heap_close(heaps[i]);
    }
    scene_leave_folder();
    return 0;
}
