/* SPDX-License-Identifier: MIT
 *
 * Short histories of a multimap: checks for each pair (all values differ), and for the number of
 * pairs. A call is recorded with the moments of its begin and end, and its result. A multimap does
 * not promise that calls can be put in one order: a search may miss a key whose pairs come and go.
 * It promises that
 *
 *     each inserted pair is deleted once, or is there at the end;
 *     a pair that is found was inserted, and not deleted before;
 *     a pair that is there from before a search until after it is found and counted once;
 *     a pair that was there before all pairs of its key were deleted is not there afterwards.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_BAGS_H
#define GPUALLOC_TESTS_SUPPORT_BAGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    BAG_CALLS = 32, /* calls of a history, with one for each key at its end */
    BAG_VALUES = 40 /* values that a call for all can return */
};

typedef enum bag_kind {
    BAG_INSERT = 0,
    BAG_SEARCH,
    BAG_SEARCH_ALL,
    BAG_DELETE,
    BAG_DELETE_ALL, /* says how many, not which */
    BAG_KINDS
} bag_kind;

typedef struct bag_call {
    bag_kind kind;
    uint64_t key, value; /* of an insert: never 0 */
    uint64_t count;      /* found, or deleted */
    uint64_t values[BAG_VALUES];
    uint64_t began, ended;
} bag_call;

/* The calls on one key; the last one is a BAG_SEARCH_ALL after all others. */
typedef struct bag_history {
    const bag_call *calls[BAG_CALLS];
    uint32_t count;
    bool valued; /* results have values */
} bag_history;

static bool bag_says(const bag_call *c, uint64_t value)
{
    for (uint64_t i = 0; i < c->count && i < BAG_VALUES; i++) {
        if (c->values[i] == value) {
            return c->kind != BAG_INSERT && c->kind != BAG_DELETE_ALL;
        }
    }
    return false;
}

/* ---- one pair -------------------------------------------------------------------------------- */

/* The moment of its deletion: not before `first`, and before `last`; UINT64_MAX: never. */
typedef struct bag_end {
    uint64_t first, last;
} bag_end;

/* The pair was deleted by a call for all, because no other call reports it. NULL if some call did,
 * or the pair was there after a call for all that must have seen it. */
static const char *bag_taken_with_all(const bag_history *h, const bag_call *in, bag_end *end)
{
    uint64_t sure = UINT64_MAX;
    *end = (bag_end){UINT64_MAX, 0};
    for (uint32_t i = 0; i < h->count; i++) {
        const bag_call *c = h->calls[i];
        if (c->kind == BAG_DELETE_ALL && c->ended > in->began && c->count) {
            end->first = c->began < end->first ? c->began : end->first;
            end->last = c->ended > end->last ? c->ended : end->last;
            sure = c->began > in->ended && c->ended < sure ? c->ended : sure;
        }
    }
    end->last = sure < end->last ? sure : end->last;
    return end->last ? NULL : "a pair is lost";
}

static const char *bag_when_taken(const bag_history *h, const bag_call *in, bag_end *end)
{
    uint32_t taken = 0;
    *end = (bag_end){UINT64_MAX, UINT64_MAX};
    for (uint32_t i = 0; i < h->count; i++) {
        if (h->calls[i]->kind == BAG_DELETE && bag_says(h->calls[i], in->value)) {
            *end = (bag_end){h->calls[i]->began, h->calls[i]->ended};
            taken++;
        }
    }
    bool stays = bag_says(h->calls[h->count - 1], in->value);
    if (taken + stays > 1) {
        return taken > 1 ? "a pair is taken out twice" : "a pair that was taken out is there";
    }
    if (!taken && !stays) {
        return bag_taken_with_all(h, in, end);
    }
    for (uint32_t i = 0; i < h->count; i++) {
        const bag_call *c = h->calls[i];
        if (c->kind == BAG_DELETE_ALL && c->began > in->ended && c->ended < end->first) {
            return "a pair is there after all of its key were taken out";
        }
    }
    return NULL;
}

static const char *bag_check_pair(const bag_history *h, const bag_call *in)
{
    bag_end end;
    const char *wrong = bag_when_taken(h, in, &end);
    for (uint32_t i = 0; i < h->count && !wrong; i++) {
        const bag_call *c = h->calls[i];
        bool says = bag_says(c, in->value);
        bool looks = c->kind != BAG_INSERT && c->kind != BAG_DELETE_ALL;
        bool stays = in->ended < c->began && end.first > c->ended;
        if (says && (c->ended < in->began || c->began > end.last)) {
            wrong = "a pair is found before it was put in, or after it was taken out";
        }
        if (looks && stays && !says && (c->kind == BAG_SEARCH_ALL || !c->count)) {
            wrong = "a pair that stays is not found";
        }
    }
    return wrong;
}

/* The values that a call found: each was inserted, and occurs once. */
static const char *bag_check_values(const bag_history *h, const bag_call *c)
{
    for (uint64_t i = 0; i < c->count && i < BAG_VALUES; i++) {
        uint32_t put = 0, seen = 0;
        for (uint32_t j = 0; j < h->count; j++) {
            put += h->calls[j]->kind == BAG_INSERT && h->calls[j]->value == c->values[i];
        }
        for (uint64_t j = 0; j < c->count && j < BAG_VALUES; j++) {
            seen += c->values[j] == c->values[i];
        }
        if (put != 1 || seen != 1) {
            return put == 1 ? "a pair is counted twice" : "a pair that nobody put in";
        }
    }
    return NULL;
}

/* ---- how many -------------------------------------------------------------------------------- */

/* The number of pairs that the call must have seen, because no more were deleted, and the number
 * that it can have seen. */
static const char *bag_check_count(const bag_history *h, const bag_call *c)
{
    int64_t least = 0, max = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        const bag_call *other = h->calls[i];
        bool out = other->kind == BAG_DELETE || other->kind == BAG_DELETE_ALL;
        if (other == c) {
            continue;
        }
        if (other->kind == BAG_INSERT) {
            least += other->ended < c->began;
            max += other->began < c->ended;
        } else if (out) {
            least -= other->began < c->ended ? (int64_t)other->count : 0;
            max -= other->ended < c->began ? (int64_t)other->count : 0;
        }
    }
    bool all = c->kind == BAG_SEARCH_ALL;
    least = !all && least > 1 && c->kind != BAG_DELETE_ALL ? 1 : least;
    return (int64_t)c->count < least ? "pairs that stay are not counted"
           : (int64_t)c->count > max ? "more pairs than there can be"
                                     : NULL;
}

/* The error in the calls on `key`, or NULL. */
static const char *bag_wrong(const bag_call *calls, uint32_t count, uint64_t key, bool valued)
{
    bag_history h = {.valued = valued};
    const char *wrong = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (calls[i].key == key) {
            h.calls[h.count++] = &calls[i];
        }
    }
    for (uint32_t i = 0; i < h.count && !wrong; i++) {
        const bag_call *c = h.calls[i];
        bool is_insert = c->kind == BAG_INSERT;
        wrong = is_insert ? NULL : bag_check_count(&h, c);
        if (!wrong && valued) {
            wrong = is_insert                   ? bag_check_pair(&h, c)
                    : c->kind != BAG_DELETE_ALL ? bag_check_values(&h, c)
                                                : NULL;
        }
    }
    return wrong;
}

static void bag_print(const bag_call *calls, uint32_t count, uint64_t key)
{
    static const char *const names[BAG_KINDS] = {"insert", "search", "search all", "delete",
                                                 "delete all"};
    for (uint32_t i = 0; i < count; i++) {
        const bag_call *c = &calls[i];
        if (c->key != key) {
            continue;
        }
        fprintf(stderr, "%llu to %llu: %s %llu, %llu found:", (unsigned long long)c->began,
                (unsigned long long)c->ended, names[c->kind], (unsigned long long)c->value,
                (unsigned long long)c->count);
        for (uint64_t j = 0; c->kind != BAG_DELETE_ALL && j < c->count && j < BAG_VALUES; j++) {
            fprintf(stderr, " %llu", (unsigned long long)c->values[j]);
        }
        fprintf(stderr, "\n");
    }
}

/* Test the checker itself with right and wrong histories: NULL, or its error. */
static const char *bag_try_checker(void)
{
    bag_call calls[] = {
        {.kind = BAG_INSERT, .value = 1, .began = 1, .ended = 2},
        {.kind = BAG_INSERT, .value = 2, .began = 3, .ended = 8},
        {.kind = BAG_DELETE, .count = 1, .values = {2}, .began = 4, .ended = 7},
        {.kind = BAG_SEARCH, .count = 1, .values = {2}, .began = 5, .ended = 6},
        {.kind = BAG_INSERT, .value = 3, .began = 9, .ended = 10},
        {.kind = BAG_DELETE_ALL, .count = 2, .began = 11, .ended = 14},
        {.kind = BAG_SEARCH, .count = 0, .began = 12, .ended = 13},
        {.kind = BAG_SEARCH_ALL, .count = 0, .began = 15, .ended = 16},
    };
    bag_call *last = &calls[7];
    if (bag_wrong(calls, 8, 0, true) || bag_wrong(calls, 8, 0, false)) {
        return "the checker of bags refuses what is right";
    }
    last->count = 1;
    last->values[0] = 3;
    if (!bag_wrong(calls, 8, 0, true) || !bag_wrong(calls, 8, 0, false)) {
        return "the checker of bags takes a pair that was taken out";
    }
    last->count = 0;
    calls[5].count = 1;
    if (!bag_wrong(calls, 8, 0, false)) {
        return "the checker of bags takes a lost pair";
    }
    calls[5].count = 2;
    calls[6].began = 10;
    calls[6].ended = 10;
    return bag_wrong(calls, 8, 0, true) ? NULL : "the checker of bags takes a pair not found";
}

#endif
