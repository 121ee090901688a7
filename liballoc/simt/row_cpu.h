/* SPDX-License-Identifier: MIT
 *
 * Tiles, lanes and rows on the CPU, where one thread is the tile; and what each word means.
 *
 * Lanes are a vector of 32 words, a row is several vectors of as many as the processor compares at
 * once, so that a branch on them does not compile. The words below work on lanes in plain loops,
 * which gcc vectorises. A vector wider than the processor's stands in memory: a row that was put
 * there in pieces of one size and read back in pieces of another would have to leave the store
 * buffer first, and searches one after the other would not overlap. So rows are made of pieces that
 * stay in registers.
 */
#ifndef GPUALLOC_SIMT_ROW_CPU_H
#define GPUALLOC_SIMT_ROW_CPU_H

#include "atomic.h"

#ifdef __AVX2__
#include <immintrin.h>
#elif defined __SSE2__
#include <emmintrin.h>
#endif

typedef uint32_t ga_lanes __attribute__((vector_size(128)));

/* A row in vector registers. The same in memory for all processors: what is compiled for one may be
 * handed a row by what is compiled for another. */
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

/* DO(i) for each piece of a row: no loop, which might be unrolled too late for registers. */
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

typedef struct ga_tile {
    uint32_t width; /* lanes are numbered from 0 to width - 1 */
} ga_tile;

/* ---- tiles ------------------------------------------------------------------------------- */

/* The tile of `width` lanes (4, 8, 16 or 32; a constant) that the caller is in. */
GA_SIMT ga_tile ga_tile_of(uint32_t width)
{
    return (ga_tile){width};
}

/* The same where the warp is whole and all its tiles go through the same words together, in no
 * branch that only some of them take: votes and shuffles cost the GPU one instruction each. Such a
 * tile works with ga_lanes_get, _nonzero, and _any, which asks all of them; with rows, but for
 * ga_row_match and what is made of it; and with ga_tile_sync, which all wait for. */
GA_SIMT ga_tile ga_tile_abreast(uint32_t width)
{
    return ga_tile_of(width);
}

/* The lanes of the mask, out of the caller's warp, which all call this and work together from now
 * on. Lanes, and the words on rows that say so, work with such a tile; ga_row values do not. */
GA_SIMT ga_tile ga_tile_among(uint32_t lanes)
{
    (void)lanes; /* a CPU thread is never divided */
    return (ga_tile){32};
}

/* The lanes of the warp that are here now, for code that only some lanes reach. */
GA_SIMT ga_tile ga_tile_present(void)
{
    return (ga_tile){32};
}

/* Whether the lanes are all of a warp, and the caller had better have code of its own for that,
 * with ga_tile_of(32): exchanges within a tile of which the compiler does not know the lanes cost
 * the GPU twice as many instructions. On the CPU there is nothing to be gained. */
GA_SIMT bool ga_warp_is_whole(uint32_t lanes)
{
    (void)lanes;
    return false;
}

/* The lanes that there are. */
GA_SIMT uint32_t ga_tile_lanes(ga_tile tile)
{
    return ga_bits_below(tile.width);
}

/* What ga_tile_among() makes a tile of these lanes of. */
GA_SIMT uint32_t ga_tile_members(ga_tile tile)
{
    return ga_tile_lanes(tile);
}

/* How many lanes there are. */
GA_SIMT uint32_t ga_tile_size(ga_tile tile)
{
    return tile.width;
}

/* How many lanes of the tile come before each lane. */
GA_SIMT ga_lanes ga_tile_ranks(ga_tile tile)
{
    (void)tile;
    return (ga_lanes){0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                      16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
}

/* What lanes of the tile wrote before is seen by the others after. */
GA_SIMT void ga_tile_sync(ga_tile tile)
{
    (void)tile;
}

/* Loads before are asked for before any of them is waited for after, where the GPU's assembler
 * would mix them. No order of memory. */
GA_SIMT void ga_tile_gate(ga_tile tile)
{
    (void)tile;
}

/* What lanes of the tile did before happens before what others do once they have acquired what a
 * lane of the tile posts afterwards, by any number of ga_post_*_published of the same scope. On the
 * CPU those release by themselves. */
GA_SIMT void ga_tile_publish(ga_tile tile)
{
    (void)tile;
}

GA_SIMT void ga_tile_publish_block(ga_tile tile)
{
    (void)tile;
}

GA_SIMT void ga_tile_publish_system(ga_tile tile)
{
    (void)tile;
}

/* Any number, best another in each call, so that a search need not repeat itself; not uniform on
 * the GPU. On the CPU, and where GA_SIMT_NO_NOISE is defined, it is 0: what a lone tile does can be
 * told. */
GA_SIMT uint32_t ga_tile_noise(void)
{
    return 0;
}

/* ---- lanes ------------------------------------------------------------------------------- */

/* GA_EACH_LANE(tile, mask, own) { ... }: every lane of the mask for itself; `own` is its number.
 * Inside, lanes are read and written with ga_lane_read() and ga_lane_write(), and no word that is
 * collective may be called. On the GPU lanes run beside each other, on the CPU in turn. */
#define GA_EACH_LANE(tile, mask, own)                                                              \
    for (uint32_t rest_ = (mask)&ga_tile_lanes(tile), own = 0;                                     \
         rest_ && (own = ga_bits_lowest(rest_), true); rest_ &= rest_ - 1u)

GA_SIMT uint32_t ga_lane_read(ga_lanes lanes, uint32_t lane)
{
    return lanes[lane];
}

GA_SIMT void ga_lane_write(ga_lanes *lanes, uint32_t lane, uint32_t value)
{
    (*lanes)[lane] = value;
}

/* Each lane gets `value`. */
GA_SIMT ga_lanes ga_lanes_all(uint32_t value)
{
    return (ga_lanes){0} + value;
}

/* Each lane gets its own number. */
GA_SIMT ga_lanes ga_lanes_numbers(ga_tile tile)
{
    return ga_tile_ranks(tile);
}

/* Broadcast: what the lane of that number holds. */
GA_SIMT uint32_t ga_lanes_get(ga_tile tile, ga_lanes lanes, uint32_t lane)
{
    return lanes[lane & (tile.width - 1u)];
}

/* What the first lane of the mask holds; of tiles abreast, that of the first tile whose mask has
 * one, for all. Lane 31's where there is none. */
GA_SIMT uint32_t ga_lanes_pick(ga_tile tile, uint32_t among, ga_lanes lanes)
{
    (void)tile;
    return lanes[among ? ga_bits_lowest(among) : 31u];
}

/* Each lane gets what the lane holds whose number `from` has for it: one that is here. */
GA_SIMT ga_lanes ga_lanes_from(ga_tile tile, ga_lanes lanes, ga_lanes from)
{
    ga_lanes got = {0};
    for (uint32_t i = 0; i < tile.width; i++) {
        got[i] = lanes[from[i] % tile.width];
    }
    return got;
}

/* The lanes of the mask `chosen` take `yes`, the others `no`. */
GA_SIMT ga_lanes ga_lanes_select(ga_tile tile, uint32_t chosen, ga_lanes yes, ga_lanes no)
{
    ga_lanes from = (ga_lanes)((ga_lanes_all(chosen) >> ga_tile_ranks(tile)) & 1u);
    ga_lanes mask = -from;
    return (yes & mask) | (no & ~mask);
}

/* Bit i of a mask, for what belongs to lane or word i. Masks are put together with it rather than
 * with shifts, for which SSE2 has no vectors. */
GA_SIMT ga_lanes ga_cpu_one_bit_each(void)
{
    return (ga_lanes){1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,
                      1u << 7,  1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13,
                      1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20,
                      1u << 21, 1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27,
                      1u << 28, 1u << 29, 1u << 30, 1u << 31};
}

/* The mask of the lanes that do not hold 0. */
GA_SIMT uint32_t ga_lanes_nonzero(ga_tile tile, ga_lanes lanes)
{
    ga_lanes bits = ga_cpu_one_bit_each();
    uint32_t mask = 0;
    for (uint32_t i = 0; i < 32; i++) {
        mask |= lanes[i] != 0 ? bits[i] : 0;
    }
    return mask & ga_tile_lanes(tile);
}

GA_SIMT bool ga_lanes_any(ga_tile tile, ga_lanes lanes)
{
    uint32_t any = 0;
    for (uint32_t i = 0; i < tile.width; i++) {
        any |= lanes[i];
    }
    return any != 0;
}

/* Each lane gets the sum of the lanes before it, modulo 2^32. */
GA_SIMT ga_lanes ga_lanes_prefix_sum(ga_tile tile, ga_lanes lanes)
{
    ga_lanes sums = {0};
    uint32_t sum = 0;
    for (uint32_t i = 0; i < tile.width; i++) {
        sums[i] = sum;
        sum += lanes[i];
    }
    return sums;
}

/* Each lane of the mask gets what the lane of the mask before it holds; the first, and others,
 * 0. */
GA_SIMT ga_lanes ga_lanes_previous(ga_tile tile, uint32_t among, ga_lanes lanes)
{
    ga_lanes previous = {0};
    uint32_t value = 0;
    for (uint32_t rest = among & ga_tile_lanes(tile); rest; rest &= rest - 1u) {
        previous[ga_bits_lowest(rest)] = value;
        value = lanes[ga_bits_lowest(rest)];
    }
    return previous;
}

/* Each lane gets the number of bits that are set in the lanes before it. */
GA_SIMT ga_lanes ga_lanes_prefix_count(ga_tile tile, ga_lanes bits)
{
    ga_lanes sums = {0};
    uint32_t sum = 0;
    for (uint32_t i = 0; i < tile.width; i++) {
        sums[i] = sum;
        sum += ga_bits_count(bits[i]);
    }
    return sums;
}

GA_SIMT uint32_t ga_lanes_sum(ga_tile tile, ga_lanes lanes)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < tile.width; i++) {
        sum += lanes[i];
    }
    return sum;
}

/* The bits of all lanes together. */
GA_SIMT uint32_t ga_lanes_union(ga_tile tile, ga_lanes lanes)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < tile.width; i++) {
        all |= lanes[i];
    }
    return all;
}

/* Whether all lanes hold the same. */
GA_SIMT bool ga_lanes_same(ga_tile tile, ga_lanes lanes)
{
    uint32_t other = 0;
    for (uint32_t i = 0; i < tile.width; i++) {
        other |= lanes[i] ^ lanes[0];
    }
    return other == 0;
}

/* Each lane of the mask `among` gets the mask of those among them that hold the same key, itself
 * included; other lanes get 0. */
GA_SIMT ga_lanes ga_lanes_equal(ga_tile tile, uint32_t among, ga_lanes keys)
{
    ga_lanes equal = {0};
    (void)tile;
    for (uint32_t rest = among; rest; rest &= rest - 1u) {
        uint32_t lane = ga_bits_lowest(rest);
        uint32_t mask = 0;
        for (uint32_t others = among; others; others &= others - 1u) {
            uint32_t other = ga_bits_lowest(others);
            mask |= (keys[other] == keys[lane] ? 1u : 0u) << other;
        }
        equal[lane] = mask;
    }
    return equal;
}

/* Merge of equal requests: each lane gets the union of the bits of the lanes in its mask `equal`,
 * which ga_lanes_equal() has made; 0 where that is 0. */
GA_SIMT ga_lanes ga_lanes_merge_or(ga_tile tile, ga_lanes equal, ga_lanes bits)
{
    ga_lanes merged = {0};
    for (uint32_t i = 0; i < tile.width; i++) {
        uint32_t all = 0;
        for (uint32_t rest = equal[i]; rest; rest &= rest - 1u) {
            all |= bits[ga_bits_lowest(rest)];
        }
        merged[i] = all;
    }
    return merged;
}

/* The lane of the mask `takers` with `skip + k` of them below it gets `first` and the place of the
 * set bit of `bits` with k of those below it; where there is no such bit, and outside the mask,
 * lanes stay. */
GA_SIMT void ga_lanes_deal(ga_tile tile, uint32_t takers, uint32_t skip, uint32_t bits,
                           uint32_t first, ga_lanes *lanes)
{
    if ((takers & bits) == GA_ALL_BITS && !skip) {
        *lanes = ga_tile_ranks(tile) + first;
        return;
    }
    takers &= ~ga_bits_take(takers, skip);
    for (; takers && bits; takers &= takers - 1u, bits &= bits - 1u) {
        (*lanes)[ga_bits_lowest(takers)] = first + ga_bits_lowest(bits);
    }
}

/* The lowest lane there is: it does what is to be done once, and lanes_get() tells the others. */
GA_SIMT uint32_t ga_tile_leader(ga_tile tile)
{
    (void)tile;
    return 0;
}

/* ---- rows -------------------------------------------------------------------------------- */

/* The row, each of its words a relaxed load. A vector load does that on x86-64 and arm64, where no
 * aligned word of one tears; the thread sanitizer must be told word by word. */
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
    __asm__ volatile("" ::: "memory"); /* loaded here, once */
#define GA_CPU_LOAD(i) loaded.pieces[i] = from[i];
    GA_CPU_EACH_PIECE(GA_CPU_LOAD)
#undef GA_CPU_LOAD
    __asm__ volatile("" ::: "memory");
#endif
    return loaded;
}

/* The row, each aligned pair of its words one relaxed load of 64 bits: what ga_cas64_* writes there
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
    return ga_row_load(tile, row); /* nor does such a load tear an aligned pair */
#endif
}

/* Word `place` (below 32). */
GA_SIMT uint32_t ga_row_get(ga_tile tile, ga_row row, uint32_t place)
{
    (void)tile;
    if (__builtin_constant_p(place)) {
        return row.pieces[place / GA_CPU_PIECE][place % GA_CPU_PIECE];
    }
    ga_row copy = row; /* in memory: `row` may stay in registers */
    return ((const ga_cpu_word *)(const void *)&copy)[place];
}

/* The mask of the words that are `key`. */
GA_SIMT uint32_t ga_row_match(ga_tile tile, ga_row row, uint32_t key)
{
    uint32_t mask = 0;
    (void)tile;
#ifdef __AVX2__
    /* A byte for each word. Each half of a register is packed for itself: the order at the end. */
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

/* The first of the places, a constant, whose word is `key`; or GA_NONE. */
GA_SIMT uint32_t ga_row_first(ga_tile tile, ga_row row, uint32_t places, uint32_t key)
{
    uint32_t found = ga_row_match(tile, row, key) & places;
    return found ? ga_bits_lowest(found) : GA_NONE;
}

/* The first of the places, all even, whose word and the next are the halves of `key`, the lower one
 * first; or GA_NONE. On the GPU of a tile of up to 8 lanes. */
GA_SIMT uint32_t ga_row_first64(ga_tile tile, ga_row row, uint32_t places, uint64_t key)
{
    uint32_t found = ga_row_match(tile, row, (uint32_t)key) & places;
    found &= ga_row_match(tile, row, (uint32_t)(key >> 32)) >> 1;
    return found ? ga_bits_lowest(found) : GA_NONE;
}

/* The word `further` behind `place`, the first of `places` whose word is `key`, in the same 16
 * bytes; anything where it is GA_NONE. On the GPU of a tile of up to 8 lanes. */
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

/* How many bits are set. */
GA_SIMT uint32_t ga_row_count(ga_tile tile, ga_row row)
{
    const ga_cpu_word *words = (const ga_cpu_word *)(const void *)&row;
    uint32_t count = 0;
    (void)tile;
    for (uint32_t i = 0; i < 32; i++) {
        count += ga_bits_count(words[i]);
    }
    return count;
}

/* A quarter of a row, for one lane alone: 8 words, from a multiple of 32 bytes on, each a relaxed
 * load. */
GA_SIMT ga_sector ga_sector_load(const uint32_t *words)
{
    ga_sector loaded;
    for (uint32_t i = 0; i < 8; i++) {
        loaded.word[i] = ga_load_relaxed(words + i);
    }
    return loaded;
}

/* The same, each aligned pair of its words one relaxed load of 64 bits. */
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

/* Each lane of the mask its own sector, whose address is in two halves; the others have zeros. As
 * ga_sector_load(). */
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

/* The row will be wanted soon. */
GA_SIMT void ga_row_prefetch(ga_tile tile, const uint32_t *row)
{
    (void)tile;
    __builtin_prefetch(row);
    __builtin_prefetch(row + 16);
}

/* The place of the first word in memory, from place `start` (below 32) on and going round, that is
 * not `other_than`, or GA_NONE; read relaxed. For any tile. */
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

/* The mask of the words in memory that are not `other_than`, read by acquire loads. For any
 * tile. */
GA_SIMT uint32_t ga_row_scan(ga_tile tile, uint32_t *row, uint32_t other_than)
{
    uint32_t mask = 0;
    (void)tile;
    for (uint32_t i = 0; i < 32; i++) {
        /* acquire. Pairs with whatever release the caller's algorithm has for its words. */
        mask |= (ga_load_acquire(row + i) != other_than ? 1u : 0u) << i;
    }
    return mask;
}

#endif
