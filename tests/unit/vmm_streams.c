/* SPDX-License-Identifier: MIT
 *
 * The vmm backend and streams: which requests may reuse a block that a stream may still be using.
 */
#include "support/vmm_stream_scene.h"

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
        vmm_take_many(heap, blocks, 3, sizes[i]);
        cr_assert_eq(vmm_held(heap), held);
        vmm_free_many(heap, blocks, 3);
        vmm_end(heap);
    }
}

/* A double free is detected even while the block waits. */
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

/* Also for memory joined from several blocks. */
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

/* A request that needs memory packed by others waits itself: its sheets must be unmapped. */
Test(vmm_streams, with_nothing_else_left_the_thread_waits)
{
    ga_heap *heap = begin(&(vmm_driver_options){.memory = 32 * MIB}, "vmm");
    void *block = take_on(heap, 16 * MIB, one);
    void *packed[4];
    take_many_on(heap, packed, 4, 3 * MIB, one);
    vmm_driver_hold(one);
    assert_ok(ga_free_on(heap, block, one));
    free_many_on(heap, packed, 4, one);
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

/* Joined or cut memory waits for the streams of its parts. */
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

/* A waiting unit is checked again with each request. */
Test(vmm_streams, units_are_had_once_their_stream_is_done)
{
    enum {
        UNITS = 4
    };
    void *units[UNITS];
    ga_heap *heap = begin(NULL, "vmm");
    take_many_on(heap, units, UNITS, 512 << 10, one);
    vmm_driver_hold(one);
    free_many_on(heap, units, UNITS, one);
    void *other = take_on(heap, 512 << 10, two);
    vmm_driver_let_go(one);
    uint64_t held = vmm_held(heap);
    for (size_t round = 0; round < 3; round++) {
        void *more[UNITS];
        take_many_on(heap, more, UNITS, 512 << 10, two);
        free_many_on(heap, more, UNITS, two);
    }
    cr_assert_eq(vmm_held(heap), held);
    assert_ok(ga_free_on(heap, other, two));
    vmm_end(heap);
}

/* Many frees on a stream that does not stop: waiting blocks do not accumulate. */
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

/* Units wait, and a search has seen that their stream is done: there is no stream left to wait
 * for. */
static ga_heap *begin_with_units(size_t memory, size_t count)
{
    ga_heap *heap = begin(&(vmm_driver_options){.memory = memory}, "vmm");
    void *units[8];
    take_many_on(heap, units, count, sizes[0], one);
    vmm_driver_hold(one);
    free_many_on(heap, units, count, one);
    vmm_driver_let_go(one);
    assert_ok(ga_free(heap, vmm_take(heap, 8 * MIB)));
    return heap;
}

Test(vmm_streams, memory_without_waiting_streams_is_trimmed)
{
    ga_heap *heap = begin_with_units(GIB, 8);
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(vmm_held(heap), 0);
    vmm_end(heap);
}

Test(vmm_streams, memory_without_waiting_streams_is_reused)
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
