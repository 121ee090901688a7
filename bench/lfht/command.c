/* SPDX-License-Identifier: MIT
 *
 * From arguments to a plan.
 */
#include "command.h"

#include "../runner/machine.h"
#include "../runner/suite.h"
#include "suite.h"

#include <argp.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    USAGE = 2,
    THREADS_MAX = 1024,
    ROUNDS_MAX = 1000,
    ROUNDS = 5,
    HEAPS_MAX = 16,
    BATCH_MAX = 1 << 24
};

static const size_t KEYS = (size_t)1 << 22;
static const size_t KEYS_QUICK = (size_t)1 << 16;
static const size_t KEYS_MAX = (size_t)1 << 30;

/* lfht-reclamation-2022, §5.3: chains of 4, chunks of 5 bits, the root as well; §5.5: a scan
 * after 10,000 removals. */
static const ga_bench_shape THESIS = {.chain = 4, .chunk = 5, .root = 5, .batch = 10000};

enum {
    KEY_VARIANT = 256,
    KEY_HEAP,
    KEY_THREADS,
    KEY_KEYS,
    KEY_ROUNDS,
    KEY_CHAIN,
    KEY_CHUNK,
    KEY_ROOT,
    KEY_BATCH,
    KEY_TUNED,
    KEY_COUNT,
    KEY_PEERS,
    KEY_QUICK,
    KEY_JSON
};

static const struct argp_option options[] = {
    {"variant", KEY_VARIANT, "NAME,NAME", 0, "variants of the map (default: all)", 0},
    {"heap", KEY_HEAP, "SPEC", 0,
     "heap of the nodes; repeat for more (default: system, jemalloc, mimalloc, slab, where they "
     "are there)",
     0},
    {"threads", KEY_THREADS, "N,N", 0, "numbers of threads (default: 1 and the cores)", 0},
    {"keys", KEY_KEYS, "N,N", 0, "keys, with K or M (default: 4M; 64K with --quick)", 0},
    {"rounds", KEY_ROUNDS, "N", 0, "measure all N times (default: 5; 1 with --quick)", 0},
    {"chain", KEY_CHAIN, "N,N", 0, "leaves in a chain (default: the thesis's, 4)", 0},
    {"chunk", KEY_CHUNK, "N,N", 0, "bits of a hash node (default: the thesis's, 5)", 0},
    {"root", KEY_ROOT, "N", 0, "bits of the root (default: the thesis's, those of a hash node)", 0},
    {"batch", KEY_BATCH, "N", 0, "removals before a scan (default: the thesis's, 10000)", 0},
    {"tuned", KEY_TUNED, NULL, 0, "the library's own chain, chunk, root and batch instead", 0},
    {"count", KEY_COUNT, NULL, 0, "count path lengths and expansions as well", 0},
    {"peers", KEY_PEERS, "NAME,NAME", 0,
     "of others' maps only these, by the names that the tables have (default: all there are, in "
     "bench-lfht)",
     0},
    {"quick", KEY_QUICK, NULL, 0, "few keys, one round", 0},
    {"json", KEY_JSON, "FILE", 0, "write the results to FILE as JSON lines", 0},
    {0},
};

static const char doc[] =
    "Measure the lock-free hash trie map: each WORKLOAD (insert, remove, hit, miss, mix, reinsert, "
    "emptied; all, where none is named) on each variant over each heap, in a process of its own."
    "\v"
    "  gpualloc bench lfht --quick\n"
    "  gpualloc bench lfht hit mix --variant FHPA --heap slab --heap jemalloc --keys 4M,16M\n"
    "  gpualloc bench lfht --chain 1,2,4,8 --count --variant SNF --heap system --json FILE\n"
    "\n"
    "Ratios are to the first map of the table. bench/README.md describes workloads and figures.";

typedef struct request {
    ga_bench_lfht_plan plan;
    const char *name;
    bool variants[GA_LFHT_VARIANT_COUNT], any_variant, any_load, quick, tuned, count;
    size_t heap_count;
    const char *heaps[HEAPS_MAX];
    ga_bench_list chains, chunks;
    size_t root, batch;
    const char *peers, *json;
} request;

/* ---- values --------------------------------------------------------------------------------- */

static _Noreturn void refuse(const struct argp_state *state, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static _Noreturn void refuse(const struct argp_state *state, const char *format, ...)
{
    const request *r = state->input;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "gpualloc %s: ", r->name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(USAGE);
}

static void parse_list(const char *option, const char *text, size_t most, ga_bench_list *out,
                       struct argp_state *state)
{
    if (!ga_bench_list_parse(text, most == KEYS_MAX, most, out)) {
        refuse(state, "--%s: bad list \"%s\"; expected numbers from 1 to %zu such as 1,8", option,
               text, most);
    }
}

static size_t parse_one(const char *option, const char *text, size_t most, struct argp_state *state)
{
    ga_bench_list one;
    if (!ga_bench_list_parse(text, false, most, &one) || one.count != 1) {
        refuse(state, "--%s: bad number \"%s\"; expected 1 to %zu", option, text, most);
    }
    return one.values[0];
}

static void parse_variants(char *list, request *r, struct argp_state *state)
{
    for (char *save, *name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        int variant = 0;
        while (variant < GA_LFHT_VARIANT_COUNT &&
               strcmp(name, ga_lfht_variant_text((ga_lfht_variant)variant)) != 0) {
            variant++;
        }
        if (variant == GA_LFHT_VARIANT_COUNT) {
            refuse(state, "--variant: unknown variant \"%s\"; expected FHPA, SNF, ...", name);
        }
        r->variants[variant] = r->any_variant = true;
    }
}

static void parse_load(const char *name, request *r, struct argp_state *state)
{
    static const size_t prefix = sizeof "lfht-" - 1;
    for (int load = 0; load < GA_BENCH_LFHT_LOADS; load++) {
        const char *own = ga_bench_lfht_load_text((ga_bench_lfht_load)load);
        if (strcmp(name, own) == 0 || strcmp(name, own + prefix) == 0) {
            r->plan.loads[load] = r->any_load = true;
            return;
        }
    }
    refuse(state, "unknown workload \"%s\"; --help lists those there are", name);
}

static void add_heap(const char *spec, request *r, struct argp_state *state)
{
    if (r->heap_count == HEAPS_MAX) {
        refuse(state, "--heap: at most %d of them", HEAPS_MAX);
    }
    r->heaps[r->heap_count++] = spec;
}

static error_t parse_shape(int key, char *value, request *r, struct argp_state *state)
{
    switch (key) {
    case KEY_CHAIN:
        parse_list("chain", value, 16, &r->chains, state);
        return 0;
    case KEY_CHUNK:
        parse_list("chunk", value, 8, &r->chunks, state);
        return 0;
    case KEY_ROOT:
        r->root = parse_one("root", value, 24, state);
        return 0;
    case KEY_BATCH:
        r->batch = parse_one("batch", value, BATCH_MAX, state);
        return 0;
    case KEY_TUNED:
        r->tuned = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *value, struct argp_state *state)
{
    request *r = state->input;
    switch (key) {
    case KEY_VARIANT:
        parse_variants(value, r, state);
        return 0;
    case KEY_HEAP:
        add_heap(value, r, state);
        return 0;
    case KEY_THREADS:
        parse_list("threads", value, THREADS_MAX, &r->plan.threads, state);
        return 0;
    case KEY_KEYS:
        parse_list("keys", value, KEYS_MAX, &r->plan.keys, state);
        return 0;
    case KEY_ROUNDS:
        r->plan.rounds = (unsigned)parse_one("rounds", value, ROUNDS_MAX, state);
        return 0;
    case KEY_COUNT:
        r->count = true;
        return 0;
    case KEY_PEERS:
        r->peers = value;
        return 0;
    case KEY_QUICK:
        r->quick = true;
        return 0;
    case KEY_JSON:
        r->json = value;
        return 0;
    case ARGP_KEY_ARG:
        parse_load(value, r, state);
        return 0;
    default:
        return parse_shape(key, value, r, state);
    }
}

/* ---- the plan ------------------------------------------------------------------------------- */

static void settle_numbers(request *r)
{
    for (int load = 0; load < GA_BENCH_LFHT_LOADS; load++) {
        r->plan.loads[load] |= !r->any_load;
    }
    for (int variant = 0; variant < GA_LFHT_VARIANT_COUNT; variant++) {
        r->variants[variant] |= !r->any_variant;
    }
    if (!r->plan.threads.count) {
        size_t cores = ga_bench_cores();
        r->plan.threads = (ga_bench_list){cores > 1 ? 2 : 1, {1, cores}};
    }
    if (!r->plan.keys.count) {
        r->plan.keys = (ga_bench_list){1, {r->quick ? KEYS_QUICK : KEYS}};
    }
    r->plan.rounds = r->plan.rounds ? r->plan.rounds : r->quick ? 1 : ROUNDS;
    r->chains = r->chains.count ? r->chains : (ga_bench_list){1, {r->tuned ? 0 : THESIS.chain}};
    r->chunks = r->chunks.count ? r->chunks : (ga_bench_list){1, {r->tuned ? 0 : THESIS.chunk}};
}

/* True if the heap opens; else prints the reason. */
static bool try_heap(const request *r, const char *spec)
{
    ga_bench_report report;
    if (ga_bench_spec_try(GA_PLACE_HOST, spec, &report) == GA_OK) {
        return true;
    }
    fprintf(stderr, "gpualloc %s: \"%s\" cannot be measured: %s\n", r->name, spec, report.failure);
    return false;
}

/* Those that were named must open. */
static int settle_heaps(request *r)
{
    static const char *const usual[] = {"system", "jemalloc", "dl:libmimalloc.so.3",
                                        "dl:libmimalloc.so.2", "slab"};
    for (size_t i = 0; i < r->heap_count; i++) {
        if (!try_heap(r, r->heaps[i])) {
            return USAGE;
        }
    }
    ga_bench_report report;
    if (r->heap_count == 0) {
        for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
            if (ga_bench_spec_try(GA_PLACE_HOST, usual[i], &report) == GA_OK) {
                r->heaps[r->heap_count++] = usual[i];
            }
        }
    }
    return 0;
}

static void append(char *name, const char *key, uint32_t value)
{
    size_t length = strlen(name);
    if (value) {
        snprintf(name + length, GA_BENCH_LFHT_NAME - length, "%c%s=%u",
                 strchr(name, ':') ? ',' : ':', key, value);
    }
}

static void name_entry(ga_bench_lfht_entry *entry)
{
    const ga_bench_shape *shape = &entry->shape;
    snprintf(entry->name, sizeof entry->name, "%s", entry->subject->name);
    append(entry->name, "chain", shape->chain);
    append(entry->name, "chunk", shape->chunk);
    append(entry->name, "root", shape->root);
    append(entry->name, "batch", shape->batch);
    if (entry->heap) {
        size_t length = strlen(entry->name);
        snprintf(entry->name + length, sizeof entry->name - length, "/%s", entry->heap);
    }
}

static bool add_entry(request *r, const ga_bench_subject *subject, const char *heap,
                      ga_bench_shape shape)
{
    if (r->plan.entry_count == GA_BENCH_LFHT_ENTRIES) {
        fprintf(stderr, "gpualloc %s: more than %d maps to measure\n", r->name,
                GA_BENCH_LFHT_ENTRIES);
        return false;
    }
    ga_bench_lfht_entry *entry = &r->plan.entries[r->plan.entry_count++];
    *entry = (ga_bench_lfht_entry){.subject = subject, .heap = heap, .shape = shape};
    name_entry(entry);
    return true;
}

static ga_bench_shape shape_of(const request *r, size_t chain, size_t chunk)
{
    ga_bench_shape shape = {.chain = (uint32_t)chain,
                            .chunk = (uint32_t)chunk,
                            .root = (uint32_t)(r->root    ? r->root
                                               : r->tuned ? 0
                                                          : chunk),
                            .batch = (uint32_t)(r->batch   ? r->batch
                                                : r->tuned ? 0
                                                           : THESIS.batch),
                            .count = r->count};
    return shape;
}

/* All shapes of one variant over one heap. */
static bool add_shapes(request *r, ga_lfht_variant variant, const char *heap)
{
    for (size_t i = 0; i < r->chains.count; i++) {
        for (size_t j = 0; j < r->chunks.count; j++) {
            if (!add_entry(r, ga_bench_lfht_variant(variant), heap,
                           shape_of(r, r->chains.values[i], r->chunks.values[j]))) {
                return false;
            }
        }
    }
    return true;
}

/* In "NAME,NAME". */
static bool is_in_list(const char *name, const char *list)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (!at[length] || at[length] == ',')) {
            return true;
        }
    }
    return false;
}

/* Add the requested maps of other projects. False, with a message, if one is not available. */
static bool add_peers(request *r, const ga_bench_peers *const *peers)
{
    const char *wanted = r->peers ? r->peers : "";
    size_t found = 0, names = r->peers ? 1 : 0;
    for (const char *c = wanted; *c; c++) {
        names += *c == ',';
    }
    for (; peers && *peers; peers++) {
        for (size_t i = 0; i < (*peers)->count; i++) {
            const ga_bench_subject *peer = &(*peers)->list[i];
            if (r->peers && !is_in_list(peer->name, wanted)) {
                continue;
            }
            found++;
            if (!add_entry(r, peer, NULL, (ga_bench_shape){0})) {
                return false;
            }
        }
    }
    if (r->peers && found != names) {
        fprintf(stderr,
                "gpualloc %s: --peers: \"%s\": expected names of maps that were installed when "
                "bench-lfht was built, such as urcu,tbb\n",
                r->name, wanted);
    }
    return !r->peers || found == names;
}

static int settle_entries(request *r, const ga_bench_peers *const *peers)
{
    bool good = true;
    for (size_t h = 0; h < r->heap_count; h++) {
        for (int variant = 0; variant < GA_LFHT_VARIANT_COUNT; variant++) {
            good = good &&
                   (!r->variants[variant] || add_shapes(r, (ga_lfht_variant)variant, r->heaps[h]));
        }
    }
    return good && add_peers(r, peers) ? 0 : USAGE;
}

static int run(request *r)
{
    size_t failed;
    r->plan.json = r->json ? fopen(r->json, "we") : NULL;
    if (r->json && !r->plan.json) {
        fprintf(stderr, "gpualloc %s: --json: \"%s\": %s\n", r->name, r->json, strerror(errno));
        return 1;
    }
    printf("gpualloc %s, commit %s, on %u cores of %s\n%u rounds, maps alternating; a figure "
           "is the median +- half the interquartile range,\ntimes the ratio to %s, round by "
           "round\n",
           ga_version_text(), ga_bench_commit(), ga_bench_cores(), ga_bench_processor(),
           r->plan.rounds, r->plan.entries[0].name);
    bool good = ga_bench_lfht_run(&r->plan, stdout, &failed);
    if (r->plan.json && fclose(r->plan.json) != 0) {
        fprintf(stderr, "gpualloc %s: --json: \"%s\": %s\n", r->name, r->json, strerror(errno));
        good = false;
    }
    return good && !failed ? 0 : 1;
}

int ga_bench_lfht_command(int argc, char **argv, const char *name,
                          const ga_bench_peers *const *peers)
{
    static const struct argp parser = {options, parse, "[WORKLOAD...]", doc, NULL, NULL, NULL};
    static request r;
    r.name = name;
    argp_err_exit_status = USAGE;
    argp_parse(&parser, argc, argv, 0, NULL, &r);
    settle_numbers(&r);
    int status = settle_heaps(&r);
    status = status ? status : settle_entries(&r, peers);
    return status ? status : run(&r);
}
