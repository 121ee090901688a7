/* SPDX-License-Identifier: MIT
 *
 * Forks, exits, and calls of the driver that fail.
 */
#include "../../liballoc/device/device.h"
#include "cases.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- fork --------------------------------------------------------------------------------- */

typedef struct inherited {
    ga_heap *heap;
    void *block;
    int device;
} inherited;

static bool refused(ga_status status)
{
    bool as_expected = status == GA_ERR_DEVICE && test_error_has("before fork()");
    if (!as_expected) {
        printf("    in the child: status %d, error: %s\n", (int)status, ga_error_text());
    }
    return as_expected;
}

static int use_in_child(void *context)
{
    const inherited *from = context;
    ga_heap *heap;
    void *block;
    bool good = refused(ga_heap_open(&heap, GA_PLACE_DEVICE, from->device, "cuda")) && !heap;
    good = refused(ga_heap_open(&heap, GA_PLACE_DEVICE, from->device, "async")) && !heap && good;
    good = refused(ga_alloc(from->heap, 100, 0, &block)) && !block && good;
    good = refused(ga_alloc_zeroed(from->heap, 100, 0, &block)) && good;
    good = refused(ga_realloc(from->heap, from->block, 100, 0, &block)) && good;
    good = refused(ga_free(from->heap, from->block)) && good;
    good = refused(ga_device_probe(from->device)) && good;
    good =
        !ga_owns(from->heap, from->block) && ga_usable_size(from->heap, from->block) == 0 && good;
    ga_heap_close(from->heap);
    return good ? 0 : 1;
}

static void check_fork(int device, const char *spec)
{
    inherited from = {.device = device};
    REQUIRE(ga_heap_open(&from.heap, GA_PLACE_DEVICE, device, spec) == GA_OK);
    REQUIRE(ga_alloc(from.heap, 4096, 0, &from.block) == GA_OK);
    EXPECT(device_fill(device, from.block, 7, 4096));
    EXPECT(test_in_child(use_in_child, &from) == 0);
    EXPECT(device_holds(device, from.block, 7, 4096));
    EXPECT(ga_free(from.heap, from.block) == GA_OK);
    ga_heap_close(from.heap);
}

static void fork_after_use(int device)
{
    check_fork(device, "cuda");
    check_fork(device, "async");
}

/* ---- the end of a process ----------------------------------------------------------------- */

enum {
    LAST = 4
};

static ga_heap *last_heaps[LAST];
static void *last_blocks[LAST];

/* Runs after the driver's own exit handlers, since it was there before the driver was loaded. */
static void free_last(void)
{
    for (int i = 0; i < LAST; i++) {
        if (ga_free(last_heaps[i], last_blocks[i]) != GA_OK) {
            printf("    at exit: %s\n", ga_error_text());
            fflush(stdout);
            _exit(1);
        }
        ga_heap_close(last_heaps[i]);
    }
}

int exit_with_blocks(void)
{
    static const char *const specs[LAST] = {"cuda", "managed", "pinned", "async"};
    atexit(free_last);
    for (int i = 0; i < LAST; i++) {
        if (ga_heap_open(&last_heaps[i], GA_PLACE_DEVICE, 0, specs[i]) != GA_OK ||
            ga_alloc(last_heaps[i], 1 << 20, 0, &last_blocks[i]) != GA_OK) {
            printf("    %s\n", ga_error_text());
            return 2;
        }
    }
    return 0;
}

/* ---- a process of its own ----------------------------------------------------------------- */

/* Start this program anew with `mode`, and expect success. */
static void start_anew(int device, const char *mode)
{
    extern char **environ;
    char self[] = "/proc/self/exe";
    char argument[32];
    char *arguments[] = {self, argument, NULL};
    pid_t child;
    int status = -1;
    if (device > 0) {
        SKIP("once is enough");
    }
    snprintf(argument, sizeof argument, "%s", mode);
    REQUIRE(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
    REQUIRE(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void exit_handlers(int device)
{
    start_anew(device, "--exit-with-blocks");
}

static void first_use(int device)
{
    start_anew(device, "--first-use-cuda");
}

static void first_use_of_pools(int device)
{
    start_anew(device, "--first-use-async");
}

static void first_use_of_both(int device)
{
    start_anew(device, "--first-use-both");
}

static void pools_come_and_go(int device)
{
    start_anew(device, "--pools");
}

/* ---- many threads at once, in a process of their own --------------------------------------- */

enum {
    THREADS = 16,
    PATIENCE = 60 /* seconds; all of it takes 2 or 3 */
};

typedef struct racer {
    const char *spec;
    int rounds;
    bool probes;
    const char *volatile step; /* its present action, for the watchdog */
} racer;

static racer racers[THREADS];

static void say(const char *text)
{
    ssize_t written = write(STDOUT_FILENO, text, strlen(text));
    (void)written;
}

static void give_up(int signal)
{
    (void)signal;
    say("    no end in sight:");
    for (int i = 0; i < THREADS; i++) {
        say(" ");
        say(racers[i].spec);
        say(" in ");
        say(racers[i].step);
        say(i + 1 < THREADS ? "," : "\n");
    }
    _exit(3);
}

static bool step(racer *r, const char *name, ga_status status)
{
    r->step = name; /* the next action */
    if (status != GA_OK) {
        printf("    %s, before %s: %s\n", r->spec, name, ga_error_text());
    }
    return status == GA_OK;
}

static bool race_once(racer *r)
{
    ga_heap *heap;
    void *block = NULL;
    return step(r, "open", GA_OK) &&
           step(r, "alloc", ga_heap_open(&heap, GA_PLACE_DEVICE, 0, r->spec)) &&
           step(r, "probe", ga_alloc_zeroed(heap, 1000, 0, &block)) &&
           step(r, "free", r->probes ? ga_device_probe(0) : GA_OK) &&
           step(r, "close", ga_free(heap, block)) && step(r, "rest", ga_heap_close(heap));
}

static void *race(void *argument)
{
    racer *r = argument;
    bool good = true;
    for (int i = 0; good && i < r->rounds; i++) {
        good = race_once(r);
    }
    return good ? r : NULL;
}

static int race_all(const char *even, const char *odd, int rounds, bool probes)
{
    pthread_t threads[THREADS];
    int good = 0;
    for (int i = 0; i < THREADS; i++) {
        racers[i] = (racer){i % 2 ? odd : even, rounds, probes, "start"};
    }
    signal(SIGALRM, give_up);
    alarm(PATIENCE);
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, race, &racers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        void *answer;
        pthread_join(threads[i], &answer);
        good += answer != NULL;
    }
    return good == THREADS ? 0 : 1;
}

/* The first thread loads the driver and the module, and makes the context. */
int first_use_cuda(void)
{
    return race_all("cuda", "cuda", 1, true);
}

int first_use_async(void)
{
    return race_all("async", "async", 1, true);
}

int first_use_both(void)
{
    return race_all("cuda", "async", 1, true);
}

int pools_by_threads(void)
{
    return ga_device_probe(0) == GA_OK ? race_all("async", "async:release=0", 50, false) : 1;
}

/* ---- calls that fail ---------------------------------------------------------------------- */

/* The real table, in which one call fails; the allocated blocks are counted. */
static ga_cuda_driver failing;
static const ga_cuda_driver *real;
static int live;

static CUresult counted_alloc(CUdeviceptr *block, size_t size)
{
    CUresult result = real->cuMemAlloc(block, size);
    live += result == CUDA_SUCCESS;
    return result;
}

static CUresult counted_free(CUdeviceptr block)
{
    CUresult result = real->cuMemFree(block);
    live -= result == CUDA_SUCCESS;
    return result;
}

static CUresult failing_memset(CUdeviceptr to, unsigned char value, size_t size, CUstream stream)
{
    (void)to, (void)value, (void)size, (void)stream;
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult failing_copy(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    (void)to, (void)from, (void)size, (void)stream;
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult failing_push(CUcontext context)
{
    (void)context;
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult failing_pool(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    (void)pool, (void)attribute, (void)value;
    return CUDA_ERROR_INVALID_VALUE;
}

static void with_failing_calls(int device)
{
    ga_heap *heap;
    void *block = NULL;
    void *moved = NULL;
    REQUIRE(ga_heap_open(&heap, GA_PLACE_DEVICE, device, "cuda") == GA_OK);
    EXPECT(ga_alloc(heap, 1000, 0, &block) == GA_OK);
    EXPECT(device_fill(device, block, 9, 1000));
    EXPECT(live == 1);

    failing.cuMemsetD8Async = failing_memset;
    EXPECT(ga_alloc_zeroed(heap, 1000, 0, &moved) == GA_ERR_DEVICE && !moved);
    EXPECT(test_error_has("cuMemsetD8Async: CUDA_ERROR_INVALID_VALUE"));
    failing.cuMemcpyDtoDAsync = failing_copy;
    EXPECT(ga_realloc(heap, block, 2000, 0, &moved) == GA_ERR_DEVICE && moved == block);
    EXPECT(live == 1 && device_holds(device, block, 9, 1000));
    failing.cuCtxPushCurrent = failing_push;
    EXPECT(ga_alloc(heap, 1000, 0, &moved) == GA_ERR_DEVICE && !moved);
    EXPECT(ga_free(heap, block) == GA_ERR_DEVICE);
    failing.cuCtxPushCurrent = real->cuCtxPushCurrent;
    EXPECT(ga_free(heap, block) == GA_OK);
    EXPECT(live == 0);
    ga_heap_close(heap);
    failing.cuMemPoolSetAttribute = failing_pool;
    EXPECT(ga_heap_open(&heap, GA_PLACE_DEVICE, device, "async") == GA_ERR_DEVICE && !heap);
    EXPECT(test_error_has("async: device"));
}

static void failing_calls(int device)
{
    REQUIRE(ga_cuda_driver_get(&real) == GA_OK);
    failing = *real;
    failing.cuMemAlloc = counted_alloc;
    failing.cuMemFree = counted_free;
    live = 0;
    ga_cuda_driver_set(&failing);
    with_failing_calls(device);
    ga_cuda_driver_set(NULL);
}

case_list process_cases(void)
{
    static const test_case cases[] = {
        {"a forked child is told", fork_after_use},
        {"blocks freed at exit", exit_handlers},
        {"first use by many threads", first_use},
        {"first use of pools by many threads", first_use_of_pools},
        {"pools that come and go in many threads", pools_come_and_go},
        {"first use of both by many threads", first_use_of_both},
        {"calls that fail leave nothing behind", failing_calls},
    };
    return (case_list){"process", cases, sizeof cases / sizeof *cases};
}
