/* SPDX-License-Identifier: MIT
 *
 * SlabAlloc on the CPU beside malloc: units of 128 bytes, claimed, touched and given back.
 *
 *     bench-slab-host [--threads N,N] [--rounds N] [--ms N] [--json FILE]
 *
 * Each measurement is a child: this program again, with another allocator preloaded where that is what
 * is measured. In a round all have their turn, each round beginning with another one. A slab_cost is the
 * median over the rounds; "times" is the baseline's time over the own, the median of the same rounds.
 * Exit status 1 where a measurement failed; an allocator that is not installed is named and left out.
 */
#include "ways.h"

#include "../runner/figures.h"
#include "../runner/machine.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    COUNTS_MAX = 16, /* numbers of threads in one run */
    ROUNDS_MAX = 101,
    MS_MAX = 10000,
    LIMIT_SECONDS = 60 /* of a child */
};

/* ---- rounds --------------------------------------------------------------------------------- */

typedef struct settings {
    unsigned threads[COUNTS_MAX];
    unsigned thread_counts;
    unsigned rounds;
    unsigned ms;
    const char *json;
    bool present[SLAB_WAYS];
} settings;

static slab_cost costs[SLAB_PATTERNS][COUNTS_MAX][SLAB_WAYS][ROUNDS_MAX];

/* Start this program with `arguments`, its output going to `out`. */
static pid_t start(char **arguments, const char *preload, int out)
{
    extern char **environ;
    pid_t pid;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    preload ? setenv("LD_PRELOAD", preload, 1) : unsetenv("LD_PRELOAD");
    int failed = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, arguments, environ);
    unsetenv("LD_PRELOAD");
    posix_spawn_file_actions_destroy(&actions);
    return failed ? -1 : pid;
}

/* One child: two numbers in *answer. Answers its wait status, or -1. */
static int ask(const slab_way *asked, char **arguments, slab_cost *answer)
{
    char text[64] = "";
    int ends[2];
    int status = -1;
    if (pipe(ends)) {
        return -1;
    }
    pid_t pid = start(arguments, asked->preload, ends[1]);
    close(ends[1]);
    ssize_t got = pid > 0 ? read(ends[0], text, sizeof text - 1) : -1; /* they print once */
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        return -1;
    }
    bool well = got > 0 && sscanf(text, "%lf %lf", &answer->wall, &answer->cpu) == 2;
    return status || well ? status : -1;
}

/* One measurement. */
static bool measure(const settings *set, unsigned which, slab_pattern how, unsigned threads,
                    slab_cost *measured)
{
    char numbers[4][16];
    snprintf(numbers[0], sizeof numbers[0], "%u", which);
    snprintf(numbers[1], sizeof numbers[1], "%u", (unsigned)how);
    snprintf(numbers[2], sizeof numbers[2], "%u", threads);
    snprintf(numbers[3], sizeof numbers[3], "%u", set->ms);
    char *arguments[] = {"bench-slab-host", "--child",  numbers[0], numbers[1],
                         numbers[2],        numbers[3], NULL};
    int status = ask(&slab_ways[which], arguments, measured);
    if (status) {
        fprintf(stderr, "bench-slab-host: %s, %s, %u threads: no figure (wait status %d)\n",
                slab_ways[which].name, slab_pattern_names[how], threads, status);
    }
    return !status;
}

static bool run_round(const settings *set, unsigned round)
{
    for (slab_pattern how = 0; how < SLAB_PATTERNS; how++) {
        for (unsigned t = 0; t < set->thread_counts; t++) {
            for (unsigned i = 0; i < SLAB_WAYS; i++) {
                unsigned which = (i + round) % SLAB_WAYS;
                if (set->present[which] && slab_ways[which].chunk[how] &&
                    !measure(set, which, how, set->threads[t], &costs[how][t][which][round])) {
                    return false;
                }
            }
        }
    }
    return true;
}

/* ---- results -------------------------------------------------------------------------------- */

static ga_bench_figures summarise_wall(const slab_cost *all, unsigned n)
{
    double values[ROUNDS_MAX];
    for (unsigned i = 0; i < n; i++) {
        values[i] = all[i].wall;
    }
    return ga_bench_figures_of(values, n);
}

static ga_bench_figures summarise_cpu(const slab_cost *all, unsigned n)
{
    double values[ROUNDS_MAX];
    for (unsigned i = 0; i < n; i++) {
        values[i] = all[i].cpu;
    }
    return ga_bench_figures_of(values, n);
}

/* The baseline's time over the own, round by round. */
static ga_bench_figures summarise_times(const slab_cost *own, const slab_cost *baseline, unsigned n)
{
    double values[ROUNDS_MAX];
    for (unsigned i = 0; i < n; i++) {
        values[i] = baseline[i].wall / own[i].wall;
    }
    return ga_bench_figures_of(values, n);
}

/* Whether the bar is held against each rival that is here; nothing where there is none. */
static void print_bar(const settings *set, slab_pattern how, unsigned t, unsigned which)
{
    double bar = slab_ways[which].bar[how];
    unsigned rivals = 0, beaten = 0;
    for (unsigned b = SLAB_FIRST_RIVAL; b < SLAB_WAYS; b++) {
        const slab_cost *own = costs[how][t][which];
        if (set->present[b]) {
            rivals++;
            beaten += summarise_times(own, costs[how][t][b], set->rounds).median >= bar;
        }
    }
    if (bar > 0 && set->threads[t] <= 2 && rivals) {
        printf("  %.1f %s", bar, beaten == rivals ? "held" : "MISSED");
    }
}

static void print_row(const settings *set, slab_pattern how, unsigned t, unsigned which)
{
    const slab_cost *own = costs[how][t][which];
    ga_bench_figures wall = summarise_wall(own, set->rounds);
    printf("%7u  %-13s %7.2f  %6.2f to %6.2f  %7.2f", set->threads[t], slab_ways[which].name,
           wall.median, wall.low, wall.high, summarise_cpu(own, set->rounds).median);
    for (unsigned b = SLAB_FIRST_BASELINE; b < SLAB_WAYS; b++) {
        if (set->present[b] && b != which) {
            ga_bench_figures times = summarise_times(own, costs[how][t][b], set->rounds);
            printf("  %5.2f %5.2f-%5.2f", times.median, times.low, times.high);
        } else {
            printf("  %17s", "-");
        }
    }
    print_bar(set, how, t, which);
    printf("\n");
}

static void print_table(const settings *set, slab_pattern how)
{
    printf("\n%s\n", slab_pattern_texts[how]);
    printf("%7s  %-13s %7s  %16s  %7s  %17s  %17s  %17s  bar\n", "threads", "with", "ns/pair",
           "quartiles", "cpu ns", "times system", "times jemalloc", "times mimalloc");
    for (unsigned t = 0; t < set->thread_counts; t++) {
        for (unsigned which = 0; which < SLAB_WAYS; which++) {
            if (set->present[which] && slab_ways[which].chunk[how]) {
                print_row(set, how, t, which);
            }
        }
    }
}

/* One line for each way and baseline, with the keys of docs/bench.md. */
static void write_line(FILE *file, const settings *set, slab_pattern how, unsigned t,
                       unsigned which, unsigned baseline)
{
    const slab_cost *own = costs[how][t][which];
    const slab_cost *other = costs[how][t][baseline];
    ga_bench_figures wall = summarise_wall(own, set->rounds);
    fprintf(file,
            "{\"bench\": \"slab-host-%s\", \"place\": \"host\", \"spec\": \"%s\", \"device\": "
            "\"%s\", \"driver\": null, \"threads\": %u, \"size\": %d, \"metric\": \"pair\", "
            "\"unit\": \"ns\", \"value\": %.4f, \"spread\": %.4f, \"baseline\": \"%s\", "
            "\"ratio\": %.4f, \"failed\": 0, \"date\": \"%s\", \"commit\": \"%s\"}\n",
            slab_pattern_names[how], slab_ways[which].name, ga_bench_processor(), set->threads[t],
            SLAB_UNIT, wall.median, wall.high - wall.low, slab_ways[baseline].name,
            summarise_times(other, own, set->rounds).median, ga_bench_today().text,
            ga_bench_commit());
}

static bool write_json(const settings *set)
{
    FILE *file = fopen(set->json, "w");
    if (!file) {
        fprintf(stderr, "bench-slab-host: %s: %s\n", set->json, strerror(errno));
        return false;
    }
    for (slab_pattern how = 0; how < SLAB_PATTERNS; how++) {
        for (unsigned t = 0; t < set->thread_counts; t++) {
            for (unsigned which = 0; which < SLAB_WAYS; which++) {
                for (unsigned b = SLAB_FIRST_BASELINE; b < SLAB_WAYS; b++) {
                    if (set->present[which] && slab_ways[which].chunk[how] && set->present[b]) {
                        write_line(file, set, how, t, which, b);
                    }
                }
            }
        }
    }
    return fclose(file) == 0;
}

/* ---- the command line ------------------------------------------------------------------------ */

static int refuse(const char *option, const char *value)
{
    fprintf(
        stderr,
        "bench-slab-host: %s %s: expected --threads N,N (1 to %d, at most %d of them), --rounds N "
        "(1 to %d), --ms N (1 to %d) or --json FILE\n",
        option, value ? value : "without a value", SLAB_THREADS_MAX, COUNTS_MAX, ROUNDS_MAX,
        MS_MAX);
    return 2;
}

/* A number from 1 to `most`; the text behind it in *end. */
static bool read_number(const char *text, unsigned long most, unsigned *number, char **end)
{
    errno = 0;
    unsigned long value = strtoul(text, end, 10);
    *number = (unsigned)value;
    return !errno && *end != text && *text != '-' && value >= 1 && value <= most;
}

static bool read_threads(settings *set, char *text)
{
    char *end = text;
    for (set->thread_counts = 0; set->thread_counts < COUNTS_MAX; text = end + 1) {
        if (!read_number(text, SLAB_THREADS_MAX, &set->threads[set->thread_counts++], &end)) {
            return false;
        }
        if (*end != ',') {
            return !*end;
        }
    }
    return false;
}

static bool read_option(settings *set, const char *name, char *value)
{
    char *end = "";
    if (!strcmp(name, "--threads")) {
        return read_threads(set, value);
    }
    if (!strcmp(name, "--rounds")) {
        return read_number(value, ROUNDS_MAX, &set->rounds, &end) && !*end;
    }
    if (!strcmp(name, "--ms")) {
        return read_number(value, MS_MAX, &set->ms, &end) && !*end;
    }
    set->json = value;
    return !strcmp(name, "--json");
}

/* A child tells whether the library came with it; the loader's own complaint goes to stderr. */
static void find_contenders(settings *set)
{
    for (unsigned i = 0; i < SLAB_WAYS; i++) {
        char number[16];
        slab_cost there = {0, 0};
        snprintf(number, sizeof number, "%u", i);
        char *arguments[] = {"bench-slab-host", "--is-there", number, NULL};
        set->present[i] = !ask(&slab_ways[i], arguments, &there) && there.wall > 0;
        if (!set->present[i]) {
            printf("%s is left out: %s is not installed\n", slab_ways[i].name,
                   slab_ways[i].preload);
        }
    }
}

static const slab_way *way_of(const char *number)
{
    return &slab_ways[strtoul(number, NULL, 10) % SLAB_WAYS];
}

/* A child, whose arguments this program itself wrote: print the two figures. */
static int run_child(char **arguments)
{
    slab_pattern how = (slab_pattern)strtoul(arguments[1], NULL, 10);
    unsigned threads = (unsigned)strtoul(arguments[2], NULL, 10);
    slab_cost cost;
    alarm(LIMIT_SECONDS);
    if (!slab_way_measure(way_of(arguments[0]), how, threads, 1e-3 * strtod(arguments[3], NULL),
                          &cost)) {
        return 1;
    }
    return printf("%.6f %.6f\n", cost.wall, cost.cpu) < 0;
}

int main(int argc, char **argv)
{
    settings set = {.threads = {1, 2}, .thread_counts = 2, .rounds = 11, .ms = 60};
    if (argc == 6 && !strcmp(argv[1], "--child")) {
        return run_child(argv + 2);
    }
    if (argc == 3 && !strcmp(argv[1], "--is-there")) {
        return printf("%d 0\n", slab_way_is_there(way_of(argv[2]))) < 0;
    }
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc || !read_option(&set, argv[i], argv[i + 1])) {
            return refuse(argv[i], argv[i + 1]);
        }
    }
    printf("%s, %ld cores; %s; %s\n", ga_bench_processor(), sysconf(_SC_NPROCESSORS_ONLN),
           ga_bench_today().text, ga_bench_commit());
    printf("units of %d bytes; %u rounds of %u ms; nanoseconds a pair, median and quartiles\n",
           SLAB_UNIT, set.rounds, set.ms);
    find_contenders(&set);
    fflush(stdout);
    for (unsigned round = 0; round < set.rounds; round++) {
        if (!run_round(&set, round)) {
            return 1;
        }
    }
    for (slab_pattern how = 0; how < SLAB_PATTERNS; how++) {
        print_table(&set, how);
    }
    return set.json && !write_json(&set) ? 1 : 0;
}
