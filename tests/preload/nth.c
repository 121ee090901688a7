/* SPDX-License-Identifier: MIT
 *
 * The n-th call that an allocator makes for memory fails, or all from the n-th on; for each n until
 * the work makes fewer calls. A request may be refused, with ENOMEM. An allocated block keeps its
 * contents and can be freed; the process continues, and once calls succeed again there is memory
 * again.
 *
 * usage: nth KIND one|all TRIES [SPEC]     under nth_calls.so
 *
 * KIND is a number of nth_calls.h, TRIES the number of values of n that are tried: the first half
 * of them one by one, the others in growing steps. With a SPEC a heap is opened and used by ga_*;
 * without, malloc is used. Each n has a child of its own, so that every first call is made again.
 * Prints a line for each n that failed, and at last the number of values tried.
 */
#include "nth_each.h"

#include <gpualloc/gpualloc.h>

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>

enum {
    BLOCKS = 30,
    STEPS = 60,
    PAGES = 13, /* of so many pages one is filled and checked */
    THREADS = 2
};

static ga_heap *heap; /* NULL: malloc */

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

/* The next byte that is filled and checked: those at both ends of a block, and of a large one also
 * every 13th page. Which ones these are depends on the block, so that each page of some block is
 * among them. All pages of all blocks would take most of the time in page faults. */
static size_t next_byte(const owned *one, size_t i)
{
    if (i < 255) {
        return i + 1;
    }
    return i == 255 ? 256 + (size_t)one->fill % PAGES * 4096 : i + (size_t)PAGES * 4096;
}

static void fill(owned *one, uint64_t random)
{
    one->fill = (unsigned char)(random | 1);
    for (size_t i = 0; i < one->size; i = next_byte(one, i)) {
        one->block[i] = one->fill;
    }
    one->block[one->size - 1] = one->fill;
}

static void check(const owned *one, size_t size)
{
    for (size_t i = 0; i < size; i = next_byte(one, i)) {
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
            pthread_join(threads[i], NULL); /* one by one: the order of calls is fixed */
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

static const char *spec;

static long try_one(const nth_plan *plan, long n)
{
    if (spec) {
        CHECK(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec) == GA_OK);
    }
    nth_arm(plan->kind, n, plan->all);
    work();
    long calls = nth_disarm();
    work_again();
    if (spec) {
        ga_stats stats;
        CHECK(ga_heap_stats(heap, &stats) == GA_OK && stats.live_blocks == 0);
        CHECK(ga_heap_close(heap) == GA_OK);
    }
    return calls;
}

int main(int argc, char **argv)
{
    CHECK(argc == 4 || argc == 5);
    spec = argc > 4 ? argv[4] : NULL;
    nth_plan plan = nth_begin(argv + 1);
    return nth_each(&plan, try_one);
}
