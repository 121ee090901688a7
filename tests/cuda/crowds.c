/* SPDX-License-Identifier: MIT
 *
 * Thousands of threads, one after another and at once, and processes that end while the driver is
 * shutting down.
 *
 *   crowds CASE
 */
#include "cases.h"

/* ---- threads ------------------------------------------------------------------------------- */

enum {
    THREADS = 2000,
    AT_ONCE = 50
};

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
    for (int first = 0; first < THREADS; first += AT_ONCE) {
        if (!begin_threads(all, AT_ONCE, first, NULL, in_thread)) {
            return;
        }
        end_threads(all, AT_ONCE);
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
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 * KIB);
    pthread_barrier_init(&all_here, NULL, THREADS);
    if (!begin_threads(all, THREADS, 0, &small, in_crowd)) {
        return; /* those that are here would wait for ever */
    }
    end_threads(all, THREADS);
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
    pthread_t all[4];
    begin_threads(all, 4, 0, NULL, never_ends);
    ending();
}

static const cu_case cases[] = {
    {"threads", threads},         {"crowd", crowd},
    {"ending", ending},           {"ending_early", ending_early},
    {"ending_busy", ending_busy},
};

int main(int argc, char **argv)
{
    before_driver(argc > 1 ? argv[1] : "");
    cu_open(0);
    return RUN_CASE(argc, argv, cases);
}
