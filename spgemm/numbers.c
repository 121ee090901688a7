/* SPDX-License-Identifier: MIT
 *
 * Numbers in text.
 *
 *     ga_parse_real    fast path: scan_decimal -> exact_product
 *                      slow path: strtod_l for more than 15 digits or large exponents;
 *                      parse_word for nan and inf
 */
#include "numbers.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

/* A product or quotient of two exact float64 is rounded once, so that it is correct. */
_Static_assert(FLT_EVAL_METHOD == 0, "float64 arithmetic has no excess precision");

enum {
    MANTISSA_DIGITS = 19,  /* of a decimal that fit into 64 bits */
    EXACT_EXPONENT = 22,   /* the largest power of ten that float64 has exactly */
    EXPONENT_MAX = 1000000 /* larger exponents are cut to this one: the result is equal */
};

typedef struct decimal {
    uint64_t mantissa;
    int64_t exponent; /* of ten */
    int digits;       /* of the mantissa, without leading zeros */
    bool cut;         /* it has more digits than the mantissa */
} decimal;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_end(const char *at)
{
    return !*at || is_blank(*at);
}

void ga_skip_blanks(const char **at)
{
    while (is_blank(**at)) {
        ++*at;
    }
}

bool ga_parse_count(const char **at, uint64_t *out)
{
    uint64_t value = 0;
    ga_skip_blanks(at);
    if (!is_digit(**at)) {
        return false;
    }
    for (; is_digit(**at); ++*at) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(**at - '0'), &value)) {
            return false;
        }
    }
    *out = value;
    return is_end(*at);
}

/* ---- decimals ------------------------------------------------------------------------------- */

/* Adds the digits at `*at` to the mantissa; returns how many there are. */
static int64_t scan_digits(const char **at, decimal *d)
{
    int64_t count = 0;
    for (; is_digit(**at); ++*at, count++) {
        if (d->digits < MANTISSA_DIGITS) {
            d->mantissa = d->mantissa * 10 + (uint64_t)(**at - '0');
            d->digits += d->mantissa ? 1 : 0;
        } else {
            d->cut = true;
        }
    }
    return count;
}

static bool scan_exponent(const char **at, decimal *d)
{
    int64_t value = 0;
    if (**at != 'e' && **at != 'E') {
        return true;
    }
    ++*at;
    bool negative = **at == '-';
    *at += negative || **at == '+' ? 1 : 0;
    if (!is_digit(**at)) {
        return false;
    }
    for (; is_digit(**at); ++*at) {
        value = value < EXPONENT_MAX ? value * 10 + (**at - '0') : EXPONENT_MAX;
    }
    d->exponent += negative ? -value : value;
    return true;
}

/* An unsigned decimal. */
static bool scan_decimal(const char **at, decimal *d)
{
    int64_t whole = scan_digits(at, d);
    int64_t fraction = 0;
    if (**at == '.') {
        ++*at;
        fraction = scan_digits(at, d);
    }
    d->exponent = -fraction;
    return whole + fraction > 0 && scan_exponent(at, d) && is_end(*at);
}

/* The value if both factors are exact in float64. */
static bool exact_product(const decimal *d, double *out)
{
    static const double powers[EXACT_EXPONENT + 1] = {
        1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (d->cut || d->mantissa > UINT64_C(1) << DBL_MANT_DIG || d->exponent > EXACT_EXPONENT ||
        d->exponent < -EXACT_EXPONENT) {
        return false;
    }
    double mantissa = (double)d->mantissa;
    *out = d->exponent < 0 ? mantissa / powers[-d->exponent] : mantissa * powers[d->exponent];
    return true;
}

/* ---- real numbers --------------------------------------------------------------------------- */

static bool parse_word(const char **at, locale_t c_locale, double *out)
{
    static const struct word {
        const char *text;
        size_t length;
        double value;
    } words[] = {{"infinity", 8, INFINITY}, {"inf", 3, INFINITY}, {"nan", 3, NAN}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strncasecmp_l(*at, words[i].text, words[i].length, c_locale) == 0) {
            *at += words[i].length;
            *out = words[i].value;
            return is_end(*at);
        }
    }
    return false;
}

static bool parse_unsigned(const char **at, locale_t c_locale, double *out)
{
    const char *begin = *at;
    decimal d = {0};
    if (!is_digit(*begin) && *begin != '.') {
        return parse_word(at, c_locale, out);
    }
    if (!scan_decimal(at, &d)) {
        return false;
    }
    if (!exact_product(&d, out)) {
        *out = strtod_l(begin, NULL, c_locale);
    }
    return !isinf(*out);
}

bool ga_parse_real(const char **at, locale_t c_locale, double *out)
{
    ga_skip_blanks(at);
    bool negative = **at == '-';
    *at += negative || **at == '+' ? 1 : 0;
    bool good = parse_unsigned(at, c_locale, out);
    *out = good && negative ? -*out : *out;
    return good;
}

bool ga_parse_integer(const char **at, locale_t c_locale, double *out)
{
    ga_skip_blanks(at);
    const char *digit = *at + (**at == '-' || **at == '+' ? 1 : 0);
    bool some = is_digit(*digit);
    while (is_digit(*digit)) {
        digit++;
    }
    return some && is_end(digit) && ga_parse_real(at, c_locale, out);
}
