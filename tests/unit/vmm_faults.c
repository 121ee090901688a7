/* SPDX-License-Identifier: MIT
 *
 * The vmm backend with failing calls: every call of the driver fails once, in every operation. A
 * failed operation has changed nothing, and nothing is left at the end.
 */
#include "support/first_call.h"
#include "support/scene.h"
#include "support/vmm_recover.h"
#include "support/vmm_scene.h"

#include <stdlib.h>
#include <string.h>

#define LARGE (24 * MIB)

typedef struct stage {
    ga_heap *heap;
    char *large, *small; /* live: LARGE, 512 KiB */
    size_t cut;          /* bytes by which the large block has been cut */
    void *got;           /* block allocated by the operation */
    CUstream stream;
} stage;

/* Something that is done to a heap. */
typedef struct operation {
    const char *name;
    ga_status (*run)(stage *s);
    const char *spec;
    bool cached;        /* a run of 32 MiB is, behind the large block */
    bool may_give_back; /* cached memory, without having been of use */
    bool unmaps;        /* less is mapped afterwards, if no call fails */
} operation;

static ga_status run_alloc(stage *s)
{
    return ga_alloc(s->heap, 16 * MIB, 0, &s->got);
}

static ga_status run_alloc_packed(stage *s)
{
    return ga_alloc(s->heap, 1000, 0, &s->got);
}

static ga_status run_alloc_chunks(stage *s)
{
    return ga_alloc(s->heap, 100 * MIB, 0, &s->got);
}

static ga_status run_alloc_zeroed(stage *s)
{
    return ga_alloc_zeroed(s->heap, 6 * MIB, 0, &s->got);
}

static ga_status run_alloc_on(stage *s)
{
    return ga_alloc_on(s->heap, 16 * MIB, 0, s->stream, &s->got);
}

static ga_status run_grow(stage *s)
{
    return ga_grow(s->heap, s->large, 100 * MIB);
}

static ga_status run_realloc(stage *s)
{
    void *moved = s->large;
    ga_status status = ga_realloc(s->heap, s->large, 200 * MIB, 0, &moved);
    s->large = moved;
    return status;
}

static ga_status run_shrink(stage *s)
{
    void *moved = s->large;
    ga_status status = ga_realloc(s->heap, s->large, 10 * MIB, 0, &moved);
    s->large = moved;
    s->cut = LARGE - ga_usable_size(s->heap, moved);
    return status;
}

static ga_status run_free(stage *s)
{
    char *block = s->large;
    ga_status status = ga_free(s->heap, block);
    s->large = status == GA_OK ? NULL : block;
    return status;
}

static ga_status run_free_on(stage *s)
{
    ga_status status = ga_free_on(s->heap, s->large, s->stream);
    s->large = status == GA_OK ? NULL : s->large;
    return status;
}

static ga_status run_free_packed_on(stage *s)
{
    ga_status status = ga_free_on(s->heap, s->small, s->stream);
    s->small = status == GA_OK ? NULL : s->small;
    return status;
}

static ga_status run_trim(stage *s)
{
    return ga_trim(s->heap, 0);
}

static const operation operations[] = {
    {"alloc", run_alloc, "vmm", false, false, false},
    {"alloc without a cache", run_alloc, "vmm:cache=0", true, true, false},
    {"alloc at the limit", run_alloc, "vmm:limit=64M", true, true, false},
    {"alloc packed", run_alloc_packed, "vmm", false, false, false},
    {"alloc in chunks", run_alloc_chunks, "vmm:chunk=16M", true, true, false},
    {"alloc zeroed", run_alloc_zeroed, "vmm", false, true, false},
    {"alloc on a stream", run_alloc_on, "vmm", true, true, false},
    {"grow", run_grow, "vmm:chunk=16M", false, false, false},
    {"realloc where it stands", run_realloc, "vmm:chunk=64M", false, true, false},
    {"realloc that moves", run_realloc, "vmm:chunk=64M", true, true, false},
    {"free", run_free, "vmm", false, false, false},
    {"free on a stream", run_free_on, "vmm", false, false, false},
    {"free packed on a stream", run_free_packed_on, "vmm", false, false, false},
    {"free that gives back", run_free, "vmm:cache=0", false, true, true},
    {"free on a stream that gives back", run_free_on, "vmm:cache=0", false, true, true},
    {"free packed that gives back", run_free_packed_on, "vmm:cache=0", false, true, true},
    {"realloc that shrinks", run_shrink, "vmm:cache=0,chunk=2M", false, true, true},
    {"trim", run_trim, "vmm", true, true, true},
};

enum {
    OPERATIONS = sizeof operations / sizeof *operations
};

static void mark(char *block, size_t size)
{
    for (size_t at = 0; at < size; at += 64 << 10) {
        memcpy(block + at, &at, sizeof at);
    }
}

static void check(const char *name, const char *block, size_t size)
{
    for (size_t at = 0; block && at < size; at += 64 << 10) {
        cr_assert_eq(memcmp(block + at, &at, sizeof at), 0, "%s: at %zu", name, at);
    }
}

static stage prepare(const operation *o)
{
    stage s = {.heap = vmm_open(NULL, o->spec)};
    ga_cuda_scope scope;
    assert_ok(ga_cuda_enter(&scope, 0));
    cr_assert_eq(scope.driver->cuStreamCreate(&s.stream, 0), CUDA_SUCCESS);
    ga_cuda_leave(&scope);
    s.small = vmm_take(s.heap, 512 << 10);
    s.large = vmm_take(s.heap, LARGE);
    mark(s.large, LARGE);
    mark(s.small, 512 << 10);
    if (o->cached) {
        assert_ok(ga_free(s.heap, vmm_take(s.heap, 32 * MIB)));
    }
    return s;
}

static void finish(stage *s)
{
    assert_ok(ga_free(s->heap, s->large));
    assert_ok(ga_free(s->heap, s->small));
    assert_ok(ga_free(s->heap, s->got));
    ga_stats stats;
    assert_ok(ga_heap_stats(s->heap, &stats));
    cr_assert_eq(stats.live_bytes, 0);
    /* and it still works */
    void *block = vmm_take(s->heap, 40 * MIB);
    assert_ok(ga_free(s->heap, block));
    vmm_end(s->heap);
}

static void check_unchanged(const operation *o, uint64_t n, const stage *s, vmm_driver_counts was)
{
    vmm_driver_counts is = vmm_driver_count();
    cr_assert_eq(is.handles, is.mappings, "%s, call %" PRIu64 ": handles", o->name, n);
    cr_assert_eq(is.chunk_bytes, is.mapped_bytes, "%s, call %" PRIu64 ": chunks", o->name, n);
    cr_assert_eq(vmm_held(s->heap), is.mapped_bytes, "%s, call %" PRIu64 ": held", o->name, n);
    if (!o->may_give_back) {
        cr_assert_eq(is.mapped_bytes, was.mapped_bytes, "%s, call %" PRIu64, o->name, n);
    }
}

/* Let the n-th call fail. Returns false if there was no n-th call. */
static bool fail_some(const operation *o, uint64_t n, uint64_t more, CUresult error)
{
    stage s = prepare(o);
    vmm_driver_counts was = vmm_driver_count();
    vmm_driver_fail_many(NULL, n, more, error);
    ga_status status = o->run(&s);
    bool failed = vmm_driver_has_failed();
    vmm_driver_fail(NULL, 0, CUDA_SUCCESS); /* no more refusals: the figures are checked */
    if (status != GA_OK) {
        cr_assert(failed, "%s: %s", o->name, ga_error_text());
        cr_assert_eq(strncmp(ga_error_text(), "vmm: ", 5), 0, "%s", ga_error_text());
        cr_assert_null(s.got);
        if (!more) {
            check_unchanged(o, n, &s, was);
        }
    }
    cr_assert(failed || !o->unmaps || vmm_driver_count().mapped_bytes < was.mapped_bytes,
              "%s: nothing is unmapped", o->name);
    check(o->name, s.large, LARGE - s.cut);
    check(o->name, s.small, 512 << 10);
    cr_assert(more || vmm_held(s.heap) == vmm_driver_count().mapped_bytes, "%s", o->name);
    finish(&s);
    return failed;
}

/* 64 MiB are moved to the hole behind `high`. Returns false if there was no n-th call. */
static bool fail_moving(uint64_t n, uint64_t more)
{
    ga_heap *heap = vmm_open(NULL, "vmm:free=now,limit=320M");
    void *low = vmm_take(heap, 128 * MIB);
    void *kept = vmm_take(heap, 64 * MIB);
    void *high = vmm_take(heap, 128 * MIB);
    void *block = NULL;
    mark(kept, 64 * MIB);
    assert_ok(ga_free(heap, low));
    assert_ok(ga_free(heap, high));
    vmm_driver_fail_many(NULL, n, more, CUDA_ERROR_NOT_PERMITTED);
    ga_status status = ga_alloc(heap, 192 * MIB, 0, &block);
    bool failed = vmm_driver_has_failed();
    vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
    vmm_driver_counts is = vmm_driver_count();
    cr_assert(status == GA_OK ? block != NULL : failed && !block, "call %" PRIu64, n);
    cr_assert(more || is.chunk_bytes == vmm_held(heap), "call %" PRIu64, n);
    cr_assert(more || is.handles == is.mappings, "call %" PRIu64, n);
    check("moving", kept, 64 * MIB);
    assert_ok(ga_free(heap, block));
    assert_ok(ga_free(heap, vmm_take(heap, 192 * MIB)));
    assert_ok(ga_free(heap, kept));
    vmm_end(heap);
    return failed;
}

Test(vmm_faults, moving_memory_fails_at_each_call)
{
    for (uint64_t more = 0; more < 2; more++) {
        for (uint64_t n = 1; fail_moving(n, more); n++) {
        }
    }
}

Test(vmm_faults, every_call_of_the_driver_in_turn)
{
    static const CUresult errors[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_PERMITTED};
    for (size_t i = 0; i < OPERATIONS; i++) {
        for (size_t e = 0; e < 2; e++) {
            uint64_t n = 1;
            while (fail_some(&operations[i], n, 0, errors[e])) {
                n++;
            }
            cr_assert_gt(n, 1, "%s calls nothing", operations[i].name);
            n = 1;
            while (fail_some(&operations[i], n, UINT64_MAX, errors[e])) {
                n++;
            }
        }
    }
}

/* A release is refused: the memory, now without addresses, is kept and mapped for the next
 * request. */
Test(vmm_faults, what_cannot_be_released_is_used_again)
{
    ga_heap *heap = vmm_open(NULL, "vmm");
    assert_ok(ga_free(heap, vmm_take(heap, 32 * MIB)));
    vmm_driver_fail_many("cuMemRelease", 1, 100, CUDA_ERROR_NOT_PERMITTED);
    assert_ok(ga_trim(heap, 0));
    vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
    cr_assert_eq(vmm_held(heap), 32 * MIB);
    cr_assert_eq(vmm_driver_count().mappings, 0);
    uint64_t created = vmm_driver_calls("cuMemCreate");
    void *block = vmm_take(heap, 32 * MIB);
    cr_assert_eq(vmm_driver_calls("cuMemCreate"), created);
    cr_assert_eq(vmm_held(heap), 32 * MIB);
    assert_ok(ga_free(heap, block));
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(vmm_held(heap), 0);
    vmm_end(heap);
}

/* An unmap is refused permanently: the memory stays mapped, counted and usable. */
Test(vmm_faults, what_cannot_be_unmapped_is_kept)
{
    ga_heap *heap = vmm_open(NULL, "vmm");
    void *block = vmm_take(heap, 32 * MIB);
    assert_ok(ga_free(heap, block));
    vmm_driver_fail_many("cuMemUnmap", 1, 100, CUDA_ERROR_NOT_PERMITTED);
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(vmm_held(heap), 32 * MIB);
    vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
    void *again = vmm_take(heap, 32 * MIB);
    cr_assert_eq(again, block);
    assert_ok(ga_free(heap, again));
    assert_ok(ga_trim(heap, 0));
    cr_assert_eq(vmm_held(heap), 0);
    vmm_end(heap);
}

/* The third chunk is refused, and the first two cannot be unmapped: they are a cached run. */
Test(vmm_faults, half_a_block_that_cannot_be_undone)
{
    ga_heap *heap = vmm_open(&(vmm_driver_options){.memory = 40 * MIB}, "vmm:chunk=16M");
    void *block;
    vmm_driver_fail_many("cuMemUnmap", 1, 100, CUDA_ERROR_NOT_PERMITTED);
    assert_fails_with(ga_alloc(heap, 40 * MIB + 1, 0, &block), GA_ERR_MEMORY, "vmm: ");
    cr_assert_eq(vmm_held(heap), 0); /* more than there is at all */
    vmm_driver_take(0, 8 * MIB);
    assert_fails_with(ga_alloc(heap, 40 * MIB, 0, &block), GA_ERR_MEMORY, "vmm: ");
    cr_assert_eq(vmm_held(heap), 32 * MIB);
    cr_assert_eq(vmm_driver_count().mapped_bytes, 32 * MIB);
    vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
    block = vmm_take(heap, 32 * MIB);
    memset(block, 1, 32 * MIB);
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
}

/* Three calls in a row are refused: if access cannot be set the mapping stays, too. Its addresses
 * are reused once the driver unmaps it. */
static bool leave_mapped(uint64_t n)
{
    ga_heap *heap = vmm_open(NULL, "vmm:free=now,chunk=16M");
    void *block = NULL;
    vmm_driver_fail_many(NULL, n, 2, CUDA_ERROR_NOT_PERMITTED);
    ga_status status = ga_alloc(heap, 32 * MIB, 0, &block);
    bool failed = vmm_driver_has_failed();
    vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
    cr_assert(status == GA_OK || failed, "call %" PRIu64, n);
    assert_ok(ga_free(heap, block));
    block = vmm_take(heap, 32 * MIB);
    memset(block, 1, 32 * MIB);
    cr_assert_eq(vmm_held(heap), vmm_driver_count().mapped_bytes, "call %" PRIu64, n);
    assert_ok(ga_free(heap, block));
    vmm_end(heap);
    return failed;
}

Test(vmm_faults, what_has_no_access_is_unmapped_later)
{
    for (uint64_t n = 1; leave_mapped(n); n++) {
    }
}

static bool fail_open(uint64_t n, uint64_t more)
{
    ga_heap *heap = NULL;
    vmm_driver_start(NULL);
    vmm_driver_fail_many(NULL, n, more, CUDA_ERROR_NOT_PERMITTED);
    ga_status status = ga_heap_open(&heap, GA_PLACE_DEVICE, 0, "vmm:share=auto");
    bool failed = vmm_recover();
    cr_assert(status == GA_OK || failed);
    if (status != GA_OK) {
        cr_assert_eq(strncmp(ga_error_text(), "vmm: ", 5), 0, "%s", ga_error_text());
    }
    assert_ok(ga_heap_close(heap));
    vmm_assert_nothing_left();
    vmm_driver_stop();
    return failed;
}

Test(vmm_faults, opening)
{
    for (int i = 0; i < VMM_SOME_CALLS; i++) {
        uint64_t n = 1;
        while (fail_open(n, vmm_more_calls[i])) {
            n++;
        }
        cr_assert_gt(n, 5);
    }
}

/* All calls from the n-th on, while a heap with live blocks, cached memory and fences is closed. */
static bool fail_close(const char *spec, uint64_t n)
{
    operation o = {.spec = spec, .cached = true};
    stage s = prepare(&o);
    assert_ok(ga_alloc_on(s.heap, 16 * MIB, 0, s.stream, &s.got));
    vmm_driver_hold(s.stream);
    assert_ok(ga_free_on(s.heap, s.got, s.stream));
    vmm_driver_fail_many(NULL, n, UINT64_MAX, CUDA_ERROR_NOT_PERMITTED);
    ga_heap_close(s.heap);
    bool failed = vmm_recover();
    vmm_assert_nothing_left();
    vmm_driver_stop();
    return failed;
}

Test(vmm_faults, closing)
{
    static const char *const specs[] = {"vmm", "vmm:chunk=2M"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        uint64_t n = 1;
        while (fail_close(specs[i], n)) {
            n++;
        }
        cr_assert_gt(n, 5, "%s: only %" PRIu64 " calls", specs[i], n);
    }
}

/* ---- the end of things ------------------------------------------------------------------- */

Test(vmm_faults, a_driver_that_shuts_down)
{
    ga_heap *heap = vmm_open(NULL, "vmm");
    void *large = vmm_take(heap, 16 * MIB);
    void *small = vmm_take(heap, 100);
    void *more;
    vmm_driver_shut_down();
    cr_assert_eq(ga_alloc(heap, 64 * MIB, 0, &more), GA_ERR_DEVICE);
    assert_ok(ga_free(heap, large));
    assert_ok(ga_free_on(heap, small, NULL));
    assert_ok(ga_heap_close(heap));
    vmm_driver_stop();
}

Test(vmm_faults, a_context_that_is_destroyed)
{
    ga_heap *heap = vmm_open(NULL, "vmm");
    void *block = vmm_take(heap, 16 * MIB);
    void *more;
    vmm_driver_destroy_context(0);
    assert_fails_with(ga_alloc(heap, 64 * MIB, 0, &more), GA_ERR_DEVICE,
                      "vmm: no block of 67108864 bytes: ");
    cr_assert_eq(ga_free(heap, block), GA_ERR_DEVICE);
    setenv("GPUALLOC_LOG", "error", 1);
    assert_ok(ga_heap_close(heap));
    vmm_driver_stop();
}

static ga_heap *inherited;
static void *inherited_block;

static int use_in_child(void *unused)
{
    void *block;
    (void)unused;
    setenv("GPUALLOC_LOG", "error", 1);
    bool refused = ga_alloc(inherited, 16 * MIB, 0, &block) == GA_ERR_DEVICE &&
                   strstr(ga_error_text(), "before fork()") &&
                   ga_free(inherited, inherited_block) == GA_ERR_DEVICE &&
                   ga_grow(inherited, inherited_block, 64 * MIB) == GA_ERR_DEVICE &&
                   ga_trim(inherited, 0) == GA_ERR_DEVICE;
    return refused && ga_heap_close(inherited) == GA_OK ? 0 : 1;
}

static void *open_inherited(void *unused)
{
    inherited = vmm_open(NULL, "vmm");
    inherited_block = vmm_take(inherited, 16 * MIB);
    return unused;
}

Test(vmm_faults, a_child_of_a_fork_that_began_before_the_first_heap, .timeout = 60)
{
    pid_t child = first_call_fork_around(open_inherited);
    if (child == 0) {
        _exit(use_in_child(NULL));
    }
    cr_assert(first_call_child_ended(child));
    assert_ok(ga_free(inherited, inherited_block));
    vmm_end(inherited);
}

Test(vmm_faults, a_child_has_no_device)
{
    open_inherited(NULL);
    void *cached = vmm_take(inherited, 16 * MIB);
    assert_ok(ga_free(inherited, cached));
    cr_assert_eq(scene_in_child(use_in_child, NULL), 0);
    assert_ok(ga_free(inherited, inherited_block));
    vmm_end(inherited);
}
