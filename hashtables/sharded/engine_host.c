/* SPDX-License-Identifier: MIT
 *
 * Memory of the host: all work is done before a call returns.
 */
#include "all_team.h"
#include "sharded.h"

#include "platform/libc.h"

#include <string.h>

/* The room is taken at open, so that no sort fails in the middle of a batch. */
static ga_status host_open(ga_slabhash_sharded *table)
{
    table->room = ga_libc.malloc(sizeof(ga_sharded_host_room));
    return table->room ? GA_OK
                       : ga_fail(GA_ERR_MEMORY, "slabhash: no memory for sorts of %zu bytes",
                                 sizeof(ga_sharded_host_room));
}

static void host_close(ga_slabhash_sharded *table)
{
    ga_libc.free(table->room);
}

static ga_sharded_room *room_of(const ga_slabhash_sharded *table)
{
    return &((ga_sharded_host_room *)table->room)->shared;
}

static ga_status host_enter(ga_slabhash_sharded *table, void *scope)
{
    (void)table;
    (void)scope;
    return GA_OK;
}

static void host_leave(void *scope)
{
    (void)scope;
}

static ga_status host_allocate(ga_slabhash_sharded *table, void **block, uint64_t bytes)
{
    (void)table;
    *block = ga_libc.malloc(bytes ? bytes : 1);
    return *block ? GA_OK
                  : ga_fail(GA_ERR_MEMORY, "slabhash: no memory for an exchange of %llu bytes",
                            (unsigned long long)bytes);
}

static void host_free(ga_slabhash_sharded *table, void *block)
{
    (void)table;
    ga_libc.free(block);
}

static ga_status host_fill(ga_slabhash_sharded *table, void *at, int byte, uint64_t bytes,
                           void *stream)
{
    (void)table;
    (void)stream;
    memset(at, byte, bytes);
    return GA_OK;
}

static ga_status host_copy(ga_slabhash_sharded *table, void *to, const void *from, uint64_t bytes,
                           void *stream)
{
    (void)table;
    (void)stream;
    memcpy(to, from, bytes);
    return GA_OK;
}

static ga_status host_wait(ga_slabhash_sharded *table, void *stream)
{
    (void)table;
    (void)stream;
    return GA_OK;
}

static ga_status host_mark(ga_slabhash_sharded *table, ga_sharded_mark mark, void *stream)
{
    (void)table;
    (void)mark;
    (void)stream;
    return GA_OK;
}

static uint32_t least(uint64_t count, uint32_t most)
{
    return count < most ? (uint32_t)count : most;
}

static ga_status host_count(ga_slabhash_sharded *table, ga_sharded_sort *sort, void *stream)
{
    (void)table;
    (void)stream;
    for (uint64_t i = 0; i < sort->count; i++) {
        uint64_t key = ga_sharded_load(sort->keys, i, GA_SHARDED_WIDTH(sort->is_wide));
        sort->cursors[ga_sharded_bin(&sort->division, key)]++;
    }
    return GA_OK;
}

static ga_status host_combine(ga_slabhash_sharded *table, ga_sharded_sort *sort, void *stream)
{
    (void)stream;
    for (uint64_t first = 0; first < sort->count;) {
        uint32_t n = least(sort->count - first, GA_SHARDED_SORT_MOST(sort->is_wide));
        ga_sharded_combine_team(sort, first, n, sort->is_wide, room_of(table));
        first += n;
    }
    return GA_OK;
}

static ga_status host_pad(ga_slabhash_sharded *table, ga_sharded_pad *pad, void *stream)
{
    (void)table;
    (void)stream;
    for (uint32_t bin = 0; bin < pad->bins; bin++) {
        ga_sharded_pad_team(pad, bin);
    }
    return GA_OK;
}

static ga_status host_sort(ga_slabhash_sharded *table, ga_sharded_sort *sort, void *stream)
{
    (void)stream;
    for (uint64_t first = 0; first < sort->count;) {
        uint32_t n = least(sort->count - first, GA_SHARDED_SORT_MOST(sort->is_wide));
        if (sort->is_wide) {
            ga_sharded_sort_team(sort, first, n, 1, room_of(table));
        } else {
            ga_sharded_sort_team(sort, first, n, 0, room_of(table));
        }
        first += n;
    }
    return GA_OK;
}

static ga_status host_gather(ga_slabhash_sharded *table, ga_sharded_gather *gather, void *stream)
{
    uint32_t counts[GA_SHARDED_RESULTS] = {0};
    (void)stream;
    for (uint64_t first = 0; first < gather->count;) {
        uint32_t n = least(gather->count - first, GA_SHARDED_SORT_MOST(gather->is_wide));
        ga_sharded_gather_team(gather, first, n, gather->is_wide, room_of(table), counts);
        first += n;
    }
    for (uint32_t i = 0; gather->totals && i < GA_SHARDED_RESULTS; i++) {
        gather->totals[i] += counts[i];
    }
    return GA_OK;
}

static ga_status host_order(ga_slabhash_sharded *table, ga_sharded_order *order, void *stream)
{
    (void)stream;
    for (uint64_t first = 0; first < order->count;) {
        uint32_t n = least(order->count - first, GA_SHARDED_SORT_MOST(order->is_wide));
        ga_sharded_order_team(order, first, n, room_of(table));
        first += n;
    }
    return GA_OK;
}

static ga_status host_move(ga_slabhash_sharded *table, ga_sharded_move *move, void *stream)
{
    (void)table;
    (void)stream;
    for (uint64_t first = 0; first < move->count;) {
        uint32_t n = least(move->count - first, GA_SHARDED_SORT_BYTES);
        ga_sharded_move_team(move, first, n);
        first += n;
    }
    return GA_OK;
}

enum {
    SLICE_LEAST = 1 << 16
};

const ga_sharded_engine ga_sharded_host = {
    .slice_least = SLICE_LEAST,
    .open = host_open,
    .close = host_close,
    .enter = host_enter,
    .leave = host_leave,
    .allocate = host_allocate,
    .free_block = host_free,
    .allocate_host = host_allocate,
    .free_host = host_free,
    .fill = host_fill,
    .put = host_copy,
    .get = host_copy,
    .wait = host_wait,
    .count = host_count,
    .combine = host_combine,
    .pad = host_pad,
    .sort = host_sort,
    .gather = host_gather,
    .order = host_order,
    .move = host_move,
    .mark = host_mark,
    .follow = host_mark,
};
