/* SPDX-License-Identifier: MIT
 *
 * liburcu's cds_lfht, with nodes from malloc that are freed after a grace period.
 */
#include "subject.h"

#define URCU_INLINE_SMALL_FUNCTIONS
#include <urcu/urcu-memb.h>

#include <urcu/rculfhash.h>

#include <gpualloc/backend.h>

#include <err.h>
#include <stdlib.h>

typedef struct urcu_node {
    struct cds_lfht_node node;
    struct rcu_head head;
    uint64_t key, value;
} urcu_node;

/* `argument` 0: it grows; 1: it has its size from the start. */
static void *open_urcu(const ga_bench_subject *self, ga_heap *heap, const ga_bench_shape *shape,
                       uint64_t keys)
{
    unsigned long first = 1024;
    while (self->argument && first < keys) {
        first *= 2;
    }
    (void)heap;
    (void)shape;
    void *map = cds_lfht_new_flavor(first, 1024, 0, self->argument ? 0 : CDS_LFHT_AUTO_RESIZE,
                                    &urcu_memb_flavor, NULL);
    if (!map) {
        ga_fail(GA_ERR_MEMORY, "%s: no memory for a map", self->name);
    }
    return map;
}

static void free_urcu(struct rcu_head *head)
{
    free(caa_container_of(head, urcu_node, head));
}

static void close_urcu(void *map)
{
    struct cds_lfht_iter iter;
    urcu_node *n;
    urcu_memb_register_thread();
    urcu_memb_read_lock();
    cds_lfht_for_each_entry(map, &iter, n, node)
    {
        cds_lfht_del(map, &n->node);
        urcu_memb_call_rcu(&n->head, free_urcu);
    }
    urcu_memb_read_unlock();
    urcu_memb_unregister_thread();
    urcu_memb_barrier();
    cds_lfht_destroy(map, NULL);
}

static int match_urcu(struct cds_lfht_node *node, const void *key)
{
    return caa_container_of(node, urcu_node, node)->key == *(const uint64_t *)key;
}

static void drain_urcu(void *map)
{
    (void)map;
    urcu_memb_barrier();
}

static bool insert_urcu(void *map, uint64_t key)
{
    urcu_node *n = malloc(sizeof *n);
    if (!n) {
        err(1, "a node");
    }
    cds_lfht_node_init(&n->node);
    n->key = n->value = key;
    urcu_memb_read_lock();
    struct cds_lfht_node *in =
        cds_lfht_add_unique(map, ga_bench_hash(key), match_urcu, &key, &n->node);
    urcu_memb_read_unlock();
    if (in != &n->node) {
        free(n);
    }
    return in == &n->node;
}

static bool remove_urcu(void *map, uint64_t key)
{
    struct cds_lfht_iter iter;
    urcu_memb_read_lock();
    cds_lfht_lookup(map, ga_bench_hash(key), match_urcu, &key, &iter);
    struct cds_lfht_node *node = cds_lfht_iter_get_node(&iter);
    bool removed = node && cds_lfht_del(map, node) == 0;
    urcu_memb_read_unlock();
    if (removed) {
        urcu_memb_call_rcu(&caa_container_of(node, urcu_node, node)->head, free_urcu);
    }
    return removed;
}

static bool lookup_urcu(void *map, uint64_t key)
{
    struct cds_lfht_iter iter;
    urcu_memb_read_lock();
    cds_lfht_lookup(map, ga_bench_hash(key), match_urcu, &key, &iter);
    bool found = cds_lfht_iter_get_node(&iter) != NULL;
    urcu_memb_read_unlock();
    return found;
}

#define URCU(text, fixed)                                                                          \
    {                                                                                              \
        .name = (text), .open = open_urcu, .close = close_urcu,                                    \
        .enter = urcu_memb_register_thread, .leave = urcu_memb_unregister_thread,                  \
        .insert = insert_urcu, .remove = remove_urcu, .lookup = lookup_urcu, .drain = drain_urcu,  \
        .argument = (fixed)                                                                        \
    }

static const ga_bench_subject urcu[] = {URCU("urcu", 0), URCU("urcu-presized", 1)};
const ga_bench_peers ga_bench_peers_urcu = {urcu, sizeof urcu / sizeof *urcu};
