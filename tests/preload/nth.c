/* SPDX-License-Identifier: MIT
 *
 * The n-th call that an allocator makes for memory fails, or all from the n-th on; for each n until
 * the work no longer makes so many. A request may be refused, with ENOMEM. A block that was served
 * keeps its contents and can be freed; the process goes on, and once calls succeed again there is
 * memory again.
 *
 * usage: nth KIND one|all MOST [SPEC]     under nth_calls.so
 *
 * KIND is a number of nth_calls.h, MOST the most values of n that are tried: the first half of them
 * one by one, the others in growing steps. With a SPEC a heap is opened and asked by ga_*; without,
 * malloc is. Each n has a child of its own, so that everything that happens once happens again.
 * Prints a line for each n that failed, and at last how many were tried.
 */
#include "check.h"
#include "nth_calls.h"

#include <gpualloc/gpualloc.h>

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>

enum {
    BLOCKS = 30,
    STEPS = 60,
    THREADS = 2,
    SECONDS = 20,
    NOT_REACHED = 3
};

static ga_heap *heap; /* NULL: malloc */
static nth_arm_fn *nth_arm;
static nth_disarm_fn *nth_disarm;

/* ---- one interface for both ------------------------------------------------------------------ */

static void *answered(ga_status status, void *const *block)
{
    errno = status == GA_OK ? errno : ENOMEM;
    return status == GA_OK ? *block : NULL;
}

static void *get(size_t size, size_t align, bool zeroed)
{
    void *block = NULL;
    if (!heap) {
        return align ? aligned_alloc(align, size) : zeroed ? calloc(1, size) : malloc(size);
    }
    return zeroed ? answered(ga_alloc_zeroed(heap, size, 0, &block), &block)
                  : answered(ga_alloc(heap, size, align, &block), &block);
}

static void *resize(void *block, size_t size)
{
    void *moved = NULL;
    return heap ? answered(ga_realloc(heap, block, size, 0, &moved), &moved) : realloc(block, size);
}

static void put(void *block)
{
    if (heap) {
        ga_status status = ga_free(heap, block);
        CHECK(status == GA_OK);
    } else {
        free(block);
    }
}

static void trim(void)
{
    if (heap) {
        ga_trim(heap, 0);
    } else {
        malloc_trim(0);
    }
}

/* ---- work ------------------------------------------------------------------------------------ */

typedef struct owned {
    unsigned char *block;
    size_t size;
    unsigned char fill;
} owned;

static uint64_t mix(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    return z ^ (z >> 27);
}

/* Both ends of a block, of a large one also its pages. */
static void fill(owned *one, uint64_t random)
{
    one->fill = (unsigned char)(random | 1);
    for (size_t i = 0; i < one->size; i += i < 256 ? 1 : 4096) {
        one->block[i] = one->fill;
    }
    one->block[one->size - 1] = one->fill;
}

static void check(const owned *one, size_t size)
{
    for (size_t i = 0; i < size; i += i < 256 ? 1 : 4096) {
        CHECK(one->block[i] == one->fill);
    }
    CHECK(size < one->size || one->block[size - 1] == one->fill);
}

static size_t pick_size(uint64_t random)
{
    static const size_t ranges[] = {64, 1000, 9000, 60000, 300000, 1500000};
    return 1 + (random >> 8) % ranges[random % (sizeof ranges / sizeof *ranges)];
}

static void refused(void)
{
    CHECK(errno == ENOMEM);
}

static void ask(owned *one, uint64_t random)
{
    size_t size = pick_size(random);
    size_t align = random >> 40 & 3 ? 0 : (size_t)64 << (random >> 42 & 7);
    bool zeroed = !align && (random >> 46 & 3) == 0;
    errno = 0;
    one->block = get(size, align, zeroed);
    one->size = size;
    if (!one->block) {
        refused();
        return;
    }
    CHECK(!align || (uintptr_t)one->block % align == 0);
    CHECK(!zeroed || (one->block[0] == 0 && one->block[size / 2] == 0 && !one->block[size - 1]));
    fill(one, random);
}

static void change(owned *one, uint64_t random)
{
    size_t size = random >> 60 & 1 ? pick_size(random) : one->size + one->size / 2 + 1;
    size_t both = size < one->size ? size : one->size;
    check(one, one->size);
    errno = 0;
    unsigned char *moved = resize(one->block, size);
    if (!moved) {
        refused();
        check(one, one->size);
        return;
    }
    one->block = moved;
    check(one, both);
    one->size = size;
    fill(one, random);
}

static void release(owned *one)
{
    check(one, one->size);
    put(one->block);
    one->block = NULL;
}

static void churn(owned *blocks, uint64_t seed)
{
    for (int i = 0; i < STEPS; i++) {
        uint64_t random = mix(&seed);
        owned *one = &blocks[(random >> 20) % BLOCKS];
        if (!one->block) {
            ask(one, random);
        } else if (random >> 50 & 1 && one->size < (size_t)3 << 20) {
            change(one, random);
        } else {
            release(one);
        }
    }
}

static void release_all(owned *blocks)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].block) {
            release(&blocks[i]);
        }
    }
}

static owned blocks[THREADS + 1][BLOCKS];

static void *run_thread(void *number)
{
    size_t i = (uintptr_t)number;
    churn(blocks[i], 100 + i);
    return NULL; /* another thread frees its blocks */
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    bool begun[THREADS];
    for (size_t i = 0; i < THREADS; i++) { /* no memory for a thread: none */
        begun[i] = pthread_create(&threads[i], NULL, run_thread, (void *)(uintptr_t)i) == 0;
        if (begun[i]) {
            pthread_join(threads[i], NULL); /* one by one: the n-th call is always the same */
        }
    }
}

static void run_forked(void)
{
    int status = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        churn(blocks[THREADS], 7);
        release_all(blocks[0]);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void work(void)
{
    churn(blocks[THREADS], 1);
    run_threads();
    run_forked();
    for (int i = 0; i <= THREADS; i++) {
        release_all(blocks[i]);
    }
    trim();
    churn(blocks[THREADS], 2);
    release_all(blocks[THREADS]);
}

/* Nothing fails any more. */
static void work_again(void)
{
    for (size_t size = 1; size < (size_t)4 << 20; size *= 3) {
        owned one = {.size = size};
        one.block = get(size, 0, false);
        CHECK(one.block);
        fill(&one, size);
        release(&one);
    }
    churn(blocks[THREADS], 3);
    release_all(blocks[THREADS]);
}

/* ---- for each n ------------------------------------------------------------------------------ */

static _Noreturn void try_one(unsigned kind, long n, int all, const char *spec)
{
    alarm(SECONDS);
    if (spec) {
        CHECK(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec) == GA_OK);
    }
    nth_arm(kind, n, all);
    work();
    long calls = nth_disarm();
    work_again();
    if (spec) {
        ga_stats stats;
        CHECK(ga_heap_stats(heap, &stats) == GA_OK && stats.live_blocks == 0);
        CHECK(ga_heap_close(heap) == GA_OK);
    }
    _exit(calls < n ? NOT_REACHED : 0);
}

static int outcome_of(unsigned kind, long n, int all, const char *spec)
{
    int status = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        try_one(kind, n, all, spec);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

int main(int argc, char **argv)
{
    *(void **)&nth_arm = dlsym(RTLD_DEFAULT, "nth_arm");
    *(void **)&nth_disarm = dlsym(RTLD_DEFAULT, "nth_disarm");
    CHECK((argc == 4 || argc == 5) && nth_arm && nth_disarm);
    unsigned kind = (unsigned)strtoul(argv[1], NULL, 10);
    int all = strcmp(argv[2], "all") == 0;
    long most = strtol(argv[3], NULL, 10);
    const char *spec = argc > 4 ? argv[4] : NULL;
    long tried = 0;
    int status = 0;
    for (long n = 1; tried < most && !(WIFEXITED(status) && WEXITSTATUS(status) == NOT_REACHED);
         n += 1 + (tried > most / 2 ? n / 16 : 0)) {
        status = outcome_of(kind, n, all, spec);
        tried++;
        if (status && !(WIFEXITED(status) && WEXITSTATUS(status) == NOT_REACHED)) {
            printf("FAILED at %ld: status %#x\n", n, (unsigned)status);
            fflush(stdout);
        }
    }
    printf("%ld tried\n", tried);
    return 0;
}
