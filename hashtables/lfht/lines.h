/* SPDX-License-Identifier: MIT
 *
 * Lines: the buckets of INLINE. A line is 128 bytes and holds up to seven pairs itself, in cells.
 * One word describes the whole line, and every change of the line is a swap of that word.
 *
 *     63                                    22 21        2  1        0
 *     | seven tags of six bits                | version   | 0 | FROZEN |    a line with pairs
 *     | address, a multiple of 128            | size    | 1 | FROZEN |    a link
 *
 * The tag of a cell is 0 if the cell is free, and 1 if a thread has claimed it and is writing its
 * pair. From 2 on the pair is in the map, and the tag is a part of its key's hash.
 *
 * A link leads to one of these: a node of up to 64 lines; an index, whose links lead to such
 * nodes; a deep node, where no bits of the hash are left: an array of keys with one hash, which
 * never changes; or nothing (a null link). The root is an index without a header. So all large
 * nodes have one size, and the memory of an old node serves the next.
 *
 * INVARIANT  A line's word never comes back. Each swap raises the version. When the version is
 *            exhausted the line does not change again before a new node replaces the line's node. A
 *            line that became a link stays a link until its node is retired. A claimed cell belongs
 *            to its thread until then.
 *
 * ORDER      LW (words.h): words. LL1, LL2 and LL3 below: a reader loads the word, the pairs, and
 *            the word again. If the word is the same, the pairs are those of the first load.
 */
#ifndef GPUALLOC_LFHT_LINES_H
#define GPUALLOC_LFHT_LINES_H

#include "map.h"

enum {
    LINE_PAIRS = 7,
    LINE_BYTES = 128,
    /* Log2 of the most lines of a node. Large enough that the roots and indices above stay in the
     * processor's own caches: then a call waits for memory once, for its line. */
    LINE_NODE_LOG2 = LFHT_WEAKENED ? 2 : 6,
    LINE_KEYS_PER_BUCKET = 288, /* 64 lines with 4.5 pairs each */
    LINE_SIZE_SHIFT = 2,
    LINE_SIZE_MASK = 15,
    LINE_SIZE_INDEX = 8, /* sizes below: log2 of lines; from here on: + log2 of an index's links */
    LINE_SIZE_DEEP = 15, /* a deep node */
    LINE_VERSION_SHIFT = 2,
    LINE_VERSION_BITS = 20,
    LINE_TAG_SHIFT = 22,
    LINE_TAG_BITS = 6,
    LINE_TAG_FREE = 0, /* tags */
    LINE_TAG_CLAIMED = 1,
    LINE_TAG_FIRST_HASH = 2,
    LINE_NONE = 64 /* no cell */
};

#define LINE_FROZEN    ((lfht_word)1) /* the word never changes again */
#define LINE_LINK      ((lfht_word)2)
#define LINE_NULL_LINK LINE_LINK
#define LINE_TAG_MASK  ((lfht_word)63)
/* In each tag: the lowest bit, the highest bit, all but the highest. */
#define LINE_TAG_LOW_BITS                                                                          \
    (((lfht_word)1 | (lfht_word)1 << 6 | (lfht_word)1 << 12 | (lfht_word)1 << 18 |                 \
      (lfht_word)1 << 24 | (lfht_word)1 << 30 | (lfht_word)1 << 36)                                \
     << LINE_TAG_SHIFT)
#define LINE_TAG_HIGH_BITS  (LINE_TAG_LOW_BITS << (LINE_TAG_BITS - 1))
#define LINE_TAG_OTHER_BITS (LINE_TAG_HIGH_BITS - LINE_TAG_LOW_BITS)

/* Accesses are relaxed where no comment says more: readers may load a pair while a writer stores
 * it. */
typedef struct line_pair {
    uint64_t key, value;
} line_pair;

typedef struct lfht_line {
    lfht_word word;
    /* relaxed. In a node's first line: how many lines of the node have become links, as a hint that
     * the node is too small. An index counts for all its nodes. */
    uint64_t expanded;
    line_pair pairs[LINE_PAIRS];
} __attribute__((aligned(LINE_BYTES))) lfht_line;

_Static_assert(sizeof(lfht_line) == LINE_BYTES, "no pair stands in two cache lines");
_Static_assert((int)LINE_SIZE_DEEP <= (int)LINE_SIZE_MASK &&
                   LINE_SIZE_INDEX + LFHT_CHUNK_MAX - LINE_NODE_LOG2 < (int)LINE_SIZE_DEEP,
               "a deep node's size is that of no index, and fits the word");

typedef struct line_index {
    uint64_t padding, expanded; /* `expanded` has the offset that it has in a line */
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

/* Bits of the hash that select a location of the node: a line, or a link of an index. */
static inline uint32_t line_hash_bits(lfht_word link)
{
    return line_size(link) % LINE_SIZE_INDEX;
}

/* Log2 of the lines in the node, or of those in all nodes of an index. */
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

/* The location for the hash, in a node behind the first `used` bits. */
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

/* ---- tags ----------------------------------------------------------------------------------- */

/* Sets of cells, as the highest bits of their tags: cells in use (tag not 0), free cells (tag 0),
 * cells in the map (tag 2 or more), and cells with a given tag. */
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

/* The first cell of the set. */
static inline uint32_t line_first_cell(lfht_word cells)
{
    return (uint32_t)(__builtin_ctzll(cells) - LINE_TAG_SHIFT) / LINE_TAG_BITS;
}

static inline uint32_t line_count_cells(lfht_word cells)
{
    lfht_word firsts = cells >> (LINE_TAG_SHIFT + LINE_TAG_BITS - 1);
    return (uint32_t)(firsts * (LINE_TAG_LOW_BITS >> LINE_TAG_SHIFT) >> 36) & LINE_TAG_MASK;
}

/* The tag of a hash. Multiplied first, so that it does not depend only on the bits that select
 * lines. */
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

/* The word with the next version. */
static inline lfht_word line_next_version(lfht_word word)
{
    return GA_PLANTED(lfht_line_without_version) ? word
                                                 : word + ((lfht_word)1 << LINE_VERSION_SHIFT);
}

/* True if the version cannot rise any more. In the stress tests after 63 changes. */
static inline bool line_version_exhausted(lfht_word word)
{
    lfht_word last = LFHT_WEAKENED ? 63 : ((lfht_word)1 << LINE_VERSION_BITS) - 1;
    return (word >> LINE_VERSION_SHIFT & (((lfht_word)1 << LINE_VERSION_BITS) - 1)) >= last;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

/* Write the pair. The caller has claimed its cell. */
static inline void line_write_pair(line_pair *pair, uint64_t key, uint64_t value)
{
    lfht_test_yield();
    /* LL1: release. Pairs with LL2: a reader that loads this key sees the claim of the cell when it
     * validates the word. */
    __atomic_store_n(&pair->key, key, __ATOMIC_RELEASE);
    lfht_test_yield();
    /* LL1, again: release. Pairs with LL2. */
    __atomic_store_n(&pair->value, value, __ATOMIC_RELEASE);
}

static inline uint64_t line_read_half(const uint64_t *half)
{
    lfht_test_yield();
    /* LL2: acquire. Pairs with LL1; LL3 comes after it. */
    return __atomic_load_n(half, __ATOMIC_ACQUIRE);
}

/* Validate: the line's word is still `word`. */
static inline bool line_validate(const lfht_line *line, lfht_word word)
{
    if (GA_PLANTED(lfht_line_not_validated)) {
        return true;
    }
    /* LL3: relaxed, ordered behind LL2. Pairs with LW1: the claim came before the write that LL2
     * has read. */
    return __atomic_load_n(&line->word, __ATOMIC_RELAXED) == word;
}

typedef enum line_result {
    LINE_ABSENT = 0,
    LINE_FOUND,
    LINE_CHANGED /* validation failed: load the word again */
} line_result;

/* line_search() for keys that are equal if their bits are. Calls no function, so that a lookup's
 * values stay in registers. */
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

/* Search the line for the key. On LINE_FOUND `*cell` and `*value` are as they were when `word` was
 * loaded. The caller's equal function sees only keys that were in the map then. With `map` NULL
 * keys are compared by their bits. */
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

/* Copy all pairs, as they were when `word` was loaded. Returns their number, or LINE_NONE if the
 * line has changed. */
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
