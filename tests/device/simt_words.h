/* SPDX-License-Identifier: MIT
 *
 * Every function of the vocabulary once, for both compilers: a tile gets an input and writes each
 * function's result for each lane. Each lane writes uniform values, so that a difference shows.
 * simt_reference.h has the expected results.
 */
#ifndef TESTS_DEVICE_SIMT_WORDS_H
#define TESTS_DEVICE_SIMT_WORDS_H

#include "../../liballoc/simt/simt.h"

/* The functions; a uniform one, and then lanes of several calls, are named after the property that
 * they show. */
#define SIMT_EACH_WORD(X)                                                                          \
    X(bits_count)                                                                                  \
    X(bits_lowest)                                                                                 \
    X(bits_leading)                                                                                \
    X(bits_below)                                                                                  \
    X(bits_nth)                                                                                    \
    X(bits_take)                                                                                   \
    X(bits_from)                                                                                   \
    X(bits_mix)                                                                                    \
    X(bits_high)                                                                                   \
    X(bits_high_top)                                                                               \
    X(bits_product)                                                                                \
    X(bits_rotate)                                                                                 \
    X(bits_high32)                                                                                 \
    X(bits_down)                                                                                   \
    X(bits_round)                                                                                  \
    X(bits_quarters)                                                                               \
    X(bits_element)                                                                                \
    X(tile_lanes)                                                                                  \
    X(tile_members)                                                                                \
    X(tile_size)                                                                                   \
    X(tile_ranks)                                                                                  \
    X(tile_leader)                                                                                 \
    X(tile_sync)                                                                                   \
    X(each_lane)                                                                                   \
    X(lanes_all)                                                                                   \
    X(lanes_numbers)                                                                               \
    X(lanes_operators)                                                                             \
    X(lanes_get)                                                                                   \
    X(lanes_pick)                                                                                  \
    X(lanes_select)                                                                                \
    X(lanes_nonzero)                                                                               \
    X(lanes_any)                                                                                   \
    X(lanes_same)                                                                                  \
    X(lanes_prefix_sum)                                                                            \
    X(lanes_previous)                                                                              \
    X(lanes_prefix_count)                                                                          \
    X(lanes_sum)                                                                                   \
    X(lanes_least)                                                                                 \
    X(tiles_any)                                                                                   \
    X(lanes_union)                                                                                 \
    X(lanes_equal)                                                                                 \
    X(lanes_merge_or)                                                                              \
    X(lanes_deal)                                                                                  \
    X(share_answer)                                                                                \
    X(row_match)                                                                                   \
    X(row_differ)                                                                                  \
    X(row_first)                                                                                   \
    X(row_first_abreast)                                                                           \
    X(row_first64)                                                                                 \
    X(row_behind)                                                                                  \
    X(row_get)                                                                                     \
    X(row_get_each)                                                                                \
    X(row_load_pairs)                                                                              \
    X(row_quad)                                                                                    \
    X(sector_load)                                                                                 \
    X(sector_load_pairs)                                                                           \
    X(sectors_load)                                                                                \
    X(sectors_load_pairs)                                                                          \
    X(row_put)                                                                                     \
    X(row_put_match)                                                                               \
    X(row_seek)                                                                                    \
    X(row_scan)

enum {
#define SIMT_ENUMERATE(word) SIMT_##word,
    SIMT_EACH_WORD(SIMT_ENUMERATE)
#undef SIMT_ENUMERATE
    SIMT_WORDS
};

typedef struct simt_input {
    uint32_t row[32];
    uint32_t values[32];  /* anything; the bits of the words on bits */
    uint32_t numbers[32]; /* anything */
    uint32_t keys[32];    /* few different values */
    uint32_t flags[32];   /* mostly 0 */
    uint32_t here;        /* the lanes that there are; the four masks below are among them */
    uint32_t chosen;
    uint32_t among;
    uint32_t takers;
    uint32_t asking;
    uint32_t lane; /* one of the tile's lanes */
    uint32_t skip; /* skip, bits and first: for ga_lanes_deal() */
    uint32_t bits;
    uint32_t first;
    uint32_t key;    /* the key to search for in the row */
    uint32_t common; /* many words of the row have this value */
    uint32_t place;  /* index of a word of the row */
    uint32_t start;
    uint32_t value;
} __attribute__((aligned(128))) simt_input;

typedef struct simt_output {
    uint32_t word[SIMT_WORDS][32]; /* the result of lane i of the tile; 0 for lanes that do not
                                    * exist */
    uint32_t scratch[32];
} simt_output;

GA_SIMT void simt_record(ga_tile tile, uint32_t *to, ga_lanes lanes)
{
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        to[own] = ga_lane_read(lanes, own);
    }
}

#define SIMT_LANES(name, value)   simt_record(tile, out->word[SIMT_##name], (value))
#define SIMT_UNIFORM(name, value) SIMT_LANES(name, ga_lanes_all(value))

GA_SIMT ga_lanes simt_lanes(ga_tile tile, const uint32_t *from)
{
    ga_lanes lanes = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        ga_lane_write(&lanes, own, from[own]);
    }
    return lanes;
}

GA_SIMT void simt_bits(ga_tile tile, const simt_input *in, simt_output *out)
{
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t bits = in->values[own];
        uint32_t n = in->numbers[own];
        out->word[SIMT_bits_count][own] = ga_bits_count(bits);
        out->word[SIMT_bits_below][own] = ga_bits_below(n % 33u);
        out->word[SIMT_bits_take][own] = ga_bits_take(bits, n % 40u);
        out->word[SIMT_bits_mix][own] = ga_bits_mix(n);
        uint64_t high = ga_bits_high((uint64_t)bits << 32 | n, (uint64_t)n << 32 | ~bits);
        out->word[SIMT_bits_high][own] = (uint32_t)high;
        out->word[SIMT_bits_high_top][own] = (uint32_t)(high >> 32);
        uint64_t low;
        high = ga_bits_product((uint64_t)bits << 32 | n, (uint64_t)n << 32 | bits, &low);
        high ^= low * 3u;
        out->word[SIMT_bits_product][own] = (uint32_t)high ^ (uint32_t)(high >> 32) * 5u;
        out->word[SIMT_bits_high32][own] = ga_bits_high32(bits, n);
        out->word[SIMT_bits_down][own] = ga_bits_down(bits, n);
        uint32_t max = bits % 1000u + 1u; /* the rest is equal, though it may be more than `max` */
        out->word[SIMT_bits_round][own] = ga_bits_round(n >> 12, max) % max;
        out->word[SIMT_bits_quarters][own] = ga_bits_quarters((bits & 0xffffffu) | 4u);
        uint64_t place = (uint64_t)ga_bits_element((char *)((uint64_t)n << 32), bits, n);
        out->word[SIMT_bits_element][own] = (uint32_t)place ^ (uint32_t)(place >> 32) * 3u;
        uint64_t turned = ga_bits_rotate((uint64_t)bits << 32 | n, n % 32u);
        out->word[SIMT_bits_rotate][own] = (uint32_t)(turned >> 32) ^ (uint32_t)turned * 3u;
        if (bits) {
            out->word[SIMT_bits_lowest][own] = ga_bits_lowest(bits);
            out->word[SIMT_bits_leading][own] = ga_bits_leading(bits);
            out->word[SIMT_bits_nth][own] = ga_bits_nth(bits, n % ga_bits_count(bits));
            out->word[SIMT_bits_from][own] = ga_bits_from(bits, n % 32u);
        }
    }
}

GA_SIMT void simt_tile(ga_tile tile, const simt_input *in, simt_output *out)
{
    uint32_t lanes = ga_tile_lanes(tile);
    ga_lanes written = ga_lanes_all(in->value);
    SIMT_UNIFORM(tile_lanes, lanes);
    SIMT_UNIFORM(tile_size, ga_tile_size(tile));
    SIMT_LANES(tile_ranks, ga_tile_ranks(tile));
    SIMT_UNIFORM(tile_leader, ga_tile_leader(tile));
    GA_EACH_LANE(tile, in->chosen, own)
    {
        ga_lane_write(&written, own, ga_lane_read(written, own) + own);
    }
    SIMT_LANES(each_lane, written);
    GA_EACH_LANE(tile, lanes, own)
    {
        out->scratch[own] = in->values[own];
    }
    ga_tile_sync(tile);
    GA_EACH_LANE(tile, lanes, own)
    {
        out->word[SIMT_tile_sync][own] = out->scratch[ga_bits_from(lanes, (own + 1u) & 31u)];
    }
}

GA_SIMT void simt_each(ga_tile tile, const simt_input *in, simt_output *out)
{
    ga_lanes values = simt_lanes(tile, in->values);
    ga_lanes numbers = simt_lanes(tile, in->numbers);
    ga_lanes dealt = values;
    SIMT_LANES(lanes_all, ga_lanes_all(in->value));
    SIMT_LANES(lanes_numbers, ga_lanes_numbers(tile));
    SIMT_LANES(lanes_operators,
               ((values ^ numbers) + in->value) / 32u - (values << (numbers & ga_lanes_all(31u))));
    SIMT_LANES(lanes_select, ga_lanes_select(tile, in->chosen, values, numbers));
    ga_lanes_deal(tile, in->takers, in->skip, in->bits, in->first, &dealt);
    SIMT_LANES(lanes_deal, dealt);
}

GA_SIMT void simt_together(ga_tile tile, const simt_input *in, simt_output *out)
{
    ga_lanes values = simt_lanes(tile, in->values);
    ga_lanes flags = simt_lanes(tile, in->flags);
    ga_lanes equal = ga_lanes_equal(tile, in->among, simt_lanes(tile, in->keys));
    SIMT_UNIFORM(lanes_get, ga_lanes_get(tile, values, in->lane));
    SIMT_UNIFORM(lanes_pick, in->asking ? ga_lanes_pick(tile, in->asking, values) : 0);
    SIMT_UNIFORM(lanes_nonzero, ga_lanes_nonzero(tile, flags));
    SIMT_UNIFORM(lanes_any, ga_lanes_any(tile, flags) ? 1u : 0u);
    ga_lanes parted =
        ga_lanes_select(tile, in->chosen, ga_lanes_all(in->value), ga_lanes_all(~in->value));
    SIMT_UNIFORM(lanes_same, (ga_lanes_same(tile, flags) ? 1u : 0u) |
                                 (ga_lanes_same(tile, ga_lanes_all(in->value)) ? 2u : 0u) |
                                 (ga_lanes_same(tile, parted) ? 4u : 0u));
    SIMT_LANES(lanes_prefix_sum, ga_lanes_prefix_sum(tile, values));
    SIMT_LANES(lanes_previous, ga_lanes_previous(tile, in->chosen, values));
    SIMT_LANES(lanes_prefix_count, ga_lanes_prefix_count(tile, values));
    SIMT_UNIFORM(lanes_sum, ga_lanes_sum(tile, values));
    SIMT_UNIFORM(lanes_least, ga_lanes_least(tile, values));
    SIMT_UNIFORM(tiles_any, ga_tiles_any(tile, in->chosen & 1u));
    SIMT_UNIFORM(lanes_union, ga_lanes_union(tile, flags));
    SIMT_LANES(lanes_equal, equal);
    SIMT_LANES(lanes_merge_or, ga_lanes_merge_or(tile, equal, values));
}

GA_SIMT void simt_share(ga_tile tile, const simt_input *in, simt_output *out)
{
    ga_lanes keys = simt_lanes(tile, in->keys);
    ga_lanes answers = simt_lanes(tile, in->numbers);
    uint32_t turn = 0;
    GA_SHARE(tile, in->asking, lane)
    {
        turn++;
        ga_share_answer(tile, &answers, lane, ga_lanes_get(tile, keys, lane) * 64u + turn);
    }
    SIMT_LANES(share_answer, answers);
}

/* The first of `places` with `key` and the word behind it, if a lane has both; otherwise by another
 * method. */
GA_SIMT uint32_t simt_first64(ga_tile tile, ga_row row, uint32_t places, uint64_t key)
{
    if (tile.width <= 8u) {
        return ga_row_first64(tile, row, places, key);
    }
    uint32_t found = ga_row_match(tile, row, (uint32_t)key) & places;
    found &= ga_row_match(tile, row, (uint32_t)(key >> 32)) >> 1;
    return found ? ga_bits_lowest(found) : GA_NONE;
}

/* All tiles of the warp are here. */
GA_SIMT void simt_row_first(ga_tile tile, ga_row row, const simt_input *in, simt_output *out)
{
    ga_tile abreast = ga_tile_abreast(tile.width);
    uint32_t first = ga_row_first(tile, row, 0x15555555u, in->key);
    uint32_t behind = tile.width > 8u && first != GA_NONE ? ga_row_get(tile, row, first + 1u) : 0;
    ga_tile_sync(abreast);
    ga_tile_gate(abreast);
    SIMT_UNIFORM(row_first, first);
    SIMT_UNIFORM(row_first_abreast, ga_row_first(abreast, row, 0x3fffffffu, in->key));
    SIMT_UNIFORM(row_first64, simt_first64(tile.width <= 8u ? abreast : tile, row, 0x01111111u,
                                           in->key | (uint64_t)in->common << 32));
    if (tile.width <= 8u) {
        behind = ga_row_behind(abreast, row, 0x15555555u, in->key, first, 1);
    }
    SIMT_UNIFORM(row_behind, first != GA_NONE ? behind : 0);
}

GA_SIMT uint32_t simt_hash(const uint32_t *words, uint32_t n)
{
    uint32_t hash = 0;
    for (uint32_t i = 0; i < n; i++) {
        hash = ga_bits_mix(hash ^ words[i]);
    }
    return hash;
}

/* Lane after lane the row's sectors, from the last on. */
GA_SIMT void simt_sectors(ga_tile tile, const simt_input *in, simt_output *out)
{
    ga_lanes low = ga_lanes_all(0), high = ga_lanes_all(0);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        const uint32_t *words = in->row + (3u - own % 4u) * 8u;
        ga_sector sector = ga_sector_load(words);
        ga_sector pairs = ga_sector_load_pairs(words);
        out->word[SIMT_sector_load][own] = simt_hash(sector.word, 8);
        out->word[SIMT_sector_load_pairs][own] = simt_hash(pairs.word, 8);
        ga_lane_write(&low, own, (uint32_t)(uintptr_t)words);
        ga_lane_write(&high, own, (uint32_t)((uint64_t)(uintptr_t)words >> 32));
    }
    ga_sectors sectors = ga_sectors_load(tile, ga_tile_lanes(tile), low, high);
    ga_sectors pairs = ga_sectors_load_pairs(tile, in->chosen, low, high);
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t words[8], halves[8];
        for (uint32_t i = 0; i < 8u; i++) {
            words[i] = ga_lane_read(sectors.word[i], own);
            halves[i] = ga_lane_read(pairs.word[i], own);
        }
        out->word[SIMT_sectors_load][own] = simt_hash(words, 8);
        out->word[SIMT_sectors_load_pairs][own] = simt_hash(halves, 8);
    }
}

/* Each lane gets its four words of the row; tiles of more than 8 lanes read them one by one. */
GA_SIMT void simt_row_quad(ga_tile tile, ga_row row, const simt_input *in, simt_output *out)
{
    GA_EACH_LANE(tile, ga_tile_lanes(tile), own)
    {
        uint32_t at = own % 8u * 4u;
        ga_quad quad = {{in->row[at], in->row[at + 1u], in->row[at + 2u], in->row[at + 3u]}};
        if (tile.width == 8u) {
            quad = ga_row_quad(tile, row, own);
        }
        out->word[SIMT_row_quad][own] = simt_hash(quad.word, 4);
    }
}

/* For tiles without gaps. */
GA_SIMT void simt_row(ga_tile tile, const simt_input *in, simt_output *out)
{
    ga_row_prefetch(tile, in->row);
    ga_row row = ga_row_load(tile, in->row);
    uint32_t each = 0;
    for (uint32_t i = 0; i < 32u; i++) {
        each = ga_bits_mix(each ^ ga_row_get(tile, row, i));
    }
    SIMT_UNIFORM(row_match, ga_row_match(tile, row, in->key));
    SIMT_UNIFORM(row_differ, ga_row_differ(tile, row, in->key));
    simt_row_first(tile, row, in, out);
    simt_row_quad(tile, row, in, out);
    SIMT_UNIFORM(row_get, ga_row_get(tile, row, in->place));
    SIMT_UNIFORM(row_get_each, each);
    ga_row pairs = ga_row_load_pairs(tile, in->row);
    each = 0;
    for (uint32_t i = 0; i < 32u; i++) {
        each = ga_bits_mix(each ^ ga_row_get(tile, pairs, i));
    }
    SIMT_UNIFORM(row_load_pairs, each);
    simt_sectors(tile, in, out);
    ga_row_put(tile, &row, in->place, in->value);
    SIMT_UNIFORM(row_put, ga_row_get(tile, row, in->place));
    SIMT_UNIFORM(row_put_match, ga_row_match(tile, row, in->value));
}

/* `gaps`, a constant: the tile is from ga_tile_among(). */
GA_SIMT void simt_words(ga_tile tile, bool gaps, simt_input *in, simt_output *out)
{
    simt_bits(tile, in, out);
    simt_tile(tile, in, out);
    simt_each(tile, in, out);
    simt_together(tile, in, out);
    simt_share(tile, in, out);
    if (gaps) {
        SIMT_UNIFORM(tile_members, ga_tile_members(tile));
    } else {
        simt_row(tile, in, out);
    }
    SIMT_UNIFORM(row_seek, ga_row_seek(tile, in->row, in->common, in->start));
    SIMT_UNIFORM(row_scan, ga_row_scan(tile, in->row, in->common));
}

#endif
