/* SPDX-License-Identifier: MIT
 *
 * The output of bench-slabhash-kernels: a line of text and one of JSON for each rate, and the bars
 * that were met. One translation unit includes it once.
 */
#ifndef GPUALLOC_BENCH_SLABHASH_REPORT_CUH
#define GPUALLOC_BENCH_SLABHASH_REPORT_CUH

#include "../runner/percentiles.cuh"
#include "../slab/measure.cuh"
#include "commit.h"

#include <cmath>
#include <map>
#include <string>

/* The parameters of a rate. */
typedef struct point {
    const char *section, *metric;
    std::string way, mode, spec; /* names of the table, and the spec of its slabs */
    std::string baseline;        /* the variant to which the ratio is */
    uint32_t path;               /* 0: a baseline */
    uint32_t log2;               /* keys */
    double target;               /* target utilisation, or size of a batch */
    double used, held, share;    /* pairs' bytes over slabs', over bytes held; of the slots */
    uint64_t buckets;
} point;

static FILE *json;

/* ---- bars ----------------------------------------------------------------------------------- */

/* G/s for 32-bit maps, with any path. */
typedef struct bar {
    const char *section;
    uint32_t log2;
    double target;
    const char *metric;
    double rate;
    double best;
    std::string by;
} bar;

static bar bars[] = {
    {"utilisation", 22, 0.60, "build", 17, 0, ""},
    {"utilisation", 22, 0.60, "hit", 33, 0, ""},
    {"utilisation", 26, 0.50, "build", 14.27, 0, ""},
    {"utilisation", 26, 0.50, "hit", 28.18, 0, ""},
    {"utilisation", 26, 0.50, "miss", 30.13, 0, ""},
    {"utilisation", 26, 0.60, "build", 14.5, 0, ""},
    {"utilisation", 26, 0.60, "hit", 29, 0, ""},
    {"utilisation", 26, 0.60, "miss", 26, 0, ""},
    {"utilisation", 26, 0.80, "build", 12.85, 0, ""},
    {"utilisation", 26, 0.80, "hit", 26, 0, ""},
    {"utilisation", 26, 0.80, "miss", 16, 0, ""},
    {"utilisation", 26, 0.90, "build", 9.03, 0, ""},
    {"utilisation", 26, 0.90, "hit", 20, 0, ""},
    {"utilisation", 26, 0.90, "miss", 7.5, 0, ""},
    {"growing", 26, 0, "build", 6, 0, ""},
    {"mixes", 22, 0.60, "updates 100 %", 20, 0, ""},
    {"mixes", 22, 0.60, "updates 40 %", 18, 0, ""},
    {"mixes", 22, 0.60, "updates 20 %", 20, 0, ""},
    {"mixes", 22, 0.80, "updates 100 %", 10, 0, ""},
    {"mixes", 22, 0.80, "updates 40 %", 10, 0, ""},
    {"mixes", 22, 0.80, "updates 20 %", 10, 0, ""},
};

/* The bar for 64-bit tables: at least half the rate of 32-bit tables in the same run. */
static std::map<std::string, double> rates_of_maps;

static bool is_bar(const bar &b, const point &p)
{
    return !strcmp(b.section, p.section) && !strcmp(b.metric, p.metric) && b.log2 == p.log2 &&
           fabs(b.target - p.target) < 0.001 && p.path && p.mode == "map32" &&
           p.used > p.target - 0.01 && (strcmp(p.section, "growing") || p.way == "grows");
}

/* Whether the rate meets the bar of its point; the text for behind its line. */
static std::string judge(const point &p, double rate)
{
    char text[64] = "";
    for (bar &b : bars) {
        if (is_bar(b, p)) {
            snprintf(text, sizeof text, "  bar %.2f: %s", b.rate,
                     rate >= b.rate ? "met" : "missed");
            if (rate > b.best) {
                b.best = rate;
                b.by = p.way;
            }
        }
    }
    return text;
}

static std::string key_of_map(const point &p, const char *mode)
{
    char text[160];
    snprintf(text, sizeof text, "%s, %s, %s, path %u, 2^%u, %.2f", mode, p.section, p.metric,
             p.path, p.log2, p.target);
    return text;
}

static void print_bars()
{
    printf("\nbars, by whichever path is fastest\n");
    for (const bar &b : bars) {
        if (b.best > 0) {
            printf("%-12s 2^%u at %.2f  %-14s at least %6.2f G/s: %6.2f by %s: %s\n", b.section,
                   b.log2, b.target, b.metric, b.rate, b.best, b.by.c_str(),
                   b.best >= b.rate ? "met" : "missed");
        }
    }
    for (const auto &entry : rates_of_maps) {
        std::string narrow = "map32" + entry.first.substr(5);
        if (entry.first.compare(0, 5, "map64") == 0 && rates_of_maps.count(narrow)) {
            double ratio = entry.second / rates_of_maps[narrow];
            printf("%-60s at least 0.50 of map32: %.2f: %s\n", entry.first.c_str(), ratio,
                   ratio >= 0.5 ? "met" : "missed");
        }
    }
}

/* ---- lines ---------------------------------------------------------------------------------- */

static std::string number_or_null(double value)
{
    char text[32] = "null";
    if (std::isfinite(value)) {
        snprintf(text, sizeof text, "%.6g", value);
    }
    return text;
}

static void write_json(const point &p, const std::vector<double> &sorted, double ratio)
{
    static cudaDeviceProp gpu;
    static int driver;
    char date[32];
    time_t now = time(NULL);
    if (!driver) {
        MUST(cudaGetDeviceProperties(&gpu, 0));
        MUST(cudaDriverGetVersion(&driver));
    }
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    fprintf(
        json,
        "{\"bench\": \"slabhash-%s\", \"place\": \"kernel\", \"spec\": \"%s\", \"way\": \"%s\", "
        "\"mode\": \"%s\", \"path\": %u, \"device\": \"%s\", \"driver\": \"CUDA %d.%d\", "
        "\"keys\": %llu, \"buckets\": %llu, \"target\": %.6g, \"used\": %s, \"held\": %s, "
        "\"share\": %s, \"metric\": \"%s\", \"unit\": \"G/s\", \"value\": %.6g, \"p5\": %.6g, "
        "\"p95\": %.6g, \"spread\": %.6g, \"baseline\": \"%s\", \"ratio\": %s, "
        "\"date\": \"%s\", \"commit\": \"%s\"}\n",
        p.section, p.spec.c_str(), p.way.c_str(), p.mode.c_str(), p.path, gpu.name, driver / 1000,
        driver % 1000 / 10, 1ull << p.log2, (unsigned long long)p.buckets, p.target,
        number_or_null(p.used).c_str(), number_or_null(p.held).c_str(),
        number_or_null(p.share).c_str(), p.metric, at(sorted, 0.5), at(sorted, 0.05),
        at(sorted, 0.95), at(sorted, 0.75) - at(sorted, 0.25), p.baseline.c_str(),
        number_or_null(ratio).c_str(), date, GA_BENCH_COMMIT);
    fflush(json);
}

/* The rates of each round, in G/s, and those of the baseline in the same rounds, or none. */
static void say(const point &p, const std::vector<double> &rates,
                const std::vector<double> &baseline)
{
    std::vector<double> sorted = sorted_of(rates), ratios;
    for (size_t i = 0; i < baseline.size(); i++) {
        ratios.push_back(rates[i] / baseline[i]);
    }
    double ratio = ratios.empty() ? NAN : median_of(ratios);
    double rate = at(sorted, 0.5);
    printf("%-11s 2^%u %-5s %-17s %-8.5g used %.3f held %.3f slots %.3f  %-13s %8.3f G/s "
           "(%.3f to %.3f)",
           p.section, p.log2, p.mode.c_str(), p.way.c_str(), p.target, p.used, p.held, p.share,
           p.metric, rate, at(sorted, 0.05), at(sorted, 0.95));
    if (std::isfinite(ratio)) {
        printf("  times %.2f", ratio);
    }
    printf("%s\n", judge(p, rate).c_str());
    fflush(stdout);
    if (p.path) {
        rates_of_maps[key_of_map(p, p.mode.c_str())] = rate;
    }
    if (json) {
        write_json(p, sorted, ratio);
    }
}

#endif
