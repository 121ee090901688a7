/* SPDX-License-Identifier: MIT
 *
 * Rows on the CPU. Also the reference for both sides: the comments here say what each function
 * does.
 *
 * A row is several vectors, each as wide as the processor compares at once, so that a branch on it
 * does not compile. The compiler keeps a vector wider than the processor's in memory. A row stored
 * there in pieces of one size and loaded in pieces of another would first have to leave the store
 * buffer, and consecutive searches would not overlap. So rows are made of pieces that stay in
 * registers.
 */
#ifndef GPUALLOC_SIMT_ROW_CPU_H
#define GPUALLOC_SIMT_ROW_CPU_H

#include "lanes_cpu.h"

#ifdef __AVX2__
#include <immintrin.h>
#elif defined __SSE2__
#include <emmintrin.h>
#endif

/* A row in vector registers. Its memory layout is the same on all processors, so that code compiled
 * for one may pass a row to code compiled for another. */
#ifdef __AVX2__
#define GA_CPU_PIECE 8u /* words */
#else
#define GA_CPU_PIECE 4u
#endif
#define GA_CPU_PIECES (32u / GA_CPU_PIECE)
typedef uint32_t ga_cpu_piece __attribute__((vector_size(GA_CPU_PIECE * 4)));
typedef uint32_t ga_cpu_piece_at
    __attribute__((vector_size(GA_CPU_PIECE * 4), aligned(4), may_alias));
typedef uint32_t ga_cpu_word __attribute__((may_alias));
typedef struct ga_row {
    ga_cpu_piece pieces[GA_CPU_PIECES];
} __attribute__((aligned(32))) ga_row;

/* DO(i) for each piece of a row. Not a loop, because a loop might be unrolled too late for
 * registers. */
#ifdef __AVX2__
#define GA_CPU_EACH_PIECE(DO) DO(0) DO(1) DO(2) DO(3)
#else
#define GA_CPU_EACH_PIECE(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#endif

typedef struct ga_sector {
    uint32_t word[8];
} ga_sector;

typedef struct ga_sectors {
    ga_lanes word[8];
} ga_sectors;

typedef struct ga_quad {
    uint32_t word[4];
} ga_quad;

/* Load the row; each word is a relaxed load. A vector load does that on x86-64 and arm64, where no
 * aligned word of one tears. The thread sanitizer needs the loads word by word. */
GA_SIMT ga_row ga_row_load(ga_tile tile, const uint32_t *row)
{
    ga_row loaded;
    (void)tile;
#ifdef __SANITIZE_THREAD__
    for (uint32_t i = 0; i < 32; i++) {
        loaded.pieces[i / GA_CPU_PIECE][i % GA_CPU_PIECE] = ga_load_relaxed(row + i);
    }
#else
    const ga_cpu_piece_at *from = (const ga_cpu_piece_at *)(const void *)row;
    __asm__ volatile("" ::: "memory"); /* the loads stay here, and happen once */
#define GA_CPU_LOAD(i) loaded.pieces[i] = from[i];
    GA_CPU_EACH_PIECE(GA_CPU_LOAD)
#undef GA_CPU_LOAD
    __asm__ volatile("" ::: "memory");
#endif
    return loaded;
}

/* Load the row; each aligned pair of words is one relaxed load of 64 bits, so a write by ga_cas64_*
 * is seen whole. In tiles of up to 16 lanes. */
GA_SIMT ga_row ga_row_load_pairs(ga_tile tile, const uint32_t *row)
{
#ifdef __SANITIZE_THREAD__
    ga_row loaded;
    (void)tile;
    for (uint32_t i = 0; i < 32; i += 2) {
        uint64_t pair = ga_load64_relaxed((const uint64_t *)(const void *)(row + i));
        loaded.pieces[i / GA_CPU_PIECE][i % GA_CPU_PIECE] = (uint32_t)pair;
        loaded.pieces[i / GA_CPU_PIECE][i % GA_CPU_PIECE + 1u] = (uint32_t)(pair >> 32);
    }
    return loaded;
#else
    return ga_row_load(tile, row); /* a vector load does not tear an aligned pair either */
#endif
}

/* The word of index `place` (below 32). */
GA_SIMT uint32_t ga_row_get(ga_tile tile, ga_row row, uint32_t place)
{
    (void)tile;
    if (__builtin_constant_p(place)) {
        return row.pieces[place / GA_CPU_PIECE][place % GA_CPU_PIECE];
    }
    ga_row copy = row; /* in memory: `row` may stay in registers */
    return ((const ga_cpu_word *)(const void *)&copy)[place];
}

/* The four words from 4 * `own` on: the part of a row that lane `own` of a tile of 8 holds. Only
 * that lane may ask for it. */
GA_SIMT ga_quad ga_row_quad(ga_tile tile, ga_row row, uint32_t own)
{
    ga_quad quad;
    for (uint32_t j = 0; j < 4; j++) {
        quad.word[j] = ga_row_get(tile, row, own * 4u + j);
    }
    return quad;
}

/* The mask of the words that are `key`. */
GA_SIMT uint32_t ga_row_match(ga_tile tile, ga_row row, uint32_t key)
{
    uint32_t mask = 0;
    (void)tile;
#ifdef __AVX2__
    /* A byte for each word. The packs work on each half of a register, so the last step
     * permutes. */
#define GA_CPU_MATCH(i) __m256i same##i = (__m256i)(row.pieces[i] == key);
    GA_CPU_EACH_PIECE(GA_CPU_MATCH)
    __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(same0, same1), _mm256_packs_epi32(same2, same3));
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    mask = (uint32_t)_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(packed, order));
#elif defined __SSE2__
    /* A byte for each word, 16 of them at a time. */
#define GA_CPU_MATCH(i) __m128i same##i = (__m128i)(row.pieces[i] == key);
    GA_CPU_EACH_PIECE(GA_CPU_MATCH)
    __m128i low = _mm_packs_epi16(_mm_packs_epi32(same0, same1), _mm_packs_epi32(same2, same3));
    __m128i high = _mm_packs_epi16(_mm_packs_epi32(same4, same5), _mm_packs_epi32(same6, same7));
    mask = (uint32_t)_mm_movemask_epi8(low) | (uint32_t)_mm_movemask_epi8(high) << 16;
#else
    ga_cpu_piece all = {0};
#define GA_CPU_MATCH(i)                                                                            \
    all |= (ga_cpu_piece)(row.pieces[i] == key) &                                                  \
           (ga_cpu_piece){1u << 4u * (i), 2u << 4u * (i), 4u << 4u * (i), 8u << 4u * (i)};
    GA_CPU_EACH_PIECE(GA_CPU_MATCH)
    mask = all[0] | all[1] | all[2] | all[3];
#endif
#undef GA_CPU_MATCH
    return mask;
}

/* The first index of the mask `places`, a constant, whose word is `key`; or GA_NONE. */
GA_SIMT uint32_t ga_row_first(ga_tile tile, ga_row row, uint32_t places, uint32_t key)
{
    uint32_t found = ga_row_match(tile, row, key) & places;
    return found ? ga_bits_lowest(found) : GA_NONE;
}

/* The first index of the mask `places`, all even, whose word and the next are the lower and upper
 * half of `key`; or GA_NONE. On the GPU in a tile of up to 8 lanes. */
GA_SIMT uint32_t ga_row_first64(ga_tile tile, ga_row row, uint32_t places, uint64_t key)
{
    uint32_t found = ga_row_match(tile, row, (uint32_t)key) & places;
    found &= ga_row_match(tile, row, (uint32_t)(key >> 32)) >> 1;
    return found ? ga_bits_lowest(found) : GA_NONE;
}

/* The word that is `further` behind `place`, which is the first index of `places` whose word is
 * `key`; both words are in the same 16 bytes. Any value if `place` is GA_NONE. On the GPU in a tile
 * of up to 8 lanes. */
GA_SIMT uint32_t ga_row_behind(ga_tile tile, ga_row row, uint32_t places, uint32_t key,
                               uint32_t place, uint32_t further)
{
    (void)places;
    (void)key;
    return ga_row_get(tile, row, (place + further) & 31u);
}

/* Change a word of the row in registers. */
GA_SIMT void ga_row_put(ga_tile tile, ga_row *row, uint32_t place, uint32_t value)
{
    (void)tile;
    ((ga_cpu_word *)(void *)row)[place] = value;
}

/* Load a sector, a quarter of a row, for one lane alone: 8 words, aligned to 32 bytes, each a
 * relaxed load. */
GA_SIMT ga_sector ga_sector_load(const uint32_t *words)
{
    ga_sector loaded;
    for (uint32_t i = 0; i < 8; i++) {
        loaded.word[i] = ga_load_relaxed(words + i);
    }
    return loaded;
}

/* Load a sector; each aligned pair of words is one relaxed load of 64 bits. */
GA_SIMT ga_sector ga_sector_load_pairs(const uint32_t *words)
{
    ga_sector loaded;
    for (uint32_t i = 0; i < 8; i += 2) {
        uint64_t pair = ga_load64_relaxed((const uint64_t *)(const void *)(words + i));
        loaded.word[i] = (uint32_t)pair;
        loaded.word[i + 1] = (uint32_t)(pair >> 32);
    }
    return loaded;
}

/* Each lane of the mask loads its own sector, whose address is given in two halves; the others get
 * zeros. As ga_sector_load(). */
GA_SIMT ga_sectors ga_sectors_load(ga_tile tile, uint32_t lanes, ga_lanes low, ga_lanes high)
{
    ga_sectors loaded = {{{0}}};
    (void)tile;
    for (; lanes; lanes &= lanes - 1u) {
        uint32_t lane = ga_bits_lowest(lanes);
        uintptr_t own = (uintptr_t)(low[lane] | (uint64_t)high[lane] << 32);
        ga_sector sector = ga_sector_load((const uint32_t *)own);
        for (uint32_t i = 0; i < 8; i++) {
            loaded.word[i][lane] = sector.word[i];
        }
    }
    return loaded;
}

/* As ga_sector_load_pairs(). */
GA_SIMT ga_sectors ga_sectors_load_pairs(ga_tile tile, uint32_t lanes, ga_lanes low, ga_lanes high)
{
    ga_sectors loaded = {{{0}}};
    (void)tile;
    for (; lanes; lanes &= lanes - 1u) {
        uint32_t lane = ga_bits_lowest(lanes);
        uintptr_t own = (uintptr_t)(low[lane] | (uint64_t)high[lane] << 32);
        ga_sector sector = ga_sector_load_pairs((const uint32_t *)own);
        for (uint32_t i = 0; i < 8; i++) {
            loaded.word[i][lane] = sector.word[i];
        }
    }
    return loaded;
}

/* Prefetch the row. */
GA_SIMT void ga_row_prefetch(ga_tile tile, const uint32_t *row)
{
    (void)tile;
    __builtin_prefetch(row);
    __builtin_prefetch(row + 16);
}

/* The index of the first word in memory that is not `other_than`, from index `start` (below 32) on,
 * wrapping around; or GA_NONE. Relaxed loads. For any tile. */
GA_SIMT uint32_t ga_row_seek(ga_tile tile, uint32_t *row, uint32_t other_than, uint32_t start)
{
    (void)tile;
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t place = (start + i) & 31u;
        if (ga_load_relaxed(row + place) != other_than) {
            return place;
        }
    }
    return GA_NONE;
}

/* The mask of the words in memory that are not `other_than`, by acquire loads. For any tile. */
GA_SIMT uint32_t ga_row_scan(ga_tile tile, uint32_t *row, uint32_t other_than)
{
    uint32_t mask = 0;
    (void)tile;
    for (uint32_t i = 0; i < 32; i++) {
        /* acquire. Pairs with the release that the caller's algorithm has for its words. */
        mask |= (ga_load_acquire(row + i) != other_than ? 1u : 0u) << i;
    }
    return mask;
}

#endif
