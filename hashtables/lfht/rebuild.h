/* SPDX-License-Identifier: MIT
 *
 * How a map of lines grows and shrinks.
 *
 *     a full line          becomes a link to a node with its pairs: one swap of its word, from the
 *                          one that the pairs were read by
 *     a node with too      goes, with all below it, for one of another size, or for nothing: its
 *     many links, or no    lines are frozen, one after the other, then what is in them is copied,
 *     pairs, or a worn     and the link to it is swapped
 *     line
 *
 * INVARIANT  A frozen line's word never changes, nor do its pairs; so all who copy a frozen node
 *            copy the same. One of them swaps the link; the others free what they have made. A link
 *            that is frozen is swapped by nobody: who froze it, or comes by, takes out the node
 *            above.
 *            What was claimed and not put in when a line was frozen or became a link is not in the
 *            map: its thread fails to put it in, and starts again.
 *
 * ORDER      W1 among themselves: a pair was put in before its line was frozen, and is copied; or
 *            its thread sees that the line is frozen. E1: of two threads that take the last pairs
 *            of two lines, one sees both empty.
 *
 * PROGRESS   Nobody waits for a thread that copies: whoever has to change a frozen line copies too.
 *            Claims go with a line that is made anew, and who had them claims again. So that this
 *            does not go on for ever between threads of which none gets to put its pair in, a line
 *            that has lanes for all its pairs but for the claims, CROWDED, gives way to more lines
 *            or bits, and where there are none to be had to a deep node, which knows no claims.
 *            Without memory a node stays frozen, and calls that have to change it fail.
 */
#ifndef GPUALLOC_LFHT_REBUILD_H
#define GPUALLOC_LFHT_REBUILD_H

#include "trail.h"

enum {
    REBUILD_FEW = 24 /* pairs that need no memory of their own on the way */
};

/* ---- making --------------------------------------------------------------------------------- */

static void *line_alloc(ga_lfht *map, size_t size)
{
    void *node;
    return ga_alloc(map->heap, size, LINE_BYTES, &node) == GA_OK ? node : NULL;
}

/* All that a link leads to, which nobody else knows, or uses. */
static void line_drop(ga_lfht *map, lfht_word link)
{
    for (uint32_t i = 0; line_at(link) && i < line_places(link); i++) {
        lfht_word below = *line_place(link, i);
        if (below & LINE_LINK) {
            line_drop(map, below);
        }
    }
    ga_free(map->heap, line_at(link));
}

typedef struct maker {
    ga_lfht *map;
    uint64_t hash; /* its line has room for one pair more, */
    bool room;     /* where this says so */
    bool crowded;  /* nodes without bits are deep */
    uint64_t nodes;
    bool failed;
} maker;

static maker maker_for(const trail *t)
{
    return (maker){.map = t->map, .hash = t->hash, .room = t->room};
}

static uint32_t least_of(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The log2 of lines that n pairs want, up to `most`: on average five in a line of seven. */
static uint32_t line_wanted(const ga_lfht *map, size_t n, uint32_t most)
{
    uint32_t log2 = 0;
    while (log2 < most && 7 * n > (size_t)5 * map->chain << log2) {
        log2++;
    }
    return log2;
}

static lfht_word make_deep(maker *m, const lfht_item *items, size_t n)
{
    line_deep *deep = line_alloc(m->map, line_deep_size(n));
    m->failed |= !deep;
    if (!deep) {
        return LINE_NOTHING;
    }
    m->nodes++;
    deep->count = n;
    for (size_t i = 0; i < n; i++) {
        deep->pairs[i] = (line_pair){items[i].key, items[i].value};
    }
    return line_to(deep, LINE_DEEP);
}

/* What there is to make: the pairs in the order of their hashes, and the bits before the node. */
typedef struct plan {
    const lfht_item *items;
    size_t n;
    uint32_t used;
} plan;

static lfht_word make_places(maker *m, plan p, lfht_word link);

/* With 2^log2 lines. With LINE_NOTHING it has failed, or there is nothing to make. */
static lfht_word make_sized(maker *m, plan p, uint32_t log2)
{
    bool index = log2 > LINE_PAGE;
    uint32_t size = index ? LINE_INDEX + log2 - LINE_PAGE : log2;
    if (p.n == 0) {
        return LINE_NOTHING;
    }
    if (p.used == 64 && (p.n >= m->map->chain || m->crowded)) {
        return make_deep(m, p.items, p.n);
    }
    void *node = line_alloc(m->map, line_node_size(line_to(NULL, size)));
    m->failed |= !node;
    return node ? make_places(m, p, line_to(node, size)) : LINE_NOTHING;
}

/* At least 2^least. */
static lfht_word make_node(maker *m, plan p, uint32_t least)
{
    uint32_t log2 = line_wanted(m->map, p.n, least_of(m->map->chunk, 64 - p.used));
    return make_sized(m, p, log2 > least ? log2 : least);
}

static lfht_word make_line(lfht_line *line, const lfht_item *items, size_t n)
{
    lfht_word word = 0;
    for (uint32_t i = 0; i < n; i++) {
        line->pairs[i] = (line_pair){items[i].key, items[i].value};
        word = line_set(word, i, line_code(items[i].hash));
    }
    return word;
}

/* A line, or a link where it cannot have so many; in an index a node of the size that all have. */
static void make_place(maker *m, lfht_word link, lfht_word *place, plan p)
{
    bool own = m->room && line_place_of(link, p.used, m->hash) == place;
    p.used += line_bits(link);
    if (line_is_index(link)) {
        *place = make_sized(m, p, LINE_PAGE);
        *line_expanded(link) += line_at(*place) ? *line_expanded(*place) : 0;
    } else if (p.n + own <= m->map->chain) {
        *place = make_line((lfht_line *)place, p.items, p.n);
    } else {
        *place = make_node(m, p, p.used < 64);
        ++*line_expanded(link);
    }
}

static lfht_word make_places(maker *m, plan p, lfht_word link)
{
    size_t end = 0;
    m->nodes++;
    *line_expanded(link) = 0;
    for (uint32_t i = 0; i < line_places(link); i++) {
        lfht_word *place = line_place(link, i);
        size_t first = end;
        while (end < p.n && line_place_of(link, p.used, p.items[end].hash) == place) {
            end++;
        }
        make_place(m, link, place, (plan){p.items + first, end - first, p.used});
    }
    return link;
}

/* All of it is dropped where not all could be had. */
static ga_status made(const maker *m, lfht_word link)
{
    if (m->failed) {
        line_drop(m->map, link);
    }
    return m->failed ? GA_ERR_MEMORY : GA_OK;
}

/* ---- through a node, line by line ----------------------------------------------------------- */

typedef enum pass_of {
    FREEZES = 0, /* and counts */
    COLLECTS,    /* what is frozen, in the order of the hashes */
    RETIRES      /* what nobody can come to any more */
} pass_of;

/* A node and all below it, which the step `top` of the trail leads to by `link`, unfrozen. */
typedef struct harvest {
    trail *t;
    pass_of pass;
    uint32_t top;
    lfht_word link;
    uint64_t nodes;
    size_t count;
    lfht_item *items;
    bool crowded;
} harvest;

/* No lane is free, and some are claimed. Of a frozen line, so that all who copy see the same. */
static bool is_crowded(lfht_word word)
{
    return !line_free(word) && line_count(line_live(word)) < LINE_PAIRS;
}

static lfht_word freeze(lfht_word *place)
{
    lfht_word word = lfht_read(place);
    while (!(word & LINE_FROZEN) && GA_LFHT_MUTANT != 14 &&
           !lfht_swap(place, word, word | LINE_FROZEN)) {
        word = lfht_read(place);
    }
    return word;
}

/* By hash, behind those from `first` on. */
static void collect(harvest *h, size_t first, line_pair pair)
{
    uint64_t hash = lfht_hash_of(h->t->map, pair.key);
    size_t i = h->count++;
    for (; i > first && h->items[i - 1].hash > hash; i--) {
        h->items[i] = h->items[i - 1];
    }
    h->items[i] = (lfht_item){hash, pair.key, pair.value};
}

static void collect_line(harvest *h, const lfht_line *line, lfht_word word)
{
    size_t first = h->count;
    for (lfht_word lasts = line_live(word); lasts; lasts &= lasts - 1) {
        const line_pair *pair = &line->pairs[line_lane(lasts)];
        collect(h, first, (line_pair){line_read(&pair->key), line_read(&pair->value)});
    }
}

static void collect_deep(harvest *h, const line_deep *deep)
{
    for (uint64_t i = 0; i < deep->count; i++) {
        collect(h, h->count, deep->pairs[i]);
    }
}

static bool pass_node(harvest *h, lfht_word link, uint32_t slot);

static bool pass_place(harvest *h, lfht_word *place, uint32_t slot)
{
    lfht_word word = h->pass == FREEZES ? freeze(place) : lfht_read(place);
    if (word & LINE_LINK) {
        return !line_at(word) || pass_node(h, word, slot);
    }
    if (h->pass == FREEZES) {
        h->count += line_count(line_live(word));
        h->crowded |= is_crowded(word);
    } else if (h->pass == COLLECTS) {
        collect_line(h, (const lfht_line *)place, word);
    }
    return true;
}

/* It is protected once the top still leads to all of it. */
static bool hold_below(harvest *h, lfht_word link, uint32_t slot)
{
    trail_hold(h->t, slot, line_at(link));
    return ga_hazard_load(h->t->mine, h->t->steps[h->top].place) == h->link;
}

/* False where another thread has taken it out; not in the last pass. */
static bool pass_node(harvest *h, lfht_word link, uint32_t slot)
{
    if (h->pass != RETIRES && !hold_below(h, link, slot)) {
        return false;
    }
    for (uint32_t i = 0; i < line_places(link); i++) {
        if (!pass_place(h, line_place(link, i), slot + 1)) {
            return false;
        }
    }
    if (line_is_deep(link) && h->pass == FREEZES) {
        h->count += ((const line_deep *)line_at(link))->count;
    } else if (line_is_deep(link) && h->pass == COLLECTS) {
        collect_deep(h, line_at(link));
    }
    h->nodes += h->pass == FREEZES;
    if (h->pass == RETIRES) {
        ga_hazard_retire_to(h->t->mine, line_at(link), line_node_size(link), h->t->map->heap);
    }
    return true;
}

/* ---- another node for one ------------------------------------------------------------------- */

static void emptied(trail *t);

static void count_nodes(const trail *t, uint64_t in, uint64_t out)
{
    lfht_lane *lane = ga_lfht_lane(t->map);
    lfht_add(&lane->expansions, in);
    lfht_add(&lane->compressions, out);
}

static bool in_index(const trail *t, uint32_t step)
{
    return step > 0 && line_is_index(t->steps[step - 1].link);
}

/* The log2 of the most lines that the step's node can have in its place. */
static uint32_t most_lines(const trail *t, uint32_t step)
{
    uint32_t most = least_of(t->map->chunk, 64 - t->steps[step].used);
    return in_index(t, step) ? least_of(most, LINE_PAGE) : most;
}

/* The link is swapped for one to what the items become. The thread that does it goes on with the
 * node above where nothing is left. */
static ga_status replace_node(harvest *h)
{
    trail *t = h->t;
    plan p = {h->items, h->count, t->steps[h->top].used};
    uint32_t log2 = line_log2(h->link), most = most_lines(t, h->top);
    uint32_t wanted = line_wanted(t->map, p.n, most);
    bool fits = wanted <= log2 && 2 * p.n > (size_t)1 << log2;
    maker m = maker_for(t);
    m.crowded = h->crowded;
    if (h->crowded && wanted <= log2) {
        wanted = least_of(log2 + 1, most);
        fits = false;
    }
    lfht_word link = make_sized(&m, p, fits ? log2 : wanted);
    if (made(&m, link) != GA_OK) {
        return GA_ERR_MEMORY;
    }
    if (!lfht_swap(t->steps[h->top].place, h->link, link)) {
        line_drop(t->map, link);
        lfht_add(&ga_lfht_lane(t->map)->aborted, 1);
        return GA_OK;
    }
    count_nodes(t, m.nodes, h->nodes);
    h->pass = RETIRES;
    pass_node(h, h->link, h->top);
    if (line_is_nothing(link)) {
        t->depth = h->top;
        t->place = t->steps[h->top].place;
        emptied(t);
    }
    return GA_OK;
}

/* Step `top` of the trail, and what is below it, are made anew; the trail ends there. GA_OK, too,
 * where another thread has done it. Where one has begun further up, that is finished first: it may
 * have been stopped before it froze what the caller cannot change, who would come back for ever. */
static ga_status rebuild(trail *t, uint32_t top)
{
    lfht_item few[REBUILD_FEW];
    harvest h = {.t = t, .top = top, .link = lfht_read(t->steps[top].place)};
    void *many = NULL;
    if (line_at(h.link) == line_at(t->steps[top].link) && h.link & LINE_FROZEN) {
        t->depth = top; /* what froze the place began at a step above this one */
        return GA_LFHT_MUTANT != 17 && trail_holds(t, &top) ? rebuild(t, top) : GA_OK;
    }
    if (line_at(h.link) != line_at(t->steps[top].link) || !pass_node(&h, h.link, top)) {
        return GA_OK;
    }
    size_t count = h.count;
    if (ga_hazard_reserve(t->mine, (uint32_t)h.nodes) != GA_OK ||
        (count > REBUILD_FEW &&
         ga_alloc(t->map->heap, count * sizeof *h.items, 0, &many) != GA_OK)) {
        return GA_ERR_MEMORY;
    }
    h.items = many ? many : few;
    h.count = 0;
    h.pass = COLLECTS;
    ga_status status = pass_node(&h, h.link, top) ? replace_node(&h) : GA_OK;
    ga_free(t->map->heap, many);
    return status;
}

/* The place is frozen: finish what was begun. */
static ga_status help(trail *t)
{
    uint32_t top;
    trail_count_retry(t);
    return trail_holds(t, &top) ? rebuild(t, top) : GA_OK;
}

/* ---- shrinking ------------------------------------------------------------------------------ */

static bool is_empty_place(const lfht_word *place)
{
    /* E1: seq_cst. Pairs with W1. */
    lfht_word word = __atomic_load_n(place, __ATOMIC_SEQ_CST);
    return word & LINE_LINK ? !line_at(word) : !line_live(word);
}

/* From the place on, which has become empty: the next is likely not to be. */
static bool is_empty_node(const trail *t)
{
    lfht_word link = trail_node(t);
    size_t apart = line_is_index(link) ? sizeof(lfht_word) : sizeof(lfht_line);
    uint64_t own = ((uintptr_t)t->place - (uintptr_t)line_place(link, 0)) / apart;
    uint32_t all = line_places(link), i = 0;
    while (i < all && is_empty_place(line_place(link, (own + i) % all))) {
        i++;
    }
    return i == all;
}

/* A place has become empty: nodes that have nothing left go, up to the root's words. */
static void emptied(trail *t)
{
    if (t->depth > 0 && is_empty_node(t)) {
        rebuild(t, t->depth - 1); /* what fails for want of memory is another's to do */
    }
}

/* ---- growing -------------------------------------------------------------------------------- */

/* The pairs of a line that is full. False where it has changed. */
static bool read_line(trail *t, lfht_item *items, uint32_t *n)
{
    line_pair pairs[LINE_PAIRS];
    *n = line_copy((const lfht_line *)t->place, t->seen, pairs);
    harvest h = {.t = t, .items = items};
    for (uint32_t i = 0; *n != LINE_NONE && i < *n; i++) {
        collect(&h, 0, pairs[i]);
    }
    return *n != LINE_NONE;
}

/* The line, which `seen` is the word of, becomes a link to a node with its pairs. */
static ga_status expand_line(trail *t, uint64_t *expanded)
{
    lfht_item items[LINE_PAIRS];
    maker m = maker_for(t);
    uint32_t n;
    if (!read_line(t, items, &n)) {
        return GA_OK;
    }
    m.crowded = is_crowded(t->seen);
    lfht_word link = make_node(&m, (plan){items, n, t->used}, t->used < 64);
    if (made(&m, link) != GA_OK) {
        return GA_ERR_MEMORY;
    }
    if (lfht_swap(t->place, t->seen, link)) {
        __atomic_fetch_add(expanded, 1, __ATOMIC_RELAXED); /* relaxed: a hint */
        count_nodes(t, m.nodes, 0);
    } else {
        line_drop(t->map, link);
    }
    return GA_OK;
}

/* There is no room in the line. The node is made anew, or, where it has its full size, the index
 * that leads to it, if more than a quarter of their lines would be links. */
static ga_status expand(trail *t)
{
    uint32_t step = t->depth - 1;
    if (in_index(t, step) && line_log2(t->steps[step].link) == LINE_PAGE) {
        step--;
    }
    uint32_t log2 = line_log2(t->steps[step].link);
    uint64_t *expanded = line_expanded(t->steps[step].link);
    /* relaxed: a hint */
    uint64_t links = __atomic_load_n(expanded, __ATOMIC_RELAXED) + 1;
    bool grows = 4 * links > UINT64_C(1) << log2 && log2 < most_lines(t, step);
    return grows || log2 == 0 ? rebuild(t, step) : expand_line(t, expanded);
}

#endif
