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
    LINE_NODE_LOG2 = LFHT_WEAKENED ? 2 : 6,
    LINE_KEYS_PER_BUCKET = 288, /* four and a half for each line of a node */
    LINE_SIZE_SHIFT = 2,
    LINE_SIZE_MASK = 15,
    LINE_SIZE_INDEX = 8, /* sizes: log2 of lines; this and log2 of an index's links; */
    LINE_SIZE_DEEP = 15, /* a deep node */
    LINE_VERSION_SHIFT = 2,
    LINE_VERSION_BITS = 20,
    LINE_TAG_SHIFT = 22,
    LINE_TAG_BITS = 6,
    LINE_TAG_FREE = 0, /* lanes */
    LINE_TAG_CLAIMED = 1,
    LINE_TAG_FIRST_HASH = 2,
    LINE_NONE = 64 /* no lane */
};

#define LINE_FROZEN    ((lfht_word)1) /* never changes again */
#define LINE_LINK      ((lfht_word)2)
#define LINE_NULL_LINK LINE_LINK /* a link to nothing */
#define LINE_TAG_MASK  ((lfht_word)63)
/* Ones at each lane's first bit, its last bit, its others. */
#define LINE_TAG_LOW_BITS                                                                          \
    (((lfht_word)1 | (lfht_word)1 << 6 | (lfht_word)1 << 12 | (lfht_word)1 << 18 |                 \
      (lfht_word)1 << 24 | (lfht_word)1 << 30 | (lfht_word)1 << 36)                                \
     << LINE_TAG_SHIFT)
#define LINE_TAG_HIGH_BITS  (LINE_TAG_LOW_BITS << (LINE_TAG_BITS - 1))
#define LINE_TAG_OTHER_BITS (LINE_TAG_HIGH_BITS - LINE_TAG_LOW_BITS)

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
_Static_assert((int)LINE_SIZE_DEEP <= (int)LINE_SIZE_MASK &&
                   LINE_SIZE_INDEX + LFHT_CHUNK_MOST - LINE_NODE_LOG2 < (int)LINE_SIZE_DEEP,
               "a deep node's size is that of no index, and fits the word");

typedef struct line_index {
    uint64_t padding, expanded; /* where a line has it */
    lfht_word root_words[];
} line_index;

typedef struct line_deep {
    uint64_t count, padding;
    line_pair pairs[];
} line_deep;

/* ---- links ---------------------------------------------------------------------------------- */

static inline void *line_node(lfht_word link)
{
    return (void *)(link & ~(lfht_word)(LINE_BYTES - 1));
}

static inline uint32_t line_size(lfht_word link)
{
    return (uint32_t)(link >> LINE_SIZE_SHIFT) & LINE_SIZE_MASK;
}

static inline lfht_word line_link_to(const void *node, uint32_t size)
{
    return (lfht_word)node | (lfht_word)size << LINE_SIZE_SHIFT | LINE_LINK;
}

static inline bool line_is_deep(lfht_word link)
{
    return line_size(link) == LINE_SIZE_DEEP;
}

static inline bool line_is_index(lfht_word link)
{
    return line_size(link) >= LINE_SIZE_INDEX;
}

static inline bool line_is_null_link(lfht_word word)
{
    return word & LINE_LINK && !line_node(word);
}

/* Bits of the hash that tell the node's places from each other. */
static inline uint32_t line_hash_bits(lfht_word link)
{
    return line_size(link) % LINE_SIZE_INDEX;
}

/* Log2 of the lines in the node, or in those that an index leads to. */
static inline uint32_t line_log2(lfht_word link)
{
    return line_hash_bits(link) + (line_is_index(link) ? LINE_NODE_LOG2 : 0);
}

static inline uint32_t line_location_count(lfht_word link)
{
    return line_is_deep(link) ? 0 : 1u << line_hash_bits(link);
}

static inline lfht_word *line_location(lfht_word link, uint64_t number)
{
    return line_is_index(link) ? &((line_index *)line_node(link))->root_words[number]
                               : &((lfht_line *)line_node(link))[number].word;
}

/* Of the hash, in a node behind `used` bits. */
static inline lfht_word *line_location_of(lfht_word link, uint32_t used, uint64_t hash)
{
    uint32_t bits = line_hash_bits(link);
    return line_location(link, bits ? hash << used >> (64 - bits) : 0);
}

static inline uint64_t *line_expanded(lfht_word link)
{
    return line_is_index(link) ? &((line_index *)line_node(link))->expanded
                               : &((lfht_line *)line_node(link))->expanded;
}

static inline size_t line_deep_size(uint64_t count)
{
    return sizeof(line_deep) + count * sizeof(line_pair);
}

/* Bytes of the node. */
static inline size_t line_node_size(lfht_word link)
{
    if (line_is_deep(link)) {
        return line_deep_size(((const line_deep *)line_node(link))->count);
    }
    return line_is_index(link) ? sizeof(line_index) + (sizeof(lfht_word) << line_hash_bits(link))
                               : (size_t)LINE_BYTES << line_hash_bits(link);
}

/* ---- lanes ---------------------------------------------------------------------------------- */

/* The last bits of the lanes that are not 0, and of those that are. */
static inline lfht_word line_used_cells(lfht_word word)
{
    return (((word & LINE_TAG_OTHER_BITS) + LINE_TAG_OTHER_BITS) | word) & LINE_TAG_HIGH_BITS;
}

static inline lfht_word line_free_cells(lfht_word word)
{
    return ~line_used_cells(word) & LINE_TAG_HIGH_BITS;
}

static inline lfht_word line_live_cells(lfht_word word)
{
    return line_used_cells(word & ~LINE_TAG_LOW_BITS);
}

static inline lfht_word line_cells_tagged(lfht_word word, lfht_word tag)
{
    return line_free_cells(word ^ tag * LINE_TAG_LOW_BITS);
}

/* The first of them. */
static inline uint32_t line_first_cell(lfht_word cells)
{
    return (uint32_t)(__builtin_ctzll(cells) - LINE_TAG_SHIFT) / LINE_TAG_BITS;
}

static inline uint32_t line_count_cells(lfht_word cells)
{
    lfht_word firsts = cells >> (LINE_TAG_SHIFT + LINE_TAG_BITS - 1);
    return (uint32_t)(firsts * (LINE_TAG_LOW_BITS >> LINE_TAG_SHIFT) >> 36) & LINE_TAG_MASK;
}

/* Of bits that buckets do not go by alone. */
static inline lfht_word line_tag_of(uint64_t hash)
{
    lfht_word tag = hash * UINT64_C(0x9e3779b97f4a7c15) >> 58;
    return tag < LINE_TAG_FIRST_HASH ? tag + LINE_TAG_FIRST_HASH : tag;
}

static inline lfht_word line_set_tag(lfht_word word, uint32_t cell, lfht_word tag)
{
    uint32_t shift = LINE_TAG_SHIFT + LINE_TAG_BITS * cell;
    return (word & ~(LINE_TAG_MASK << shift)) | tag << shift;
}

/* The next version. */
static inline lfht_word line_next_version(lfht_word word)
{
    return GA_LFHT_MUTANT == 12 ? word : word + ((lfht_word)1 << LINE_VERSION_SHIFT);
}

/* There is no next one. Where threads nap, soon. */
static inline bool line_version_exhausted(lfht_word word)
{
    lfht_word last = LFHT_WEAKENED ? 63 : ((lfht_word)1 << LINE_VERSION_BITS) - 1;
    return (word >> LINE_VERSION_SHIFT & (((lfht_word)1 << LINE_VERSION_BITS) - 1)) >= last;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

/* By whoever has claimed it. */
static inline void line_write_pair(line_pair *pair, uint64_t key, uint64_t value)
{
    lfht_test_yield();
    /* L1: release. Pairs with L2: who reads this sees, at the next look at the word, that the lane
     * was claimed. */
    __atomic_store_n(&pair->key, key, __ATOMIC_RELEASE);
    lfht_test_yield();
    /* L1, again: release. Pairs with L2. */
    __atomic_store_n(&pair->value, value, __ATOMIC_RELEASE);
}

static inline uint64_t line_read_half(const uint64_t *half)
{
    lfht_test_yield();
    /* L2: acquire. Pairs with L1; and L3 stands behind it. */
    return __atomic_load_n(half, __ATOMIC_ACQUIRE);
}

/* The line's word is the same still. */
static inline bool line_validate(const lfht_line *line, lfht_word word)
{
    if (GA_LFHT_MUTANT == 13) {
        return true;
    }
    /* L3: relaxed, behind L2. Pairs with W1: the claim came before the write that L2 has seen. */
    return __atomic_load_n(&line->word, __ATOMIC_RELAXED) == word;
}

typedef enum line_result {
    LINE_ABSENT = 0,
    LINE_FOUND,
    LINE_CHANGED /* look at the word again */
} line_result;

/* Where keys are equal that are the same: nothing is called, so that a lookup's values stay in
 * registers. */
static inline line_result line_search_bitwise(const lfht_line *line, lfht_word word,
                                              lfht_word cells, uint64_t key, uint32_t *cell,
                                              uint64_t *value)
{
    do {
        *cell = line_first_cell(cells);
        if (line_read_half(&line->pairs[*cell].key) == key) {
            *value = line_read_half(&line->pairs[*cell].value);
            return line_validate(line, word) ? LINE_FOUND : LINE_CHANGED;
        }
        cells &= cells - 1;
    } while (cells);
    return line_validate(line, word) ? LINE_ABSENT : LINE_CHANGED;
}

/* The key's lane and value, as they were when the word was read. Only keys that were in the map
 * then are shown to the caller's function; without `map` there is none. */
static inline line_result line_search(const ga_lfht *map, const lfht_line *line, lfht_word word,
                                      uint64_t hash, uint64_t key, uint32_t *cell, uint64_t *value)
{
    lfht_word cells = line_cells_tagged(word, line_tag_of(hash));
    if (!cells) {
        return LINE_ABSENT;
    }
    if (__builtin_expect(!map || !map->equal, 1)) {
        return line_search_bitwise(line, word, cells, key, cell, value);
    }
    do {
        *cell = line_first_cell(cells);
        uint64_t seen = line_read_half(&line->pairs[*cell].key);
        *value = line_read_half(&line->pairs[*cell].value);
        if (!line_validate(line, word)) {
            return LINE_CHANGED;
        }
        if (lfht_same_key(map, seen, key)) {
            return LINE_FOUND;
        }
        cells &= cells - 1;
    } while (cells);
    return line_validate(line, word) ? LINE_ABSENT : LINE_CHANGED;
}

/* All pairs, as they were when the word was read; how many, or LINE_NONE. */
static inline uint32_t line_copy_pairs(const lfht_line *line, lfht_word word, line_pair *out)
{
    uint32_t n = 0;
    for (lfht_word cells = line_live_cells(word); cells; cells &= cells - 1) {
        const line_pair *pair = &line->pairs[line_first_cell(cells)];
        out[n++] = (line_pair){line_read_half(&pair->key), line_read_half(&pair->value)};
    }
    return line_validate(line, word) ? n : LINE_NONE;
}

#endif
