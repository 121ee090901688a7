/* SPDX-License-Identifier: MIT
 *
 * Thousands of threads, one after another and at once, and processes that end while the driver is
 * shutting down.
 *
 *   crowds CASE
 */
#include "../support/first_call.h"
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
        return; /* the threads that have started would wait forever */
    }
    end_threads(all, THREADS);
    pthread_attr_destroy(&small);
    pthread_barrier_destroy(&all_here);
}

/* ---- at the same time ---------------------------------------------------------------------- */

enum {
    BUSY = 4,
    TURNS = 200
};

static bool stop;    /* the busy */
static bool resets;  /* during the case, so that the driver may report a missing block or context */
static unsigned bad; /* wrong results */

static void note_answer(CUresult result)
{
    bool gone = result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CONTEXT ||
                result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
    bool good = result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
                (resets && gone);
    if (!good) {
        printf("busy: %d\n", result);
        __atomic_fetch_add(&bad, 1, __ATOMIC_RELAXED); /* a figure */
    }
}

static void *in_turns(void *argument)
{
    CUdeviceptr blocks[8] = {0};
    note_answer(cu.push(everybodys));
    for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) { /* see there */
        CUdeviceptr *at = &blocks[i % 8];
        CUresult result = CUDA_SUCCESS;
        if (*at) {
            result = cu.free(*at);
            *at = result == CUDA_SUCCESS || resets ? 0 : *at;
        } else {
            result = cu.alloc(at, (i * 37 % 100 + 1) * 60 * KIB);
        }
        note_answer(result);
    }
    for (int i = 0; i < 8; i++) {
        note_answer(blocks[i] ? cu.free(blocks[i]) : CUDA_SUCCESS);
    }
    return argument;
}

/* While other threads allocate and free. */
static void beside(void (*turn)(void), int turns)
{
    pthread_t all[BUSY];
    if (!begin_threads(all, BUSY, 1, NULL, in_turns)) {
        return;
    }
    for (int i = 0; i < turns; i++) {
        turn();
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED); /* see there */
    end_threads(all, BUSY);
    CHECK_SAME(0, bad);
}

static void fork_once(void)
{
    pid_t child = begin_child();
    if (child == 0) {
        CUdeviceptr none = 0;
        CHECK_SAME(CUDA_ERROR_NOT_INITIALIZED, cu.alloc(&none, MIB));
        _exit(not_so != 0);
    }
    end_child(child);
}

static void forks(void)
{
    beside(fork_once, 50);
}

static void *ask_first(void *unused)
{
    CUdeviceptr block = 0;
    (void)unused;
    CHECK_SAME(0, cu.push(everybodys));
    CHECK_SAME(0, cu.alloc(&block, MIB));
    CHECK_SAME(0, cu.free(block));
    return NULL;
}

/* A fork that begins before the first request, and ends while that request opens the heap, whose
 * own driver is the pipe. The child finds no lock taken, nor do its own children. */
static void fork_first(void)
{
    CHECK_SAME(0, cu.get_current(&everybodys));
    pid_t child = first_call_fork("GPUALLOC_CUDA_DRIVER", ask_first);
    if (child == 0) {
        not_so = 0;
        CHECK(cu.reset(0) != CUDA_SUCCESS, "there is no device here");
        fork_once();
        _exit(not_so != 0);
    }
    end_child(child);
    CHECK(first_call_end(), "the first request did not wait");
}

static CUstream capturing;

static void capture_once(void)
{
    void *graph;
    CHECK_SAME(0, cu.begin_capture(capturing, 2));
    usleep(200);
    CHECK_SAME(0, cu.end_capture(capturing, &graph));
}

static void captures(void)
{
    CHECK_SAME(0, cu.stream(&capturing, 1));
    beside(capture_once, TURNS);
}

static void reset_once(void)
{
    CUcontext context;
    usleep(1000);
    CHECK_SAME(0, cu.reset(0));
    CHECK_SAME(0, cu.retain(&context, 0));
}

/* Calls on a context that is being destroyed may fail; they end no process. */
static void resetting(void)
{
    resets = true;
    beside(reset_once, TURNS / 4);
}

static CUdeviceptr contested;
static pthread_barrier_t turn_begins, turn_ends;
static unsigned freed;

static void *in_contest(void *argument)
{
    bool good = cu.push(everybodys) == 0;
    for (int i = 0; i < TURNS; i++) {
        pthread_barrier_wait(&turn_begins);
        CUresult result = cu.free(contested);
        good = good && (result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE);
        __atomic_fetch_add(&freed, result == CUDA_SUCCESS, __ATOMIC_RELAXED); /* a figure */
        pthread_barrier_wait(&turn_ends);
    }
    return good ? argument : NULL;
}

/* Of several threads that free a block at once, one succeeds. */
static void contest(void)
{
    pthread_t all[BUSY];
    pthread_barrier_init(&turn_begins, NULL, BUSY + 1);
    pthread_barrier_init(&turn_ends, NULL, BUSY + 1);
    if (!begin_threads(all, BUSY, 1, NULL, in_contest)) {
        return;
    }
    for (int i = 0; i < TURNS; i++) {
        CHECK_SAME(0, cu.alloc(&contested, i % 2 ? KIB : 5 * MIB));
        pthread_barrier_wait(&turn_begins);
        pthread_barrier_wait(&turn_ends);
        CHECK_SAME(i + 1, freed);
    }
    end_threads(all, BUSY);
}

/* ---- misuse ------------------------------------------------------------------------------- */

static CUdeviceptr *volatile room; /* addresses of all threads, and freed blocks */

static void *in_disorder(void *argument)
{
    bool good = cu.push(everybodys) == 0;
    for (int i = 0; i < TURNS; i++) {
        good = good && cu.alloc(room, KIB) == 0;
    }
    return good ? argument : NULL;
}

/* A misuse that a sanitizer must report in the preload's work for it. */
static void misused(void)
{
    pthread_t all[BUSY];
    room = malloc(sizeof *room);
    free(room);
    begin_threads(all, BUSY, 1, NULL, in_disorder);
    end_threads(all, BUSY);
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
    {"ending_busy", ending_busy}, {"forks", forks},
    {"captures", captures},       {"resetting", resetting},
    {"contest", contest},         {"fork_first", fork_first},
    {"misused", misused},
};

int main(int argc, char **argv)
{
    before_driver(argc > 1 ? argv[1] : "");
    cu_open(0);
    return RUN_CASE(argc, argv, cases);
}
