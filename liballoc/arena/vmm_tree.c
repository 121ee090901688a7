/* SPDX-License-Identifier: MIT
 *
 * The tree's shape depends on ranks alone, which are as good as random: hashes of addresses.
 */
#include "vmm_tree.h"

typedef ga_vmm_chunk chunk;

/* ---- figures ----------------------------------------------------------------------------- */

uintptr_t ga_vmm_tree_end(const ga_vmm_chunk *c)
{
    const ga_vmm_run *run = c->run;
    return run && run->live && run->last == c ? run->base + run->room : ga_vmm_chunk_end(c);
}

static uint64_t hole_before(const ga_vmm_pool *pool, const chunk *c)
{
    bool first = c->link.before == &pool->addresses.chunks;
    return first ? 0 : c->base - ga_vmm_tree_end(ga_vmm_chunk_of(c->link.before));
}

/* A hole before the chunk ends the row before, and begins a new one. */
static ga_vmm_summary row_of(const chunk *c, uint64_t hole)
{
    uint64_t bytes = ga_vmm_is_occupied(c) ? 0 : c->size;
    return (ga_vmm_summary){hole ? 0 : bytes, bytes, bytes, bytes && !hole};
}

/* The hole before a taken chunk is the end of the span before. */
static ga_vmm_summary span_of(const chunk *c, uint64_t hole)
{
    bool taken = ga_vmm_is_occupied(c);
    uint64_t bytes = hole + (taken ? 0 : c->size);
    return (ga_vmm_summary){bytes, taken ? 0 : bytes, bytes, !taken};
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static ga_vmm_summary join(const ga_vmm_summary *a, const ga_vmm_summary *b)
{
    return (ga_vmm_summary){a->whole ? a->first + b->first : a->first,
                            b->whole ? a->last + b->last : b->last,
                            most(most(a->most, b->most), a->last + b->first), a->whole && b->whole};
}

static bool same(const ga_vmm_summary *a, const ga_vmm_summary *b)
{
    return a->first == b->first && a->last == b->last && a->most == b->most && a->whole == b->whole;
}

/* Make the figures of the node from its children's. Answers whether they have changed. */
static bool sum_up(const ga_vmm_pool *pool, chunk *c)
{
    ga_vmm_node *n = &c->node;
    uint64_t hole = hole_before(pool, c);
    ga_vmm_summary rows = row_of(c, hole);
    ga_vmm_summary spans = span_of(c, hole);
    if (n->left) {
        const ga_vmm_node *left = &n->left->node;
        rows = join(&left->rows, &rows);
        spans = join(&left->spans, &spans);
        hole = most(hole, left->hole);
    }
    if (n->right) {
        const ga_vmm_node *right = &n->right->node;
        rows = join(&rows, &right->rows);
        spans = join(&spans, &right->spans);
        hole = most(hole, right->hole);
    }
    bool changed = !same(&rows, &n->rows) || !same(&spans, &n->spans) || hole != n->hole;
    n->rows = rows;
    n->spans = spans;
    n->hole = hole;
    return changed;
}

/* The figures of a node depend on its own chunk and its children's figures alone. */
static void sum_up_from(const ga_vmm_pool *pool, chunk *c)
{
    while (c && sum_up(pool, c)) {
        c = c->node.up;
    }
}

/* ---- the shape --------------------------------------------------------------------------- */

static uint64_t rank_of(uintptr_t base)
{
    uint64_t x = (base ^ base >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 29;
}

/* Let `to`, or nothing, stand where `c` stands below its parent. */
static void replace(ga_vmm_pool *pool, chunk *c, chunk *to)
{
    chunk *up = c->node.up;
    chunk **place = !up ? &pool->tree : up->node.left == c ? &up->node.left : &up->node.right;
    *place = to;
    if (to) {
        to->node.up = up;
    }
}

/* The parent of `c` becomes its child. */
static void rotate_up(ga_vmm_pool *pool, chunk *c)
{
    chunk *parent = c->node.up;
    bool left = parent->node.left == c;
    chunk **from = left ? &parent->node.left : &parent->node.right;
    chunk **to = left ? &c->node.right : &c->node.left;
    replace(pool, parent, c);
    *from = *to;
    if (*from) {
        (*from)->node.up = parent;
    }
    *to = parent;
    parent->node.up = c;
    sum_up(pool, parent);
}

/* As a leaf, right behind the chunk that is before it. The first to come is the first of all. */
static void hang(ga_vmm_pool *pool, chunk *c)
{
    chunk *before = pool->tree ? ga_vmm_chunk_of(c->link.before) : NULL;
    chunk **place = before ? &before->node.right : &pool->tree;
    c->node.up = before;
    while (*place) {
        c->node.up = *place;
        place = &(*place)->node.left;
    }
    *place = c;
}

static void place(ga_vmm_pool *pool, chunk *c)
{
    c->node = (ga_vmm_node){.rank = rank_of(c->base + c->wall), .placed = true};
    ga_vmm_list_begin(&c->node.stale);
    hang(pool, c);
    sum_up(pool, c);
    while (c->node.up && c->node.up->node.rank < c->node.rank) {
        rotate_up(pool, c);
    }
    sum_up(pool, c);
    sum_up_from(pool, c->node.up);
    pool->placed++;
}

void ga_vmm_tree_mark_stale(ga_vmm_pool *pool, ga_vmm_chunk *c)
{
    if (c->node.placed && ga_vmm_list_empty(&c->node.stale)) {
        ga_vmm_list_append(&pool->stale, &c->node.stale);
    }
}

/* While walls are missing (see refresh) no chunk is placed, either. */
void ga_vmm_tree_insert(ga_vmm_pool *pool, ga_vmm_chunk *c)
{
    if (pool->placed + 1 == pool->addresses.count) {
        place(pool, c);
        ga_vmm_tree_mark_stale(pool, ga_vmm_chunk_after(c));
    }
}

void ga_vmm_tree_remove(ga_vmm_pool *pool, ga_vmm_chunk *c)
{
    ga_vmm_node *n = &c->node;
    if (!n->placed) {
        return;
    }
    while (n->left || n->right) {
        bool left = n->left && (!n->right || n->left->node.rank > n->right->node.rank);
        rotate_up(pool, left ? n->left : n->right);
    }
    chunk *up = n->up;
    replace(pool, c, NULL);
    n->placed = false;
    pool->placed--;
    ga_vmm_list_remove(&n->stale);
    for (; up; up = up->node.up) {
        sum_up(pool, up);
    }
    ga_vmm_tree_mark_stale(pool, ga_vmm_chunk_after(c));
}

/* A reservation has brought walls, and an end of it that was a wall's. */
static void place_missing(ga_vmm_pool *pool)
{
    ga_vmm_link *head = &pool->addresses.chunks;
    for (ga_vmm_link *l = head->after; l != head; l = l->after) {
        bool missing = !ga_vmm_chunk_of(l)->node.placed;
        if (missing) {
            place(pool, ga_vmm_chunk_of(l));
        }
        if (missing && l->after != head) {
            ga_vmm_tree_mark_stale(pool, ga_vmm_chunk_of(l->after));
        }
    }
}

/* A chunk that has changed has moved the end of the hole behind it as well. */
void ga_vmm_tree_refresh(ga_vmm_pool *pool)
{
    if (pool->placed != pool->addresses.count) {
        place_missing(pool);
    }
    while (!ga_vmm_list_empty(&pool->stale)) {
        chunk *c = GA_VMM_OF(pool->stale.after, ga_vmm_chunk, node.stale);
        ga_vmm_list_remove(&c->node.stale);
        sum_up_from(pool, c);
        if (c->link.after != &pool->addresses.chunks) {
            sum_up_from(pool, ga_vmm_chunk_after(c));
        }
    }
}

/* ---- searches ---------------------------------------------------------------------------- */

typedef struct want {
    const ga_vmm_pool *pool;
    ga_vmm_kind kind;
    uint64_t size;
} want;

static const ga_vmm_summary *sum_of(const chunk *c, ga_vmm_kind kind)
{
    return kind == GA_VMM_MAPPED_EXTENTS ? &c->node.rows : &c->node.spans;
}

static ga_vmm_summary own(const want *w, const chunk *c)
{
    uint64_t hole = hole_before(w->pool, c);
    return w->kind == GA_VMM_MAPPED_EXTENTS ? row_of(c, hole) : span_of(c, hole);
}

/* Whether a stretch of which `bytes` come before this part has enough in it, or another has. */
static bool has(const ga_vmm_summary *s, const want *w, uint64_t bytes)
{
    return bytes + s->first >= w->size || s->most >= w->size;
}

/* Bytes of the stretch that goes on behind the part. */
static uint64_t after(const ga_vmm_summary *s, uint64_t bytes)
{
    return s->whole ? bytes + s->first : s->last;
}

/* The chunk itself has enough, and *bytes is what the stretch has with it. */
static bool reaches(const want *w, const chunk *c, uint64_t *bytes)
{
    ga_vmm_summary s = own(w, c);
    bool enough = has(&s, w, *bytes);
    *bytes = enough && *bytes + s.first >= w->size ? *bytes + s.first : after(&s, *bytes);
    return enough;
}

/* In a subtree that has it. */
static chunk *descend(const want *w, chunk *c, uint64_t *bytes)
{
    for (;;) {
        chunk *left = c->node.left;
        if (left && has(sum_of(left, w->kind), w, *bytes)) {
            c = left;
            continue;
        }
        *bytes = left ? after(sum_of(left, w->kind), *bytes) : *bytes;
        if (reaches(w, c, bytes)) {
            return c;
        }
        c = c->node.right;
    }
}

ga_vmm_chunk *ga_vmm_tree_find(const ga_vmm_pool *pool, ga_vmm_chunk *from, ga_vmm_kind kind,
                               uint64_t size, uint64_t *bytes)
{
    const want w = {pool, kind, size};
    *bytes = 0;
    for (chunk *c = from; c;) {
        chunk *right = c->node.right;
        if (reaches(&w, c, bytes)) {
            return c;
        }
        if (right && has(sum_of(right, kind), &w, *bytes)) {
            return descend(&w, right, bytes);
        }
        *bytes = right ? after(sum_of(right, kind), *bytes) : *bytes;
        while (c->node.up && c->node.up->node.right == c) {
            c = c->node.up;
        }
        c = c->node.up;
    }
    return NULL;
}

static bool has_taken(const chunk *c)
{
    return c && !c->node.spans.whole;
}

ga_vmm_chunk *ga_vmm_tree_taken_before(ga_vmm_chunk *c)
{
    while (!has_taken(c->node.left)) {
        while (c->node.up->node.left == c) {
            c = c->node.up;
        }
        c = c->node.up;
        if (ga_vmm_is_occupied(c)) {
            return c;
        }
    }
    c = c->node.left;
    while (has_taken(c->node.right) || !ga_vmm_is_occupied(c)) {
        c = has_taken(c->node.right) ? c->node.right : c->node.left;
    }
    return c;
}

ga_vmm_chunk *ga_vmm_tree_hole(const ga_vmm_pool *pool, uint64_t size)
{
    chunk *c = pool->tree;
    if (!c || c->node.hole < size) {
        return NULL;
    }
    for (;;) {
        chunk *left = c->node.left;
        if (left && left->node.hole >= size) {
            c = left;
        } else if (hole_before(pool, c) >= size) {
            return c;
        } else {
            c = c->node.right;
        }
    }
}

ga_vmm_chunk *ga_vmm_tree_below(const ga_vmm_pool *pool, uintptr_t address)
{
    chunk *found = NULL;
    for (chunk *c = pool->tree; c;) {
        bool below = c->base < address || (c->wall && ga_vmm_chunk_end(c) <= address);
        found = below ? c : found;
        c = below ? c->node.right : c->node.left;
    }
    return found;
}
