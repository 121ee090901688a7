/* SPDX-License-Identifier: MIT
 *
 * How a map of lines grows and shrinks.
 *
 *     a full line             becomes a link to a new node with its pairs, by one swap of its word
 *                             (make_room -> expand_line)
 *     a node with too many    is replaced, with all below it, by a node of another size, or by a
 *     links, without pairs,   null link: its lines are frozen one after the other, their pairs are
 *     or with an exhausted    copied, and the one link to the node is swapped
 *     version                 (make_room, compress_if_empty, rebuild_help -> rebuild_subtree)
 *
 * INVARIANT  A frozen line's word and pairs never change, so all threads that copy a frozen node
 *            make the same copy. One of them swaps the link; the others free their copies. No
 *            thread swaps a frozen link: the thread that froze it, or one that meets it, replaces
 *            the node above.
 *            A pair that was claimed but not published when its line was frozen or became a link is
 *            not in the map: its thread fails to publish it, and starts again.
 *
 * ORDER      LW1 among themselves: a pair was published before its line was frozen, and is copied;
 *            or its thread sees that the line is frozen. LE1: if two threads each remove the last
 *            pair of one of two lines, at least one sees both empty.
 *
 * PROGRESS   No thread waits for a thread that copies: every thread that has to change a frozen
 *            line copies too. A rebuild drops the claims in its lines, and their threads claim
 *            again. So that threads do not drop each other's claims forever, a line is CROWDED if
 *            no cell is free and some are only claimed: its replacement gets more lines or uses
 *            more bits of the hash, or, where no bits are left, becomes a deep node, which has no
 *            claims. Out of memory a node stays frozen, and calls that have to change it fail.
 */
#ifndef GPUALLOC_LFHT_REBUILD_H
#define GPUALLOC_LFHT_REBUILD_H

#include "path.h"

enum {
    REBUILD_STACK_PAIRS = 24 /* up to this many pairs are collected on the stack */
};

/* ---- making nodes --------------------------------------------------------------------------- */

static void *inline_alloc_node(ga_lfht *map, size_t size)
{
    void *node;
    return ga_alloc(map->heap, size, LINE_BYTES, &node) == GA_OK ? node : NULL;
}

/* Free everything that a link leads to. No other thread can reach it. */
static void inline_free_subtree(ga_lfht *map, lfht_word link)
{
    for (uint32_t i = 0; line_node(link) && i < line_location_count(link); i++) {
        lfht_word child = *line_location(link, i);
        if (child & LINE_LINK) {
            inline_free_subtree(map, child);
        }
    }
    ga_free(map->heap, line_node(link));
}

typedef struct node_maker {
    ga_lfht *map;
    uint64_t hash;   /* this hash's line gets room for one more pair */
    bool needs_room; /* ... if set */
    bool crowded;    /* make a deep node where no bits of the hash are left */
    uint64_t nodes;
    bool failed;
} node_maker;

static node_maker maker_of_path(const inline_path *path)
{
    return (node_maker){.map = path->map, .hash = path->hash, .needs_room = path->needs_room};
}

static uint32_t least_of(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Log2 of the lines for n pairs, up to `max`: on average at most 5/7 of the cells are used. */
static uint32_t lines_needed_log2(const ga_lfht *map, size_t n, uint32_t max)
{
    uint32_t log2 = 0;
    while (log2 < max && 7 * n > (size_t)5 * map->chain << log2) {
        log2++;
    }
    return log2;
}

static lfht_word make_deep(node_maker *maker, const lfht_item *items, size_t n)
{
    line_deep *deep = inline_alloc_node(maker->map, line_deep_size(n));
    maker->failed |= !deep;
    if (!deep) {
        return LINE_NULL_LINK;
    }
    maker->nodes++;
    deep->count = n;
    for (size_t i = 0; i < n; i++) {
        deep->pairs[i] = (line_pair){items[i].key, items[i].value};
    }
    return line_link_to(deep, LINE_SIZE_DEEP);
}

/* The content of a node: pairs in the order of their hashes, and the hash bits used above the
 * node. */
typedef struct node_plan {
    const lfht_item *items;
    size_t n;
    uint32_t used;
} node_plan;

static lfht_word make_children(node_maker *maker, node_plan plan, lfht_word link);

/* Make a node with 2^log2 lines. LINE_NULL_LINK if out of memory (`failed` is set), or if there are
 * no pairs. */
static lfht_word make_node_sized(node_maker *maker, node_plan plan, uint32_t log2)
{
    bool index = log2 > LINE_NODE_LOG2;
    uint32_t size = index ? LINE_SIZE_INDEX + log2 - LINE_NODE_LOG2 : log2;
    if (plan.n == 0) {
        return LINE_NULL_LINK;
    }
    if (plan.used == 64 && (plan.n >= maker->map->chain || maker->crowded)) {
        return make_deep(maker, plan.items, plan.n);
    }
    void *node = inline_alloc_node(maker->map, line_node_size(line_link_to(NULL, size)));
    maker->failed |= !node;
    return node ? make_children(maker, plan, line_link_to(node, size)) : LINE_NULL_LINK;
}

/* Make a node with at least 2^least lines. */
static lfht_word make_node_at_least(node_maker *maker, node_plan plan, uint32_t least)
{
    uint32_t log2 =
        lines_needed_log2(maker->map, plan.n, least_of(maker->map->chunk, 64 - plan.used));
    return make_node_sized(maker, plan, log2 > least ? log2 : least);
}

static lfht_word make_line(lfht_line *line, const lfht_item *items, size_t n)
{
    lfht_word word = 0;
    for (uint32_t i = 0; i < n; i++) {
        line->pairs[i] = (line_pair){items[i].key, items[i].value};
        word = line_set_tag(word, i, line_tag_of(items[i].hash));
    }
    return word;
}

/* Fill one location: a line, or a link to a further node if the pairs do not fit; in an index a
 * link to a node of 2^LINE_NODE_LOG2 lines. */
static void make_child(node_maker *maker, lfht_word link, lfht_word *location, node_plan plan)
{
    bool own = maker->needs_room && line_location_of(link, plan.used, maker->hash) == location;
    plan.used += line_hash_bits(link);
    if (line_is_index(link)) {
        *location = make_node_sized(maker, plan, LINE_NODE_LOG2);
        *line_expanded(link) += line_node(*location) ? *line_expanded(*location) : 0;
    } else if (plan.n + own <= maker->map->chain) {
        *location = make_line((lfht_line *)location, plan.items, plan.n);
    } else {
        *location = make_node_at_least(maker, plan, plan.used < 64);
        ++*line_expanded(link);
    }
}

static lfht_word make_children(node_maker *maker, node_plan plan, lfht_word link)
{
    size_t end = 0;
    maker->nodes++;
    *line_expanded(link) = 0;
    for (uint32_t i = 0; i < line_location_count(link); i++) {
        lfht_word *location = line_location(link, i);
        size_t first = end;
        while (end < plan.n &&
               line_location_of(link, plan.used, plan.items[end].hash) == location) {
            end++;
        }
        make_child(maker, link, location, (node_plan){plan.items + first, end - first, plan.used});
    }
    return link;
}

/* GA_ERR_MEMORY, and the new nodes freed, if any allocation failed. */
static ga_status maker_finish(const node_maker *maker, lfht_word link)
{
    if (maker->failed) {
        inline_free_subtree(maker->map, link);
    }
    return maker->failed ? GA_ERR_MEMORY : GA_OK;
}

/* ---- visiting a subtree: freeze, collect, retire -------------------------------------------- */

typedef enum rebuild_pass {
    PASS_FREEZE = 0, /* freeze every word, and count pairs and nodes */
    PASS_COLLECT,    /* copy the frozen pairs, in the order of their hashes */
    PASS_RETIRE      /* retire the nodes, which are unreachable */
} rebuild_pass;

/* The rebuild of a node and everything below it. Step `top` of the path leads there by `link`,
 * which is not frozen. */
typedef struct rebuild_state {
    inline_path *path;
    rebuild_pass pass;
    uint32_t top;
    lfht_word link;
    uint64_t nodes;
    size_t count;
    lfht_item *items;
    bool crowded;
} rebuild_state;

/* No cell is free and some are only claimed. Judged by the word that is frozen or swapped, so that
 * all threads that copy agree. */
static bool line_is_crowded(lfht_word word)
{
    return !line_free_cells(word) && line_count_cells(line_live_cells(word)) < LINE_PAIRS;
}

static lfht_word freeze_word(lfht_word *location)
{
    lfht_word word = lfht_load(location);
    while (!(word & LINE_FROZEN) && !GA_PLANTED(lfht_line_not_frozen) &&
           !lfht_cas(location, word, word | LINE_FROZEN)) {
        word = lfht_load(location);
    }
    return word;
}

/* Insert the pair into the items from `first` on, which are in the order of their hashes. */
static void collect_pair(rebuild_state *state, size_t first, line_pair pair)
{
    uint64_t hash = lfht_hash_of(state->path->map, pair.key);
    size_t i = state->count++;
    for (; i > first && state->items[i - 1].hash > hash; i--) {
        state->items[i] = state->items[i - 1];
    }
    state->items[i] = (lfht_item){hash, pair.key, pair.value};
}

static void collect_line(rebuild_state *state, const lfht_line *line, lfht_word word)
{
    size_t first = state->count;
    for (lfht_word cells = line_live_cells(word); cells; cells &= cells - 1) {
        const line_pair *pair = &line->pairs[line_first_cell(cells)];
        collect_pair(state, first,
                     (line_pair){line_read_half(&pair->key), line_read_half(&pair->value)});
    }
}

static void collect_deep(rebuild_state *state, const line_deep *deep)
{
    for (uint64_t i = 0; i < deep->count; i++) {
        collect_pair(state, state->count, deep->pairs[i]);
    }
}

static bool rebuild_visit_node(rebuild_state *state, lfht_word link, uint32_t slot);

static bool rebuild_visit_location(rebuild_state *state, lfht_word *location, uint32_t slot)
{
    lfht_word word = state->pass == PASS_FREEZE ? freeze_word(location) : lfht_load(location);
    if (word & LINE_LINK) {
        return !line_node(word) || rebuild_visit_node(state, word, slot);
    }
    if (state->pass == PASS_FREEZE) {
        state->count += line_count_cells(line_live_cells(word));
        state->crowded |= line_is_crowded(word);
    } else if (state->pass == PASS_COLLECT) {
        collect_line(state, (const lfht_line *)location, word);
    }
    return true;
}

/* Protect a node of the subtree, and validate that the step `top` still leads to the subtree. */
static bool rebuild_protect_node(rebuild_state *state, lfht_word link, uint32_t slot)
{
    path_set_slot(state->path, slot, line_node(link));
    return ga_hazard_load(state->path->hazards, state->path->steps[state->top].location) ==
           state->link;
}

/* Visit a node and everything below it. False if another thread has detached the subtree; never in
 * the pass PASS_RETIRE. */
static bool rebuild_visit_node(rebuild_state *state, lfht_word link, uint32_t slot)
{
    if (state->pass != PASS_RETIRE && !rebuild_protect_node(state, link, slot)) {
        return false;
    }
    for (uint32_t i = 0; i < line_location_count(link); i++) {
        if (!rebuild_visit_location(state, line_location(link, i), slot + 1)) {
            return false;
        }
    }
    if (line_is_deep(link) && state->pass == PASS_FREEZE) {
        state->count += ((const line_deep *)line_node(link))->count;
    } else if (line_is_deep(link) && state->pass == PASS_COLLECT) {
        collect_deep(state, line_node(link));
    }
    state->nodes += state->pass == PASS_FREEZE;
    if (state->pass == PASS_RETIRE) {
        ga_hazard_retire_to(state->path->hazards, line_node(link), line_node_size(link),
                            state->path->map->heap);
    }
    return true;
}

/* ---- replacing a node ----------------------------------------------------------------------- */

static void compress_if_empty(inline_path *path);

static void count_nodes(const inline_path *path, uint64_t in, uint64_t out)
{
    lfht_shard *shard = ga_lfht_own_shard(path->map);
    lfht_count(&shard->expansions, in);
    lfht_count(&shard->compressions, out);
}

static bool step_is_in_index(const inline_path *path, uint32_t step)
{
    return step > 0 && line_is_index(path->steps[step - 1].link);
}

/* Log2 of the most lines of a node in the place of the step's node. */
static uint32_t lines_log2_max(const inline_path *path, uint32_t step)
{
    uint32_t max = least_of(path->map->chunk, 64 - path->steps[step].used);
    return step_is_in_index(path, step) ? least_of(max, LINE_NODE_LOG2) : max;
}

/* Make the new node and swap the link. The thread whose swap succeeds retires the old nodes, and,
 * if nothing is left, goes on with the node above. */
static ga_status rebuild_replace(rebuild_state *state)
{
    inline_path *path = state->path;
    node_plan plan = {state->items, state->count, path->steps[state->top].used};
    uint32_t log2 = line_log2(state->link), max = lines_log2_max(path, state->top);
    uint32_t wanted = lines_needed_log2(path->map, plan.n, max);
    bool fits = wanted <= log2 && 2 * plan.n > (size_t)1 << log2;
    node_maker maker = maker_of_path(path);
    maker.crowded = state->crowded;
    if (state->crowded && wanted <= log2) {
        wanted = least_of(log2 + 1, max);
        fits = false;
    }
    lfht_word link = make_node_sized(&maker, plan, fits ? log2 : wanted);
    if (maker_finish(&maker, link) != GA_OK) {
        return GA_ERR_MEMORY;
    }
    if (!lfht_cas(path->steps[state->top].location, state->link, link)) {
        inline_free_subtree(path->map, link);
        lfht_count(&ga_lfht_own_shard(path->map)->aborted, 1);
        return GA_OK;
    }
    count_nodes(path, maker.nodes, state->nodes);
    state->pass = PASS_RETIRE;
    rebuild_visit_node(state, state->link, state->top);
    if (line_is_null_link(link)) {
        path->depth = state->top;
        path->location = path->steps[state->top].location;
        compress_if_empty(path);
    }
    return GA_OK;
}

/* Rebuild the node of step `top` and everything below it; the path ends there afterwards. GA_OK
 * also if another thread has done it. If another thread has begun a rebuild further up, finish that
 * one first: that thread may be stopped before it freezes the line that the caller cannot change,
 * and the caller would return here forever. */
static ga_status rebuild_subtree(inline_path *path, uint32_t top)
{
    lfht_item on_stack[REBUILD_STACK_PAIRS];
    rebuild_state state = {.path = path, .top = top, .link = lfht_load(path->steps[top].location)};
    void *on_heap = NULL;
    if (line_node(state.link) == line_node(path->steps[top].link) && state.link & LINE_FROZEN) {
        path->depth = top; /* that rebuild began at a step above this one */
        return !GA_PLANTED(lfht_rebuild_above_not_helped) && path_is_attached(path, &top)
                   ? rebuild_subtree(path, top)
                   : GA_OK;
    }
    if (line_node(state.link) != line_node(path->steps[top].link) ||
        !rebuild_visit_node(&state, state.link, top)) {
        return GA_OK;
    }
    size_t count = state.count;
    if (ga_hazard_reserve(path->hazards, (uint32_t)state.nodes) != GA_OK ||
        (count > REBUILD_STACK_PAIRS &&
         ga_alloc(path->map->heap, count * sizeof *state.items, 0, &on_heap) != GA_OK)) {
        return GA_ERR_MEMORY;
    }
    state.items = on_heap ? on_heap : on_stack;
    state.count = 0;
    state.pass = PASS_COLLECT;
    ga_status status =
        rebuild_visit_node(&state, state.link, top) ? rebuild_replace(&state) : GA_OK;
    ga_free(path->map->heap, on_heap);
    return status;
}

/* The location is frozen: finish that rebuild. */
static ga_status rebuild_help(inline_path *path)
{
    uint32_t top;
    path_count_retry(path);
    return path_is_attached(path, &top) ? rebuild_subtree(path, top) : GA_OK;
}

/* ---- shrinking ------------------------------------------------------------------------------ */

static bool location_is_empty(const lfht_word *location)
{
    /* LE1: seq_cst. Pairs with LW1. */
    lfht_word word = __atomic_load_n(location, __ATOMIC_SEQ_CST);
    return word & LINE_LINK ? !line_node(word) : !line_live_cells(word);
}

/* Begins at the path's location, which is empty, and goes on with its successor, which is likely
 * not to be. */
static bool path_node_is_empty(const inline_path *path)
{
    lfht_word link = path_last_link(path);
    size_t stride = line_is_index(link) ? sizeof(lfht_word) : sizeof(lfht_line);
    uint64_t own = ((uintptr_t)path->location - (uintptr_t)line_location(link, 0)) / stride;
    uint32_t all = line_location_count(link), i = 0;
    while (i < all && location_is_empty(line_location(link, (own + i) % all))) {
        i++;
    }
    return i == all;
}

/* The location has become empty: detach nodes without pairs, upwards to the root's words. */
static void compress_if_empty(inline_path *path)
{
    if (path->depth > 0 && path_node_is_empty(path)) {
        rebuild_subtree(path, path->depth - 1); /* out of memory: a later call will do it */
    }
}

/* ---- growing -------------------------------------------------------------------------------- */

/* Collect the pairs of the full line at the location. False if it has changed. */
static bool collect_full_line(inline_path *path, lfht_item *items, uint32_t *n)
{
    line_pair pairs[LINE_PAIRS];
    *n = line_copy_pairs((const lfht_line *)path->location, path->seen, pairs);
    rebuild_state state = {.path = path, .items = items};
    for (uint32_t i = 0; *n != LINE_NONE && i < *n; i++) {
        collect_pair(&state, 0, pairs[i]);
    }
    return *n != LINE_NONE;
}

/* Turn the line at the location, with the word `seen`, into a link to a new node with its pairs. */
static ga_status expand_line(inline_path *path, uint64_t *expanded)
{
    lfht_item items[LINE_PAIRS];
    node_maker maker = maker_of_path(path);
    uint32_t n;
    if (!collect_full_line(path, items, &n)) {
        return GA_OK;
    }
    maker.crowded = line_is_crowded(path->seen);
    lfht_word link = make_node_at_least(&maker, (node_plan){items, n, path->used}, path->used < 64);
    if (maker_finish(&maker, link) != GA_OK) {
        return GA_ERR_MEMORY;
    }
    if (lfht_cas(path->location, path->seen, link)) {
        __atomic_fetch_add(expanded, 1, __ATOMIC_RELAXED); /* relaxed: a hint */
        count_nodes(path, maker.nodes, 0);
    } else {
        inline_free_subtree(path->map, link);
    }
    return GA_OK;
}

/* Make room where the line is full. If more than a quarter of the node's lines would be links,
 * rebuild the node, or, if that has its full size, the index that leads to it; else expand the
 * line. */
static ga_status make_room(inline_path *path)
{
    uint32_t step = path->depth - 1;
    if (step_is_in_index(path, step) && line_log2(path->steps[step].link) == LINE_NODE_LOG2) {
        step--;
    }
    uint32_t log2 = line_log2(path->steps[step].link);
    uint64_t *expanded = line_expanded(path->steps[step].link);
    /* relaxed: a hint */
    uint64_t links = __atomic_load_n(expanded, __ATOMIC_RELAXED) + 1;
    bool grows = 4 * links > UINT64_C(1) << log2 && log2 < lines_log2_max(path, step);
    return grows || log2 == 0 ? rebuild_subtree(path, step) : expand_line(path, expanded);
}

#endif
