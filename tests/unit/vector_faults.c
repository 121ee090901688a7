/* SPDX-License-Identifier: MIT
 *
 * Vectors whose driver fails, whose device is full, and that get impossible requests; and which
 * calls wait.
 */
#include "vector_places.h"

#define BOTH(name) BOTH_IN(vector_faults, name)

/* ---- streams ------------------------------------------------------------------------------- */

static CUstream make_stream(void)
{
    ga_cuda_scope scope;
    CUstream stream;
    assert_ok(ga_cuda_enter(&scope, 0));
    assert_ok(GA_CUDA_CALL(scope.driver, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING));
    ga_cuda_leave(&scope);
    return stream;
}

/* With a stream of its own no call of a vector waits except those documented to; without a stream
 * all calls with work wait. */
Test(vector_faults, waits_only_where_it_says_so)
{
    vmm_driver_start(NULL);
    ga_vector *v;
    ga_arena_options options = options_for(GA_PLACE_DEVICE);
    unsigned char *bytes = bytes_of(9, 4096);
    CUstream stream = make_stream();
    assert_ok(ga_vector_open(&v, 1, &options, stream));
    vmm_driver_hold(stream);
    uint64_t waits = vmm_driver_calls("cuStreamSynchronize");
    assert_ok(ga_vector_append(v, 4096, bytes));
    assert_ok(ga_vector_insert(v, 10, 10, bytes));
    assert_ok(ga_vector_erase(v, 0, 20));
    assert_ok(ga_vector_fill(v, 0, 20, bytes));
    assert_ok(ga_vector_reserve(v, 40 * MIB));
    cr_assert_eq(vmm_driver_calls("cuStreamSynchronize"), waits);
    assert_ok(ga_vector_wait(v));
    assert_ok(ga_vector_fill(v, 0, 20, bytes));
    assert_ok(ga_vector_shrink_to_fit(v)); /* which frees memory */
    cr_assert_eq(vmm_driver_calls("cuStreamSynchronize"), waits + 2);
    cr_assert_eq(vmm_driver_count().waits, 2, "%" PRIu64, vmm_driver_count().waits);
    ga_vector_close(v);
    ga_vector *other = open_at(GA_PLACE_DEVICE, 1);
    waits = vmm_driver_calls("cuStreamSynchronize");
    assert_ok(ga_vector_append(other, 4096, bytes));
    cr_assert_eq(vmm_driver_calls("cuStreamSynchronize"), waits + 1);
    assert_ok(ga_vector_reserve(other, 40 * MIB)); /* growing is no work of a stream */
    cr_assert_eq(vmm_driver_calls("cuStreamSynchronize"), waits + 1);
    ga_vector_close(other);
    vmm_driver_stop();
    free(bytes);
}

/* Between two streams nothing is copied before both are waited for. */
Test(vector_faults, waits_for_both_streams)
{
    vmm_driver_start(NULL);
    ga_vector *a, *b;
    ga_arena_options options = options_for(GA_PLACE_DEVICE);
    CUstream streams[2] = {make_stream(), make_stream()};
    assert_ok(ga_vector_open(&a, 1, &options, streams[0]));
    assert_ok(ga_vector_open(&b, 1, &options, streams[1]));
    assert_ok(ga_vector_append(a, 5, "12345"));
    for (uint64_t n = 1; n <= 2; n++) {
        vmm_driver_fail("cuStreamSynchronize", n, CUDA_ERROR_INVALID_VALUE);
        cr_assert_eq(ga_vector_copy(b, a), GA_ERR_DEVICE);
        cr_assert_eq(vmm_driver_calls("cuMemcpyDtoDAsync"), 0);
        cr_assert_eq(ga_vector_size(b), 0);
    }
    vmm_driver_fail(NULL, 0, 0);
    assert_ok(ga_vector_copy(b, a));
    expect_bytes(b, "12345", 5);
    ga_vector_close(a);
    ga_vector_close(b);
    expect_nothing_left();
    vmm_driver_stop();
}

/* ---- failures ------------------------------------------------------------------------------ */

/* A call on a vector of 3 MiB that fails. */
static ga_status insert_some(ga_vector *v)
{
    static unsigned char bytes[100];
    return ga_vector_insert(v, 5, sizeof bytes, bytes);
}

static ga_status insert_much(ga_vector *v)
{
    static unsigned char bytes[9 * MIB];
    return ga_vector_insert(v, 5, sizeof bytes, bytes);
}

static ga_status append_much(ga_vector *v)
{
    static unsigned char bytes[9 * MIB];
    return ga_vector_append(v, sizeof bytes, bytes);
}

static ga_status reserve_much(ga_vector *v)
{
    return ga_vector_reserve(v, 30 * MIB);
}

static ga_status erase_some(ga_vector *v)
{
    return ga_vector_erase(v, 5, 100);
}

static ga_status fill_some(ga_vector *v)
{
    return ga_vector_fill(v, 5, 3000, "abc");
}

static ga_status shrink(ga_vector *v)
{
    return ga_vector_shrink_to_fit(v);
}

/* Let each driver call of it fail once, with each error: size, address and the promised elements
 * stay, and the call succeeds afterwards. */
static void fail_each_call(ga_status (*act)(ga_vector *), bool moves, CUresult error)
{
    bool reached = true;
    unsigned char *bytes = bytes_of(11, 3 * MIB);
    for (uint64_t n = 1; reached; n++) {
        ga_vector *v = open_at(GA_PLACE_DEVICE, 1);
        assert_ok(ga_vector_append(v, 3 * MIB, bytes));
        void *data = ga_vector_data(v);
        vmm_driver_fail(NULL, n, error);
        ga_status status = act(v);
        reached = vmm_driver_has_failed();
        vmm_driver_fail(NULL, 0, 0);
        if (status != GA_OK) {
            cr_assert(reached);
            cr_assert_eq(ga_vector_size(v), 3 * MIB);
            cr_assert_eq(ga_vector_data(v), data);
            if (!moves) {
                expect_bytes(v, bytes, 3 * MIB);
            }
            assert_ok(act(v));
        }
        ga_vector_close(v);
        expect_nothing_left();
    }
    free(bytes);
}

Test(vector_faults, driver_calls_that_fail, .timeout = 60)
{
    static const struct {
        ga_status (*act)(ga_vector *);
        bool moves; /* elements that are there: undefined once a device fails in the middle */
    } acts[] = {{insert_some, true},   {insert_much, true}, {append_much, false},
                {reserve_much, false}, {erase_some, true},  {fill_some, true},
                {shrink, false}};
    vmm_driver_start(NULL);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        fail_each_call(acts[i].act, acts[i].moves, CUDA_ERROR_OUT_OF_MEMORY);
        fail_each_call(acts[i].act, acts[i].moves, CUDA_ERROR_INVALID_VALUE);
    }
    vmm_driver_stop();
}

/* The device's memory runs out: the growth rule requests more than there is, then more than
 * fits. */
Test(vector_faults, a_device_that_is_full)
{
    vmm_driver_start(&(vmm_driver_options){.memory = 64 * MIB});
    ga_vector *v = open_at(GA_PLACE_DEVICE, MIB);
    assert_ok(ga_vector_resize(v, 40));
    assert_ok(ga_vector_append(v, 2, NULL)); /* 80 do not fit, 42 do */
    cr_assert_eq(capacity_mib(v), 42, "%" PRIu64, capacity_mib(v));
    cr_assert_eq(ga_vector_append(v, 30, NULL), GA_ERR_MEMORY);
    cr_assert_eq(ga_vector_size(v), 42);
    assert_ok(ga_vector_append(v, 22, NULL));
    ga_vector_close(v);
    expect_nothing_left();
    vmm_driver_stop();
}

/* No scratch, no move: refused before anything has moved. */
Test(vector_faults, no_scratch_for_a_tail)
{
    vmm_driver_start(NULL);
    ga_vector *v;
    ga_arena_options options = options_for(GA_PLACE_DEVICE);
    options.limit = 4 * MIB;
    unsigned char *bytes = bytes_of(13, 4 * MIB);
    assert_ok(ga_vector_open(&v, 1, &options, NULL));
    assert_ok(ga_vector_append(v, 4 * MIB, bytes));
    cr_assert_eq(ga_vector_erase(v, 0, 1), GA_ERR_MEMORY);
    expect_bytes(v, bytes, 4 * MIB);
    assert_ok(ga_vector_erase(v, 0, MIB)); /* enough to succeed without growth */
    expect_bytes(v, bytes + MIB, 3 * MIB);
    ga_vector_close(v);
    vmm_driver_stop();
    free(bytes);
}

/* ---- bad arguments ------------------------------------------------------------------------- */

BOTH(refuses_bad_ranges)
{
    static unsigned char bytes[64];
    ga_vector *v = open_at(place, 4);
    assert_ok(ga_vector_append(v, 10, bytes));
    assert_fails(ga_vector_erase(v, 8, 3), GA_ERR_ARGUMENT,
                 "vector: 3 elements from 8 on; expected them to be within its 10");
    assert_fails(ga_vector_insert(v, 11, 1, bytes), GA_ERR_ARGUMENT,
                 "vector: 0 elements from 11 on; expected them to be within its 10");
    assert_fails(
        ga_vector_read(v, UINT64_MAX, 2, bytes), GA_ERR_ARGUMENT,
        "vector: 2 elements from 18446744073709551615 on; expected them to be within its 10");
    assert_fails(
        ga_vector_fill(v, 0, UINT64_MAX, bytes), GA_ERR_ARGUMENT,
        "vector: 18446744073709551615 elements from 0 on; expected them to be within its 10");
    assert_fails(ga_vector_write(v, 0, 2, NULL), GA_ERR_ARGUMENT,
                 "vector: NULL for 2 elements; expected memory");
    assert_fails(ga_vector_push_back(v, NULL), GA_ERR_ARGUMENT,
                 "vector: NULL for 1 elements; expected memory");
    assert_fails(ga_vector_append(v, UINT64_MAX, NULL), GA_ERR_SIZE,
                 "vector: 10 and 18446744073709551615 more elements of 4 bytes; expected at most "
                 "2305843009213693951");
    assert_fails_with(ga_vector_reserve(v, UINT64_MAX / 4), GA_ERR_SIZE, "vector: 0 and ");
    assert_fails_with(ga_vector_resize(v, UINT64_MAX / 4), GA_ERR_SIZE, "vector: 10 and ");
    assert_ok(ga_vector_erase(v, 10, 0));
    assert_ok(ga_vector_read(v, 10, 0, NULL));
    assert_ok(ga_vector_insert(v, 10, 0, NULL));
    cr_assert_eq(ga_vector_size(v), 10);
    ga_vector_close(v);
}

BOTH(refuses_to_open)
{
    ga_vector *v = (ga_vector *)&v;
    ga_arena_options options = options_for(place);
    assert_fails(ga_vector_open(&v, 0, &options, NULL), GA_ERR_ARGUMENT,
                 "vector: elements of 0 bytes; expected 1 to 9223372036854775807");
    cr_assert_null(v);
    assert_fails_with(ga_vector_open(&v, 4, NULL, NULL), GA_ERR_ARGUMENT,
                      "vector: options of 0 bytes; expected options_size to be ");
    assert_fails_with(ga_vector_open(NULL, 4, &options, NULL), GA_ERR_ARGUMENT, "vector: nowhere");
    options.options_size = 4;
    assert_fails_with(ga_vector_open(&v, 4, &options, NULL), GA_ERR_ARGUMENT,
                      "vector: options of 4 bytes; expected options_size to be ");
    options = options_for(GA_PLACE_KERNEL);
    cr_assert_eq(ga_vector_open(&v, 4, &options, NULL), GA_ERR_ARGUMENT);
    options = options_for(GA_PLACE_HOST);
    assert_fails(ga_vector_open(&v, 4, &options, &options), GA_ERR_ARGUMENT,
                 "vector: a stream for the place host; expected NULL");
    cr_assert_null(v);
}

Test(vector_faults, no_vector_is_empty)
{
    int value = 0;
    cr_assert_null(ga_vector_data(NULL));
    cr_assert_null(ga_vector_arena(NULL));
    cr_assert_eq(ga_vector_size(NULL) + ga_vector_capacity(NULL) + ga_vector_element(NULL), 0);
    assert_fails(ga_vector_push_back(NULL, &value), GA_ERR_ARGUMENT,
                 "vector: no vector; expected one that is open");
    assert_fails_with(ga_vector_reserve(NULL, 1), GA_ERR_ARGUMENT, "vector: no vector");
    assert_fails_with(ga_vector_erase(NULL, 0, 0), GA_ERR_ARGUMENT, "vector: no vector");
    assert_fails_with(ga_vector_copy(NULL, NULL), GA_ERR_ARGUMENT, "vector: no vector");
    assert_fails_with(ga_vector_wait(NULL), GA_ERR_ARGUMENT, "vector: no vector");
    ga_vector_close(NULL);
}

BOTH(refuses_other_elements)
{
    ga_vector *a = open_at(place, 4), *b = open_at(place, 8);
    assert_fails(ga_vector_copy(a, b), GA_ERR_ARGUMENT,
                 "vector: elements of 8 bytes into one of 4 bytes; expected the same");
    ga_vector_close(a);
    ga_vector_close(b);
}
