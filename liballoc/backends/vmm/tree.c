/* SPDX-License-Identifier: MIT
 *
 * The shape of the treap depends only on ranks: hashes of addresses, as good as random numbers.
 */
#include "tree.h"

typedef ga_vmm_chunk chunk;

/* ---- summaries --------------------------------------------------------------------------- */

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

/* A hole before the chunk ends the previous mapped extent. */
static ga_vmm_summary mapped_extent_of(const chunk *c, uint64_t hole)
{
    uint64_t bytes = ga_vmm_is_occupied(c) ? 0 : c->size;
    return (ga_vmm_summary){hole ? 0 : bytes, bytes, bytes, bytes && !hole};
}

/* A hole before an occupied chunk belongs to the span that ends there. */
static ga_vmm_summary span_of(const chunk *c, uint64_t hole)
{
    bool occupied = ga_vmm_is_occupied(c);
    uint64_t bytes = hole + (occupied ? 0 : c->size);
    return (ga_vmm_summary){bytes, occupied ? 0 : bytes, bytes, !occupied};
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static ga_vmm_summary join(const ga_vmm_summary *a, const ga_vmm_summary *b)
{
    return (ga_vmm_summary){
        a->whole ? a->prefix + b->prefix : a->prefix, b->whole ? a->suffix + b->suffix : b->suffix,
        most(most(a->largest, b->largest), a->suffix + b->prefix), a->whole && b->whole};
}

static bool equal_summaries(const ga_vmm_summary *a, const ga_vmm_summary *b)
{
    return a->prefix == b->prefix && a->suffix == b->suffix && a->largest == b->largest &&
           a->whole == b->whole;
}

/* Recompute the node's summary from its children's. Returns true if it changed. */
static bool update_summary(const ga_vmm_pool *pool, chunk *c)
{
    ga_vmm_node *n = &c->node;
    uint64_t hole = hole_before(pool, c);
    ga_vmm_summary mapped = mapped_extent_of(c, hole);
    ga_vmm_summary spans = span_of(c, hole);
    if (n->left) {
        const ga_vmm_node *left = &n->left->node;
        mapped = join(&left->mapped, &mapped);
        spans = join(&left->spans, &spans);
        hole = most(hole, left->hole);
    }
    if (n->right) {
        const ga_vmm_node *right = &n->right->node;
        mapped = join(&mapped, &right->mapped);
        spans = join(&spans, &right->spans);
        hole = most(hole, right->hole);
    }
    bool changed = !equal_summaries(&mapped, &n->mapped) || !equal_summaries(&spans, &n->spans) ||
                   hole != n->hole;
    n->mapped = mapped;
    n->spans = spans;
    n->hole = hole;
    return changed;
}

/* A summary depends only on the node's chunk and the children's summaries: stop at the first that
 * does not change. */
static void update_summaries(const ga_vmm_pool *pool, chunk *c)
{
    while (c && update_summary(pool, c)) {
        c = c->node.up;
    }
}

/* ---- the shape --------------------------------------------------------------------------- */

static uint64_t rank_of(uintptr_t base)
{
    uint64_t x = (base ^ base >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 29;
}

/* Put `to`, or nothing, in the place of `c` below its parent. */
static void replace_child(ga_vmm_pool *pool, chunk *c, chunk *to)
{
    chunk *up = c->node.up;
    chunk **slot = !up ? &pool->tree : up->node.left == c ? &up->node.left : &up->node.right;
    *slot = to;
    if (to) {
        to->node.up = up;
    }
}

/* Rotate: the parent of `c` becomes its child. */
static void rotate_up(ga_vmm_pool *pool, chunk *c)
{
    chunk *parent = c->node.up;
    bool left = parent->node.left == c;
    chunk **from = left ? &parent->node.left : &parent->node.right;
    chunk **to = left ? &c->node.right : &c->node.left;
    replace_child(pool, parent, c);
    *from = *to;
    if (*from) {
        (*from)->node.up = parent;
    }
    *to = parent;
    parent->node.up = c;
    update_summary(pool, parent);
}

/* Link as a leaf, directly behind the preceding chunk. The first chunk to be linked is the first in
 * the order of addresses. */
static void link_leaf(ga_vmm_pool *pool, chunk *c)
{
    chunk *before = pool->tree ? ga_vmm_chunk_of(c->link.before) : NULL;
    chunk **slot = before ? &before->node.right : &pool->tree;
    c->node.up = before;
    while (*slot) {
        c->node.up = *slot;
        slot = &(*slot)->node.left;
    }
    *slot = c;
}

static void insert_node(ga_vmm_pool *pool, chunk *c)
{
    c->node = (ga_vmm_node){.rank = rank_of(c->base + c->wall), .placed = true};
    ga_vmm_list_init(&c->node.stale);
    link_leaf(pool, c);
    update_summary(pool, c);
    while (c->node.up && c->node.up->node.rank < c->node.rank) {
        rotate_up(pool, c);
    }
    update_summary(pool, c);
    update_summaries(pool, c->node.up);
    pool->placed++;
}

void ga_vmm_tree_mark_stale(ga_vmm_pool *pool, ga_vmm_chunk *c)
{
    if (c->node.placed && ga_vmm_list_empty(&c->node.stale)) {
        ga_vmm_list_append(&pool->stale, &c->node.stale);
    }
}

/* While walls are missing from the tree (ga_vmm_tree_refresh() adds them), chunks are not added
 * either. */
void ga_vmm_tree_insert(ga_vmm_pool *pool, ga_vmm_chunk *c)
{
    if (pool->placed + 1 == pool->addresses.count) {
        insert_node(pool, c);
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
    replace_child(pool, c, NULL);
    n->placed = false;
    pool->placed--;
    ga_vmm_list_remove(&n->stale);
    for (; up; up = up->node.up) {
        update_summary(pool, up);
    }
    ga_vmm_tree_mark_stale(pool, ga_vmm_chunk_after(c));
}

/* A new reservation adds a wall and moves the end of another. */
static void insert_missing_walls(ga_vmm_pool *pool)
{
    ga_vmm_link *head = &pool->addresses.chunks;
    for (ga_vmm_link *l = head->after; l != head; l = l->after) {
        bool missing = !ga_vmm_chunk_of(l)->node.placed;
        if (missing) {
            insert_node(pool, ga_vmm_chunk_of(l));
        }
        if (missing && l->after != head) {
            ga_vmm_tree_mark_stale(pool, ga_vmm_chunk_of(l->after));
        }
    }
}

/* A changed chunk also changes the end of the hole behind it. */
void ga_vmm_tree_refresh(ga_vmm_pool *pool)
{
    if (pool->placed != pool->addresses.count) {
        insert_missing_walls(pool);
    }
    while (!ga_vmm_list_empty(&pool->stale)) {
        chunk *c = GA_VMM_OF(pool->stale.after, ga_vmm_chunk, node.stale);
        ga_vmm_list_remove(&c->node.stale);
        update_summaries(pool, c);
        if (c->link.after != &pool->addresses.chunks) {
            update_summaries(pool, ga_vmm_chunk_after(c));
        }
    }
}

/* ---- queries ----------------------------------------------------------------------------- */

typedef struct extent_query {
    const ga_vmm_pool *pool;
    ga_vmm_extent_kind kind;
    uint64_t size;
} extent_query;

static const ga_vmm_summary *summary_of(const chunk *c, ga_vmm_extent_kind kind)
{
    return kind == GA_VMM_MAPPED_EXTENTS ? &c->node.mapped : &c->node.spans;
}

static ga_vmm_summary own_summary(const extent_query *query, const chunk *c)
{
    uint64_t hole = hole_before(query->pool, c);
    return query->kind == GA_VMM_MAPPED_EXTENTS ? mapped_extent_of(c, hole) : span_of(c, hole);
}

/* True if the part contains an extent of the requested size, given that `bytes` bytes of one end
 * before it. */
static bool has_extent(const ga_vmm_summary *s, const extent_query *query, uint64_t bytes)
{
    return bytes + s->prefix >= query->size || s->largest >= query->size;
}

/* Bytes of the extent that continues behind the part. */
static uint64_t suffix_bytes(const ga_vmm_summary *s, uint64_t bytes)
{
    return s->whole ? bytes + s->prefix : s->suffix;
}

/* Add the chunk to the extent; *bytes: its size up to here. Returns true if it is large enough. */
static bool extend_by_chunk(const extent_query *query, const chunk *c, uint64_t *bytes)
{
    ga_vmm_summary s = own_summary(query, c);
    bool enough = has_extent(&s, query, *bytes);
    *bytes =
        enough && *bytes + s.prefix >= query->size ? *bytes + s.prefix : suffix_bytes(&s, *bytes);
    return enough;
}

/* The subtree is known to contain such an extent. */
static chunk *find_in_subtree(const extent_query *query, chunk *c, uint64_t *bytes)
{
    for (;;) {
        chunk *left = c->node.left;
        if (left && has_extent(summary_of(left, query->kind), query, *bytes)) {
            c = left;
            continue;
        }
        *bytes = left ? suffix_bytes(summary_of(left, query->kind), *bytes) : *bytes;
        if (extend_by_chunk(query, c, bytes)) {
            return c;
        }
        c = c->node.right;
    }
}

ga_vmm_chunk *ga_vmm_tree_find(const ga_vmm_pool *pool, ga_vmm_chunk *from, ga_vmm_extent_kind kind,
                               uint64_t size, uint64_t *bytes)
{
    const extent_query query = {pool, kind, size};
    *bytes = 0;
    for (chunk *c = from; c;) {
        chunk *right = c->node.right;
        if (extend_by_chunk(&query, c, bytes)) {
            return c;
        }
        if (right && has_extent(summary_of(right, kind), &query, *bytes)) {
            return find_in_subtree(&query, right, bytes);
        }
        *bytes = right ? suffix_bytes(summary_of(right, kind), *bytes) : *bytes;
        while (c->node.up && c->node.up->node.right == c) {
            c = c->node.up;
        }
        c = c->node.up;
    }
    return NULL;
}

static bool has_occupied(const chunk *c)
{
    return c && !c->node.spans.whole;
}

ga_vmm_chunk *ga_vmm_tree_occupied_before(ga_vmm_chunk *c)
{
    while (!has_occupied(c->node.left)) {
        while (c->node.up->node.left == c) {
            c = c->node.up;
        }
        c = c->node.up;
        if (ga_vmm_is_occupied(c)) {
            return c;
        }
    }
    c = c->node.left;
    while (has_occupied(c->node.right) || !ga_vmm_is_occupied(c)) {
        c = has_occupied(c->node.right) ? c->node.right : c->node.left;
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
