/* SPDX-License-Identifier: MIT
 *
 * The vmm backend under programs that repeat themselves: the number of map and unmap calls, and the
 * held memory. Over a device made of host memory, which is never accessed.
 */
#include "arena/trace.h"
#include "support/expect.h"
#include "support/vmm_scene.h"

#include <stdlib.h>
#include <string.h>

enum {
    STREAMS = 4
};

static CUstream streams[STREAMS];
static const ga_cuda_driver *cuda;

static ga_heap *begin(const char *spec)
{
    ga_heap *heap = vmm_open(&(vmm_driver_options){.memory = 64 * GIB}, spec);
    ga_cuda_scope scope;
    assert_ok(ga_cuda_driver_get(&cuda));
    assert_ok(ga_cuda_enter(&scope, 0));
    for (size_t i = 0; i < STREAMS; i++) {
        cr_assert_eq(cuda->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    }
    ga_cuda_leave(&scope);
    return heap;
}

/* Chunks mapped and unmapped so far. */
static uint64_t mapping_calls(void)
{
    return vmm_driver_calls("cuMemMap") + vmm_driver_calls("cuMemUnmap");
}

/* ---- traces of programs ------------------------------------------------------------------ */

/* Returns the most bytes held at once. The driver made of host memory finishes streams at once, so
 * waits and host synchronization need not be replayed. */
static uint64_t replay(ga_heap *heap, const trace *t, void **blocks)
{
    uint64_t max = 0;
    for (size_t i = 0; i < t->count; i++) {
        const trace_op *op = &t->ops[i];
        if (op->kind == TRACE_ALLOC) {
            assert_ok(ga_alloc_on(heap, op->size, 0, streams[op->stream], &blocks[op->block]));
            uint64_t held = vmm_held(heap);
            max = held > max ? held : max;
        } else if (op->kind == TRACE_FREE) {
            assert_ok(ga_free_on(heap, blocks[op->block], streams[op->stream]));
        }
    }
    return max;
}

/* A first pass, and a second one that finds the mappings of the first. */
static void replay_twice(void (*make)(trace *, uint64_t, uint64_t), uint64_t seed, uint64_t first,
                         uint64_t second)
{
    trace t = {0};
    char why[TRACE_WHY];
    ga_heap *heap = begin("vmm");
    make(&t, seed, 48 * GIB);
    cr_assert(trace_check(&t, why), "%s", why);
    void **blocks = calloc(t.blocks, sizeof *blocks);
    for (int pass = 0; pass < 2; pass++) {
        uint64_t before = mapping_calls();
        uint64_t held = replay(heap, &t, blocks);
        uint64_t calls = mapping_calls() - before;
        cr_assert_leq(calls, pass ? second : first, "seed %" PRIu64 ", pass %d: %" PRIu64 " calls",
                      seed, pass, calls);
        cr_assert_leq((double)held, 1.05 * (double)t.peak, "seed %" PRIu64 ": %.4f held", seed,
                      (double)held / (double)t.peak);
    }
    free(blocks);
    trace_clear(&t);
    vmm_end(heap);
}

Test(vmm_replay, a_training_that_goes_on_maps_little)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        replay_twice(trace_make_torch, seed, 1500, 250); /* of 17,000 calls in the trace */
    }
}

Test(vmm_replay, queries_that_go_on_map_little)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        replay_twice(trace_make_rmm, seed, 600, 250); /* of 16,000 calls in the trace */
    }
}

/* ---- exact repetitions -------------------------------------------------------------------- */

/* Layers that keep two blocks each, then free them in reverse order: sizes go with `length`. */
static void iterate(ga_heap *heap, size_t length)
{
    enum {
        LAYERS = 12
    };
    void *kept[LAYERS][2];
    for (size_t i = 0; i < LAYERS; i++) {
        kept[i][0] = vmm_take(heap, length * MIB);
        assert_ok(ga_free(heap, vmm_take(heap, (length / 2 + 8) * MIB)));
        kept[i][1] = vmm_take(heap, 4 * length * MIB);
    }
    for (size_t i = LAYERS; i-- > 0;) {
        void *gradient = vmm_take(heap, 3 * length * MIB);
        assert_ok(ga_free(heap, kept[i][1]));
        assert_ok(ga_free(heap, kept[i][0]));
        assert_ok(ga_free(heap, gradient));
    }
}

Test(vmm_replay, what_repeats_itself_needs_no_mapping_in_the_end)
{
    static const size_t lengths[] = {22, 64, 38, 50, 30, 58};
    ga_heap *heap = begin("vmm:free=now");
    for (int round = 0; round < 8; round++) {
        for (size_t i = 0; i < 6; i++) {
            iterate(heap, lengths[i]);
        }
    }
    uint64_t calls = vmm_driver_calls(NULL);
    for (int round = 0; round < 6; round++) {
        for (size_t i = 0; i < 6; i++) {
            iterate(heap, lengths[i]);
        }
    }
    cr_assert_eq(vmm_driver_calls(NULL), calls);
    vmm_end(heap);
}

/* ---- repetitions with gaps ---------------------------------------------------------------- */

enum {
    KEPT = 24,
    STEPS = 400
};

/* Random blocks come and go, and all are freed at the end; the sequence depends on the seed. */
static void churn(ga_heap *heap, uint64_t seed, void *places[STEPS])
{
    void *kept[KEPT] = {NULL};
    for (int i = 0; i < STEPS; i++) {
        size_t at = trace_below(&seed, KEPT);
        assert_ok(ga_free(heap, kept[at]));
        kept[at] = places[i] = vmm_take(heap, (5 + trace_below(&seed, 40)) * MIB);
    }
    vmm_free_many(heap, kept, KEPT);
}

Test(vmm_replay, repeated_requests_get_their_placement)
{
    static void *first[STEPS], *second[STEPS];
    ga_heap *heap = begin("vmm:free=now,cache=16G");
    for (uint64_t seed = 1; seed <= 4; seed++) {
        churn(heap, seed, first);
        churn(heap, seed, first);
        uint64_t calls = vmm_driver_calls(NULL);
        churn(heap, seed, second);
        cr_assert_eq(vmm_driver_calls(NULL), calls);
        cr_assert_eq(memcmp(first, second, sizeof first), 0);
    }
    vmm_end(heap);
}

/* Longer than the placement history. */
Test(vmm_replay, what_is_long_forgotten_is_no_harm)
{
    ga_heap *heap = begin("vmm:free=now,cache=16G");
    static void *places[STEPS];
    for (uint64_t seed = 1; seed <= 100; seed++) {
        churn(heap, seed % 70, places);
    }
    vmm_end(heap);
}

/* ---- sizes that drift upward -------------------------------------------------------------- */

enum {
    LIVES = 4096,
    COMINGS = 400
};

static void assert_at_most(uint64_t max, uint64_t calls)
{
    cr_assert_leq(calls, max, "%" PRIu64 " calls, expected at most %" PRIu64, calls, max);
}

typedef struct drifting {
    ga_heap *heap;
    struct {
        void *block;
        size_t size;
    } live[LIVES];
    size_t count, bytes; /* live */
    size_t small_gone;   /* blocks of one granule */
} drifting;

static void come(drifting *d, size_t size)
{
    d->live[d->count].block = vmm_take(d->heap, size);
    d->live[d->count++].size = size;
    d->bytes += size;
}

static void go(drifting *d, size_t at)
{
    assert_ok(ga_free_on(d->heap, d->live[at].block, NULL));
    d->bytes -= d->live[at].size;
    d->small_gone += d->live[at].size == 2 * MIB;
    d->live[at] = d->live[--d->count];
}

/* Live bytes stay at `mark`: each new block makes random others go. */
static void drift(drifting *d, size_t mark)
{
    uint64_t seed = 2;
    for (size_t i = 0; i < COMINGS; i++) {
        size_t doublings = 1 + i * 6 / COMINGS;
        size_t size = ((size_t)2 << doublings) * MIB + trace_below(&seed, (1 << doublings)) * MIB;
        while (d->bytes + size > mark) {
            go(d, trace_below(&seed, d->count));
        }
        come(d, size);
    }
}

static void empty(drifting *d)
{
    while (d->count) {
        go(d, 0);
    }
}

/* Small blocks' memory has to be unmapped for large ones, chunk by chunk, because chunks cannot be
 * joined; but each only once, and other memory is seldom unmapped. A new block gets one chunk,
 * seldom more, and a full card is not called for more each time. (Unmapping neighbours by one call
 * would save nothing: of these, one in a hundred has a neighbour that goes with it.) */
Test(vmm_replay, sizes_that_drift_upward_unmap_what_was_small_once)
{
    static drifting d;
    vmm_driver_start(&(vmm_driver_options){.memory = 8 * GIB});
    assert_ok(ga_heap_open(&d.heap, GA_PLACE_DEVICE, 0, "vmm:cache=wide"));
    size_t mark = 8 * GIB / 100 * 95;
    while (d.bytes + 2 * MIB <= mark) {
        come(&d, 2 * MIB);
    }
    uint64_t maps = vmm_driver_calls("cuMemMap");
    uint64_t unmaps = vmm_driver_calls("cuMemUnmap");
    uint64_t creates = vmm_driver_calls("cuMemCreate");
    drift(&d, mark);
    assert_at_most(d.small_gone + COMINGS / 2, vmm_driver_calls("cuMemUnmap") - unmaps);
    assert_at_most(COMINGS + COMINGS / 10, vmm_driver_calls("cuMemMap") - maps);
    assert_at_most(COMINGS, vmm_driver_calls("cuMemCreate") - creates);
    empty(&d);
    vmm_end(d.heap);
}
