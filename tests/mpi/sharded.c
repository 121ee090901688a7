/* SPDX-License-Identifier: MIT
 *
 * A sharded table over the processes of MPI: each rank inserts keys of its own and keys that all
 * ranks insert, searches those of another rank, saves, loads into a new table, and searches for all
 * pairs of keys and deletes them there.
 *
 *   mpirun -n RANKS sharded FOLDER
 *
 * Exit status 1: something did not hold, which a line names.
 */
#include <gpualloc/slabhash_mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OWN = 100000,   /* keys of each rank */
    COMMON = 20000, /* keys that all ranks insert */
    KEYS = OWN + COMMON
};

static int rank, ranks;
static uint64_t keys[KEYS], values[KEYS], found[KEYS];
static uint8_t results[KEYS];
static int failures;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("rank %d, line %d: not so: %s (%s)\n", rank, __LINE__, #condition,              \
                   ga_error_text());                                                               \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

/* The keys of `of`, and the common ones. */
static void take_keys(int of)
{
    for (uint64_t i = 0; i < KEYS; i++) {
        keys[i] = i < OWN ? COMMON + (uint64_t)of * OWN + i : i - OWN;
        values[i] = keys[i] * 7 + 1;
    }
}

static ga_slabhash_batch batch_of(ga_slabhash_op op)
{
    return (ga_slabhash_batch){.count = KEYS,
                               .keys = keys,
                               .values = op == GA_SLABHASH_INSERT ? values : NULL,
                               .results = results,
                               .found = found,
                               .op = op};
}

static void expect_size(ga_slabhash_sharded *table)
{
    uint64_t size = 0;
    CHECK(ga_slabhash_sharded_size(table, &size, NULL) == GA_OK);
    CHECK(size == COMMON + (uint64_t)ranks * OWN);
}

static void expect_all(ga_slabhash_sharded *table)
{
    uint64_t counts[4];
    take_keys((rank + 1) % ranks);
    ga_slabhash_batch batch = batch_of(GA_SLABHASH_SEARCH);
    CHECK(ga_slabhash_sharded_run(table, &batch, counts, NULL) == GA_OK);
    CHECK(counts[GA_SLABHASH_FOUND] == KEYS);
    CHECK(memcmp(found, values, sizeof values) == 0);
}

/* All ranks search for the common keys, and then delete keys of their own. */
static void all_pairs(ga_slabhash_sharded *table)
{
    static uint64_t counts[KEYS], firsts[KEYS];
    uint64_t total = 0;
    uint64_t size = 0;
    take_keys(rank);
    ga_slabhash_all all = {.count = KEYS,
                           .keys = keys,
                           .counts = counts,
                           .firsts = firsts,
                           .values = found,
                           .room = KEYS};
    CHECK(ga_slabhash_sharded_search_all(table, &all, &total, NULL) == GA_OK);
    CHECK(total == KEYS);
    for (uint64_t i = 0; i < KEYS; i++) {
        if (counts[i] != 1 || firsts[i] >= KEYS || found[firsts[i]] != values[i]) {
            CHECK(!"the pair of each key");
            break;
        }
    }
    all.count = OWN;
    CHECK(ga_slabhash_sharded_delete_all(table, &all, &total, NULL) == GA_OK);
    CHECK(total == OWN);
    CHECK(ga_slabhash_sharded_size(table, &size, NULL) == GA_OK);
    CHECK(size == COMMON);
}

static ga_slabhash_sharded *open_table(void)
{
    ga_slabhash_sharded *table = NULL;
    ga_slabhash_options options = {
        .options_size = sizeof options, .mode = GA_SLABHASH_MAP64, .buckets = 60000};
    CHECK(ga_slabhash_mpi_open(&table, &options, MPI_COMM_WORLD, NULL) == GA_OK);
    return table;
}

static void insert(ga_slabhash_sharded *table)
{
    uint64_t counts[4];
    uint64_t absent;
    take_keys(rank);
    ga_slabhash_batch batch = batch_of(GA_SLABHASH_INSERT);
    CHECK(ga_slabhash_sharded_run(table, &batch, counts, NULL) == GA_OK);
    MPI_Allreduce(&counts[GA_SLABHASH_ABSENT], &absent, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK(absent == COMMON + (uint64_t)ranks * OWN); /* one rank inserts each common key */
    expect_size(table);
    expect_all(table);
}

/* Ranks with different operations, and one without requests. */
static void disagree(ga_slabhash_sharded *table)
{
    ga_slabhash_batch batch = batch_of(rank ? GA_SLABHASH_SEARCH : GA_SLABHASH_DELETE);
    CHECK(ga_slabhash_sharded_run(table, &batch, NULL, NULL) == GA_ERR_ARGUMENT);
    batch.op = GA_SLABHASH_SEARCH;
    batch.count = rank ? KEYS : 0;
    CHECK(ga_slabhash_sharded_run(table, &batch, NULL, NULL) == GA_OK);
    expect_size(table);
}

/* Records, and that ranks are processes. */
static void share(ga_slabhash_sharded *table)
{
    uint32_t own[2] = {(uint32_t)rank * 5, ~(uint32_t)rank},
             *all = calloc((size_t)ranks, sizeof own);
    bool one_process = ranks > 1;
    CHECK(ga_slabhash_sharded_share(table, GA_OK, own, all, sizeof own, &one_process) == GA_OK);
    CHECK(one_process == (ranks == 1));
    for (int i = 0; i < ranks; i++) {
        CHECK(all[2 * i] == (uint32_t)i * 5 && all[2 * i + 1] == ~(uint32_t)i);
    }
    free(all);
}

/* For tests/mpi/hosts: FOLDER/rank.N. */
static void write_verdict(const char *folder)
{
    char path[512];
    snprintf(path, sizeof path, "%s/rank.%d", folder, rank);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    if (file) {
        fprintf(file, "%s\n", failures ? "failed" : "held");
        fclose(file);
    }
}

int main(int argc, char **argv)
{
    char path[256];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    snprintf(path, sizeof path, "%s/table", argc > 1 ? argv[1] : ".");
    ga_slabhash_sharded *table = open_table();
    insert(table);
    if (ranks > 1) {
        disagree(table);
        share(table);
    }
    CHECK(ga_slabhash_sharded_save(table, path, NULL) == GA_OK);
    CHECK(ga_slabhash_sharded_close(table) == GA_OK);
    table = open_table();
    CHECK(ga_slabhash_sharded_load(table, path, NULL) == GA_OK);
    expect_size(table);
    expect_all(table);
    all_pairs(table);
    CHECK(ga_slabhash_sharded_close(table) == GA_OK);
    write_verdict(argc > 1 ? argv[1] : ".");
    MPI_Finalize();
    return failures != 0;
}
