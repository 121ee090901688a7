/* SPDX-License-Identifier: MIT
 *
 * Vectors lent to kernels, which are threads here that append with all lanes of a tile, on the host
 * and on a device made of host memory: without holes, up to every limit.
 */
#include <gpualloc/vector.h>

#include "arena/append.h"
#include "support/expect.h"
#include "support/random.h"
#include "support/scene.h"
#include "support/vmm_driver.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    MIB = 1 << 20,
    THREADS = 4,
    STEP = 64 << 10
};

static ga_vector *open_at(ga_place place, uint64_t limit, uint32_t flags)
{
    ga_vector *v;
    ga_arena_options options = {.options_size = sizeof options,
                                .place = place,
                                .reserve = (uint64_t)1 << 32,
                                .limit = limit,
                                .flags = flags};
    assert_ok(ga_vector_open(&v, sizeof(uint64_t), &options, NULL));
    return v;
}

/* The driver's own memory for the vector's state counts, too. */
static void expect_nothing_left(void)
{
    vmm_driver_counts now = vmm_driver_count();
    cr_assert_eq(now.ranges + now.chunks + now.mappings + now.blocks + now.pinned, 0,
                 "%" PRIu64 " ranges, %" PRIu64 " chunks, %" PRIu64 " mappings, %" PRIu64
                 " blocks, %" PRIu64 " pinned",
                 now.ranges, now.chunks, now.mappings, now.blocks, now.pinned);
}

/* A device whose memory grows while kernels run. */
static void start_growing_driver(size_t memory)
{
    vmm_driver_start(&(vmm_driver_options){.kernels = VMM_KERNELS_GROW, .memory = memory});
}

#define BOTH(name)                                                                                 \
    static void name(ga_place place);                                                              \
    Test(vector_loan, name##_host)                                                                 \
    {                                                                                              \
        name(GA_PLACE_HOST);                                                                       \
    }                                                                                              \
    Test(vector_loan, name##_device)                                                               \
    {                                                                                              \
        start_growing_driver(0);                                                                   \
        name(GA_PLACE_DEVICE);                                                                     \
        expect_nothing_left();                                                                     \
        vmm_driver_stop();                                                                         \
    }                                                                                              \
    static void name(ga_place place)

/* ---- kernels ------------------------------------------------------------------------------- */

typedef struct kernel {
    ga_kernel_vector view;
    uint64_t number; /* of the thread */
    uint64_t calls;  /* of the whole tile, so far */
    uint64_t granted;
} kernel;

/* Each lane requests up to three elements and writes its identity into them. */
static void append_once(kernel *k, uint64_t *random)
{
    ga_lanes counts = ga_lanes_all(0);
    for (uint32_t lane = 0; lane < 32; lane++) {
        ga_lane_write(&counts, lane, (uint32_t)random_below(random, 4));
    }
    ga_appended got = ga_append_take(k->view.state, ga_tile_of(32), counts);
    for (uint32_t lane = 0; lane < 32; lane++) {
        uint64_t at = got.first + ga_lane_read(got.before, lane);
        uint32_t n = ga_lane_read(counts, lane);
        for (uint32_t i = 0; at + n <= got.room && i < n; i++) {
            ((uint64_t *)k->view.data)[at + i] = (k->number + 1) << 48 | k->granted++;
        }
    }
}

static void *run_kernel(void *argument)
{
    kernel *k = argument;
    uint64_t random = k->number;
    for (uint64_t i = 0; i < k->calls; i++) {
        append_once(k, &random);
    }
    return NULL;
}

/* Returns how many elements all of them got. */
static uint64_t run(ga_kernel_vector view, uint64_t calls)
{
    pthread_t threads[THREADS];
    kernel kernels[THREADS];
    uint64_t granted = 0;
    for (uint64_t i = 0; i < THREADS; i++) {
        kernels[i] = (kernel){.view = view, .number = i, .calls = calls};
        pthread_create(&threads[i], NULL, run_kernel, &kernels[i]);
    }
    for (uint64_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        granted += kernels[i].granted;
    }
    return granted;
}

/* From `first` on every element has an owner, and each lane's elements are there once. */
static void expect_no_holes(ga_vector *v, uint64_t first)
{
    uint64_t next[THREADS] = {0}, size = ga_vector_size(v);
    uint64_t *elements = malloc((size + 1) * sizeof *elements);
    assert_ok(ga_vector_read(v, 0, size, elements));
    for (uint64_t i = first; i < size; i++) {
        uint64_t who = (elements[i] >> 48) - 1;
        cr_assert_lt(who, THREADS, "element %" PRIu64 " is nobody's", i);
        cr_assert_eq(elements[i] & (UINT64_MAX >> 16), next[who]++, "element %" PRIu64, i);
    }
    free(elements);
}

/* ---- growth -------------------------------------------------------------------------------- */

/* From an empty vector, and from one that the host has filled and reserved. */
BOTH(grows_while_kernels_append)
{
    static const uint64_t mine[3] = {1, 2, 3};
    ga_kernel_vector view;
    ga_vector_appended appended;
    ga_vector *v = open_at(place, 0, 0);
    void *data = ga_vector_data(v);
    for (int round = 0; round < 3; round++) {
        uint64_t before = ga_vector_size(v);
        assert_ok(ga_vector_lend(v, STEP, &view));
        cr_assert_eq(view.data, data);
        uint64_t granted = run(view, 2000);
        assert_ok(ga_vector_end_loan(v, &appended));
        cr_assert_eq(appended.appended, granted);
        cr_assert_eq(appended.refused, 0);
        cr_assert_str_eq(appended.reason, "");
        cr_assert_eq(ga_vector_size(v), before + granted);
        cr_assert(round || appended.growths > 0);
        expect_no_holes(v, before);
        assert_ok(ga_vector_append(v, 3, mine));
        cr_assert_eq(ga_vector_data(v), data);
    }
    ga_vector_close(v);
}

BOTH(grows_by_what_is_wanted)
{
    ga_kernel_vector view;
    ga_vector *v = open_at(place, 0, GA_ARENA_EXACT);
    assert_ok(ga_vector_lend(v, 2 * MIB, &view));
    uint64_t granted = run(view, 20000);
    assert_ok(ga_vector_end_loan(v, NULL));
    uint64_t steps = (granted * sizeof(uint64_t) + 2 * MIB - 1) / (2 * MIB);
    uint64_t mapped = ga_vector_capacity(v) * sizeof(uint64_t) / (2 * MIB);
    cr_assert(mapped >= steps && mapped <= steps + 2, "%" PRIu64 " steps for %" PRIu64, mapped,
              steps);
    ga_vector_close(v);
}

/* By doubling: one growth for each bit of the size. */
BOTH(grows_ahead)
{
    ga_kernel_vector view;
    ga_arena_stats stats;
    ga_vector *v = open_at(place, 0, 0);
    assert_ok(ga_vector_lend(v, STEP, &view));
    run(view, 5000);
    assert_ok(ga_vector_end_loan(v, NULL));
    ga_arena_get_stats(ga_vector_arena(v), &stats);
    cr_assert(ga_vector_size(v) * sizeof(uint64_t) > 64 * STEP);
    cr_assert(stats.growths >= 1 && stats.growths <= 12, "%" PRIu64, stats.growths);
    ga_vector_close(v);
}

/* A large vector does not double at once: kernels would wait for that. */
Test(vector_loan, a_large_one_grows_by_pieces)
{
    static const uint64_t gib = (uint64_t)1 << 30;
    ga_kernel_vector view;
    ga_vector_appended appended;
    start_growing_driver(8 * gib); /* untouched memory */
    ga_vector *v = open_at(GA_PLACE_DEVICE, 0, 0);
    assert_ok(ga_vector_resize(v, 2 * gib / sizeof(uint64_t)));
    assert_ok(ga_vector_lend(v, 0, &view));
    ga_append_take(view.state, ga_tile_of(32), ga_lanes_all(1));
    assert_ok(ga_vector_end_loan(v, &appended));
    cr_assert_eq(appended.appended, 32);
    cr_assert_eq(appended.growths, 1);
    uint64_t bytes = ga_vector_capacity(v) * sizeof(uint64_t);
    cr_assert(bytes > 2 * gib && bytes <= 3 * gib, "%" PRIu64 " bytes", bytes);
    ga_vector_close(v);
    expect_nothing_left();
    vmm_driver_stop();
}

typedef struct lent {
    ga_vector *vector;
    ga_kernel_vector view;
    uint64_t granted;
} lent;

static void *run_lent(void *argument)
{
    lent *l = argument;
    l->granted = run(l->view, 3000);
    return NULL;
}

/* A pager for each, both at work; each has its own memory. */
Test(vector_loan, on_two_devices_at_once)
{
    lent two[2];
    pthread_t threads[2];
    vmm_driver_start(&(vmm_driver_options){.kernels = VMM_KERNELS_GROW, .devices = 2});
    for (int i = 0; i < 2; i++) {
        ga_arena_options options = {
            .options_size = sizeof options, .place = GA_PLACE_DEVICE, .device = i};
        assert_ok(ga_vector_open(&two[i].vector, sizeof(uint64_t), &options, NULL));
        assert_ok(ga_vector_lend(two[i].vector, STEP, &two[i].view));
    }
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, run_lent, &two[i]);
    }
    for (int i = 0; i < 2; i++) {
        ga_vector_appended appended;
        pthread_join(threads[i], NULL);
        assert_ok(ga_vector_end_loan(two[i].vector, &appended));
        cr_assert(appended.growths > 0 && appended.refused == 0);
        cr_assert_eq(ga_vector_size(two[i].vector), two[i].granted);
        expect_no_holes(two[i].vector, 0);
        uint64_t bytes = ga_vector_capacity(two[i].vector) * sizeof(uint64_t);
        cr_assert(vmm_driver_accessible(ga_vector_data(two[i].vector), bytes, 1u << i));
        cr_assert(!vmm_driver_accessible(ga_vector_data(two[i].vector), bytes, 2u >> i));
    }
    ga_vector_close(two[0].vector);
    ga_vector_close(two[1].vector);
    expect_nothing_left();
    vmm_driver_stop();
}

/* ---- refusals ------------------------------------------------------------------------------ */

static void expect_refusals(ga_vector *v, uint64_t before, uint64_t granted,
                            const ga_vector_appended *appended, const char *reason)
{
    cr_assert_str_eq(appended->reason, reason);
    cr_assert_eq(appended->appended, granted);
    cr_assert_gt(appended->refused, 0);
    cr_assert_eq(ga_vector_size(v), before + granted);
    cr_assert(ga_vector_size(v) <= ga_vector_capacity(v));
    /* No lane wanted more than three: that much may be left. */
    cr_assert(ga_vector_size(v) + 3 > ga_vector_capacity(v), "%" PRIu64 " of %" PRIu64,
              ga_vector_size(v), ga_vector_capacity(v));
    expect_no_holes(v, before);
}

BOTH(ends_at_the_limit)
{
    ga_kernel_vector view;
    ga_vector_appended appended;
    ga_vector *v = open_at(place, 4 * MIB, 0);
    assert_ok(ga_vector_lend(v, STEP, &view));
    uint64_t granted = run(view, 6000);
    assert_ok(ga_vector_end_loan(v, &appended));
    expect_refusals(v, 0, granted, &appended, "limit or addresses reached");
    cr_assert_eq(ga_vector_capacity(v), 4 * MIB / sizeof(uint64_t));
    assert_ok(ga_vector_resize(v, 5));
    assert_ok(ga_vector_lend(v, STEP, &view)); /* and again */
    granted = run(view, 100);
    assert_ok(ga_vector_end_loan(v, &appended));
    cr_assert_eq(appended.refused, 0);
    cr_assert_eq(ga_vector_size(v), 5 + granted);
    ga_vector_close(v);
}

/* A vector that cannot grow needs neither a pager nor the trial whether the device can grow
 * memory. */
BOTH(is_at_its_limit_from_the_start)
{
    ga_kernel_vector view;
    ga_vector_appended appended;
    ga_vector *v = open_at(place, 4 * MIB, 0);
    assert_ok(ga_vector_reserve(v, 4 * MIB / sizeof(uint64_t)));
    uint64_t calls = vmm_driver_calls("cuMemHostRegister");
    assert_ok(ga_vector_lend(v, STEP, &view));
    cr_assert_eq(vmm_driver_calls("cuMemHostRegister"), calls);
    uint64_t granted = run(view, 6000);
    assert_ok(ga_vector_end_loan(v, &appended));
    expect_refusals(v, 0, granted, &appended, "limit or addresses reached");
    cr_assert_eq(appended.growths, 0);
    ga_vector_close(v);
}

/* Each lane requests a step, and all lanes together more than there is: one lane per available step
 * succeeds. */
static uint32_t lanes_granted(ga_vector *v, uint64_t step, uint32_t reason)
{
    ga_kernel_vector view;
    ga_vector_appended appended;
    assert_ok(ga_vector_lend(v, step, &view));
    ga_append *append = view.state;
    ga_lanes counts = ga_lanes_all((uint32_t)(step / sizeof(uint64_t)));
    ga_append_take(append, ga_tile_of(32), counts);
    cr_assert_eq(append->reason, reason);
    assert_ok(ga_vector_end_loan(v, &appended));
    cr_assert_eq(appended.appended + appended.refused, 32 * step / sizeof(uint64_t));
    cr_assert_eq(ga_vector_size(v), appended.appended);
    return (uint32_t)(appended.appended * sizeof(uint64_t) / step);
}

BOTH(a_large_request_gets_what_the_limit_leaves)
{
    ga_vector *v = open_at(place, 42 * MIB, 0);
    uint32_t lanes = lanes_granted(v, 2 * MIB, GA_GROWTH_LIMIT);
    cr_assert_eq(lanes, 21, "%u lanes", lanes);
    ga_vector_close(v);
}

Test(vector_loan, a_large_request_gets_the_remaining_memory)
{
    for (size_t mib = 24; mib <= 40; mib += 2) {
        start_growing_driver(mib * MIB);
        ga_vector *v = open_at(GA_PLACE_DEVICE, 0, 0);
        uint32_t lanes = lanes_granted(v, 2 * MIB, GA_GROWTH_MEMORY);
        /* All memory but the part that the vector's state takes. */
        cr_assert(lanes == mib / 2 - 1 || lanes == mib / 2, "%u of %zu MiB", lanes, mib);
        ga_vector_close(v);
        expect_nothing_left();
        vmm_driver_stop();
    }
}

Test(vector_loan, ends_where_memory_ends)
{
    start_growing_driver(8 * MIB);
    ga_kernel_vector view;
    ga_vector_appended appended;
    ga_vector *v = open_at(GA_PLACE_DEVICE, 0, 0);
    assert_ok(ga_vector_lend(v, 2 * MIB, &view));
    uint64_t granted = run(view, 8000);
    assert_ok(ga_vector_end_loan(v, &appended));
    expect_refusals(v, 0, granted, &appended, "out of memory");
    ga_vector_close(v);
    expect_nothing_left();
    vmm_driver_stop();
}

/* ---- where it grows between launches only ---------------------------------------------------- */

/* Elements are granted up to the available room, and not one more; without a driver call. */
static void fill_what_there_is(ga_vector *v)
{
    ga_kernel_vector view;
    ga_vector_appended appended;
    uint64_t before = ga_vector_size(v), capacity = ga_vector_capacity(v);
    assert_ok(ga_vector_lend(v, STEP, &view));
    uint64_t growths = vmm_driver_calls("cuMemCreate");
    uint64_t granted = run(view, 6000);
    cr_assert_eq(vmm_driver_calls("cuMemCreate"), growths);
    cr_assert_eq(vmm_driver_count().pinned, 0); /* there is no pager */
    assert_ok(ga_vector_end_loan(v, &appended));
    expect_refusals(v, before, granted, &appended, "it grows between launches only");
    cr_assert_eq(ga_vector_capacity(v), capacity);
    cr_assert_eq(appended.growths, 0);
    cr_assert_eq(appended.grow_ns_max, 0);
}

static void grows_between_launches(vmm_driver_kernels kernels)
{
    vmm_driver_start(&(vmm_driver_options){.kernels = kernels});
    ga_vector *v = open_at(GA_PLACE_DEVICE, 0, 0);
    fill_what_there_is(v); /* nothing */
    assert_ok(ga_vector_reserve(v, 2 * MIB / sizeof(uint64_t)));
    fill_what_there_is(v);
    assert_ok(ga_vector_resize(v, 100));
    assert_ok(ga_vector_reserve(v, 4 * MIB / sizeof(uint64_t)));
    fill_what_there_is(v);
    ga_vector_close(v);
    expect_nothing_left();
    vmm_driver_stop();
}

Test(vector_loan, a_driver_that_maps_nothing_under_kernels)
{
    grows_between_launches(VMM_KERNELS_ALONE);
}

Test(vector_loan, a_build_or_driver_without_kernels)
{
    grows_between_launches(VMM_KERNELS_NONE);
}

/* A trial that failed for lack of memory is made at the next loan. */
Test(vector_loan, a_card_that_is_full_for_a_while)
{
    ga_kernel_vector view;
    ga_vector_appended appended;
    start_growing_driver(64 * MIB);
    ga_vector *v = open_at(GA_PLACE_DEVICE, 0, 0);
    assert_ok(ga_vector_reserve(v, 2 * MIB / sizeof(uint64_t)));
    vmm_driver_take(0, 58 * MIB);
    fill_what_there_is(v);
    vmm_driver_take(0, 0);
    uint64_t before = ga_vector_size(v);
    assert_ok(ga_vector_lend(v, STEP, &view));
    uint64_t granted = run(view, 6000);
    assert_ok(ga_vector_end_loan(v, &appended));
    cr_assert_eq(appended.refused, 0);
    cr_assert_gt(appended.growths, 0);
    cr_assert_eq(ga_vector_size(v), before + granted);
    expect_no_holes(v, before);
    ga_vector_close(v);
    expect_nothing_left();
    vmm_driver_stop();
}

Test(vector_loan, the_log_says_why_it_does_not_grow)
{
    ga_kernel_vector view;
    vmm_driver_start(&(vmm_driver_options){.kernels = VMM_KERNELS_ALONE});
    ga_vector *v = open_at(GA_PLACE_DEVICE, 0, 0);
    scene_capture_begin();
    assert_ok(ga_vector_lend(v, 0, &view));
    cr_assert_str_eq(scene_capture_end(),
                     "gpualloc: vector: device 0: vectors grow between launches only: growth: "
                     "device 0: memory does not grow while a kernel runs: the driver maps nothing "
                     "until the kernel has ended\n");
    assert_ok(ga_vector_end_loan(v, NULL));
    ga_vector_close(v);
    expect_nothing_left();
    vmm_driver_stop();
}

/* ---- the host's part ----------------------------------------------------------------------- */

BOTH(leaves_a_lent_vector_alone)
{
    static const char text[] = "vector: it is lent to kernels; expected it to be lent no more";
    uint64_t value = 7;
    ga_kernel_vector view;
    ga_vector *v = open_at(place, 0, 0);
    assert_fails(ga_vector_end_loan(v, NULL), GA_ERR_ARGUMENT,
                 "vector: it is not lent to kernels; expected it to be");
    assert_fails(ga_vector_lend(v, 5, &view), GA_ERR_ARGUMENT,
                 "vector: steps of 5 bytes; expected 0 or at least 65536");
    assert_fails_with(ga_vector_lend(v, 0, NULL), GA_ERR_ARGUMENT, "vector: no view");
    assert_fails_with(ga_vector_lend(NULL, 0, &view), GA_ERR_ARGUMENT, "vector: no vector");
    assert_ok(ga_vector_push_back(v, &value));
    assert_ok(ga_vector_lend(v, 0, &view));
    assert_fails(ga_vector_lend(v, 0, &view), GA_ERR_ARGUMENT, text);
    assert_fails(ga_vector_push_back(v, &value), GA_ERR_ARGUMENT, text);
    assert_fails(ga_vector_resize(v, 0), GA_ERR_ARGUMENT, text);
    assert_fails(ga_vector_reserve(v, 9), GA_ERR_ARGUMENT, text);
    assert_fails(ga_vector_read(v, 0, 1, &value), GA_ERR_ARGUMENT, text);
    assert_fails(ga_vector_shrink_to_fit(v), GA_ERR_ARGUMENT, text);
    assert_fails(ga_vector_copy(v, v), GA_ERR_ARGUMENT, text);
    assert_ok(ga_vector_wait(v));
    cr_assert_eq(ga_vector_size(v), 1);
    assert_ok(ga_vector_end_loan(v, NULL));
    assert_ok(ga_vector_read(v, 0, 1, &value));
    assert_ok(ga_vector_lend(v, 0, &view));
    ga_vector_close(v); /* lent */
}

/* Each driver call of a loan and its return fails once. */
Test(vector_loan, driver_calls_that_fail)
{
    ga_kernel_vector view;
    start_growing_driver(0);
    bool reached = true;
    for (uint64_t n = 1; reached; n++) {
        ga_vector *v = open_at(GA_PLACE_DEVICE, 0, 0);
        assert_ok(ga_vector_resize(v, 100));
        vmm_driver_fail(NULL, n, CUDA_ERROR_INVALID_VALUE);
        if (ga_vector_lend(v, 0, &view) == GA_OK) {
            ga_status status = ga_vector_end_loan(v, NULL);
            (void)status; /* the loan has ended in any case */
        }
        reached = vmm_driver_has_failed();
        vmm_driver_fail(NULL, 0, 0);
        cr_assert_eq(ga_vector_size(v), 100);
        assert_ok(ga_vector_lend(v, 0, &view));
        assert_ok(ga_vector_end_loan(v, NULL));
        cr_assert_eq(ga_vector_size(v), 100);
        ga_vector_close(v);
        expect_nothing_left();
    }
    vmm_driver_stop();
}
