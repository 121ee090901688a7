/* SPDX-License-Identifier: MIT
 *
 * The slab hash in kernels: Figures 4 to 7 of slab-hash-2018, §VI, beside baselines of the same
 * run. A figure is the median over the rounds, and the 5th and 95th percentile; "times" is the
 * ratio to open addressing, the median of the same rounds. Every result is checked: a wrong one is
 * exit status 1. Prints GPU, driver and date. bench/README.md explains the sections.
 *
 *   bench-slabhash-kernels [--only NAME,NAME] [--rounds N] [--keys LOG2,LOG2] [--at U,U]
 *                          [--paths K,K] [--slabs SPEC] [--json FILE]
 *
 * BENCH_CUCO, its commit: with the section `peers` on cuCollections, whose ratios are to the faster
 * one of its two maps.
 */
#define PROGRAM "bench-slabhash-kernels"
#define GA_SLABHASH_GROWING_KINDS
#include "builds.cuh"
#include "changes.cuh"
#ifdef BENCH_CUCO
#include "peers.cuh"
#else
static void peers()
{
    printf("peers: skipped, built without -Dcucollections=\n");
}
#endif

static const struct {
    const char *name;
    void (*run)();
} sections[] = {
    {"utilisation", utilisation},
    {"sizes", sizes},
    {"growing", growing},
    {"batches", batches},
    {"mixes", mixes},
    {"lists", lists},
    {"addressing", addressing},
    {"inside", growing_inside},
    {"swaps", swaps},
    {"peers", peers},
};

static std::vector<double> numbers(const char *text)
{
    std::vector<double> list;
    for (char *end; *text; text = *end ? end + 1 : end) {
        list.push_back(strtod(text, &end));
        if (end == text || (*end && *end != ',')) {
            fprintf(stderr, PROGRAM ": \"%s\": expected numbers with commas between\n", text);
            exit(2);
        }
    }
    return list;
}

static bool read_option(const char *name, const char *value)
{
    if (!strcmp(name, "--rounds") && atoi(value) > 0) {
        rounds = atoi(value);
    } else if (!strcmp(name, "--only")) {
        only = value;
    } else if (!strcmp(name, "--keys")) {
        asked_keys = numbers(value);
    } else if (!strcmp(name, "--at")) {
        asked_uses = numbers(value);
    } else if (!strcmp(name, "--paths")) {
        asked_paths = numbers(value);
    } else if (!strcmp(name, "--slabs")) {
        slabs_from = value;
    } else if (!strcmp(name, "--json")) {
        json = fopen(value, "w");
        return json != NULL;
    } else {
        return false;
    }
    return true;
}

static void usage()
{
    fprintf(stderr, "usage: " PROGRAM " [--only NAME,NAME] [--rounds N] [--keys LOG2,LOG2] "
                    "[--at U,U] [--paths K,K] [--slabs SPEC] [--json FILE]\nsections:");
    for (const auto &section : sections) {
        fprintf(stderr, " %s", section.name);
    }
    fprintf(stderr, "\n");
}

int main(int argc, char **argv)
{
    int devices = 0;
    rounds = 7;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 >= argc || !read_option(argv[i], argv[i + 1])) {
            usage();
            return 2;
        }
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("skipped, this machine has no GPU\n");
        return 77;
    }
    describe_gpu();
    printf("medians of %d rounds after a warm-up (5th to 95th percentile); times: over open "
           "addressing with the same share of its slots filled\n",
           rounds);
    prepare_measuring();
    prepare_world(LOG2_MAX);
    for (const auto &section : sections) {
        if (asks_for(section.name)) {
            section.run();
        }
    }
    print_bars();
    return failures != 0;
}
