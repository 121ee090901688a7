/* SPDX-License-Identifier: MIT
 *
 * Dynamic coalescing over tiles, for CPU and GPU (warp-coalescing-gpumpi-2022, §3.2;
 * docs/internals/coalesce.md has the drawing): the requests that the lanes of a tile make together
 * become one block of the parent.
 *
 * STRUCTURE  segment.h: superblocks with headers. coalesce_count.h: those without. A lane that
 *            requests more than `max` bytes gets a superblock of its own, of one segment; so does
 *            each lane if the parent has no superblock for all.
 *
 * INVARIANT  A superblock is of one kind: all of its payloads have headers, or none has. A plain
 *            block of the parent is one payload, and not a superblock.
 *
 * ORDER      Accesses to a payload happen before the superblock is released to the parent, and so
 *            before those of the next owner of its memory (CS, CC). The tile's writes to headers
 *            and counters happen before any of the payloads is used: the tile synchronises before
 *            it returns. A program that passes a payload on to other lanes orders that itself.
 *
 * PROGRESS   A malloc makes one call of the parent for the tile, or one for each lane. A free takes
 *            the steps of segment.h, and one call of the parent if it frees the last live payload
 *            of a superblock.
 *
 * CALLS      ga_coalesce_claim
 *              ga_parent_claim_plain            all lanes request one size class, or check=full
 *              ga_coalesce_claim_superblocks
 *                ga_coalesce_claim_together     fast path: one superblock for the lanes
 *                ga_coalesce_claim_alone        slow path: requests above `max`, and all lanes if
 *                                               the parent had no superblock for them
 *
 *            ga_coalesce_free_lanes
 *              ga_coalesce_find_notes, _mapped  which payloads have no headers
 *              ga_parent_release_plain          plain blocks
 *              ga_coalesce_release_segments     payloads with headers: mark, then walk
 *              ga_coalesce_release_counted      payloads without: count down
 */
#ifndef GPUALLOC_COALESCE_COALESCE_TILE_H
#define GPUALLOC_COALESCE_COALESCE_TILE_H

#include "coalesce_count.h"
#include "segment.h"

/* ---- malloc: the layout of a superblock ------------------------------------------------------ */

/* Each lane's header and whole segment (header and payload), in bytes; 0 for lanes without one.
 * `first_offset`: bytes before the first header. */
typedef struct ga_coalesce_plan {
    ga_lanes header_bytes;
    ga_lanes segment_bytes;
    uint32_t first_offset;
} ga_coalesce_plan;

/* The lanes' requests. `aligns`: powers of two, at most GA_COALESCE_ALIGN_MAX, that the payloads
 * are multiples of; the payloads have headers then. NULL: the alignment of the form. */
typedef struct ga_coalesce_request {
    ga_wide sizes;
    const ga_lanes *aligns;
} ga_coalesce_request;

GA_SIMT uint32_t ga_coalesce_round_up(uint32_t bytes, uint32_t align)
{
    return (bytes + align - 1u) & ~(align - 1u);
}

/* The shortest header that serves all requests of the tile: 2 bytes if all are below 3 bytes (for
 * larger ones it would save nothing), 4 bytes if their rooms fit in such a header. */
GA_SIMT uint32_t ga_coalesce_shortest_header(uint32_t form, ga_tile tile, uint32_t requesting,
                                             ga_lanes sizes, bool natural)
{
    if (form != GA_COALESCE_AUTO || !natural) {
        return form == GA_COALESCE_HEADERLESS ? 0 : 8u;
    }
    bool all_tiny = !(ga_lanes_nonzero(tile, sizes / 3u) & requesting);
    bool all_short = !(ga_lanes_nonzero(tile, sizes / (GA_SEGMENT_SHORT_MAX + 1u)) & requesting);
    return all_tiny ? 2u : all_short ? 4u : 8u;
}

/* The bytes of the header of a payload of `size` bytes. Payloads below 3 bytes hold nothing that
 * needs an alignment above 2, and sizes that are not a multiple of 8 nothing above 4. So with
 * 4-byte headers a payload whose size is a multiple of 8 gets 8 bytes, which aligns it to 8. */
GA_SIMT uint32_t ga_coalesce_header_bytes(uint32_t shortest, uint32_t size)
{
    return shortest == 4u && !(size & 7u) ? 8u : shortest;
}

/* The multiple that segments are rounded up to, so that a sum of them is a valid offset of a
 * header. */
GA_SIMT uint32_t ga_coalesce_segment_align(uint32_t form, uint32_t shortest)
{
    return form >= GA_COALESCE_SIXTEEN ? 16u : shortest == 2u ? 4u : 8u;
}

/* The plan for the requests of the mask's lanes. Requests with an alignment get room for the
 * padding as well. */
GA_SIMT ga_coalesce_plan ga_coalesce_plan_of(uint32_t form, ga_tile tile, uint32_t requesting,
                                             ga_coalesce_request request)
{
    ga_coalesce_plan plan;
    ga_lanes sizes = request.sizes.low;
    uint32_t shortest = ga_coalesce_shortest_header(form, tile, requesting, sizes, !request.aligns);
    uint32_t align = ga_coalesce_segment_align(form, shortest);
    plan.header_bytes = ga_lanes_all(0);
    plan.segment_bytes = ga_lanes_all(0);
    plan.first_offset = form == GA_COALESCE_SIXTEEN ? 8u : 0;
    GA_EACH_LANE(tile, requesting, own)
    {
        uint32_t size = ga_lane_read(sizes, own);
        size += size ? 0 : 1u;
        uint32_t header_bytes = ga_coalesce_header_bytes(shortest, size);
        size += request.aligns ? ga_lane_read(*request.aligns, own) : 0;
        ga_lane_write(&plan.header_bytes, own, header_bytes);
        ga_lane_write(&plan.segment_bytes, own, ga_coalesce_round_up(header_bytes + size, align));
    }
    return plan;
}

/* ---- malloc ---------------------------------------------------------------------------------- */

/* For a superblock that the parent finds and whose payloads have headers: set its note to 0, which
 * tells it from counted ones. By one lane. */
GA_SIMT void ga_coalesce_clear_note(ga_coalesce_view view, char *block)
{
    if (view.bare == GA_COALESCE_BY_NOTE) {
        ga_count_init(ga_parent_note(view.parent, block), 0, GA_COUNT_ALONE);
    }
}

/* Write the headers of the payloads at `offsets` of the superblock `block`; segments end at
 * `ends`. */
GA_SIMT void ga_coalesce_write_headers(ga_coalesce_view view, ga_tile tile, uint32_t requesting,
                                       char *block, ga_lanes header_sizes, ga_lanes offsets,
                                       ga_lanes ends)
{
    uint32_t first = ga_bits_lowest(requesting);
    uint32_t last = 31u - ga_bits_leading(requesting);
    ga_lanes before = ga_lanes_previous(tile, requesting, offsets);
    GA_EACH_LANE(tile, requesting, own)
    {
        uint32_t offset = ga_lane_read(offsets, own);
        uint32_t header_bytes = ga_lane_read(header_sizes, own);
        uint64_t flags =
            (own == first ? GA_SEGMENT_FIRST : 0) | (own == last ? GA_SEGMENT_LAST : 0);
        uint64_t header = ga_segment_header(offset - ga_lane_read(before, own), flags);
        if (own == first) {
            ga_coalesce_clear_note(view, block);
        }
        ga_segment_write(
            block + offset, header_bytes,
            ga_segment_with_room(header, header_bytes, ga_lane_read(ends, own) - offset));
    }
}

/* Write the counter of a superblock without headers, whose payloads end at `ends`: the word holds
 * their stride or, if `table` is not 0, refers to a table at that offset. */
GA_SIMT void ga_coalesce_write_counter(ga_coalesce_view view, ga_tile tile, uint32_t requesting,
                                       char *block, ga_lanes segment_bytes, ga_lanes ends,
                                       uint32_t table)
{
    GA_EACH_LANE(tile, requesting, own)
    {
        uint32_t rank = ga_bits_count(requesting & ga_bits_below(own));
        uint32_t *note = ga_parent_note(view.parent, block);
        if (table) { /* relaxed: no other lane has a payload of it yet */
            ga_store_relaxed((uint32_t *)(block + table) + rank, ga_lane_read(ends, own));
        }
        if (!rank && table) {
            ga_count_init_table(note, ga_bits_count(requesting), table);
        } else if (!rank) {
            ga_count_init(note, ga_bits_count(requesting), ga_lane_read(segment_bytes, own) / 4u);
        }
    }
}

/* True if lanes of the mask have different segment sizes. */
GA_SIMT bool ga_coalesce_spans_differ(ga_tile tile, uint32_t requesting, ga_lanes segment_bytes)
{
    ga_lanes one = ga_lanes_all(ga_lanes_get(tile, segment_bytes, ga_bits_lowest(requesting)));
    return (ga_lanes_nonzero(tile, segment_bytes ^ one) & requesting) != 0;
}

/* The bytes between each lane's offset in the superblock and the next multiple of its alignment. */
GA_SIMT ga_lanes ga_coalesce_padding(ga_tile tile, uint32_t requesting, const char *block,
                                     ga_lanes offsets, ga_lanes aligns)
{
    ga_lanes padding = ga_lanes_all(0);
    GA_EACH_LANE(tile, requesting, own)
    {
        uint32_t low = (uint32_t)(uintptr_t)block + ga_lane_read(offsets, own);
        ga_lane_write(&padding, own, (0u - low) & (ga_lane_read(aligns, own) - 1u));
    }
    return padding;
}

/* One superblock for the lanes of the mask (not empty). False: the parent has none, nothing is
 * done. */
GA_SIMT bool ga_coalesce_claim_together(ga_coalesce_view view, ga_tile tile, uint32_t requesting,
                                        ga_coalesce_request request, ga_wide *payloads)
{
    ga_coalesce_plan plan = ga_coalesce_plan_of(view.form, tile, requesting, request);
    /* Offsets of payloads. Sums are below 2^32, because of GA_COALESCE_MAX. */
    ga_lanes offsets =
        ga_lanes_prefix_sum(tile, plan.segment_bytes) + plan.header_bytes + plan.first_offset;
    ga_lanes ends = offsets + plan.segment_bytes - plan.header_bytes;
    uint32_t bytes = ga_lanes_get(tile, ends, 31u - ga_bits_leading(requesting));
    bool bare = view.form == GA_COALESCE_HEADERLESS;
    uint32_t table =
        bare && ga_coalesce_spans_differ(tile, requesting, plan.segment_bytes) ? bytes : 0;
    char *block =
        ga_parent_claim(view.parent, tile, bytes + (table ? 4u * ga_bits_count(requesting) : 0));
    if (!block) {
        return false;
    }
    if (request.aligns) {
        offsets = offsets + ga_coalesce_padding(tile, requesting, block, offsets, *request.aligns);
    }
    if (bare) {
        ga_coalesce_write_counter(view, tile, requesting, block, plan.segment_bytes, ends, table);
    } else {
        ga_coalesce_write_headers(view, tile, requesting, block, plan.header_bytes, offsets, ends);
    }
    GA_EACH_LANE(tile, requesting, own)
    {
        ga_wide_write(payloads, own, (uint64_t)(block + ga_lane_read(offsets, own)));
    }
    return true;
}

/* Write the header or the counter of a superblock of `bytes` with one payload, by one lane. */
GA_SIMT char *ga_coalesce_write_alone(ga_coalesce_view view, char *block, uint64_t bytes,
                                      uint32_t align)
{
    if (view.form == GA_COALESCE_HEADERLESS) {
        ga_count_init(ga_parent_note(view.parent, block), 1u, GA_COUNT_ALONE);
        return block;
    }
    uint32_t low = (uint32_t)(uintptr_t)block + GA_COALESCE_ALIGN;
    uint64_t before = GA_COALESCE_ALIGN + (uint64_t)((0u - low) & (align - 1u));
    ga_coalesce_clear_note(view, block);
    ga_store64_relaxed((uint64_t *)block, bytes - before);
    ga_segment_write(block + before, 8u,
                     ga_segment_header(before, GA_SEGMENT_FIRST | GA_SEGMENT_LAST));
    return block + before;
}

/* A superblock for each lane of the mask; lanes for which there is none keep 0. */
GA_SIMT void ga_coalesce_claim_alone(ga_coalesce_view view, ga_tile tile, uint32_t requesting,
                                     ga_coalesce_request request, ga_wide *payloads)
{
    if (view.plain) {
        ga_wide plain = ga_parent_claim_plain(view.parent, tile, requesting, request.sizes);
        GA_EACH_LANE(tile, requesting, own)
        {
            ga_wide_write(payloads, own, ga_wide_read(plain, own));
        }
        return;
    }
    uint32_t before = view.form == GA_COALESCE_HEADERLESS ? 0 : GA_COALESCE_ALIGN;
    ga_wide bytes = ga_wide_all(0);
    GA_EACH_LANE(tile, requesting, own)
    {
        uint64_t size = ga_wide_read(request.sizes, own);
        bool huge = size > GA_COALESCE_HUGE;
        size += request.aligns ? ga_lane_read(*request.aligns, own) : 0;
        ga_wide_write(&bytes, own, huge ? 0 : size + (size ? 0 : 1u) + before);
    }
    requesting &= ga_wide_nonzero(tile, bytes);
    ga_wide blocks = ga_parent_claim_lanes(view.parent, tile, requesting, bytes);
    GA_EACH_LANE(tile, requesting, own)
    {
        char *block = (char *)ga_wide_read(blocks, own);
        if (block) {
            uint32_t align = request.aligns ? ga_lane_read(*request.aligns, own) : 1u;
            char *payload = ga_coalesce_write_alone(view, block, ga_wide_read(bytes, own), align);
            ga_wide_write(payloads, own, (uint64_t)payload);
        }
    }
}

/* Superblocks for the lanes of the mask: one for all lanes that request at most `max` bytes. */
GA_SIMT ga_wide ga_coalesce_claim_superblocks(ga_coalesce_view view, ga_tile tile,
                                              uint32_t requesting, ga_coalesce_request request)
{
    ga_wide payloads = ga_wide_all(0);
    ga_lanes large = ga_lanes_all(0);
    GA_EACH_LANE(tile, requesting, own)
    {
        uint64_t size = ga_wide_read(request.sizes, own);
        uint32_t align = request.aligns ? ga_lane_read(*request.aligns, own) : 0;
        bool fits = size <= view.max && align <= view.max - size;
        ga_lane_write(&large, own, fits ? 0 : 1u);
    }
    uint32_t alone = ga_lanes_nonzero(tile, large);
    uint32_t together = requesting & ~alone;
    if (together && !ga_coalesce_claim_together(view, tile, together, request, &payloads)) {
        alone |= together;
        GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
        {
            (void)own;
            ga_post_add64_relaxed(&view.heap->lone, ga_bits_count(together)); /* relaxed: a count */
        }
    }
    if (alone) {
        ga_coalesce_claim_alone(view, tile, alone, request, &payloads);
    }
    ga_tile_sync(tile); /* headers and counters are written before a payload is returned */
    return payloads;
}

/* A payload of `sizes` bytes for each lane of the mask; 0 for lanes that get none, and for others.
 * A request of 0 bytes gets a payload of its own, too. */
GA_SIMT ga_wide ga_coalesce_claim(ga_coalesce_view view, ga_tile tile, uint32_t requesting,
                                  ga_wide sizes)
{
    bool plain = view.single || (view.plain && requesting &&
                                 ga_parent_is_one_class(view.parent, tile, requesting, sizes));
    if (plain) {
        return ga_parent_claim_plain(view.parent, tile, requesting, sizes);
    }
    ga_coalesce_request request = {sizes, NULL};
    return ga_coalesce_claim_superblocks(view, tile, requesting, request);
}

/* In a heap with headers: payloads at multiples of each lane's `aligns`, a power of two up to
 * GA_COALESCE_ALIGN_MAX. */
GA_SIMT ga_wide ga_coalesce_claim_aligned(ga_coalesce_view view, ga_tile tile, uint32_t requesting,
                                          ga_wide sizes, ga_lanes aligns)
{
    ga_coalesce_request request = {sizes, &aligns};
    return ga_coalesce_claim_superblocks(view, tile, requesting, request);
}

/* ---- free: superblocks without headers ------------------------------------------------------- */

/* The lanes of the mask whose payloads belong to counted superblocks. Fills in those superblocks
 * and `*plain`, the lanes that have plain blocks. */
GA_SIMT uint32_t ga_coalesce_find_notes(ga_coalesce_view view, ga_tile tile, uint32_t freeing,
                                        ga_wide payloads, ga_counted *counted, uint32_t *plain)
{
    ga_wide counters = ga_wide_all(0);
    ga_lanes alone = ga_lanes_all(0);
    GA_EACH_LANE(tile, freeing, own)
    {
        ga_parent_found found =
            ga_parent_find(view.parent, (const char *)ga_wide_read(payloads, own));
        /* relaxed: a note is 0 or not as long as a payload of its superblock lives. */
        if (found.note && ga_load_relaxed(found.note)) {
            ga_counted_write(counted, own, found.note, found.start);
            ga_wide_write(&counters, own, (uint64_t)found.note);
        }
        ga_lane_write(&alone, own, found.start && !found.note ? 1u : 0);
    }
    *plain = ga_lanes_nonzero(tile, alone);
    return ga_wide_nonzero(tile, counters);
}

/* The lanes of the mask whose payloads are in the map. Fills in their superblocks, and removes the
 * payloads from the map. */
GA_SIMT uint32_t ga_coalesce_find_mapped(ga_coalesce_view view, ga_tile tile, uint32_t freeing,
                                         ga_wide payloads, ga_counted *counted)
{
    ga_map *map = &view.heap->map;
    ga_wide counters = ga_wide_all(0);
    GA_EACH_LANE(tile, freeing, own)
    {
        /* relaxed: a payload in the map was counted in `live` before a lane got it. */
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

/* The lowest segment that can be reached from that of `lane` through segments that the tile has
 * just marked. `linked`: the lanes whose segment is right above that of the lane before them. */
GA_SIMT uint32_t ga_coalesce_lowest(uint32_t marked, uint32_t linked, uint32_t lane)
{
    uint32_t ends = marked & ~linked & ga_bits_below(lane + 1u);
    return 31u - ga_bits_leading(ends);
}

/* The lanes of `marked` whose segments are right above that of the lane before. */
GA_SIMT uint32_t ga_coalesce_linked(ga_tile tile, uint32_t marked, ga_wide payloads,
                                    ga_wide headers)
{
    ga_wide below = ga_wide_all(0);
    GA_EACH_LANE(tile, marked, own)
    {
        uint64_t header = ga_wide_read(headers, own);
        ga_wide_write(&below, own, ga_wide_read(payloads, own) - ga_segment_distance(header));
    }
    /* The lane before the first has 0, which is no superblock's address. For the first segment of a
     * superblock, `below` is the superblock's address, which is no payload's. */
    return ga_wide_same(tile, below, ga_wide_previous(tile, marked, payloads)) & marked;
}

/* The lanes of `marked` have marked their segments, and found these headers; the lanes of `walking`
 * (not empty) had the last ones. Walks down, past segments of the tile in registers. Returns the
 * superblocks to release. */
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

/* Mark the segments of the mask's lanes. Returns the headers as they were; GA_SEGMENT_FREE alone
 * for addresses that cannot be payloads. */
GA_SIMT ga_wide ga_coalesce_mark(ga_tile tile, uint32_t freeing, ga_wide payloads)
{
    ga_wide headers = ga_wide_all(0);
    GA_EACH_LANE(tile, freeing, own)
    {
        char *payload = (char *)ga_wide_read(payloads, own);
        ga_wide_write(&headers, own,
                      ga_segment_header_bytes(payload) ? ga_segment_mark(payload)
                                                       : GA_SEGMENT_FREE);
    }
    ga_tile_sync(tile);
    return headers;
}

/* The lanes of the mask whose headers have that flag, one of the lower 32 bits. */
GA_SIMT uint32_t ga_coalesce_flagged(ga_tile tile, uint32_t among, ga_wide headers, uint64_t flag)
{
    return ga_lanes_nonzero(tile, headers.low & ga_lanes_all((uint32_t)flag)) & among;
}

/* Free the segments of the mask's lanes. Returns the superblocks to release. The mask `*shared`
 * gets the lanes whose payloads are in static superblocks, which the caller has to count down. */
GA_SIMT ga_wide ga_coalesce_release_segments(ga_coalesce_view view, ga_tile tile, uint32_t freeing,
                                             ga_wide payloads, uint32_t *shared,
                                             ga_counted *counted)
{
    ga_wide headers = ga_coalesce_mark(tile, freeing, payloads);
    uint32_t twice = ga_coalesce_flagged(tile, freeing, headers, GA_SEGMENT_FREE);
    *shared = ga_lanes_nonzero(tile, headers.high / 0x80000000u) & freeing & ~twice;
    uint32_t marked = freeing & ~twice & ~*shared;
    uint32_t walking = ga_coalesce_flagged(tile, marked, headers, GA_SEGMENT_LAST);
    GA_EACH_LANE(tile, twice, own)
    {
        bool whole = ga_segment_header_bytes((const char *)ga_wide_read(payloads, own)) != 0;
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

/* Count down the payloads of the mask's lanes, and release superblocks that have none left. */
GA_SIMT void ga_coalesce_release_counted(ga_coalesce_view view, ga_tile tile, uint32_t freeing,
                                         ga_counted counted)
{
    uint32_t over = ga_count_down(tile, freeing, counted.counters);
    if (over) {
        ga_parent_release_lanes(view.parent, tile, over, counted.blocks);
    }
}

/* Free the payloads of the mask's lanes; 0 is ignored. */
GA_SIMT void ga_coalesce_free_lanes(ga_coalesce_view view, ga_tile tile, uint32_t freeing,
                                    ga_wide payloads)
{
    ga_counted counted = {ga_wide_all(0), ga_wide_all(0)};
    uint32_t bare = 0;
    uint32_t shared = 0;
    uint32_t plain = 0;
    freeing &= ga_wide_nonzero(tile, payloads);
    if (view.single) {
        ga_parent_release_plain(view.parent, tile, freeing, payloads);
        return;
    }
    if (view.form == GA_COALESCE_HEADERLESS || view.bare == GA_COALESCE_BY_NOTE) {
        bare = ga_coalesce_find_notes(view, tile, freeing, payloads, &counted, &plain);
    } else if (view.bare == GA_COALESCE_BY_MAP) {
        bare = ga_coalesce_find_mapped(view, tile, freeing, payloads, &counted);
    }
    uint32_t rest = freeing & ~bare;
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

/* ---- usable sizes --------------------------------------------------------------------------- */

/* Bytes from `payload` to the end of its payload, in a block that the parent has found; 0 if there
 * is none. For one lane. */
GA_SIMT uint64_t ga_coalesce_usable_found(ga_coalesce_view view, ga_parent_found found,
                                          const char *payload)
{
    uint64_t bytes = ga_parent_usable(view.parent, found);
    uint64_t offset = (uint64_t)(payload - found.start);
    uint64_t end = found.note ? ga_count_end(found.note, found.start, bytes, offset) : bytes;
    return end > offset ? end - offset : 0;
}

/* Usable bytes of a payload behind a header; 0 if it is seen to be invalid. */
GA_SIMT uint64_t ga_coalesce_usable_segment(const char *payload)
{
    uint64_t header =
        ga_segment_header_bytes(payload) ? ga_segment_read_relaxed(payload) : GA_SEGMENT_FREE;
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

/* Usable bytes of the payload, at least the requested size. 0 for NULL, and for pointers that are
 * seen to be invalid. For one lane; relaxed, since a lane that has a payload got it after all of
 * this was written. */
GA_SIMT uint64_t ga_coalesce_usable(ga_coalesce_view view, const char *payload)
{
    if (!payload) { /* 0 is not a key of the map: free entries hold it */
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
