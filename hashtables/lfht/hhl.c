/* SPDX-License-Identifier: MIT
 *
 * HHL: never shrinks, and frees leaves that are in no chain which a hazard pair stands for
 * (lfht-reclamation-2022, §4.3.2). Members and the order of their slots are those of a domain
 * (docs/reclaim.md), which retires nothing itself: it knows addresses, and a pair is none.
 *
 * STRUCTURE  thread -> (hash, level), ...      one for its walk, and one for each glance of a batch
 *            lane -> leaf -> leaf -> ...       retired, by the words behind them, whose level bits
 *                                               say where each was born: the level at which it was
 *                                               put into the map
 *
 * INVARIANT  A thread sets the pair before it reads the bucket that has the hash in the node of
 *            that level, and from there finds nothing but leaves whose hashes begin with the same
 *            bits, up to that bucket's, and which were born at that level, above it, or one below:
 *            words of higher levels it does not follow. So a pair protects all of these, and no
 *            others.
 *            Hash nodes are never freed: nobody has to protect one.
 *
 * ORDER      U is the swap that took a leaf out, before it was retired. S1 and S2 are the domain's
 *            (scan.c there), P1 and P2 its readers': the scan sees the pair, or the thread set it
 *            behind S1, and then, in the bucket and from there on, sees U; as with hazard pointers,
 *            but what P2 reads is wanted itself, and is not looked at again. A leaf in front of
 *            this one that was out already is not found either: it was taken out before. A pair
 *            that is half of one call and half of the next was set behind S1.
 *            G (lfht.c): what was retired, and U, happen before whoever takes the list over.
 *
 *            All pairs are read twice, as the method has it for helpers that put back what was
 *            removed (§4.4.3). Here none does (expand.h), and once would do.
 *
 * PROGRESS   Retiring needs no memory. A scan takes steps by the leaves of a lane and the pairs.
 *            There is no bound: one who stops inside a call keeps whatever is removed from that
 *            chain.
 */
#define LFHT_SHRINKS LFHT_NEVER
#define LFHT_HAZARDS LFHT_PAIRS
#include "batch.h"

LFHT_VARIANT(ga_lfht_hhl, "HHL", false);

enum {
    PAIRS = 64, /* that are looked at in one go */
    READINGS = 2
};

typedef struct pair {
    uint64_t hash;
    uint32_t level, bits; /* that the bucket stands for */
} pair;

/* Lists through the links, without levels. */
typedef struct leaves {
    lfht_word first;
    uint64_t count;
} leaves;

static void push(leaves *list, lfht_word word)
{
    lfht_word *link = lfht_link(word);
    *link = (*link & LFHT_LEVEL) | list->first;
    list->first = word;
    list->count++;
}

static lfht_word pop(leaves *list)
{
    lfht_word word = list->first;
    list->first = *lfht_link(word) & ~LFHT_LEVEL;
    list->count--;
    return word;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

static bool protects(const pair *p, lfht_word word)
{
    const lfht_leaf *leaf = lfht_at(word);
    uint64_t apart = p->bits < 64 ? (leaf->hash ^ p->hash) >> (64 - p->bits) : leaf->hash ^ p->hash;
    return apart == 0 && lfht_level(*lfht_link(word)) <= p->level + 1;
}

/* Those that one of the pairs protects go from the one list to the other. */
static void sort_out(const pair *pairs, uint32_t n, leaves *from, leaves *kept)
{
    leaves left = {0, 0};
    while (from->first && n > 0 && GA_LFHT_MUTANT != 10) {
        lfht_word word = pop(from);
        uint32_t i = 0;
        while (i < n && !protects(&pairs[i], word)) {
            i++;
        }
        push(i < n ? kept : &left, word);
    }
    *from = left.first ? left : *from;
}

/* What the thread's slots say; false for nothing. */
static bool read_pair(const ga_lfht *map, const ga_member *member, uint32_t slot, pair *out)
{
    uintptr_t level = ga_scan_load_slot(member, slot + LFHT_SLOT_LEVEL);
    if (level) {
        out->hash = ga_scan_load_slot(member, slot + LFHT_SLOT_HASH);
        out->level = (uint32_t)level - 1;
        out->bits = map->root->bits + out->level * map->chunk;
    }
    return level != 0;
}

/* All pairs once. */
static void read_pairs(const ga_lfht *map, leaves *from, leaves *kept)
{
    pair pairs[PAIRS];
    uint32_t n = 0;
    for (const ga_member *m = ga_member_head(map->domain); m; m = m->next) {
        for (uint32_t slot = 0; slot + 1 < m->hazards.count; slot += LFHT_PAIR_SLOTS) {
            n += read_pair(map, m, slot, &pairs[n]);
            if (n == PAIRS) {
                sort_out(pairs, n, from, kept);
                n = 0;
            }
        }
    }
    sort_out(pairs, n, from, kept);
}

/* ---- scanning ------------------------------------------------------------------------------- */

static leaves take(lfht_lane *lane)
{
    /* G2: acquire. Pairs with G (lfht.c): the leaves are out for whoever takes them. */
    leaves all = {__atomic_exchange_n(&lane->garbage, 0, __ATOMIC_ACQUIRE), 0};
    for (lfht_word word = all.first; word; word = *lfht_link(word) & ~LFHT_LEVEL) {
        all.count++;
    }
    return all;
}

/* Back into the lane; the next scan is due with a batch more. */
static void put_back(const ga_lfht *map, lfht_lane *lane, leaves *kept, uint64_t taken)
{
    uint64_t count = kept->count;
    while (kept->first) {
        ga_lfht_keep(lane, pop(kept));
    }
    /* relaxed: when a scan is due depends on nothing but these */
    __atomic_fetch_sub(&lane->waiting, taken - count, __ATOMIC_RELAXED);
    __atomic_store_n(&lane->limit, count + map->batch, __ATOMIC_RELAXED);
}

static bool scan(ga_lfht *map, lfht_lane *lane)
{
    leaves all = take(lane), kept = {0, 0};
    uint64_t taken = all.count;
    bool ordered = ga_scan_heavy_fence(map->domain);
    for (int reading = 0; ordered && reading < READINGS; reading++) {
        read_pairs(map, &all, &kept);
    }
    put_back(map, lane, ordered ? &kept : &all, taken);
    lfht_add(&lane->freed, ordered ? all.count : 0);
    while (ordered && all.first) {
        ga_free(map->heap, lfht_at(pop(&all)));
    }
    return ordered;
}

void ga_lfht_hhl_retire(ga_lfht *map, lfht_lane *lane, lfht_word word)
{
    ga_lfht_keep(lane, word);
    lfht_add(&lane->retired, 1);
    /* relaxed: as in put_back() */
    uint64_t limit = __atomic_load_n(&lane->limit, __ATOMIC_RELAXED);
    if (__atomic_add_fetch(&lane->waiting, 1, __ATOMIC_RELAXED) >= (limit ? limit : map->batch)) {
        scan(map, lane);
    }
}

bool ga_lfht_hhl_drain(ga_lfht *map)
{
    bool ordered = true;
    for (uint32_t i = 0; i < LFHT_LANES; i++) {
        ordered &= scan(map, &map->lanes[i]);
    }
    return ordered;
}
