/* SPDX-License-Identifier: MIT
 *
 * The vocabulary's functions, one bit and one lane at a time.
 */
#include "simt_reference.h"

#include "../support/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAME_WORD(word) "ga_" #word,
const char *const simt_word_names[SIMT_WORDS] = {SIMT_EACH_WORD(NAME_WORD)};

#define NAME_ATOMIC(kind, operation, bits, order, suffix) "ga_" #operation #bits "_" #order #suffix,
const char *const simt_atomic_names[SIMT_ATOMICS] = {SIMT_EACH_ATOMIC(NAME_ATOMIC)};

/* ---- inputs ------------------------------------------------------------------------------- */

static uint32_t random_word(uint64_t *seed)
{
    return (uint32_t)random_next(seed);
}

/* None, all, one, all but one, few, many, the lowest, or any bits. */
static uint32_t random_bits(uint64_t *seed)
{
    uint32_t any = random_word(seed);
    uint32_t one = 1u << random_below(seed, 32);
    switch (random_below(seed, 9)) {
    case 0:
        return 0;
    case 1:
        return 0xffffffffu;
    case 2:
        return one;
    case 3:
        return ~one;
    case 4:
        return any & random_word(seed) & random_word(seed);
    case 5:
        return any | random_word(seed) | random_word(seed);
    case 6:
        return one - 1u;
    default:
        return any;
    }
}

static void make_lanes(uint64_t *seed, simt_input *in)
{
    uint32_t kinds = 1u + random_word(seed) % 8u;
    uint32_t flags = random_bits(seed);
    bool alike = random_below(seed, 8) == 0; /* one value in all lanes */
    uint32_t value = random_bits(seed);
    for (uint32_t i = 0; i < 32; i++) {
        in->values[i] = alike ? value : random_bits(seed);
        in->numbers[i] = random_word(seed);
        in->keys[i] = random_word(seed) % kinds * 0x10001u;
        in->flags[i] = (flags >> i) & 1u ? random_word(seed) : 0;
    }
}

static void make_row(uint64_t *seed, simt_input *in)
{
    uint32_t others = random_bits(seed);
    in->common = random_bits(seed);
    for (uint32_t i = 0; i < 32; i++) {
        in->row[i] = (others >> i) & 1u ? random_bits(seed) : in->common;
    }
    in->place = random_word(seed) % 32u;
    in->start = random_word(seed) % 32u;
    in->value = random_bits(seed);
    in->key = random_below(seed, 4) ? in->row[random_below(seed, 32)] : random_word(seed);
}

void simt_make_input(uint64_t *seed, uint32_t here, simt_input *in)
{
    memset(in, 0, sizeof *in);
    make_lanes(seed, in);
    make_row(seed, in);
    in->here = here;
    in->chosen = random_bits(seed) & here;
    in->among = random_bits(seed) & here;
    in->takers = random_bits(seed) & here;
    in->asking = random_bits(seed) & here;
    do {
        in->lane = random_word(seed) % 32u;
    } while (!((here >> in->lane) & 1u));
    in->skip = random_below(seed, 2) ? 0 : random_word(seed) % 33u;
    in->bits = random_bits(seed);
    in->first = random_word(seed);
}

void simt_make_atomic_input(uint64_t *seed, simt_atomic_input *in)
{
    in->before = (uint64_t)random_bits(seed) << 32 | random_bits(seed);
    in->operand = (uint64_t)random_bits(seed) << 32 | random_bits(seed);
    in->expected = random_below(seed, 2) ? in->before : random_next(seed);
}

/* ---- expected results --------------------------------------------------------------------- */

static bool has(uint32_t bits, uint32_t place)
{
    return place < 32 && (((uint64_t)bits >> place) & 1u) == 1u;
}

static uint32_t count_below(uint32_t bits, uint32_t end)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < end; i++) {
        count += has(bits, i) ? 1u : 0u;
    }
    return count;
}

/* The place of the set bit with `rank` of them below it; 32 where there is none. */
static uint32_t nth(uint32_t bits, uint32_t rank)
{
    for (uint32_t i = 0; i < 32; i++) {
        if (has(bits, i) && rank-- == 0) {
            return i;
        }
    }
    return 32;
}

/* The first set bit from `start` on, going round. */
static uint32_t from(uint32_t bits, uint32_t start)
{
    for (uint32_t i = 0; i < 32; i++) {
        if (has(bits, (start + i) % 32)) {
            return (start + i) % 32;
        }
    }
    return 32;
}

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 2246822507u;
    x ^= x >> 13;
    x *= 3266489909u;
    x ^= x >> 16;
    return x;
}

/* The upper half of (a1:a0) * (b1:b0), by long multiplication. */
static uint64_t high_product(uint64_t a1, uint64_t a0, uint64_t b1, uint64_t b0)
{
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    uint64_t other = a0 * b1 + (middle & UINT32_MAX);
    return a1 * b1 + (middle >> 32) + (other >> 32);
}

static void expect_bits(const simt_input *in, uint32_t lane, simt_output *out)
{
    uint32_t bits = in->values[lane];
    uint32_t n = in->numbers[lane];
    uint32_t count = count_below(bits, 32);
    uint32_t below = 0;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < 32; i++) {
        below |= i < n % 33 ? 1u << i : 0;
        taken |= has(bits, i) && count_below(bits, i) < n % 40 ? 1u << i : 0;
    }
    out->word[SIMT_bits_count][lane] = count;
    out->word[SIMT_bits_below][lane] = below;
    out->word[SIMT_bits_take][lane] = taken;
    out->word[SIMT_bits_mix][lane] = mix(n);
    out->word[SIMT_bits_high][lane] = (uint32_t)high_product(bits, n, n, ~bits);
    out->word[SIMT_bits_high_top][lane] = (uint32_t)(high_product(bits, n, n, ~bits) >> 32);
    uint64_t product = (uint64_t)bits * n;
    uint64_t place = ((uint64_t)n << 32) + product;
    uint32_t quarters = 8; /* of 4, and one more for each step of a quarter */
    for (uint64_t x = 4, step = 1; x + step <= ((bits & 0xffffffu) | 4u); quarters++) {
        x += step;
        step = x == 8 * step ? 2 * step : step;
    }
    uint64_t both = ((uint64_t)bits << 32 | n) * ((uint64_t)n << 32 | bits) * 3u ^
                    high_product(bits, n, n, bits);
    out->word[SIMT_bits_product][lane] = (uint32_t)both ^ (uint32_t)(both >> 32) * 5u;
    out->word[SIMT_bits_high32][lane] = (uint32_t)(product >> 32);
    out->word[SIMT_bits_down][lane] = bits / (1u << n % 32);
    out->word[SIMT_bits_round][lane] = (n >> 12) % (bits % 1000u + 1u);
    out->word[SIMT_bits_quarters][lane] = quarters;
    out->word[SIMT_bits_element][lane] = (uint32_t)place ^ (uint32_t)(place >> 32) * 3u;
    uint32_t turned[2] = {n, bits}; /* one bit at a time */
    for (uint32_t i = 0; i < n % 32; i++) {
        uint32_t low = turned[0] & 1u;
        turned[0] = turned[0] >> 1 | turned[1] << 31;
        turned[1] = turned[1] >> 1 | low << 31;
    }
    out->word[SIMT_bits_rotate][lane] = turned[1] ^ turned[0] * 3u;
    if (bits) {
        out->word[SIMT_bits_lowest][lane] = nth(bits, 0);
        out->word[SIMT_bits_leading][lane] = 31 - nth(bits, count - 1);
        out->word[SIMT_bits_nth][lane] = nth(bits, n % count);
        out->word[SIMT_bits_from][lane] = from(bits, n % 32);
    }
}

static uint32_t expect_dealt(const simt_input *in, uint32_t lane)
{
    uint32_t before = count_below(in->takers, lane);
    bool takes = has(in->takers, lane) && before >= in->skip;
    uint32_t place = takes ? nth(in->bits, before - in->skip) : 32;
    return place < 32 ? in->first + place : in->values[lane];
}

static void expect_each(const simt_input *in, uint32_t lane, simt_output *out)
{
    uint32_t value = in->values[lane];
    uint32_t number = in->numbers[lane];
    bool chosen = has(in->chosen, lane);
    out->word[SIMT_tile_ranks][lane] = count_below(in->here, lane);
    out->word[SIMT_tile_sync][lane] = in->values[from(in->here, (lane + 1) % 32)];
    out->word[SIMT_each_lane][lane] = in->value + (chosen ? lane : 0);
    out->word[SIMT_lanes_all][lane] = in->value;
    out->word[SIMT_lanes_numbers][lane] = lane;
    out->word[SIMT_lanes_operators][lane] =
        ((value ^ number) + in->value) / 32 - (value << (number % 32));
    out->word[SIMT_lanes_select][lane] = chosen ? value : number;
    out->word[SIMT_lanes_deal][lane] = expect_dealt(in, lane);
}

/* The last lane of the mask before that one; 32 if there is none, or that lane is not in the
 * mask. */
static uint32_t expect_previous(const simt_input *in, uint32_t lane)
{
    uint32_t before = count_below(in->chosen, lane);
    return has(in->chosen, lane) && before ? nth(in->chosen, before - 1) : 32;
}

static void expect_with_others(const simt_input *in, uint32_t lane, simt_output *out)
{
    uint32_t sum = 0;
    uint32_t count = 0;
    uint32_t equal = 0;
    uint32_t merged = 0;
    for (uint32_t i = 0; i < 32; i++) {
        if (i < lane && has(in->here, i)) {
            sum += in->values[i];
            count += count_below(in->values[i], 32);
        }
        if (has(in->among, lane) && has(in->among, i) && in->keys[i] == in->keys[lane]) {
            equal |= 1u << i;
            merged |= in->values[i];
        }
    }
    out->word[SIMT_lanes_prefix_sum][lane] = sum;
    out->word[SIMT_lanes_previous][lane] =
        expect_previous(in, lane) < 32 ? in->values[expect_previous(in, lane)] : 0;
    out->word[SIMT_lanes_prefix_count][lane] = count;
    out->word[SIMT_lanes_equal][lane] = equal;
    out->word[SIMT_lanes_merge_or][lane] = merged;
    out->word[SIMT_share_answer][lane] =
        has(in->asking, lane) ? in->keys[lane] * 64 + count_below(in->asking, lane) + 1
                              : in->numbers[lane];
}

static void expect_row(const simt_input *in, uint32_t lane, simt_output *out)
{
    uint32_t match = 0;
    uint32_t put = 0;
    uint32_t each = 0;
    uint32_t wide = 0;
    for (uint32_t i = 0; i < 32; i++) {
        wide |= i % 4 == 0 && i < 28 && in->row[i] == in->key && in->row[i + 1] == in->common
                    ? 1u << i
                    : 0;
        match |= in->row[i] == in->key ? 1u << i : 0;
        put |= (i == in->place ? in->value : in->row[i]) == in->value ? 1u << i : 0;
        each = mix(each ^ in->row[i]);
    }
    out->word[SIMT_row_match][lane] = match;
    out->word[SIMT_row_differ][lane] = 0xffffffffu - match;
    uint32_t first = nth(match & 0x15555555u, 0);
    out->word[SIMT_row_first][lane] = first;
    out->word[SIMT_row_first_abreast][lane] = nth(match & 0x3fffffffu, 0);
    out->word[SIMT_row_first64][lane] = nth(wide, 0);
    out->word[SIMT_row_behind][lane] = first < 32 ? in->row[first + 1] : 0;
    out->word[SIMT_row_get][lane] = in->row[in->place];
    out->word[SIMT_row_get_each][lane] = each;
    out->word[SIMT_row_load_pairs][lane] = each;
    uint32_t sector = 0, nothing = 0, quad = 0;
    for (uint32_t i = 0; i < 4; i++) {
        quad = mix(quad ^ in->row[lane % 8 * 4 + i]);
    }
    out->word[SIMT_row_quad][lane] = quad;
    for (uint32_t i = 0; i < 8; i++) {
        nothing = mix(nothing);
        sector = mix(sector ^ in->row[(3 - lane % 4) * 8 + i]);
    }
    out->word[SIMT_sector_load][lane] = sector;
    out->word[SIMT_sector_load_pairs][lane] = sector;
    out->word[SIMT_sectors_load][lane] = sector;
    out->word[SIMT_sectors_load_pairs][lane] = in->chosen >> lane & 1u ? sector : nothing;
    out->word[SIMT_row_put][lane] = in->value;
    out->word[SIMT_row_put_match][lane] = put;
}

static void expect_uniform(const simt_input *in, uint32_t lane, simt_output *out)
{
    bool same = true;
    bool parted = false;
    uint32_t nonzero = 0;
    uint32_t sum = 0;
    uint32_t least = ~0u;
    uint32_t all = 0;
    uint32_t differ = 0;
    for (uint32_t i = 0; i < 32; i++) {
        if (has(in->here, i)) {
            nonzero |= in->flags[i] ? 1u << i : 0;
            same &= in->flags[i] == in->flags[nth(in->here, 0)];
            parted |= has(in->chosen, i) != has(in->chosen, nth(in->here, 0));
            sum += in->values[i];
            least = in->values[i] < least ? in->values[i] : least;
            all |= in->flags[i];
        }
        differ |= in->row[i] != in->common ? 1u << i : 0;
    }
    out->word[SIMT_tile_lanes][lane] = in->here;
    out->word[SIMT_tile_size][lane] = count_below(in->here, 32);
    out->word[SIMT_tile_leader][lane] = nth(in->here, 0);
    out->word[SIMT_lanes_get][lane] = in->values[in->lane];
    out->word[SIMT_lanes_pick][lane] = in->asking ? in->values[nth(in->asking, 0)] : 0;
    out->word[SIMT_lanes_nonzero][lane] = nonzero;
    out->word[SIMT_lanes_any][lane] = nonzero ? 1 : 0;
    out->word[SIMT_lanes_same][lane] = (same ? 1u : 0) | 2u | (parted ? 0 : 4u);
    out->word[SIMT_lanes_sum][lane] = sum;
    out->word[SIMT_lanes_least][lane] = least;
    out->word[SIMT_tiles_any][lane] = in->chosen & 1u;
    out->word[SIMT_lanes_union][lane] = all;
    out->word[SIMT_row_seek][lane] = from(differ, in->start);
    out->word[SIMT_row_scan][lane] = differ;
}

void simt_expect(const simt_input *in, bool gaps, simt_output *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t lane = 0; lane < 32; lane++) {
        if (!has(in->here, lane)) {
            continue;
        }
        expect_bits(in, lane, out);
        expect_each(in, lane, out);
        expect_with_others(in, lane, out);
        expect_uniform(in, lane, out);
        if (gaps) {
            out->word[SIMT_tile_members][lane] = in->here;
        } else {
            expect_row(in, lane, out);
        }
    }
}

/* ---- atomics ------------------------------------------------------------------------------- */

typedef enum atomic_kind {
    LOAD,
    STORE,
    EXCHANGE,
    OR,
    AND,
    ADD,
    CAS,
    POST_OR,
    POST_AND,
    POST_ADD
} atomic_kind;

static uint64_t expect_after(atomic_kind kind, uint64_t before, uint64_t operand, bool as_expected)
{
    switch (kind) {
    case STORE:
    case EXCHANGE:
        return operand;
    case OR:
    case POST_OR:
        return before | operand;
    case AND:
    case POST_AND:
        return before & operand;
    case ADD:
    case POST_ADD:
        return before + operand;
    case CAS:
        return as_expected ? operand : before;
    default:
        return before;
    }
}

void simt_expect_atomics(const simt_atomic_input *in, simt_atomic_output *out)
{
#define KIND_OF(kind, operation, bits, order, suffix)  kind,
#define WIDTH_OF(kind, operation, bits, order, suffix) sizeof(simt_word##bits),
    static const atomic_kind kinds[] = {SIMT_EACH_ATOMIC(KIND_OF)};
    static const size_t widths[] = {SIMT_EACH_ATOMIC(WIDTH_OF)};
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < SIMT_ATOMICS; i++) {
        uint64_t all = UINT64_MAX >> (64 - 8 * widths[i]);
        bool as_expected = (in->before & all) == (in->expected & all);
        bool silent = kinds[i] == STORE || kinds[i] >= POST_OR;
        out->answer[i] = silent ? 0 : in->before & all;
        out->after[i] = expect_after(kinds[i], in->before, in->operand, as_expected) & all;
    }
    for (size_t i = 0; i < SIMT_CAS128S; i++) {
        uint64_t after = in->before == in->expected ? in->operand : in->before;
        const uint64_t halves[4] = {in->before, SIMT_UPPER(in->before), after, SIMT_UPPER(after)};
        memcpy(out->wide[i], halves, sizeof halves);
    }
}

/* ---- differences --------------------------------------------------------------------------- */

bool simt_differs(const simt_input *in, const simt_output *expected, const simt_output *got,
                  char *text, size_t size)
{
    for (size_t word = 0; word < SIMT_WORDS; word++) {
        for (uint32_t lane = 0; lane < 32; lane++) {
            if (expected->word[word][lane] != got->word[word][lane]) {
                snprintf(text, size,
                         "%s: %#" PRIx32 " in lane %" PRIu32 " of the lanes %#" PRIx32
                         ", got %#" PRIx32 " (value %#" PRIx32 ", number %#" PRIx32
                         ", chosen %#" PRIx32 ", among %#" PRIx32 ", takers %#" PRIx32
                         ", asking %#" PRIx32 ", start %" PRIu32 ")",
                         simt_word_names[word], expected->word[word][lane], lane, in->here,
                         got->word[word][lane], in->values[lane], in->numbers[lane], in->chosen,
                         in->among, in->takers, in->asking, in->start);
                return true;
            }
        }
    }
    return false;
}

bool simt_atomics_differ(const simt_atomic_input *in, const simt_atomic_output *expected,
                         const simt_atomic_output *got, char *text, size_t size)
{
    for (size_t i = 0; i < SIMT_ATOMICS; i++) {
        if (expected->answer[i] != got->answer[i] || expected->after[i] != got->after[i]) {
            snprintf(text, size,
                     "%s: answer %#" PRIx64 " and then %#" PRIx64 ", got %#" PRIx64
                     " and then %#" PRIx64 " (before %#" PRIx64 ", operand %#" PRIx64
                     ", expected %#" PRIx64 ")",
                     simt_atomic_names[i], expected->answer[i], expected->after[i], got->answer[i],
                     got->after[i], in->before, in->operand, in->expected);
            return true;
        }
    }
    if (got->has_cas128 && memcmp(got->wide, expected->wide, sizeof got->wide) != 0) {
        snprintf(text, size,
                 "ga_cas128: %#" PRIx64 " and its upper half, then %#" PRIx64 ", got %#" PRIx64
                 ", then %#" PRIx64 ", or in another order (operand %#" PRIx64
                 ", expected %#" PRIx64 ")",
                 expected->wide[0][0], expected->wide[0][2], got->wide[0][0], got->wide[0][2],
                 in->operand, in->expected);
        return true;
    }
    if (got->guards128[0] || got->guards128[1] || got->guard || got->guards[0] || got->guards[1] ||
        got->guard64 || got->guards64[0] || got->guards64[1] || got->guard16 || got->guards16[0] ||
        got->guards16[1]) {
        snprintf(text, size, "words beside the changed one stay 0");
        return true;
    }
    return false;
}
