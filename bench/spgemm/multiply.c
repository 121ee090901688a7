/* SPDX-License-Identifier: MIT
 *
 * Products A A on host threads: the methods of gpualloc/spgemm.h in turn, for each matrix.
 *
 *     bench-spgemm [--scale S] [--rounds N] [--threads N] [--unsorted] [NAME...]
 *
 * Prints for each method the median, least and most milliseconds of a call, millions of
 * multiplications a second, and the share of entries in the memory that was mapped at most.
 */
#include "matrices.h"

#include <gpualloc/spgemm.h>

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ROUNDS_MAX = 101
};

typedef struct settings {
    double scale;
    uint32_t rounds, threads, flags;
} settings;

static const char usage[] =
    "usage: bench-spgemm [--scale S] [--rounds 1 to 101] [--threads N] [--unsorted] [NAME...]";

static void must(ga_status status)
{
    if (status != GA_OK) {
        errx(1, "%s", ga_error_text());
    }
}

static double now_ms(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- one product ----------------------------------------------------------------------------- */

static ga_spgemm_product open_vectors(void)
{
    ga_arena_options exact = {
        .options_size = sizeof exact, .place = GA_PLACE_HOST, .flags = GA_ARENA_EXACT};
    ga_spgemm_product c = {0};
    must(ga_vector_open(&c.offsets, sizeof(uint64_t), &exact, NULL));
    must(ga_vector_open(&c.indices, sizeof(uint32_t), &exact, NULL));
    must(ga_vector_open(&c.values, sizeof(double), &exact, NULL));
    return c;
}

static void close_vectors(const ga_spgemm_product *c)
{
    ga_vector_close(c->offsets);
    ga_vector_close(c->indices);
    ga_vector_close(c->values);
}

/* Milliseconds of a call into new vectors, whose memory is part of its work. */
static double multiply(const ga_csr *a, const ga_spgemm_options *options, ga_spgemm_report *report)
{
    ga_spgemm_product c = open_vectors();
    double begin = now_ms();
    must(ga_spgemm_multiply(a, a, options, &c, report));
    double ms = now_ms() - begin;
    close_vectors(&c);
    return ms;
}

/* Sorts the times. */
static void print_method(const settings *s, const char *name, double *times,
                         const ga_spgemm_report *report)
{
    qsort(times, s->rounds, sizeof *times, compare);
    double median = times[s->rounds / 2];
    printf("%-16s %-8s %9.1f ms (%.1f to %.1f)  %8.1f M/s  %5.3f of the memory at peak\n", name,
           ga_spgemm_method_text(report->method), median, times[0], times[s->rounds - 1],
           (double)report->multiplications / median / 1e3,
           (double)report->entries / (double)report->entries_peak);
    fflush(stdout);
}

/* Rounds in which the methods take turns. */
static void measure(const settings *s, const char *name)
{
    static double times[GA_SPGEMM_METHOD_COUNT][ROUNDS_MAX];
    ga_spgemm_report reports[GA_SPGEMM_METHOD_COUNT];
    bench_matrix matrix;
    must(bench_matrix_make(&matrix, name, s->scale, 1, GA_FLOAT64));
    for (uint32_t round = 0; round < s->rounds; round++) {
        for (uint32_t method = GA_SPGEMM_PRECISE; method < GA_SPGEMM_METHOD_COUNT; method++) {
            ga_spgemm_options options = {.options_size = sizeof options,
                                         .method = method,
                                         .threads = s->threads,
                                         .flags = s->flags};
            times[method][round] = multiply(&matrix.csr, &options, &reports[method]);
        }
    }
    for (uint32_t method = GA_SPGEMM_PRECISE; method < GA_SPGEMM_METHOD_COUNT; method++) {
        print_method(s, name, times[method], &reports[method]);
    }
    bench_matrix_free(&matrix);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* Returns the number of arguments that it has read. */
static int read_options(settings *s, int argc, char **argv)
{
    int at = 1;
    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        if (strcmp(argv[at], "--unsorted") == 0) {
            s->flags = GA_SPGEMM_UNSORTED;
        } else if (strcmp(argv[at], "--scale") == 0 && at + 1 < argc) {
            s->scale = strtod(argv[++at], NULL);
        } else if (strcmp(argv[at], "--rounds") == 0 && at + 1 < argc) {
            s->rounds = (uint32_t)strtoul(argv[++at], NULL, 10);
        } else if (strcmp(argv[at], "--threads") == 0 && at + 1 < argc) {
            s->threads = (uint32_t)strtoul(argv[++at], NULL, 10);
        } else {
            errx(2, "%s", usage);
        }
    }
    if (s->rounds < 1 || s->rounds > ROUNDS_MAX) {
        errx(2, "%s", usage);
    }
    return at;
}

int main(int argc, char **argv)
{
    settings s = {.scale = 1, .rounds = 5};
    char **names = argv + read_options(&s, argc, argv);
    const bench_facts *facts;
    for (size_t i = 0; !*names && (facts = bench_facts_at(i)); i++) {
        measure(&s, facts->name);
    }
    for (; *names; names++) {
        if (!bench_facts_of(*names)) {
            errx(2, "no matrix \"%s\"", *names);
        }
        measure(&s, *names);
    }
    return 0;
}
