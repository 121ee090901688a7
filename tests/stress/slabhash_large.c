/* SPDX-License-Identifier: MIT
 *
 * Batches of more than 2^31 operations. The arrays are that long, but the part before 2^31 is one
 * file of 2 MiB, mapped repeatedly, whose keys are all reserved and so refused at once. The part
 * behind has memory of its own, and its results are checked.
 */
#include "stress.h"

#include <gpualloc/slabhash.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    PIECE = 2 << 20, /* bytes that are mapped again and again */
    KEYS = 1000      /* operations behind the first 2^31 */
};

static const uint64_t MANY = UINT64_C(1) << 31;

/* An array of MANY + KEYS elements of `width` bytes; those before MANY repeat one file. */
static void *long_array(size_t width, int byte)
{
    uint64_t before = MANY * width;
    int file = memfd_create("slabhash-large", MFD_CLOEXEC);
    char *array = mmap(NULL, before + PIECE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (file < 0 || array == MAP_FAILED || ftruncate(file, PIECE)) {
        printf("no arrays of 2^31 elements here\n");
        exit(77);
    }
    for (uint64_t at = 0; at < before; at += PIECE) {
        NEED(mmap(array + at, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
             MAP_FAILED);
    }
    memset(array, byte, PIECE);
    close(file);
    return array;
}

int main(int argc, char **argv)
{
    stress_begin(argc, argv);
    char sentence[200];
    uint64_t done, size;
    uint32_t *keys = long_array(sizeof *keys, 0xff);
    uint8_t *results = long_array(sizeof *results, 0);
    uint8_t *ops = long_array(sizeof *ops, GA_SLABHASH_SEARCH);
    ga_slabhash_options options = {
        .options_size = sizeof options, .mode = GA_SLABHASH_SET32, .buckets = 100, .seed = 1};
    ga_slabhash *table;
    NEED(ga_slabhash_open(&table, &options) == GA_OK);
    ga_slabhash_batch batch = {.count = MANY + KEYS, .keys = keys, .ops = ops, .results = results};
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[MANY + i] = i % (KEYS / 2);
        ops[MANY + i] = i < KEYS / 2 ? GA_SLABHASH_INSERT : GA_SLABHASH_SEARCH;
    }
    NEED(ga_slabhash_run(table, &batch, &done) == GA_ERR_ARGUMENT);
    snprintf(sentence, sizeof sentence, "slabhash: %llu of a batch of %llu refused",
             (unsigned long long)MANY, (unsigned long long)batch.count);
    stress_need(!strncmp(ga_error_text(), sentence, strlen(sentence)), "another number is refused");
    stress_need(done == KEYS, "another number was carried out");
    stress_need(results[MANY - 1] == GA_SLABHASH_REFUSED, "a reserved key is not refused");
    for (uint32_t i = 0; i < KEYS; i++) {
        stress_need(results[MANY + i] == (i >= KEYS / 2), "a result is wrong");
    }
    NEED(ga_slabhash_size(table, &size) == GA_OK);
    stress_need(size == KEYS / 2, "the size is wrong");
    NEED(ga_slabhash_close(table) == GA_OK);
    printf("a batch of %llu\n", (unsigned long long)batch.count);
    return 0;
}
