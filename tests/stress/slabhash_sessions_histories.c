/* SPDX-License-Identifier: MIT
 *
 * Short histories of unique keys, each of which must be linearizable (support/histories.h), while
 * one of the threads makes the table migrate, to more buckets or fewer.
 */
#include "slabhash_sessions.h"

#include "support/hashes.h"
#include "support/histories.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALLS = 6,   /* of each thread */
    BATCH = 256, /* histories of a table */
    CLEARED = 8, /* histories until the table is emptied again */
    ALL = THREADS_MAX * CALLS,
    OTHERS = 1000, /* keys from here on fill tables up */
    OTHERS_MAX = 130
};
_Static_assert((int)ALL <= (int)HISTORY_MAX, "a history has room for all calls");

static struct {
    history_call calls[ALL];
    uint64_t keys;
    uint64_t moves;    /* before which call of the last thread */
    uint64_t clock;    /* seq_cst: moments */
    uint32_t arrivals; /* seq_cst: threads that have arrived at a barrier */
} run;

/* In sets every key has the value 1. */
static uint64_t value_of(uint64_t value)
{
    return GA_SLABHASH_MODE(sessions.kind) == GA_SLABHASH_SET32 ? 1 : value;
}

static void do_call(sessions_tile *t, history_call *c)
{
    static const uint32_t ops[HISTORY_KINDS] = {[HISTORY_LOOKUP] = GA_SLABHASH_SEARCH,
                                                [HISTORY_INSERT] = GA_SLABHASH_INSERT,
                                                [HISTORY_UPSERT] = GA_SLABHASH_REPLACE,
                                                [HISTORY_ADD] = GA_SLABHASH_APPLY,
                                                [HISTORY_REMOVE] = GA_SLABHASH_DELETE};
    ga_slabhash_answer answer = {0};
    uint64_t count = 0;
    c->began = history_moment(&run.clock);
    if (c->kind == HISTORY_LOOKUP_ALL) {
        count = sessions_find_all(t, c->key, &answer.value, 1);
    } else if (c->kind == HISTORY_REMOVE_ALL) {
        count = sessions_delete_each(t, c->key);
    } else {
        answer = sessions_do(t, ops[c->kind], c->key, c->value);
    }
    c->ended = history_moment(&run.clock);
    stress_need(count <= 1, "a unique key is counted twice");
    stress_need(answer.result <= GA_SLABHASH_FOUND, "an operation is refused");
    c->found = answer.result == GA_SLABHASH_FOUND || count;
    c->was = c->found ? value_of(answer.value) : 0;
}

/* Draw the calls of each thread. */
static void draw(void)
{
    static const history_kind kinds[] = {
        HISTORY_LOOKUP, HISTORY_LOOKUP, HISTORY_LOOKUP_ALL, HISTORY_INSERT, HISTORY_INSERT,
        HISTORY_UPSERT, HISTORY_ADD,    HISTORY_REMOVE,     HISTORY_REMOVE, HISTORY_REMOVE_ALL};
    for (uint32_t i = 0; i < sessions.threads * CALLS; i++) {
        history_kind kind = kinds[random_below(&sessions.random, 10)];
        if (value_of(2) == 1 && kind == HISTORY_ADD) {
            kind = HISTORY_UPSERT;
        }
        run.calls[i] = (history_call){.kind = kind,
                                      .key = random_below(&sessions.random, run.keys),
                                      .value = value_of(i + 1)};
    }
    run.moves = random_below(&sessions.random, CALLS + 2);
}

/* The next history begins with none of its keys, but with other keys. */
static void prepare(sessions_tile *t, uint64_t number)
{
    for (uint64_t key = 0; key < run.keys; key++) {
        (void)sessions_delete_each(t, key);
    }
    if (number % CLEARED == 0) {
        uint64_t others = random_below(&sessions.random, OTHERS_MAX);
        for (uint64_t key = OTHERS; key < OTHERS + OTHERS_MAX; key++) {
            (void)sessions_do(t, GA_SLABHASH_DELETE, key, 0);
        }
        sessions_end(t);
        sessions_settle();
        if (sessions.growing.versions[0].buckets > 64) { /* from few buckets on again */
            sessions_free_stage(&sessions.growing.versions[0]);
            sessions.growing.versions[0].buckets = 1;
            sessions.growing.versions[0].rows = aligned_alloc(128, 128);
            memset(sessions.growing.versions[0].rows, 0xff, 128);
        }
        sessions.refuses = random_below(&sessions.random, 2) ? 3 : 0;
        *t = sessions_begin(0);
        for (uint64_t key = OTHERS; key < OTHERS + others; key++) {
            (void)sessions_do(t, GA_SLABHASH_INSERT, key, 1);
        }
    }
}

static void check(sessions_tile *t)
{
    uint32_t count = (uint32_t)sessions.threads * CALLS;
    for (uint64_t key = 0; key < run.keys; key++) {
        if (!history_linearizable(run.calls, count, key)) {
            history_print(run.calls, count, key);
            fprintf(stderr, "kind %u, history %llu\n", sessions.kind,
                    (unsigned long long)sessions.histories);
            stress_need(false, "a history is not linearizable");
        }
        stress_need(sessions_find_all(t, key, NULL, 0) <= 1, "a key is there twice");
    }
}

static void work(size_t number)
{
    uint64_t meeting = 0;
    sessions_tile t = {.stands = false};
    if (number == 0) { /* the other threads begin once thread 0 has prepared the table */
        t = sessions_begin(0);
    }
    for (uint64_t i = 0; i < BATCH; i++) {
        if (number == 0) {
            prepare(&t, i);
            draw();
        }
        history_meet(&run.arrivals, ++meeting, sessions.threads);
        if (i % CLEARED == 0) { /* the versions are new: no thread has an older snapshot */
            sessions_end(&t);
            t = sessions_begin(number);
        }
        for (uint32_t c = 0; c < CALLS; c++) {
            if (c == run.moves && number == sessions.threads - 1) {
                sessions_move_on(&t, i + run.moves);
            }
            do_call(&t, &run.calls[number * CALLS + c]);
        }
        if (number && (i + 1) % CLEARED == 0) { /* before the table is another */
            sessions_end(&t);
        } else {
            sessions_rest(&t);
        }
        history_meet(&run.arrivals, ++meeting, sessions.threads);
        if (number == 0) {
            check(&t);
        }
    }
    sessions_end(&t);
}

void sessions_histories(void)
{
    static ga_slabhash_hash *const hashes[] = {NULL, hash_same, hash_two, NULL};
    const char *wrong = history_try_checker();
    stress_need(!wrong, wrong);
    run.arrivals = 0;
    sessions.threads = 2 + sessions.tables % 3;
    run.keys = 1 + random_below(&sessions.random, KEYS_MAX);
    sessions_open((uint32_t)(sessions.tables / 2 % 3), false,
                  1u << random_below(&sessions.random, 4),
                  hashes[random_below(&sessions.random, 4)]);
    stress_threads(sessions.threads, work);
    sessions_close();
    sessions.histories += BATCH;
}
