/* SPDX-License-Identifier: MIT
 *
 * The usable size of payloads, in all forms: at least the requested size, and no byte of another
 * payload; also with alignments.
 */
#include "support/coalesce_forms.h"
#include "support/expect.h"

static const uint32_t natural[] = {2, 8, 16, 16}; /* the alignment of all payloads */

/* The requested size, and the padding up to the next segment. */
static void assert_usable(const coalesce_world *world, const char *payload, uint64_t size)
{
    uint64_t usable = world_usable_of(world, payload);
    cr_assert(usable >= size && usable <= size + 16, "%s: %llu bytes asked for, %llu told",
              forms[world->view.form], (unsigned long long)size, (unsigned long long)usable);
}

/* All lanes request one size, then different sizes. Payloads are freed one after the other, and the
 * rest keep their contents. */
Test(coalesce_sizes, payloads_know_their_size)
{
    static const uint64_t bases[] = {0, 1, 2, 3, 4, 24, 100, 900, 16384, 16385, 50000};
    EACH_FORM(form)
    {
        for (size_t b = 0; b < sizeof bases / sizeof *bases; b++) {
            for (uint32_t apart = 0; apart < 50; apart += 7) {
                coalesce_world *world = world_new(form, GA_COALESCE_NO_BARE, 0, SLOTS, 1 << 21);
                if (form != GA_COALESCE_HEADERLESS && apart % 2) {
                    world->host.find = NULL; /* a parent that cannot, as CUDA's malloc */
                }
                uint64_t sizes[LANES];
                char *payloads[LANES];
                for (uint32_t i = 0; i < LANES; i++) {
                    sizes[i] = bases[b] + (i * 5 % 7) * apart;
                }
                world_malloc(world, 0xff7fffefu, sizes, payloads);
                cr_assert_eq(world_live(world), 1);
                for (uint32_t i = 0; i < LANES; i++) {
                    for (uint32_t j = i; payloads[i] && j < LANES; j++) {
                        if (payloads[j]) {
                            assert_usable(world, payloads[j], sizes[j]);
                            memset(payloads[j], 0x5a, world_usable_of(world, payloads[j]));
                        }
                    }
                    world_free_one(world, 31 - i, payloads[i]);
                }
                cr_assert_eq(world_usable_of(world, NULL), 0);
                assert_clean(world, forms[form]);
                world_delete(world);
            }
        }
    }
}

/* Payloads that are served alone, and payloads that are plain blocks. */
Test(coalesce_sizes, payloads_that_stand_alone_know_their_size)
{
    EACH_FORM(form)
    {
        for (uint32_t plain = 0; plain < (form == GA_COALESCE_HEADERLESS ? 2u : 1u); plain++) {
            coalesce_world *world = world_of(form);
            uint64_t sizes[LANES];
            char *payloads[LANES];
            world->view.max = 1;
            world->view.plain = plain;
            for (uint32_t i = 0; i < LANES; i++) {
                sizes[i] = 2 + i * i * 100;
            }
            world_malloc(world, GA_ALL_BITS, sizes, payloads);
            cr_assert_eq(world_live(world), LANES);
            for (uint32_t i = 0; i < LANES; i++) {
                cr_assert_eq(world_usable_of(world, payloads[i]), sizes[i], "%s: %llu of %llu",
                             forms[form], (unsigned long long)world_usable_of(world, payloads[i]),
                             (unsigned long long)sizes[i]);
                memset(payloads[i], 0x33, sizes[i]);
            }
            world_free(world, GA_ALL_BITS, payloads);
            assert_clean(world, forms[form]);
            world_delete(world);
        }
    }
}

/* More than a header can encode. */
Test(coalesce_sizes, a_payload_of_gigabytes_knows_its_size)
{
    EACH_FORM(form)
    {
        static const uint64_t sizes[32] = {[3] = (uint64_t)5 << 30};
        coalesce_world *world = world_new(form, GA_COALESCE_NO_BARE, 0, 1, (size_t)6 << 30);
        char *payloads[LANES];
        world_malloc(world, 1u << 3, sizes, payloads);
        cr_assert(payloads[3]);
        cr_assert_eq(world_usable_of(world, payloads[3]), sizes[3]);
        world_free_one(world, 8, payloads[3]);
        assert_clean(world, forms[form]);
        world_delete(world);
    }
}

/* Without headers from any address inside to the payload's end. */
Test(coalesce_sizes, an_address_inside_knows_the_rest)
{
    for (uint32_t apart = 0; apart < 300; apart += 150) {
        coalesce_world *world = world_of(GA_COALESCE_HEADERLESS);
        uint64_t sizes[LANES];
        char *payloads[LANES];
        for (uint32_t i = 0; i < LANES; i++) {
            sizes[i] = 16 + i % 3 * apart;
        }
        world_malloc(world, GA_ALL_BITS, sizes, payloads);
        for (uint32_t i = 0; i < LANES; i++) {
            uint64_t all = world_usable_of(world, payloads[i]);
            for (uint64_t in = 0; in < all; in += 5) {
                cr_assert_eq(world_usable_of(world, payloads[i] + in), all - in);
            }
        }
        world_free(world, GA_ALL_BITS, payloads);
        cr_assert_eq(world_usable_of(world, payloads[3]), 0, "the superblock is gone");
        assert_clean(world, "inside");
        world_delete(world);
    }
    char beside[8];
    EACH_FORM(form)
    {
        coalesce_world *world = world_of(form);
        char *payloads[LANES];
        uint64_t sizes[LANES] = {40, 8};
        cr_assert_eq(world_usable_of(world, beside + (((uintptr_t)beside & 1u) ^ 1u)), 0);
        world_malloc(world, 3, sizes, payloads);
        world_free_one(world, 0, payloads[0]);
        if (form != GA_COALESCE_HEADERLESS) {
            cr_assert_eq(world_usable_of(world, payloads[0]), 0, "%s: it is free", forms[form]);
        }
        cr_assert_geq(world_usable_of(world, payloads[1]), 8);
        world_free_one(world, 9, payloads[1]);
        assert_clean(world, forms[form]);
        world_delete(world);
    }
}

/* ---- aligned --------------------------------------------------------------------------------- */

static uint32_t shuffled(uint64_t *random, uint32_t *order)
{
    for (uint32_t i = 0; i < LANES; i++) {
        uint32_t at = (uint32_t)random_below(random, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    return 1 + (uint32_t)random_below(random, LANES);
}

static void assert_multiples(const coalesce_world *world, uint32_t lanes, const uint64_t *sizes,
                             const uint32_t *aligns, char *const *payloads)
{
    for (uint32_t i = 0; i < LANES; i++) {
        if (payloads[i]) {
            uint64_t usable = world_usable_of(world, payloads[i]);
            cr_assert(lanes >> i & 1u);
            cr_assert_eq((uintptr_t)payloads[i] % aligns[i], 0, "%s: %p, expected a multiple of %u",
                         forms[world->view.form], (void *)payloads[i], aligns[i]);
            cr_assert_eq((uintptr_t)payloads[i] % natural[world->view.form], 0);
            cr_assert(usable >= sizes[i] && usable <= sizes[i] + aligns[i] + 16,
                      "%s: %llu bytes at %u: %llu", forms[world->view.form],
                      (unsigned long long)sizes[i], aligns[i], (unsigned long long)usable);
            memset(payloads[i], (int)i, usable);
        }
    }
}

/* With headers: random multiples, some payloads served alone, freed in any order by tiles of any
 * size. Payloads do not overlap. */
static void aligned_rounds(uint32_t form, uint32_t max)
{
    coalesce_world *world = world_of(form);
    uint64_t random = form + max;
    world->view.max = max;
    for (int round = 0; round < 400; round++) {
        uint64_t sizes[LANES];
        uint32_t aligns[LANES], order[LANES], at = 0;
        char *payloads[LANES];
        uint32_t wanting = (uint32_t)random_next(&random) | 1u;
        for (uint32_t i = 0; i < LANES; i++) {
            sizes[i] = random_below(&random, 200);
            aligns[i] = 1u << random_below(&random, 13);
        }
        world_malloc_aligned(world, wanting, sizes, aligns, payloads);
        assert_multiples(world, wanting, sizes, aligns, payloads);
        uint32_t together = shuffled(&random, order);
        while (at < LANES) {
            char *some[LANES] = {NULL};
            for (uint32_t i = 0; i < together && at < LANES; i++, at++) {
                char *payload = payloads[order[at]];
                uint64_t usable = payload ? world_usable_of(world, payload) : 0;
                for (uint64_t byte = 0; byte < usable; byte++) {
                    cr_assert_eq((unsigned char)payload[byte], order[at], "%s", forms[form]);
                }
                some[i] = payload;
            }
            world_free(world, GA_ALL_BITS, some);
        }
        assert_clean(world, forms[form]);
    }
    world_delete(world);
}

Test(coalesce_sizes, aligned_payloads_behind_headers)
{
    for (uint32_t form = GA_COALESCE_AUTO; form <= GA_COALESCE_SIXTEEN; form++) {
        aligned_rounds(form, GA_COALESCE_MAX);
        aligned_rounds(form, 1000);
        aligned_rounds(form, 1);
    }
}

/* One call of the parent for all lanes, as without an alignment; and one large multiple. */
Test(coalesce_sizes, aligned_payloads_share_a_superblock)
{
    for (uint32_t form = GA_COALESCE_AUTO; form <= GA_COALESCE_SIXTEEN; form++) {
        coalesce_world *world = world_new(form, GA_COALESCE_NO_BARE, 0, 4, (size_t)1 << 30);
        uint64_t sizes[LANES] = {0};
        uint32_t aligns[LANES];
        char *payloads[LANES];
        for (uint32_t i = 0; i < LANES; i++) {
            aligns[i] = 4096;
        }
        world_malloc_aligned(world, GA_ALL_BITS, sizes, aligns, payloads);
        cr_assert_eq(world->claims, 1);
        cr_assert_eq(world_live(world), 1);
        world_free(world, GA_ALL_BITS, payloads);
        aligns[6] = (uint32_t)GA_COALESCE_ALIGN_MAX;
        sizes[6] = 1000;
        world_malloc_aligned(world, 1u << 6, sizes, aligns, payloads);
        cr_assert(payloads[6]);
        cr_assert_eq((uintptr_t)payloads[6] % GA_COALESCE_ALIGN_MAX, 0);
        cr_assert_geq(world_usable_of(world, payloads[6]), 1000);
        world_free_one(world, 1, payloads[6]);
        assert_clean(world, forms[form]);
        world_delete(world);
    }
}
