/* SPDX-License-Identifier: MIT
 *
 * HHL: never shrinks, and frees unlinked leaves that no hazard pair covers (lfht-reclamation-2022,
 * §4.3.2). The members and the ordering of their hazard slots are those of a domain
 * (docs/internals/reclaim.md). The domain itself retires nothing, because it compares addresses,
 * and a pair is not an address.
 *
 * STRUCTURE  thread -> (hash, level), ...      one for its walk, and one for each cursor of a batch
 *            shard -> leaf -> leaf -> ...      retired leaves, linked by the words behind them. The
 *                                              level bits of these hold the birth level: the level
 *                                              at which the leaf was inserted into the map
 *
 * INVARIANT  A thread publishes the pair before it reads the bucket that the hash has in the node
 *            of that level. From there it finds only leaves whose hashes agree with its own in the
 *            bits that select this bucket, and whose birth level is that level, above it, or one
 *            below: it does not follow words of deeper levels. So a pair protects all of these
 *            leaves, and no others. Hash nodes are never freed, so none needs protection.
 *
 * ORDER      U is the swap that unlinked a leaf, before it was retired. RS1 and RS2 are the
 *            domain's (scan.c there), RP1 and RP2 its readers'. Either the scan sees the pair, or
 *            the thread published it after RS1; then it sees U in the bucket and from there on.
 *            This is as with hazard pointers, but RP2 is the load of the word itself, and no
 *            validation follows. A leaf in front of this one that was removed before is not found
 *            either, because it was unlinked before. A pair that is half of one call and half of
 *            the next was published after RS1.
 *            LG1 (lfht.c): the leaves, and their U, happen before the takeover of the list.
 *            The scan reads all pairs twice, as the method has it because of helpers that reinsert
 *            removed leaves (§4.4.3). Here no helper does that (expand.h), so once would do.
 *
 * PROGRESS   Retiring needs no memory. The steps of a scan are the leaves of a shard times the
 *            pairs. There is no bound on unfreed leaves: a thread stopped inside a call keeps
 *            everything that is removed from its chain.
 */
#define LFHT_SHRINKS LFHT_NEVER
#define LFHT_HAZARDS LFHT_HAZARD_PAIRS
#include "batch.h"

LFHT_VARIANT(ga_lfht_hhl, "HHL", false);

enum {
    PAIRS_AT_ONCE = 64, /* pairs that are compared at once */
    READINGS = 2
};

typedef struct hazard_pair {
    uint64_t hash;
    uint32_t level, bits; /* how many bits of the hash select the bucket */
} hazard_pair;

/* A list through the garbage links; the level bits of the links stay. */
typedef struct retired_list {
    lfht_word first;
    uint64_t count;
} retired_list;

static void retired_push(retired_list *list, lfht_word word)
{
    lfht_word *link = lfht_garbage_link(word);
    *link = (*link & LFHT_LEVEL) | list->first;
    list->first = word;
    list->count++;
}

static lfht_word retired_pop(retired_list *list)
{
    lfht_word word = list->first;
    list->first = *lfht_garbage_link(word) & ~LFHT_LEVEL;
    list->count--;
    return word;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

static bool pair_protects(const hazard_pair *p, lfht_word word)
{
    const lfht_leaf *leaf = lfht_pointer(word);
    uint64_t difference =
        p->bits < 64 ? (leaf->hash ^ p->hash) >> (64 - p->bits) : leaf->hash ^ p->hash;
    return difference == 0 && lfht_level(*lfht_garbage_link(word)) <= p->level + 1;
}

/* Move the leaves that one of the n pairs protects from `from` to `kept`. */
static void separate_protected(const hazard_pair *pairs, uint32_t n, retired_list *from,
                               retired_list *kept)
{
    retired_list left = {0, 0};
    while (from->first && n > 0 && !GA_PLANTED(lfht_hazard_pairs_not_read)) {
        lfht_word word = retired_pop(from);
        uint32_t i = 0;
        while (i < n && !pair_protects(&pairs[i], word)) {
            i++;
        }
        retired_push(i < n ? kept : &left, word);
    }
    *from = left.first ? left : *from;
}

/* Read a pair from the member's hazard slots. False if it protects nothing. */
static bool read_pair(const ga_lfht *map, const ga_member *member, uint32_t slot, hazard_pair *out)
{
    uintptr_t level = ga_scan_load_slot(member, slot + LFHT_SLOT_LEVEL);
    if (level) {
        out->hash = ga_scan_load_slot(member, slot + LFHT_SLOT_HASH);
        out->level = (uint32_t)level - 1;
        out->bits = map->root->bits + out->level * map->chunk;
    }
    return level != 0;
}

/* Compare with the pairs of all members, once. */
static void separate_by_all_pairs(const ga_lfht *map, retired_list *from, retired_list *kept)
{
    hazard_pair pairs[PAIRS_AT_ONCE];
    uint32_t n = 0;
    for (const ga_member *m = ga_member_head(map->domain); m; m = m->next) {
        for (uint32_t slot = 0; slot + 1 < m->hazards.count; slot += LFHT_PAIR_SLOTS) {
            n += read_pair(map, m, slot, &pairs[n]);
            if (n == PAIRS_AT_ONCE) {
                separate_protected(pairs, n, from, kept);
                n = 0;
            }
        }
    }
    separate_protected(pairs, n, from, kept);
}

/* ---- scanning ------------------------------------------------------------------------------- */

static retired_list take_retired(lfht_shard *shard)
{
    /* LG2: acquire. Pairs with LG1 (lfht.c): the thread that takes the list sees its leaves
     * unlinked. */
    retired_list all = {__atomic_exchange_n(&shard->garbage, 0, __ATOMIC_ACQUIRE), 0};
    for (lfht_word word = all.first; word; word = *lfht_garbage_link(word) & ~LFHT_LEVEL) {
        all.count++;
    }
    return all;
}

/* Return the protected leaves to the shard. The next scan is due after another batch. */
static void return_retired(const ga_lfht *map, lfht_shard *shard, retired_list *kept,
                           uint64_t taken)
{
    uint64_t count = kept->count;
    while (kept->first) {
        ga_lfht_add_garbage(shard, retired_pop(kept));
    }
    /* relaxed: only decides when a scan is due */
    __atomic_fetch_sub(&shard->waiting, taken - count, __ATOMIC_RELAXED);
    __atomic_store_n(&shard->limit, count + map->batch, __ATOMIC_RELAXED);
}

static bool hhl_scan(ga_lfht *map, lfht_shard *shard)
{
    retired_list all = take_retired(shard), kept = {0, 0};
    uint64_t taken = all.count;
    bool ordered = ga_scan_heavy_fence(map->domain);
    for (int reading = 0; ordered && reading < READINGS; reading++) {
        separate_by_all_pairs(map, &all, &kept);
    }
    return_retired(map, shard, ordered ? &kept : &all, taken);
    lfht_count(&shard->freed, ordered ? all.count : 0);
    while (ordered && all.first) {
        ga_free(map->heap, lfht_pointer(retired_pop(&all)));
    }
    return ordered;
}

void ga_lfht_hhl_retire(ga_lfht *map, lfht_shard *shard, lfht_word word)
{
    ga_lfht_add_garbage(shard, word);
    lfht_count(&shard->retired, 1);
    /* relaxed: as in return_retired() */
    uint64_t limit = __atomic_load_n(&shard->limit, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&shard->waiting, 1, __ATOMIC_RELAXED) >= (limit ? limit : map->batch)) {
        hhl_scan(map, shard);
    }
}

bool ga_lfht_hhl_drain(ga_lfht *map)
{
    bool ordered = true;
    for (uint32_t i = 0; i < LFHT_SHARDS; i++) {
        ordered &= hhl_scan(map, &map->shards[i]);
    }
    return ordered;
}
