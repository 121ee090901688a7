/* SPDX-License-Identifier: MIT
 *
 * The generated matrices beside the thesis's numbers, and as Matrix Market files.
 *
 *     bench-spgemm-matrices [--scale S] [--seed N] [NAME...]     counts; all without a name
 *     bench-spgemm-matrices [--scale S] [--seed N] --write NAME FILE
 */
#include "matrices.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    double scale;
    uint64_t seed;
} settings;

static const char usage[] = "usage: bench-spgemm-matrices [--scale S] [--seed N] "
                            "[NAME... | --write NAME FILE]";

static bench_matrix make(const settings *s, const char *name)
{
    bench_matrix matrix;
    if (bench_matrix_make(&matrix, name, s->scale, s->seed, GA_FLOAT64) != GA_OK) {
        errx(1, "%s", ga_error_text());
    }
    return matrix;
}

/* A count, and its ratio to the thesis's at this scale. */
static void print_count(uint64_t count, uint64_t thesis, double scale)
{
    printf(" %13llu", (unsigned long long)count);
    if (thesis) {
        printf(" %6.3f", (double)count / ((double)thesis * scale));
    } else {
        printf(" %6s", "-");
    }
}

static void print_counts(const settings *s, const bench_facts *facts)
{
    bench_matrix matrix = make(s, facts->name);
    uint64_t multiplications = bench_multiplications(&matrix.csr);
    uint64_t product;
    if (bench_product_entries(&matrix.csr, &product) != GA_OK) {
        errx(1, "%s", ga_error_text());
    }
    printf("%-16s", facts->name);
    print_count(matrix.csr.rows, facts->rows, s->scale);
    print_count(matrix.csr.offsets[matrix.csr.rows], facts->nonzeros, s->scale);
    print_count(multiplications, facts->multiplications, s->scale);
    print_count(product, facts->product, s->scale);
    printf(" %6.3f\n", (double)multiplications / (double)product);
    fflush(stdout);
    bench_matrix_free(&matrix);
}

static void print_all(const settings *s, char **names)
{
    printf("%-16s %13s %6s %13s %6s %13s %6s %13s %6s %6s\n", "matrix", "rows", "ratio", "entries",
           "ratio", "multiplied", "ratio", "product", "ratio", "over");
    const bench_facts *facts;
    for (size_t i = 0; !*names && (facts = bench_facts_at(i)); i++) {
        print_counts(s, facts);
    }
    for (; *names; names++) {
        facts = bench_facts_of(*names);
        if (!facts) {
            errx(2, "no matrix \"%s\"", *names);
        }
        print_counts(s, facts);
    }
}

static void write_file(const settings *s, const char *name, const char *path)
{
    bench_matrix matrix = make(s, name);
    if (ga_matrix_write(&matrix.csr, path) != GA_OK) {
        errx(1, "%s", ga_error_text());
    }
    bench_matrix_free(&matrix);
}

int main(int argc, char **argv)
{
    settings s = {.scale = 1, .seed = 1};
    int at = 1;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        if (strcmp(argv[at], "--scale") == 0) {
            s.scale = strtod(argv[at + 1], NULL);
        } else if (strcmp(argv[at], "--seed") == 0) {
            s.seed = strtoull(argv[at + 1], NULL, 10);
        } else {
            break;
        }
    }
    if (argc - at == 3 && strcmp(argv[at], "--write") == 0) {
        write_file(&s, argv[at + 1], argv[at + 2]);
        return 0;
    }
    if (at < argc && strncmp(argv[at], "--", 2) == 0) {
        errx(2, "%s", usage);
    }
    print_all(&s, argv + at);
    return 0;
}
