/* SPDX-License-Identifier: MIT
 *
 * Device memory that grows during kernels, over a driver of host memory. Kernels are threads that
 * request steps as tiles do, prepare new steps in both ranges, and read them; unmapped memory is a
 * segmentation fault. Each call of the driver fails once, before, during and after the kernels.
 */
#include "arena/growing.h"

#include "growth/growth.h"
#include "growth/pager.h"
#include "support/expect.h"
#include "support/scene.h"
#include "support/vmm_recover.h"

#include <inttypes.h>
#include <pthread.h>
#include <unistd.h>

enum {
    KIB = 1 << 10,
    MIB = 1 << 20,
    STEPS_MAX = 40,
    FIRST = 2,
    TILES = 3
};

/* The growing memory, and the words in device memory. */
typedef struct scene {
    ga_growing growing;
    ga_growth growth;
    uint32_t prepared[STEPS_MAX]; /* number of times */
} scene;

static uint64_t *word_of(const ga_growing *growing, int part, uint32_t step)
{
    return (uint64_t *)((char *)growing->base[part] + growing->step_bytes[part] * step);
}

static uint64_t mark_of(int part, uint32_t step)
{
    return (uint64_t)(part + 1) << 32 | step;
}

/* Write to the start and the end of each step. */
static void prepare(ga_tile tile, void *context, uint32_t from, uint32_t to)
{
    scene *s = context;
    (void)tile;
    for (uint32_t step = from; step < to; step++) {
        for (int part = 0; part < GA_GROWING_PARTS; part++) {
            *word_of(&s->growing, part, step) = mark_of(part, step);
            *(word_of(&s->growing, part, step + 1) - 1) = ~mark_of(part, step);
        }
        s->prepared[step]++;
    }
}

static void check_steps(const scene *s, uint32_t steps)
{
    for (uint32_t step = 0; step < steps; step++) {
        cr_assert_eq(s->prepared[step], 1, "step %u: prepared %u times", step, s->prepared[step]);
        for (int part = 0; part < GA_GROWING_PARTS; part++) {
            cr_assert_eq(*word_of(&s->growing, part, step), mark_of(part, step));
            cr_assert_eq(*(word_of(&s->growing, part, step + 1) - 1), ~mark_of(part, step));
        }
    }
}

/* Before kernels: as a backend above does (slab/kernel_growing.c). */
static void tell(scene *s, uint32_t had)
{
    s->growth = ga_growth_first(s->growing.mailbox, s->growing.steps);
    s->growth.refusal_ns = 1000000; /* ns */
    prepare(ga_tile_of(32), s, had, s->growing.steps);
}

static ga_status start(scene *s, uint64_t limit)
{
    *s = (scene){
        .growing = {.step_bytes = {2 * MIB, 64 * KIB}, .steps = FIRST, .steps_max = STEPS_MAX}};
    ga_status status = ga_growing_start(&s->growing, 0, limit);
    if (status == GA_OK) {
        tell(s, 0);
    }
    return status;
}

static void begin(size_t memory)
{
    vmm_driver_start(&(vmm_driver_options){.kernels = VMM_KERNELS_GROW, .memory = memory});
}

static void expect_nothing_left(void)
{
    vmm_driver_counts now = vmm_driver_count();
    cr_assert_eq(now.ranges + now.chunks + now.handles + now.mappings + now.blocks + now.pinned, 0,
                 "%" PRIu64 " ranges, %" PRIu64 " chunks, %" PRIu64 " handles, %" PRIu64
                 " mappings, %" PRIu64 " blocks, %" PRIu64 " pinned",
                 now.ranges, now.chunks, now.handles, now.mappings, now.blocks, now.pinned);
}

static void end(scene *s)
{
    ga_growing_end(&s->growing);
    cr_assert_null(s->growing.own);
    expect_nothing_left();
    vmm_driver_stop();
}

/* ---- kernels ------------------------------------------------------------------------------- */

typedef struct kernel {
    scene *s;
    uint32_t want;    /* steps */
    uint32_t retries; /* refusals for lack of memory after which it requests again */
    uint32_t found;   /* GA_GROWTH_GRANTED, or why not */
} kernel;

static void *run_tile(void *argument)
{
    kernel *k = argument;
    ga_tile tile = ga_tile_of(32);
    for (uint32_t want = FIRST; want <= k->want && k->found == GA_GROWTH_GRANTED; want++) {
        for (uint32_t i = 0; i <= k->retries; i++) {
            k->found = ga_growth_await(tile, &k->s->growth, want, prepare, k->s);
            if (k->found != GA_GROWTH_MEMORY || !k->retries) {
                break;
            }
            usleep(200); /* a refusal is believed for a while */
        }
    }
    return NULL;
}

/* Run tiles that request one step after the other, up to `want`. Returns the failure of a tile that
 * did not get all. */
static uint32_t run(scene *s, uint32_t want, uint32_t retries)
{
    pthread_t threads[TILES];
    kernel tiles[TILES];
    uint32_t found = GA_GROWTH_GRANTED;
    for (int i = 0; i < TILES; i++) {
        tiles[i] = (kernel){.s = s, .want = want, .retries = retries};
        pthread_create(&threads[i], NULL, run_tile, &tiles[i]);
    }
    for (int i = 0; i < TILES; i++) {
        pthread_join(threads[i], NULL);
        found = tiles[i].found != GA_GROWTH_GRANTED ? tiles[i].found : found;
    }
    check_steps(s, s->growth.ready);
    return found;
}

/* ---- growing ------------------------------------------------------------------------------- */

Test(growing, both_ranges_grow_under_kernels)
{
    scene s;
    begin(0);
    assert_ok(start(&s, 0));
    cr_assert_not_null(s.growing.mailbox);
    cr_assert_eq(run(&s, STEPS_MAX / 2, 0), GA_GROWTH_GRANTED);
    cr_assert_geq(ga_growing_held(&s.growing), (uint64_t)STEPS_MAX / 2 * (2 * MIB + 64 * KIB));
    cr_assert_eq(run(&s, STEPS_MAX, 0), GA_GROWTH_GRANTED);
    cr_assert_eq(run(&s, STEPS_MAX + 1, 0), GA_GROWTH_LIMIT); /* addresses end here */
    cr_assert_eq(s.growth.ready, STEPS_MAX);
    end(&s);
}

/* Grown by a kernel, by the host, by a kernel. */
Test(growing, the_host_grows_it_between_kernels)
{
    scene s;
    begin(0);
    assert_ok(start(&s, 0));
    cr_assert_eq(run(&s, 5, 0), GA_GROWTH_GRANTED);
    uint32_t ready = s.growth.ready;
    s.growing.steps = ready;
    assert_ok(ga_growing_reach(&s.growing, 0)); /* a kernel may start soon */
    cr_assert_eq(s.growing.steps, ready);
    assert_ok(ga_growing_reach(&s.growing, 30));
    cr_assert_geq(s.growing.steps, 30);
    tell(&s, ready);
    cr_assert_eq(run(&s, STEPS_MAX, 0), GA_GROWTH_GRANTED);
    assert_fails(ga_growing_reach(&s.growing, STEPS_MAX + 1), GA_ERR_MEMORY,
                 "vmm: limit: 41 steps; expected at most 40");
    end(&s);
}

/* The answer to a request that its kernel did not wait for may arrive while the host begins. */
Test(growing, a_request_without_a_waiter)
{
    for (uint32_t i = 0; i < 20; i++) {
        scene s;
        begin(0);
        assert_ok(start(&s, 0));
        ga_growth_hint(ga_tile_of(32), &s.growth, FIRST + 1 + i, prepare, &s);
        uint32_t ready = s.growth.ready;
        assert_ok(ga_growing_reach(&s.growing, 10));
        cr_assert(s.growing.steps >= 10 && s.growing.steps <= STEPS_MAX);
        tell(&s, ready);
        cr_assert_eq(run(&s, STEPS_MAX, 0), GA_GROWTH_GRANTED);
        end(&s);
    }
}

/* If the trial fails there is no mailbox, and the host grows the memory. */
Test(growing, between_launches_only)
{
    scene s;
    vmm_driver_start(&(vmm_driver_options){.kernels = VMM_KERNELS_ALONE});
    assert_ok(start(&s, 0));
    cr_assert_null(s.growing.mailbox);
    cr_assert_eq(run(&s, FIRST + 1, 0), GA_GROWTH_FIXED);
    cr_assert_eq(s.growth.ready, FIRST);
    assert_ok(ga_growing_reach(&s.growing, 17));
    cr_assert_eq(s.growing.steps, 17);
    tell(&s, FIRST);
    cr_assert_eq(run(&s, 17, 0), GA_GROWTH_GRANTED);
    cr_assert_eq(run(&s, 18, 0), GA_GROWTH_FIXED);
    end(&s);
}

/* ---- limits and refusals ------------------------------------------------------------------ */

Test(growing, its_limit_is_kept)
{
    scene s;
    begin(0);
    assert_ok(start(&s, 10 * (2 * MIB + 64 * KIB) + MIB));
    cr_assert_eq(run(&s, STEPS_MAX, 0), GA_GROWTH_LIMIT);
    cr_assert_eq(s.growth.ready, 10);
    end(&s);
}

Test(growing, what_cannot_be)
{
    scene s;
    begin(0);
    assert_fails(start(&s, 2 * MIB), GA_ERR_MEMORY,
                 "vmm: limit: 2097152 bytes; expected room for 2 steps of 2162688 bytes to begin "
                 "with");
    s = (scene){.growing = {.step_bytes = {2 * MIB}, .steps = 3, .steps_max = 2}};
    assert_fails(ga_growing_start(&s.growing, 0, 0), GA_ERR_ARGUMENT,
                 "vmm: 3 to 2 steps of 2097152 bytes; expected some");
    s = (scene){.growing = {.step_bytes = {0, 2 * MIB}, .steps = 1, .steps_max = 2}};
    cr_assert_eq(ga_growing_start(&s.growing, 0, 0), GA_ERR_ARGUMENT);
    s = (scene){.growing = {.step_bytes = {2 * MIB}, .steps = 1, .steps_max = 2}};
    assert_fails(ga_growing_start(&s.growing, 5, 0), GA_ERR_DEVICE,
                 "arena: no CUDA device 5: the driver has 1, counted from 0");
    cr_assert_eq(ga_growing_start(&s.growing, -1, 0), GA_ERR_DEVICE);
    cr_assert_null(s.growing.own);
    expect_nothing_left();
    vmm_driver_stop();
}

/* Fewer addresses than steps: refused, and no half of it stays. */
Test(growing, addresses_that_are_not_there)
{
    for (uint64_t mib = 16; mib <= 96; mib += 16) {
        scene s;
        vmm_driver_start(
            &(vmm_driver_options){.kernels = VMM_KERNELS_GROW, .addresses = mib * MIB});
        ga_status status = start(&s, 0);
        cr_assert_eq(status == GA_OK, mib >= 96, "%" PRIu64 " MiB: %d", mib, (int)status);
        if (status == GA_OK) {
            ga_growing_end(&s.growing);
        }
        expect_nothing_left();
        vmm_driver_stop();
    }
}

/* ---- memory that ends ---------------------------------------------------------------------- */

/* Memory ends in the middle of a growth, in the first range or in the second. The part that could
 * be committed is granted, and the rest once there is more memory. */
Test(growing, memory_ends_in_the_middle)
{
    for (size_t mib = 20; mib <= 60; mib += 2) {
        scene s;
        begin(128 * MIB);
        assert_ok(start(&s, 0));
        vmm_driver_take(0, (128 - mib) * MIB);
        cr_assert_eq(run(&s, STEPS_MAX, 0), GA_GROWTH_MEMORY, "%zu MiB", mib);
        /* A granule of 2 MiB for each step, and one for the bitmaps of 32 steps. */
        uint32_t max = (uint32_t)(mib / 2);
        cr_assert(s.growth.ready <= max && s.growth.ready + 3 >= max, "%zu MiB: %u steps", mib,
                  s.growth.ready);
        vmm_driver_take(0, 0);
        cr_assert_eq(run(&s, STEPS_MAX, 100), GA_GROWTH_GRANTED);
        end(&s);
    }
}

/* ---- every call of the driver -------------------------------------------------------------- */

static const CUresult errors[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_PERMITTED};

/* Calls fail while kernels run. A failed growth is retried with fewer steps; no kernel gets a wrong
 * result. */
static bool fail_under_kernels(uint64_t n, uint64_t more, CUresult error)
{
    scene s;
    begin(0);
    assert_ok(start(&s, 0));
    vmm_driver_fail_many(NULL, n, more, error);
    uint32_t found = run(&s, STEPS_MAX, 0);
    bool failed = vmm_recover();
    cr_assert(found == GA_GROWTH_GRANTED || found == GA_GROWTH_MEMORY, "found %u", found);
    cr_assert(failed || found == GA_GROWTH_GRANTED);
    cr_assert_eq(run(&s, STEPS_MAX, 100), GA_GROWTH_GRANTED, "call %" PRIu64 " and %" PRIu64, n,
                 more);
    cr_assert_eq(s.growth.ready, STEPS_MAX);
    end(&s);
    return failed;
}

Test(growing, every_call_under_kernels_in_turn)
{
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
        for (int i = 0; i < VMM_SOME_CALLS; i++) {
            uint64_t n = 1;
            while (fail_under_kernels(n, vmm_more_calls[i], errors[e])) {
                n++;
            }
            cr_assert_gt(n, 10, "only %" PRIu64 " calls", n);
        }
    }
}

/* Several growths in a row fail for lack of memory: the kernels are refused for a while, and
 * request again. */
Test(growing, several_calls_under_kernels)
{
    for (uint64_t more = 1; more < 40; more += 6) {
        for (uint64_t n = 1; n < 20; n += 3) {
            scene s;
            begin(0);
            assert_ok(start(&s, 0));
            vmm_driver_fail_many("cuMemCreate", n, more, CUDA_ERROR_OUT_OF_MEMORY);
            run(&s, STEPS_MAX, 0);
            vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
            cr_assert_eq(run(&s, STEPS_MAX, 100), GA_GROWTH_GRANTED);
            cr_assert_eq(s.growth.ready, STEPS_MAX);
            end(&s);
        }
    }
}

/* A call fails during opening: opening fails and leaves nothing, or succeeds, perhaps without a
 * pager. */
static bool fail_start(uint64_t n, uint64_t more, CUresult error)
{
    scene s;
    begin(0);
    vmm_driver_fail_many(NULL, n, more, error);
    ga_status status = start(&s, 0);
    bool failed = vmm_recover();
    cr_assert(failed || (status == GA_OK && s.growing.mailbox), "call %" PRIu64, n);
    if (status != GA_OK) {
        cr_assert_null(s.growing.own);
        expect_nothing_left();
        assert_ok(start(&s, 0)); /* and again */
        cr_assert_not_null(s.growing.mailbox);
    }
    if (s.growing.mailbox) {
        cr_assert_eq(run(&s, STEPS_MAX, 0), GA_GROWTH_GRANTED);
    } else {
        assert_ok(ga_growing_reach(&s.growing, STEPS_MAX));
        tell(&s, FIRST);
        cr_assert_eq(run(&s, STEPS_MAX, 0), GA_GROWTH_GRANTED);
    }
    end(&s);
    return failed;
}

Test(growing, every_call_of_opening_in_turn)
{
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
        for (int i = 0; i < VMM_SOME_CALLS; i++) {
            uint64_t n = 1;
            while (fail_start(n, vmm_more_calls[i], errors[e])) {
                n++;
            }
            cr_assert_gt(n, 30, "only %" PRIu64 " calls", n);
        }
    }
}

/* A call fails during a growth by the host: it fails, with both ranges usable up to their old size,
 * or it succeeds. */
static bool fail_reach(uint64_t n, uint64_t more, CUresult error)
{
    scene s;
    begin(0);
    assert_ok(start(&s, 0));
    uint32_t had = s.growing.steps;
    vmm_driver_fail_many(NULL, n, more, error);
    ga_status status = ga_growing_reach(&s.growing, 20);
    bool failed = vmm_recover();
    cr_assert(status == GA_OK ? s.growing.steps >= 20 : failed && s.growing.steps == had);
    tell(&s, had);
    cr_assert_eq(run(&s, STEPS_MAX, 0), GA_GROWTH_GRANTED);
    end(&s);
    return failed;
}

Test(growing, every_call_of_reaching_in_turn)
{
    for (int i = 0; i < VMM_SOME_CALLS; i++) {
        uint64_t n = 1, more = vmm_more_calls[i];
        while (fail_reach(n, more, errors[0]) && fail_reach(n, more, errors[1])) {
            n++;
        }
        cr_assert_gt(n, 5, "only %" PRIu64 " calls", n);
    }
}

/* A call fails during closing: memory that the driver refuses to release is released by the next
 * visit to the device. */
static bool fail_end(uint64_t n, uint64_t more, CUresult error)
{
    scene s;
    begin(0);
    assert_ok(start(&s, 0));
    cr_assert_eq(run(&s, STEPS_MAX / 2, 0), GA_GROWTH_GRANTED);
    vmm_driver_fail_many(NULL, n, more, error);
    ga_growing_end(&s.growing);
    bool failed = vmm_recover();
    expect_nothing_left();
    vmm_driver_stop();
    return failed;
}

Test(growing, every_call_of_closing_in_turn)
{
    for (int i = 0; i < VMM_SOME_CALLS; i++) {
        uint64_t n = 1, more = vmm_more_calls[i];
        while (fail_end(n, more, errors[0]) && fail_end(n, more, errors[1])) {
            n++;
        }
        cr_assert_gt(n, 5, "only %" PRIu64 " calls", n);
    }
}

/* ---- contexts that go first, and children ------------------------------------------------- */

/* Requests of kernels are refused, and the memory can be closed. */
Test(growing, a_context_that_is_destroyed_first)
{
    scene s;
    begin(0);
    assert_ok(start(&s, 0));
    cr_assert_eq(run(&s, 5, 0), GA_GROWTH_GRANTED);
    uint32_t ready = s.growth.ready;
    vmm_driver_destroy_context(0);
    cr_assert_eq(run(&s, STEPS_MAX, 0), GA_GROWTH_MEMORY);
    cr_assert_eq(s.growth.ready, ready);
    cr_assert_neq(ga_growing_reach(&s.growing, STEPS_MAX), GA_OK);
    ga_growing_end(&s.growing);
    vmm_driver_stop();
}

Test(growing, a_driver_that_shuts_down_first)
{
    scene s;
    begin(0);
    assert_ok(start(&s, 0));
    vmm_driver_shut_down();
    cr_assert_eq(run(&s, STEPS_MAX, 0), GA_GROWTH_MEMORY);
    ga_growing_end(&s.growing);
    vmm_driver_stop();
}

static int end_in_child(void *context)
{
    scene *s = context;
    uint64_t calls = vmm_driver_calls("cuMemUnmap") + vmm_driver_calls("cuMemRelease");
    bool refused = ga_growing_reach(&s->growing, 20) != GA_OK;
    ga_growing_end(&s->growing);
    uint64_t now = vmm_driver_calls("cuMemUnmap") + vmm_driver_calls("cuMemRelease");
    return refused && now == calls ? 0 : 1;
}

/* The child has neither the pager nor the device; the parent's pager continues. */
Test(growing, a_fork_with_a_live_pager)
{
    scene s;
    begin(0);
    assert_ok(start(&s, 0));
    cr_assert_eq(run(&s, 5, 0), GA_GROWTH_GRANTED);
    cr_assert_eq(scene_in_child(end_in_child, &s), 0);
    cr_assert_eq(run(&s, STEPS_MAX, 0), GA_GROWTH_GRANTED);
    end(&s);
}
