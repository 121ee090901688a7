/* SPDX-License-Identifier: MIT
 *
 * For the tests of vectors: each case on the host and on a device that is made of host memory.
 */
#ifndef GPUALLOC_TESTS_UNIT_VECTOR_PLACES_H
#define GPUALLOC_TESTS_UNIT_VECTOR_PLACES_H

#include <gpualloc/vector.h>

#include "support/expect.h"
#include "support/random.h"
#include "support/vmm_driver.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    KIB = 1 << 10,
    MIB = 1 << 20
};

/* ---- the two places ------------------------------------------------------------------------- */

static inline void expect_nothing_left(void)
{
    vmm_driver_counts now = vmm_driver_count();
    cr_assert_eq(now.ranges + now.chunks + now.handles + now.mappings + now.blocks, 0,
                 "%" PRIu64 " ranges, %" PRIu64 " chunks, %" PRIu64 " handles, %" PRIu64
                 " mappings, %" PRIu64 " blocks",
                 now.ranges, now.chunks, now.handles, now.mappings, now.blocks);
}

#define BOTH_IN(suite, name)                                                                       \
    static void name(ga_place place);                                                              \
    Test(suite, name##_host)                                                                       \
    {                                                                                              \
        name(GA_PLACE_HOST);                                                                       \
    }                                                                                              \
    Test(suite, name##_device)                                                                     \
    {                                                                                              \
        vmm_driver_start(NULL);                                                                    \
        name(GA_PLACE_DEVICE);                                                                     \
        expect_nothing_left();                                                                     \
        vmm_driver_stop();                                                                         \
    }                                                                                              \
    static void name(ga_place place)

static inline ga_arena_options options_for(ga_place place)
{
    return (ga_arena_options){
        .options_size = sizeof(ga_arena_options), .place = place, .reserve = (uint64_t)1 << 32};
}

static inline ga_vector *open_exactly(ga_place place, size_t element, uint32_t flags)
{
    ga_vector *v;
    ga_arena_options options = options_for(place);
    options.flags = flags;
    assert_ok(ga_vector_open(&v, element, &options, NULL));
    return v;
}

static inline ga_vector *open_at(ga_place place, size_t element)
{
    return open_exactly(place, element, 0);
}

/* ---- expected contents -------------------------------------------------------------------- */

static inline unsigned char *bytes_of(uint64_t seed, size_t size)
{
    unsigned char *bytes = malloc(size + sizeof(uint64_t));
    for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
        uint64_t next = random_next(&seed);
        memcpy(bytes + i, &next, sizeof next);
    }
    return bytes;
}

static inline void expect_bytes(ga_vector *v, const void *expected, uint64_t n)
{
    const unsigned char *wanted = expected;
    size_t size = n * ga_vector_element(v), i = 0;
    unsigned char *got = malloc(size + 1);
    cr_assert_eq(ga_vector_size(v), n, "%" PRIu64 " elements, expected %" PRIu64, ga_vector_size(v),
                 n);
    assert_ok(ga_vector_read(v, 0, n, got));
    if (memcmp(got, wanted, size)) {
        while (got[i] == wanted[i]) {
            i++;
        }
        cr_assert_fail("byte %zu of %zu is %u, expected %u", i, size, got[i], wanted[i]);
    }
    free(got);
}

static inline uint64_t capacity_mib(const ga_vector *v)
{
    return ga_vector_capacity(v) * ga_vector_element(v) / MIB;
}

#endif
