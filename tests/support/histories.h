/* SPDX-License-Identifier: MIT
 *
 * Short histories of a map, each of which must be linearizable: a few threads, a few keys, a few
 * calls of each. A call is recorded with the moments of its begin and end, and its result. A
 * history is right if its calls can be put in an order in which each result is right, and no call
 * comes before one that had ended when it began. Calls on different keys are independent, so each
 * key is checked by itself, by trying all orders (Wing and Gong's method).
 */
#ifndef GPUALLOC_TESTS_SUPPORT_HISTORIES_H
#define GPUALLOC_TESTS_SUPPORT_HISTORIES_H

#include "moments.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    HISTORY_MAX = 24 /* calls */
};

typedef enum history_kind {
    HISTORY_LOOKUP = 0,
    HISTORY_INSERT,  /* only where the key is not there */
    HISTORY_UPSERT,  /* replaces an existing value, too */
    HISTORY_REPLACE, /* only where it is */
    HISTORY_COMPARE, /* and its value is `expected` */
    HISTORY_ADD,     /* to an existing value, otherwise an insert */
    HISTORY_REMOVE,
    HISTORY_LOOKUP_ALL, /* a lookup and a removal of a key that may have several pairs */
    HISTORY_REMOVE_ALL, /* without saying its value */
    HISTORY_KINDS
} history_kind;

/* The result: the key's presence and its value. Inserted values are never 0. */
typedef struct history_call {
    history_kind kind;
    uint64_t key, value, expected;
    bool found;
    uint64_t was;
    uint64_t began, ended;
} history_call;

/* ---- the checker ---------------------------------------------------------------------------- */

/* The state of a key: `value` is 0 if it is absent. */
static bool history_answers(const history_call *c, uint64_t *value)
{
    bool there = *value != 0;
    bool says = c->kind != HISTORY_REMOVE_ALL;
    if (c->found != there || (there && says && c->was != *value)) {
        return false;
    }
    switch (c->kind) {
    case HISTORY_INSERT:
        *value = there ? *value : c->value;
        break;
    case HISTORY_UPSERT:
        *value = c->value;
        break;
    case HISTORY_REPLACE:
        *value = there ? c->value : 0;
        break;
    case HISTORY_COMPARE:
        *value = there && *value == c->expected ? c->value : *value;
        break;
    case HISTORY_ADD:
        *value += c->value;
        break;
    case HISTORY_REMOVE:
    case HISTORY_REMOVE_ALL:
        *value = 0;
        break;
    default:
        break;
    }
    return true;
}

/* Returns true if the calls that are not in `done` can follow in the key's present state. Sets that
 * failed are remembered with their value. */
typedef struct history_search {
    const history_call *calls[HISTORY_MAX];
    uint32_t count;
    uint32_t failed_done[256];
    uint64_t failed_value[256];
    uint32_t failed;
} history_search;

static bool history_failed_before(const history_search *s, uint32_t done, uint64_t value)
{
    for (uint32_t i = 0; i < s->failed && i < 256; i++) {
        if (s->failed_done[i] == done && s->failed_value[i] == value) {
            return true;
        }
    }
    return false;
}

/* No other pending call ended before this one began. */
static bool history_may_be_next(const history_search *s, uint32_t done, uint32_t which)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (!(done >> i & 1) && s->calls[i]->ended < s->calls[which]->began) {
            return false;
        }
    }
    return true;
}

static bool history_can_follow(history_search *s, uint32_t done, uint64_t value)
{
    if (done == (1u << s->count) - 1) {
        return true;
    }
    if (history_failed_before(s, done, value)) {
        return false;
    }
    for (uint32_t i = 0; i < s->count; i++) {
        uint64_t next = value;
        if (!(done >> i & 1) && history_may_be_next(s, done, i) &&
            history_answers(s->calls[i], &next) && history_can_follow(s, done | 1u << i, next)) {
            return true;
        }
    }
    s->failed_done[s->failed % 256] = done;
    s->failed_value[s->failed++ % 256] = value;
    return false;
}

/* Returns true if the calls on `key`, of `count`, at most HISTORY_MAX, are linearizable. The key
 * is absent at first. */
static bool history_linearizable(const history_call *calls, uint32_t count, uint64_t key)
{
    history_search s = {.count = 0, .failed = 0};
    for (uint32_t i = 0; i < count; i++) {
        if (calls[i].key == key) {
            s.calls[s.count++] = &calls[i];
        }
    }
    return history_can_follow(&s, 0, 0);
}

static void history_print(const history_call *calls, uint32_t count, uint64_t key)
{
    for (uint32_t i = 0; i < count; i++) {
        const history_call *c = &calls[i];
        if (c->key == key) {
            fprintf(stderr, "kind %d value %llu expected %llu was %d %llu at %llu to %llu\n",
                    (int)c->kind, (unsigned long long)c->value, (unsigned long long)c->expected,
                    c->found, (unsigned long long)c->was, (unsigned long long)c->began,
                    (unsigned long long)c->ended);
        }
    }
}

/* Test the checker itself with right and wrong histories: NULL, or its error. */
static const char *history_try_checker(void)
{
    const history_call right[] = {
        {HISTORY_INSERT, 0, 1, 0, false, 0, 1, 4}, /* overlaps the lookup, which is before */
        {HISTORY_LOOKUP, 0, 0, 0, false, 0, 2, 3},     {HISTORY_UPSERT, 0, 2, 0, true, 1, 5, 6},
        {HISTORY_REMOVE, 0, 0, 0, true, 2, 7, 9},      {HISTORY_INSERT, 0, 3, 0, false, 0, 8, 10},
        {HISTORY_ADD, 0, 4, 0, true, 3, 11, 12},       {HISTORY_LOOKUP, 0, 0, 0, true, 7, 13, 14},
        {HISTORY_REMOVE_ALL, 0, 0, 0, true, 0, 15, 16}};
    history_call wrong[] = {{HISTORY_INSERT, 0, 1, 0, false, 0, 1, 2},
                            {HISTORY_LOOKUP, 0, 0, 0, false, 0, 3, 4}};
    const history_call twice[] = {{HISTORY_INSERT, 0, 1, 0, false, 0, 1, 2},
                                  {HISTORY_REMOVE, 0, 0, 0, true, 1, 3, 6},
                                  {HISTORY_REMOVE_ALL, 0, 0, 0, true, 0, 4, 5}};
    if (!history_linearizable(right, 8, 0)) {
        return "the checker refuses what is right";
    }
    if (history_linearizable(wrong, 2, 0)) {
        return "the checker takes a lost key";
    }
    if (history_linearizable(twice, 3, 0)) {
        return "the checker takes a key that is removed twice";
    }
    wrong[1].began = 1;
    return history_linearizable(wrong, 2, 0) ? NULL : "the checker refuses calls that overlap";
}

#endif
