/* SPDX-License-Identifier: MIT
 *
 * Claims and frees beside threads that trim, on a device made of host memory. The parent fills a
 * superblock that is freed to it, and may hand it out at once, to this heap or another one. Now and
 * then it refuses to take one. A live unit keeps its contents. Threads list the blocks while others
 * free them, and ask the parent only for the sizes of live blocks.
 */
#include "stress.h"
#include "support/random.h"

#include "backends/slab/slab.h"
#include "runtime/heap.h"

#include <gpualloc/backend.h>

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    HOLDERS = 4,
    TRIMMERS = 2,
    HELD = 3000, /* units of each thread at most */
    STEPS = 4000,
    UNIT = 1024,
    LARGE = 100 << 10, /* size of a block that the parent itself serves */
    BYTES = 256,       /* bytes of a block that are written and read */
    ALIGN = 256,       /* of all blocks of the parent */
    LIVE = 0x11fe,
    HEAPS = 2,
    REFUSALS = 16 /* one in REFUSALS frees is refused */
};

/* ---- a parent that reuses freed blocks ---------------------------------------------------- */

static uint64_t parents_blocks, frees;

static ga_status plain_open(const ga_open_args *args, void **state)
{
    (void)args;
    *state = NULL;
    return GA_OK;
}

static void plain_close(void *state)
{
    (void)state;
}

/* ALIGN bytes in front of each block. */
typedef struct header {
    uint64_t live; /* LIVE, until the block is freed */
    void *memory;
    size_t size;
} header;

static header *header_of(const void *block)
{
    return (header *)((uintptr_t)block - ALIGN);
}

static ga_status plain_aligned(void *state, size_t size, size_t align, void **out)
{
    (void)state;
    align = align > ALIGN ? align : ALIGN;
    size = (size / align + 2) * align; /* no unit has that size */
    char *memory = aligned_alloc(align, align + size);
    if (!memory) {
        return GA_ERR_MEMORY;
    }
    *out = memory + align;
    *header_of(*out) = (header){LIVE, memory, size};
    __atomic_fetch_add(&parents_blocks, 1, __ATOMIC_RELAXED);
    return GA_OK;
}

static ga_status plain_alloc(void *state, size_t size, void **out)
{
    return plain_aligned(state, size, ALIGN, out);
}

static __thread bool lists; /* the thread lists the blocks */

/* A thread that lists the blocks sleeps here, so that another one frees this block in between if it
 * does not wait. To yield is not enough: on one CPU the scheduler often runs the yielding thread
 * again, because that thread has used less time than the others. */
static size_t plain_size(void *state, const void *block)
{
    (void)state;
    if (lists) {
        nanosleep(&(struct timespec){0, 1000}, NULL); /* 1 us */
    }
    NEED(header_of(block)->live == LIVE);
    return header_of(block)->size;
}

static ga_status plain_free(void *state, void *block)
{
    if (__atomic_fetch_add(&frees, 1, __ATOMIC_RELAXED) % REFUSALS == 1) {
        return ga_fail(GA_ERR_DEVICE, "plain: not now");
    }
    memset(block, 0xdd, plain_size(state, block));
    header_of(block)->live = 0;
    free(header_of(block)->memory);
    __atomic_fetch_sub(&parents_blocks, 1, __ATOMIC_RELAXED);
    return GA_OK;
}

static bool plain_owns(void *state, const void *pointer)
{
    (void)state;
    return pointer != NULL;
}

static const ga_backend plain = {
    .abi = GA_BACKEND_ABI,
    .size = sizeof(ga_backend),
    .name = "plain",
    .help = "the C library's memory as a device's",
    .places = GA_PLACE_BIT(GA_PLACE_DEVICE),
    .open = plain_open,
    .close = plain_close,
    .alloc = plain_alloc,
    .alloc_aligned = plain_aligned,
    .free = plain_free,
    .owns = plain_owns,
    .usable_size = plain_size,
};

/* ---- threads --------------------------------------------------------------------------------- */

static const char *const specs[HEAPS] = {
    "slab:unit=1K,blocks=1,keep=512K/plain",
    "slab:unit=1K,blocks=1,addressing=light,capacity=2M,keep=512K/plain"};

static ga_heap *heaps[HEAPS];
static uint32_t working = HOLDERS;

typedef struct held {
    uint64_t *block;
    size_t size;
} held;

static void take(ga_heap *heap, held *h, size_t size, uint64_t mark)
{
    NEED(ga_alloc(heap, size, 0, (void **)&h->block) == GA_OK);
    h->size = size;
    for (size_t i = 0; i < BYTES / 8; i++) {
        h->block[i] = mark + i;
    }
}

static void drop(ga_heap *heap, held *h, uint64_t mark)
{
    for (size_t i = 0; i < BYTES / 8; i++) {
        NEED(h->block[i] == mark + i);
    }
    while (ga_free(heap, h->block) != GA_OK) {
        NEED(ga_usable_size(heap, h->block) != UNIT); /* only the parent refuses a free */
    }
    h->block = NULL;
}

/* Fill the heap and empty it again, so that superblocks become empty; a few units stay longer. */
static void hold(size_t number)
{
    static held all[HOLDERS][HELD];
    ga_heap *heap = heaps[number % HEAPS];
    held *mine = all[number];
    uint64_t random = number;
    uint64_t mark = (number + 1) << 48;
    while (stress_goes_on()) {
        bool filling = random_below(&random, 2);
        for (size_t step = 0; step < STEPS; step++) {
            size_t i = random_below(&random, HELD);
            if (!mine[i].block && filling) {
                take(heap, &mine[i], i % 200 ? UNIT : LARGE, mark + (i << 16));
            } else if (mine[i].block && !filling && (i % 1000 || !random_below(&random, 8))) {
                drop(heap, &mine[i], mark + (i << 16));
            }
        }
    }
    for (size_t i = 0; i < HELD; i++) {
        if (mine[i].block) {
            drop(heap, &mine[i], mark + (i << 16));
        }
    }
    /* relaxed: a flag that ends the round; joining the threads orders it */
    __atomic_fetch_sub(&working, 1, __ATOMIC_RELAXED);
}

static void count_one(void *context, void *block, size_t size)
{
    (void)block;
    (void)size;
    ++*(size_t *)context;
}

static void trim(size_t number)
{
    uint64_t random = 99 + number;
    lists = true;
    while (__atomic_load_n(&working, __ATOMIC_RELAXED)) {
        ga_heap *heap = heaps[random_below(&random, HEAPS)];
        ga_backend_stats stats;
        size_t live = 0;
        NEED(ga_trim(heap, random_below(&random, 2) << 20) == GA_OK);
        ga_slab_backend.stats(heap->state, &stats);
        NEED(stats.live_bytes <= stats.held_bytes);
        NEED(ga_heap_each_live(heap, count_one, &live) == GA_OK);
    }
}

static void work(size_t number)
{
    if (number < HOLDERS) {
        hold(number);
    } else {
        trim(number);
    }
}

/* Every superblock is freed; the parent may refuse at first. */
static void end(ga_heap *heap)
{
    size_t live = 0;
    ga_backend_stats stats;
    NEED(ga_heap_each_live(heap, count_one, &live) == GA_OK);
    NEED(live == 0);
    for (int i = 0; i < 3; i++) {
        NEED(ga_trim(heap, 0) == GA_OK);
    }
    ga_slab_backend.stats(heap->state, &stats);
    NEED(stats.held_bytes == 0);
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    /* Memory that the parent has back stays mapped, so that a fault shows in the contents. */
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT32_MAX);
    NEED(ga_backend_register(&plain) == GA_OK);
    for (size_t i = 0; i < HEAPS; i++) {
        NEED(ga_heap_open(&heaps[i], GA_PLACE_DEVICE, 0, specs[i]) == GA_OK);
    }
    stress_threads(HOLDERS + TRIMMERS, work);
    for (size_t i = 0; i < HEAPS; i++) {
        end(heaps[i]);
    }
    NEED(parents_blocks == 0);
    for (size_t i = 0; i < HEAPS; i++) {
        NEED(ga_heap_close(heaps[i]) == GA_OK);
    }
    return 0;
}
