/* SPDX-License-Identifier: MIT
 *
 * Thousands of threads, one after another and at once, and processes that end while the driver is
 * shutting down.
 *
 *   crowds CASE
 */
#include "cu.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum {
    KIB = 1 << 10,
    MIB = 1 << 20
};

/* ---- threads ------------------------------------------------------------------------------- */

enum {
    THREADS = 2000,
    AT_ONCE = 50
};

static CUcontext everybodys;

static void *in_thread(void *argument)
{
    CUdeviceptr mine = 0;
    CUdeviceptr other = 0;
    int number = (int)(intptr_t)argument;
    bool good = cu.push(everybodys) == 0 && cu.alloc(&mine, (size_t)(number % 100) * KIB + 1) == 0;
    if (good) {
        memset((void *)mine, number, 1);
        good = cu.alloc_thread(&other, MIB, NULL) == 0 && *(char *)mine == (char)number &&
               cu.free_thread(other, NULL) == 0 && cu.free(mine) == 0;
    }
    return (void *)(intptr_t)good;
}

static void threads(void)
{
    pthread_t all[AT_ONCE];
    CHECK_SAME(0, cu.get_current(&everybodys));
    for (int round = 0; round < THREADS / AT_ONCE; round++) {
        for (int i = 0; i < AT_ONCE; i++) {
            void *number = (void *)(intptr_t)(round * AT_ONCE + i);
            CHECK_SAME(0, pthread_create(&all[i], NULL, in_thread, number));
        }
        for (int i = 0; i < AT_ONCE; i++) {
            void *good = NULL;
            pthread_join(all[i], &good);
            CHECK(good, "thread %d", i);
        }
    }
}

/* All at once, each with a block of its own. */
static pthread_barrier_t all_here;

static void *in_crowd(void *argument)
{
    CUdeviceptr mine = 0;
    int number = (int)(intptr_t)argument;
    size_t size = (size_t)(number % 100) * KIB + 1;
    bool good = cu.push(everybodys) == 0 && cu.alloc(&mine, size) == 0;
    if (good) {
        memset((void *)mine, number, size);
    }
    pthread_barrier_wait(&all_here);
    for (size_t i = 0; good && i < size; i++) {
        good = ((char *)mine)[i] == (char)number;
    }
    return (void *)(intptr_t)(good && cu.free(mine) == 0);
}

static void crowd(void)
{
    static pthread_t all[THREADS];
    pthread_attr_t small;
    CHECK_SAME(0, cu.get_current(&everybodys));
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 * KIB);
    pthread_barrier_init(&all_here, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        int result = pthread_create(&all[i], &small, in_crowd, (void *)(intptr_t)i);
        if (result) { /* those that are here would wait for ever */
            CHECK_SAME(0, result);
            return;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        void *good = NULL;
        pthread_join(all[i], &good);
        CHECK(good, "thread %d", i);
    }
    pthread_attr_destroy(&small);
    pthread_barrier_destroy(&all_here);
}

/* ---- the end ------------------------------------------------------------------------------- */

static CUdeviceptr last;

static void last_blocks(void)
{
    CUdeviceptr lost = 0;
    CHECK_SAME(0, cu.alloc(&last, MIB));
    CHECK_SAME(0, cu.alloc_on(&lost, MIB, NULL));
}

static void at_exit(void)
{
    CUresult result = cu.free(last); /* as destructors of a runtime do */
    if (result != CUDA_ERROR_DEINITIALIZED && result != CUDA_SUCCESS) {
        printf("at exit: %d\n", result);
        fflush(stdout);
        _exit(1);
    }
}

static void ending(void)
{
    atexit(at_exit);
    last_blocks();
    cu.shut_down();
}

/* Registered before the preload has seen the driver: it runs after all that the preload does. */
static void before_driver(const char *name)
{
    if (strcmp(name, "ending_early") == 0) {
        atexit(at_exit);
    }
}

static void ending_early(void)
{
    last_blocks();
    cu.shut_down();
}

static void *never_ends(void *argument)
{
    CUdeviceptr mine = 0;
    cu.push(everybodys);
    for (;;) {
        CUresult result = cu.alloc(&mine, KIB);
        if (result == CUDA_SUCCESS) {
            result = cu.free(mine);
        }
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED) {
            printf("while ending: %d\n", result);
            fflush(stdout);
            _exit(1);
        }
    }
    return argument;
}

static void ending_busy(void)
{
    pthread_t thread;
    CHECK_SAME(0, cu.get_current(&everybodys));
    for (int i = 0; i < 4; i++) {
        CHECK_SAME(0, pthread_create(&thread, NULL, never_ends, NULL));
    }
    ending();
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"threads", threads},         {"crowd", crowd},
    {"ending", ending},           {"ending_early", ending_early},
    {"ending_busy", ending_busy},
};

int main(int argc, char **argv)
{
    before_driver(argc > 1 ? argv[1] : "");
    cu_open(0);
    for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            printf("%s: %d not so\n", argv[1], not_so);
            return not_so != 0;
        }
    }
    puts("no such case");
    return 2;
}
