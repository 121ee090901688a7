/* SPDX-License-Identifier: MIT
 *
 * One vmm heap under threads, on a device made of host memory. Each thread allocates blocks of all
 * sizes, on streams of its own and without a stream, writes its number into them, passes some to
 * the next thread, and frees them on streams, of which one or all are held now and then. Memory is
 * short, so that runs are joined, cut, unmapped and waited for all the time; with cache=0 each free
 * unmaps as well. No two live blocks overlap, the counts add up, and nothing is left.
 */
#include "stress.h"

#include "support/random.h"
#include "support/vmm_driver.h"

#include "backends/vmm/vmm.h"
#include "platform/cuda_driver.h"

#include <string.h>

enum {
    THREADS = 4,
    SLOTS = 12,
    STEPS = 300,
    WORD = 8 /* bytes that are written at both ends of a block */
};

typedef struct slot {
    unsigned char *block;
    size_t size;
} slot;

static ga_heap *heap;
static CUstream streams[THREADS];
static slot *handed[THREADS]; /* for that thread, set by the previous one: H1/H2 */
static slot boxes[THREADS];

static size_t random_size(uint64_t *random)
{
    return 1 + random_below(random, (size_t)1 << (8 + random_below(random, 18)));
}

static void mark(const slot *s, unsigned char number)
{
    size_t length = s->size < WORD ? s->size : WORD;
    memset(s->block, number, length);
    memset(s->block + s->size - length, number, length);
}

static void check(const slot *s, unsigned char number)
{
    size_t length = s->size < WORD ? s->size : WORD;
    for (size_t i = 0; i < length; i++) {
        NEED(s->block[i] == number && s->block[s->size - 1 - i] == number);
    }
}

static void get(slot *s, size_t number, uint64_t *random)
{
    void *block;
    s->size = random_size(random);
    ga_status status = random_below(random, 2)
                           ? ga_alloc_on(heap, s->size, 0, streams[number], &block)
                           : ga_alloc(heap, s->size, 0, &block);
    NEED(status == GA_OK || status == GA_ERR_MEMORY);
    s->block = block;
    if (block) {
        mark(s, (unsigned char)number);
    }
}

static void give(slot *s, size_t owner, size_t number, uint64_t *random)
{
    check(s, (unsigned char)owner);
    CUstream on[] = {streams[number], GA_EVERY_STREAM, NULL};
    size_t how = random_below(random, 6);
    NEED((how < 3 ? ga_free_on(heap, s->block, on[how]) : ga_free(heap, s->block)) == GA_OK);
    s->block = NULL;
}

/* Free the blocks that the previous thread has passed on. */
static void take_over(size_t number, uint64_t *random)
{
    /* H2: acquire. Pairs with H1: the block and its contents. */
    slot *s = __atomic_load_n(&handed[number], __ATOMIC_ACQUIRE);
    if (s) {
        give(s, (number + THREADS - 1) % THREADS, number, random);
        __atomic_store_n(&handed[number], (slot *)NULL, __ATOMIC_RELEASE); /* H3, pairs with H4 */
    }
}

static bool hand_over(const slot *s, size_t number)
{
    size_t next = (number + 1) % THREADS;
    if (__atomic_load_n(&handed[next],
                        __ATOMIC_ACQUIRE)) { /* H4, pairs with H3: the box is empty */
        return false;
    }
    boxes[next] = *s;
    /* H1: release. Pairs with H2. */
    __atomic_store_n(&handed[next], &boxes[next], __ATOMIC_RELEASE);
    return true;
}

static void step(slot *s, size_t number, uint64_t *random)
{
    if (!s->block) {
        get(s, number, random);
    } else if (random_below(random, 4) == 0 && hand_over(s, number)) {
        s->block = NULL;
    } else {
        give(s, number, number, random);
    }
}

static void run(size_t number)
{
    slot slots[SLOTS] = {0};
    uint64_t random = number + 1;
    for (size_t i = 0; i < STEPS; i++) {
        size_t what = random_below(&random, 40);
        if (what == 0) {
            NEED(ga_trim(heap, 0) == GA_OK);
        } else if (what == 1) {
            vmm_driver_hold(streams[number]);
        } else if (what == 2) {
            vmm_driver_let_go(streams[number]);
        } else if (what == 3) {
            ga_grow(heap, slots[0].block, slots[0].block ? 2 * slots[0].size : 1);
        } else {
            step(&slots[random_below(&random, SLOTS)], number, &random);
        }
        take_over(number, &random);
    }
    vmm_driver_let_go(streams[number]);
    for (size_t i = 0; i < SLOTS; i++) {
        if (slots[i].block) {
            give(&slots[i], number, number, &random);
        }
    }
}

static void make_streams(void)
{
    ga_cuda_scope scope;
    NEED(ga_cuda_enter(&scope, 0) == GA_OK);
    for (size_t i = 0; i < THREADS; i++) {
        NEED(scope.driver->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    }
    ga_cuda_leave(&scope);
}

/* Free blocks that were passed to a thread that had already ended. */
static void free_the_rest(void)
{
    for (size_t i = 0; i < THREADS; i++) {
        if (handed[i]) {
            NEED(ga_free(heap, handed[i]->block) == GA_OK);
            handed[i] = NULL;
        }
    }
}

static void one_round(const char *spec)
{
    ga_stats stats;
    vmm_driver_start(
        &(vmm_driver_options){.memory = (size_t)256 << 20, .addresses = (uint64_t)8 << 30});
    make_streams();
    NEED(ga_heap_open(&heap, GA_PLACE_DEVICE, 0, spec) == GA_OK);
    stress_threads(THREADS, run);
    free_the_rest();
    NEED(ga_heap_stats(heap, &stats) == GA_OK && stats.live_blocks == 0 && stats.live_bytes == 0);
    NEED(stats.held_bytes == vmm_driver_count().mapped_bytes);
    NEED(ga_trim(heap, 0) == GA_OK);
    NEED(vmm_driver_count().mapped_bytes == 0);
    NEED(ga_heap_close(heap) == GA_OK);
    vmm_driver_counts left = vmm_driver_count();
    NEED(left.ranges == 0 && left.mappings == 0 && left.handles == 0 && left.events == 0);
    vmm_driver_stop();
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    while (stress_goes_on()) {
        one_round("vmm:chunk=8M,reserve=2G");
        one_round("vmm:chunk=8M,reserve=2G,cache=0");
    }
    return 0;
}
