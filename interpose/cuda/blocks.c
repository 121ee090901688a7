/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a treap: a search tree by start, a heap by random rank. So its expected depth is that
 *            of a random tree in any order of insertion
 * INVARIANT  no two starts are equal
 * ORDER      the lock's
 * PROGRESS   a thread waits for the lock, whose holder calls malloc() and free()
 */
#include "blocks.h"

#include "../../liballoc/platform/libc.h"

typedef struct ga_cuda_blocks_node {
    ga_cuda_block block;
    uint32_t rank; /* at least the rank of each node below */
    struct ga_cuda_blocks_node *left, *right;
} node;

ga_cuda_blocks ga_cuda_live = GA_CUDA_BLOCKS_INIT;

static uint32_t next_rank(ga_cuda_blocks *in)
{
    in->last_rank ^= in->last_rank << 13; /* xorshift32 */
    in->last_rank ^= in->last_rank >> 17;
    in->last_rank ^= in->last_rank << 5;
    return in->last_rank;
}

/* Split the tree into the blocks that start before `start` and the rest. */
static void split(node *tree, CUdeviceptr start, node **before, node **rest)
{
    while (tree) {
        if (tree->block.start < start) {
            *before = tree;
            before = &tree->right;
            tree = tree->right;
        } else {
            *rest = tree;
            rest = &tree->left;
            tree = tree->left;
        }
    }
    *before = *rest = NULL;
}

/* All blocks of `before` start before all of `rest`. */
static node *join(node *before, node *rest)
{
    node *joined;
    node **at = &joined;
    while (before && rest) {
        if (before->rank >= rest->rank) {
            *at = before;
            at = &before->right;
            before = before->right;
        } else {
            *at = rest;
            at = &rest->left;
            rest = rest->left;
        }
    }
    *at = before ? before : rest;
    return joined;
}

static node **link_of(ga_cuda_blocks *in, CUdeviceptr start)
{
    node **at = &in->root;
    while (*at && (*at)->block.start != start) {
        at = start < (*at)->block.start ? &(*at)->left : &(*at)->right;
    }
    return at;
}

/* Unlink a node; the caller owns its memory. */
static node *detach(node **at)
{
    node *found = *at;
    *at = join(found->left, found->right);
    return found;
}

static bool remove_and_free(ga_cuda_blocks *in, CUdeviceptr start, ga_cuda_block *out)
{
    node **at = link_of(in, start);
    bool found = *at != NULL;
    if (found) {
        *out = (*at)->block;
        ga_libc.free(detach(at));
    }
    return found;
}

bool ga_cuda_blocks_new_record(ga_cuda_block *block)
{
    block->record = ga_libc.malloc(sizeof *block->record);
    return block->record != NULL;
}

void ga_cuda_blocks_free_record(ga_cuda_block *block)
{
    ga_libc.free(block->record);
    block->record = NULL;
}

static void attach(ga_cuda_blocks *in, node *made)
{
    CUdeviceptr start = made->block.start;
    node **at = &in->root;
    while (*at && (*at)->rank >= made->rank) {
        at = start < (*at)->block.start ? &(*at)->left : &(*at)->right;
    }
    split(*at, start, &made->left, &made->right);
    *at = made;
}

/* The record is the block's own memory, else the record it replaces, else new memory. */
bool ga_cuda_blocks_insert(ga_cuda_blocks *in, ga_cuda_block *block)
{
    pthread_mutex_lock(&in->lock);
    node **at = link_of(in, block->start);
    node *old = *at ? detach(at) : NULL;
    node *made = block->record ? block->record : old ? old : ga_libc.malloc(sizeof *made);
    block->record = NULL;
    block->removal = 0;
    if (made) {
        *made = (node){.block = *block, .rank = next_rank(in)};
        attach(in, made);
    }
    pthread_mutex_unlock(&in->lock);
    if (old != made) {
        ga_libc.free(old);
    }
    return made != NULL;
}

bool ga_cuda_blocks_remove(ga_cuda_blocks *in, CUdeviceptr start, ga_cuda_block *out)
{
    pthread_mutex_lock(&in->lock);
    node **at = link_of(in, start);
    bool found = *at && !(*at)->block.removal;
    if (found) {
        (*at)->block.removal = (*at)->block.driver_owned ? ++in->removals : 0;
        *out = (*at)->block;
        out->record = out->driver_owned ? NULL : detach(at);
    }
    pthread_mutex_unlock(&in->lock);
    return found;
}

bool ga_cuda_blocks_is_being_freed(ga_cuda_blocks *in, CUdeviceptr start)
{
    pthread_mutex_lock(&in->lock);
    node *const *at = link_of(in, start);
    bool being_freed = *at && (*at)->block.removal;
    pthread_mutex_unlock(&in->lock);
    return being_freed;
}

/* Unlink the node of a driver's block that is being freed; NULL if a new block has replaced it,
 * which may be being freed, too, by now. */
static node *detach_being_freed(ga_cuda_blocks *in, const ga_cuda_block *block)
{
    pthread_mutex_lock(&in->lock);
    node **at = link_of(in, block->start);
    bool is_own = block->removal && *at && (*at)->block.removal == block->removal;
    node *found = is_own ? detach(at) : NULL;
    pthread_mutex_unlock(&in->lock);
    return found;
}

void ga_cuda_blocks_discard(ga_cuda_blocks *in, ga_cuda_block *block)
{
    if (block->driver_owned) {
        ga_libc.free(detach_being_freed(in, block));
    }
    ga_cuda_blocks_free_record(block);
}

void ga_cuda_blocks_detach(ga_cuda_blocks *in, ga_cuda_block *block)
{
    if (!block->record) {
        block->record = detach_being_freed(in, block);
    }
}

void ga_cuda_blocks_push(ga_cuda_blocks_list *list, ga_cuda_block *block)
{
    node *made = block->record;
    block->record = NULL;
    *made = (node){.block = *block, .left = *list};
    *list = made;
}

bool ga_cuda_blocks_pop(ga_cuda_blocks_list *list, ga_cuda_block *out)
{
    node *first = *list;
    if (first) {
        *list = first->left;
        *out = first->block;
        out->record = first;
    }
    return first != NULL;
}

bool ga_cuda_blocks_list_has(const ga_cuda_blocks_list *list, CUdeviceptr start)
{
    const node *at = *list;
    while (at && at->block.start != start) {
        at = at->left;
    }
    return at != NULL;
}

bool ga_cuda_blocks_list_holds(const ga_cuda_blocks_list *list, CUdeviceptr address)
{
    const node *at = *list;
    while (at && address - at->block.start >= at->block.size) {
        at = at->left;
    }
    return at != NULL;
}

static const node *find_of_device(const node *tree, int device)
{
    const node *found = NULL;
    while (tree && !found) {
        found = tree->block.device == device ? tree : find_of_device(tree->left, device);
        tree = tree->right;
    }
    return found;
}

bool ga_cuda_blocks_remove_of(ga_cuda_blocks *in, int device, ga_cuda_block *out)
{
    pthread_mutex_lock(&in->lock);
    const node *found = find_of_device(in->root, device);
    if (found) {
        remove_and_free(in, found->block.start, out);
    }
    pthread_mutex_unlock(&in->lock);
    return found != NULL;
}

bool ga_cuda_blocks_remove_any(ga_cuda_blocks *in, ga_cuda_block *out)
{
    pthread_mutex_lock(&in->lock);
    bool found = in->root && remove_and_free(in, in->root->block.start, out);
    pthread_mutex_unlock(&in->lock);
    return found;
}

bool ga_cuda_blocks_remove_within(ga_cuda_blocks *in, CUdeviceptr start, size_t size,
                                  ga_cuda_block *out)
{
    const node *found = NULL;
    pthread_mutex_lock(&in->lock);
    for (const node *at = in->root; at && !found;) {
        found = at->block.start - start < size ? at : NULL;
        at = at->block.start < start ? at->right : at->left;
    }
    if (found) {
        remove_and_free(in, found->block.start, out);
    }
    pthread_mutex_unlock(&in->lock);
    return found != NULL;
}

bool ga_cuda_blocks_find(ga_cuda_blocks *in, CUdeviceptr address, ga_cuda_block *out)
{
    const node *best = NULL; /* the last block that starts at or before the address */
    pthread_mutex_lock(&in->lock);
    for (const node *at = in->root; at;) {
        best = at->block.start <= address ? at : best;
        at = at->block.start <= address ? at->right : at->left;
    }
    bool found = best && address - best->block.start < best->block.size;
    if (found) {
        *out = best->block;
    }
    pthread_mutex_unlock(&in->lock);
    return found;
}

void ga_cuda_blocks_set_synchronous(ga_cuda_blocks *in, const ga_cuda_block *block,
                                    bool synchronous)
{
    pthread_mutex_lock(&in->lock);
    node **at = link_of(in, block->start);
    if (*at && (*at)->block.number == block->number) {
        (*at)->block.synchronous = synchronous;
    }
    pthread_mutex_unlock(&in->lock);
}

static bool any_marked(const node *tree, int device)
{
    bool marked = false;
    while (tree && !marked) {
        marked = (tree->block.synchronous && tree->block.device == device) ||
                 any_marked(tree->left, device);
        tree = tree->right;
    }
    return marked;
}

bool ga_cuda_blocks_any_synchronous(ga_cuda_blocks *in, int device)
{
    pthread_mutex_lock(&in->lock);
    bool marked = any_marked(in->root, device);
    pthread_mutex_unlock(&in->lock);
    return marked;
}

void ga_cuda_blocks_lock(ga_cuda_blocks *in)
{
    pthread_mutex_lock(&in->lock);
}

void ga_cuda_blocks_unlock(ga_cuda_blocks *in)
{
    pthread_mutex_unlock(&in->lock);
}
