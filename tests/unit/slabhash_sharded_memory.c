/* SPDX-License-Identifier: MIT
 *
 * All pairs of keys of sharded tables, of which one rank has little memory, or none.
 */
#include <gpualloc/backend.h>
#include <gpualloc/slabhash_sharded.h>

#include "platform/libc.h"
#include "support/sharded_questions.h"

static _Thread_local int refuse_at;                 /* that block and all later ones; 0: none */
static _Thread_local size_t refuse_more = SIZE_MAX; /* blocks of more bytes */
static int refused;
static _Thread_local size_t largest; /* block of those that were not refused */

static void *short_malloc(size_t size)
{
    bool refuses = refuse_at == 1 || size > refuse_more;
    if (refuse_at > 1 && size >= 1000) {
        refuse_at--;
    }
    if (refuses && size >= 1000) {
        refused++;
        return NULL;
    }
    largest = size > largest ? size : largest;
    return malloc(size);
}

static void ask_without_memory(ranks *all, uint32_t rank, void *context)
{
    questions *qs = context;
    refuse_at = rank == 1 ? (int)qs->of[1].total : 0;
    ask_one(all, rank, qs);
    refuse_at = 0;
}

static void ask_with_less_memory(ranks *all, uint32_t rank, void *context)
{
    questions *qs = context;
    if (rank == 1) {
        refuse_more = qs->of[1].total;
        largest = 0;
    }
    ask_one(all, rank, qs);
    if (rank == 1) {
        refuse_more = SIZE_MAX;
        qs->of[1].room = largest;
    }
}

/* The less memory rank 1 can have for its keys, the more pieces there are; then all ranks learn
 * that it has none. */
Test(slabhash_sharded_memory, a_rank_with_less_memory)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32, .flags = GA_SLABHASH_MULTI, .options = {.piece = 1500}};
    uint32_t pieces = 0, rises = 0;
    uint64_t most = SIZE_MAX;
    ga_libc.malloc = short_malloc;
    for (bool has_failed = false; !has_failed;) {
        ga_sharded_report report;
        begin_full(&all, &w, 3);
        questions *qs = make_questions(&w, &all);
        qs->of[1].total = most;
        ranks_run(&all, ask_with_less_memory, qs);
        most = qs->of[1].room - 1;
        qs->of[1].room = 0;
        ga_slabhash_sharded_report(w.tables[0], &report);
        has_failed = qs->of[0].status != GA_OK;
        if (has_failed) {
            expect_statuses(&all, qs, GA_ERR_MEMORY);
            expect_search(&all, qs);
        } else {
            expect_all_found(&all, qs);
            cr_assert_geq(report.pieces, pieces);
            rises += report.pieces > pieces;
            pieces = report.pieces;
        }
        free_questions(&all, qs);
        end(&all, &w);
    }
    ga_libc.malloc = malloc;
    cr_assert_geq(rises, 3, "%u times more pieces, %u at last", rises, pieces);
}

/* Rank 1 has no memory for sorted keys, answers, values, or more values; the others learn it. */
Test(slabhash_sharded_memory, a_rank_without_memory)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32, .flags = GA_SLABHASH_MULTI, .options = {.piece = 1500}};
    int failures = 0;
    ga_libc.malloc = short_malloc;
    for (int at = 1;; at++) {
        begin_full(&all, &w, 3);
        questions *qs = make_questions(&w, &all);
        give_room(&all, qs);
        qs->of[1].total = (uint64_t)at;
        refused = 0;
        ranks_run(&all, ask_without_memory, qs);
        bool has_failed = refused != 0;
        failures += has_failed;
        if (has_failed) {
            expect_statuses(&all, qs, GA_ERR_MEMORY);
            expect_search(&all, qs);
        } else {
            expect_all_found(&all, qs);
        }
        free_questions(&all, qs);
        end(&all, &w);
        if (!has_failed) {
            break;
        }
    }
    ga_libc.malloc = malloc;
    cr_assert_geq(failures, 3);
}
