/* SPDX-License-Identifier: MIT
 *
 * Sharded tables in files: one for each rank that saved, "PATH.RANK-of-RANKS", each as of
 * ga_slabhash_save(). A rank that loads reads the files RANK, RANK + ranks, ...: each into a table
 * of the host, which checks it, and then all ranks insert the pairs as batches.
 */
#include "sharded.h"

#include "platform/cuda_driver.h"
#include "platform/libc.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    HEAD_BYTES = 48, /* of a file */
    PAIR_BYTES = 16,
    PAIRS_EACH = 10 /* of a bucket, so that most keys find room in it */
};

/* The pairs of one file. */
typedef struct pairs {
    uint64_t count;
    void *keys, *values; /* on the host, then in the memory that is exchanged */
} pairs;

static ga_status name_of(char name[PATH_MAX], const char *path, uint32_t rank, uint32_t ranks)
{
    int length = snprintf(name, PATH_MAX, "%s.%u-of-%u", path, rank, ranks);
    return length > 0 && length < PATH_MAX
               ? GA_OK
               : ga_fail(GA_ERR_ARGUMENT, "slabhash: a path of %d bytes: expected less than %d",
                         length, PATH_MAX);
}

/* ---- save ------------------------------------------------------------------------------------ */

static ga_status save(ga_slabhash_sharded *table, const char *path, void *stream)
{
    char name[PATH_MAX];
    if (!path) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: no path: expected the name of a file");
    }
    ga_status status = name_of(name, path, table->exchange.rank, table->exchange.ranks);
    return status ? status : table->shard.save(table->shard.table, name, stream);
}

ga_status ga_slabhash_sharded_save(ga_slabhash_sharded *table, const char *path, void *stream)
{
    ga_cuda_scope scope;
    ga_status status = ga_sharded_check(table);
    status = status ? status : table->engine->enter(table, &scope);
    if (status != GA_OK) {
        return status;
    }
    status = ga_sharded_agree_status(table, save(table, path, stream));
    table->engine->leave(&scope);
    return status;
}

/* ---- load ------------------------------------------------------------------------------------ */

/* The path as a pattern that matches itself. False: it is too long. */
static bool escape(char pattern[PATH_MAX], const char *path)
{
    size_t length = 0;
    for (const char *c = path; *c && length < PATH_MAX - 16; c++) {
        if (strchr("\\*?[", *c)) {
            pattern[length++] = '\\';
        }
        pattern[length++] = *c;
    }
    pattern[length] = 0;
    strcpy(pattern + length, ".*-of-*");
    return length < PATH_MAX - 16;
}

/* The number of files in the set, from the name of one; 0: the name is none of a set. */
static uint32_t ranks_in(const char *name, const char *path)
{
    char exact[PATH_MAX];
    unsigned rank = 0;
    unsigned ranks = 0;
    bool fits = sscanf(name + strlen(path), ".%u-of-%u", &rank, &ranks) == 2 && rank < ranks &&
                name_of(exact, path, rank, ranks) == GA_OK && strcmp(exact, name) == 0;
    return fits ? ranks : 0;
}

static ga_status find_set(const char *path, uint32_t *ranks)
{
    char pattern[PATH_MAX];
    glob_t found = {0};
    uint32_t seen = 0;
    bool is_mixed = false;
    *ranks = 0;
    if (!path || !escape(pattern, path)) {
        return ga_fail(GA_ERR_ARGUMENT, "slabhash: %s path: expected the name of saved files",
                       path ? "a too long" : "no");
    }
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            uint32_t of = ranks_in(found.gl_pathv[i], path);
            is_mixed |= of && *ranks && of != *ranks;
            *ranks = of ? of : *ranks;
            seen += of != 0;
        }
    }
    globfree(&found);
    if (is_mixed || !seen || seen != *ranks) {
        return ga_fail(GA_ERR_IO,
                       "slabhash: %u files \"%s.RANK-of-RANKS\"%s: expected one set, of %u", seen,
                       path, is_mixed ? " of several sets" : "", *ranks ? *ranks : 1);
    }
    return GA_OK;
}

/* All ranks must have found the same set. */
static ga_status agree_on_set(ga_slabhash_sharded *table, ga_status status, uint32_t ranks)
{
    uint64_t *agreed = table->host->agreed;
    memset(agreed, 0, sizeof table->host->agreed);
    agreed[GA_SHARDED_STATUS] = status;
    agreed[GA_SHARDED_FORM] = ranks;
    agreed[GA_SHARDED_NOT_FORM] = ga_sharded_not(ranks);
    ga_status exchanged = ga_sharded_agree(table, false);
    status = status ? status : exchanged ? exchanged : ga_sharded_agreed(table, GA_OK);
    return status || (agreed[GA_SHARDED_FORM] == ranks &&
                      agreed[GA_SHARDED_NOT_FORM] == ga_sharded_not(ranks))
               ? status
               : ga_fail(GA_ERR_IO,
                         "slabhash: rank %u finds a set of %u files: expected the same on all "
                         "ranks",
                         table->exchange.rank, ranks);
}

static ga_status open_copy(const ga_slabhash_sharded *table, const char *name, ga_slabhash **copy)
{
    struct stat status;
    ga_slabhash_options options = {.options_size = sizeof options,
                                   .mode = table->shard.mode,
                                   .flags = table->shard.is_multi ? GA_SLABHASH_MULTI : 0};
    uint64_t count = stat(name, &status) == 0 && status.st_size > HEAD_BYTES
                         ? (uint64_t)(status.st_size - HEAD_BYTES) / PAIR_BYTES
                         : 0;
    uint64_t buckets = count / PAIRS_EACH + 16;
    options.buckets = (uint32_t)(buckets < INT_MAX ? buckets : INT_MAX);
    return ga_slabhash_open(copy, &options);
}

/* `of` is on the host afterwards, to be freed. */
static ga_status read_pairs(const ga_slabhash_sharded *table, const char *name, pairs *of)
{
    ga_slabhash *copy;
    ga_status status = open_copy(table, name, &copy);
    if (status != GA_OK) {
        return status;
    }
    status = ga_slabhash_load(copy, name);
    status = status ? status : ga_slabhash_size(copy, &of->count);
    if (status == GA_OK) {
        of->keys = ga_libc.malloc(of->count * table->width + 1);
        of->values = ga_libc.malloc(of->count * table->width + 1);
        status = of->keys && of->values
                     ? ga_slabhash_retrieve(copy, of->keys, of->values, of->count, &of->count)
                     : ga_fail(GA_ERR_MEMORY, "slabhash: no memory for %llu pairs of \"%s\"",
                               (unsigned long long)of->count, name);
    }
    (void)ga_slabhash_close(copy);
    return status;
}

/* Moves an array of the host to the memory that is exchanged. */
static ga_status move_array(ga_slabhash_sharded *table, void **array, uint64_t bytes, void *stream)
{
    void *block;
    ga_status status = table->engine->allocate(table, &block, bytes);
    status = status ? status : table->engine->put(table, block, *array, bytes, stream);
    status = status ? status : table->engine->wait(table, stream);
    ga_libc.free(*array);
    *array = block;
    return status;
}

static ga_status read_file(ga_slabhash_sharded *table, const char *path, uint32_t rank,
                           uint32_t ranks, pairs *of, void *stream)
{
    char name[PATH_MAX];
    ga_status status = name_of(name, path, rank, ranks);
    status = status ? status : read_pairs(table, name, of);
    if (status != GA_OK) {
        ga_libc.free(of->keys);
        ga_libc.free(of->values);
        *of = (pairs){0};
        return status;
    }
    ga_status keys = move_array(table, &of->keys, of->count * table->width, stream);
    ga_status values = move_array(table, &of->values, of->count * table->width, stream);
    return keys ? keys : values;
}

/* All ranks insert the pairs of a file each; some have none. */
static ga_status insert_pairs(ga_slabhash_sharded *table, const pairs *of, void *stream)
{
    uint64_t counts[GA_SHARDED_RESULTS] = {0};
    bool replaces = !table->shard.is_multi && table->shard.mode != GA_SLABHASH_SET32;
    ga_slabhash_batch batch = {.count = of->count,
                               .keys = of->keys,
                               .values = of->values,
                               .op = replaces ? GA_SLABHASH_REPLACE : GA_SLABHASH_INSERT};
    ga_status status = ga_slabhash_sharded_run(table, &batch, counts, stream);
    uint64_t full = counts[GA_SLABHASH_FULL];
    uint64_t refused = counts[GA_SLABHASH_REFUSED];
    return status || !(full + refused)
               ? status
               : ga_fail(full ? GA_ERR_MEMORY : GA_ERR_ARGUMENT,
                         "slabhash: %llu of %llu pairs found no room, %llu were refused: expected "
                         "a table that holds all",
                         (unsigned long long)full, (unsigned long long)of->count,
                         (unsigned long long)refused);
}

static ga_status load_round(ga_slabhash_sharded *table, const char *path, uint32_t rank,
                            uint32_t ranks, void *stream)
{
    pairs of = {0};
    ga_status status = rank < ranks ? read_file(table, path, rank, ranks, &of, stream) : GA_OK;
    status = ga_sharded_agree_status(table, status);
    if (status == GA_OK) {
        status = ga_sharded_agree_status(table, insert_pairs(table, &of, stream));
    }
    table->engine->free_block(table, of.keys);
    table->engine->free_block(table, of.values);
    return status;
}

ga_status ga_slabhash_sharded_load(ga_slabhash_sharded *table, const char *path, void *stream)
{
    ga_cuda_scope scope;
    uint32_t ranks;
    ga_status status = ga_sharded_check(table);
    status = status ? status : table->engine->enter(table, &scope);
    if (status != GA_OK) {
        return status;
    }
    status = find_set(path, &ranks);
    status = agree_on_set(table, status, ranks);
    for (uint32_t first = 0; status == GA_OK && first < ranks; first += table->exchange.ranks) {
        status = load_round(table, path, first + table->exchange.rank, ranks, stream);
    }
    table->engine->leave(&scope);
    return status;
}
