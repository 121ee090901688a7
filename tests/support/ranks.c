/* SPDX-License-Identifier: MIT */
#include "ranks.h"

#include <gpualloc/backend.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    CALLS_MOST = 4096
};

typedef struct receipt {
    void *to;
    uint64_t bytes;
    uint32_t from;
} receipt;

/* The exchange of a rank. */
typedef struct member {
    ranks *all;
    uint32_t rank;
    receipt receipts[CALLS_MOST]; /* of the group in progress */
    uint32_t count;
} member;

void ranks_begin(ranks *all, uint32_t count)
{
    memset(all, 0, sizeof *all);
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->changed, NULL);
    all->count = count;
    all->seconds = 30;
    for (int i = 0; i < RANKS_MOST; i++) {
        all->fail_at[i] = RANKS_NEVER;
    }
}

void ranks_end(ranks *all)
{
    for (int from = 0; from < RANKS_MOST; from++) {
        for (int to = 0; to < RANKS_MOST; to++) {
            for (ranks_message *m = all->queues[from][to], *next; m; m = next) {
                next = m->next;
                free(m);
            }
        }
    }
    free(all->largest);
    free(all->result);
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
}

/* Counts a call; fails the one that is to fail. */
static ga_status call(member *m, const char *name)
{
    int number = m->all->calls[m->rank]++;
    return number == m->all->fail_at[m->rank]
               ? ga_fail(GA_ERR_DEVICE, "ranks: rank %u: %s: told to fail", m->rank, name)
               : GA_OK;
}

/* With the lock held. False: the time limit is over, or the rank has left. */
static bool wait_for_change(member *m, const struct timespec *until)
{
    ranks *all = m->all;
    return !all->gone[m->rank] &&
           pthread_cond_timedwait(&all->changed, &all->lock, until) != ETIMEDOUT;
}

void ranks_leave(ranks *all, uint32_t rank)
{
    pthread_mutex_lock(&all->lock);
    all->gone[rank] = true;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

static struct timespec limit_of(const member *m)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + (uint64_t)(m->all->seconds * 1e9);
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    return until;
}

static ga_status late(const member *m)
{
    return ga_fail(GA_ERR_DEVICE, "ranks: rank %u: another rank does not arrive", m->rank);
}

static ga_status member_begin(void *context)
{
    member *m = context;
    m->count = 0;
    return call(m, "begin");
}

static ga_status member_send(void *context, const void *from, uint64_t bytes, uint32_t to,
                             void *stream)
{
    member *m = context;
    ga_status status = call(m, "send");
    (void)stream;
    if (status != GA_OK) {
        return status;
    }
    ranks_message *message = malloc(sizeof *message + bytes);
    if (!message || !bytes || to >= m->all->count || to == m->rank) {
        abort(); /* against the rules of an exchange */
    }
    *message = (ranks_message){.bytes = bytes};
    memcpy(message->content, from, bytes);
    pthread_mutex_lock(&m->all->lock);
    ranks_message **at = &m->all->queues[m->rank][to];
    while (*at) {
        at = &(*at)->next;
    }
    *at = message;
    pthread_cond_broadcast(&m->all->changed);
    pthread_mutex_unlock(&m->all->lock);
    return GA_OK;
}

static ga_status member_receive(void *context, void *to, uint64_t bytes, uint32_t from,
                                void *stream)
{
    member *m = context;
    ga_status status = call(m, "receive");
    (void)stream;
    if (m->count == CALLS_MOST || !bytes || from >= m->all->count || from == m->rank) {
        abort();
    }
    m->receipts[m->count++] = (receipt){to, bytes, from};
    return status;
}

static ga_status take(member *m, const receipt *r, const struct timespec *until)
{
    ranks_message **queue = &m->all->queues[r->from][m->rank];
    while (!*queue) {
        if (!wait_for_change(m, until)) {
            return late(m);
        }
    }
    ranks_message *message = *queue;
    if (message->bytes != r->bytes) {
        abort(); /* messages do not match */
    }
    *queue = message->next;
    memcpy(r->to, message->content, r->bytes);
    free(message);
    return GA_OK;
}

static ga_status member_end(void *context, void *stream)
{
    member *m = context;
    struct timespec until = limit_of(m);
    ga_status status = call(m, "end");
    (void)stream;
    pthread_mutex_lock(&m->all->lock);
    for (uint32_t i = 0; status == GA_OK && i < m->count; i++) {
        status = take(m, &m->receipts[i], &until);
    }
    pthread_mutex_unlock(&m->all->lock);
    return status;
}

/* With the lock held. The last to arrive publishes the result. It stays until all have arrived at
 * the next agreement, and so have read it. */
static ga_status meet(member *m, uint64_t *values, uint32_t count)
{
    ranks *all = m->all;
    struct timespec until = limit_of(m);
    uint64_t round = all->round;
    if (!all->arrived) {
        all->largest = calloc(count, sizeof *values);
    }
    for (uint32_t i = 0; i < count; i++) {
        all->largest[i] = values[i] > all->largest[i] ? values[i] : all->largest[i];
    }
    if (++all->arrived == all->count) {
        free(all->result);
        all->result = all->largest;
        all->largest = NULL;
        all->arrived = 0;
        all->round++;
        pthread_cond_broadcast(&all->changed);
    }
    while (all->round == round) {
        if (!wait_for_change(m, &until)) {
            return late(m);
        }
    }
    memcpy(values, all->result, count * sizeof *values);
    return GA_OK;
}

static ga_status member_largest(void *context, uint64_t *values, uint32_t count, void *stream)
{
    member *m = context;
    ga_status status = call(m, "largest");
    (void)stream;
    if (status != GA_OK) {
        return status;
    }
    pthread_mutex_lock(&m->all->lock);
    status = meet(m, values, count);
    pthread_mutex_unlock(&m->all->lock);
    return status;
}

static ga_status member_wait(void *context, void *stream)
{
    (void)stream;
    return call(context, "wait");
}

static ga_status member_share(void *context, ga_shared *out, uint64_t bytes, uint64_t *word,
                              void *stream)
{
    member *m = context;
    *word = 0;
    m->all->blocks[m->rank] = m->all->shares ? malloc(bytes) : NULL;
    *out = (ga_shared){m->all->blocks[m->rank], m->all->shares};
    return member_largest(context, word, 1, stream);
}

static void member_unshare(void *context, void *block)
{
    member *m = context;
    if (block != m->all->blocks[m->rank]) {
        abort();
    }
    free(block);
}

static ga_status member_meet(void *context, void *stream)
{
    uint64_t none = 0;
    return member_largest(context, &none, 1, stream);
}

/* The place in the block of another rank that `at` is in the own one. */
static char *place_at(const member *m, const void *at, uint64_t bytes, uint32_t rank)
{
    if (!bytes || rank >= m->all->count || rank == m->rank) {
        abort();
    }
    return m->all->blocks[rank] + ((const char *)at - m->all->blocks[m->rank]);
}

static ga_status member_put(void *context, const void *from, void *at, uint64_t bytes, uint32_t to,
                            void *stream)
{
    member *m = context;
    ga_status status = call(m, "put");
    (void)stream;
    if (status == GA_OK) {
        memcpy(place_at(m, at, bytes, to), from, bytes);
    }
    return status;
}

static ga_status member_fetch(void *context, void *to, const void *at, uint64_t bytes,
                              uint32_t from, void *stream)
{
    member *m = context;
    ga_status status = call(m, "fetch");
    (void)stream;
    if (status == GA_OK) {
        memcpy(to, place_at(m, at, bytes, from), bytes);
    }
    return status;
}

/* Messages arrive only in calls. */
static void member_abort(void *context)
{
    member *m = context;
    ranks_leave(m->all, m->rank);
}

static void member_close(void *context)
{
    free(context);
}

ga_exchange ranks_exchange(ranks *all, uint32_t rank)
{
    member *m = calloc(1, sizeof *m);
    m->all = all;
    m->rank = rank;
    return (ga_exchange){.exchange_size = sizeof(ga_exchange),
                         .context = m,
                         .rank = rank,
                         .ranks = all->count,
                         .device = -1,
                         .begin = member_begin,
                         .send = member_send,
                         .receive = member_receive,
                         .end = member_end,
                         .largest = member_largest,
                         .wait = member_wait,
                         .abort = member_abort,
                         .share = member_share,
                         .unshare = member_unshare,
                         .meet = member_meet,
                         .put = member_put,
                         .fetch = member_fetch,
                         .close = member_close};
}

typedef struct start {
    ranks *all;
    ranks_work *work;
    void *context;
    uint32_t rank;
} start;

static void *run(void *argument)
{
    const start *s = argument;
    s->work(s->all, s->rank, s->context);
    return NULL;
}

void ranks_run(ranks *all, ranks_work *work, void *context)
{
    pthread_t threads[RANKS_MOST];
    start starts[RANKS_MOST];
    for (uint32_t i = 0; i < all->count; i++) {
        starts[i] = (start){all, work, context, i};
        if (pthread_create(&threads[i], NULL, run, &starts[i])) {
            abort();
        }
    }
    for (uint32_t i = 0; i < all->count; i++) {
        pthread_join(threads[i], NULL);
    }
}
