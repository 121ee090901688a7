/* SPDX-License-Identifier: MIT
 *
 * The vmm backend, and blocks that are freed in the order of the legacy default stream, or of all
 * streams: which requests may reuse them, and how seldom the driver is called.
 */
#include "support/vmm_stream_scene.h"

/* A block for which no more memory is needed: freed memory is available to every request. */
static void *take_what_is_held(ga_heap *heap, size_t size)
{
    uint64_t held = vmm_held(heap);
    void *block = vmm_take(heap, size);
    cr_assert_eq(vmm_held(heap), held);
    return block;
}

/* ---- the legacy default stream ------------------------------------------------------------- */

/* The legacy stream needs no event to be ordered after itself, even with unfinished work. */
Test(vmm_order, the_legacy_stream_asks_the_driver_nothing)
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
        /* The streams that packed blocks wait for are checked now and then. */
        cr_assert_leq(vmm_driver_calls(NULL), calls + (sizes[i] < MIB ? 30 : 0));
        cr_assert_eq(vmm_driver_count().waits, 0);
        assert_ok(ga_free_on(heap, block, NULL));
        vmm_end(heap);
    }
}

/* Other streams wait for all work on it, although its event was recorded after the free. */
Test(vmm_order, others_are_ordered_behind_the_legacy_stream)
{
    for (size_t i = 0; i < SIZES; i++) {
        ga_heap *heap = begin(&(vmm_driver_options){.memory = 16 * MIB}, "vmm:limit=8M");
        void *blocks[16];
        size_t count = 8 * MIB / sizes[i];
        take_many_on(heap, blocks, count, sizes[i], NULL);
        vmm_driver_hold(NULL);
        free_many_on(heap, blocks, count, NULL);
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

/* Other streams can reuse it once the stream has reached that point, and not before. */
Test(vmm_order, memory_that_the_legacy_stream_uses_is_not_reused)
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
        void *later = take_what_is_held(heap, sizes[i]);
        assert_ok(ga_free(heap, later));
        assert_ok(ga_free(heap, anybody));
        assert_ok(ga_free(heap, other));
        vmm_end(heap);
    }
}

/* ---- all streams ---------------------------------------------------------------------------- */

/* A third stream has work: requests get another block until then, or wait for it. */
Test(vmm_order, memory_that_any_stream_uses_is_not_reused)
{
    for (size_t i = 0; i < SIZES; i++) {
        ga_heap *heap = begin(NULL, "vmm");
        void *block = vmm_take(heap, sizes[i]);
        vmm_driver_hold(one);
        uint64_t records = vmm_driver_calls("cuCtxRecordEvent");
        assert_ok(ga_free_on(heap, block, GA_EVERY_STREAM));
        void *anybody = vmm_take(heap, sizes[i]);
        void *legacy = take_on(heap, sizes[i], NULL);
        cr_assert(anybody != block && legacy != block);
        cr_assert_leq(vmm_driver_calls("cuCtxRecordEvent"), records + 1);
        vmm_driver_let_go(one);
        void *later = take_what_is_held(heap, sizes[i]);
        cr_assert_eq(vmm_driver_count().waits, 0);
        assert_ok(ga_free(heap, later));
        assert_ok(ga_free(heap, anybody));
        assert_ok(ga_free(heap, legacy));
        vmm_end(heap);
    }
}

/* To reuse memory, one stream is made to wait for all streams. */
Test(vmm_order, others_are_ordered_behind_all)
{
    CUstream streams[] = {NULL, one};
    for (size_t i = 0; i < 2; i++) {
        ga_heap *heap = begin(&(vmm_driver_options){.memory = 16 * MIB}, "vmm:limit=8M");
        void *block = vmm_take(heap, 8 * MIB);
        vmm_driver_hold(one);
        assert_ok(ga_free_on(heap, block, GA_EVERY_STREAM));
        uint64_t orders = vmm_driver_calls("cuStreamWaitEvent");
        void *other = take_on(heap, 8 * MIB, streams[i]);
        cr_assert_eq(vmm_driver_calls("cuStreamWaitEvent"), orders + 1);
        vmm_driver_let_go(one);
        assert_ok(ga_free_on(heap, other, streams[i]));
        vmm_end(heap);
    }
}

/* Frees on the legacy stream and on all streams alternate; each waits for its own. */
Test(vmm_order, all_and_the_legacy_stream_take_turns)
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
        assert_ok(ga_free_on(heap, blocks[i], i / 3 % 2 ? NULL : GA_EVERY_STREAM));
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
    assert_ok(ga_free_on(heap, block, GA_EVERY_STREAM));
    void *other = vmm_take(heap, 3 * MIB);
    cr_assert_neq(other, block);
    vmm_driver_let_go(NULL);
    void *later = take_what_is_held(heap, 3 * MIB);
    assert_ok(ga_free(heap, other));
    assert_ok(ga_free(heap, later));
    vmm_end(heap);
}

Test(vmm_order, all_streams_of_an_older_driver)
{
    do_without_events_for_contexts(begin(&(vmm_driver_options){.no_context_events = true}, "vmm"));
}

Test(vmm_order, all_streams_of_a_driver_that_has_the_call_alone)
{
    ga_heap *heap = begin(NULL, "vmm");
    vmm_driver_fail("cuCtxRecordEvent", 1, CUDA_ERROR_NOT_SUPPORTED);
    do_without_events_for_contexts(heap);
}

/* ---- how often ------------------------------------------------------------------------------ */

/* One event covers many frees, and one query many events. */
Test(vmm_order, the_legacy_stream_is_asked_after_once)
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
    free_many_on(heap, blocks, BLOCKS, NULL);
    cr_assert_leq(vmm_driver_calls("cuEventRecord"), records + BLOCKS / 16);
    uint64_t queries = vmm_driver_calls("cuEventQuery");
    void *large = vmm_take(heap, 100 * MIB);
    cr_assert_leq(vmm_driver_calls("cuEventQuery"), queries + 1);
    vmm_driver_let_go(NULL);
    assert_ok(ga_free(heap, large));
    vmm_end(heap);
}

/* Memory is not unmapped under work that has no event yet. */
Test(vmm_order, the_legacy_stream_is_waited_for_before_memory_goes)
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

/* Memory that streams still use counts as in use: mapping as much again each time would defeat the
 * cache. */
Test(vmm_order, what_is_in_flight_is_kept)
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

/* Frees and allocations in the order of one stream need no more memory, however late the stream is.
 * A stream that may not reuse the memory yet needs the same amount again. */
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

Test(vmm_order, what_is_in_order_takes_no_more)
{
    cr_assert_leq(held_by_rounds(true), 190 * 3 / 2 * MIB);
    cr_assert_geq(held_by_rounds(false), 4000 * MIB);
}

/* The driver refuses the event: it is tried again, and the memory is not reused until then. */
Test(vmm_order, a_late_event_may_fail)
{
    for (size_t i = 0; i < SIZES; i++) {
        ga_heap *heap = begin(NULL, "vmm");
        void *blocks[4];
        size_t count = sizes[i] < MIB ? 4 : 1; /* all there is */
        take_many_on(heap, blocks, count, sizes[i], NULL);
        free_many_on(heap, blocks, count, NULL);
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
