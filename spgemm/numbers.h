/* SPDX-License-Identifier: MIT
 *
 * Numbers in a line that ends with a NUL. Each call skips blanks, reads a number that a blank or
 * the end of the line follows, and moves `*at` behind it. If it returns false, `*at` is undefined.
 */
#ifndef GPUALLOC_SPGEMM_NUMBERS_H
#define GPUALLOC_SPGEMM_NUMBERS_H

#include <locale.h>
#include <stdbool.h>
#include <stdint.h>

/* Moves behind blanks: spaces, tabs, carriage returns. */
void ga_skip_blanks(const char **at);

/* Digits alone. False also for numbers above 2^64 - 1. */
bool ga_parse_count(const char **at, uint64_t *out);

/* A decimal number, "nan", "inf" or "infinity", in any case, with a sign or without one, rounded
 * correctly. `c_locale` is the locale "C". False also for numbers that float64 cannot hold. */
bool ga_parse_real(const char **at, locale_t c_locale, double *out);

/* Digits with a sign or without one. Rounded above 2^53. */
bool ga_parse_integer(const char **at, locale_t c_locale, double *out);

#endif
