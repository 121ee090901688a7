/* SPDX-License-Identifier: MIT
 *
 * Vectors, on the host and on a device that is made of host memory: each case on both. A plain
 * array has the expected contents of each vector.
 */
#include "vector_places.h"

#include "platform/machine.h"
#include "support/sanitized.h"

#define BOTH(name) BOTH_IN(vector, name)

/* ---- a vector and its expected contents --------------------------------------------------- */

/* A vector and its array, which has room for `max` elements. */
typedef struct subject {
    ga_vector *vector;
    unsigned char *array;
    size_t element, size, max; /* the latter two in elements */
    uint64_t random;
} subject;

static subject subject_open(ga_place place, size_t element, size_t max)
{
    return (subject){.vector = open_at(place, element),
                     .array = malloc((max + 1) * element),
                     .element = element,
                     .max = max,
                     .random = element};
}

static void subject_close(subject *s)
{
    ga_vector_close(s->vector);
    free(s->array);
}

static void subject_check(subject *s)
{
    expect_bytes(s->vector, s->array, s->size);
    cr_assert_geq(ga_vector_capacity(s->vector), s->size);
}

static unsigned char *place_of(const subject *s, size_t at)
{
    return s->array + at * s->element;
}

/* n elements before `at`, in both. */
static void subject_insert(subject *s, size_t at, size_t n)
{
    unsigned char *new = bytes_of(random_next(&s->random), n * s->element);
    assert_ok(at == s->size ? ga_vector_append(s->vector, n, new)
                            : ga_vector_insert(s->vector, at, n, new));
    memmove(place_of(s, at + n), place_of(s, at), (s->size - at) * s->element);
    memcpy(place_of(s, at), new, n * s->element);
    s->size += n;
    free(new);
}

static void subject_erase(subject *s, size_t at, size_t n)
{
    assert_ok(ga_vector_erase(s->vector, at, n));
    memmove(place_of(s, at), place_of(s, at + n), (s->size - at - n) * s->element);
    s->size -= n;
}

static void subject_write(subject *s, size_t at, size_t n)
{
    unsigned char *new = bytes_of(random_next(&s->random), n * s->element);
    assert_ok(ga_vector_write(s->vector, at, n, new));
    memcpy(place_of(s, at), new, n * s->element);
    free(new);
}

static void subject_fill(subject *s, size_t at, size_t n)
{
    unsigned char *value = bytes_of(random_next(&s->random), s->element);
    assert_ok(ga_vector_fill(s->vector, at, n, value));
    for (size_t i = 0; i < n; i++) {
        memcpy(place_of(s, at + i), value, s->element);
    }
    free(value);
}

/* The new elements hold anything, so they are written at once. */
static void subject_resize(subject *s, size_t n)
{
    size_t old = s->size;
    assert_ok(ga_vector_resize(s->vector, n));
    s->size = n;
    if (n > old) {
        subject_write(s, old, n - old);
    }
}

static void subject_step(subject *s)
{
    size_t at = random_below(&s->random, s->size + 1);
    size_t rest = random_below(&s->random, s->size - at + 1);
    size_t more = random_below(&s->random, s->max - s->size + 1) / 4;
    switch (random_below(&s->random, 8)) {
    case 0:
        subject_insert(s, s->size, more);
        break;
    case 1:
    case 2:
        subject_insert(s, at, more);
        break;
    case 3:
        subject_erase(s, at, rest);
        break;
    case 4:
        subject_fill(s, at, rest);
        break;
    case 5:
        subject_write(s, at, rest);
        break;
    case 6:
        subject_resize(s, random_below(&s->random, s->max));
        break;
    default:
        assert_ok(ga_vector_shrink_to_fit(s->vector));
    }
}

/* ---- sequences of calls -------------------------------------------------------------------- */

BOTH(does_what_an_array_does)
{
    static const size_t elements[] = {1, 2, 3, 4, 8, 24, 4096, 3 * MIB};
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
        subject s = subject_open(place, elements[i], elements[i] > MIB ? 6 : 3 * MIB / elements[i]);
        for (int step = 0; step < 60; step++) {
            subject_step(&s);
            subject_check(&s);
        }
        subject_close(&s);
    }
}

/* Ways of every length: through scratch and directly, with the room full to the last byte. */
BOTH(tails_move_by_any_way)
{
    static const size_t ways[] = {1, 7, 4096, MIB - 1, MIB, 2 * MIB + 1, 5 * MIB};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        subject s = subject_open(place, 1, 16 * MIB);
        subject_insert(&s, 0, 8 * MIB - ways[i]); /* exactly four granules after the next */
        subject_insert(&s, 100, ways[i]);
        subject_check(&s);
        subject_erase(&s, 100, ways[i]);
        subject_check(&s);
        subject_insert(&s, 0, ways[i]);
        subject_erase(&s, 1, ways[i]);
        subject_check(&s);
        subject_close(&s);
    }
}

BOTH(fills_any_pattern)
{
    static const struct {
        size_t element;
        unsigned char value[12];
    } patterns[] = {{1, {7}},
                    {4, {1, 2, 2, 1}},
                    {2, {1, 2}},
                    {4, {0}},
                    {4, {1, 2, 3, 4}},
                    {8, {9, 9, 9, 9}},
                    {8, {1, 2, 3, 4, 1, 2, 3, 4}},
                    {12, {1}},
                    {3, {5, 5, 5}},
                    {12, {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 5}}};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        size_t element = patterns[i].element, n = MIB / element;
        unsigned char *expected = bytes_of(i, n * element);
        ga_vector *v = open_at(place, element);
        assert_ok(ga_vector_append(v, n, expected));
        for (size_t k = 3; k < n - 5; k++) {
            memcpy(expected + k * element, patterns[i].value, element);
        }
        assert_ok(ga_vector_fill(v, 3, n - 8, patterns[i].value));
        expect_bytes(v, expected, n);
        ga_vector_close(v);
        free(expected);
    }
}

/* ---- growth -------------------------------------------------------------------------------- */

BOTH(data_stays_where_it_is)
{
    subject s = subject_open(place, 8, 4 * MIB);
    void *data = ga_vector_data(s.vector);
    cr_assert_not_null(data);
    for (int i = 0; i < 12; i++) {
        subject_insert(&s, s.size, KIB << i);
        cr_assert_eq(ga_vector_data(s.vector), data);
    }
    subject_check(&s);
    subject_resize(&s, 0);
    assert_ok(ga_vector_shrink_to_fit(s.vector));
    cr_assert_eq(ga_vector_data(s.vector), data);
    cr_assert_eq(ga_vector_capacity(s.vector), 0, "%" PRIu64, ga_vector_capacity(s.vector));
    subject_close(&s);
}

/* §A.2.2: max(old + max(old, n), 2 * capacity). */
BOTH(grows_by_the_rule)
{
    ga_vector *v = open_at(place, MIB);
    assert_ok(ga_vector_resize(v, 10));
    cr_assert_eq(capacity_mib(v), 10); /* 0 + max(0, 10) */
    assert_ok(ga_vector_append(v, 2, NULL));
    cr_assert_eq(capacity_mib(v), 20); /* 10 + max(10, 2) */
    assert_ok(ga_vector_append(v, 40, NULL));
    cr_assert_eq(capacity_mib(v), 52); /* 12 + max(12, 40) */
    assert_ok(ga_vector_resize(v, 2));
    assert_ok(ga_vector_resize(v, 60));
    cr_assert_eq(capacity_mib(v), 104); /* 2 * 52 */
    assert_ok(ga_vector_reserve(v, 106));
    cr_assert_eq(capacity_mib(v), 106); /* no more than requested */
    assert_ok(ga_vector_reserve(v, 3));
    cr_assert_eq(capacity_mib(v), 106);
    cr_assert_eq(ga_vector_size(v), 60);
    ga_vector_close(v);
}

BOTH(grows_exactly)
{
    ga_vector *v = open_exactly(place, MIB, GA_ARENA_EXACT);
    for (uint64_t n = 2; n <= 40; n += 2) {
        assert_ok(ga_vector_resize(v, n));
        cr_assert_eq(capacity_mib(v), n);
    }
    ga_vector_close(v);
}

BOTH(pushes_back)
{
    ga_vector *v = open_at(place, sizeof(uint64_t));
    uint64_t *expected = malloc(20000 * sizeof *expected);
    for (uint64_t i = 0; i < 20000; i++) {
        expected[i] = i * i;
        assert_ok(ga_vector_push_back(v, &expected[i]));
    }
    expect_bytes(v, expected, 20000);
    ga_vector_close(v);
    free(expected);
}

/* If there is too little memory for the growth rule, the needed size still fits. */
static void take_what_is_needed(ga_place place, uint64_t reserve)
{
    ga_vector *v;
    ga_arena_options options = options_for(place);
    options.limit = 16 * MIB;
    options.reserve = reserve;
    assert_ok(ga_vector_open(&v, MIB, &options, NULL));
    assert_ok(ga_vector_resize(v, 10));
    assert_ok(ga_vector_append(v, 2, NULL));
    cr_assert_eq(capacity_mib(v), 16, "%" PRIu64, capacity_mib(v));
    assert_ok(ga_vector_resize(v, 16));
    assert_fails(
        ga_vector_append(v, 1, NULL), GA_ERR_MEMORY,
        "vector: room for 17 elements of 1048576 bytes; expected at most 16, by its limit");
    cr_assert_eq(ga_vector_reserve(v, 17), GA_ERR_MEMORY);
    cr_assert_eq(ga_vector_size(v), 16);
    ga_vector_close(v);
}

BOTH(takes_what_is_needed_under_a_limit)
{
    take_what_is_needed(place, 0);
    take_what_is_needed(place, 1 << 30);
}

/* If addresses run out, the vector continues right behind, where addresses are free. */
BOTH(reserves_more_behind)
{
    ga_vector *v;
    ga_arena_options options = options_for(place);
    options.reserve = 8 * MIB;
    assert_ok(ga_vector_open(&v, 1, &options, NULL));
    uint64_t reserved = ga_arena_reserved(ga_vector_arena(v));
    unsigned char *expected = bytes_of(1, 24 * MIB);
    void *data = ga_vector_data(v);
    assert_ok(ga_vector_append(v, 8 * MIB, expected));
    ga_status status = ga_vector_append(v, 16 * MIB, expected + 8 * MIB);
    if (status == GA_ERR_CANNOT_GROW) { /* the addresses behind are taken: only a move helps */
        cr_assert_eq(ga_vector_size(v), 8 * MIB);
        assert_ok(ga_arena_move(ga_vector_arena(v), 4 * reserved));
        data = ga_vector_data(v);
        status = ga_vector_append(v, 16 * MIB, expected + 8 * MIB);
    }
    assert_ok(status);
    cr_assert_eq(ga_vector_data(v), data);
    expect_bytes(v, expected, 24 * MIB);
    ga_vector_close(v);
    free(expected);
}

/* ---- its own elements as a source ---------------------------------------------------------- */

BOTH(takes_its_own_elements)
{
    enum {
        N = 1000
    };
    uint32_t expected[3 * N + 100];
    ga_vector *v = open_at(place, sizeof *expected);
    for (uint32_t i = 0; i < N; i++) {
        expected[i] = i * 3;
    }
    assert_ok(ga_vector_append(v, N, expected));
    const uint32_t *data = ga_vector_data(v);
    assert_ok(ga_vector_append(v, N, data));
    memcpy(expected + N, expected, N * sizeof *expected);
    expect_bytes(v, expected, 2 * N);
    /* From below, from across and from above the place where they go. */
    static const size_t starts[] = {0, 470, 500, 1200};
    for (size_t i = 0; i < 4; i++) {
        uint32_t new[50];
        memcpy(new, expected + starts[i], sizeof new);
        uint64_t size = ga_vector_size(v);
        assert_ok(ga_vector_insert(v, 500, 50, data + starts[i]));
        memmove(expected + 550, expected + 500, (size - 500) * sizeof *expected);
        memcpy(expected + 500, new, sizeof new);
        expect_bytes(v, expected, size + 50);
    }
    ga_vector_close(v);
}

/* ---- from one to another ------------------------------------------------------------------- */

static void copies(ga_place to_place, ga_place from_place)
{
    unsigned char *expected = bytes_of(5, 30 * MIB), *other = bytes_of(6, MIB);
    ga_vector *to = open_at(to_place, 8), *from = open_at(from_place, 8);
    assert_ok(ga_vector_append(to, MIB / 8, other));
    assert_ok(ga_vector_append(from, 30 * MIB / 8, expected));
    assert_ok(ga_vector_copy(to, from));
    expect_bytes(to, expected, 30 * MIB / 8);
    assert_ok(ga_vector_resize(from, 3));
    assert_ok(ga_vector_copy(to, from));
    expect_bytes(to, expected, 3);
    assert_ok(ga_vector_copy(to, to));
    expect_bytes(to, expected, 3);
    ga_vector_close(to);
    ga_vector_close(from);
    free(expected);
    free(other);
}

BOTH(is_copied)
{
    copies(place, place);
}

BOTH(sizes_that_nobody_can_have)
{
    uint64_t sizes[] = {UINT64_C(1) << 45, UINT64_C(1) << 57, PTRDIFF_MAX - 1, PTRDIFF_MAX};
    ga_vector *v = open_exactly(place, 1, 0);
    uint64_t reserved = ga_arena_reserved(ga_vector_arena(v));
    assert_ok(ga_vector_resize(v, 10));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ga_status status = ga_vector_reserve(v, sizes[i]);
        /* if the kernel always overcommits, only addresses end */
        bool always = place == GA_PLACE_HOST && ga_machine_memory_total() == UINT64_MAX;
        cr_assert(status == GA_ERR_MEMORY || always, "%s", ga_error_text());
        cr_assert(always || strstr(ga_error_text(), "bytes: expected at most "), "%s",
                  ga_error_text());
        cr_assert_eq(ga_vector_append(v, sizes[i] - 10, NULL), status);
        cr_assert_eq(ga_vector_size(v), 10);
    }
    cr_assert(ga_arena_reserved(ga_vector_arena(v)) == reserved);
    ga_vector_close(v);
}

Test(vector, doubles_as_far_as_there_is_memory, .disabled = UNDER_ASAN)
{
    uint64_t total = ga_machine_memory_total();
    if (total > UINT64_C(1) << 46) {
        cr_skip_test("the kernel always overcommits");
    }
    ga_vector *v;
    ga_arena_options options = options_for(GA_PLACE_HOST);
    options.reserve = 2 * total;
    assert_ok(ga_vector_open(&v, 1, &options, NULL));
    assert_ok(ga_vector_resize(v, total / 8 * 5));
    assert_ok(ga_vector_resize(v, total / 8 * 6));
    cr_assert_gt(ga_vector_capacity(v), total / 8 * 6, "less than twice, but ahead");
    cr_assert_leq(ga_vector_capacity(v), total);
    assert_fails_with(ga_vector_resize(v, total + ((uint64_t)2 << 30)), GA_ERR_MEMORY, "arena: ");
    ga_vector_close(v);
}

Test(vector, is_copied_between_host_and_device)
{
    vmm_driver_start(NULL);
    copies(GA_PLACE_HOST, GA_PLACE_DEVICE);
    copies(GA_PLACE_DEVICE, GA_PLACE_HOST);
    expect_nothing_left();
    vmm_driver_stop();
}

/* Device memory that is no vector's is a source, too, also another device's. */
Test(vector, takes_from_other_devices)
{
    vmm_driver_start(&(vmm_driver_options){.devices = 2});
    unsigned char *expected = bytes_of(7, MIB);
    ga_arena_options options = options_for(GA_PLACE_DEVICE);
    ga_vector *v = open_at(GA_PLACE_DEVICE, 1), *other;
    options.device = 1;
    assert_ok(ga_vector_open(&other, 1, &options, NULL));
    assert_ok(ga_vector_append(other, MIB, expected));
    uint64_t before = vmm_driver_calls("cuMemcpyDtoDAsync");
    assert_ok(ga_vector_append(v, MIB, ga_vector_data(other)));
    cr_assert_eq(vmm_driver_calls("cuMemcpyDtoDAsync"), before + 1);
    assert_ok(ga_vector_copy(other, v));
    expect_bytes(v, expected, MIB);
    ga_vector_close(v);
    ga_vector_close(other);
    expect_nothing_left();
    vmm_driver_stop();
    free(expected);
}
