/* SPDX-License-Identifier: MIT
 *
 * Arenas, on the host and on a device whose memory is the host's: growth, limits, sharing, moving.
 */
#include <gpualloc/arena.h>

#include "support/expect.h"
#include "support/sanitized.h"
#include "support/vmm_driver.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static const ga_arena_options on_device = {.options_size = sizeof(ga_arena_options),
                                           .place = GA_PLACE_DEVICE};
static const ga_arena_options on_host = {.options_size = sizeof(ga_arena_options),
                                         .place = GA_PLACE_HOST};

static ga_arena *open_with(ga_arena_options options)
{
    ga_arena *arena;
    assert_ok(ga_arena_open(&arena, &options));
    return arena;
}

static char *base_of(const ga_arena *arena)
{
    return ga_arena_base(arena);
}

static ga_arena_stats stats_of(ga_arena *arena)
{
    ga_arena_stats stats;
    ga_arena_get_stats(arena, &stats);
    return stats;
}

/* A word in each 64 KiB, which says where it is. */
static void write_marks(ga_arena *arena, uint64_t from, uint64_t to)
{
    for (uint64_t at = from; at < to; at += 64 << 10) {
        memcpy(base_of(arena) + at, &at, sizeof at);
    }
}

static void check_marks(ga_arena *arena, uint64_t to)
{
    for (uint64_t at = 0; at < to; at += 64 << 10) {
        cr_assert_eq(memcmp(base_of(arena) + at, &at, sizeof at), 0, "at %" PRIu64, at);
    }
}

static void assert_nothing_left(void)
{
    vmm_driver_counts left = vmm_driver_count();
    cr_assert_eq(left.ranges, 0, "%" PRIu64 " ranges", left.ranges);
    cr_assert_eq(left.mappings, 0, "%" PRIu64 " mappings", left.mappings);
    cr_assert_eq(left.handles, 0, "%" PRIu64 " handles", left.handles);
    cr_assert_eq(left.chunks, 0, "%" PRIu64 " chunks", left.chunks);
    vmm_driver_stop();
}

/* ---- growing -------------------------------------------------------------------------------- */

static void grow_by_doubling(ga_arena *arena, uint64_t granule)
{
    char *base = base_of(arena);
    uint64_t size = 0;
    cr_assert_eq(ga_arena_size(arena), 0);
    cr_assert_eq(stats_of(arena).granule, granule);
    for (uint64_t wanted = 1; wanted <= 64 * MIB; wanted *= 2) {
        assert_ok(ga_arena_grow(arena, wanted));
        cr_assert_geq(ga_arena_size(arena), wanted);
        cr_assert_eq(ga_arena_size(arena) % granule, 0);
        write_marks(arena, size, ga_arena_size(arena));
        size = ga_arena_size(arena);
        check_marks(arena, size);
        cr_assert_eq(base_of(arena), base);
    }
    cr_assert_leq(size, 128 * MIB);
    assert_ok(ga_arena_grow(arena, 1));
    cr_assert_eq(ga_arena_size(arena), size, "what is backed stays");
}

Test(arena, grows_on_a_device)
{
    vmm_driver_start(NULL);
    ga_arena *arena = open_with(on_device);
    cr_assert_eq(ga_arena_reserved(arena), 1024 * GIB);
    grow_by_doubling(arena, 2 * MIB);
    ga_arena_stats stats = stats_of(arena);
    cr_assert_eq(stats.chunks, 6, "2, 2, 4, 8, 16 and 32 MiB, not %" PRIu64, stats.chunks);
    cr_assert_eq(stats.growths, 6);
    cr_assert_eq(stats.backed, 64 * MIB);
    cr_assert_eq(stats.peak_backed, 64 * MIB);
    cr_assert_gt(stats.grow_ns_p50, 0);
    cr_assert_leq(stats.grow_ns_p50, stats.grow_ns_p99);
    cr_assert_leq(stats.grow_ns_p999, stats.grow_ns_most);
    vmm_driver_counts counts = vmm_driver_count();
    cr_assert_eq(counts.chunk_bytes, 64 * MIB);
    cr_assert_eq(counts.mapped_bytes, 64 * MIB);
    ga_arena_close(arena);
    assert_nothing_left();
}

Test(arena, grows_on_the_host)
{
    ga_arena *arena = open_with(on_host);
    cr_assert_eq(ga_arena_reserved(arena), 1024 * GIB);
    grow_by_doubling(arena, (uint64_t)sysconf(_SC_PAGESIZE));
    cr_assert_eq(stats_of(arena).chunks, 1);
    ga_arena_close(arena);
}

Test(arena, huge_pages_have_large_granules)
{
    ga_arena_options options = on_host;
    options.flags = GA_ARENA_HUGE_PAGES;
    ga_arena *arena = open_with(options);
    cr_assert_eq((uintptr_t)ga_arena_base(arena) % (2 * MIB), 0);
    grow_by_doubling(arena, 2 * MIB);
    ga_arena_close(arena);
}

Test(arena, fresh_host_memory_is_zeros)
{
    ga_arena *arena = open_with(on_host);
    for (int round = 0; round < 2; round++) {
        assert_ok(ga_arena_grow(arena, MIB));
        for (uint64_t i = 0; i < MIB; i++) {
            cr_assert_eq(base_of(arena)[i], 0, "round %d", round);
        }
        memset(ga_arena_base(arena), 1, MIB);
        assert_ok(ga_arena_shrink(arena, 0));
        cr_assert_eq(ga_arena_size(arena), 0);
    }
    ga_arena_close(arena);
}

Test(arena, exact_growth_takes_what_is_missing)
{
    vmm_driver_start(NULL);
    ga_arena_options options = on_device;
    options.flags = GA_ARENA_EXACT;
    ga_arena *arena = open_with(options);
    assert_ok(ga_arena_grow(arena, 20 * MIB));
    cr_assert_eq(ga_arena_size(arena), 20 * MIB);
    assert_ok(ga_arena_grow(arena, 20 * MIB + 1));
    cr_assert_eq(ga_arena_size(arena), 22 * MIB);
    cr_assert_eq(stats_of(arena).chunks, 2);
    ga_arena_close(arena);
    assert_nothing_left();
}

Test(arena, chunks_have_the_sizes_asked_for)
{
    vmm_driver_start(NULL);
    ga_arena_options options = on_device;
    options.chunk = 3 * MIB; /* 4, in granules */
    options.chunk_most = 16 * MIB;
    ga_arena *arena = open_with(options);
    assert_ok(ga_arena_grow(arena, 1));
    cr_assert_eq(ga_arena_size(arena), 4 * MIB);
    assert_ok(ga_arena_grow(arena, 50 * MIB));
    cr_assert_eq(ga_arena_size(arena), 50 * MIB);
    cr_assert_eq(stats_of(arena).chunks, 4, "4, 16, 16 and 14 MiB");
    assert_ok(ga_arena_grow(arena, 51 * MIB));
    cr_assert_eq(ga_arena_size(arena), 66 * MIB, "no more than chunk_most ahead");
    ga_arena_close(arena);
    assert_nothing_left();
}

Test(arena, several_on_one_device)
{
    vmm_driver_start(NULL);
    ga_arena_options options = on_device;
    options.reserve = GIB;
    ga_arena *arenas[8];
    for (int i = 0; i < 8; i++) {
        arenas[i] = open_with(options);
        assert_ok(ga_arena_grow(arenas[i], 4 * MIB));
        memset(ga_arena_base(arenas[i]), i, 4 * MIB);
    }
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(base_of(arenas[i])[4 * MIB - 1], i);
        ga_arena_close(arenas[i]);
    }
    assert_nothing_left();
}

static void *grow_to_the_end(void *argument)
{
    ga_arena *arena = argument;
    for (uint64_t size = 2 * MIB; size <= 64 * MIB; size += 2 * MIB) {
        cr_assert_eq(ga_arena_grow(arena, size), GA_OK);
        uint64_t there = ga_arena_size(arena);
        cr_assert_geq(there, size);
        __atomic_fetch_add((char *)ga_arena_base(arena) + there - 1, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

Test(arena, grown_by_several_threads)
{
    pthread_t threads[4];
    vmm_driver_start(NULL);
    ga_arena_options options = on_device;
    options.flags = GA_ARENA_EXACT;
    ga_arena *arena = open_with(options);
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, grow_to_the_end, arena);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    cr_assert_eq(ga_arena_size(arena), 64 * MIB);
    ga_arena_close(arena);
    assert_nothing_left();
}

/* ---- shrinking ------------------------------------------------------------------------------ */

Test(arena, shrinks_by_whole_chunks)
{
    vmm_driver_start(NULL);
    ga_arena *arena = open_with(on_device);
    for (uint64_t size = 2 * MIB; size <= 32 * MIB; size *= 2) {
        assert_ok(ga_arena_grow(arena, size)); /* chunks end at 2, 4, 8, 16 and 32 */
    }
    write_marks(arena, 0, 32 * MIB);
    assert_ok(ga_arena_shrink(arena, 17 * MIB));
    cr_assert_eq(ga_arena_size(arena), 32 * MIB);
    cr_assert_eq(stats_of(arena).shrinks, 0);
    assert_ok(ga_arena_shrink(arena, 4 * MIB + 1));
    cr_assert_eq(ga_arena_size(arena), 8 * MIB);
    cr_assert_eq(vmm_driver_count().chunk_bytes, 8 * MIB);
    check_marks(arena, 8 * MIB);
    assert_ok(ga_arena_grow(arena, 10 * MIB));
    cr_assert_eq(ga_arena_size(arena), 16 * MIB);
    check_marks(arena, 8 * MIB);
    assert_ok(ga_arena_shrink(arena, UINT64_MAX));
    assert_ok(ga_arena_shrink(arena, 0));
    assert_ok(ga_arena_shrink(arena, 0));
    cr_assert_eq(ga_arena_size(arena), 0);
    ga_arena_stats stats = stats_of(arena);
    cr_assert_eq(stats.shrinks, 2);
    cr_assert_eq(stats.peak_backed, 32 * MIB);
    ga_arena_close(arena);
    assert_nothing_left();
}

Test(arena, shrinks_by_pages_on_the_host)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    ga_arena *arena = open_with(on_host);
    assert_ok(ga_arena_grow(arena, 32 * MIB));
    write_marks(arena, 0, 32 * MIB);
    assert_ok(ga_arena_shrink(arena, 5 * MIB + 1));
    cr_assert_eq(ga_arena_size(arena), 5 * MIB + page);
    check_marks(arena, 5 * MIB);
    assert_ok(ga_arena_grow(arena, 6 * MIB));
    cr_assert_eq(base_of(arena)[6 * MIB - 64], 0);
    ga_arena_close(arena);
}

Test(arena, above_its_size_is_a_fault, .signal = SIGSEGV)
{
    ga_arena *arena = open_with(on_host);
    assert_ok(ga_arena_grow(arena, MIB));
    memset(ga_arena_base(arena), 1, MIB);
    assert_ok(ga_arena_shrink(arena, 64 << 10));
    *(volatile char *)(base_of(arena) + (64 << 10)) = 1;
}

/* ---- limits ----------------------------------------------------------------------------------- */

Test(arena, the_limit_holds_and_is_used_up)
{
    vmm_driver_start(NULL);
    ga_arena_options options = on_device;
    options.limit = 11 * MIB;
    ga_arena *arena = open_with(options);
    cr_assert_eq(ga_arena_reserved(arena), 12 * MIB);
    assert_ok(ga_arena_grow(arena, 6 * MIB));
    assert_fails(ga_arena_grow(arena, 10 * MIB + 1), GA_ERR_MEMORY,
                 "arena: 10485761 bytes, in whole chunks of 2097152, are above the limit of "
                 "11534336");
    cr_assert_eq(ga_arena_size(arena), 6 * MIB);
    assert_ok(ga_arena_grow(arena, 7 * MIB));
    cr_assert_eq(ga_arena_size(arena), 10 * MIB, "ahead, up to the limit");
    assert_fails(ga_arena_grow(arena, 13 * MIB), GA_ERR_NO_ROOM,
                 "arena: 13631488 bytes are above the 12582912 that are reserved");
    assert_fails_with(ga_arena_grow(arena, UINT64_MAX), GA_ERR_NO_ROOM, "arena: 1844674407370955");
    ga_arena_close(arena);
    assert_nothing_left();
}

Test(arena, takes_less_ahead_where_memory_is_short)
{
    vmm_driver_start(&(vmm_driver_options){.memory = 20 * MIB});
    ga_arena *arena = open_with(on_device);
    assert_ok(ga_arena_grow(arena, 12 * MIB));
    write_marks(arena, 0, 12 * MIB);
    assert_ok(ga_arena_grow(arena, 13 * MIB)); /* another 12 are not there */
    cr_assert_eq(ga_arena_size(arena), 14 * MIB);
    assert_fails_with(ga_arena_grow(arena, 22 * MIB), GA_ERR_MEMORY,
                      "arena: no chunk of 8388608 bytes on device 0: cuMemCreate: "
                      "CUDA_ERROR_OUT_OF_MEMORY");
    cr_assert_eq(ga_arena_size(arena), 14 * MIB);
    cr_assert_eq(vmm_driver_count().chunk_bytes, 14 * MIB);
    check_marks(arena, 12 * MIB);
    vmm_driver_take(0, 6 * MIB);
    assert_fails_with(ga_arena_grow(arena, 16 * MIB), GA_ERR_MEMORY, "arena: no chunk");
    vmm_driver_take(0, 0);
    assert_ok(ga_arena_grow(arena, 20 * MIB));
    ga_arena_close(arena);
    assert_nothing_left();
}

Test(arena, memory_ends_in_the_middle_of_a_growth)
{
    vmm_driver_start(&(vmm_driver_options){.memory = 20 * MIB});
    ga_arena_options options = on_device;
    options.chunk_most = 4 * MIB;
    ga_arena *arena = open_with(options);
    assert_fails_with(ga_arena_grow(arena, 22 * MIB), GA_ERR_MEMORY, "arena: no chunk");
    cr_assert_geq(vmm_driver_calls("cuMemMap"), 5);
    cr_assert_eq(vmm_driver_count().handles, 0);
    cr_assert_eq(ga_arena_size(arena), 0);
    assert_ok(ga_arena_grow(arena, 20 * MIB));
    ga_arena_close(arena);
    assert_nothing_left();
}

Test(arena, the_host_refuses_what_it_cannot_promise, .disabled = UNDER_ASAN)
{
    ga_arena_options options = on_host;
    options.reserve = 8192 * GIB;
    options.chunk_most = 1;
    ga_arena *arena = open_with(options);
    ga_status status = ga_arena_grow(arena, 4096 * GIB);
    cr_assert(status == GA_ERR_MEMORY || status == GA_OK, "where overcommit is `always`");
    cr_assert_eq(ga_arena_size(arena), status == GA_OK ? 4096 * GIB : 0);
    ga_arena_close(arena);
}

Test(arena, fewer_addresses_where_there_are_fewer)
{
    vmm_driver_start(&(vmm_driver_options){.addresses = 5 * GIB});
    ga_arena *arena = open_with(on_device);
    cr_assert_eq(ga_arena_reserved(arena), 4 * GIB);
    ga_arena *another = open_with(on_device);
    cr_assert_eq(ga_arena_reserved(another), GIB);
    ga_arena *none;
    assert_fails_with(ga_arena_open(&none, &on_device), GA_ERR_MEMORY,
                      "arena: no 1073741824 bytes of addresses on device 0: cuMemAddressReserve");
    cr_assert_null(none);
    ga_arena_close(another);
    ga_arena_options options = on_device;
    options.reserve = 2 * GIB; /* asked for, so all or nothing */
    assert_fails_with(ga_arena_open(&none, &options), GA_ERR_MEMORY, "arena: no 2147483648 bytes");
    ga_arena_close(arena);
    assert_nothing_left();
}

/* ---- more addresses --------------------------------------------------------------------------- */

Test(arena, extends_in_place)
{
    vmm_driver_start(NULL);
    ga_arena_options options = on_device;
    options.reserve = 4 * MIB;
    ga_arena *arena = open_with(options);
    char *base = base_of(arena);
    assert_ok(ga_arena_grow(arena, 2 * MIB));
    assert_ok(ga_arena_extend(arena, 3 * MIB)); /* less than there is */
    cr_assert_eq(ga_arena_reserved(arena), 4 * MIB);
    assert_ok(ga_arena_extend(arena, 9 * MIB));
    cr_assert_eq(ga_arena_reserved(arena), 10 * MIB);
    cr_assert_eq(vmm_driver_count().ranges, 2);
    assert_ok(ga_arena_grow(arena, 10 * MIB)); /* a chunk never lies in two reservations */
    cr_assert_eq(stats_of(arena).chunks, 3);
    cr_assert_eq(base_of(arena), base);
    write_marks(arena, 0, 10 * MIB);
    check_marks(arena, 10 * MIB);
    assert_ok(ga_arena_shrink(arena, 2 * MIB));
    cr_assert_eq(ga_arena_size(arena), 2 * MIB);
    ga_arena_close(arena);
    assert_nothing_left();
}

Test(arena, moves_where_others_stand_behind)
{
    vmm_driver_start(NULL);
    ga_arena_options options = on_device;
    options.reserve = 4 * MIB;
    ga_arena *arena = open_with(options);
    ga_arena *behind = open_with(options);
    assert_ok(ga_arena_grow(arena, 2 * MIB));
    assert_ok(ga_arena_grow(arena, 4 * MIB));
    write_marks(arena, 0, 4 * MIB);
    char *base = base_of(arena);
    cr_assert_eq(base_of(behind), base + 4 * MIB);
    assert_fails_with(ga_arena_extend(arena, 8 * MIB), GA_ERR_NO_ROOM,
                      "arena: something else stands at");
    cr_assert_eq(vmm_driver_count().ranges, 2);
    cr_assert_eq(ga_arena_reserved(arena), 4 * MIB);
    assert_ok(ga_arena_move(arena, 8 * MIB));
    cr_assert_neq(base_of(arena), base);
    cr_assert_eq(ga_arena_reserved(arena), 8 * MIB);
    cr_assert_eq(stats_of(arena).moves, 1);
    cr_assert_eq(vmm_driver_count().ranges, 2, "the old range is given back");
    cr_assert_eq(vmm_driver_count().chunk_bytes, 4 * MIB, "nothing is copied");
    check_marks(arena, 4 * MIB);
    assert_ok(ga_arena_move(arena, 16 * MIB)); /* there is room behind: the base stays */
    cr_assert_eq(stats_of(arena).moves, 1);
    assert_ok(ga_arena_grow(arena, 16 * MIB));
    check_marks(arena, 4 * MIB);
    ga_arena_close(arena);
    ga_arena_close(behind);
    assert_nothing_left();
}

Test(arena, moves_on_the_host)
{
    ga_arena_options options = on_host;
    options.reserve = 4 * MIB;
    ga_arena *arena = open_with(options);
    assert_ok(ga_arena_grow(arena, 4 * MIB));
    write_marks(arena, 0, 4 * MIB);
    char *base = base_of(arena);
    assert_ok(ga_arena_move(arena, 64 * GIB)); /* wherever that is */
    cr_assert_eq(ga_arena_reserved(arena), 64 * GIB);
    cr_assert_eq(base_of(arena) == base, stats_of(arena).moves == 0);
    check_marks(arena, 4 * MIB);
    assert_ok(ga_arena_grow(arena, 6 * MIB));
    write_marks(arena, 0, 6 * MIB);
    ga_arena_close(arena);
}

/* The kernel keeps apart, from a fork on, what was touched before it and what is touched later. */
static void fork_and_wait(void)
{
    pid_t child = fork();
    if (!child) {
        _exit(0);
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
}

Test(arena, moves_on_the_host_in_pieces)
{
    ga_arena_options options = on_host;
    options.reserve = 16 * MIB;
    options.flags = GA_ARENA_EXACT;
    ga_arena *arena = open_with(options);
    ga_arena_options block = on_host;
    block.reserve = MIB;
    for (uint64_t size = MIB; size <= 16 * MIB; size += MIB) {
        assert_ok(ga_arena_grow(arena, size));
        write_marks(arena, size - MIB, size);
        fork_and_wait();
    }
    ga_arena *others[64]; /* one of them may get the addresses behind */
    for (int i = 0; i < 64; i++) {
        others[i] = open_with(block);
    }
    assert_ok(ga_arena_move(arena, 32 * GIB));
    check_marks(arena, 16 * MIB);
    for (int i = 0; i < 64; i++) {
        ga_arena_close(others[i]);
    }
    ga_arena_close(arena);
}

/* ---- refusals --------------------------------------------------------------------------------- */

static void assert_refused(ga_arena_options options, ga_status wanted, const char *sentence)
{
    ga_arena *arena = (ga_arena *)&options;
    assert_fails(ga_arena_open(&arena, &options), wanted, sentence);
    cr_assert_null(arena);
}

#define WITH(options, ...)                                                                         \
    ((ga_arena_options){                                                                           \
        .options_size = sizeof(ga_arena_options), .place = (options).place, __VA_ARGS__})

Test(arena, options_that_cannot_be)
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
    assert_refused(WITH(on_host, .chunk = 2 * MIB, .chunk_most = MIB), GA_ERR_ARGUMENT,
                   "arena: chunk: 2097152 bytes are above chunk_most, 1048576");
    assert_refused(WITH(on_host, .chunk = 2 * MIB, .limit = MIB), GA_ERR_ARGUMENT,
                   "arena: chunk: 2097152 bytes are above the limit, 1048576");
    assert_refused(WITH(on_device, .limit = MIB), GA_ERR_ARGUMENT,
                   "arena: limit: 1048576 bytes are below the smallest chunk, 2097152");
    assert_refused(WITH(on_device, .flags = GA_ARENA_HUGE_PAGES), GA_ERR_UNSUPPORTED,
                   "arena: GA_ARENA_HUGE_PAGES is for the host");
    assert_refused(WITH(on_host, .peers = nobody, .peer_count = 1), GA_ERR_UNSUPPORTED,
                   "arena: memory of the host cannot be shared by handles, nor given to devices: "
                   "expected no peers and none of GA_ARENA_SHARE_* and GA_ARENA_RDMA");
    assert_refused(WITH(on_device, .peer_count = 1), GA_ERR_ARGUMENT,
                   "arena: peers: expected up to 63, got 1 at (nil)");
    assert_refused(WITH(on_device, .device = 7), GA_ERR_DEVICE,
                   "arena: no CUDA device 7: the driver has 1, counted from 0");
    assert_refused(WITH(on_device, .device = -1), GA_ERR_DEVICE,
                   "arena: no CUDA device -1: the driver has 1, counted from 0");
    assert_nothing_left();
}

Test(arena, calls_without_an_arena)
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

Test(arena, devices_that_cannot)
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

/* What the device says it can and the driver refuses when it comes to it. */
Test(arena, a_driver_that_refuses_late)
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

/* ---- several devices, sharing ----------------------------------------------------------------- */

Test(arena, peers_have_access)
{
    static const int peers[] = {2, 0, 2};
    vmm_driver_start(&(vmm_driver_options){.devices = 3});
    ga_arena *arena = open_with(WITH(on_device, .peers = peers, .peer_count = 3));
    assert_ok(ga_arena_grow(arena, 4 * MIB));
    cr_assert(vmm_driver_accessible(ga_arena_base(arena), 4 * MIB, 1 | 4));
    cr_assert(!vmm_driver_accessible(ga_arena_base(arena), 4 * MIB, 2));
    assert_ok(ga_arena_move(arena, 2048 * GIB));
    cr_assert(vmm_driver_accessible(ga_arena_base(arena), 4 * MIB, 1 | 4));
    ga_arena_close(arena);
    assert_nothing_left();
}

Test(arena, chunks_are_shared)
{
    ga_arena_share share;
    vmm_driver_start(NULL);
    ga_arena *ours = open_with(WITH(on_device, .flags = GA_ARENA_SHARE_FD));
    ga_arena *theirs =
        open_with(WITH(on_device, .flags = GA_ARENA_SHARE_FD, .limit = 6 * MIB, .reserve = GIB));
    assert_fails(ga_arena_export(ours, 0, &share), GA_ERR_ARGUMENT,
                 "arena: no chunk 0: there are 0, counted from 0");
    assert_ok(ga_arena_grow(ours, 2 * MIB));
    assert_ok(ga_arena_grow(ours, 3 * MIB));
    for (uint64_t i = 0; i < 2; i++) {
        assert_ok(ga_arena_export(ours, i, &share));
        cr_assert_eq(share.offset, 2 * i * MIB);
        assert_ok(ga_arena_import(theirs, &share));
        close(share.fd);
    }
    write_marks(ours, 0, 4 * MIB);
    check_marks(theirs, 4 * MIB);
    share.size = 3 * MIB;
    assert_fails_with(ga_arena_import(theirs, &share), GA_ERR_ARGUMENT,
                      "arena: a chunk of 3145728 bytes: expected a multiple of 2097152");
    share.size = 4 * MIB;
    assert_fails_with(ga_arena_import(theirs, &share), GA_ERR_MEMORY,
                      "arena: a chunk of 4194304 bytes behind 4194304 is above the limit");
    share.size = 2 * MIB; /* and the file is closed */
    assert_fails_with(ga_arena_import(theirs, &share), GA_ERR_DEVICE,
                      "arena: cuMemImportFromShareableHandle: CUDA_ERROR_INVALID_VALUE");
    cr_assert_eq(ga_arena_size(theirs), 4 * MIB);
    ga_arena_close(ours);
    check_marks(theirs, 4 * MIB);
    ga_arena_close(theirs);
    assert_nothing_left();
}

Test(arena, shared_over_a_fabric)
{
    ga_arena_share share;
    vmm_driver_start(&(vmm_driver_options){.fabric = true, .no_fd = true});
    ga_arena *ours = open_with(WITH(on_device, .flags = GA_ARENA_SHARE_FABRIC));
    ga_arena *theirs = open_with(WITH(on_device, .flags = GA_ARENA_SHARE_FABRIC));
    assert_ok(ga_arena_grow(ours, 2 * MIB));
    assert_ok(ga_arena_export(ours, 0, &share));
    cr_assert_eq(share.fd, -1);
    assert_ok(ga_arena_import(theirs, &share));
    write_marks(ours, 0, 2 * MIB);
    check_marks(theirs, 2 * MIB);
    ga_arena_close(ours);
    ga_arena_close(theirs);
    assert_nothing_left();
}

Test(arena, shares_must_be_allowed_and_fit)
{
    ga_arena_share share = {.size = 2 * MIB, .fd = 0};
    vmm_driver_start(NULL);
    ga_arena *arena = open_with(WITH(on_device, .reserve = 4 * MIB));
    assert_ok(ga_arena_grow(arena, 2 * MIB));
    assert_fails(ga_arena_export(arena, 0, &share), GA_ERR_UNSUPPORTED,
                 "arena: it was made without GA_ARENA_SHARE_FD and GA_ARENA_SHARE_FABRIC");
    cr_assert_eq(ga_arena_import(arena, &share), GA_ERR_UNSUPPORTED);
    ga_arena_close(arena);
    arena = open_with(WITH(on_device, .reserve = 4 * MIB, .flags = GA_ARENA_SHARE_FD));
    assert_ok(ga_arena_extend(arena, 8 * MIB));
    share.size = 6 * MIB;
    assert_fails(ga_arena_import(arena, &share), GA_ERR_NO_ROOM,
                 "arena: a chunk of 6291456 bytes does not fit behind 0 in one reservation");
    ga_arena_close(arena);
    assert_nothing_left();
}

/* In the child: the parent's arena can be closed, and touches nothing; a driver of the child's own
 * takes the chunk in. */
static int in_the_child(ga_arena *arena, const ga_arena_share *share)
{
    uint64_t calls = vmm_driver_calls(NULL);
    if (ga_arena_grow(arena, 8 * MIB) != GA_ERR_DEVICE || !strstr(ga_error_text(), "fork()")) {
        return 1;
    }
    ga_arena_close(arena);
    if (vmm_driver_calls(NULL) != calls) {
        return 2;
    }
    vmm_driver_start(NULL);
    ga_arena *own = open_with(WITH(on_device, .flags = GA_ARENA_SHARE_FD));
    if (ga_arena_import(own, share) != GA_OK) {
        return 3;
    }
    strcpy(ga_arena_base(own), "from the child");
    ga_arena_close(own);
    return 0;
}

Test(arena, a_child_takes_a_chunk)
{
    ga_arena_share share;
    int status = -1;
    vmm_driver_start(NULL);
    ga_arena *arena = open_with(WITH(on_device, .flags = GA_ARENA_SHARE_FD));
    assert_ok(ga_arena_grow(arena, 2 * MIB));
    assert_ok(ga_arena_export(arena, 0, &share));
    pid_t child = fork();
    if (!child) {
        _exit(in_the_child(arena, &share));
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "wait status %x", (unsigned)status);
    cr_assert_str_eq(ga_arena_base(arena), "from the child");
    close(share.fd);
    ga_arena_close(arena);
    assert_nothing_left();
}

/* ---- ends ------------------------------------------------------------------------------------- */

Test(arena, a_context_that_is_destroyed_first)
{
    vmm_driver_start(NULL);
    ga_arena *arena = open_with(on_device);
    assert_ok(ga_arena_grow(arena, 4 * MIB));
    vmm_driver_destroy_context(0);
    assert_fails_with(ga_arena_grow(arena, 8 * MIB), GA_ERR_DEVICE,
                      "arena: cuCtxPushCurrent: CUDA_ERROR_CONTEXT_IS_DESTROYED");
    cr_assert_eq(ga_arena_size(arena), 4 * MIB);
    ga_arena_close(arena);
    vmm_driver_stop();
}

Test(arena, a_driver_that_has_shut_down)
{
    vmm_driver_start(NULL);
    ga_arena *arena = open_with(on_device);
    assert_ok(ga_arena_grow(arena, 4 * MIB));
    vmm_driver_shut_down();
    ga_arena_close(arena);
    vmm_driver_stop();
}

/* As Criterion's children are forked, this runs in a program that has one thread. */
Test(arena, a_forked_child_has_a_host_arena_of_its_own)
{
    int status = -1;
    ga_arena *arena = open_with(on_host);
    assert_ok(ga_arena_grow(arena, MIB));
    strcpy(ga_arena_base(arena), "parent");
    pid_t child = fork();
    if (!child) {
        bool good = ga_arena_grow(arena, 2 * MIB) == GA_OK;
        strcpy(ga_arena_base(arena), "child");
        ga_arena_close(arena);
        _exit(good ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_str_eq(ga_arena_base(arena), "parent");
    cr_assert_eq(ga_arena_size(arena), MIB);
    ga_arena_close(arena);
}
