/* SPDX-License-Identifier: MIT
 *
 * Dynamic coalescing over tiles, for CPU and GPU (warp-coalescing-gpumpi-2022, §3.2;
 * docs/coalesce.md has the drawing): what the lanes of a tile want at the same time becomes one
 * block of the parent's.
 *
 * STRUCTURE  segment.h: superblocks with headers. coalesce_count.h: those without. A lane that
 *            wants more than `most` has a superblock of its own, of one segment; so has each lane
 *            where one for all is not to be had.
 *
 * INVARIANT  Each superblock is of one kind: all of its payloads have headers, or none has. A plain
 *            block is one payload, and no superblock.
 *
 * ORDER      What its users did with a payload happens before the superblock goes back to the
 *            parent, and so before what the next owner of its memory does (S, C). What a tile wrote
 *            into headers and counters happens before any of its payloads is used: the tile
 *            synchronises before it answers, and a program that hands a payload on orders that
 *            itself.
 *
 * PROGRESS   One call of the parent's for a tile, or one for each lane; a free as segment.h says,
 *            and one call of the parent's where it takes the last payload of a superblock.
 */
#ifndef GPUALLOC_COALESCE_COALESCE_TILE_H
#define GPUALLOC_COALESCE_COALESCE_TILE_H

#include "coalesce_count.h"

/* ---- malloc: where segments stand ------------------------------------------------------------ */

/* Each lane's header, and its whole segment, in bytes; 0 for lanes that have none. What stands
 * before the first header. */
typedef struct ga_coalesce_plan {
    ga_lanes heads;
    ga_lanes spans;
    uint32_t before;
} ga_coalesce_plan;

/* What each lane wants. `aligns`: powers of two, GA_COALESCE_ALIGN_MOST at most, that their
 * payloads, which have headers then, are multiples of; NULL: as the form has it. */
typedef struct ga_coalesce_wish {
    ga_wide sizes;
    const ga_lanes *aligns;
} ga_coalesce_wish;

GA_SIMT uint32_t ga_coalesce_up(uint32_t bytes, uint32_t granule)
{
    return (bytes + granule - 1u) & ~(granule - 1u);
}

/* The shortest header that serves all of the tile: of 2 bytes where all want under 3; else they
 * would save nothing. Of 4 where all can tell their room in it. */
GA_SIMT uint32_t ga_coalesce_shortest(uint32_t form, ga_tile tile, uint32_t wanting, ga_lanes sizes,
                                      bool natural)
{
    if (form != GA_COALESCE_AUTO || !natural) {
        return form == GA_COALESCE_HEADERLESS ? 0 : 8u;
    }
    bool tiny = !(ga_lanes_nonzero(tile, sizes / 3u) & wanting);
    bool near = !(ga_lanes_nonzero(tile, sizes / (GA_SEGMENT_NEAR_MOST + 1u)) & wanting);
    return tiny ? 2u : near ? 4u : 8u;
}

/* The header of a payload of `size` bytes. What is under 3 bytes holds nothing that must be aligned
 * to more than 2, and what is no multiple of 8 nothing that must be to more than 4. */
GA_SIMT uint32_t ga_coalesce_head(uint32_t shortest, uint32_t size)
{
    return shortest == 4u && !(size & 7u) ? 8u : shortest;
}

/* What segments are multiples of, so that sums of them are places of headers. */
GA_SIMT uint32_t ga_coalesce_granule(uint32_t form, uint32_t shortest)
{
    return form >= GA_COALESCE_SIXTEEN ? 16u : shortest == 2u ? 4u : 8u;
}

/* The lanes of the mask want so much each. Who is to be aligned has room for that as well. */
GA_SIMT ga_coalesce_plan ga_coalesce_plan_of(uint32_t form, ga_tile tile, uint32_t wanting,
                                             ga_coalesce_wish wish)
{
    ga_coalesce_plan plan;
    ga_lanes sizes = wish.sizes.low;
    uint32_t shortest = ga_coalesce_shortest(form, tile, wanting, sizes, !wish.aligns);
    uint32_t granule = ga_coalesce_granule(form, shortest);
    plan.heads = ga_lanes_all(0);
    plan.spans = ga_lanes_all(0);
    plan.before = form == GA_COALESCE_SIXTEEN ? 8u : 0;
    GA_EACH_LANE(tile, wanting, own)
    {
        uint32_t size = ga_lane_read(sizes, own);
        size += size ? 0 : 1u;
        uint32_t head = ga_coalesce_head(shortest, size);
        size += wish.aligns ? ga_lane_read(*wish.aligns, own) : 0;
        ga_lane_write(&plan.heads, own, head);
        ga_lane_write(&plan.spans, own, ga_coalesce_up(head + size, granule));
    }
    return plan;
}

/* ---- malloc ---------------------------------------------------------------------------------- */

/* The note of a superblock that the parent finds and whose payloads have headers, which count
 * them: 0. By one lane. */
GA_SIMT void ga_coalesce_note_none(ga_coalesce_view view, char *block)
{
    if (view.bare == GA_COALESCE_BY_NOTE) {
        ga_count_begin(ga_parent_note(view.parent, block), 0, GA_COUNT_ALONE);
    }
}

/* Payloads with headers at `places` of the superblock `block`; segments end at `ends`. */
GA_SIMT void ga_coalesce_place_segments(ga_coalesce_view view, ga_tile tile, uint32_t wanting,
                                        char *block, ga_lanes heads, ga_lanes places, ga_lanes ends)
{
    uint32_t first = ga_bits_lowest(wanting);
    uint32_t last = 31u - ga_bits_leading(wanting);
    ga_lanes before = ga_lanes_previous(tile, wanting, places);
    GA_EACH_LANE(tile, wanting, own)
    {
        uint32_t place = ga_lane_read(places, own);
        uint32_t head = ga_lane_read(heads, own);
        uint64_t flags =
            (own == first ? GA_SEGMENT_FIRST : 0) | (own == last ? GA_SEGMENT_LAST : 0);
        uint64_t header = ga_segment_header(place - ga_lane_read(before, own), flags);
        if (own == first) {
            ga_coalesce_note_none(view, block);
        }
        ga_segment_write(block + place, head,
                         ga_segment_with_room(header, head, ga_lane_read(ends, own) - place));
    }
}

/* Payloads without headers, which end at `ends` of the superblock: the word for how far they are
 * apart, or, where `table` is not 0, a table there. */
GA_SIMT void ga_coalesce_place_counted(ga_coalesce_view view, ga_tile tile, uint32_t wanting,
                                       char *block, ga_lanes spans, ga_lanes ends, uint32_t table)
{
    GA_EACH_LANE(tile, wanting, own)
    {
        uint32_t rank = ga_bits_count(wanting & ga_bits_below(own));
        uint32_t *note = ga_parent_note(view.parent, block);
        if (table) { /* relaxed: nobody else has a payload of it yet */
            ga_store_relaxed((uint32_t *)(block + table) + rank, ga_lane_read(ends, own));
        }
        if (!rank && table) {
            ga_count_begin_table(note, ga_bits_count(wanting), table);
        } else if (!rank) {
            ga_count_begin(note, ga_bits_count(wanting), ga_lane_read(spans, own) / 4u);
        }
    }
}

/* Whether lanes of the mask have different spans. */
GA_SIMT bool ga_coalesce_differ(ga_tile tile, uint32_t wanting, ga_lanes spans)
{
    ga_lanes one = ga_lanes_all(ga_lanes_get(tile, spans, ga_bits_lowest(wanting)));
    return (ga_lanes_nonzero(tile, spans ^ one) & wanting) != 0;
}

/* So much is between each lane's place of the superblock and the next multiple of its `aligns`. */
GA_SIMT ga_lanes ga_coalesce_pads(ga_tile tile, uint32_t wanting, const char *block,
                                  ga_lanes places, ga_lanes aligns)
{
    ga_lanes pads = ga_lanes_all(0);
    GA_EACH_LANE(tile, wanting, own)
    {
        uint32_t low = (uint32_t)(uintptr_t)block + ga_lane_read(places, own);
        ga_lane_write(&pads, own, (0u - low) & (ga_lane_read(aligns, own) - 1u));
    }
    return pads;
}

/* One superblock for the lanes of the mask (not empty). False: the parent has none, nothing is
 * done. */
GA_SIMT bool ga_coalesce_claim_together(ga_coalesce_view view, ga_tile tile, uint32_t wanting,
                                        ga_coalesce_wish wish, ga_wide *payloads)
{
    ga_coalesce_plan plan = ga_coalesce_plan_of(view.form, tile, wanting, wish);
    /* From the superblock to the payload. Sums are below 2^32: GA_COALESCE_MOST. */
    ga_lanes places = ga_lanes_prefix_sum(tile, plan.spans) + plan.heads + plan.before;
    ga_lanes ends = places + plan.spans - plan.heads;
    uint32_t bytes = ga_lanes_get(tile, ends, 31u - ga_bits_leading(wanting));
    bool bare = view.form == GA_COALESCE_HEADERLESS;
    uint32_t table = bare && ga_coalesce_differ(tile, wanting, plan.spans) ? bytes : 0;
    char *block =
        ga_parent_claim(view.parent, tile, bytes + (table ? 4u * ga_bits_count(wanting) : 0));
    if (!block) {
        return false;
    }
    if (wish.aligns) {
        places = places + ga_coalesce_pads(tile, wanting, block, places, *wish.aligns);
    }
    if (bare) {
        ga_coalesce_place_counted(view, tile, wanting, block, plan.spans, ends, table);
    } else {
        ga_coalesce_place_segments(view, tile, wanting, block, plan.heads, places, ends);
    }
    GA_EACH_LANE(tile, wanting, own)
    {
        ga_wide_write(payloads, own, (uint64_t)(block + ga_lane_read(places, own)));
    }
    return true;
}

/* The one payload of a superblock of `bytes`, by one lane. */
GA_SIMT char *ga_coalesce_place_alone(ga_coalesce_view view, char *block, uint64_t bytes,
                                      uint32_t align)
{
    if (view.form == GA_COALESCE_HEADERLESS) {
        ga_count_begin(ga_parent_note(view.parent, block), 1u, GA_COUNT_ALONE);
        return block;
    }
    uint32_t low = (uint32_t)(uintptr_t)block + GA_COALESCE_ALIGN;
    uint64_t before = GA_COALESCE_ALIGN + (uint64_t)((0u - low) & (align - 1u));
    ga_coalesce_note_none(view, block);
    ga_store64_relaxed((uint64_t *)block, bytes - before);
    ga_segment_write(block + before, 8u,
                     ga_segment_header(before, GA_SEGMENT_FIRST | GA_SEGMENT_LAST));
    return block + before;
}

/* A superblock for each lane of the mask; lanes for which there is none keep 0. */
GA_SIMT void ga_coalesce_claim_alone(ga_coalesce_view view, ga_tile tile, uint32_t wanting,
                                     ga_coalesce_wish wish, ga_wide *payloads)
{
    if (view.plain) {
        ga_wide plain = ga_parent_claim_plain(view.parent, tile, wanting, wish.sizes);
        GA_EACH_LANE(tile, wanting, own)
        {
            ga_wide_write(payloads, own, ga_wide_read(plain, own));
        }
        return;
    }
    uint32_t before = view.form == GA_COALESCE_HEADERLESS ? 0 : GA_COALESCE_ALIGN;
    ga_wide bytes = ga_wide_all(0);
    GA_EACH_LANE(tile, wanting, own)
    {
        uint64_t size = ga_wide_read(wish.sizes, own);
        bool huge = size > GA_COALESCE_HUGE;
        size += wish.aligns ? ga_lane_read(*wish.aligns, own) : 0;
        ga_wide_write(&bytes, own, huge ? 0 : size + (size ? 0 : 1u) + before);
    }
    wanting &= ga_wide_nonzero(tile, bytes);
    ga_wide blocks = ga_parent_claim_lanes(view.parent, tile, wanting, bytes);
    GA_EACH_LANE(tile, wanting, own)
    {
        char *block = (char *)ga_wide_read(blocks, own);
        if (block) {
            uint32_t align = wish.aligns ? ga_lane_read(*wish.aligns, own) : 1u;
            char *payload = ga_coalesce_place_alone(view, block, ga_wide_read(bytes, own), align);
            ga_wide_write(payloads, own, (uint64_t)payload);
        }
    }
}

/* Superblocks for the lanes of the mask: one for all that want no more than `most`. */
GA_SIMT ga_wide ga_coalesce_claim_superblocks(ga_coalesce_view view, ga_tile tile, uint32_t wanting,
                                              ga_coalesce_wish wish)
{
    ga_wide payloads = ga_wide_all(0);
    ga_lanes large = ga_lanes_all(0);
    GA_EACH_LANE(tile, wanting, own)
    {
        uint64_t size = ga_wide_read(wish.sizes, own);
        uint32_t align = wish.aligns ? ga_lane_read(*wish.aligns, own) : 0;
        bool fits = size <= view.most && align <= view.most - size;
        ga_lane_write(&large, own, fits ? 0 : 1u);
    }
    uint32_t alone = ga_lanes_nonzero(tile, large);
    uint32_t together = wanting & ~alone;
    if (together && !ga_coalesce_claim_together(view, tile, together, wish, &payloads)) {
        alone |= together;
        GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
        {
            (void)own;
            ga_post_add64_relaxed(&view.heap->lone,
                                  ga_bits_count(together)); /* relaxed: a figure */
        }
    }
    if (alone) {
        ga_coalesce_claim_alone(view, tile, alone, wish, &payloads);
    }
    ga_tile_sync(tile); /* headers and counters are there before a payload is */
    return payloads;
}

/* A payload of so many bytes for each lane of the mask, 0 for those that get none and for others.
 * Who wants 0 bytes gets a payload of its own, too. */
GA_SIMT ga_wide ga_coalesce_claim(ga_coalesce_view view, ga_tile tile, uint32_t wanting,
                                  ga_wide sizes)
{
    bool plain = view.single || (view.plain && wanting &&
                                 ga_parent_serves_plainly(view.parent, tile, wanting, sizes));
    if (plain) {
        return ga_parent_claim_plain(view.parent, tile, wanting, sizes);
    }
    ga_coalesce_wish wish = {sizes, NULL};
    return ga_coalesce_claim_superblocks(view, tile, wanting, wish);
}

/* The same in a heap with headers, at multiples of what `aligns` has for each lane, a power of two
 * up to GA_COALESCE_ALIGN_MOST. */
GA_SIMT ga_wide ga_coalesce_claim_aligned(ga_coalesce_view view, ga_tile tile, uint32_t wanting,
                                          ga_wide sizes, ga_lanes aligns)
{
    ga_coalesce_wish wish = {sizes, &aligns};
    return ga_coalesce_claim_superblocks(view, tile, wanting, wish);
}

/* ---- free: superblocks without headers ------------------------------------------------------- */

/* The lanes of the mask whose payloads are of counted superblocks; and which those are. Those that
 * have plain blocks, too. */
GA_SIMT uint32_t ga_coalesce_find_notes(ga_coalesce_view view, ga_tile tile, uint32_t giving,
                                        ga_wide payloads, ga_counted *counted, uint32_t *plain)
{
    ga_wide counters = ga_wide_all(0);
    ga_lanes alone = ga_lanes_all(0);
    GA_EACH_LANE(tile, giving, own)
    {
        ga_parent_found found =
            ga_parent_find(view.parent, (const char *)ga_wide_read(payloads, own));
        /* relaxed: while a payload lives, its superblock's note is 0 or is not. */
        if (found.note && ga_load_relaxed(found.note)) {
            ga_counted_write(counted, own, found.note, found.start);
            ga_wide_write(&counters, own, (uint64_t)found.note);
        }
        ga_lane_write(&alone, own, found.start && !found.note ? 1u : 0);
    }
    *plain = ga_lanes_nonzero(tile, alone);
    return ga_wide_nonzero(tile, counters);
}

/* The same by the map, which forgets them. */
GA_SIMT uint32_t ga_coalesce_find_mapped(ga_coalesce_view view, ga_tile tile, uint32_t giving,
                                         ga_wide payloads, ga_counted *counted)
{
    ga_map *map = &view.heap->map;
    ga_wide counters = ga_wide_all(0);
    GA_EACH_LANE(tile, giving, own)
    {
        /* relaxed: a payload that the map has was counted before it was handed out. */
        uint64_t block =
            ga_load_relaxed(&map->live) == 0 ? 0 : ga_map_remove(map, ga_wide_read(payloads, own));
        if (block) {
            ga_counted_write(counted, own, (const void *)block, (const void *)block);
            ga_wide_write(&counters, own, block);
        }
    }
    return ga_wide_nonzero(tile, counters);
}

/* ---- free: segments -------------------------------------------------------------------------- */

/* The lowest segment that can be reached from that of `lane` through those that the tile has just
 * marked: `linked` are the lanes whose segment comes right after that of the lane before them. */
GA_SIMT uint32_t ga_coalesce_lowest(uint32_t marked, uint32_t linked, uint32_t lane)
{
    uint32_t ends = marked & ~linked & ga_bits_below(lane + 1u);
    return 31u - ga_bits_leading(ends);
}

/* The lanes of `marked` whose segments stand right above that of the lane before. */
GA_SIMT uint32_t ga_coalesce_linked(ga_tile tile, uint32_t marked, ga_wide payloads,
                                    ga_wide headers)
{
    ga_wide below = ga_wide_all(0);
    GA_EACH_LANE(tile, marked, own)
    {
        uint64_t header = ga_wide_read(headers, own);
        ga_wide_write(&below, own, ga_wide_read(payloads, own) - ga_segment_distance(header));
    }
    /* The first lane has 0 before it, and no superblock is there. A first segment's `below` is its
     * superblock, which is no payload. */
    return ga_wide_same(tile, below, ga_wide_previous(tile, marked, payloads)) & marked;
}

/* The lanes of `marked` have marked their segments, and found these headers; those of `walking`,
 * not empty, have the last ones. What goes back to the parent. */
GA_SIMT ga_wide ga_coalesce_walk(ga_tile tile, uint32_t marked, uint32_t walking, ga_wide payloads,
                                 ga_wide headers)
{
    ga_wide blocks = ga_wide_all(0);
    uint32_t linked = ga_coalesce_linked(tile, marked, payloads, headers);
    ga_wide starts = payloads;
    for (uint32_t rest = walking; rest; rest &= rest - 1u) {
        uint32_t lane = ga_bits_lowest(rest);
        uint32_t lowest = ga_coalesce_lowest(marked, linked, lane);
        uint64_t start = ga_wide_get(tile, payloads, lowest);
        uint64_t header = ga_wide_get(tile, headers, lowest);
        GA_EACH_LANE(tile, 1u << lane, own)
        {
            ga_wide_write(&starts, own, start);
            ga_wide_write(&headers, own, header);
        }
    }
    GA_EACH_LANE(tile, walking, own)
    {
        ga_segment_take_over((const char *)ga_wide_read(payloads, own));
        char *block =
            ga_segment_walk((char *)ga_wide_read(starts, own), ga_wide_read(headers, own));
        ga_wide_write(&blocks, own, (uint64_t)block);
    }
    return blocks;
}

/* Mark the segments of the lanes in the mask. The headers as they were; GA_SEGMENT_FREE alone for
 * what can be none. */
GA_SIMT ga_wide ga_coalesce_mark(ga_tile tile, uint32_t giving, ga_wide payloads)
{
    ga_wide headers = ga_wide_all(0);
    GA_EACH_LANE(tile, giving, own)
    {
        char *payload = (char *)ga_wide_read(payloads, own);
        ga_wide_write(&headers, own,
                      ga_segment_head(payload) ? ga_segment_mark(payload) : GA_SEGMENT_FREE);
    }
    ga_tile_sync(tile);
    return headers;
}

/* The lanes of the mask whose headers have that flag, one of the lower 32 bits. */
GA_SIMT uint32_t ga_coalesce_flagged(ga_tile tile, uint32_t among, ga_wide headers, uint64_t flag)
{
    return ga_lanes_nonzero(tile, headers.low & ga_lanes_all((uint32_t)flag)) & among;
}

/* Segments of the lanes in the mask are free. Answers what goes back to the parent; those of static
 * superblocks, the mask `*shared`, are yet to be counted down. */
GA_SIMT ga_wide ga_coalesce_release_segments(ga_coalesce_view view, ga_tile tile, uint32_t giving,
                                             ga_wide payloads, uint32_t *shared,
                                             ga_counted *counted)
{
    ga_wide headers = ga_coalesce_mark(tile, giving, payloads);
    uint32_t twice = ga_coalesce_flagged(tile, giving, headers, GA_SEGMENT_FREE);
    *shared = ga_lanes_nonzero(tile, headers.high / 0x80000000u) & giving & ~twice;
    uint32_t marked = giving & ~twice & ~*shared;
    uint32_t walking = ga_coalesce_flagged(tile, marked, headers, GA_SEGMENT_LAST);
    GA_EACH_LANE(tile, twice, own)
    {
        bool whole = ga_segment_head((const char *)ga_wide_read(payloads, own)) != 0;
        ga_coalesce_fault(view, whole ? GA_COALESCE_FREED_TWICE : GA_COALESCE_NO_SEGMENT);
    }
    GA_EACH_LANE(tile, *shared, own)
    {
        uint64_t header = ga_wide_read(headers, own);
        const char *block = (const char *)(header & ~(GA_SEGMENT_STATIC | GA_SEGMENT_FLAGS));
        ga_counted_write(counted, own, block, block);
    }
    return walking ? ga_coalesce_walk(tile, marked, walking, payloads, headers) : ga_wide_all(0);
}

/* ---- free ------------------------------------------------------------------------------------ */

/* Count down what the lanes of the mask have, and give back what has none left. */
GA_SIMT void ga_coalesce_release_counted(ga_coalesce_view view, ga_tile tile, uint32_t giving,
                                         ga_counted counted)
{
    uint32_t over = ga_count_down(tile, giving, counted.counters);
    if (over) {
        ga_parent_release_lanes(view.parent, tile, over, counted.blocks);
    }
}

/* The payloads of the lanes in the mask are free; 0 is none. */
GA_SIMT void ga_coalesce_release(ga_coalesce_view view, ga_tile tile, uint32_t giving,
                                 ga_wide payloads)
{
    ga_counted counted = {ga_wide_all(0), ga_wide_all(0)};
    uint32_t bare = 0;
    uint32_t shared = 0;
    uint32_t plain = 0;
    giving &= ga_wide_nonzero(tile, payloads);
    if (view.single) {
        ga_parent_release_plain(view.parent, tile, giving, payloads);
        return;
    }
    if (view.form == GA_COALESCE_HEADERLESS || view.bare == GA_COALESCE_BY_NOTE) {
        bare = ga_coalesce_find_notes(view, tile, giving, payloads, &counted, &plain);
    } else if (view.bare == GA_COALESCE_BY_MAP) {
        bare = ga_coalesce_find_mapped(view, tile, giving, payloads, &counted);
    }
    uint32_t rest = giving & ~bare;
    if (view.plain && plain) {
        ga_parent_release_plain(view.parent, tile, plain, payloads);
        rest &= ~plain;
    }
    if (rest && view.form == GA_COALESCE_HEADERLESS) {
        GA_EACH_LANE(tile, rest, own)
        {
            (void)own;
            ga_coalesce_fault(view, GA_COALESCE_NO_SEGMENT);
        }
    } else if (rest) {
        ga_wide blocks =
            ga_coalesce_release_segments(view, tile, rest, payloads, &shared, &counted);
        uint32_t over = ga_wide_nonzero(tile, blocks);
        if (over) {
            ga_parent_release_lanes(view.parent, tile, over, blocks);
        }
    }
    if (bare | shared) {
        ga_coalesce_release_counted(view, tile, bare | shared, counted);
    }
}

/* ---- how much there is ----------------------------------------------------------------------- */

/* Bytes from `payload` to the end of what it is in, a block of the parent's; 0 where that has none.
 * For one lane. */
GA_SIMT uint64_t ga_coalesce_usable_found(ga_coalesce_view view, ga_parent_found found,
                                          const char *payload)
{
    uint64_t bytes = ga_parent_usable(view.parent, found);
    uint64_t offset = (uint64_t)(payload - found.start);
    uint64_t end = found.note ? ga_count_end(found.note, found.start, bytes, offset) : bytes;
    return end > offset ? end - offset : 0;
}

/* The same of a payload behind a header. */
GA_SIMT uint64_t ga_coalesce_usable_segment(const char *payload)
{
    uint64_t header = ga_segment_head(payload) ? ga_segment_read_relaxed(payload) : GA_SEGMENT_FREE;
    if (header & GA_SEGMENT_FREE) {
        return 0;
    }
    if (header & GA_SEGMENT_STATIC) {
        const uint32_t *block =
            (const uint32_t *)(header & ~(GA_SEGMENT_STATIC | GA_SEGMENT_FLAGS));
        return (uint64_t)ga_load_relaxed(block + 1) * 4u - 8u;
    }
    return ga_segment_room(payload, header);
}

/* Bytes that may be used of the payload: at least as many as were asked for. 0 for NULL, and for
 * what is seen to be none. For one lane; relaxed, since who has a payload got it after all this was
 * written. */
GA_SIMT uint64_t ga_coalesce_usable(ga_coalesce_view view, const char *payload)
{
    if (!payload) { /* 0 is no key of the map: free entries have it */
        return 0;
    }
    if (view.form == GA_COALESCE_HEADERLESS || view.bare == GA_COALESCE_BY_NOTE) {
        ga_parent_found found = ga_parent_find(view.parent, payload);
        bool counted = !view.single && found.note && ga_load_relaxed(found.note);
        bool plain = view.form == GA_COALESCE_HEADERLESS && found.start && !found.note;
        if (counted || plain || view.form == GA_COALESCE_HEADERLESS) {
            return counted || plain ? ga_coalesce_usable_found(view, found, payload) : 0;
        }
    } else if (view.bare == GA_COALESCE_BY_MAP) {
        const uint32_t *block = (const uint32_t *)ga_map_value(&view.heap->map, (uint64_t)payload);
        if (block) {
            return (uint64_t)ga_load_relaxed(block + 1) * 4u;
        }
    }
    return ga_coalesce_usable_segment(payload);
}

#endif
