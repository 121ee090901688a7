/* SPDX-License-Identifier: MIT
 *
 * Tiles whose lanes allocate together, and free in any order: a superblock is freed with its last
 * segment and never before. A random script is compared with a plain list.
 */
#include "support/coalesce_forms.h"
#include "support/expect.h"

/* ---- results of an allocation ------------------------------------------------------------- */

Test(coalesce_tile, huge_requests_fail_without_harm)
{
    EACH_FORM(form)
    {
        coalesce_world *world = world_of(form);
        uint64_t sizes[LANES] = {16, UINT64_MAX, 32, (uint64_t)1 << 63, UINT64_MAX - 15,
                                 8,  SLOT + 1u,  0,  (uint64_t)1 << 40};
        char *payloads[LANES];
        world_malloc(world, 0x1ff, sizes, payloads);
        for (uint32_t i = 0; i < LANES; i++) {
            bool fits = i < 9 && sizes[i] <= SLOT / 2;
            cr_assert_eq(payloads[i] != NULL, fits, "%s: lane %u: %p", forms[form], i,
                         (void *)payloads[i]);
        }
        world_free(world, GA_ALL_BITS, payloads);
        assert_clean(world, forms[form]);
        world_delete(world);
    }
}

/* A request of more than `max` has a superblock of its own, aligned to 16. */
Test(coalesce_tile, large_requests_stand_alone)
{
    EACH_FORM(form)
    {
        coalesce_world *world = world_of(form);
        uint64_t sizes[LANES] = {1000, 1001, 24, 5000};
        char *payloads[LANES];
        world->view.max = 1000;
        world_malloc(world, 0xf, sizes, payloads);
        cr_assert_eq(world_live(world), 3, "%u superblocks", world_live(world));
        cr_assert_eq((uintptr_t)payloads[1] % 16, 0);
        world_free_one(world, 3, payloads[1]);
        cr_assert_eq(world_live(world), 2);
        world_free_one(world, 0, payloads[3]);
        world_free_one(world, 7, payloads[0]);
        cr_assert_eq(world_live(world), 1, "one of two is live");
        world_free_one(world, 0, payloads[2]);
        assert_clean(world, forms[form]);
        world_delete(world);
    }
}

/* The number of lanes, of 23 that allocate together and 5 that allocate alone, that succeed if the
 * parent's calls from `at` on fail, or only call `at`. */
static uint32_t expected_served(uint64_t at, bool only)
{
    if (only) {
        return at >= 1 && at <= 5 ? 27 : 28; /* without the superblock all are served alone */
    }
    return at == 0 ? 0 : at <= 5 ? 23 + (uint32_t)at - 1 : 28;
}

static void assert_own(char *const *payloads, const uint64_t *sizes, const char *what)
{
    for (uint32_t i = 0; i < LANES; i++) {
        for (uint64_t byte = 0; payloads[i] && byte < sizes[i]; byte++) {
            cr_assert_eq((unsigned char)payloads[i][byte], i, "%s: lanes overlap", what);
        }
    }
}

static void fail_at(uint32_t form, uint64_t at, bool only)
{
    coalesce_world *world = world_of(form);
    uint64_t sizes[LANES];
    char *payloads[LANES];
    uint32_t served = 0;
    for (uint32_t i = 0; i < LANES; i++) {
        sizes[i] = i % 5 == 4 ? 3000 + i : i * 3;
    }
    world->view.max = 2000;
    world->fails_at = at;
    world->fails_to = only ? at + 1 : UINT64_MAX;
    world_malloc(world, 0xfffff0ffu, sizes, payloads);
    for (uint32_t i = 0; i < LANES; i++) {
        if (payloads[i]) {
            memset(payloads[i], (int)i, sizes[i]);
            served++;
        }
    }
    cr_assert_eq(served, expected_served(at, only), "%s: %u lanes where call %llu%s fails",
                 forms[form], served, (unsigned long long)at, only ? "" : " and all after it");
    cr_assert_eq(world->heap.lone, at ? 0 : 23);
    assert_own(payloads, sizes, forms[form]);
    world_free(world, GA_ALL_BITS, payloads);
    assert_clean(world, forms[form]);
    world_delete(world);
}

/* Whichever call of the parent fails, each lane gets all of its request or NULL, and nothing
 * leaks. */
Test(coalesce_tile, the_parent_fails_at_each_call)
{
    EACH_FORM(form)
    {
        for (uint64_t at = 0; at < 30; at++) {
            fail_at(form, at, true);
            fail_at(form, at, false);
        }
    }
}

/* ---- the hand-over, in all orders ------------------------------------------------------------ */

/* The next permutation in the order of the alphabet; false after the last. */
static bool next_order(uint32_t *order, uint32_t n)
{
    uint32_t i = n - 1;
    uint32_t j = n - 1;
    while (i && order[i - 1] > order[i]) {
        i--;
    }
    if (!i) {
        return false;
    }
    while (order[j] < order[i - 1]) {
        j--;
    }
    uint32_t swap = order[i - 1];
    order[i - 1] = order[j];
    order[j] = swap;
    for (j = n - 1; i < j; i++, j--) {
        swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    return true;
}

/* Free the payloads in that order, by tiles: bit k of `cuts` ends a tile's call after payload k.
 * The superblock is freed with the last call. */
static void free_in_order(coalesce_world *world, char *const *all, const uint32_t *order,
                          uint32_t n, uint32_t cuts)
{
    char *payloads[LANES] = {NULL};
    uint32_t giving = 0;
    for (uint32_t k = 0; k < n; k++) {
        /* The lanes that free are not those that allocated, and in another order. */
        uint32_t lane = (order[k] * 7 + 3 * cuts) % LANES;
        payloads[lane] = all[order[k]];
        giving |= 1u << lane;
        if ((cuts >> k) & 1u || k == n - 1) {
            cr_assert_eq(world_live(world), 1, "%s: gone with %u of %u free",
                         forms[world->view.form], k, n);
            world_free(world, giving, payloads);
            giving = 0;
        }
    }
    cr_assert_eq(world_live(world), 0, "%s: all %u are free, but it is there",
                 forms[world->view.form], n);
}

static void free_in_all_orders(uint32_t form, uint32_t n)
{
    coalesce_world *world = world_of(form);
    uint32_t order[LANES];
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
    }
    do {
        for (uint32_t cuts = 0; cuts < 1u << (n - 1); cuts++) {
            uint64_t sizes[LANES] = {2, 24, 4, 100, 1, 8};
            uint64_t small[LANES] = {2, 1, 3, 0, 2, 1};
            uint64_t tiny[LANES] = {2, 1, 2, 0, 2, 1};
            char *got[LANES];
            world_malloc(world, ga_bits_below(n),
                         cuts % 2        ? sizes
                         : cuts / 2 % 2u ? small
                                         : tiny,
                         got);
            free_in_order(world, got, order, n, cuts);
        }
    } while (next_order(order, n));
    assert_clean(world, forms[form]);
    world_delete(world);
}

Test(coalesce_tile, segments_are_freed_in_all_orders)
{
    EACH_FORM(form)
    {
        for (uint32_t n = 1; n <= 6; n++) {
            free_in_all_orders(form, n);
        }
    }
}

/* One call frees segments of several superblocks, mixed among the lanes. */
Test(coalesce_tile, a_tile_frees_of_several_superblocks)
{
    EACH_FORM(form)
    {
        coalesce_world *world = world_of(form);
        uint64_t random = form;
        for (int round = 0; round < 2000; round++) {
            char *got[3][LANES];
            char *mixed[3 * LANES];
            for (uint32_t b = 0; b < 3; b++) {
                uint64_t sizes[LANES];
                for (uint32_t i = 0; i < LANES; i++) {
                    sizes[i] = random_below(&random, 64);
                }
                world_malloc(world, GA_ALL_BITS, sizes, got[b]);
                memcpy(mixed + b * LANES, got[b], sizeof got[b]);
            }
            for (size_t i = 3 * LANES - 1; i; i--) {
                size_t other = random_below(&random, i + 1);
                char *swap = mixed[i];
                mixed[i] = mixed[other];
                mixed[other] = swap;
            }
            for (uint32_t b = 0; b < 3; b++) {
                cr_assert_gt(world_live(world), 0);
                world_free(world, GA_ALL_BITS, mixed + b * LANES);
            }
            assert_clean(world, forms[form]);
        }
        world_delete(world);
    }
}

/* The whole tile changes the counter by one atomic. */
Test(coalesce_tile, lanes_of_one_superblock_count_together)
{
    coalesce_world *world = world_of(GA_COALESCE_HEADERLESS);
    uint64_t sizes[LANES] = {0};
    char *payloads[LANES];
    world_malloc(world, GA_ALL_BITS, sizes, payloads);
    uint32_t *note = world->slots[world_place(world, payloads[0])].note;
    cr_assert_eq(*note, 32, "%u are counted", *note);
    world_free(world, 0x0000ffffu, payloads);
    cr_assert_eq(*note, 16, "%u are counted", *note);
    world_free(world, 0xffff0000u, payloads);
    assert_clean(world, "count");
    world_delete(world);
}

/* ---- plain blocks ---------------------------------------------------------------------------- */

/* Lanes with equal sizes get a block each, which is freed by itself; other lanes share a
 * superblock. */
Test(coalesce_tile, lanes_that_want_the_same_get_plain_blocks)
{
    coalesce_world *world = world_of(GA_COALESCE_HEADERLESS);
    uint64_t sizes[LANES];
    char *payloads[LANES];
    world->view.plain = true;
    for (uint32_t i = 0; i < LANES; i++) {
        sizes[i] = 64 + i;
    }
    world_malloc(world, GA_ALL_BITS, sizes, payloads);
    cr_assert_eq(world_live(world), 32, "%u blocks", world_live(world));
    world_free(world, 0xffff, payloads);
    cr_assert_eq(world_live(world), 16, "%u blocks", world_live(world));
    world_free(world, 0xffff0000u, payloads);
    sizes[5] = 63;
    world_malloc(world, GA_ALL_BITS, sizes, payloads);
    cr_assert_eq(world_live(world), 1, "%u blocks", world_live(world));
    world_free(world, GA_ALL_BITS, payloads);
    assert_clean(world, "plain");
    world_malloc(world, 1u << 9, sizes, payloads);
    world_free_one(world, 3, payloads[9] + 16);
    cr_assert_eq(world->heap.faults[GA_COALESCE_NO_SEGMENT], 1, "it is not its first byte");
    world_free_one(world, 3, payloads[9]);
    cr_assert_eq(world_live(world), 0);
    world_delete(world);
}

/* With check=full all lanes have blocks of their own, by static calls too, and the parent sees each
 * free as it is. */
Test(coalesce_tile, the_parent_sees_each_free)
{
    coalesce_world *world = world_of(GA_COALESCE_HEADERLESS);
    uint64_t sizes[LANES] = {0, 5, 100, 3000, 7, UINT64_MAX};
    char *payloads[LANES];
    world->view.plain = world->view.single = true;
    world_malloc(world, 0x3f, sizes, payloads);
    cr_assert_eq(world_live(world), 5, "%u blocks", world_live(world));
    cr_assert_null(payloads[5]);
    for (uint32_t i = 0; i < 5; i++) {
        cr_assert_geq(ga_coalesce_usable(world->view, payloads[i]), sizes[i]);
        cr_assert_eq(ga_coalesce_usable(world->view, payloads[i] + 16), 0, "inside");
    }
    world_free_one(world, 7, payloads[2] + 16);
    cr_assert(world->wrong == 1 && world->last_wrong == payloads[2] + 16);
    payloads[9] = payloads[1];
    world_free(world, 0x23f, payloads); /* one payload twice at once, and NULL */
    cr_assert_eq(world_live(world), 0);
    cr_assert(world->wrong == 2 && world->last_wrong == payloads[1]);
    world_free_one(world, 7, payloads[3]);
    cr_assert(world->wrong == 3 && world->last_wrong == payloads[3]);
    ga_wide wide = ga_static_claim(world->view, world_tile(), true, 60);
    cr_assert_eq(world_live(world), LANES);
    ga_coalesce_free_lanes(world->view, world_tile(), GA_ALL_BITS, wide);
    cr_assert_eq(world_live(world), 0);
    cr_assert_eq(world->wrong, 3);
    world_delete(world);
}

/* If superblocks have counters, any address inside a payload frees it. */
Test(coalesce_tile, an_address_inside_frees)
{
    coalesce_world *world = world_of(GA_COALESCE_HEADERLESS);
    uint64_t sizes[LANES] = {100, 100, 5000};
    char *payloads[LANES];
    world_malloc(world, 0x7, sizes, payloads);
    payloads[0] += 64;
    payloads[2] += 4096;
    world_free(world, 0x7, payloads);
    assert_clean(world, "inside");
    world_delete(world);
}

/* ---- invalid pointers --------------------------------------------------------------------- */

Test(coalesce_tile, a_second_free_is_noticed)
{
    for (uint32_t form = GA_COALESCE_AUTO; form <= GA_COALESCE_SIXTEEN; form++) {
        coalesce_world *world = world_of(form);
        uint64_t sizes[LANES] = {4, 8, 100, 24};
        char *payloads[LANES];
        world_malloc(world, 0xf, sizes, payloads);
        for (uint32_t i = 1; i < 4; i++) { /* in the middle and at the end of a payload */
            world_free_one(world, i, payloads[i]);
            world_free_one(world, 0, payloads[i]);
            cr_assert_eq(world->heap.faults[GA_COALESCE_FREED_TWICE], i, "%s: lane %u", forms[form],
                         i);
        }
        cr_assert_eq(world_live(world), 1);
        world_free_one(world, 5, payloads[0]);
        cr_assert_eq(world_live(world), 0);
        world_delete(world);
    }
}

/* Two lanes of one tile free one payload. */
Test(coalesce_tile, a_second_free_in_the_same_call)
{
    for (uint32_t form = GA_COALESCE_AUTO; form <= GA_COALESCE_SIXTEEN; form++) {
        coalesce_world *world = world_of(form);
        uint64_t sizes[LANES] = {4, 8, 100};
        char *payloads[LANES];
        world_malloc(world, 0x7, sizes, payloads);
        payloads[20] = payloads[2];
        payloads[9] = payloads[1];
        world_free(world, 1u << 20 | 0x206, payloads);
        cr_assert_eq(world->heap.faults[GA_COALESCE_FREED_TWICE], 2, "%s", forms[form]);
        cr_assert_eq(world_live(world), 1);
        world_free_one(world, 5, payloads[0]);
        cr_assert_eq(world_live(world), 0);
        world_delete(world);
    }
}

Test(coalesce_tile, pointers_that_are_none)
{
    coalesce_world *world = world_of(GA_COALESCE_HEADERLESS);
    char beside[8];
    char *payloads[LANES] = {NULL};
    world_free(world, GA_ALL_BITS, payloads);
    cr_assert_eq(world->heap.faults[GA_COALESCE_NO_SEGMENT], 0, "NULL is ignored");
    payloads[4] = beside;
    payloads[9] = world->memory;
    world_free(world, GA_ALL_BITS, payloads);
    cr_assert_eq(world->heap.faults[GA_COALESCE_NO_SEGMENT], 2);
    world_delete(world);
    world = world_of(GA_COALESCE_AUTO);
    world_free_one(world, 4, beside + (((uintptr_t)beside & 1u) ^ 1u));
    cr_assert_eq(world->heap.faults[GA_COALESCE_NO_SEGMENT], 1, "an odd one is none");
    world_delete(world);
}

/* ---- against a plain list -------------------------------------------------------------------- */

enum {
    STEPS = 20000,
    LIVE_MAX = 600
};

/* `size`: the usable size, all of which is written. */
typedef struct live_one {
    char *payload;
    uint64_t size;
    unsigned char tag;
} live_one;

typedef struct script {
    coalesce_world *world;
    uint64_t random;
    live_one live[LIVE_MAX + 2 * LANES];
    uint32_t count;
} script;

static uint64_t some_size(uint64_t *random)
{
    static const uint32_t bounds[] = {2, 5, 33, 130, 1025, 4097};
    if (random_below(random, 200) == 0) {
        return UINT64_MAX - random_below(random, 100);
    }
    return random_below(random, bounds[random_below(random, 6)]);
}

/* No two of those that are live share a byte, nor touch another's header. */
static void assert_apart(const script *s, const live_one *one)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const live_one *other = &s->live[i];
        bool apart = one->payload + one->size <= other->payload ||
                     other->payload + other->size <= one->payload;
        if (!apart || one->payload == other->payload) { /* each assertion writes a shared counter */
            cr_assert_fail("%s: %llu bytes at %p and %llu at %p overlap",
                           forms[s->world->view.form], (unsigned long long)one->size,
                           (void *)one->payload, (unsigned long long)other->size,
                           (void *)other->payload);
        }
    }
}

static void assert_inside(const script *s, const live_one *one)
{
    uint64_t place = world_place(s->world, one->payload);
    const char *start = s->world->memory + place * s->world->slot_bytes;
    cr_assert_lt(place, s->world->slot_count);
    cr_assert_leq(one->payload + one->size, start + s->world->slots[place].bytes,
                  "%s: beyond its superblock", forms[s->world->view.form]);
}

static void step_malloc(script *s)
{
    uint64_t sizes[LANES] = {0};
    char *payloads[LANES];
    uint32_t wanting = (uint32_t)random_next(&s->random);
    bool equal = random_below(&s->random, 3) == 0;
    wanting &= random_below(&s->random, 2) ? GA_ALL_BITS : (uint32_t)random_next(&s->random);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        sizes[lane] = equal && lane ? sizes[0] : some_size(&s->random);
    }
    world_malloc(s->world, wanting, sizes, payloads);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        cr_assert(!payloads[lane] || (wanting >> lane & 1u), "lane %u did not ask", lane);
        if (payloads[lane]) {
            live_one one = {payloads[lane], world_usable_of(s->world, payloads[lane]),
                            (unsigned char)random_next(&s->random)};
            assert_aligned(s->world->view.form, sizes[lane], one.payload);
            cr_assert_geq(one.size, sizes[lane]);
            cr_assert_leq(one.size, sizes[lane] + 16);
            assert_inside(s, &one);
            assert_apart(s, &one);
            memset(one.payload, one.tag, one.size);
            s->live[s->count++] = one;
        }
    }
}

static void assert_filled(const script *s, const live_one *one)
{
    uint64_t byte = 0;
    while (byte < one->size && (unsigned char)one->payload[byte] == one->tag) {
        byte++;
    }
    cr_assert_eq(byte, one->size, "%s: byte %llu of %llu", forms[s->world->view.form],
                 (unsigned long long)byte, (unsigned long long)one->size);
}

static void step_free(script *s)
{
    char *payloads[LANES] = {NULL};
    uint32_t giving = (uint32_t)random_next(&s->random);
    bool neighbours = random_below(&s->random, 2);
    size_t at = s->count ? random_below(&s->random, s->count) : 0;
    for (uint32_t lane = 0; lane < LANES && s->count; lane++) {
        if ((giving >> lane & 1u) && random_below(&s->random, 10)) {
            at = neighbours && at < s->count ? at : random_below(&s->random, s->count);
            live_one *one = &s->live[at];
            assert_filled(s, one);
            payloads[lane] = one->payload;
            *one = s->live[--s->count];
        }
    }
    world_free(s->world, giving, payloads);
}

static void run_script(uint32_t form, uint32_t max, bool plain)
{
    script *s = calloc(1, sizeof *s);
    s->world = world_new(form, GA_COALESCE_NO_BARE, 0, plain ? 800 : 200, SLOT);
    s->world->view.max = max;
    s->world->view.plain = plain;
    s->random = form + max;
    for (uint32_t step = 0; step < STEPS; step++) {
        s->world->fails_at = random_below(&s->random, 20) ? UINT64_MAX : s->world->claims;
        s->world->fails_to = s->world->fails_at == UINT64_MAX ? 0 : s->world->fails_at + 3;
        bool goes_up = random_below(&s->random, 100) < (step / 256 % 2 ? 60u : 40u);
        if (s->count < LIVE_MAX && goes_up) {
            step_malloc(s);
        } else {
            step_free(s);
        }
    }
    while (s->count) {
        step_free(s);
    }
    assert_clean(s->world, forms[form]);
    world_delete(s->world);
    free(s);
}

Test(coalesce_tile, a_script_of_chance)
{
    EACH_FORM(form)
    {
        run_script(form, GA_COALESCE_MAX, false);
        run_script(form, 700, false);
    }
    run_script(GA_COALESCE_HEADERLESS, GA_COALESCE_MAX, true);
    run_script(GA_COALESCE_HEADERLESS, 700, true);
}
