/* SPDX-License-Identifier: MIT
 *
 * Tables of all kinds that grow from one bucket, then shrink as most keys are deleted, and are
 * compacted. After each of these steps the number of each key's pairs must be right.
 */
#include "slabhash_sessions.h"

#include <sched.h>
#include <stdio.h>

enum {
    VOLUME = 3000,     /* keys of each thread that tables grow with */
    SHARED = 500,      /* all threads insert the first of them */
    STAY = 150,        /* one in STAY keys stays */
    NOWHERE = 1 << 21, /* keys from here on are in no table */
    NOWHERES = 4096,
    CROWD = 1 << 20 /* keys from here on fill tables that do not grow */
};
#define PATIENCE (UINT64_C(40) * 1000000000) /* ns */

static struct {
    uint64_t went_in;     /* relaxed: a figure */
    uint64_t stay, crowd; /* keys that stay; and that fill a table */
    uint64_t until;       /* the time by which a table should have shrunk or been compacted */
} run;

static void put_in(size_t number)
{
    sessions_tile t = sessions_begin(number);
    uint64_t own = number * VOLUME, in = 0;
    for (uint64_t i = 0; i < VOLUME; i++) {
        uint64_t key = i < SHARED ? i : own + i;
        ga_slabhash_answer answer = sessions_do(&t, GA_SLABHASH_INSERT, key, key * 2 + 1);
        in += answer.result == GA_SLABHASH_ABSENT;
        uint64_t back = i < SHARED ? key : own + SHARED + i / 2;
        answer = sessions_do(&t, GA_SLABHASH_SEARCH, back, 0);
        bool there = i < SHARED || (i / 2 + SHARED <= i && i / 2 % 3);
        stress_need(!there || answer.result == GA_SLABHASH_FOUND, "a key is lost");
        stress_need(answer.result != GA_SLABHASH_FOUND || !answer.value ||
                        answer.value == back * 2 + 1,
                    "a value is another's");
        uint64_t gone = own + SHARED + i / 2;
        if (i % 2 && i / 2 % 3 == 0 && i / 2 + SHARED <= i) {
            answer = sessions_do(&t, GA_SLABHASH_DELETE, gone, 0);
            stress_need(answer.result == GA_SLABHASH_FOUND, "a key to be deleted is lost");
        }
    }
    sessions_end(&t);
    __atomic_fetch_add(&run.went_in, in, __ATOMIC_RELAXED); /* relaxed: read after all */
}

/* Returns true if thread `number` has deleted its key again. */
static bool is_gone(uint64_t i)
{
    for (uint64_t at = 1; at < VOLUME; at += 2) {
        if (SHARED + at / 2 == i && at / 2 % 3 == 0 && at / 2 + SHARED <= at) {
            return true;
        }
    }
    return false;
}

/* The number of a key's pairs once all are inserted. */
static uint64_t times_of(uint64_t key)
{
    uint64_t i = key % VOLUME;
    if (i < SHARED) {
        return key >= SHARED ? 0 : GA_SLABHASH_IS_MULTI(sessions.kind) ? sessions.threads : 1;
    }
    return is_gone(i) ? 0 : 1;
}

static void expect_times(sessions_tile *t, uint64_t key, uint64_t times)
{
    uint64_t count = sessions_find_all(t, key, NULL, 0);
    if (count != times) {
        fprintf(stderr, "kind %u: key %llu is there %llu times, not %llu\n", sessions.kind,
                (unsigned long long)key, (unsigned long long)count, (unsigned long long)times);
    }
    stress_need(count == times, "a key is not there as often as it was put in");
}

static void fill(void)
{
    uint64_t all = 0;
    run.went_in = 0;
    sessions.refuses = sessions.tables / 12 % 2 ? 2 : 0;
    stress_threads(sessions.threads, put_in);
    sessions.refuses = 0;
    stress_need(sessions.growing.now > 0 || sessions.growing.failed > 0, "the table has not grown");
    sessions_settle();
    sessions_tile t = sessions_begin(0);
    for (uint64_t key = 0; key < sessions.threads * VOLUME; key++) {
        expect_times(&t, key, times_of(key));
        all += key < SHARED ? times_of(key) : key % VOLUME >= SHARED ? 1 : 0;
    }
    stress_need(all == run.went_in, "as many went in as were told");
    sessions_end(&t);
}

/* ---- deletions ---------------------------------------------------------------------------- */

/* Change nothing until the table has finished its task, or should have. Other threads may do it, so
 * each thread yields to them. The keys are of all buckets, because only a call for a bucket that
 * has found no slab is FULL and adds slabs. */
static bool linger(sessions_tile *t, uint64_t *calls)
{
    (void)sessions_do(t, GA_SLABHASH_DELETE, NOWHERE + *calls % NOWHERES, 0);
    if (++*calls % 64 == 0) {
        sched_yield();
    }
    return *calls % 4096 || ga_clock_ns() < run.until;
}

static uint64_t places(void)
{
    return ga_bits_count(ga_slabhash_slot_mask(sessions.kind));
}

/* Delete all inserted keys but one in STAY. */
static void take_out(size_t number)
{
    sessions_tile t = sessions_begin(number);
    uint64_t calls = 0;
    for (uint64_t key = number * VOLUME; key < (number + 1) * VOLUME; key++) {
        uint64_t times = times_of(key);
        if (key % STAY && times) {
            stress_need(sessions_delete_each(&t, key) == times, "a key to be taken out is lost");
        } else if (times) {
            expect_times(&t, key, times);
        }
    }
    while (t.stand.buckets * places() > 50 * run.stay) { /* 2 of 100 places have pairs */
        stress_need(linger(&t, &calls), "a table that is nearly empty keeps its buckets");
    }
    sessions_end(&t);
}

static void shrink(void)
{
    uint32_t before = sessions.growing.shrunk;
    run.stay = 0;
    for (uint64_t key = 0; key < sessions.threads * VOLUME; key += STAY) {
        run.stay += times_of(key);
    }
    run.until = ga_clock_ns() + PATIENCE;
    stress_threads(sessions.threads, take_out);
    sessions_settle();
    stress_need(sessions.growing.shrunk > before, "a table that is nearly empty has not shrunk");
    sessions_tile t = sessions_begin(0);
    for (uint64_t key = 0; key < sessions.threads * VOLUME; key++) {
        expect_times(&t, key, key % STAY ? 0 : times_of(key));
    }
    sessions_end(&t);
    sessions.shrunk += sessions.growing.shrunk - before;
}

/* Keys of each thread fill the table to nine of ten places, though it may not grow; */
static void crowd(size_t number)
{
    sessions_tile t = sessions_begin(number);
    for (uint64_t i = number; i < run.crowd; i += sessions.threads) {
        ga_slabhash_answer answer = sessions_do(&t, GA_SLABHASH_INSERT, CROWD + i, i);
        stress_need(answer.result == GA_SLABHASH_ABSENT, "a key was there before");
    }
    sessions_end(&t);
}

/* and three in four of them go. */
static void thin_out(size_t number)
{
    sessions_tile t = sessions_begin(number);
    uint64_t calls = 0;
    for (uint64_t i = number; i < run.crowd; i += sessions.threads) {
        if (i / sessions.threads % 4) {
            ga_slabhash_answer answer = sessions_do(&t, GA_SLABHASH_DELETE, CROWD + i, 0);
            stress_need(answer.result == GA_SLABHASH_FOUND, "a key to be taken out is lost");
        }
    }
    while (t.stand.number == 0) {
        stress_need(linger(&t, &calls), "a table keeps slabs that it does not need");
    }
    sessions_end(&t);
}

static void compact(void)
{
    ga_slabhash_growing *g = &sessions.growing;
    uint32_t before = g->compacted;
    run.crowd = g->versions[0].buckets * places() * 9 / 10;
    g->least = g->versions[0].buckets; /* it may not shrink */
    g->versions[0].wanted = UINT32_MAX;
    stress_threads(sessions.threads, crowd);
    uint64_t crowded = ga_slab_host_taken(&sessions.table->slabs);
    run.until = ga_clock_ns() + PATIENCE;
    stress_threads(sessions.threads, thin_out);
    sessions_settle();
    stress_need(g->compacted > before, "a table with deleted pairs is not compacted");
    stress_need(ga_slab_host_taken(&sessions.table->slabs) <= crowded / 4,
                "slabs are kept that are not needed");
    sessions_tile t = sessions_begin(0);
    for (uint64_t i = 0; i < run.crowd; i++) {
        expect_times(&t, CROWD + i, i / sessions.threads % 4 ? 0 : 1);
    }
    sessions_end(&t);
    sessions.compacted += g->compacted - before;
}

void sessions_volumes(void)
{
    sessions.threads = THREADS_MAX;
    sessions_open((uint32_t)(sessions.tables / 2 % 3), sessions.tables / 6 % 2, 1, NULL);
    fill();
    shrink();
    compact();
    sessions_close();
}
