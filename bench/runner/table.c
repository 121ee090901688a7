/* SPDX-License-Identifier: MIT
 *
 * The layout of tables. A cell reads "value ±spread ratio", with a "!" after the value if some
 * rounds failed.
 */
#include "table.h"

#include "lists.h"

#include <math.h>
#include <string.h>

enum {
    CELL_WIDTH = 21,
    CELL_TEXT = 96
};

typedef struct table {
    FILE *stream;
    const ga_bench_result *results;
    size_t count;
} table;

static bool same_row(const ga_bench_result *a, const ga_bench_result *b)
{
    return a->metric == b->metric && a->threads == b->threads && a->size == b->size;
}

static int width_of(const char *spec)
{
    int length = (int)strlen(spec);
    return length > CELL_WIDTH ? length : CELL_WIDTH;
}

/* Three significant digits, without an exponent. */
static void value_text(char *out, size_t size, double value)
{
    int decimals = fabs(value) >= 100 ? 0 : fabs(value) >= 10 ? 1 : fabs(value) >= 1 ? 2 : 3;
    snprintf(out, size, "%.*f", decimals, value);
}

static void cell_text(char *out, size_t size, const ga_bench_result *result)
{
    char value[32];
    char ratio[32] = "";
    if (!isfinite(result->value)) {
        snprintf(out, size, "%s", result->failed ? "failed" : "-");
        return;
    }
    value_text(value, sizeof value, result->value);
    if (isfinite(result->ratio)) {
        snprintf(ratio, sizeof ratio, "%.*fx", result->ratio < 0.1 ? 3 : 2, result->ratio);
    }
    double half = result->value > 0 ? 50 * result->spread / result->value : 0;
    snprintf(out, size, "%s%s ±%.0f%% %6s", value, result->failed ? "!" : "", half, ratio);
}

/* printf counts bytes, and "±" has two for one column. */
static int columns_of(const char *text)
{
    int columns = 0;
    for (; *text; text++) {
        columns += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return columns;
}

static void print_right(FILE *stream, const char *text, int width)
{
    int pad = width - columns_of(text);
    fprintf(stream, "%*s%s", pad > 0 ? pad : 0, "", text);
}

static void print_row(const table *t, size_t first)
{
    const ga_bench_result *lead = &t->results[first];
    fprintf(t->stream, "  %7u %6s", lead->threads, ga_bench_size_text_of(lead->size).text);
    for (size_t i = first; i < t->count; i++) {
        const ga_bench_result *result = &t->results[i];
        char text[CELL_TEXT];
        if (same_row(lead, result)) {
            cell_text(text, sizeof text, result);
            fputs("  ", t->stream);
            print_right(t->stream, text, width_of(result->spec));
        }
    }
    fputc('\n', t->stream);
}

static void print_head(const table *t, size_t first)
{
    const ga_bench_result *lead = &t->results[first];
    fprintf(t->stream, "\n%s in %s, %s is better\n  threads   size", lead->metric->name,
            lead->metric->unit, lead->metric->more_is_better ? "more" : "less");
    for (size_t i = first; i < t->count; i++) {
        if (same_row(lead, &t->results[i])) {
            fputs("  ", t->stream);
            print_right(t->stream, t->results[i].spec, width_of(t->results[i].spec));
        }
    }
    fputc('\n', t->stream);
}

/* Whether an earlier result has opened this one's row, or, with `any_row`, its metric's table. */
static bool seen(const table *t, size_t index, bool any_row)
{
    for (size_t i = 0; i < index; i++) {
        if (any_row ? t->results[i].metric == t->results[index].metric
                    : same_row(&t->results[i], &t->results[index])) {
            return true;
        }
    }
    return false;
}

static void print_metric(const table *t, size_t first)
{
    print_head(t, first);
    for (size_t i = first; i < t->count; i++) {
        if (t->results[i].metric == t->results[first].metric && !seen(t, i, false)) {
            print_row(t, i);
        }
    }
}

static void print_note(const table *t, size_t first)
{
    const ga_bench_metric *metric = t->results[first].metric;
    double least = INFINITY;
    double most = 0;
    for (size_t i = first; i < t->count; i++) {
        if (t->results[i].metric == metric && isfinite(t->results[i].value)) {
            least = t->results[i].value < least ? t->results[i].value : least;
            most = t->results[i].value > most ? t->results[i].value : most;
        }
    }
    if (least <= most) {
        fprintf(t->stream, "  %s: %.1f to %.1f %s\n", metric->note, least, most, metric->unit);
    }
}

void ga_bench_table_print(FILE *stream, const char *help, const ga_bench_result *results,
                          size_t count)
{
    table t = {stream, results, count};
    fprintf(stream, "\n%s: %s\n", results->bench, help);
    if (results->driver) {
        fprintf(stream, "on %s, driver %s\n", results->device, results->driver);
    }
    for (size_t i = 0; i < count; i++) {
        if (!seen(&t, i, true)) {
            results[i].metric->note ? print_note(&t, i) : print_metric(&t, i);
        }
    }
}
