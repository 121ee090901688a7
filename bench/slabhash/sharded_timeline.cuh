/* SPDX-License-Identifier: MIT
 *
 * When the messages and the shard's work of a batch begin and end: an exchange and a shard with
 * events around their work.
 */
#ifndef GPUALLOC_BENCH_SLABHASH_SHARDED_TIMELINE_CUH
#define GPUALLOC_BENCH_SLABHASH_SHARDED_TIMELINE_CUH

#include "sharded_ranks.cuh"

#include <vector>

namespace
{

/* Work on a stream of the device, between two events. */
struct interval {
    const char *what;
    uint64_t amount; /* bytes of messages, or requests */
    cudaEvent_t begin, end;
};

/* Around an exchange and a shard. */
struct watched {
    ga_exchange exchange;
    ga_shard shard;
    cudaEvent_t start;
    std::vector<interval> intervals;
    bool in_group, is_on;
};

void begin_interval(watched &w, const char *what, uint64_t amount, void *stream)
{
    interval i = {what, amount, NULL, NULL};
    check(cudaEventCreate(&i.begin), "event");
    check(cudaEventCreate(&i.end), "event");
    check(cudaEventRecord(i.begin, (cudaStream_t)stream), "event");
    w.intervals.push_back(i);
}

void end_interval(watched &w, void *stream)
{
    check(cudaEventRecord(w.intervals.back().end, (cudaStream_t)stream), "event");
}

ga_status watched_begin(void *context)
{
    watched &w = *(watched *)context;
    w.in_group = false;
    return w.exchange.begin(w.exchange.context);
}

/* Sent messages are copied after the group has ended, so the first one is where it begins. */
void note_message(watched &w, uint64_t bytes, void *stream)
{
    if (w.is_on && !w.in_group) {
        begin_interval(w, "messages", 0, stream);
        w.in_group = true;
    }
    if (w.is_on) {
        w.intervals.back().amount += bytes;
    }
}

ga_status watched_send(void *context, const void *from, uint64_t bytes, uint32_t to, void *stream)
{
    watched &w = *(watched *)context;
    note_message(w, bytes, stream);
    return w.exchange.send(w.exchange.context, from, bytes, to, stream);
}

ga_status watched_receive(void *context, void *to, uint64_t bytes, uint32_t from, void *stream)
{
    watched &w = *(watched *)context;
    note_message(w, 0, stream);
    return w.exchange.receive(w.exchange.context, to, bytes, from, stream);
}

ga_status watched_end(void *context, void *stream)
{
    watched &w = *(watched *)context;
    ga_status status = w.exchange.end(w.exchange.context, stream);
    if (w.is_on && w.in_group) {
        end_interval(w, stream);
    }
    return status;
}

/* A copy is on the stream at once, and may be the last one of its group. */
ga_status note_copy(watched &w, ga_status status, void *stream)
{
    if (w.is_on) {
        end_interval(w, stream);
    }
    return status;
}

ga_status watched_put(void *context, const void *from, void *at, uint64_t bytes, uint32_t to,
                      void *stream)
{
    watched &w = *(watched *)context;
    note_message(w, bytes, stream);
    return note_copy(w, w.exchange.put(w.exchange.context, from, at, bytes, to, stream), stream);
}

ga_status watched_fetch(void *context, void *to, const void *at, uint64_t bytes, uint32_t from,
                        void *stream)
{
    watched &w = *(watched *)context;
    note_message(w, bytes, stream);
    return note_copy(w, w.exchange.fetch(w.exchange.context, to, at, bytes, from, stream), stream);
}

ga_status watched_share(void *context, ga_shared *out, uint64_t bytes, uint64_t *word, void *stream)
{
    watched &w = *(watched *)context;
    return w.exchange.share(w.exchange.context, out, bytes, word, stream);
}

ga_status watched_meet(void *context, void *stream)
{
    watched &w = *(watched *)context;
    w.in_group = false;
    if (w.is_on) {
        begin_interval(w, "meeting", 0, stream);
    }
    ga_status status = w.exchange.meet(w.exchange.context, stream);
    if (w.is_on) {
        end_interval(w, stream);
    }
    return status;
}

void watched_unshare(void *context, void *block)
{
    watched &w = *(watched *)context;
    w.exchange.unshare(w.exchange.context, block);
}

ga_status watched_largest(void *context, uint64_t *values, uint32_t count, void *stream)
{
    watched &w = *(watched *)context;
    if (w.is_on) {
        begin_interval(w, "agreement", count * sizeof *values, stream);
    }
    ga_status status = w.exchange.largest(w.exchange.context, values, count, stream);
    if (w.is_on) {
        end_interval(w, stream);
    }
    return status;
}

ga_status watched_wait(void *context, void *stream)
{
    watched &w = *(watched *)context;
    return w.exchange.wait(w.exchange.context, stream);
}

void watched_register(void *context, void *block, uint64_t bytes)
{
    watched &w = *(watched *)context;
    w.exchange.register_memory(w.exchange.context, block, bytes);
}

void watched_deregister(void *context, void *block)
{
    watched &w = *(watched *)context;
    w.exchange.deregister_memory(w.exchange.context, block);
}

void watched_guard(void *context, bool begins)
{
    watched &w = *(watched *)context;
    w.exchange.guard(w.exchange.context, begins);
}

void watched_close(void *context)
{
    watched &w = *(watched *)context;
    w.exchange.close(w.exchange.context);
}

void watched_abort(void *context)
{
    watched &w = *(watched *)context;
    w.exchange.abort(w.exchange.context);
}

/* The exchange with events around its work. */
ga_exchange watch(watched &w)
{
    ga_exchange exchange = w.exchange;
    exchange.context = &w;
    exchange.begin = watched_begin;
    exchange.send = watched_send;
    exchange.receive = watched_receive;
    exchange.end = watched_end;
    exchange.largest = watched_largest;
    exchange.wait = watched_wait;
    exchange.abort = watched_abort;
    exchange.register_memory = watched_register;
    exchange.deregister_memory = watched_deregister;
    exchange.share = watched_share;
    exchange.unshare = watched_unshare;
    exchange.meet = watched_meet;
    exchange.guard = watched_guard;
    exchange.put = watched_put;
    exchange.fetch = watched_fetch;
    exchange.close = watched_close;
    return exchange;
}

/* From the first group of requests or answers to the last. That of the counts is small. */
double seconds_of_messages(const watched &w)
{
    const interval *first = NULL, *last = NULL;
    float ms = 0;
    for (const interval &i : w.intervals) {
        if (i.amount >= 1000000 && !strcmp(i.what, "messages")) {
            first = first ? first : &i;
            last = &i;
        }
    }
    if (first) {
        check(cudaEventElapsedTime(&ms, first->begin, last->end), "event");
    }
    return (double)ms / 1e3;
}

ga_status watched_run(void *context, const ga_slabhash_batch *batches, uint32_t count,
                      uint64_t *counts, void *stream)
{
    watched &w = *(watched *)context;
    if (w.is_on) {
        uint64_t requests = 0;
        for (uint32_t i = 0; i < count; i++) {
            requests += batches[i].count;
        }
        begin_interval(w, "shard", requests, stream);
    }
    ga_status status = w.shard.run(w.shard.table, batches, count, counts, stream);
    if (w.is_on) {
        end_interval(w, stream);
    }
    return status;
}

ga_status watched_shard_close(void *context)
{
    watched &w = *(watched *)context;
    return w.shard.close(w.shard.table);
}

void print_timeline(const watched &w)
{
    printf("timeline of a search on rank 0, in ms from its start\n");
    for (const interval &i : w.intervals) {
        float begin = 0, end = 0;
        check(cudaEventElapsedTime(&begin, w.start, i.begin), "event");
        check(cudaEventElapsedTime(&end, w.start, i.end), "event");
        printf("  %-10s %7.3f to %7.3f  %8.3f  %.0f %s\n", i.what, begin, end, end - begin,
               (double)i.amount / 1e6, i.what[0] == 's' ? "M requests" : "MB");
    }
}

} // namespace

#endif
