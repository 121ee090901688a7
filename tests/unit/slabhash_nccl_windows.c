/* SPDX-License-Identifier: MIT
 *
 * Sharded tables over NCCL whose messages are copies through windows, with a driver and an NCCL of
 * the host's memory: windows that cannot be had, calls that fail, meetings.
 */
#include "support/nccl_tables.h"
#include "support/scene.h"

#include "../hashtables/sharded/nccl.h"
#include "platform/entropy.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

enum {
    SLICE = 40 /* requests: a piece has as many slices as there may be */
};

/* A version that says where the memory of other ranks is. */
Test(slabhash_nccl_windows, windows_of_a_later_version, .init = load)
{
    nccl_set_windows(22907, NCCL_NO_FAULT);
    work_through(3, 0);
    cr_assert_eq(windows_made(), 3);
}

/* Requests are sorted into more parts. */
Test(slabhash_nccl_windows, large_tables, .init = load)
{
    for (shard_bytes = UINT64_C(1) << 30; shard_bytes <= UINT64_C(1) << 36; shard_bytes *= 4) {
        for (uint32_t count = 1; count <= VMM_DRIVER_DEVICES; count++) {
            work_through(count, 0);
        }
    }
}

/* Meetings are kernels of NCCL. */
Test(slabhash_nccl_windows, an_old_driver, .init = load)
{
    is_old_driver = true;
    work_through(3, 0);
    cr_assert_eq(windows_made(), 3);
    let_calls_fail(0, 12);
}

Test(slabhash_nccl_windows, a_version_without_windows, .init = load)
{
    nccl_set_windows(22705, NCCL_NO_FAULT);
    setenv("GPUALLOC_LOG", "info", 1);
    scene_capture_begin();
    work_through(3, 0);
    work_through(2, 0);
    const char *said = scene_capture_end();
    const char *line = strstr(said, "nccl: version 22705: no windows that all 3 ranks reach");
    cr_assert(line && !strstr(line + 1, "nccl: version"), "%s", said); /* once in the process */
    cr_assert_eq(windows_made(), 0);
}

/* If one rank has no window, none uses its own. */
Test(slabhash_nccl_windows, windows_that_cannot_be_had, .init = load)
{
    static const nccl_fault faults[] = {NCCL_NO_MEMORY, NCCL_NO_WINDOW, NCCL_WRONG_ADDRESS,
                                        NCCL_HOST_HANDLE};
    static const int versions[] = {22803, 22907};
    for (size_t version = 0; version < 2; version++) {
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
            nccl_set_windows(versions[version], faults[i]);
            work_through(3, 0);
            cr_assert_leq(windows_made(), 3);
        }
    }
}

/* Open descriptors of the memory of numbers, and names of files of ours. */
static int files_of_numbers(void)
{
    static const char *const folders[] = {"/proc/self/fd", "/dev/shm"};
    int found = 0;
    for (int i = 0; i < 2; i++) {
        DIR *folder = opendir(folders[i]);
        cr_assert_not_null(folder, "%s", folders[i]);
        for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
            char target[64] = "";
            (void)readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
            found += strstr(target, "gpualloc-nccl") || strstr(entry->d_name, "gpualloc-");
        }
        closedir(folder);
    }
    return found;
}

/* Each call of NCCL fails once while the table is opened. If a rank waits for the window of the
 * other one until the time limit, its block stays. */
Test(slabhash_nccl_windows, calls_of_nccl_that_fail_at_open, .init = load, .timeout = 240)
{
    int before = nccl_calls(1);
    end(begin(2));
    int made = nccl_calls(1) - before;
    cr_assert_geq(made, 7, "%d", made);
    int left = 0;
    for (int at = 0; at < made; at++) {
        world *w = begin_with(2, 0, at);
        cr_assert_eq(w->opened[0] == GA_OK, w->opened[1] == GA_OK, "call %d", at);
        if (w->opened[0] == GA_OK) { /* without a window */
            run(w, GA_SLABHASH_INSERT);
            run(w, GA_SLABHASH_SEARCH);
            expect_found(w);
        }
        end(w);
        int all = 0;
        int before_this = left;
        left = nccl_windows(&all);
        cr_assert_leq(left, before_this + 1, "call %d", at);
        cr_assert_eq(files_of_numbers(), 0, "call %d", at);
    }
    cr_assert_leq(left, 1); /* of one call */
}

/* Rank 0 waits no longer than it is told for ranks that are gone, and others not for rank 0. */
Test(slabhash_nccl_windows, numbers_that_nobody_fetches)
{
    nccl_offer offer = {.file = -1, .listener.socket = -1};
    nccl_offer asked = {.file = -1, .listener.socket = -1};
    uint64_t name = ga_entropy();
    cr_assert(ga_nccl_offer_numbers(&offer, name, 4096));
    int64_t begin = ga_local_now();
    cr_assert(!ga_nccl_hand_numbers(&offer, 2, 4096, begin + LIMIT_MS));
    cr_assert(!ga_nccl_fetch_numbers(&asked, name, 4096, begin + 2 * LIMIT_MS));
    int64_t took = ga_local_now() - begin;
    cr_assert(took >= 2 * LIMIT_MS && took < 20 * LIMIT_MS, "%ld ms", (long)took);
    ga_nccl_end_offer(&offer);
    ga_nccl_end_offer(&asked);
    cr_assert(!ga_nccl_fetch_numbers(&asked, name, 4096, ga_local_now() + 20 * LIMIT_MS));
    cr_assert_eq(files_of_numbers(), 0);
}

Test(slabhash_nccl_windows, calls_of_nccl_that_fail_beside_copies, .init = load, .timeout = 240)
{
    let_calls_fail(0, 6); /* agreements */
}

/* The shard of rank 1 takes longer than the limit, so that the others wait at a meeting. */
static ga_status stop_serving(void *table, const ga_slabhash_batch *batches, uint32_t count,
                              uint64_t *counts, void *stream)
{
    (void)stream;
    sleep_ms(4 * LIMIT_MS);
    return shard_run(table, batches, count, counts, NULL);
}

Test(slabhash_nccl_windows, a_rank_that_is_late_for_a_meeting, .init = load)
{
    world *w = begin_all(3, 0, -1, stop_serving);
    run(w, GA_SLABHASH_INSERT);
    for (uint32_t rank = 0; rank < 3; rank++) {
        cr_assert_eq(w->statuses[rank], GA_ERR_DEVICE, "rank %u", rank);
    }
    end(w);
}

/* The requests that a shard serves slowly, while the others end the exchange. */
static bool were_kept;

static ga_status serve_slowly(void *table, const ga_slabhash_batch *batches, uint32_t count,
                              uint64_t *counts, void *stream)
{
    uint32_t before[KEYS];
    uint64_t copied = 0;
    (void)stream;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(before + copied, batches[i].keys, batches[i].count * sizeof *before);
        copied += batches[i].count;
    }
    sleep_ms(3 * LIMIT_MS);
    copied = 0;
    for (uint32_t i = 0; i < count; i++) {
        were_kept &= !memcmp(before + copied, batches[i].keys, batches[i].count * sizeof *before);
        copied += batches[i].count;
    }
    return shard_run(table, batches, count, counts, NULL);
}

/* A piece has several slices, so that later requests are for memory that has been in use. */
Test(slabhash_nccl_windows, requests_of_a_slow_shard_are_kept, .init = load)
{
    slice_least = SLICE;
    were_kept = true;
    world *w = begin_all(3, 0, -1, serve_slowly);
    run(w, GA_SLABHASH_INSERT);
    for (uint32_t rank = 0; rank < 3; rank++) {
        cr_assert_eq(w->statuses[rank], GA_ERR_DEVICE, "rank %u", rank);
    }
    cr_assert(were_kept);
    end(w);
}

Test(slabhash_nccl_windows, several_slices, .init = load)
{
    slice_least = SLICE;
    for (uint32_t count = 1; count <= VMM_DRIVER_DEVICES; count++) {
        work_through(count, 0);
        work_through(count, GA_NCCL_NO_WINDOWS);
    }
}

/* Beside copies each call of NCCL fails once, beside messages every seventh, in several slices. */
Test(slabhash_nccl_windows, calls_of_nccl_that_fail_in_slices, .init = load, .timeout = 240)
{
    slice_least = SLICE;
    let_calls_fail(0, 6);
    let_some_calls_fail(GA_NCCL_NO_WINDOWS, 60, 7);
}

/* Each call of the driver: copies, meetings, marks of each slice. */
Test(slabhash_nccl_windows, calls_of_the_driver_that_fail_in_slices, .init = load, .timeout = 240)
{
    slice_least = SLICE;
    let_driver_calls_fail(run_inserts);
}
