/* SPDX-License-Identifier: MIT
 *
 * A gnuplot script, written into a gnuplot child.
 */
#include "plot.h"

#include "lists.h"
#include "platform/environment.h"

#include <gpualloc/gpualloc.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    COLUMNS = 3,
    PANEL_WIDTH = 520,
    PANEL_HEIGHT = 340,
    MARGIN = 60 /* above the panels, for the title and the colours */
};

static const char *ending_of(const char *file)
{
    const char *dot = strrchr(file, '.');
    return dot ? dot : "";
}

bool ga_bench_plot_name_good(const char *file)
{
    for (const char *c = file; *c; c++) {
        if (iscntrl((unsigned char)*c)) {
            return false;
        }
    }
    return strcmp(ending_of(file), ".svg") == 0 || strcmp(ending_of(file), ".png") == 0;
}

static bool on_path(const char *program)
{
    char file[4096];
    const char *path = ga_environment("PATH");
    for (const char *at = path ? path : ""; *at; at += *at == ':') {
        int length = (int)strcspn(at, ":");
        snprintf(file, sizeof file, "%.*s/%s", length, at, program);
        if (access(file, X_OK) == 0) {
            return true;
        }
        at += length;
    }
    return false;
}

const char *ga_bench_plot_obstacle(const char *file)
{
    static char text[512];
    if (!on_path("gnuplot")) {
        return "gnuplot is not installed";
    }
    struct stat there;
    int made = open(file, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (made >= 0 && (fstat(made, &there) != 0 || !S_ISREG(there.st_mode))) {
        close(made);
        return "expected a regular file";
    }
    if (made < 0) {
        snprintf(text, sizeof text, "\"%s\": %s", file, strerror(errno));
        return text;
    }
    close(made);
    return NULL;
}

/* Write a gnuplot string. Within single quotes only they are special, and a newline, after which
 * the rest of the text would be commands. */
static void quote(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text; text++) {
        char c = *text;
        fputs(c == '\'' ? "''" : iscntrl((unsigned char)c) ? "?" : (char[]){c, '\0'}, out);
    }
    fputc('\'', out);
}

/* Never writes a name that begins with "|", because gnuplot would run the rest as a command. */
static void quote_path(FILE *out, const char *path)
{
    char relative[PATH_MAX + 2];
    snprintf(relative, sizeof relative, "./%s", path);
    quote(out, *path == '/' ? path : relative);
}

static bool same_panel(const ga_bench_result *a, const ga_bench_result *b)
{
    return a->bench == b->bench && a->metric == b->metric;
}

static bool opens_panel(const ga_bench_result *results, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (same_panel(&results[i], &results[index])) {
            return false;
        }
    }
    return !results[index].metric->note;
}

static unsigned count_panels(const ga_bench_result *results, size_t count)
{
    unsigned panels = 0;
    for (size_t i = 0; i < count; i++) {
        panels += opens_panel(results, i);
    }
    return panels;
}

/* The specs of the first case, which are those of every case; `specs` may be NULL. */
static size_t first_specs(const ga_bench_result *results, size_t count, const char **specs)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        if (same_panel(&results[0], &results[i]) && results[i].threads == results[0].threads &&
            results[i].size == results[0].size) {
            specs[found++] = results[i].spec;
        }
    }
    return found;
}

static void write_number(FILE *out, double value)
{
    if (isfinite(value)) {
        fprintf(out, " %g", value);
    } else {
        fputs(" NaN", out);
    }
}

/* A row for each case: its label, then value and half its spread for each spec. */
static void write_data(FILE *out, const ga_bench_result *results, size_t count, size_t specs)
{
    size_t written = 0;
    fputs("$data << END\n", out);
    for (size_t i = 0; i < count; i++) {
        if (!same_panel(&results[0], &results[i])) {
            continue;
        }
        if (written++ % specs == 0) {
            fprintf(out, "%s\"%u x %s\"", written > 1 ? "\n" : "", results[i].threads,
                    ga_bench_size_text_of(results[i].size).text);
        }
        write_number(out, results[i].value);
        write_number(out, results[i].spread / 2);
    }
    fputs("\nEND\n", out);
}

/* Whether bars of the panel would be too low to compare beside its highest. */
static bool wants_logarithm(const ga_bench_result *results, size_t count)
{
    double least = INFINITY;
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        if (same_panel(&results[0], &results[i]) && results[i].value > 0) {
            least = results[i].value < least ? results[i].value : least;
            most = results[i].value > most ? results[i].value : most;
        }
    }
    return most > 20 * least;
}

/* The panel of the first of the results. */
static void write_panel(FILE *out, const ga_bench_result *results, size_t count, size_t specs)
{
    const ga_bench_metric *metric = results[0].metric;
    char title[160];
    write_data(out, results, count, specs);
    bool logarithm = wants_logarithm(results, count);
    snprintf(title, sizeof title, "%s: %s (%s is better%s)", results[0].bench, metric->name,
             metric->more_is_better ? "more" : "less", logarithm ? "; logarithmic scale" : "");
    fputs("set title ", out);
    quote(out, title);
    fputs(" noenhanced\nset ylabel ", out);
    quote(out, metric->unit);
    fputs(logarithm ? "\nset logscale y\nset yrange [*:*]\n"
                    : "\nunset logscale\nset yrange [0:*]\n",
          out);
    fprintf(out,
            "plot for [s=0:%zu] $data using (column(2 + 2 * s)):(column(3 + 2 * s)):xtic(1) "
            "notitle linetype s + 1\n",
            specs - 1);
}

/* The colours of the specs, once for all panels; `line` is the height of one in the picture. */
static void write_key(FILE *out, const char *const *specs, size_t count, double line)
{
    double y = 1 - 1.8 * line;
    for (size_t s = 0; s < count; s++) {
        double x = 0.01 + 0.96 * (double)s / (double)count;
        fprintf(out,
                "set object %zu rectangle from screen %g,%g to screen %g,%g fillcolor linetype %zu "
                "fillstyle solid noborder front\nset label %zu ",
                s + 1, x, y - 0.3 * line, x + 0.012, y + 0.3 * line, s + 1, s + 1);
        quote(out, specs[s]);
        fprintf(out, " at screen %g,%g noenhanced front\n", x + 0.018, y);
    }
}

/* A line above the colours: what was measured where, and when. */
static void write_heading(FILE *out, const ga_bench_result *result, double line)
{
    char text[256], date[32] = "";
    time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts)) {
        strftime(date, sizeof date, "%Y-%m-%d", &parts);
    }
    snprintf(text, sizeof text, "gpualloc %s, %s, %s", ga_version_text(), result->device, date);
    fputs("set label ", out);
    quote(out, text);
    fprintf(out, " at screen 0.01,%g noenhanced front\n", 1 - 0.6 * line);
}

/* With the first panel only, because objects and labels stay for every later plot. */
static void write_panels(FILE *out, const ga_bench_result *results, size_t count, double line)
{
    const char **specs = calloc(count, sizeof *specs);
    size_t spec_count = specs ? first_specs(results, count, specs) : 0;
    write_key(out, specs, spec_count, line);
    write_heading(out, results, line);
    for (size_t i = 0; i < count && spec_count; i++) {
        if (opens_panel(results, i)) {
            write_panel(out, results + i, count - i, spec_count);
            fputs("unset label\nunset object\n", out);
        }
    }
    free(specs);
}

static void write_script(FILE *out, const char *file, const ga_bench_result *results, size_t count)
{
    unsigned panels = count_panels(results, count);
    unsigned columns = panels < COLUMNS ? panels : COLUMNS;
    unsigned rows = (panels + columns - 1) / columns;
    unsigned height = rows * PANEL_HEIGHT + MARGIN;
    fprintf(out, "set terminal %s size %u,%u\nset output ",
            strcmp(ending_of(file), ".png") == 0 ? "pngcairo font ',10'" : "svg font ',12'",
            columns * PANEL_WIDTH, height);
    quote_path(out, file);
    fprintf(out,
            "\nset style data histograms\nset style histogram errorbars gap 1 linewidth 1\n"
            "set style fill solid noborder\nset errorbars 0.3 front linecolor rgb '#404040'\nset "
            "grid ytics\nset border 3\n"
            "set xtics nomirror\nset ytics nomirror\nset xlabel 'threads x size in bytes'\n"
            "set multiplot layout %u,%u margins char 11, char 2, char 4, char 6 "
            "spacing char 10, char 7\n",
            rows, columns);
    write_panels(out, results, count, (double)MARGIN / 3 / height);
    fputs("unset multiplot\nset output\n", out);
}

bool ga_bench_plot(const char *file, const ga_bench_result *results, size_t count)
{
    if (count_panels(results, count) == 0) {
        return true;
    }
    void (*before)(int) = signal(SIGPIPE, SIG_IGN); /* gnuplot may end before it has read all */
    FILE *gnuplot = popen("exec gnuplot", "we");
    if (!gnuplot) {
        signal(SIGPIPE, before);
        return false;
    }
    write_script(gnuplot, file, results, count);
    int state = pclose(gnuplot);
    signal(SIGPIPE, before);
    return state == 0;
}
