/* SPDX-License-Identifier: MIT
 *
 * Shared by the tests of the slab hash: tables that must open, filled with pairs, and names of
 * files for them.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_SLABHASH_SCENE_H
#define GPUALLOC_TESTS_SUPPORT_SLABHASH_SCENE_H

#include <gpualloc/slabhash.h>

#include "expect.h"

#include <stdlib.h>
#include <unistd.h>

/* With a fixed seed, unless the options have one, so that every run has one layout. */
static inline ga_slabhash *open_table(ga_slabhash_options options)
{
    ga_slabhash *table = NULL;
    options.options_size = sizeof options;
    options.seed = options.seed ? options.seed : 1;
    assert_ok(ga_slabhash_open(&table, &options));
    return table;
}

/* Keys from 0 on, in a multimap each of them twice; no value is there twice. */
static inline ga_slabhash *filled(ga_slabhash_mode mode, uint32_t flags, uint64_t count)
{
    ga_slabhash *table = open_table(
        (ga_slabhash_options){.mode = mode, .flags = flags, .buckets = 50 + (uint32_t)count / 50});
    for (uint64_t i = 0; i < count; i++) {
        assert_ok(ga_slabhash_insert(table, flags ? i / 2 : i, i, NULL));
    }
    return table;
}

/* The path of a new file, which is empty, into 64 bytes. */
static inline void make_path(char *path)
{
    int file;
    strcpy(path, "/tmp/slabhash-XXXXXX");
    file = mkstemp(path);
    cr_assert_geq(file, 0);
    close(file);
}

#endif
