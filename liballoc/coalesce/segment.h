/* SPDX-License-Identifier: MIT
 *
 * Segments of a superblock, and who gives it back (warp-coalescing-gpumpi-2022, §3.2).
 *
 * STRUCTURE  A superblock is one block of the parent's. Its segments are a header and a payload
 *            each; what kernels hold are payloads. Of a header, of 8, 4 or 2 bytes, the payload's
 *            address tells the size:
 *
 *                payload at 8n          8 bytes
 *                payload at 8n + 4      4 bytes
 *                payload at 4n + 2      2 bytes
 *
 *            It holds three bits, how far it is from the payload before it to this one, or from
 *            the superblock to the first one, and how many bytes the payload has room for; both in
 *            units of 2 bytes:
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
 *            Bit 31 tells the second from the first, where distances are below 2^29. Payloads with
 *            2 bytes before them have room for 2. A room of 0 is too large to stand there: then the
 *            superblock has no other payload, and begins with 64 bits that tell.
 *
 *            A header of 8 bytes with its highest bit set is one of static coalescing: beside
 *            `free`, the address of the superblock, which begins with its counter
 *            (coalesce_static.h).
 *
 * INVARIANT  Exactly one segment of a superblock is the last: the highest one that has not been
 *            freed. `last` only moves down, past segments that are free. Who frees the last one
 *            hands the bit to the next below that is not free; where there is none it has the
 *            superblock alone. Beside the owner of a segment, who sets `free` once, only the one
 *            who has been the last changes its header, and sets `last` once.
 *
 * ORDER      S1 with S2: what was done with a segment happens before the superblock goes back.
 *            S3 with S4: so does what was done with all above a segment that became the last.
 *            A header is written before its payload, and those after it, are handed out: whoever
 *            frees one of them sees it.
 *
 * PROGRESS   Wait-free: a compare-and-swap fails once at most, since the other side changes a
 *            header once; and the walk goes past each segment once, whoever walks.
 */
#ifndef GPUALLOC_COALESCE_SEGMENT_H
#define GPUALLOC_COALESCE_SEGMENT_H

#include "wide.h"

/* The stress tests weaken one thing at a time, to see that they notice
 * (tests/stress/meson.build). */
#ifndef GA_COALESCE_MUTANT
#define GA_COALESCE_MUTANT 0
#endif
#define GA_COALESCE_MUTANT_NAP 20000u /* ns: so that what is weak shows */

#define GA_SEGMENT_FREE   ((uint64_t)1)
#define GA_SEGMENT_FIRST  ((uint64_t)2)
#define GA_SEGMENT_LAST   ((uint64_t)4)
#define GA_SEGMENT_FLAGS  ((uint64_t)7)
#define GA_SEGMENT_NEAR   ((uint64_t)1 << 31)
#define GA_SEGMENT_STATIC ((uint64_t)1 << 63)

/* Headers of 4 bytes serve payloads of so many bytes, among others of so many. */
#define GA_SEGMENT_NEAR_MOST ((uint32_t)1 << 14)

/* ---- headers: always 64 bits in registers ---------------------------------------------------- */

/* The bytes of the header before that payload; 0 where none can be one. */
GA_SIMT uint32_t ga_segment_head(const char *payload)
{
    uint32_t low = (uint32_t)(uintptr_t)payload & 7u;
    return low == 0 ? 8u : low == 4u ? 4u : low & 1u ? 0 : 2u;
}

GA_SIMT uint64_t ga_segment_distance(uint64_t header)
{
    uint64_t mask = header & GA_SEGMENT_NEAR ? 0x1ffff : 0x1ffffffff;
    return (header & mask) >> 3 << 1;
}

GA_SIMT uint64_t ga_segment_header(uint64_t distance, uint64_t flags)
{
    return distance >> 1 << 3 | flags;
}

/* The same, before a payload with `head` bytes of header, which has so much room. */
GA_SIMT uint64_t ga_segment_with_room(uint64_t header, uint32_t head, uint64_t room)
{
    return head == 8u   ? header | room >> 1 << 33
           : head == 4u ? header | GA_SEGMENT_NEAR | room >> 1 << 17
                        : header;
}

/* How many bytes there are behind the header of `payload`. */
GA_SIMT uint64_t ga_segment_room(const char *payload, uint64_t header)
{
    uint32_t head = ga_segment_head(payload);
    uint64_t room = head == 8u   ? (header >> 33 & 0x3fffffff) << 1
                    : head == 4u ? (header >> 17 & 0x3fff) << 1
                                 : 2u;
    return room ? room
                : ga_load64_relaxed((const uint64_t *)(payload - ga_segment_distance(header)));
}

/* A new segment, by whoever makes it. Relaxed: nobody else has a payload of its superblock yet. */
GA_SIMT void ga_segment_write(char *payload, uint32_t head, uint64_t header)
{
    if (head == 8u) {
        ga_store64_relaxed((uint64_t *)payload - 1, header);
    } else if (head == 4u) {
        ga_store_relaxed((uint32_t *)payload - 1, (uint32_t)header);
    } else {
        ga_store16_relaxed((uint16_t *)payload - 1, (uint16_t)header);
    }
}

/* By the bytes of the header before `payload`. */
#define GA_SEGMENT_BY_HEAD(payload, eight, four, two)                                              \
    uint32_t head = ga_segment_head(payload);                                                      \
    return head == 8u ? eight : head == 4u ? four : two

GA_SIMT uint64_t ga_segment_read_relaxed(const char *payload)
{
    GA_SEGMENT_BY_HEAD(payload, ga_load64_relaxed((const uint64_t *)payload - 1),
                       ga_load_relaxed((const uint32_t *)payload - 1),
                       ga_load16_relaxed((const uint16_t *)payload - 1));
}

/* Pairs with what released the header: S1 or S3. */
GA_SIMT uint64_t ga_segment_read_acquire(const char *payload)
{
    GA_SEGMENT_BY_HEAD(payload, ga_load64_acquire((const uint64_t *)payload - 1),
                       ga_load_acquire((const uint32_t *)payload - 1),
                       ga_load16_acquire((const uint16_t *)payload - 1));
}

#define GA_SEGMENT_CAS(order)                                                                      \
    GA_SIMT uint64_t ga_segment_cas_##order(char *payload, uint64_t expected, uint64_t desired)    \
    {                                                                                              \
        GA_SEGMENT_BY_HEAD(                                                                        \
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

/* The caller's segment is free from now on. Answers the header as it was: with GA_SEGMENT_FREE in
 * it, it had been freed before, and nothing has changed; with GA_SEGMENT_LAST, the caller has to
 * walk. */
GA_SIMT uint64_t ga_segment_mark(char *payload)
{
    uint64_t seen = ga_segment_read_relaxed(payload); /* relaxed: a guess */
    while (!(seen & GA_SEGMENT_FREE)) {
#if GA_COALESCE_MUTANT == 1
        uint64_t found = ga_segment_cas_relaxed(payload, seen, seen | GA_SEGMENT_FREE);
#elif GA_COALESCE_MUTANT == 6
        uint64_t found = seen;
        ga_clock_sleep(GA_COALESCE_MUTANT_NAP);
        ga_segment_write(payload, ga_segment_head(payload), seen | GA_SEGMENT_FREE);
#else
        /* S1: release. Pairs with S2: what we did with it happens before the superblock goes
         * back. */
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
#if GA_COALESCE_MUTANT == 4
    (void)ga_segment_read_relaxed(payload);
#else
    /* S4: acquire. Pairs with S3: we read what stands there since our own change of it, which
     * continues what S3 released. */
    (void)ga_segment_read_acquire(payload);
#endif
}

/* From the segment `payload`, whose header is `header` and which is free like all above it, down:
 * the bit `last` goes to the first that is not free. Answers NULL then, and the superblock where
 * all are free. */
GA_SIMT char *ga_segment_walk(char *payload, uint64_t header)
{
    while (!(header & GA_SEGMENT_FIRST)) {
        payload -= ga_segment_distance(header);
#if GA_COALESCE_MUTANT == 2
        header = ga_segment_read_relaxed(payload);
#else
        /* S2: acquire, here and where S3 fails. Pairs with S1. */
        header = ga_segment_read_acquire(payload);
#endif
        while (!(header & GA_SEGMENT_FREE)) {
#if GA_COALESCE_MUTANT == 3
            uint64_t found = ga_segment_cas_acquire(payload, header, header | GA_SEGMENT_LAST);
#elif GA_COALESCE_MUTANT == 7
            uint64_t found = header;
            ga_clock_sleep(GA_COALESCE_MUTANT_NAP);
            ga_segment_write(payload, ga_segment_head(payload), header | GA_SEGMENT_LAST);
#else
            /* S3: release. Pairs with S4: all above has been freed. */
            uint64_t found = ga_segment_cas_acq_rel(payload, header, header | GA_SEGMENT_LAST);
#endif
            if (found == header || GA_COALESCE_MUTANT == 8) {
                return NULL;
            }
            header = found;
        }
    }
    return payload - ga_segment_distance(header);
}

#endif
