/* SPDX-License-Identifier: MIT
 *
 * The variants of the map, and what Debian packages: liburcu's cds_lfht, whose nodes are malloc's
 * and are freed after a grace period.
 */
#include "subjects.h"

#include <gpualloc/lfht.h>

#include <err.h>
#include <stdlib.h>

static void nothing(void)
{
}

/* ---- ours ----------------------------------------------------------------------------------- */

typedef struct ours {
    ga_heap *heap;
    ga_lfht *map;
} ours;

static void *open_ours(const subject *self, const char *heap, uint64_t keys)
{
    ours *o = calloc(1, sizeof *o);
    (void)keys;
    if (!o || ga_heap_open(&o->heap, GA_PLACE_HOST, 0, heap) != GA_OK) {
        errx(1, "%s: %s", heap, ga_error_text());
    }
    ga_lfht_options options = {.options_size = sizeof options,
                               .variant = (ga_lfht_variant)self->argument,
                               .heap = o->heap};
    if (ga_lfht_open(&o->map, &options) != GA_OK) {
        errx(1, "%s: %s", self->name, ga_error_text());
    }
    return o;
}

static void close_ours(void *map)
{
    ours *o = map;
    ga_lfht_close(o->map);
    ga_heap_close(o->heap);
    free(o);
}

static bool insert_ours(void *map, uint64_t key)
{
    ga_lfht_found was;
    return ga_lfht_insert(((ours *)map)->map, key, key, &was) == GA_OK && !was.found;
}

static bool remove_ours(void *map, uint64_t key)
{
    ga_lfht_found was;
    return ga_lfht_remove(((ours *)map)->map, key, &was) == GA_OK && was.found;
}

static bool lookup_ours(void *map, uint64_t key)
{
    ga_lfht_found found;
    return ga_lfht_lookup(((ours *)map)->map, key, &found) == GA_OK && found.found;
}

/* ---- liburcu -------------------------------------------------------------------------------- */

#ifdef BENCH_URCU
#define URCU_INLINE_SMALL_FUNCTIONS
#include <urcu/urcu-memb.h>

#include <urcu/rculfhash.h>

typedef struct urcu_node {
    struct cds_lfht_node node;
    struct rcu_head head;
    uint64_t key, value;
} urcu_node;

/* `argument` 0: it grows; 1: it has its size from the start. */
static void *open_urcu(const subject *self, const char *heap, uint64_t keys)
{
    unsigned long first = self->argument ? keys : 1024;
    (void)heap;
    void *map = cds_lfht_new_flavor(first, 1024, 0, self->argument ? 0 : CDS_LFHT_AUTO_RESIZE,
                                    &urcu_memb_flavor, NULL);
    if (!map) {
        errx(1, "%s: no map", self->name);
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

static unsigned long hash_urcu(uint64_t key)
{
    key = (key ^ (key >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    key = (key ^ (key >> 27)) * UINT64_C(0x94d049bb133111eb);
    return key ^ (key >> 31);
}

static int match_urcu(struct cds_lfht_node *node, const void *key)
{
    return caa_container_of(node, urcu_node, node)->key == *(const uint64_t *)key;
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
    struct cds_lfht_node *in = cds_lfht_add_unique(map, hash_urcu(key), match_urcu, &key, &n->node);
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
    cds_lfht_lookup(map, hash_urcu(key), match_urcu, &key, &iter);
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
    cds_lfht_lookup(map, hash_urcu(key), match_urcu, &key, &iter);
    bool found = cds_lfht_iter_get_node(&iter) != NULL;
    urcu_memb_read_unlock();
    return found;
}

#define URCU(text, fixed)                                                                          \
    {                                                                                              \
        (text), open_urcu, close_urcu, urcu_memb_register_thread, urcu_memb_unregister_thread,     \
            insert_urcu, remove_urcu, lookup_urcu, (fixed)                                         \
    }
#endif

#define OURS(text, variant)                                                                        \
    {                                                                                              \
        (text), open_ours, close_ours, nothing, nothing, insert_ours, remove_ours, lookup_ours,    \
            (variant)                                                                              \
    }

/* The first is the baseline. */
const subject subjects[] = {
#ifdef BENCH_URCU
    URCU("urcu", 0),
    URCU("urcu-presized", 1),
#endif
    OURS("FHPA", GA_LFHT_FHPA),
    OURS("FHP", GA_LFHT_FHP),
    OURS("FNF", GA_LFHT_FNF),
    OURS("CNF", GA_LFHT_CNF),
    OURS("SNF", GA_LFHT_SNF),
};
const size_t subject_count = sizeof subjects / sizeof *subjects;
