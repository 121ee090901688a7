/* SPDX-License-Identifier: MIT
 *
 * A vector on the host that grows by doubling to SIZE bytes while numbers of 8 bytes are appended:
 * in an arena, by realloc() and as a std::vector.
 *
 *     bench-arena-host [--size 16G] [--rounds N] [--json FILE]
 *
 * Each measurement is a child, this program again. In a round all variants take turns, and each
 * round begins with another one. Times are medians over the rounds with quartiles; "times" is the
 * baseline's time divided by the variant's, the median of the same rounds. Exit status 1 if a
 * measurement failed, 77 if the machine has less memory than the vector needs.
 */
#include "ways.h"

#include "../runner/figures.h"
#include "../runner/machine.h"

#include "platform/size.h"

#include <errno.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ROUNDS_MAX = 101,
    LIMIT_SECONDS = 300 /* of a child */
};

typedef struct settings {
    uint64_t size; /* bytes of the full vector */
    unsigned rounds;
    const char *json;
} settings;

static growth_cost costs[GROWTH_WAYS][ROUNDS_MAX];

/* ---- rounds ------------------------------------------------------------------------------ */

/* Print the child's result. */
static bool write_answer(const growth_cost *cost)
{
    printf("%.9f %.9f %.9f %.6f %u", cost->all, cost->growing, cost->worst, cost->peak,
           cost->count);
    for (uint32_t i = 0; i < cost->count; i++) {
        printf(" %.9f", cost->each[i]);
    }
    return printf("\n") > 0 && fflush(stdout) == 0;
}

static bool read_answer(int from, growth_cost *cost)
{
    char text[4096] = "";
    ssize_t got = read(from, text, sizeof text - 1); /* a child prints once, less than a pipe's
                                                      * buffer */
    int used = 0;
    if (got <= 0 ||
        sscanf(text, "%lf %lf %lf %lf %u%n", &cost->all, &cost->growing, &cost->worst, &cost->peak,
               &cost->count, &used) != 5 ||
        cost->count > GROWTHS_MAX) {
        return false;
    }
    char *rest = text + used;
    for (uint32_t i = 0; i < cost->count; i++) {
        char *begin = rest;
        cost->each[i] = strtod(begin, &rest);
        if (rest == begin) {
            return false;
        }
    }
    return true;
}

static pid_t start(char **arguments, int out)
{
    extern char **environ;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    int failed = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed ? -1 : pid;
}

static bool measure(const settings *set, unsigned which, growth_cost *cost)
{
    char numbers[2][24];
    int ends[2];
    int status = -1;
    snprintf(numbers[0], sizeof numbers[0], "%u", which);
    snprintf(numbers[1], sizeof numbers[1], "%llu", (unsigned long long)set->size);
    char *arguments[] = {"bench-arena-host", "--child", numbers[0], numbers[1], NULL};
    if (pipe(ends)) {
        return false;
    }
    pid_t pid = start(arguments, ends[1]);
    close(ends[1]);
    bool answered = pid > 0 && read_answer(ends[0], cost);
    close(ends[0]);
    bool good = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 && answered;
    if (!good) {
        fprintf(stderr, "bench-arena-host: %s: no figure (wait status %d)\n",
                growth_ways[which].name, status);
    }
    return good;
}

static bool run_round(const settings *set, unsigned round)
{
    for (unsigned i = 0; i < GROWTH_WAYS; i++) {
        unsigned which = (i + round) % GROWTH_WAYS;
        if (!measure(set, which, &costs[which][round])) {
            return false;
        }
    }
    return true;
}

/* The main function of a child; this program wrote its arguments. */
static int run_child(char **arguments)
{
    growth_cost cost = {0};
    struct rusage usage;
    uint64_t size = strtoull(arguments[1], NULL, 10);
    const growth_way *way = &growth_ways[strtoul(arguments[0], NULL, 10) % GROWTH_WAYS];
    alarm(LIMIT_SECONDS);
    if (!way->fill(size / sizeof(uint64_t), &cost) || getrusage(RUSAGE_SELF, &usage)) {
        return 1;
    }
    cost.peak = 1024.0 * (double)usage.ru_maxrss / (double)size;
    return write_answer(&cost) ? 0 : 1;
}

/* ---- results ----------------------------------------------------------------------------- */

/* The figures, and their form in the output. */
static const struct {
    const char *metric, *unit;
    size_t offset; /* in growth_cost */
    double scale;  /* factor from seconds; the first figure is also divided by the number of
                    * elements */
} figures[] = {
    {"push", "ns", offsetof(growth_cost, all), 1e9},
    {"growing", "ms", offsetof(growth_cost, growing), 1e3},
    {"worst-growth", "ms", offsetof(growth_cost, worst), 1e3},
    {"peak", "of size", offsetof(growth_cost, peak), 1},
};

enum {
    FIGURES = sizeof figures / sizeof *figures
};

static double value_of(const settings *set, const growth_cost *cost, unsigned figure)
{
    double value = *(const double *)((const char *)cost + figures[figure].offset);
    double pushes = figure ? 1 : (double)(set->size / sizeof(uint64_t));
    return value * figures[figure].scale / pushes;
}

static ga_bench_figures summarise_figure(const settings *set, unsigned which, unsigned figure)
{
    double values[ROUNDS_MAX];
    for (unsigned i = 0; i < set->rounds; i++) {
        values[i] = value_of(set, &costs[which][i], figure);
    }
    return ga_bench_figures_of(values, set->rounds);
}

/* The baseline's figure divided by this one, round by round. */
static ga_bench_figures summarise_times(const settings *set, unsigned which, unsigned other,
                                        unsigned figure)
{
    double values[ROUNDS_MAX];
    for (unsigned i = 0; i < set->rounds; i++) {
        values[i] =
            value_of(set, &costs[other][i], figure) / value_of(set, &costs[which][i], figure);
    }
    return ga_bench_figures_of(values, set->rounds);
}

static void print_row(const settings *set, unsigned which)
{
    printf("%-18s", growth_ways[which].name);
    for (unsigned figure = 0; figure < FIGURES; figure++) {
        ga_bench_figures s = summarise_figure(set, which, figure);
        printf("  %9.3f  %8.3f to %8.3f", s.median, s.low, s.high);
    }
    for (unsigned other = GROWTH_FIRST_BASELINE; other < GROWTH_WAYS; other++) {
        ga_bench_figures times = summarise_times(set, which, other, 0);
        printf("  %5.2f %5.2f-%5.2f", times.median, times.low, times.high);
    }
    printf("\n");
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A quantile of the times of all growths of all rounds; `values` are sorted. */
static double quantile(const double *values, unsigned n, unsigned per_mille)
{
    return values[(n * per_mille + 999) / 1000 - 1];
}

static void print_tail(const settings *set, unsigned which)
{
    static double all[ROUNDS_MAX * GROWTHS_MAX];
    unsigned n = 0;
    for (unsigned round = 0; round < set->rounds; round++) {
        const growth_cost *cost = &costs[which][round];
        memcpy(all + n, cost->each, cost->count * sizeof *all);
        n += cost->count;
    }
    if (n) {
        qsort(all, n, sizeof *all, compare);
        printf("%-18s  %u growths, us: p50 %.1f, p99 %.1f, p99.9 %.1f, longest %.1f\n",
               growth_ways[which].name, n, 1e6 * quantile(all, n, 500), 1e6 * quantile(all, n, 990),
               1e6 * quantile(all, n, 999), 1e6 * all[n - 1]);
    }
}

static void print_table(const settings *set)
{
    printf("\n%-18s", "with");
    for (unsigned figure = 0; figure < FIGURES; figure++) {
        char title[40];
        snprintf(title, sizeof title, "%s, %s", figures[figure].metric, figures[figure].unit);
        printf("  %31s", title);
    }
    for (unsigned other = GROWTH_FIRST_BASELINE; other < GROWTH_WAYS; other++) {
        printf("  times %-11s", growth_ways[other].name);
    }
    printf("\n");
    for (unsigned which = 0; which < GROWTH_WAYS; which++) {
        print_row(set, which);
    }
    printf("\n");
    for (unsigned which = 0; which < GROWTH_WAYS; which++) {
        print_tail(set, which);
    }
}

/* ---- the machine ------------------------------------------------------------------------- */

static void read_line(const char *path, const char *format, char *text, size_t size)
{
    char line[256];
    FILE *file = fopen(path, "r");
    snprintf(text, size, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, format, text) == 1) {
            break;
        }
    }
    if (file) {
        fclose(file);
    }
}

static uint64_t available_memory(void)
{
    char kibibytes[128];
    read_line("/proc/meminfo", "MemAvailable: %127[0-9]", kibibytes, sizeof kibibytes);
    return strtoull(kibibytes, NULL, 10) << 10;
}

static void describe(const settings *set, const char *now)
{
    char huge[128];
    read_line("/sys/kernel/mm/transparent_hugepage/enabled", "%127[^\n]", huge, sizeof huge);
    printf("%s; %s; %s\n", ga_bench_processor(), now, ga_bench_commit());
    printf("8-byte numbers pushed until there are %llu bytes; room doubles; %u rounds; medians and "
           "quartiles; transparent huge pages: %s\n",
           (unsigned long long)set->size, set->rounds, huge);
    fflush(stdout);
}

/* Write a line for each variant, figure and baseline, with the keys of bench/README.md. */
static bool write_json(const settings *set, const char *now)
{
    FILE *file = fopen(set->json, "w");
    if (!file) {
        fprintf(stderr, "bench-arena-host: %s: %s\n", set->json, strerror(errno));
        return false;
    }
    for (unsigned i = 0; i < GROWTH_WAYS * FIGURES * (GROWTH_WAYS - GROWTH_FIRST_BASELINE); i++) {
        unsigned which = i % GROWTH_WAYS, figure = i / GROWTH_WAYS % FIGURES;
        unsigned other = GROWTH_FIRST_BASELINE + i / GROWTH_WAYS / FIGURES;
        ga_bench_figures s = summarise_figure(set, which, figure);
        fprintf(file,
                "{\"bench\": \"arena-host\", \"place\": \"host\", \"spec\": \"%s\", \"device\": "
                "\"%s\", \"driver\": null, \"threads\": 1, \"size\": %llu, \"metric\": \"%s\", "
                "\"unit\": \"%s\", \"value\": %.4f, \"spread\": %.4f, \"baseline\": \"%s\", "
                "\"ratio\": %.4f, \"failed\": 0, \"date\": \"%s\", \"commit\": \"%s\"}\n",
                growth_ways[which].name, ga_bench_processor(), (unsigned long long)set->size,
                figures[figure].metric, figures[figure].unit, s.median, s.high - s.low,
                growth_ways[other].name, summarise_times(set, other, which, figure).median, now,
                ga_bench_commit());
    }
    return fclose(file) == 0;
}

/* ---- the command line -------------------------------------------------------------------- */

static int refuse(const char *option, const char *value)
{
    fprintf(stderr,
            "bench-arena-host: %s %s: expected --size BYTES (64K or more; K, M, G), --rounds N (1 "
            "to %d) or --json FILE\n",
            option, value ? value : "without a value", ROUNDS_MAX);
    return 2;
}

static bool read_option(settings *set, const char *name, const char *value)
{
    char *end = "";
    if (!strcmp(name, "--size")) {
        return ga_size_parse(value, &set->size) && set->size >= 64 << 10;
    }
    if (!strcmp(name, "--rounds")) {
        unsigned long rounds = strtoul(value, &end, 10);
        set->rounds = (unsigned)rounds;
        return end != value && !*end && *value != '-' && rounds >= 1 && rounds <= ROUNDS_MAX;
    }
    set->json = value;
    return !strcmp(name, "--json");
}

int main(int argc, char **argv)
{
    settings set = {.size = (uint64_t)16 << 30, .rounds = 5};
    ga_bench_date now = ga_bench_today();
    if (argc == 4 && !strcmp(argv[1], "--child")) {
        return run_child(argv + 2);
    }
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc || !read_option(&set, argv[i], argv[i + 1])) {
            return refuse(argv[i], argv[i + 1]);
        }
    }
    describe(&set, now.text);
    if (available_memory() / 5 * 4 < set.size) {
        printf("left out: %llu bytes are available, of which the vector would take more than four "
               "fifths; expected a smaller --size\n",
               (unsigned long long)available_memory());
        return 77;
    }
    for (unsigned round = 0; round < set.rounds; round++) {
        if (!run_round(&set, round)) {
            return 1;
        }
    }
    print_table(&set);
    return set.json && !write_json(&set, now.text) ? 1 : 0;
}
