/* SPDX-License-Identifier: MIT
 *
 * The layout of tables. A cell reads "value ±spread ratio", with a "!" after the value if some
 * rounds failed.
 */
#include "table.h"

#include "lists.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/ioctl.h>

enum {
    CELL_WIDTH = 21,
    CELL_TEXT = 96,
    LEAD_WIDTH = 16, /* of the columns before the cells */
    GAP = 2          /* before a cell */
};

typedef struct table {
    FILE *stream;
    const ga_bench_result *results;
    size_t count;
    int width; /* of the terminal; INT_MAX: none */
} table;

/* Columns of a table that fit on the terminal: from `from` up to but not `to`. */
typedef struct part {
    size_t from, to;
} part;

static bool is_in(const part *columns, size_t column)
{
    return columns->from <= column && column < columns->to;
}

static int terminal_width(FILE *stream)
{
    struct winsize size = {0};
    bool terminal = ioctl(fileno(stream), TIOCGWINSZ, &size) == 0;
    return terminal && size.ws_col > 0 ? size.ws_col : INT_MAX;
}

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

static void print_row(const table *t, size_t first, const part *columns)
{
    const ga_bench_result *lead = &t->results[first];
    size_t column = 0;
    fprintf(t->stream, "  %7u %6s", lead->threads, ga_bench_size_text_of(lead->size).text);
    for (size_t i = first; i < t->count; i++) {
        const ga_bench_result *result = &t->results[i];
        char text[CELL_TEXT];
        if (same_row(lead, result) && is_in(columns, column++)) {
            cell_text(text, sizeof text, result);
            fputs("  ", t->stream);
            print_right(t->stream, text, width_of(result->spec));
        }
    }
    fputc('\n', t->stream);
}

static void print_head(const table *t, size_t first, const part *columns)
{
    const ga_bench_result *lead = &t->results[first];
    size_t column = 0;
    fprintf(t->stream, "\n%s in %s, %s is better\n  threads   size", lead->metric->name,
            lead->metric->unit, lead->metric->more_is_better ? "more" : "less");
    for (size_t i = first; i < t->count; i++) {
        if (same_row(lead, &t->results[i]) && is_in(columns, column++)) {
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

/* The columns from `from` on that fit beside each other, one at least. */
static part fitting(const table *t, size_t first, size_t from)
{
    part columns = {from, from};
    size_t column = 0;
    int width = LEAD_WIDTH;
    for (size_t i = first; i < t->count; i++) {
        if (!same_row(&t->results[first], &t->results[i]) || column++ < from) {
            continue;
        }
        width += GAP + width_of(t->results[i].spec);
        if (columns.to > from && width > t->width) {
            break;
        }
        columns.to++;
    }
    return columns;
}

static void print_part(const table *t, size_t first, const part *columns)
{
    print_head(t, first, columns);
    for (size_t i = first; i < t->count; i++) {
        if (t->results[i].metric == t->results[first].metric && !seen(t, i, false)) {
            print_row(t, i, columns);
        }
    }
}

static void print_metric(const table *t, size_t first)
{
    part columns = fitting(t, first, 0);
    while (columns.to > columns.from) {
        print_part(t, first, &columns);
        columns = fitting(t, first, columns.to);
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
    table t = {stream, results, count, terminal_width(stream)};
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
