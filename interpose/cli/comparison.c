/* SPDX-License-Identifier: MIT
 *
 * A ratio is the median over the rounds of a row's figure to the base's in the same round. It is
 * noise if it is no further from 1 than those of the second row, or if the middle half of its own
 * values includes 1.
 */
#include "comparison.h"

#include "runner/figures.h"
#include "runner/machine.h"
#include "runner/result.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_WIDTH = 17 /* at least: of "no preload, again" */
};

/* ---- figures ------------------------------------------------------------------------------- */

typedef struct figure {
    ga_bench_metric metric;
    size_t offset; /* of a double in ga_measured_run */
    double unit;
} figure;

static const figure figures[] = {
    {{"wall", "s", false, NULL}, offsetof(ga_measured_run, wall), 1},
    {{"cpu", "s", false, NULL}, offsetof(ga_measured_run, processor), 1},
    {{"peak_rss", "MiB", false, NULL}, offsetof(ga_measured_run, peak), 1 << 20},
};

enum {
    WALL,
    CPU,
    PEAK,
    FIGURES
};

/* The figures of one row. */
typedef struct summary {
    ga_bench_figures values; /* in the unit */
    ga_bench_figures ratios;
    bool noise;
} summary;

static double value_of(const ga_measured_run *run, const figure *what)
{
    double value;
    memcpy(&value, (const char *)run + what->offset, sizeof value);
    return value / what->unit;
}

/* A run may take no time that the clock shows. */
static double ratio_of(double value, double base)
{
    return base > 0 ? value / base : value > 0 ? INFINITY : 1;
}

static summary sum_up(const ga_comparison *all, size_t row, const figure *what)
{
    double *values = calloc(2 * all->rounds + 1, sizeof *values);
    double *ratios = values + all->rounds;
    summary out = {.noise = true};
    for (size_t i = 0; values && i < all->rounds; i++) {
        values[i] = value_of(&all->rows[row].runs[i], what);
        ratios[i] = ratio_of(values[i], value_of(&all->rows[GA_COMPARISON_BASE].runs[i], what));
    }
    out.values = ga_bench_figures_of(values, values ? all->rounds : 0);
    out.ratios = ga_bench_figures_of(ratios, values ? all->rounds : 0);
    free(values);
    return out;
}

static double distance(const ga_bench_figures *ratios)
{
    return fmax(fabs(ratios->low - 1), fabs(ratios->high - 1));
}

/* How far ratios of equal programs are from 1. */
static double noise_of(const ga_comparison *all, const figure *what)
{
    summary again = sum_up(all, GA_COMPARISON_AGAIN, what);
    return distance(&again.ratios);
}

static summary judge(const ga_comparison *all, size_t row, const figure *what)
{
    summary out = sum_up(all, row, what);
    bool unsure = all->rounds < GA_COMPARISON_SURE;
    bool within = fabs(out.ratios.median - 1) <= noise_of(all, what);
    bool around = out.ratios.low <= 1 && out.ratios.high >= 1;
    out.noise = row >= GA_COMPARISON_SPECS && (unsure || within || around);
    return out;
}

/* ---- the table ----------------------------------------------------------------------------- */

static int width_of(const ga_comparison *all)
{
    size_t width = NAME_WIDTH;
    for (size_t i = 0; i < all->row_count; i++) {
        size_t length = strlen(all->rows[i].name);
        width = length > width ? length : width;
    }
    return (int)width;
}

/* Without an exponent. */
static void print_value(FILE *stream, double value)
{
    int decimals = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : value >= 0.1 ? 3 : 4;
    fprintf(stream, " %8.*f", decimals, value);
}

static void print_row(FILE *stream, const ga_comparison *all, size_t row, int width)
{
    summary it[FIGURES];
    for (size_t i = 0; i < FIGURES; i++) {
        it[i] = judge(all, row, &figures[i]);
    }
    const ga_bench_figures *wall = &it[WALL].values;
    char spread[16];
    snprintf(spread, sizeof spread, "±%.1f%%",
             wall->median > 0 ? 50 * (wall->high - wall->low) / wall->median : 0);
    fprintf(stream, "%-*s", width, all->rows[row].name);
    print_value(stream, wall->median);
    fprintf(stream, " %8s", spread); /* "±" has two bytes */
    for (size_t i = 0; i < FIGURES; i++) {
        if (i > 0) {
            print_value(stream, it[i].values.median);
        }
        const char *mark = it[i].noise ? "~" : i + 1 < FIGURES ? " " : "";
        fprintf(stream, " %7.3f%s", it[i].ratios.median, mark);
    }
    fputc('\n', stream);
}

static void print_noise(FILE *stream, const ga_comparison *all)
{
    const char *base = all->rows[GA_COMPARISON_BASE].name;
    if (all->rounds < GA_COMPARISON_SURE) {
        fprintf(stream, "\nToo few rounds to tell a difference from noise: %d at least.\n",
                GA_COMPARISON_SURE);
        return;
    }
    fprintf(stream,
            "\n\"%s\" ran twice in each round, and the two differed by up to %.1f%%\n"
            "in time and %.1f%% in memory: a ratio marked ~ is no further from 1, or varies\n"
            "about 1, so it may be noise.\n",
            base, 100 * noise_of(all, &figures[WALL]), 100 * noise_of(all, &figures[PEAK]));
}

/* The rows that are better than the base beyond noise, and no worse than the best of them by more
 * than noise. */
static void print_best(FILE *stream, const ga_comparison *all, size_t which, const char *title,
                       const char *of)
{
    double best = 1;
    double noise = noise_of(all, &figures[which]);
    size_t count = 0;
    for (size_t i = GA_COMPARISON_SPECS; i < all->row_count; i++) {
        summary row = judge(all, i, &figures[which]);
        best = row.noise || row.ratios.median > best ? best : row.ratios.median;
    }
    fprintf(stream, "%s:", title);
    for (size_t i = GA_COMPARISON_SPECS; best < 1 && i < all->row_count; i++) {
        summary row = judge(all, i, &figures[which]);
        if (!row.noise && row.ratios.median <= best + noise) {
            fprintf(stream, "%s %s (%.3f of the %s)", count++ ? "," : "", all->rows[i].name,
                    row.ratios.median, of);
        }
    }
    fprintf(stream, "%s\n", count ? "" : " no spec; none is better than no preload beyond noise");
}

void ga_comparison_print(FILE *stream, const ga_comparison *all)
{
    int width = width_of(all);
    fprintf(stream,
            "%s: %zu round%s, in turns. Medians; ± half the interquartile range; ratios to\n"
            "\"%s\" in the same round. Less is better.\n\n",
            all->program, all->rounds, all->rounds == 1 ? "" : "s",
            all->rows[GA_COMPARISON_BASE].name);
    fprintf(stream, "%-*s %8s %7s %7s  %8s %7s  %8s %7s\n", width, "", "wall s", "", "ratio",
            "cpu s", "ratio", "peak MiB", "ratio");
    for (size_t i = 0; i < all->row_count; i++) {
        print_row(stream, all, i, width);
    }
    print_noise(stream, all);
    if (all->rounds >= GA_COMPARISON_SURE) {
        print_best(stream, all, WALL, "Fastest", "time");
        print_best(stream, all, PEAK, "Least memory", "peak");
    }
}

/* ---- as JSON ------------------------------------------------------------------------------- */

static bool write_figure(FILE *stream, const ga_comparison *all, size_t row, size_t which,
                         const char *date)
{
    summary it = judge(all, row, &figures[which]);
    ga_bench_result result = {
        .bench = all->program,
        .place = all->rows[row].place,
        .spec = all->rows[row].spec,
        .device = ga_bench_processor(),
        .metric = &figures[which].metric,
        .value = it.values.median,
        .spread = it.values.high - it.values.low,
        .baseline = all->rows[GA_COMPARISON_BASE].spec,
        .ratio = it.ratios.median,
        .extra = json_pack("{s:I, s:b}", "rounds", (json_int_t)all->rounds, "noise", (int)it.noise),
    };
    bool written = result.extra && ga_bench_result_write(stream, &result, date);
    json_decref(result.extra);
    return written;
}

bool ga_comparison_write(FILE *stream, const ga_comparison *all)
{
    ga_bench_date date = ga_bench_today();
    bool written = true;
    for (size_t row = 0; row < all->row_count; row++) {
        for (size_t which = 0; written && which < FIGURES; which++) {
            written = write_figure(stream, all, row, which, date.text);
        }
    }
    return written;
}
