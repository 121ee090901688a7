/* SPDX-License-Identifier: MIT
 *
 * The checker of histories for slabhash_tests, in C.
 */
#ifndef TESTS_DEVICE_SLABHASH_ORACLE_H
#define TESTS_DEVICE_SLABHASH_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

/* A call as a kernel writes it down: `op` is a ga_slabhash_op. */
typedef struct slabhash_record {
    uint32_t op, found;
    uint64_t key, value, was;
    uint64_t began, ended;
} slabhash_record;

/* NULL, or the checker's own error. */
const char *slabhash_try_checker(void);

/* Returns true if the calls on `key`, of `count`, are linearizable; prints them otherwise. */
bool slabhash_linearizable(const slabhash_record *calls, uint32_t count, uint64_t key);

#endif
