/* SPDX-License-Identifier: MIT
 *
 * Arenas, on the host and on a device made of host memory: growth, limits, moving.
 */
#include "support/arena_scene.h"
#include "support/readable.h"
#include "support/sanitized.h"

#include "platform/machine.h"
#include "platform/os_memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- growing ----------------------------------------------------------------------------- */

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
    cr_assert_leq(stats.grow_ns_p999, stats.grow_ns_max);
    cr_assert_geq(stats.grow_ns_sum, stats.grow_ns_max);
    cr_assert_leq(stats.grow_ns_sum, 6 * stats.grow_ns_max);
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
    options.chunk_max = 16 * MIB;
    ga_arena *arena = open_with(options);
    assert_ok(ga_arena_grow(arena, 1));
    cr_assert_eq(ga_arena_size(arena), 4 * MIB);
    assert_ok(ga_arena_grow(arena, 50 * MIB));
    cr_assert_eq(ga_arena_size(arena), 50 * MIB);
    cr_assert_eq(stats_of(arena).chunks, 4, "4, 16, 16 and 14 MiB");
    assert_ok(ga_arena_grow(arena, 51 * MIB));
    cr_assert_eq(ga_arena_size(arena), 66 * MIB, "no more than chunk_max ahead");
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

/* ---- shrinking --------------------------------------------------------------------------- */

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

Test(arena, nothing_is_behind_its_size)
{
    ga_arena *arena = open_with(on_host);
    assert_ok(ga_arena_grow(arena, MIB));
    uint64_t size = ga_arena_size(arena);
    cr_assert(is_readable(base_of(arena) + size - 1));
    cr_assert(!is_readable(base_of(arena) + size));
    assert_ok(ga_arena_shrink(arena, 64 << 10));
    cr_assert(is_readable(base_of(arena) + (64 << 10) - 1));
    cr_assert(!is_readable(base_of(arena) + (64 << 10)));
    ga_arena_close(arena);
}

/* ---- limits ------------------------------------------------------------------------------ */

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
    assert_fails(ga_arena_grow(arena, 13 * MIB), GA_ERR_CANNOT_GROW,
                 "arena: 13631488 bytes are above the 12582912 that are reserved");
    assert_fails_with(ga_arena_grow(arena, UINT64_MAX), GA_ERR_CANNOT_GROW,
                      "arena: 1844674407370955");
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
    options.chunk_max = 4 * MIB;
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
    options.chunk_max = 1;
    ga_arena *arena = open_with(options);
    ga_status status = ga_arena_grow(arena, 4096 * GIB);
    cr_assert(status == GA_ERR_MEMORY || status == GA_OK, "where overcommit is `always`");
    cr_assert_eq(ga_arena_size(arena), status == GA_OK ? 4096 * GIB : 0);
    ga_arena_close(arena);
}

/* The kernel grants each growth, because it checks each growth alone. */
Test(arena, sizes_that_the_machine_cannot_have)
{
    uint64_t total = ga_machine_memory_total();
    char sentence[128];
    if (total > 64 * 1024 * GIB || total < 4 * GIB) {
        cr_skip_test("the kernel always overcommits, or this machine is small");
    }
    ga_arena *arena = open_with(WITH(on_host, .reserve = 2 * total, .chunk_max = 2 * total));
    assert_ok(ga_arena_grow(arena, 2 * GIB));
    cr_assert_leq(ga_arena_size(arena), total, "ahead");
    uint64_t size = ga_arena_size(arena);
    snprintf(sentence, sizeof sentence,
             "arena: %" PRIu64 " bytes: expected at most %" PRIu64
             ", this machine's memory and swap",
             total + size - GIB, total);
    assert_fails(ga_arena_grow(arena, total + size - GIB), GA_ERR_MEMORY, sentence);
    cr_assert_eq(ga_arena_size(arena), size);
    assert_fails_with(ga_arena_grow(arena, UINT64_MAX), GA_ERR_CANNOT_GROW,
                      "arena: 1844674407370955");
    ga_arena_close(arena);
}

Test(arena, grows_ahead_as_far_as_there_is_memory, .disabled = UNDER_ASAN)
{
    uint64_t total = ga_machine_memory_total();
    if (total > 64 * 1024 * GIB || total < 4 * GIB) {
        cr_skip_test("the kernel always overcommits, or this machine is small");
    }
    ga_arena *arena = open_with(WITH(on_host, .reserve = 2 * total, .chunk_max = 2 * total));
    assert_ok(ga_arena_grow(arena, total / 8 * 5));
    assert_ok(ga_arena_grow(arena, total / 8 * 5 + 8192));
    cr_assert_leq(ga_arena_size(arena), total);
    ga_arena_close(arena);
}

/* Without making chunks for as long as there is memory, which other processes would miss. */
Test(arena, sizes_that_the_device_cannot_have)
{
    vmm_driver_start(&(vmm_driver_options){.memory = 2 * GIB});
    ga_arena *arena = open_with(on_device);
    assert_ok(ga_arena_grow(arena, 2 * MIB));
    uint64_t chunks = vmm_driver_calls("cuMemCreate");
    assert_fails(ga_arena_grow(arena, 3 * GIB), GA_ERR_MEMORY,
                 "arena: 3221225472 bytes: expected at most 2149580800, by the memory of device 0");
    cr_assert_eq(vmm_driver_calls("cuMemCreate"), chunks);
    cr_assert_eq(ga_arena_size(arena), 2 * MIB);
    ga_arena_close(arena);
    assert_nothing_left();
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
    options.reserve = 2 * GIB; /* the growth succeeds whole or not at all */
    assert_fails_with(ga_arena_open(&none, &options), GA_ERR_MEMORY, "arena: no 2147483648 bytes");
    ga_arena_close(arena);
    assert_nothing_left();
}

/* ---- more addresses ---------------------------------------------------------------------- */

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
    assert_fails_with(ga_arena_extend(arena, 8 * MIB), GA_ERR_CANNOT_GROW,
                      "arena: the addresses from");
    cr_assert_eq(vmm_driver_count().ranges, 2);
    cr_assert_eq(ga_arena_reserved(arena), 4 * MIB);
    assert_ok(ga_arena_move(arena, 8 * MIB));
    cr_assert_neq(base_of(arena), base);
    cr_assert_eq(ga_arena_reserved(arena), 8 * MIB);
    cr_assert_eq(stats_of(arena).moves, 1);
    cr_assert_eq(vmm_driver_count().ranges, 2, "the old range is given back");
    cr_assert_eq(vmm_driver_count().chunk_bytes, 4 * MIB, "nothing is copied");
    check_marks(arena, 4 * MIB);
    assert_ok(ga_arena_move(arena, 16 * MIB)); /* the addresses behind are free: the base stays */
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

/* Simulates kernels that move no more than 1 MiB at a time, because they keep more mappings
 * apart. */
static const ga_os_memory *os;
static int pieces;

static void *move_little(void *start, size_t size, size_t new_size, int flags, void *to)
{
    if (size > MIB) {
        errno = EFAULT;
        return MAP_FAILED;
    }
    pieces++;
    return os->mremap(start, size, new_size, flags, to);
}

/* The arena is in a hole without room behind it, so it must move. */
static void move_for_sure(ga_arena *arena)
{
    void *behind = base_of(arena) + ga_arena_reserved(arena);
    void *there = mmap(behind, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ok(ga_arena_move(arena, 64 * MIB));
    cr_assert_eq(stats_of(arena).moves, 1);
    munmap(there, MIB);
}

Test(arena, moves_on_the_host_in_pieces)
{
    ga_arena *arena = open_with(WITH(on_host, .reserve = 16 * MIB));
    os = ga_os_memory_get();
    ga_os_memory table = *os;
    table.mremap = move_little;
    ga_os_memory_set(&table);
    assert_ok(ga_arena_grow(arena, 16 * MIB));
    write_marks(arena, 0, 16 * MIB);
    move_for_sure(arena);
    cr_assert_eq(pieces, 16);
    check_marks(arena, 16 * MIB);
    ga_arena_close(arena);
    ga_os_memory_set(NULL);
}

/* After a fork, the kernel keeps pages that were touched before it apart from later ones. */
static void fork_and_wait(void)
{
    pid_t child = fork();
    if (!child) {
        _exit(0);
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
}

Test(arena, moves_on_the_host_after_forks)
{
    ga_arena *arena = open_with(WITH(on_host, .reserve = 16 * MIB, .flags = GA_ARENA_EXACT));
    for (uint64_t size = MIB; size <= 16 * MIB; size += MIB) {
        assert_ok(ga_arena_grow(arena, size));
        write_marks(arena, size - MIB, size);
        fork_and_wait();
    }
    move_for_sure(arena);
    check_marks(arena, 16 * MIB);
    ga_arena_close(arena);
}
