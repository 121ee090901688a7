/* SPDX-License-Identifier: MIT
 *
 * For the tests of the lock-free hash trie map: a map, and an array of its expected contents.
 */
#ifndef GPUALLOC_TESTS_UNIT_LFHT_SUBJECT_H
#define GPUALLOC_TESTS_UNIT_LFHT_SUBJECT_H

#include <gpualloc/lfht.h>

#include "support/hashes.h"

enum {
    SUBJECT_KEYS = 300
};

typedef struct subject {
    ga_lfht *map;
    ga_lfht_found array[SUBJECT_KEYS]; /* of subject_key(i) */
} subject;

ga_heap *open_heap(const char *spec);
uint64_t blocks_of(ga_heap *heap);

/* ---- options -------------------------------------------------------------------------------- */

/* Small nodes, short chains: everything happens with few keys. */
ga_lfht_options small_options(ga_lfht_variant variant, ga_heap *heap);

/* With these options INLINE, too, allocates for almost every key. */
ga_lfht_options narrow_options(ga_lfht_variant variant, ga_heap *heap);

/* A hash of the key's low bits, which are used first; the key itself. */
uint64_t hash_low_bits(void *context, uint64_t key);
uint64_t hash_itself(void *context, uint64_t key);

/* Sizes of nodes, chains and roots: 5 shapes; hashes with few values: 3; both: 8. */
void all_shapes(ga_lfht_options *options, uint64_t round);
void bad_hashes(ga_lfht_options *options, uint64_t round);
void any_shape(ga_lfht_options *options, uint64_t round);

/* ---- calls ---------------------------------------------------------------------------------- */

/* The ends of the range among them. */
uint64_t subject_key(uint64_t number);

/* One call, also applied to the array if it succeeds. 0 inserts, 1 puts, 2 replaces, 3 replaces one
 * value, 4 removes, others look up. */
ga_status subject_step(subject *s, uint64_t what, uint64_t number, uint64_t value);

/* Grows for a while, then shrinks, and so on. */
void subject_work(subject *s, uint64_t seed, uint64_t steps);

/* All keys are removed. */
void subject_clear(subject *s);

void expect_was(ga_lfht_found was, ga_lfht_found expected, uint64_t key);
void expect_key(subject *s, uint64_t number);
void expect_all(subject *s);

/* For ga_lfht_each(): increments the uint64_t that `context` points to. */
bool count_one(void *context, uint64_t key, uint64_t value);

#endif
