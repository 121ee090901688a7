/* SPDX-License-Identifier: MIT
 *
 * The vmm backend and streams: who may have a block again that a stream may still be using.
 */
#include "arena/vmm.h"
#include "support/vmm_scene.h"

#include <unistd.h>

static const ga_cuda_driver *cuda;
static CUstream one, two;

static CUstream make_stream(void)
{
    CUstream stream;
    ga_cuda_scope scope;
    assert_ok(ga_cuda_enter(&scope, 0));
    cr_assert_eq(cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ga_cuda_leave(&scope);
    return stream;
}

static ga_heap *begin(const vmm_driver_options *options, const char *spec)
{
    ga_heap *heap = vmm_open(options, spec);
    assert_ok(ga_cuda_driver_get(&cuda));
    one = make_stream();
    two = make_stream();
    return heap;
}

static void *take_on(ga_heap *heap, size_t size, CUstream stream)
{
    void *block = NULL;
    assert_ok(ga_alloc_on(heap, size, 0, stream, &block));
    return block;
}

/* Both kinds of blocks: packed, and runs of their own. */
static const size_t sizes[] = {512 << 10, 8 << 20};

enum {
    SIZES = sizeof sizes / sizeof *sizes
};

Test(vmm_streams, the_same_stream_has_it_back_at_once)
{
    for (size_t i = 0; i < SIZES; i++) {
        ga_heap *heap = begin(NULL, "vmm");
        void *block = take_on(heap, sizes[i], one);
        vmm_driver_hold(one);
        assert_ok(ga_free_on(heap, block, one));
        void *again = take_on(heap, sizes[i], one);
        cr_assert_eq(again, block);
        cr_assert_eq(vmm_driver_count().waits, 0);
        assert_ok(ga_free_on(heap, again, one));
        vmm_end(heap);
    }
}

Test(vmm_streams, others_have_it_once_the_stream_has_come_that_far)
{
    for (size_t i = 0; i < SIZES; i++) {
        ga_heap *heap = begin(NULL, "vmm");
        void *block = take_on(heap, sizes[i], one);
        vmm_driver_hold(one);
        assert_ok(ga_free_on(heap, block, one));
        void *other = take_on(heap, sizes[i], two);
        void *anybody = vmm_take(heap, sizes[i]);
        cr_assert(other != block && anybody != block && other != anybody);
        cr_assert_eq(vmm_driver_count().waits, 0);
        vmm_driver_let_go(one);
        assert_ok(ga_free_on(heap, other, two));
        assert_ok(ga_free(heap, anybody));
        uint64_t held = vmm_held(heap);
        void *blocks[3];
        for (size_t k = 0; k < 3; k++) {
            blocks[k] = vmm_take(heap, sizes[i]);
        }
        cr_assert_eq(vmm_held(heap), held);
        for (size_t k = 0; k < 3; k++) {
            assert_ok(ga_free(heap, blocks[k]));
        }
        vmm_end(heap);
    }
}

/* A double free is one even while the block rests. */
Test(vmm_streams, a_block_that_rests_is_not_live)
{
    for (size_t i = 0; i < SIZES; i++) {
        ga_heap *heap = begin(NULL, "vmm");
        char *block = take_on(heap, sizes[i], one);
        vmm_driver_hold(one);
        assert_ok(ga_free_on(heap, block, one));
        assert_fails_with(ga_free_on(heap, block, one), GA_ERR_POINTER, "vmm: ");
        assert_fails_with(ga_free(heap, block), GA_ERR_POINTER, "vmm: ");
        cr_assert_eq(ga_usable_size(heap, block), 0);
        cr_assert_not(ga_owns(heap, block + 1));
        vmm_end(heap);
    }
}

/* With nothing else left, the other stream waits and this thread does not. */
Test(vmm_streams, with_nothing_else_left_the_stream_waits)
{
    ga_heap *heap = begin(&(vmm_driver_options){.memory = 16 * MIB}, "vmm");
    void *block = take_on(heap, 16 * MIB, one);
    vmm_driver_hold(one);
    assert_ok(ga_free_on(heap, block, one));
    uint64_t orders = vmm_driver_calls("cuStreamWaitEvent");
    void *other = take_on(heap, 16 * MIB, two);
    cr_assert_eq(other, block);
    cr_assert_eq(vmm_driver_calls("cuStreamWaitEvent"), orders + 1);
    cr_assert_eq(vmm_driver_count().waits, 0);
    assert_ok(ga_free_on(heap, other, two));
    vmm_end(heap);
}

/* Also for what is joined of several. */
Test(vmm_streams, with_nothing_else_left_the_stream_waits_for_all_parts)
{
    ga_heap *heap = begin(&(vmm_driver_options){.memory = 32 * MIB}, "vmm");
    void *low = take_on(heap, 16 * MIB, one);
    void *high = take_on(heap, 16 * MIB, two);
    CUstream three = make_stream();
    vmm_driver_hold(one);
    vmm_driver_hold(two);
    assert_ok(ga_free_on(heap, low, one));
    assert_ok(ga_free_on(heap, high, two));
    uint64_t orders = vmm_driver_calls("cuStreamWaitEvent");
    void *all = take_on(heap, 32 * MIB, three);
    cr_assert_eq(all, low);
    cr_assert_eq(vmm_driver_calls("cuStreamWaitEvent"), orders + 2);
    cr_assert_eq(vmm_driver_count().waits, 0);
    assert_ok(ga_free_on(heap, all, three));
    vmm_end(heap);
}

/* Those who want what is packed by others wait themselves: its sheets must be unmapped. */
Test(vmm_streams, with_nothing_else_left_the_thread_waits)
{
    ga_heap *heap = begin(&(vmm_driver_options){.memory = 32 * MIB}, "vmm");
    void *block = take_on(heap, 16 * MIB, one);
    void *packed[4];
    for (size_t i = 0; i < 4; i++) {
        packed[i] = take_on(heap, 3 * MIB, one);
    }
    vmm_driver_hold(one);
    assert_ok(ga_free_on(heap, block, one));
    for (size_t i = 0; i < 4; i++) {
        assert_ok(ga_free_on(heap, packed[i], one));
    }
    void *all = take_on(heap, 32 * MIB, two);
    cr_assert_gt(vmm_driver_count().waits, 0);
    assert_ok(ga_free(heap, all));
    vmm_end(heap);
}

Test(vmm_streams, free_without_a_stream_waits_for_the_device)
{
    ga_heap *heap = begin(NULL, "vmm");
    void *block = take_on(heap, 8 * MIB, one);
    vmm_driver_hold(one);
    cr_assert_eq(cuda->cuStreamQuery(one), CUDA_SUCCESS);
    uint64_t calls = vmm_driver_calls("cuCtxSynchronize");
    assert_ok(ga_free(heap, block));
    cr_assert_eq(vmm_driver_calls("cuCtxSynchronize"), calls + 1);
    vmm_end(heap);
    heap = begin(NULL, "vmm:free=now");
    block = take_on(heap, 8 * MIB, one);
    calls = vmm_driver_calls("cuCtxSynchronize");
    assert_ok(ga_free(heap, block));
    cr_assert_eq(vmm_driver_calls("cuCtxSynchronize"), calls);
    vmm_end(heap);
}

/* What is joined or cut is waited for like its parts were. */
Test(vmm_streams, parts_are_ordered_like_the_whole)
{
    ga_heap *heap = begin(&(vmm_driver_options){.memory = 256 * MIB}, "vmm");
    char *low = take_on(heap, 64 * MIB, one);
    char *high = take_on(heap, 64 * MIB, two);
    vmm_driver_hold(one);
    vmm_driver_hold(two);
    assert_ok(ga_free_on(heap, low, one));
    assert_ok(ga_free_on(heap, high, one));
    char *both = take_on(heap, 128 * MIB, one); /* freed on the very stream */
    cr_assert_eq(both, low);
    assert_ok(ga_free_on(heap, both, one));
    char *part = take_on(heap, 64 * MIB, one);
    cr_assert_eq(part, low);
    void *other = take_on(heap, 64 * MIB, two); /* may not have the other part yet */
    cr_assert_neq(other, high);
    assert_ok(ga_free_on(heap, part, one));
    cr_assert_eq(vmm_driver_count().waits, 0);
    vmm_driver_let_go(one);
    uint64_t held = vmm_held(heap);
    char *done = take_on(heap, 64 * MIB, two);
    cr_assert(done == low || done == high);
    cr_assert_eq(vmm_held(heap), held);
    assert_ok(ga_free_on(heap, done, two));
    assert_ok(ga_free_on(heap, other, two));
    vmm_end(heap);
}

/* A unit that rests is asked after again with each request. */
Test(vmm_streams, units_are_had_once_their_stream_is_done)
{
    enum {
        UNITS = 4
    };
    void *units[UNITS];
    ga_heap *heap = begin(NULL, "vmm");
    for (size_t i = 0; i < UNITS; i++) {
        units[i] = take_on(heap, 512 << 10, one);
    }
    vmm_driver_hold(one);
    for (size_t i = 0; i < UNITS; i++) {
        assert_ok(ga_free_on(heap, units[i], one));
    }
    void *other = take_on(heap, 512 << 10, two);
    vmm_driver_let_go(one);
    uint64_t held = vmm_held(heap);
    for (size_t round = 0; round < 3; round++) {
        void *more[UNITS];
        for (size_t i = 0; i < UNITS; i++) {
            more[i] = take_on(heap, 512 << 10, two);
        }
        for (size_t i = 0; i < UNITS; i++) {
            assert_ok(ga_free_on(heap, more[i], two));
        }
    }
    cr_assert_eq(vmm_held(heap), held);
    assert_ok(ga_free_on(heap, other, two));
    vmm_end(heap);
}

/* Many frees on a stream that goes on: what rests does not pile up. */
Test(vmm_streams, events_are_used_again)
{
    ga_heap *heap = begin(NULL, "vmm");
    for (size_t round = 0; round < 100; round++) {
        void *blocks[20];
        for (size_t i = 0; i < 20; i++) {
            blocks[i] = take_on(heap, sizes[i % 2], i % 3 ? one : two);
        }
        for (size_t i = 0; i < 20; i++) {
            assert_ok(ga_free_on(heap, blocks[i], i % 3 ? one : two));
        }
    }
    cr_assert_leq(vmm_driver_count().events, 20);
    cr_assert_leq(vmm_held(heap), 12 * 8 * MIB);
    vmm_end(heap);
}

Test(vmm_streams, trim_waits_for_what_rests)
{
    ga_heap *heap = begin(NULL, "vmm");
    vmm_driver_hold(one);
    for (size_t i = 0; i < SIZES; i++) {
        void *block = take_on(heap, sizes[i], one);
        assert_ok(ga_free_on(heap, block, one));
    }
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(vmm_held(heap), 0);
    vmm_end(heap);
}

/* Units rest, and a search has seen that their stream is done: nobody is left to wait for. */
static ga_heap *begin_with_units(size_t memory, size_t count)
{
    ga_heap *heap = begin(&(vmm_driver_options){.memory = memory}, "vmm");
    void *units[8];
    for (size_t i = 0; i < count; i++) {
        units[i] = take_on(heap, sizes[0], one);
    }
    vmm_driver_hold(one);
    for (size_t i = 0; i < count; i++) {
        assert_ok(ga_free_on(heap, units[i], one));
    }
    vmm_driver_let_go(one);
    assert_ok(ga_free(heap, vmm_take(heap, 8 * MIB)));
    return heap;
}

Test(vmm_streams, what_rested_is_trimmed_though_nobody_is_waited_for)
{
    ga_heap *heap = begin_with_units(GIB, 8);
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(vmm_held(heap), 0);
    vmm_end(heap);
}

Test(vmm_streams, what_rested_is_memory_though_nobody_is_waited_for)
{
    ga_heap *heap = begin_with_units(16 * MIB, 8);
    assert_ok(ga_free(heap, vmm_take(heap, 16 * MIB)));
    vmm_end(heap);
}

Test(vmm_streams, trouble_with_events_becomes_a_wait)
{
    static const char *const calls[] = {"cuEventCreate", "cuEventRecord"};
    for (size_t i = 0; i < SIZES; i++) {
        for (size_t c = 0; c < 2; c++) {
            ga_heap *heap = begin(NULL, "vmm");
            void *block = take_on(heap, sizes[i], one);
            vmm_driver_fail(calls[c], 1, CUDA_ERROR_NOT_PERMITTED);
            assert_ok(ga_free_on(heap, block, one));
            cr_assert(vmm_driver_has_failed());
            vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
            void *again = vmm_take(heap, sizes[i]);
            cr_assert_eq(again, block);
            assert_ok(ga_free(heap, again));
            vmm_end(heap);
        }
    }
}

/* ---- the legacy default stream ------------------------------------------------------------- */

/* Needs no event to be ordered after itself, whatever it has yet to do. */
Test(vmm_streams, the_legacy_stream_asks_the_driver_nothing)
{
    for (size_t i = 0; i < SIZES; i++) {
        ga_heap *heap = begin(NULL, "vmm");
        void *block = take_on(heap, sizes[i], NULL);
        vmm_driver_hold(NULL);
        assert_ok(ga_free_on(heap, block, NULL)); /* makes the event */
        cr_assert_eq(take_on(heap, sizes[i], NULL), block);
        uint64_t calls = vmm_driver_calls(NULL);
        for (int round = 0; round < 100; round++) {
            assert_ok(ga_free_on(heap, block, NULL));
            cr_assert_eq(take_on(heap, sizes[i], NULL), block);
        }
        /* What packed blocks rest for is looked after now and then. */
        cr_assert_leq(vmm_driver_calls(NULL), calls + (sizes[i] < MIB ? 30 : 0));
        cr_assert_eq(vmm_driver_count().waits, 0);
        assert_ok(ga_free_on(heap, block, NULL));
        vmm_end(heap);
    }
}

/* Others wait for all that was on it, though its event came later than the free. */
Test(vmm_streams, others_are_ordered_behind_the_legacy_stream)
{
    for (size_t i = 0; i < SIZES; i++) {
        ga_heap *heap = begin(&(vmm_driver_options){.memory = 16 * MIB}, "vmm:limit=8M");
        void *blocks[16];
        size_t count = 8 * MIB / sizes[i];
        for (size_t k = 0; k < count; k++) {
            blocks[k] = take_on(heap, sizes[i], NULL);
        }
        vmm_driver_hold(NULL);
        for (size_t k = 0; k < count; k++) {
            assert_ok(ga_free_on(heap, blocks[k], NULL));
        }
        uint64_t orders = vmm_driver_calls("cuStreamWaitEvent");
        uint64_t records = vmm_driver_calls("cuEventRecord");
        void *other = take_on(heap, sizes[i], one);
        cr_assert_eq(vmm_driver_calls("cuStreamWaitEvent"), orders + 1);
        cr_assert_leq(vmm_driver_calls("cuEventRecord"), records + 1);
        cr_assert_eq(vmm_driver_count().waits, 0);
        vmm_driver_let_go(NULL);
        assert_ok(ga_free_on(heap, other, one));
        vmm_end(heap);
    }
}

/* Anybody else has it once the stream has come that far, and not before. */
Test(vmm_streams, what_the_legacy_stream_uses_is_nobody_elses)
{
    for (size_t i = 0; i < SIZES; i++) {
        ga_heap *heap = begin(NULL, "vmm");
        void *block = take_on(heap, sizes[i], NULL);
        vmm_driver_hold(NULL);
        assert_ok(ga_free_on(heap, block, NULL));
        void *anybody = vmm_take(heap, sizes[i]);
        void *other = take_on(heap, sizes[i], one);
        cr_assert(anybody != block && other != block);
        vmm_driver_let_go(NULL);
        uint64_t held = vmm_held(heap);
        void *later = vmm_take(heap, sizes[i]);
        cr_assert_eq(vmm_held(heap), held);
        assert_ok(ga_free(heap, later));
        assert_ok(ga_free(heap, anybody));
        assert_ok(ga_free(heap, other));
        vmm_end(heap);
    }
}

/* ---- all streams ---------------------------------------------------------------------------- */

/* One that is neither the block's nor the legacy stream has work; whoever asks meanwhile gets another
 * block, or waits for it. */
Test(vmm_streams, what_any_stream_uses_is_nobody_elses)
{
    for (size_t i = 0; i < SIZES; i++) {
        ga_heap *heap = begin(NULL, "vmm");
        void *block = vmm_take(heap, sizes[i]);
        vmm_driver_hold(one);
        uint64_t records = vmm_driver_calls("cuCtxRecordEvent");
        assert_ok(ga_free_on(heap, block, GA_VMM_EVERY_STREAM));
        void *anybody = vmm_take(heap, sizes[i]);
        void *legacy = take_on(heap, sizes[i], NULL);
        cr_assert(anybody != block && legacy != block);
        cr_assert_leq(vmm_driver_calls("cuCtxRecordEvent"), records + 1);
        vmm_driver_let_go(one);
        uint64_t held = vmm_held(heap);
        void *later = vmm_take(heap, sizes[i]);
        cr_assert_eq(vmm_held(heap), held);
        cr_assert_eq(vmm_driver_count().waits, 0);
        assert_ok(ga_free(heap, later));
        assert_ok(ga_free(heap, anybody));
        assert_ok(ga_free(heap, legacy));
        vmm_end(heap);
    }
}

/* Memory for them is had by making a stream wait for all of them. */
Test(vmm_streams, others_are_ordered_behind_all)
{
    CUstream streams[] = {NULL, one};
    for (size_t i = 0; i < 2; i++) {
        ga_heap *heap = begin(&(vmm_driver_options){.memory = 16 * MIB}, "vmm:limit=8M");
        void *block = vmm_take(heap, 8 * MIB);
        vmm_driver_hold(one);
        assert_ok(ga_free_on(heap, block, GA_VMM_EVERY_STREAM));
        uint64_t orders = vmm_driver_calls("cuStreamWaitEvent");
        void *other = take_on(heap, 8 * MIB, streams[i]);
        cr_assert_eq(vmm_driver_calls("cuStreamWaitEvent"), orders + 1);
        vmm_driver_let_go(one);
        assert_ok(ga_free_on(heap, other, streams[i]));
        vmm_end(heap);
    }
}

/* Frees on the legacy stream and on all of them take turns; each is behind its own. */
Test(vmm_streams, all_and_the_legacy_stream_take_turns)
{
    enum {
        BLOCKS = 100
    };
    void *blocks[BLOCKS];
    ga_heap *heap = begin(NULL, "vmm");
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = vmm_take(heap, i % 5 ? 3 * MIB : 1000);
    }
    vmm_driver_hold(one);
    for (size_t i = 0; i < BLOCKS; i++) {
        assert_ok(ga_free_on(heap, blocks[i], i / 3 % 2 ? NULL : GA_VMM_EVERY_STREAM));
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        void *block = vmm_take(heap, i % 5 ? 3 * MIB : 1000);
        for (size_t k = 0; k < BLOCKS; k++) {
            cr_assert(block != blocks[k] || k / 3 % 2, "number %zu is in use yet", k);
        }
    }
    vmm_driver_let_go(one);
    uint64_t held = vmm_held(heap);
    for (size_t i = 0; i < 10; i++) {
        vmm_take(heap, 3 * MIB);
    }
    cr_assert_eq(vmm_held(heap), held, "what was behind all of them is free");
    assert_ok(ga_heap_reset(heap));
    vmm_end(heap);
}

/* Without events for contexts the legacy stream's has to do. */
static void do_without_events_for_contexts(ga_heap *heap)
{
    void *block = vmm_take(heap, 3 * MIB);
    vmm_driver_hold(NULL);
    assert_ok(ga_free_on(heap, block, GA_VMM_EVERY_STREAM));
    void *other = vmm_take(heap, 3 * MIB);
    cr_assert_neq(other, block);
    vmm_driver_let_go(NULL);
    uint64_t held = vmm_held(heap);
    void *later = vmm_take(heap, 3 * MIB);
    cr_assert_eq(vmm_held(heap), held);
    assert_ok(ga_free(heap, other));
    assert_ok(ga_free(heap, later));
    vmm_end(heap);
}

Test(vmm_streams, all_streams_of_an_older_driver)
{
    do_without_events_for_contexts(begin(&(vmm_driver_options){.no_context_events = true}, "vmm"));
}

Test(vmm_streams, all_streams_of_a_driver_that_has_the_call_alone)
{
    ga_heap *heap = begin(NULL, "vmm");
    vmm_driver_fail("cuCtxRecordEvent", 1, CUDA_ERROR_NOT_SUPPORTED);
    do_without_events_for_contexts(heap);
}

/* ---- how often ------------------------------------------------------------------------------ */

/* One event stands for many frees, and one question for many events. */
Test(vmm_streams, the_legacy_stream_is_asked_after_once)
{
    enum {
        BLOCKS = 160
    };
    void *blocks[BLOCKS];
    ga_heap *heap = begin(NULL, "vmm");
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = vmm_take(heap, 3 * MIB + i * 4096);
    }
    vmm_driver_hold(NULL);
    uint64_t records = vmm_driver_calls("cuEventRecord");
    for (size_t i = 0; i < BLOCKS; i++) {
        assert_ok(ga_free_on(heap, blocks[i], NULL));
    }
    cr_assert_leq(vmm_driver_calls("cuEventRecord"), records + BLOCKS / 16);
    uint64_t queries = vmm_driver_calls("cuEventQuery");
    void *large = vmm_take(heap, 100 * MIB);
    cr_assert_leq(vmm_driver_calls("cuEventQuery"), queries + 1);
    vmm_driver_let_go(NULL);
    assert_ok(ga_free(heap, large));
    vmm_end(heap);
}

/* Memory is not unmapped under work that was never given an event. */
Test(vmm_streams, the_legacy_stream_is_waited_for_before_memory_goes)
{
    for (size_t i = 0; i < SIZES; i++) {
        ga_heap *heap = begin(NULL, "vmm");
        void *block = take_on(heap, sizes[i], NULL);
        vmm_driver_hold(NULL);
        assert_ok(ga_free_on(heap, block, NULL));
        assert_ok(ga_trim(heap, 0));
        cr_assert_eq(vmm_held(heap), 0);
        cr_assert_eq(vmm_driver_count().waits, 1);
        block = take_on(heap, sizes[i], NULL);
        assert_ok(ga_free_on(heap, block, NULL));
        cr_assert_eq(take_on(heap, sizes[i], NULL), block);
        assert_ok(ga_free_on(heap, block, NULL));
        uint64_t waits = vmm_driver_count().waits;
        assert_ok(ga_heap_close(heap));
        cr_assert_eq(vmm_driver_count().waits, waits + 1);
        vmm_driver_stop();
    }
}

/* What streams still use counts as in use: to map as much again each time would be no cache. */
Test(vmm_streams, what_is_in_flight_is_kept)
{
    ga_heap *heap = begin(&(vmm_driver_options){.memory = 8 * GIB}, "vmm");
    uint64_t unmapped = 0;
    for (int round = 0; round < 20; round++) {
        vmm_driver_let_go(NULL);
        vmm_driver_hold(NULL);
        unmapped = round == 4 ? vmm_driver_calls("cuMemUnmap") : unmapped;
        for (size_t i = 0; i < 10; i++) {
            void *block = vmm_take(heap, (100 + 10 * i) * MIB);
            assert_ok(ga_free_on(heap, block, NULL));
        }
    }
    cr_assert_eq(vmm_driver_calls("cuMemUnmap"), unmapped);
    vmm_driver_let_go(NULL);
    vmm_end(heap);
}

/* What is freed and had in the order of one stream takes no more however far behind that is; who
 * may not have it yet takes as much again. */
static uint64_t held_by_rounds(bool in_order)
{
    ga_heap *heap = begin(&(vmm_driver_options){.memory = 8 * GIB}, "vmm:cache=wide");
    ga_stream legacy = NULL;
    vmm_driver_hold(NULL);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 10; i++) {
            size_t size = (100 + 10 * i) * MIB;
            void *block = in_order ? take_on(heap, size, legacy) : vmm_take(heap, size);
            assert_ok(ga_free_on(heap, block, legacy));
        }
    }
    uint64_t held = vmm_held(heap);
    vmm_driver_let_go(NULL);
    vmm_end(heap);
    return held;
}

Test(vmm_streams, what_is_in_order_takes_no_more)
{
    cr_assert_leq(held_by_rounds(true), 190 * 3 / 2 * MIB);
    cr_assert_geq(held_by_rounds(false), 4000 * MIB);
}

/* The driver refuses the event: that is tried again, and the memory is nobody's until then. */
Test(vmm_streams, a_late_event_may_fail)
{
    for (size_t i = 0; i < SIZES; i++) {
        ga_heap *heap = begin(NULL, "vmm");
        char *blocks[4];
        size_t count = sizes[i] < MIB ? 4 : 1; /* all there is */
        for (size_t k = 0; k < count; k++) {
            blocks[k] = take_on(heap, sizes[i], NULL);
        }
        for (size_t k = 0; k < count; k++) {
            assert_ok(ga_free_on(heap, blocks[k], NULL));
        }
        uint64_t held = vmm_held(heap);
        vmm_driver_fail_many("cuEventRecord", 1, 3, CUDA_ERROR_NOT_PERMITTED);
        void *other = vmm_take(heap, sizes[i]);
        cr_assert(vmm_driver_has_failed());
        cr_assert_gt(vmm_held(heap), held);
        vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
        assert_ok(ga_free(heap, other));
        assert_ok(ga_trim(heap, 0));
        cr_assert_eq(vmm_held(heap), 0);
        vmm_end(heap);
    }
}
