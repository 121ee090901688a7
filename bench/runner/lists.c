/* SPDX-License-Identifier: MIT
 *
 * Reading lists of numbers, writing sizes.
 */
#include "lists.h"

#include <stdio.h>
#include <string.h>

static unsigned shift_of(char unit)
{
    static const char units[] = "KMG";
    const char *found = unit ? strchr(units, unit) : NULL;
    return found ? 10 * (unsigned)(found - units + 1) : 0;
}

/* One number at *text, which moves past it. */
static bool number(const char **text, bool units, size_t most, size_t *out)
{
    size_t value = 0;
    const char *at = *text;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, (size_t)10, &value) ||
            __builtin_add_overflow(value, (size_t)(*at - '0'), &value)) {
            return false;
        }
    }
    bool digits = at > *text;
    unsigned shift = units ? shift_of(*at) : 0;
    *text = at + (shift ? 1 : 0);
    *out = value << shift;
    return digits && value >= 1 && value <= most >> shift;
}

static bool holds(const ga_bench_list *list, size_t value)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->values[i] == value) {
            return true;
        }
    }
    return false;
}

bool ga_bench_list_parse(const char *text, bool units, size_t most, ga_bench_list *out)
{
    out->count = 0;
    for (;; text++) {
        size_t value;
        if (!number(&text, units, most, &value) || out->count == GA_BENCH_LIST_MAX) {
            return false;
        }
        if (!holds(out, value)) {
            out->values[out->count++] = value;
        }
        if (*text != ',') {
            return *text == '\0';
        }
    }
}

ga_bench_size_text ga_bench_size_text_of(size_t size)
{
    ga_bench_size_text out;
    double value = (double)size;
    const char *unit = " KMGTPE";
    while (value >= 1024 && unit[1]) {
        value /= 1024;
        unit++;
    }
    snprintf(out.text, sizeof out.text, "%.4g%.*s", value, *unit != ' ', unit);
    return out;
}
