/* SPDX-License-Identifier: MIT
 *
 * Records that the ranks of a sharded table pass to each other.
 */
#include <gpualloc/backend.h>
#include <gpualloc/slabhash_sharded.h>

#include "support/sharded_scene.h"

#include <stdio.h>

enum {
    WORDS = 37
};

typedef struct sharing {
    world *w;
    int failing; /* rank, or -1 */
    ga_status statuses[RANKS_MOST];
    char sentences[RANKS_MOST][200];
    uint32_t all[RANKS_MOST][RANKS_MOST * WORDS];
    bool one_process[RANKS_MOST];
} sharing;

static uint32_t word_of(uint32_t rank, uint32_t i)
{
    return UINT32_MAX - rank * 1000 - i * i;
}

static void share_one(ranks *all, uint32_t rank, void *context)
{
    sharing *s = context;
    uint32_t own[WORDS], found = RANKS_MOST;
    ga_status failed = GA_OK;
    for (uint32_t i = 0; i < WORDS; i++) {
        own[i] = word_of(rank, i);
    }
    cr_assert_eq(ga_slabhash_sharded_ranks(s->w->tables[rank], &found), all->count);
    cr_assert_eq(found, rank);
    cr_assert_eq(ga_slabhash_sharded_ranks(s->w->tables[rank], NULL), all->count);
    cr_assert_eq(ga_slabhash_sharded_device(s->w->tables[rank]), -1);
    if ((int)rank == s->failing) {
        failed = ga_fail(GA_ERR_PLACE, "a sentence of rank %u", rank);
    }
    s->statuses[rank] = ga_slabhash_sharded_share(s->w->tables[rank], failed, own, s->all[rank],
                                                  sizeof own, &s->one_process[rank]);
    snprintf(s->sentences[rank], sizeof s->sentences[rank], "%s", ga_error_text());
}

Test(slabhash_share, records_of_all_ranks)
{
    for (uint32_t count = 1; count <= 7; count += 3) {
        ranks all;
        world w = {.mode = GA_SLABHASH_MAP32};
        sharing s = {.w = &w, .failing = -1};
        begin(&all, &w, count);
        ranks_run(&all, share_one, &s);
        for (uint32_t rank = 0; rank < count; rank++) {
            assert_ok(s.statuses[rank]);
            cr_assert(s.one_process[rank]);
            for (uint32_t i = 0; i < count * WORDS; i++) {
                cr_assert_eq(s.all[rank][i], word_of(i / WORDS, i % WORDS));
            }
        }
        end(&all, &w);
    }
}

Test(slabhash_share, a_rank_that_has_failed)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32};
    sharing s = {.w = &w, .failing = 1};
    begin(&all, &w, 3);
    ranks_run(&all, share_one, &s);
    for (uint32_t rank = 0; rank < 3; rank++) {
        cr_assert_eq(s.statuses[rank], GA_ERR_PLACE);
        cr_assert(strstr(s.sentences[rank], rank == 1 ? "a sentence of rank 1" : "another rank"),
                  "%s", s.sentences[rank]);
    }
    s.failing = -1; /* the table is as before */
    ranks_run(&all, share_one, &s);
    assert_ok(s.statuses[0]);
    end(&all, &w);
}

/* An exchange that fails in the middle ends the use of the table. */
static void share_some(ranks *all, uint32_t rank, void *context)
{
    if (rank == 0) {
        all->fail_at[rank] = all->calls[rank] + 1;
    }
    share_one(all, rank, context);
}

Test(slabhash_share, an_exchange_that_fails)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32};
    sharing s = {.w = &w, .failing = -1};
    begin(&all, &w, 2);
    all.seconds = 1;
    ranks_run(&all, share_some, &s);
    cr_assert_eq(s.statuses[0], GA_ERR_DEVICE);
    cr_assert_eq(s.statuses[1], GA_ERR_DEVICE);
    all.seconds = 30;
    ranks_run(&all, share_one, &s);
    cr_assert_eq(s.statuses[0], GA_ERR_DEVICE);
    end(&all, &w);
}

Test(slabhash_share, records_of_other_sizes)
{
    ranks all;
    world w = {.mode = GA_SLABHASH_MAP32};
    uint32_t word = 0;
    bool one_process;
    begin(&all, &w, 1);
    cr_assert_eq(ga_slabhash_sharded_share(w.tables[0], GA_OK, &word, &word, 3, &one_process),
                 GA_ERR_ARGUMENT);
    cr_assert(strstr(ga_error_text(), "records of 3 bytes: expected a multiple of 4"));
    cr_assert_eq(ga_slabhash_sharded_share(NULL, GA_OK, &word, &word, 4, &one_process),
                 GA_ERR_ARGUMENT);
    end(&all, &w);
}
