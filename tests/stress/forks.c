/* SPDX-License-Identifier: MIT
 *
 * Fork, again and again, while threads allocate, trace, open and close heaps. It would catch a lock
 * that a child inherits from a thread that exists only in the parent, a heap that a child inherits
 * in the middle of a change, and a block of the parent that the child cannot read or free. A child
 * that hangs is ended by its alarm.
 */
#include "stress.h"

#include "support/model.h"
#include "support/random.h"
#include "support/sanitized.h"
#include "support/scene.h"

#include <gpualloc/backend.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    THREADS = 5,
    HEAPS = 3,
    KEPT = 50, /* blocks of each heap that a child finds when it begins */
    CHILD_SECONDS = 30
};

static ga_heap *heaps[HEAPS];
static unsigned char *kept[HEAPS][KEPT];
static char trace[256];

static bool use(ga_heap *heap, uint64_t seed, size_t operations)
{
    model m;
    model_begin(&m, heap, seed, 1 << 12);
    return model_run(&m, operations) && model_end(&m);
}

/* ---- threads that exist only in the parent -------------------------------------------------- */

/* Hold the registry's lock and the heap list's lock most of the time. */
static void look_up(void)
{
    for (size_t i = 0; i < 100; i++) {
        NEED(ga_backend_at(i % 4));
    }
    ga_heap_close(stress_open("null"));
}

/* Hold the recorder's lock, while it opens files. */
static void join_trace(void)
{
    ga_heap_close(stress_open(trace));
}

static void churn(size_t number)
{
    uint64_t random = number;
    while (stress_goes_on()) {
        if (number == 0) {
            look_up();
        } else if (number == 1) {
            join_trace();
        } else {
            NEED(use(heaps[number % HEAPS], random_next(&random), 200));
        }
    }
}

/* ---- a child ------------------------------------------------------------------------------ */

static size_t size_of(size_t number)
{
    return 1 + number * 100;
}

static bool has_kept(int i)
{
    for (size_t j = 0; j < KEPT; j++) {
        const unsigned char *block = kept[i][j];
        if (block[0] != (unsigned char)j || block[size_of(j) - 1] != (unsigned char)j) {
            return false;
        }
    }
    return true;
}

static bool free_inherited(int i)
{
    bool freed = has_kept(i);
    for (size_t j = 0; j < KEPT; j++) {
        freed = freed && ga_free(heaps[i], kept[i][j]) == GA_OK;
    }
    return freed;
}

static bool use_fresh(const char *spec)
{
    ga_heap *fresh;
    return ga_heap_open(&fresh, GA_PLACE_HOST, 0, spec) == GA_OK && use(fresh, 8, 50) &&
           ga_heap_close(fresh) == GA_OK;
}

/* The child traces to a file of its own; remove it, because there would be many. */
static bool remove_trace(void)
{
    char name[32];
    snprintf(name, sizeof name, "t.%d", (int)getpid());
    return unlink(scene_path(name)) == 0;
}

/* The thread sanitizer does not prepare its own allocator for a fork. With gcc 12 a child may find
 * the lock of DenseSlabAlloc taken forever by a parent's thread that was in malloc(), even in
 * programs without this library. So under it the child allocates and frees nothing. It reads
 * inherited blocks, and takes the locks that need no memory. */
static int look_around(void)
{
    ga_stats stats;
    for (int i = 0; i < HEAPS; i++) {
        if (!has_kept(i) || ga_heap_stats(heaps[i], &stats) != GA_OK) {
            return 2;
        }
    }
    return ga_backend_at(0) ? 0 : 3;
}

/* Every other child ends as programs do, and runs its exit handlers. */
static int live_on(void *number)
{
    alarm(CHILD_SECONDS);
    if (UNDER_TSAN) {
        return look_around();
    }
    for (int i = 0; i < HEAPS; i++) {
        if (!use(heaps[i], 7, 200) || !free_inherited(i) || !use(heaps[i], 9, 50)) {
            return 2;
        }
    }
    if (!use_fresh("fail:nth=0") || !use_fresh(trace) || !remove_trace()) {
        return 3;
    }
    if (*(int *)number % 2) {
        exit(0);
    }
    return 0;
}

/* ---- the parent --------------------------------------------------------------------------- */

static void keep_blocks(void)
{
    for (int i = 0; i < HEAPS; i++) {
        for (size_t j = 0; j < KEPT; j++) {
            NEED(ga_alloc(heaps[i], size_of(j), 0, (void **)&kept[i][j]) == GA_OK);
            memset(kept[i][j], (int)j, size_of(j));
        }
    }
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
    keep_blocks();
    stress_begin(argc, argv);
    stress_need(pthread_create(&others, NULL, churn_all, NULL) == 0, "a thread");
    for (; stress_goes_on(); forks++) {
        int status = scene_in_child(live_on, &forks);
        if (status != 0) {
            fprintf(stderr, "child %d: status %d\n", forks, status);
            stress_need(false, "a forked child");
        }
    }
    pthread_join(others, NULL);
    stress_need(forks > 0, "forks");
    for (int i = 0; i < HEAPS; i++) {
        stress_need(free_inherited(i), "the parent's own blocks");
        ga_heap_close(heaps[i]);
    }
    scene_leave_folder();
    printf("forks: %d children\n", forks);
    return 0;
}
