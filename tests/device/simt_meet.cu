/* SPDX-License-Identifier: MIT
 *
 * Tiles of one warp that meet: lanes that have parted call the same function at different times,
 * and with naps in its loop come to run together at the same place. Each tile must go on with its
 * own lanes and its own values. A compiler that assumes that a mask is equal in all running lanes
 * gets this wrong (docs/internals/simt.md).
 */
#include "simt_gpu.h"

#include "../../liballoc/simt/clock.h"
#include "../../liballoc/simt/share.h"
#include "../../liballoc/simt/simt.h"

enum {
    MEET_ROUNDS = 7, /* rounds of one call at most */
    MEET_WORDS = 64  /* words that leaders change, so that they take different times */
};

typedef enum meet_kind {
    MEET_GET = 0,
    MEET_SHARE,
    MEET_NONZERO,
    MEET_ANY,
    MEET_SAME,
    MEET_EQUAL,
    MEET_UNION,
    MEET_SUM,
    MEET_PREFIX,
    MEET_PREVIOUS,
    MEET_MERGE,
    MEET_SYNC,
    MEET_KINDS
} meet_kind;

static const char *const meet_names[] = {"get",    "a share",  "nonzero", "any",
                                         "same",   "equal",    "union",   "sum",
                                         "prefix", "previous", "merge",   "sync"};

typedef struct meet_tally {
    uint64_t wrong[MEET_KINDS];
    uint64_t calls;
    uint64_t met; /* reads that show which lanes of another tile ran, too */
    uint32_t words[MEET_WORDS];
} meet_tally;

static __device__ void expect(meet_tally *tally, meet_kind kind, bool holds)
{
    if (!holds) {
        ga_post_add64_relaxed(&tally->wrong[kind], 1); /* relaxed: read when the kernel has ended */
    }
}

/* The value of lane `lane` in round `round` of the tile of these lanes. */
static __device__ uint32_t brought(uint32_t lanes, uint32_t round, uint32_t lane)
{
    return ga_bits_mix(lanes + round * 77u + (lane << 24));
}

/* The values of all lanes, computed by each lane for itself. */
typedef struct meet_facts {
    uint32_t odd;   /* the mask of lanes whose value is odd */
    uint32_t equal; /* ... whose value agrees with the own one in two bits */
    uint32_t sum, all;
    uint32_t before; /* the sum of the lower lanes' bytes */
    uint32_t merged; /* the union of the bits of `equal` */
} meet_facts;

static __device__ meet_facts facts_of(uint32_t lanes, uint32_t round, uint32_t own)
{
    meet_facts facts = {};
    uint32_t mine = brought(lanes, round, own);
    for (uint32_t rest = lanes; rest; rest &= rest - 1u) {
        uint32_t lane = ga_bits_lowest(rest);
        uint32_t value = brought(lanes, round, lane);
        facts.odd |= (value & 1u) << lane;
        facts.equal |= (value >> 8 & 3u) == (mine >> 8 & 3u) ? 1u << lane : 0;
        facts.sum += value & 255u;
        facts.all |= 1u << (value & 31u);
        facts.before += lane < own ? value & 255u : 0;
        facts.merged |= (value >> 8 & 3u) == (mine >> 8 & 3u) ? 1u << (value & 31u) : 0;
    }
    return facts;
}

/* The leader takes its time. */
static __device__ void dawdle(ga_tile tile, meet_tally *tally, uint32_t round)
{
    uint32_t leader = ga_tile_leader(tile);
    uint32_t lanes = ga_tile_members(tile);
    for (uint32_t tries = 0; tries < 5; tries++) {
        ga_lanes turn = ga_lanes_all(0);
        GA_EACH_LANE(tile, 1u << leader, own)
        {
            uint32_t *word = &tally->words[ga_bits_mix(lanes + round + tries) % MEET_WORDS];
            ga_lane_write(&turn, own, 1u + ga_add_relaxed(word, 1u) % 3u); /* relaxed: a number */
        }
        ga_tile_sync(tile);
        uint32_t answer = ga_lanes_get(tile, turn, leader);
        expect(tally, MEET_GET, answer != 0);
        if (answer > 1u) {
            break;
        }
        ga_clock_sleep(200);
    }
}

static __device__ void share(ga_tile tile, meet_tally *tally, uint32_t round, ga_lanes values,
                             uint32_t asking)
{
    GA_SHARE(tile, asking, lane)
    {
        ga_lanes done = ga_lanes_all(0);
        GA_EACH_LANE(tile, 1u << lane, own)
        {
            uint32_t *word = &tally->words[(ga_tile_members(tile) + lane) % MEET_WORDS];
            ga_lane_write(&done, own, 1u + ga_add_relaxed(word, 1u) % 3u); /* relaxed: a number */
        }
        ga_tile_sync(tile);
        uint32_t value = ga_lanes_get(tile, values, lane);
        uint32_t answer = ga_lanes_get(tile, done, lane);
        expect(tally, MEET_SHARE, value == brought(ga_tile_members(tile), round, lane) && answer);
        if (answer == 2u) {
            ga_clock_sleep(100);
        }
    }
}

static __device__ void look(ga_tile tile, meet_tally *tally, uint32_t round,
                            volatile uint32_t *slots)
{
    uint32_t lanes = ga_tile_members(tile);
    uint32_t own = ga_warp_lane();
    uint32_t leader = ga_tile_leader(tile);
    uint32_t value = brought(lanes, round, own);
    meet_facts facts = facts_of(lanes, round, own);
    expect(tally, MEET_GET, ga_lanes_get(tile, value, leader) == brought(lanes, round, leader));
    uint32_t odd = ga_lanes_nonzero(tile, value & 1u);
    expect(tally, MEET_NONZERO, odd == facts.odd);
    share(tile, tally, round, value, odd);
    expect(tally, MEET_ANY, ga_lanes_any(tile, value & 1u) == (facts.odd != 0));
    expect(tally, MEET_SAME, ga_lanes_same(tile, lanes));
    ga_lanes equal = ga_lanes_equal(tile, lanes, value >> 8 & 3u);
    expect(tally, MEET_EQUAL, equal == facts.equal);
    expect(tally, MEET_UNION, ga_lanes_union(tile, 1u << (value & 31u)) == facts.all);
    expect(tally, MEET_SUM, ga_lanes_sum(tile, value & 255u) == facts.sum);
    expect(tally, MEET_PREFIX, ga_lanes_prefix_sum(tile, value & 255u) == facts.before);
    uint32_t before = lanes & ga_bits_below(own);
    uint32_t previous = before ? brought(lanes, round, 31u - ga_bits_leading(before)) : 0;
    expect(tally, MEET_PREVIOUS, ga_lanes_previous(tile, lanes, value) == previous);
    expect(tally, MEET_MERGE, ga_lanes_merge_or(tile, equal, 1u << (value & 31u)) == facts.merged);
    slots[own] = lanes + round;
    ga_tile_sync(tile);
    uint32_t after = lanes & ~ga_bits_below(own + 1u);
    expect(tally, MEET_SYNC, slots[after ? ga_bits_lowest(after) : leader] == lanes + round);
    ga_tile_sync(tile);
}

static __device__ __noinline__ void meet(meet_tally *tally, volatile uint32_t *slots)
{
    ga_tile tile = ga_tile_present();
    uint32_t lanes = ga_tile_members(tile);
    uint32_t rounds = 1u + ga_bits_mix(lanes) % MEET_ROUNDS;
    for (uint32_t round = 0; round < rounds; round++) {
        dawdle(tile, tally, round);
        look(tile, tally, round, slots);
        if (__activemask() & ~lanes) {
            ga_post_add64_relaxed(&tally->met, 1); /* relaxed, as below: counts */
        }
    }
    ga_post_add64_relaxed(&tally->calls, 1);
}

static __global__ void meet_kernel(uint32_t rounds, meet_tally *tally)
{
    static __shared__ uint32_t slots[8][32];
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t way = ga_bits_mix((round << 20) + blockIdx.x * blockDim.x + threadIdx.x) % 5u;
        if (way == 0) {
            ga_clock_sleep(500);
        }
        if (way != 1) {
            meet(tally, slots[threadIdx.x / 32u]);
        }
    }
}

void simt_meetings(int device)
{
    meet_tally found;
    meet_tally *tally = (meet_tally *)suite_memory(sizeof *tally);
    (void)device;
    if (!tally) {
        return;
    }
    meet_kernel<<<64, 256>>>(suite.quick ? 3 : 60, tally);
    if (CUDA_DONE(cudaMemcpy(&found, tally, sizeof found, cudaMemcpyDeviceToHost))) {
        printf("    %llu calls; lanes of other tiles ran beside %llu looks\n",
               (unsigned long long)found.calls, (unsigned long long)found.met);
        for (int kind = 0; kind < MEET_KINDS; kind++) {
            if (found.wrong[kind]) {
                FAIL("each tile to have its own \"%s\", %llu times it had not", meet_names[kind],
                     (unsigned long long)found.wrong[kind]);
            }
        }
    }
    cudaFree(tally);
}
