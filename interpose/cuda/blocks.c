/* SPDX-License-Identifier: MIT
 *
 * STRUCTURE  a treap: a search tree by start, a heap by numbers drawn at random, so that it is as
 *            deep as a random tree whatever the order of blocks
 * INVARIANT  no two starts are the same
 * ORDER      the lock's
 * PROGRESS   blocks while another thread is in here, which calls malloc() and free() meanwhile
 */
#include "blocks.h"

#include "../../liballoc/platform/libc.h"

#include <pthread.h>

typedef struct node {
    ga_cuda_block block;
    uint32_t rank; /* no less than those below */
    struct node *left, *right;
} node;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static node *root;
static uint32_t last_rank = 1;

static uint32_t next_rank(void)
{
    last_rank ^= last_rank << 13; /* xorshift32 */
    last_rank ^= last_rank >> 17;
    last_rank ^= last_rank << 5;
    return last_rank;
}

/* What starts before `start`, and the rest. */
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

/* All of `before` starts before all of `rest`. */
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

static node **link_of(CUdeviceptr start)
{
    node **at = &root;
    while (*at && (*at)->block.start != start) {
        at = start < (*at)->block.start ? &(*at)->left : &(*at)->right;
    }
    return at;
}

static bool take(CUdeviceptr start, ga_cuda_block *out)
{
    node **at = link_of(start);
    node *found = *at;
    if (found) {
        *out = found->block;
        *at = join(found->left, found->right);
        ga_libc.free(found);
    }
    return found != NULL;
}

bool ga_cuda_blocks_put(const ga_cuda_block *block)
{
    node *made = ga_libc.malloc(sizeof *made);
    ga_cuda_block old;
    if (!made) {
        return false;
    }
    pthread_mutex_lock(&lock);
    take(block->start, &old);
    *made = (node){.block = *block, .rank = next_rank()};
    node **at = &root;
    while (*at && (*at)->rank >= made->rank) {
        at = block->start < (*at)->block.start ? &(*at)->left : &(*at)->right;
    }
    split(*at, block->start, &made->left, &made->right);
    *at = made;
    pthread_mutex_unlock(&lock);
    return true;
}

bool ga_cuda_blocks_take(CUdeviceptr start, ga_cuda_block *out)
{
    pthread_mutex_lock(&lock);
    bool found = take(start, out);
    pthread_mutex_unlock(&lock);
    return found;
}

static const node *first_of(const node *tree, int device)
{
    const node *found = NULL;
    while (tree && !found) {
        found = tree->block.device == device ? tree : first_of(tree->left, device);
        tree = tree->right;
    }
    return found;
}

bool ga_cuda_blocks_take_any(int device, ga_cuda_block *out)
{
    pthread_mutex_lock(&lock);
    const node *found = first_of(root, device);
    if (found) {
        take(found->block.start, out);
    }
    pthread_mutex_unlock(&lock);
    return found != NULL;
}

bool ga_cuda_blocks_find(CUdeviceptr address, ga_cuda_block *out)
{
    const node *best = NULL; /* the last that does not start behind it */
    pthread_mutex_lock(&lock);
    for (const node *at = root; at;) {
        best = at->block.start <= address ? at : best;
        at = at->block.start <= address ? at->right : at->left;
    }
    bool found = best && address - best->block.start < best->block.size;
    if (found) {
        *out = best->block;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void ga_cuda_blocks_lock(void)
{
    pthread_mutex_lock(&lock);
}

void ga_cuda_blocks_unlock(void)
{
    pthread_mutex_unlock(&lock);
}
