/* SPDX-License-Identifier: MIT
 *
 * Segments of a superblock, and which lane frees it (warp-coalescing-gpumpi-2022, §3.2).
 *
 * STRUCTURE  A superblock is one block of the parent. Its segments are a header and a payload each;
 *            kernels hold payloads. A header has 8, 4 or 2 bytes, which the payload's address
 *            tells:
 *
 *                payload at 8n          8 bytes
 *                payload at 8n + 4      4 bytes
 *                payload at 4n + 2      2 bytes
 *
 *            The header holds three flags, the distance from the previous payload to this one (for
 *            the first one, from the superblock), and the room: how many bytes the payload has.
 *            Distance and room are in units of 2 bytes:
 *
 *                         63   62       33   32       3        2      1      0
 *                8 bytes  0  | room     |    distance      | last | first | free |
 *
 *                              31   30       17   16       3        2      1      0
 *                4 bytes       1  | room     |    distance      | last | first | free |
 *
 *                                                 15       3        2      1      0
 *                2 bytes                     |    distance      | last | first | free |
 *
 *            Bit 31 tells the second from the first, whose distances are below 2^29. Payloads with
 *            a header of 2 bytes have room for 2. A room of 0 means that it is too large for the
 *            field: then the superblock has no other payload, and its first 64 bits hold the room.
 *
 *            A header of 8 bytes with its highest bit set belongs to static coalescing: beside
 *            `free` it holds the address of the superblock, which begins with its counter
 *            (coalesce_static.h).
 *
 * INVARIANT  Exactly one segment of a superblock is the last: the highest one that has not been
 *            freed. `last` only moves down, past segments that are free. The lane that frees the
 *            last segment passes the flag to the next lower segment that is not free. If there is
 *            none, the lane has the superblock alone and frees it. Only two lanes change a
 *            header: the segment's owner, who sets `free` once, and the lane that freed the last
 *            segment, which sets `last` once.
 *
 * ORDER      CS1 with CS2: accesses to a segment happen before the superblock is freed.
 *            CS3 with CS4: so do accesses to all segments above one that became the last.
 *            A header is written before a lane gets its payload or a later one, so the lane that
 *            frees one of them sees it.
 *
 * PROGRESS   Wait-free: a compare-and-swap fails once at most, since the other side changes a
 *            header once; and the walk visits each segment once, over all lanes that walk.
 *
 * CALLS      free: ga_segment_mark, and if the segment was the last: ga_segment_take_over, then
 *            ga_segment_walk. coalesce_tile.h does this for a tile.
 */
#ifndef GPUALLOC_COALESCE_SEGMENT_H
#define GPUALLOC_COALESCE_SEGMENT_H

#include "../../simt/planted.h"
#include "wide.h"

#define GA_COALESCE_PLANTED_SLEEP 20000u /* ns: widens the window of a planted bug */

#define GA_SEGMENT_FREE   ((uint64_t)1)
#define GA_SEGMENT_FIRST  ((uint64_t)2)
#define GA_SEGMENT_LAST   ((uint64_t)4)
#define GA_SEGMENT_FLAGS  ((uint64_t)7)
#define GA_SEGMENT_SHORT  ((uint64_t)1 << 31)
#define GA_SEGMENT_STATIC ((uint64_t)1 << 63)

/* The largest payload with a header of 4 bytes, if no other payload of the superblock is larger. */
#define GA_SEGMENT_SHORT_MAX ((uint32_t)1 << 14)

/* ---- headers: always 64 bits in registers ---------------------------------------------------- */

/* The bytes of the header before `payload`, as its address tells; 0: the address cannot be a
 * payload. */
GA_SIMT uint32_t ga_segment_header_bytes(const char *payload)
{
    uint32_t low = (uint32_t)(uintptr_t)payload & 7u;
    return low == 0 ? 8u : low == 4u ? 4u : low & 1u ? 0 : 2u;
}

GA_SIMT uint64_t ga_segment_distance(uint64_t header)
{
    uint64_t mask = header & GA_SEGMENT_SHORT ? 0x1ffff : 0x1ffffffff;
    return (header & mask) >> 3 << 1;
}

GA_SIMT uint64_t ga_segment_header(uint64_t distance, uint64_t flags)
{
    return distance >> 1 << 3 | flags;
}

/* The header with the room of a payload that has `header_bytes` of header. */
GA_SIMT uint64_t ga_segment_with_room(uint64_t header, uint32_t header_bytes, uint64_t room)
{
    return header_bytes == 8u   ? header | room >> 1 << 33
           : header_bytes == 4u ? header | GA_SEGMENT_SHORT | room >> 1 << 17
                                : header;
}

/* The bytes that the payload has. */
GA_SIMT uint64_t ga_segment_room(const char *payload, uint64_t header)
{
    uint32_t header_bytes = ga_segment_header_bytes(payload);
    uint64_t room = header_bytes == 8u   ? (header >> 33 & 0x3fffffff) << 1
                    : header_bytes == 4u ? (header >> 17 & 0x3fff) << 1
                                         : 2u;
    return room ? room
                : ga_load64_relaxed((const uint64_t *)(payload - ga_segment_distance(header)));
}

/* Write the header of a new segment. Relaxed: no other lane has a payload of its superblock yet. */
GA_SIMT void ga_segment_write(char *payload, uint32_t header_bytes, uint64_t header)
{
    if (header_bytes == 8u) {
        ga_store64_relaxed((uint64_t *)payload - 1, header);
    } else if (header_bytes == 4u) {
        ga_store_relaxed((uint32_t *)payload - 1, (uint32_t)header);
    } else {
        ga_store16_relaxed((uint16_t *)payload - 1, (uint16_t)header);
    }
}

/* Selects by the header bytes of `payload`. */
#define GA_SEGMENT_BY_WIDTH(payload, eight, four, two)                                             \
    uint32_t header_bytes = ga_segment_header_bytes(payload);                                      \
    return header_bytes == 8u ? eight : header_bytes == 4u ? four : two

GA_SIMT uint64_t ga_segment_read_relaxed(const char *payload)
{
    GA_SEGMENT_BY_WIDTH(payload, ga_load64_relaxed((const uint64_t *)payload - 1),
                        ga_load_relaxed((const uint32_t *)payload - 1),
                        ga_load16_relaxed((const uint16_t *)payload - 1));
}

/* Acquire: pairs with CS1 or CS3, which released the header. */
GA_SIMT uint64_t ga_segment_read_acquire(const char *payload)
{
    GA_SEGMENT_BY_WIDTH(payload, ga_load64_acquire((const uint64_t *)payload - 1),
                        ga_load_acquire((const uint32_t *)payload - 1),
                        ga_load16_acquire((const uint16_t *)payload - 1));
}

#define GA_SEGMENT_CAS(order)                                                                      \
    GA_SIMT uint64_t ga_segment_cas_##order(char *payload, uint64_t expected, uint64_t desired)    \
    {                                                                                              \
        GA_SEGMENT_BY_WIDTH(                                                                       \
            payload, ga_cas64_##order((uint64_t *)payload - 1, expected, desired),                 \
            ga_cas_##order((uint32_t *)payload - 1, (uint32_t)expected, (uint32_t)desired),        \
            ga_cas16_##order((uint16_t *)payload - 1, (uint16_t)expected, (uint16_t)desired));     \
    }
/* clang-format off */
GA_SEGMENT_CAS(relaxed)
GA_SEGMENT_CAS(acquire)
GA_SEGMENT_CAS(release)
GA_SEGMENT_CAS(acq_rel)
/* clang-format on */

/* ---- free ------------------------------------------------------------------------------------ */

/* Mark the caller's segment free. Returns the header as it was: with GA_SEGMENT_FREE in it, the
 * segment had been freed before, and nothing has changed; with GA_SEGMENT_LAST, the caller has to
 * walk. */
GA_SIMT uint64_t ga_segment_mark(char *payload)
{
    uint64_t seen = ga_segment_read_relaxed(payload); /* relaxed: a guess */
    while (!(seen & GA_SEGMENT_FREE)) {
#if GA_PLANTED(coalesce_mark_relaxed)
        uint64_t found = ga_segment_cas_relaxed(payload, seen, seen | GA_SEGMENT_FREE);
#elif GA_PLANTED(coalesce_mark_not_atomic)
        uint64_t found = seen;
        ga_clock_sleep(GA_COALESCE_PLANTED_SLEEP);
        ga_segment_write(payload, ga_segment_header_bytes(payload), seen | GA_SEGMENT_FREE);
#else
        /* CS1: release. Pairs with CS2: the caller's accesses to the segment happen before the
         * superblock is freed. */
        uint64_t found = ga_segment_cas_release(payload, seen, seen | GA_SEGMENT_FREE);
#endif
        if (found == seen) {
            break;
        }
        seen = found;
    }
    return seen;
}

/* The caller has marked the last segment. */
GA_SIMT void ga_segment_take_over(const char *payload)
{
#if GA_PLANTED(coalesce_take_over_relaxed)
    (void)ga_segment_read_relaxed(payload);
#else
    /* CS4: acquire. Pairs with CS3: the header read here is the caller's own change, which
     * continues the release sequence of CS3. */
    (void)ga_segment_read_acquire(payload);
#endif
}

/* Walk down from the segment `payload`, whose header is `header` and which is free, as are all
 * above it. Passes `last` to the first segment that is not free, and returns NULL. If all are free,
 * returns the superblock. */
GA_SIMT char *ga_segment_walk(char *payload, uint64_t header)
{
    while (!(header & GA_SEGMENT_FIRST)) {
        payload -= ga_segment_distance(header);
#if GA_PLANTED(coalesce_walk_relaxed)
        header = ga_segment_read_relaxed(payload);
#else
        /* CS2: acquire, here and if CS3 fails. Pairs with CS1. */
        header = ga_segment_read_acquire(payload);
#endif
        while (!(header & GA_SEGMENT_FREE)) {
#if GA_PLANTED(coalesce_hand_on_not_released)
            uint64_t found = ga_segment_cas_acquire(payload, header, header | GA_SEGMENT_LAST);
#elif GA_PLANTED(coalesce_hand_on_not_atomic)
            uint64_t found = header;
            ga_clock_sleep(GA_COALESCE_PLANTED_SLEEP);
            ga_segment_write(payload, ga_segment_header_bytes(payload), header | GA_SEGMENT_LAST);
#else
            /* CS3: release. Pairs with CS4: all segments above have been freed. */
            uint64_t found = ga_segment_cas_acq_rel(payload, header, header | GA_SEGMENT_LAST);
#endif
            if (found == header || GA_PLANTED(coalesce_hand_on_not_retried)) {
                return NULL;
            }
            header = found;
        }
    }
    return payload - ga_segment_distance(header);
}

#endif
