/* SPDX-License-Identifier: MIT
 *
 * The layout of segments in superblocks: the contents of headers, and the distance and alignment of
 * payloads in each form.
 */
#include "support/coalesce_forms.h"
#include "support/expect.h"

/* ---- headers --------------------------------------------------------------------------------- */

Test(coalesce_segments, a_header_is_found_by_its_payload)
{
    static const uint32_t heads[16] = {8, 0, 2, 0, 4, 0, 2, 0, 8, 0, 2, 0, 4, 0, 2, 0};
    for (uintptr_t i = 0; i < 16; i++) {
        cr_assert_eq(ga_segment_header_bytes((const char *)(0x1000 + i)), heads[i],
                     "payload at %zu mod 16", (size_t)i);
    }
}

Test(coalesce_segments, a_header_keeps_distance_and_flags)
{
    static uint64_t memory[8];
    static const struct {
        uint32_t at, head;
        uint64_t distance;
    } cases[] = {{16, 8, 1u << 30}, {12, 4, 1u << 28}, {10, 2, 16382}};
    for (size_t i = 0; i < 3; i++) {
        char *payload = (char *)memory + cases[i].at;
        memset(memory, 0xff, sizeof memory);
        for (uint64_t flags = 0; flags < 8; flags++) {
            uint64_t header = ga_segment_header(cases[i].distance, flags);
            ga_segment_write(payload, cases[i].head, header);
            cr_assert_eq(ga_segment_read_relaxed(payload), header);
            cr_assert_eq(ga_segment_distance(header), cases[i].distance);
            cr_assert_eq((unsigned char)payload[0], 0xff, "the payload was written to");
            cr_assert_eq((unsigned char)payload[-(int)cases[i].head - 1], 0xff, "too far down");
        }
    }
}

/* The room that a header of 4 or 8 bytes encodes does not depend on its other fields. A header of 2
 * bytes always encodes 2. */
Test(coalesce_segments, a_header_keeps_the_room)
{
    static uint64_t memory[8];
    static const struct {
        uint32_t at, head;
        uint64_t distance, room;
    } cases[] = {{16, 8, ((uint64_t)1 << 29) - 2, ((uint64_t)1 << 31) - 2},
                 {16, 8, 8, 2},
                 {16, 8, ((uint64_t)1 << 26) + 40, (uint64_t)1 << 26},
                 {12, 4, 32766, 32766},
                 {12, 4, 4, 2},
                 {10, 2, 16382, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *payload = (char *)memory + cases[i].at;
        for (uint64_t flags = 0; flags < 8; flags++) {
            uint64_t header = ga_segment_header(cases[i].distance, flags);
            header = ga_segment_with_room(header, cases[i].head, cases[i].room);
            ga_segment_write(payload, cases[i].head, header);
            uint64_t read = ga_segment_read_relaxed(payload);
            cr_assert_eq(ga_segment_distance(read), cases[i].distance, "case %zu", i);
            cr_assert_eq(ga_segment_room(payload, read), cases[i].room, "case %zu", i);
            cr_assert_eq(read & GA_SEGMENT_FLAGS, flags);
            cr_assert_eq(read & GA_SEGMENT_STATIC, 0);
        }
    }
}

/* ---- positions of segments ---------------------------------------------------------------- */

/* All lanes request `size` bytes: check the distance of payloads and the size of the superblock. */
static void assert_layout(uint32_t form, uint64_t size, uint32_t apart, uint32_t bytes)
{
    coalesce_world *world = world_of(form);
    uint64_t sizes[LANES];
    char *payloads[LANES];
    for (int i = 0; i < LANES; i++) {
        sizes[i] = size;
    }
    world_malloc(world, GA_ALL_BITS, sizes, payloads);
    for (int i = 0; i < LANES; i++) {
        cr_assert_eq(payloads[i] - payloads[0], i * (int)apart, "%s: lane %d stands %td bytes on",
                     forms[form], i, payloads[i] - payloads[0]);
        assert_aligned(form, size, payloads[i]);
    }
    uint64_t got = world->slots[world_place(world, payloads[0])].bytes;
    cr_assert_eq(got, bytes, "%s: %llu bytes each, %llu in all, expected %u", forms[form],
                 (unsigned long long)size, (unsigned long long)got, bytes);
    cr_assert_eq(world->claims, 1, "one call of the parent's for all");
    world_free(world, GA_ALL_BITS, payloads);
    assert_clean(world, forms[form]);
    world_delete(world);
}

Test(coalesce_segments, segments_stand_close)
{
    assert_layout(GA_COALESCE_AUTO, 100, 104, 32 * 104); /* 25 floats, headers of 4 bytes */
    assert_layout(GA_COALESCE_AUTO, 200, 208, 32 * 208); /* headers of 8 bytes */
    assert_layout(GA_COALESCE_AUTO, 2, 4, 32 * 4);       /* headers of 2 bytes */
    assert_layout(GA_COALESCE_AUTO, 3, 8, 32 * 8);
    assert_layout(GA_COALESCE_AUTO, 0, 4, 32 * 4);
    assert_layout(GA_COALESCE_AUTO, 5, 16, 32 * 16);
    assert_layout(GA_COALESCE_AUTO, 4, 8, 32 * 8);
    assert_layout(GA_COALESCE_EIGHT, 100, 112, 32 * 112);
    assert_layout(GA_COALESCE_EIGHT, 1, 16, 32 * 16);
    assert_layout(GA_COALESCE_SIXTEEN, 100, 112, 8 + 32 * 112);
    assert_layout(GA_COALESCE_SIXTEEN, 24, 32, 8 + 32 * 32);
    assert_layout(GA_COALESCE_SIXTEEN, 0, 16, 8 + 32 * 16);
    assert_layout(GA_COALESCE_HEADERLESS, 100, 112, 32 * 112);
    assert_layout(GA_COALESCE_HEADERLESS, 0, 16, 32 * 16);
    assert_layout(GA_COALESCE_HEADERLESS, 4096, 4096, 32 * 4096);
}

/* A tiny request among larger ones has a longer header, and keeps its alignment. */
Test(coalesce_segments, tiny_ones_among_others)
{
    coalesce_world *world = world_of(GA_COALESCE_AUTO);
    uint64_t sizes[LANES] = {2, 8, 1, 12, 3, 0, 4096, 2};
    char *payloads[LANES];
    world_malloc(world, 0xff, sizes, payloads);
    for (int i = 0; i < 8; i++) {
        assert_aligned(GA_COALESCE_AUTO, sizes[i], payloads[i]);
        cr_assert_eq(ga_segment_header_bytes(payloads[i]), sizes[i] % 8 || !sizes[i] ? 4 : 8);
    }
    world_free(world, 0xff, payloads);
    assert_clean(world, "tiny");
    world_delete(world);
}
