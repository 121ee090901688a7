/* SPDX-License-Identifier: MIT
 *
 * Lines: buckets of the variant INLINE, which hold keys and values themselves, up to seven of them
 * in 128 bytes. One word says all about a line; whoever changes anything swaps that word.
 *
 *     63                                    22 21        2  1        0
 *     | seven lanes of six bits               | version   | 0 | FROZEN |    a line with pairs
 *     | address, a multiple of 128            | size    | 1 | FROZEN |    a link
 *
 * A lane says of its pair: 0 free; 1 claimed, by a thread that is writing it; from 2 on it is in
 * the map, and the lane is a part of its key's hash.
 *
 * A link leads to the node below: up to 64 lines; or an index, of links to such nodes; or, where
 * no bits of the hash are left, a deep node: keys with one hash, in an array that never changes. Or
 * to nothing. The root is an index. So all large nodes have one size, and memory that one leaves
 * serves the next.
 *
 * INVARIANT  A line's word never comes back. Each swap raises the version; one that cannot rise any
 *            more is worn, and only a new node goes on. Links never become pairs again: the line
 *            stays a link until its node goes. A claimed lane is its thread's until the node goes.
 *
 * ORDER      W (words.h): words. L1, L2 and L3 below: pairs are read between two looks at the word,
 *            and are what they were at the first look if the word is the same at the second.
 */
#ifndef GPUALLOC_LFHT_LINES_H
#define GPUALLOC_LFHT_LINES_H

#include "map.h"

enum {
    LINE_PAIRS = 7,
    LINE_BYTES = 128,
    /* Log2 of the most lines of a node. As large that roots and indices stay in the processor's
     * own caches: a call waits for memory once, for its line. */
    LINE_PAGE = LFHT_WEAKENED ? 2 : 6,
    LINE_ROOT_KEYS = 288, /* four and a half for each line of a node */
    LINE_SIZE_SHIFT = 2,
    LINE_SIZE_MASK = 15,
    LINE_INDEX = 8, /* sizes: log2 of lines; this and log2 of an index's links; */
    LINE_DEEP = 15, /* a deep node */
    LINE_VERSION_SHIFT = 2,
    LINE_VERSION_BITS = 20,
    LINE_LANE_SHIFT = 22,
    LINE_LANE_BITS = 6,
    LINE_FREE = 0, /* lanes */
    LINE_CLAIMED = 1,
    LINE_FIRST_CODE = 2,
    LINE_NONE = 64 /* no lane */
};

#define LINE_FROZEN  ((lfht_word)1) /* never changes again */
#define LINE_LINK    ((lfht_word)2)
#define LINE_NOTHING LINE_LINK /* a link to nothing */
#define LINE_LANE    ((lfht_word)63)
/* Ones at each lane's first bit, its last bit, its others. */
#define LINE_ONES                                                                                  \
    (((lfht_word)1 | (lfht_word)1 << 6 | (lfht_word)1 << 12 | (lfht_word)1 << 18 |                 \
      (lfht_word)1 << 24 | (lfht_word)1 << 30 | (lfht_word)1 << 36)                                \
     << LINE_LANE_SHIFT)
#define LINE_HIGHS (LINE_ONES << (LINE_LANE_BITS - 1))
#define LINE_LOWS  (LINE_HIGHS - LINE_ONES)

/* relaxed where a comment does not say more: `key` and `value` are read while others write them */
typedef struct line_pair {
    uint64_t key, value;
} line_pair;

typedef struct lfht_line {
    lfht_word word;
    /* relaxed; of a node's first line: how many lines of the node have become links. A hint of when
     * it is too small. An index counts for its nodes. */
    uint64_t expanded;
    line_pair pairs[LINE_PAIRS];
} __attribute__((aligned(LINE_BYTES))) lfht_line;

_Static_assert(sizeof(lfht_line) == LINE_BYTES, "no pair stands in two cache lines");
_Static_assert((int)LINE_DEEP <= (int)LINE_SIZE_MASK &&
                   LINE_INDEX + LFHT_CHUNK_MOST - LINE_PAGE < (int)LINE_DEEP,
               "a deep node's size is that of no index, and fits the word");

typedef struct line_index {
    uint64_t apart, expanded; /* where a line has it */
    lfht_word words[];
} line_index;

typedef struct line_deep {
    uint64_t count, apart;
    line_pair pairs[];
} line_deep;

/* ---- links ---------------------------------------------------------------------------------- */

static inline void *line_at(lfht_word link)
{
    return (void *)(link & ~(lfht_word)(LINE_BYTES - 1));
}

static inline uint32_t line_size(lfht_word link)
{
    return (uint32_t)(link >> LINE_SIZE_SHIFT) & LINE_SIZE_MASK;
}

static inline lfht_word line_to(const void *node, uint32_t size)
{
    return (lfht_word)node | (lfht_word)size << LINE_SIZE_SHIFT | LINE_LINK;
}

static inline bool line_is_deep(lfht_word link)
{
    return line_size(link) == LINE_DEEP;
}

static inline bool line_is_index(lfht_word link)
{
    return line_size(link) >= LINE_INDEX;
}

static inline bool line_is_nothing(lfht_word word)
{
    return word & LINE_LINK && !line_at(word);
}

/* Bits of the hash that tell the node's places from each other. */
static inline uint32_t line_bits(lfht_word link)
{
    return line_size(link) % LINE_INDEX;
}

/* Log2 of the lines in the node, or in those that an index leads to. */
static inline uint32_t line_log2(lfht_word link)
{
    return line_bits(link) + (line_is_index(link) ? LINE_PAGE : 0);
}

static inline uint32_t line_places(lfht_word link)
{
    return line_is_deep(link) ? 0 : 1u << line_bits(link);
}

static inline lfht_word *line_place(lfht_word link, uint64_t number)
{
    return line_is_index(link) ? &((line_index *)line_at(link))->words[number]
                               : &((lfht_line *)line_at(link))[number].word;
}

/* Of the hash, in a node behind `used` bits. */
static inline lfht_word *line_place_of(lfht_word link, uint32_t used, uint64_t hash)
{
    uint32_t bits = line_bits(link);
    return line_place(link, bits ? hash << used >> (64 - bits) : 0);
}

static inline uint64_t *line_expanded(lfht_word link)
{
    return line_is_index(link) ? &((line_index *)line_at(link))->expanded
                               : &((lfht_line *)line_at(link))->expanded;
}

static inline size_t line_deep_size(uint64_t count)
{
    return sizeof(line_deep) + count * sizeof(line_pair);
}

/* Bytes of the node. */
static inline size_t line_node_size(lfht_word link)
{
    if (line_is_deep(link)) {
        return line_deep_size(((const line_deep *)line_at(link))->count);
    }
    return line_is_index(link) ? sizeof(line_index) + (sizeof(lfht_word) << line_bits(link))
                               : (size_t)LINE_BYTES << line_bits(link);
}

/* ---- lanes ---------------------------------------------------------------------------------- */

/* The last bits of the lanes that are not 0, and of those that are. */
static inline lfht_word line_used(lfht_word word)
{
    return (((word & LINE_LOWS) + LINE_LOWS) | word) & LINE_HIGHS;
}

static inline lfht_word line_free(lfht_word word)
{
    return ~line_used(word) & LINE_HIGHS;
}

static inline lfht_word line_live(lfht_word word)
{
    return line_used(word & ~LINE_ONES);
}

static inline lfht_word line_with(lfht_word word, lfht_word code)
{
    return line_free(word ^ code * LINE_ONES);
}

/* The first of them. */
static inline uint32_t line_lane(lfht_word lasts)
{
    return (uint32_t)(__builtin_ctzll(lasts) - LINE_LANE_SHIFT) / LINE_LANE_BITS;
}

static inline uint32_t line_count(lfht_word lasts)
{
    lfht_word firsts = lasts >> (LINE_LANE_SHIFT + LINE_LANE_BITS - 1);
    return (uint32_t)(firsts * (LINE_ONES >> LINE_LANE_SHIFT) >> 36) & LINE_LANE;
}

/* Of bits that buckets do not go by alone. */
static inline lfht_word line_code(uint64_t hash)
{
    lfht_word code = hash * UINT64_C(0x9e3779b97f4a7c15) >> 58;
    return code < LINE_FIRST_CODE ? code + LINE_FIRST_CODE : code;
}

static inline lfht_word line_set(lfht_word word, uint32_t lane, lfht_word code)
{
    uint32_t shift = LINE_LANE_SHIFT + LINE_LANE_BITS * lane;
    return (word & ~(LINE_LANE << shift)) | code << shift;
}

/* The next version. */
static inline lfht_word line_raised(lfht_word word)
{
    return GA_LFHT_MUTANT == 12 ? word : word + ((lfht_word)1 << LINE_VERSION_SHIFT);
}

/* There is no next one. Where threads nap, soon. */
static inline bool line_worn(lfht_word word)
{
    lfht_word last = LFHT_WEAKENED ? 63 : ((lfht_word)1 << LINE_VERSION_BITS) - 1;
    return (word >> LINE_VERSION_SHIFT & (((lfht_word)1 << LINE_VERSION_BITS) - 1)) >= last;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

/* By whoever has claimed it. */
static inline void line_write(line_pair *pair, uint64_t key, uint64_t value)
{
    lfht_nap();
    /* L1: release. Pairs with L2: who reads this sees, at the next look at the word, that the lane
     * was claimed. */
    __atomic_store_n(&pair->key, key, __ATOMIC_RELEASE);
    lfht_nap();
    /* L1, again: release. Pairs with L2. */
    __atomic_store_n(&pair->value, value, __ATOMIC_RELEASE);
}

static inline uint64_t line_read(const uint64_t *half)
{
    lfht_nap();
    /* L2: acquire. Pairs with L1; and L3 stands behind it. */
    return __atomic_load_n(half, __ATOMIC_ACQUIRE);
}

/* The line's word is the same still. */
static inline bool line_is(const lfht_line *line, lfht_word word)
{
    if (GA_LFHT_MUTANT == 13) {
        return true;
    }
    /* L3: relaxed, behind L2. Pairs with W1: the claim came before the write that L2 has seen. */
    return __atomic_load_n(&line->word, __ATOMIC_RELAXED) == word;
}

typedef enum line_sight {
    LINE_ABSENT = 0,
    LINE_SEEN,
    LINE_CHANGED /* look at the word again */
} line_sight;

/* Where keys are equal that are the same: nothing is called, so that a lookup's values stay in
 * registers. */
static inline line_sight line_find_same(const lfht_line *line, lfht_word word, lfht_word lasts,
                                        uint64_t key, uint32_t *lane, uint64_t *value)
{
    do {
        *lane = line_lane(lasts);
        if (line_read(&line->pairs[*lane].key) == key) {
            *value = line_read(&line->pairs[*lane].value);
            return line_is(line, word) ? LINE_SEEN : LINE_CHANGED;
        }
        lasts &= lasts - 1;
    } while (lasts);
    return line_is(line, word) ? LINE_ABSENT : LINE_CHANGED;
}

/* The key's lane and value, as they were when the word was read. Only keys that were in the map
 * then are shown to the caller's function; without `map` there is none. */
static inline line_sight line_find(const ga_lfht *map, const lfht_line *line, lfht_word word,
                                   uint64_t hash, uint64_t key, uint32_t *lane, uint64_t *value)
{
    lfht_word lasts = line_with(word, line_code(hash));
    if (!lasts) {
        return LINE_ABSENT;
    }
    if (__builtin_expect(!map || !map->equal, 1)) {
        return line_find_same(line, word, lasts, key, lane, value);
    }
    do {
        *lane = line_lane(lasts);
        uint64_t seen = line_read(&line->pairs[*lane].key);
        *value = line_read(&line->pairs[*lane].value);
        if (!line_is(line, word)) {
            return LINE_CHANGED;
        }
        if (lfht_same_key(map, seen, key)) {
            return LINE_SEEN;
        }
        lasts &= lasts - 1;
    } while (lasts);
    return line_is(line, word) ? LINE_ABSENT : LINE_CHANGED;
}

/* All pairs, as they were when the word was read; how many, or LINE_NONE. */
static inline uint32_t line_copy(const lfht_line *line, lfht_word word, line_pair *out)
{
    uint32_t n = 0;
    for (lfht_word lasts = line_live(word); lasts; lasts &= lasts - 1) {
        const line_pair *pair = &line->pairs[line_lane(lasts)];
        out[n++] = (line_pair){line_read(&pair->key), line_read(&pair->value)};
    }
    return line_is(line, word) ? n : LINE_NONE;
}

#endif
