/* SPDX-License-Identifier: MIT
 *
 * Meetings of sharded tables that are enqueued, as on a stream: the call of one returns at once,
 * and work that follows it happens behind it. Batches of several slices, and meetings that are
 * aborted.
 */
#include <gpualloc/backend.h>
#include <gpualloc/slabhash_sharded.h>

#include "support/sharded_scene.h"

#include "../hashtables/sharded/sharded.h"

enum {
    SLICE = 40, /* requests, at least: a piece has the most slices that there are */
    COUNT = 3
};

/* Streams of a rank. Work on that of the exchange is carried out when something on it must return,
 * which the host does not know. */
static char on_exchange, on_arrivals; /* the caller's is NULL */

/* The exchange of a rank over that of `ranks`. Meetings are counted from 1. */
typedef struct late_exchange {
    ga_exchange of;
    ranks *all;
    uint32_t enqueued, done;          /* meetings */
    uint32_t seen;                    /* by the host: that many are done */
    uint32_t marks[GA_SHARDED_MARKS]; /* meetings before each */
    uint32_t arrivals, callers;       /* meetings that the stream has followed */
    uint32_t agreed;                  /* meetings before the last agreement */
    uint32_t aborts_at;               /* 0: none */
    bool has_aborted;
    uint32_t steps_done, steps_followed; /* by the exchange stream; since the last agreement */
    ga_sharded_mark last_done;
    uint32_t firsts;                       /* meetings since then, before the first step was done */
    uint32_t puts_early, puts_after, puts; /* not seen the meeting; after the abort; all */
    uint32_t meets_early, fetches_early;   /* before the step's end; before the step's meeting */
} late_exchange;

static late_exchange late[RANKS_MOST];
static uint32_t abort_at; /* the meeting of rank 0 that is aborted; 0: none */

/* The meetings until `last` on the stream. */
static ga_status carry_out(late_exchange *l, uint32_t last)
{
    ga_status status = GA_OK;
    while (status == GA_OK && l->done < last) {
        l->done++;
        if (l->done == l->aborts_at) {
            l->has_aborted = true;
            for (uint32_t rank = 0; rank < COUNT; rank++) { /* as if their time were over */
                ranks_leave(l->all, rank);
            }
            return ga_fail(GA_ERR_DEVICE, "a meeting is aborted");
        }
        status = l->of.meet(l->of.context, NULL);
    }
    return status;
}

static ga_status late_mark(ga_slabhash_sharded *table, ga_sharded_mark mark, void *stream)
{
    late_exchange *l = table->exchange.context;
    l->marks[mark] = stream == &on_exchange ? l->enqueued : 0;
    if (mark >= GA_SHARDED_DONE && mark < GA_SHARDED_DONE + GA_SHARDED_BUFFERS) {
        l->firsts = l->steps_done ? l->firsts : l->enqueued - l->agreed;
        l->steps_done++;
        l->last_done = mark;
    }
    return GA_OK;
}

static ga_status late_follow(ga_slabhash_sharded *table, ga_sharded_mark mark, void *stream)
{
    late_exchange *l = table->exchange.context;
    if (stream == &on_exchange && mark == l->last_done) {
        l->steps_followed = l->steps_done;
    }
    uint32_t *to = stream == &on_arrivals ? &l->arrivals : &l->callers;
    if (stream != &on_exchange && l->marks[mark] > *to) {
        *to = l->marks[mark];
    }
    return GA_OK;
}

static ga_status late_begin(void *context)
{
    late_exchange *l = context;
    ga_status status = carry_out(l, l->enqueued);
    return status ? status : l->of.begin(l->of.context);
}

static ga_status late_send(void *context, const void *from, uint64_t bytes, uint32_t to,
                           void *stream)
{
    late_exchange *l = context;
    return l->of.send(l->of.context, from, bytes, to, stream);
}

static ga_status late_receive(void *context, void *to, uint64_t bytes, uint32_t from, void *stream)
{
    late_exchange *l = context;
    return l->of.receive(l->of.context, to, bytes, from, stream);
}

static ga_status late_end(void *context, void *stream)
{
    late_exchange *l = context;
    return l->of.end(l->of.context, stream);
}

static ga_status late_largest(void *context, uint64_t *values, uint32_t count, void *stream)
{
    late_exchange *l = context;
    ga_status status = carry_out(l, l->enqueued);
    l->agreed = l->enqueued;
    l->steps_done = l->steps_followed = 0;
    return status ? status : l->of.largest(l->of.context, values, count, stream);
}

static ga_status late_wait(void *context, void *stream)
{
    late_exchange *l = context;
    uint32_t last = stream == &on_exchange   ? l->enqueued
                    : stream == &on_arrivals ? l->arrivals
                                             : l->callers;
    ga_status status = carry_out(l, last);
    l->seen = status || l->seen > last ? l->seen : last;
    return status ? status : l->of.wait(l->of.context, stream);
}

static void late_abort(void *context)
{
    late_exchange *l = context;
    l->of.abort(l->of.context);
}

static ga_status late_share(void *context, ga_shared *out, uint64_t bytes, uint64_t *word,
                            void *stream)
{
    late_exchange *l = context;
    return l->of.share(l->of.context, out, bytes, word, stream);
}

static void late_unshare(void *context, void *block)
{
    late_exchange *l = context;
    l->of.unshare(l->of.context, block);
}

static ga_status late_meet(void *context, void *stream)
{
    late_exchange *l = context;
    (void)stream;
    l->meets_early += l->steps_followed != l->steps_done;
    l->enqueued++;
    return GA_OK;
}

/* A copy to another rank overwrites what a slow rank still reads, unless the meeting behind the
 * last use of the buffer is over, and not aborted. That is the one before the meeting of the copy's
 * own group: the host must have seen it. The first copies after an agreement are to fresh
 * buffers. */
static ga_status late_put(void *context, const void *from, void *at, uint64_t bytes, uint32_t to,
                          void *stream)
{
    late_exchange *l = context;
    l->puts++;
    /* three behind the first groups, and one before the group of step 0 */
    bool is_fresh = l->enqueued <= l->agreed + GA_SHARDED_BUFFERS;
    l->puts_early += !is_fresh && l->seen + 1 < l->enqueued;
    l->puts_after += l->has_aborted;
    ga_status status = carry_out(l, l->enqueued);
    return status ? status : l->of.put(l->of.context, from, at, bytes, to, stream);
}

static ga_status late_fetch(void *context, void *to, const void *at, uint64_t bytes, uint32_t from,
                            void *stream)
{
    late_exchange *l = context;
    l->fetches_early += l->enqueued != l->agreed + l->firsts + l->steps_done;
    ga_status status = carry_out(l, l->enqueued);
    return status ? status : l->of.fetch(l->of.context, to, at, bytes, from, stream);
}

static void late_close(void *context)
{
    late_exchange *l = context;
    l->of.close(l->of.context);
}

static ga_sharded_engine engine; /* of the host, with marks */

static void open_late(ranks *all, uint32_t rank, void *context)
{
    world *w = context;
    late_exchange *l = &late[rank];
    *l = (late_exchange){
        .of = ranks_exchange(all, rank), .all = all, .aborts_at = rank ? 0 : abort_at};
    ga_exchange exchange = {.exchange_size = sizeof exchange,
                            .context = l,
                            .rank = rank,
                            .ranks = all->count,
                            .device = -1,
                            .begin = late_begin,
                            .send = late_send,
                            .receive = late_receive,
                            .end = late_end,
                            .largest = late_largest,
                            .wait = late_wait,
                            .abort = late_abort,
                            .share = late_share,
                            .unshare = late_unshare,
                            .meet = late_meet,
                            .put = late_put,
                            .fetch = late_fetch,
                            .close = late_close};
    ga_slabhash_options options = {
        .options_size = sizeof options, .mode = w->mode, .buckets = w->buckets, .seed = 7};
    w->opened[rank] =
        ga_slabhash_sharded_open_host(&w->tables[rank], &exchange, &options, &w->options);
    assert_ok(w->opened[rank]);
    w->tables[rank]->engine = &engine;
    w->tables[rank]->exchange_stream = &on_exchange;
    w->tables[rank]->arrivals = &on_arrivals;
    w->tables[rank]->slice_least = SLICE;
}

static void begin_late(ranks *all, world *w)
{
    *w = (world){.mode = GA_SLABHASH_MAP32,
                 .buckets = 300,
                 .options = {.options_size = sizeof w->options, .piece = PIECE}};
    engine = ga_sharded_host;
    engine.mark = late_mark;
    engine.follow = late_follow;
    ranks_begin(all, COUNT);
    all->shares = true;
    ranks_run(all, open_late, w);
    (void)deal_keys(all, w->mode);
}

/* Returns the meetings of rank 0. */
static uint32_t work_through(void)
{
    ranks all;
    world w;
    calls c;
    abort_at = 0;
    begin_late(&all, &w);
    run_all(&all, &w, GA_SLABHASH_INSERT, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_ABSENT, false);
    uint32_t meetings = late[0].enqueued;
    run_all(&all, &w, GA_SLABHASH_SEARCH, &c);
    expect_results(&all, &w, &c, GA_SLABHASH_FOUND, true);
    for (uint32_t rank = 0; rank < COUNT; rank++) {
        cr_assert(late[rank].puts > 0 || rank + 1 == COUNT); /* the last one has no requests */
        cr_assert_eq(late[rank].puts_early, 0, "rank %u: %u", rank, late[rank].puts_early);
        cr_assert_eq(late[rank].meets_early, 0, "rank %u", rank);
        cr_assert_eq(late[rank].fetches_early, 0, "rank %u", rank);
        cr_assert_eq(late[rank].done, late[rank].enqueued, "rank %u: a meeting is left", rank);
    }
    end(&all, &w);
    return meetings;
}

Test(slabhash_sharded_meetings, copies_to_other_ranks_follow_meetings)
{
    uint32_t pieces = (KEYS + PIECE - 1) / PIECE;
    cr_assert_gt(work_through(), GA_SHARDED_SLICES * (pieces - 1)); /* one for each step */
}

static void insert_one(ranks *all, uint32_t rank, void *context)
{
    world *w = context;
    (void)all;
    ga_slabhash_batch batch = batch_of(&sets[rank], w->mode, GA_SLABHASH_INSERT);
    batch.results = NULL;
    batch.found = NULL;
    assert_ok(ga_slabhash_sharded_run(w->tables[rank], &batch, NULL, NULL));
}

/* Inserts of which nothing comes back, in pieces of each number of slices, some with rounds. */
Test(slabhash_sharded_meetings, without_answers)
{
    for (uint64_t least = 30; least <= 400; least *= 2) {
        ranks all;
        world w;
        calls c;
        abort_at = 0;
        begin_late(&all, &w);
        for (uint32_t rank = 0; rank < COUNT; rank++) {
            w.tables[rank]->slice_least = least;
            w.tables[rank]->pair_most = least > 100 ? 64 : w.tables[rank]->pair_most;
        }
        ranks_run(&all, insert_one, &w);
        run_all(&all, &w, GA_SLABHASH_SEARCH, &c);
        expect_results(&all, &w, &c, GA_SLABHASH_FOUND, true);
        for (uint32_t rank = 0; rank < COUNT; rank++) {
            cr_assert_eq(late[rank].puts_early + late[rank].meets_early, 0, "rank %u", rank);
            cr_assert_eq(late[rank].fetches_early, 0, "rank %u", rank);
        }
        end(&all, &w);
    }
}

/* What the shard of a rank has is right: no value of another key. */
static void expect_no_mixtures(const world *w)
{
    for (uint32_t rank = 0; rank < COUNT; rank++) {
        for (uint32_t of = 0; of < COUNT; of++) {
            for (uint64_t i = 0; i < sets[of].count; i++) {
                ga_slabhash_found found;
                uint64_t key = sets[of].keys32[i];
                assert_ok(
                    ga_slabhash_search(ga_slabhash_sharded_table(w->tables[rank]), key, &found));
                cr_assert(!found.found || found.value == value_of(w->mode, key));
            }
        }
    }
}

/* Each meeting is aborted once. The rank puts nothing after that, and all ranks learn of it. */
Test(slabhash_sharded_meetings, meetings_that_are_aborted, .timeout = 240)
{
    uint32_t meetings = work_through();
    for (uint32_t at = 1; at <= meetings; at++) {
        ranks all;
        world w;
        calls c;
        abort_at = at;
        begin_late(&all, &w);
        c = (calls){.w = &w, .counted = true};
        for (uint32_t rank = 0; rank < COUNT; rank++) {
            c.batches[rank] = batch_of(&sets[rank], w.mode, GA_SLABHASH_INSERT);
        }
        ranks_run(&all, run_one, &c);
        cr_assert(late[0].has_aborted, "meeting %u", at);
        for (uint32_t rank = 0; rank < COUNT; rank++) {
            cr_assert_eq(c.statuses[rank], GA_ERR_DEVICE, "meeting %u, rank %u", at, rank);
            cr_assert_eq(late[rank].puts_early + late[rank].puts_after, 0, "meeting %u, rank %u",
                         at, rank);
        }
        expect_no_mixtures(&w);
        end(&all, &w);
    }
}
