/* SPDX-License-Identifier: MIT
 *
 * Arenas that are refused, and one test run for each failing call of the driver or the kernel.
 */
#include "support/arena_scene.h"
#include "support/vmm_recover.h"

#include "platform/os_memory.h"
#include "platform/reservations.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- refusals ---------------------------------------------------------------------------- */

Test(arena_faults, options_that_cannot_be)
{
    static const int nobody[] = {0};
    vmm_driver_start(NULL);
    ga_arena *arena;
    assert_fails(ga_arena_open(&arena, NULL), GA_ERR_ARGUMENT,
                 "arena: expected options and a place for the arena, got NULL");
    assert_fails(ga_arena_open(NULL, &on_host), GA_ERR_ARGUMENT,
                 "arena: expected options and a place for the arena, got NULL");
    assert_refused((ga_arena_options){.options_size = 8}, GA_ERR_ARGUMENT,
                   "arena: options_size: expected sizeof(ga_arena_options), 64, got 8");
    assert_refused(
        (ga_arena_options){.options_size = sizeof(ga_arena_options), .place = GA_PLACE_KERNEL},
        GA_ERR_ARGUMENT, "arena: place: expected host or device, got kernel");
    assert_refused(WITH(on_host, .flags = 0x41), GA_ERR_ARGUMENT,
                   "arena: flags: 0x40 are none of GA_ARENA_*");
    assert_refused(WITH(on_host, .reserve = UINT64_MAX), GA_ERR_ARGUMENT,
                   "arena: reserve: expected less than 2^56 bytes, got 18446744073709551615");
    assert_refused(WITH(on_host, .chunk = 2 * MIB, .chunk_max = MIB), GA_ERR_ARGUMENT,
                   "arena: chunk: 2097152 bytes are above chunk_max, 1048576");
    assert_refused(WITH(on_host, .chunk = 2 * MIB, .limit = MIB), GA_ERR_ARGUMENT,
                   "arena: chunk: 2097152 bytes are above the limit, 1048576");
    assert_refused(WITH(on_device, .limit = MIB), GA_ERR_ARGUMENT,
                   "arena: limit: 1048576 bytes are below the smallest chunk, 2097152");
    assert_refused(WITH(on_device, .flags = GA_ARENA_HUGE_PAGES), GA_ERR_UNSUPPORTED,
                   "arena: GA_ARENA_HUGE_PAGES is for the host");
    assert_refused(WITH(on_host, .peers = nobody, .peer_count = 1), GA_ERR_UNSUPPORTED,
                   "arena: memory of the host cannot be shared by handles, nor given to devices: "
                   "expected neither peers nor shared handles nor RDMA on the host, got peers");
    assert_refused(WITH(on_device, .peer_count = 1), GA_ERR_ARGUMENT,
                   "arena: peers: expected up to 63, got 1 at (nil)");
    assert_refused(WITH(on_device, .device = 7), GA_ERR_DEVICE,
                   "arena: no CUDA device 7: the driver has 1, counted from 0");
    assert_refused(WITH(on_device, .device = -1), GA_ERR_DEVICE,
                   "arena: no CUDA device -1: the driver has 1, counted from 0");
    assert_nothing_left();
}

Test(arena_faults, calls_without_an_arena)
{
    ga_arena_stats stats;
    ga_arena_share share = {0};
    ga_arena *arena = open_with(on_host);
    assert_fails(ga_arena_grow(NULL, 1), GA_ERR_ARGUMENT, "arena: expected an arena, got NULL");
    cr_assert_eq(ga_arena_shrink(NULL, 1), GA_ERR_ARGUMENT);
    cr_assert_eq(ga_arena_extend(NULL, 1), GA_ERR_ARGUMENT);
    cr_assert_eq(ga_arena_move(NULL, 1), GA_ERR_ARGUMENT);
    cr_assert_eq(ga_arena_export(NULL, 0, &share), GA_ERR_ARGUMENT);
    cr_assert_eq(ga_arena_import(NULL, &share), GA_ERR_ARGUMENT);
    cr_assert_null(ga_arena_base(NULL));
    cr_assert_eq(ga_arena_size(NULL) + ga_arena_reserved(NULL), 0);
    ga_arena_get_stats(NULL, &stats);
    cr_assert_eq(stats.reserved, 0);
    ga_arena_close(NULL);
    assert_fails(ga_arena_extend(arena, UINT64_MAX), GA_ERR_SIZE,
                 "arena: expected less than 2^56 bytes of addresses, got 18446744073709551615");
    cr_assert_eq(ga_arena_move(arena, (uint64_t)1 << 60), GA_ERR_SIZE);
    ga_arena_close(arena);
}

Test(arena_faults, devices_that_cannot)
{
    static const int peers[] = {1};
    vmm_driver_start(
        &(vmm_driver_options){.devices = 2, .no_fd = true, .no_peers = true, .memory = 64 * MIB});
    assert_refused(WITH(on_device, .flags = GA_ARENA_SHARE_FD), GA_ERR_UNSUPPORTED,
                   "arena: device 0 cannot share memory by file descriptors (GA_ARENA_SHARE_FD)");
    assert_refused(WITH(on_device, .flags = GA_ARENA_SHARE_FABRIC), GA_ERR_UNSUPPORTED,
                   "arena: device 0 cannot share memory over a fabric (GA_ARENA_SHARE_FABRIC)");
    assert_refused(WITH(on_device, .flags = GA_ARENA_RDMA), GA_ERR_UNSUPPORTED,
                   "arena: device 0 cannot let network cards at mapped memory (GA_ARENA_RDMA)");
    assert_refused(WITH(on_device, .peers = peers, .peer_count = 1), GA_ERR_UNSUPPORTED,
                   "arena: device 1 cannot reach the memory of device 0");
    vmm_driver_stop();
    vmm_driver_start(&(vmm_driver_options){.no_vmm = true});
    assert_refused(on_device, GA_ERR_UNSUPPORTED,
                   "arena: device 0 cannot map memory piece by piece");
    assert_nothing_left();
}

/* The device reports support, but the driver refuses the call. */
Test(arena_faults, a_driver_that_refuses_late)
{
    vmm_driver_start(&(vmm_driver_options){.fabric = true});
    vmm_driver_fail("cuMemCreate", 1, CUDA_ERROR_NOT_PERMITTED);
    assert_refused(WITH(on_device, .flags = GA_ARENA_SHARE_FABRIC), GA_ERR_UNSUPPORTED,
                   "arena: the driver refuses memory that is shared as the flags (0x2) want: no "
                   "chunk of 2097152 bytes on device 0: cuMemCreate: CUDA_ERROR_NOT_PERMITTED "
                   "(says the stand-in)");
    vmm_driver_take(0, GIB); /* out of memory is no refusal */
    ga_arena *arena = open_with(WITH(on_device, .flags = GA_ARENA_SHARE_FABRIC));
    ga_arena_close(arena);
    assert_nothing_left();
}

/* ---- each call of the driver fails once --------------------------------------------------- */

typedef struct scene {
    ga_arena *arena, *other; /* other: is mapped behind it, or has a chunk to share */
    ga_arena_share share;
    bool closed;
} scene;

/* Something that is done to an arena. */
typedef struct operation {
    const char *name;
    ga_status (*run)(scene *s);
    uint64_t size;    /* backed before, in chunks of 2 MiB */
    uint64_t reserve; /* addresses before */
    uint32_t flags;
    bool behind; /* another arena is mapped behind it */
} operation;

static ga_status run_grow(scene *s)
{
    return ga_arena_grow(s->arena, ga_arena_size(s->arena) + 7 * MIB);
}

static ga_status run_shrink(scene *s)
{
    return ga_arena_shrink(s->arena, 2 * MIB);
}

static ga_status run_extend(scene *s)
{
    ga_status status = ga_arena_extend(s->arena, 16 * MIB);
    return status == GA_OK ? ga_arena_grow(s->arena, 14 * MIB) : status;
}

static ga_status run_move(scene *s)
{
    return ga_arena_move(s->arena, 16 * MIB);
}

static ga_status run_export(scene *s)
{
    ga_arena_share share;
    ga_status status = ga_arena_export(s->arena, 1, &share);
    if (status == GA_OK) {
        close(share.fd);
    }
    return status;
}

static ga_status run_import(scene *s)
{
    return ga_arena_import(s->arena, &s->share);
}

static ga_status run_close(scene *s)
{
    ga_arena_close(s->arena);
    s->closed = true;
    return GA_OK;
}

static const operation operations[] = {
    {"grow", run_grow, 4 * MIB, 32 * MIB, 0, false},
    {"grow exactly", run_grow, 4 * MIB, 32 * MIB, GA_ARENA_EXACT, false},
    {"shrink", run_shrink, 8 * MIB, 32 * MIB, 0, false},
    {"extend and grow", run_extend, 4 * MIB, 8 * MIB, 0, false},
    {"move", run_move, 8 * MIB, 8 * MIB, 0, true},
    {"export", run_export, 4 * MIB, 32 * MIB, GA_ARENA_SHARE_FD, false},
    {"import", run_import, 4 * MIB, 32 * MIB, GA_ARENA_SHARE_FD, false},
    {"close", run_close, 8 * MIB, 32 * MIB, 0, false},
};

static scene prepare(const operation *o, ga_arena_options options)
{
    scene s = {.share.fd = -1};
    options.reserve = o->reserve;
    options.flags = o->flags;
    options.chunk_max = 4 * MIB;
    s.arena = open_with(options);
    if (o->behind || o->flags & GA_ARENA_SHARE_FD) {
        s.other = open_with(options);
        assert_ok(ga_arena_grow(s.other, 2 * MIB));
    }
    if (o->flags & GA_ARENA_SHARE_FD) {
        assert_ok(ga_arena_export(s.other, 0, &s.share));
    }
    for (uint64_t size = 2 * MIB; size <= o->size; size += 2 * MIB) {
        assert_ok(ga_arena_grow(s.arena, size));
    }
    write_marks(s.arena, 0, ga_arena_size(s.arena));
    return s;
}

static void finish(scene *s)
{
    if (!s->closed) {
        ga_arena_close(s->arena);
    }
    ga_arena_close(s->other);
    if (s->share.fd >= 0) {
        close(s->share.fd);
    }
}

static void assert_same_counts(const char *name, uint64_t n, vmm_driver_counts was)
{
    vmm_driver_counts is = vmm_driver_count();
    cr_assert_eq(memcmp(&is, &was, sizeof is), 0,
                 "%s, call %" PRIu64 ": ranges %" PRIu64 " now %" PRIu64 ", handles %" PRIu64
                 " now %" PRIu64 ", mappings %" PRIu64 " now %" PRIu64,
                 name, n, was.ranges, is.ranges, was.handles, is.handles, was.mappings,
                 is.mappings);
}

static void assert_same_stats(const char *name, uint64_t n, const ga_arena_stats *was,
                              ga_arena *arena)
{
    ga_arena_stats is = stats_of(arena);
    cr_assert_eq(memcmp(&is, was, sizeof is), 0, "%s, call %" PRIu64 ": the statistics changed",
                 name, n);
}

/* Let the n-th call fail. Returns false if there was no n-th call. */
static bool fail_one(const operation *o, uint64_t n, CUresult error)
{
    vmm_driver_start(NULL);
    scene s = prepare(o, on_device);
    vmm_driver_counts was = vmm_driver_count();
    ga_arena_stats stats = stats_of(s.arena);
    char *base = base_of(s.arena);
    vmm_driver_fail(NULL, n, error);
    ga_status status = o->run(&s);
    bool failed = vmm_driver_has_failed();
    vmm_driver_fail(NULL, 0, error);
    if (status != GA_OK) {
        cr_assert(failed, "%s: %s", o->name, ga_error_text());
        cr_assert_eq(strncmp(ga_error_text(), "arena: ", 7), 0, "%s", ga_error_text());
        cr_assert_eq(base_of(s.arena), base);
    }
    if (status != GA_OK && o->run != run_extend) { /* which is two operations */
        assert_same_counts(o->name, n, was);
        assert_same_stats(o->name, n, &stats, s.arena);
    }
    if (!s.closed) {
        check_marks(s.arena, ga_arena_size(s.arena) < stats.backed ? 2 * MIB : stats.backed);
    }
    finish(&s);
    assert_nothing_left();
    return failed;
}

Test(arena_faults, every_call_of_the_driver_in_turn)
{
    static const CUresult errors[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_PERMITTED};
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
            uint64_t n = 1;
            while (fail_one(&operations[i], n, errors[e])) {
                n++;
            }
            cr_assert_gt(n, 2, "%s: no more than %" PRIu64 " calls", operations[i].name, n - 1);
        }
    }
}

static bool fail_open(uint64_t n, uint64_t more, CUresult error)
{
    static const int peers[] = {1};
    ga_arena *arena;
    ga_arena_options options =
        WITH(on_device, .flags = GA_ARENA_SHARE_FD, .peers = peers, .peer_count = 1);
    vmm_driver_start(&(vmm_driver_options){.devices = 2});
    vmm_driver_fail_many(NULL, n, more, error);
    ga_status status = ga_arena_open(&arena, &options);
    bool failed = vmm_recover();
    cr_assert_eq(status == GA_OK, arena != NULL);
    cr_assert(status == GA_OK || failed, "%s", ga_error_text());
    ga_arena_close(arena);
    assert_nothing_left();
    return failed;
}

Test(arena_faults, every_call_of_opening_in_turn)
{
    for (int i = 0; i < VMM_SOME_CALLS; i++) {
        uint64_t n = 1, more = vmm_more_calls[i];
        while (fail_open(n, more, CUDA_ERROR_NOT_PERMITTED) &&
               fail_open(n, more, CUDA_ERROR_OUT_OF_MEMORY)) {
            n++;
        }
        cr_assert_gt(n, 15, "only %" PRIu64 " calls", n - 1);
    }
}

/* An unmap that is refused permanently. Nothing is lost: unmapped memory is mapped again. */
static bool refuse_unmap(const operation *o, uint64_t n)
{
    vmm_driver_start(NULL);
    scene s = prepare(o, on_device);
    vmm_driver_counts was = vmm_driver_count();
    ga_arena_stats stats = stats_of(s.arena);
    vmm_driver_fail_many("cuMemUnmap", n, 1, CUDA_ERROR_NOT_PERMITTED);
    ga_status status = o->run(&s);
    bool failed = vmm_driver_has_failed();
    vmm_driver_fail(NULL, 0, CUDA_SUCCESS);
    cr_assert_eq(status == GA_OK, !failed, "%s, unmap %" PRIu64, o->name, n);
    if (failed) {
        assert_same_counts(o->name, n, was);
        assert_same_stats(o->name, n, &stats, s.arena);
        check_marks(s.arena, o->size);
    }
    finish(&s);
    assert_nothing_left();
    return failed;
}

Test(arena_faults, the_way_back)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        uint64_t n = 1;
        bool unmaps = operations[i].run == run_shrink || operations[i].run == run_move;
        while (unmaps && refuse_unmap(&operations[i], n)) {
            n++;
        }
        cr_assert(!unmaps || n > 2, "%s unmaps nothing", operations[i].name);
    }
}

/* Several calls in a row fail. If undoing fails, too, chunks may be lost, but the rest is sound: as
 * large as it says, mapped from the base on, with its contents. */
static bool fail_several(const operation *o, uint64_t n, uint64_t more)
{
    vmm_driver_start(NULL);
    scene s = prepare(o, on_device);
    uint64_t size = ga_arena_size(s.arena);
    vmm_driver_fail_many(NULL, n, more, CUDA_ERROR_NOT_PERMITTED);
    o->run(&s);
    bool failed = vmm_recover();
    if (!s.closed) {
        uint64_t left = ga_arena_size(s.arena);
        cr_assert(!left || vmm_driver_accessible(ga_arena_base(s.arena), left, 1),
                  "%s, calls %" PRIu64 " to %" PRIu64 ": %" PRIu64 " bytes are not all there",
                  o->name, n, n + more, left);
        check_marks(s.arena, left < size ? left : size);
        assert_ok(ga_arena_grow(s.arena, 2 * MIB));
    }
    finish(&s);
    assert_nothing_left();
    return failed;
}

Test(arena_faults, several_calls_in_a_row)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        for (uint64_t more = 1; more < 10; more++) {
            uint64_t n = 1;
            while (fail_several(&operations[i], n, more < 9 ? more : UINT64_MAX)) {
                n++;
            }
        }
    }
}

/* ---- each call of the kernel fails once --------------------------------------------------- */

static const ga_os_memory *os;
static uint64_t os_left;           /* calls until one fails; 0: no call fails */
static bool os_failed, os_refuses; /* refuses: all calls */
static uint64_t os_bytes;          /* of addresses that are mapped */

static bool fails_now(void)
{
    bool now = os_left == 1 || os_refuses;
    os_left -= os_left ? 1 : 0;
    os_failed = os_failed || now;
    errno = ENOMEM;
    return now;
}

static void *counted_mmap(void *hint, size_t size, int prot, int flags, int fd, off_t offset)
{
    void *got = fails_now() ? MAP_FAILED : os->mmap(hint, size, prot, flags, fd, offset);
    os_bytes += got != MAP_FAILED && !(flags & MAP_FIXED) ? size : 0;
    return got;
}

static int counted_munmap(void *start, size_t size)
{
    int failed = fails_now() ? -1 : os->munmap(start, size);
    os_bytes -= failed ? 0 : size;
    return failed;
}

static int counted_mprotect(void *start, size_t size, int prot)
{
    return fails_now() ? -1 : os->mprotect(start, size, prot);
}

static int counted_madvise(void *start, size_t size, int advice)
{
    return fails_now() ? -1 : os->madvise(start, size, advice);
}

static void *counted_mremap(void *start, size_t size, size_t new_size, int flags, void *to)
{
    return fails_now() ? MAP_FAILED : os->mremap(start, size, new_size, flags, to);
}

static const ga_os_memory counted = {counted_mmap, counted_munmap, counted_mprotect,
                                     counted_madvise, counted_mremap};

static void begin_counting(void)
{
    ga_os_memory_set(NULL);
    os = ga_os_memory_get();
    ga_os_memory_set(&counted);
    os_bytes = 0;
    os_left = 0;
    os_failed = false;
}

/* The kernel maps new memory below existing memory: behind it there is a hole where a mapping
 * was. */
static scene prepare_on_the_host(const operation *o)
{
    void *behind = mmap(NULL, 32 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    scene s = prepare(o, on_host);
    munmap(behind, 32 * MIB);
    return s;
}

static bool fail_one_on_the_host(const operation *o, uint64_t n)
{
    begin_counting();
    scene s = prepare_on_the_host(o);
    uint64_t bytes = os_bytes;
    ga_arena_stats stats = stats_of(s.arena);
    os_left = n;
    ga_status status = o->run(&s);
    os_left = 0;
    cr_assert(status == GA_OK || os_failed || status == GA_ERR_CANNOT_GROW, "%s: %s", o->name,
              ga_error_text());
    if (status != GA_OK && o->run != run_extend) {
        cr_assert_eq(os_bytes, bytes, "%s, call %" PRIu64, o->name, n);
        assert_same_stats(o->name, n, &stats, s.arena);
    }
    if (!s.closed) {
        check_marks(s.arena, ga_arena_size(s.arena) < stats.backed ? 2 * MIB : stats.backed);
    }
    finish(&s);
    cr_assert_eq(os_bytes, 0, "%s, call %" PRIu64 ": %" PRIu64 " bytes left", o->name, n, os_bytes);
    return os_failed;
}

Test(arena_faults, every_call_of_the_kernel_in_turn)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (operations[i].flags & GA_ARENA_SHARE_FD) {
            continue;
        }
        uint64_t n = 1;
        while (fail_one_on_the_host(&operations[i], n)) {
            n++;
        }
        cr_assert_gt(n, 1, "%s calls nothing", operations[i].name);
    }
    ga_os_memory_set(NULL);
}

/* Shared memory of the host has chunks, as a device's. An export calls the kernel elsewhere. */
Test(arena_faults, every_call_of_the_kernel_for_shared_memory)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        operation shared = operations[i];
        if (shared.run == run_export) {
            continue;
        }
        shared.flags |= GA_ARENA_SHARE_FD;
        uint64_t n = 1;
        while (fail_one_on_the_host(&shared, n)) {
            n++;
        }
        cr_assert_gt(n, 1, "%s calls nothing", shared.name);
    }
    ga_os_memory_set(NULL);
}

static bool fail_open_on_the_host(uint64_t n)
{
    ga_arena *arena;
    begin_counting();
    os_left = n;
    ga_status status = ga_arena_open(&arena, &WITH(on_host, .flags = GA_ARENA_HUGE_PAGES));
    os_left = 0;
    cr_assert_eq(status == GA_OK, arena != NULL);
    cr_assert(status == GA_OK || os_bytes == 0, "%" PRIu64 " bytes left", os_bytes);
    ga_arena_close(arena);
    cr_assert_eq(os_bytes, 0);
    return os_failed;
}

Test(arena_faults, opening_on_the_host)
{
    uint64_t n = 1;
    while (fail_open_on_the_host(n)) {
        n++;
    }
    cr_assert_gt(n, 2);
    ga_os_memory_set(NULL);
}

/* If the kernel refuses to unmap addresses, they are unmapped together with the next ones. */
Test(arena_faults, what_the_kernel_keeps_is_unmapped_later)
{
    begin_counting();
    ga_arena *arena = open_with(on_host);
    assert_ok(ga_arena_grow(arena, 2 * MIB));
    char *base = base_of(arena);
    os_refuses = true;
    ga_arena_close(arena);
    os_refuses = false;
    cr_assert_gt(os_bytes, 0);
    cr_assert_not(ga_reservations_contain(base), "nobody is given these addresses");
    arena = open_with(on_host);
    ga_arena_close(arena);
    cr_assert_eq(os_bytes, 0, "%" PRIu64 " bytes left", os_bytes);
    ga_os_memory_set(NULL);
}
