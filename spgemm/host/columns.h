/* SPDX-License-Identifier: MIT
 *
 * A set of columns of which a thread reads the members in order, without sorting them.
 *
 * STRUCTURE  Bits in three levels: one for each column, one for each word of those, and one for
 *            each word of the second level. Reading visits each member, and one word of the third
 *            level for every 2^18 columns between the first and the last member.
 *
 * INVARIANT  A bit of an upper level is set if and only if its word is not 0.
 */
#ifndef GPUALLOC_SPGEMM_HOST_COLUMNS_H
#define GPUALLOC_SPGEMM_HOST_COLUMNS_H

#include <stdint.h>

#define GA_SPGEMM_COLUMNS_MOST ((uint64_t)1 << 27) /* for which a set takes 16 MiB */

typedef struct ga_spgemm_columns {
    uint64_t *level[3]; /* words of each; NULL: there is no set */
} ga_spgemm_columns;

/* Words of all levels for `columns` columns. */
static inline uint64_t ga_spgemm_columns_words(uint64_t columns)
{
    uint64_t first = columns / 64 + 1, second = first / 64 + 1;
    return first + second + second / 64 + 1;
}

/* A set in `words`, which are 0. */
static inline ga_spgemm_columns ga_spgemm_columns_of(uint64_t *words, uint64_t columns)
{
    uint64_t first = columns / 64 + 1, second = first / 64 + 1;
    return (ga_spgemm_columns){{words, words + first, words + first + second}};
}

static inline void ga_spgemm_columns_add(ga_spgemm_columns set, uint32_t column)
{
    uint64_t *word = set.level[0] + (column >> 6), before = *word;
    *word = before | (uint64_t)1 << (column & 63);
    if (!before) {
        set.level[1][column >> 12] |= (uint64_t)1 << ((column >> 6) & 63);
        set.level[2][column >> 18] |= (uint64_t)1 << ((column >> 12) & 63);
    }
}

/* The number of the lowest bit, which is cleared. */
static inline uint32_t ga_spgemm_columns_next(uint64_t *word)
{
    uint32_t bit = (uint32_t)__builtin_ctzll(*word);
    *word &= *word - 1;
    return bit;
}

/* Moves all members, which are from `low` to `high`, to `columns` in order. */
static inline void ga_spgemm_columns_take(ga_spgemm_columns set, uint32_t low, uint32_t high,
                                          uint32_t *columns)
{
    for (uint32_t top = low >> 18; top <= high >> 18; top++) {
        uint64_t upper = set.level[2][top];
        set.level[2][top] = 0;
        while (upper) {
            uint32_t middle = top << 6 | ga_spgemm_columns_next(&upper);
            uint64_t lower = set.level[1][middle];
            set.level[1][middle] = 0;
            while (lower) {
                uint32_t word = middle << 6 | ga_spgemm_columns_next(&lower);
                uint64_t bits = set.level[0][word];
                set.level[0][word] = 0;
                while (bits) {
                    *columns++ = word << 6 | ga_spgemm_columns_next(&bits);
                }
            }
        }
    }
}

#endif
