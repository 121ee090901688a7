/* SPDX-License-Identifier: MIT
 *
 * Epochs of tiles (reclaim/epoch_tile.h) in kernels: tiles of warps and of 8 lanes use the nodes of
 * cells, replace them, and wipe and reuse nodes that no tile can be using any more. Nodes are plain
 * memory, which a multiprocessor keeps in a cache that other multiprocessors' writes do not reach:
 * a missing order shows as a node with two numbers, or with none. A run that does not wait for
 * epochs must show this, because otherwise the case could not fail.
 */
#include "simt_gpu.h"

#include "../../liballoc/reclaim/epoch_tile.h"
#include "../../liballoc/simt/clock.h"

enum {
    EPOCH_CELLS = 6,
    EPOCH_WORDS = 15,
    EPOCH_NODES = 1 << 20,
    EPOCH_BLOCKS = 200,
    EPOCH_THREADS = 256,
    EPOCH_PUTS = 5,  /* one in EPOCH_PUTS uses replaces the node, */
    EPOCH_LONG = 16, /* and one in EPOCH_LONG takes long */
    EPOCH_LOOKS = 6  /* uses before the tile checks whether its epoch is closed */
};

typedef struct epoch_node {
    uint32_t words[EPOCH_WORDS]; /* plain: its number, mixed, each; 0 where it is wiped */
    uint32_t later;              /* on a list: the next node's index, 0 for none */
} epoch_node;

typedef struct epoch_world {
    ga_epochs epochs;
    uint32_t cells[EPOCH_CELLS]; /* C: places of nodes; 0: none yet */
    uint32_t retired;            /* R: unlinked since the last epoch was closed */
    uint32_t waiting;            /* owned by the tile that owns the epochs */
    uint32_t made;               /* relaxed, as all below: counts */
    uint32_t numbers;
    uint64_t looks, wrong, closed, freed;
    epoch_node nodes[EPOCH_NODES]; /* [0] is none */
} epoch_world;

/* The state of one tile. */
typedef struct epoch_tile {
    ga_tile tile;
    uint32_t random;
    uint32_t own; /* wiped nodes for its own use, a list */
} epoch_tile;

static __device__ uint32_t below(epoch_tile *one, uint32_t end)
{
    one->random = one->random * 1664525u + 1013904223u;
    return (one->random >> 8) % end;
}

static __device__ void count(epoch_tile *one, uint64_t *word, uint64_t more)
{
    GA_EACH_LANE(one->tile, 1u << ga_tile_leader(one->tile), own)
    {
        (void)own;
        ga_post_add64_relaxed(word, more);
    }
}

/* Every lane reads a word, and after a while another. */
static __device__ void use(epoch_world *world, epoch_tile *one)
{
    ga_tile tile = one->tile;
    uint32_t leader = ga_tile_leader(tile), which = below(one, EPOCH_CELLS);
    ga_lanes at = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* C2: acquire. Pairs with C1: the node's contents are visible. */
        ga_lane_write(&at, own, ga_load_acquire(world->cells + which));
    }
    ga_tile_sync(tile); /* all lanes have the leader's acquire */
    uint32_t place = ga_lanes_get(tile, at, leader);
    if (!place) {
        return;
    }
    const uint32_t *words = world->nodes[place].words;
    uint32_t lane = ga_warp_lane();
    uint32_t first = words[lane % EPOCH_WORDS];
    if (below(one, EPOCH_LONG) == 0) { /* long enough for the node to be wiped */
        ga_clock_sleep(20000);
    }
    /* relaxed: bypasses the multiprocessor's cache, which could have old contents */
    uint32_t second = ga_load_relaxed(words + (lane + 7) % EPOCH_WORDS);
    bool right = ga_lanes_same(tile, first) && first != 0 && first == second;
    count(one, &world->looks, 1);
    if (ga_lanes_any(tile, ga_lanes_all(right ? 0 : 1u))) {
        count(one, &world->wrong, 1);
    }
}

/* A free node of the tile: its index, 0 if there is none left. */
static __device__ uint32_t take(epoch_world *world, epoch_tile *one)
{
    uint32_t leader = ga_tile_leader(one->tile), place = one->own;
    ga_lanes told = ga_lanes_all(0);
    GA_EACH_LANE(one->tile, 1u << leader, own)
    {
        uint32_t made = place ? 0 : 1u + ga_add_relaxed(&world->made, 1u);
        ga_lane_write(&told, own, place ? world->nodes[place].later : made);
    }
    uint32_t said = ga_lanes_get(one->tile, told, leader);
    if (place) {
        one->own = said;
        return place;
    }
    return said < EPOCH_NODES ? said : 0;
}

/* Replace the node of a cell, and put the old one on the list of unlinked nodes. */
static __device__ void put_another(epoch_world *world, epoch_tile *one)
{
    ga_tile tile = one->tile;
    uint32_t fresh = take(world, one), which = below(one, EPOCH_CELLS);
    if (!fresh) {
        return;
    }
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes told = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        ga_lane_write(&told, own, 1u + ga_add_relaxed(&world->numbers, 1u) % 0xffffff00u);
    }
    uint32_t number = ga_lanes_get(tile, told, leader);
    for (uint32_t i = ga_lane_read(ga_tile_ranks(tile), 0); i < EPOCH_WORDS;
         i += ga_tile_size(tile)) {
        world->nodes[fresh].words[i] = number;
    }
    ga_tile_sync(tile); /* all of it is the leader's */
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        (void)own;
        /* C1: release, and acquire: it is retired as it was made. Pairs with C2. */
        uint32_t old = ga_exchange_acq_rel(world->cells + which, fresh);
        uint32_t first = ga_load_relaxed(&world->retired); /* relaxed: a guess; R1 confirms it */
        while (old) {
            world->nodes[old].later = first;
            /* R1: release. Pairs with R2: it was unlinked before. */
            uint32_t seen = ga_cas_release(&world->retired, first, old);
            old = seen == first ? 0 : old;
            first = seen;
        }
    }
    ga_tile_sync(tile);
}

/* No tile uses the nodes of this list: they are wiped, and belong to this tile now. */
static __device__ void wipe(epoch_world *world, epoch_tile *one, uint32_t place)
{
    ga_tile tile = one->tile;
    uint64_t freed = 0;
    while (place) {
        epoch_node *node = world->nodes + place;
        uint32_t later = node->later;
        ga_tile_sync(tile); /* all have read that */
        for (uint32_t i = ga_lane_read(ga_tile_ranks(tile), 0); i < EPOCH_WORDS;
             i += ga_tile_size(tile)) {
            node->words[i] = 0;
        }
        GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
        {
            (void)own;
            node->later = one->own;
        }
        ga_tile_sync(tile);
        one->own = place;
        place = later;
        freed++;
    }
    count(one, &world->freed, freed);
}

/* The leader takes over the unlinked nodes. */
static __device__ uint32_t take_retired(epoch_world *world, ga_tile tile)
{
    uint32_t leader = ga_tile_leader(tile);
    ga_lanes told = ga_lanes_all(0);
    GA_EACH_LANE(tile, 1u << leader, own)
    {
        /* R2: acquire. Pairs with R1. */
        ga_lane_write(&told, own, ga_exchange_acquire(&world->retired, 0));
    }
    ga_tile_sync(tile); /* all lanes have the leader's acquire */
    return ga_lanes_get(tile, told, leader);
}

/* One step of freeing; `hasty`: without waiting for tiles that may be using the nodes. */
static __device__ void tidy(epoch_world *world, epoch_tile *one, bool hasty)
{
    ga_tile tile = one->tile;
    if (hasty) {
        wipe(world, one, take_retired(world, tile));
        return;
    }
    if (ga_epochs_claim(&world->epochs, tile)) {
        uint32_t taken = take_retired(world, tile);
        GA_EACH_LANE(tile, 1u << ga_tile_leader(tile), own)
        {
            (void)own;
            world->waiting = taken;
        }
        ga_epochs_close(&world->epochs, tile);
        count(one, &world->closed, 1);
    }
    if (ga_epochs_drained(&world->epochs, tile)) {
        uint32_t waiting = world->waiting;
        wipe(world, one, waiting);
        ga_epochs_reopen(&world->epochs, tile);
    }
}

static __global__ void epoch_kernel(epoch_world *world, uint32_t width, uint32_t rounds, bool hasty)
{
    epoch_tile one;
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    one.tile = ga_tile_of(width);
    one.own = 0;
    one.random = ga_bits_mix(thread / width + 1u);
    uint32_t pin = ga_epoch_enter(&world->epochs, one.tile, thread / width);
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < EPOCH_LOOKS; i++) {
            if (below(&one, EPOCH_PUTS) == 0) {
                put_another(world, &one);
            } else {
                use(world, &one);
            }
        }
        if (ga_epoch_is_closed(&world->epochs, one.tile, pin)) {
            ga_epoch_leave(&world->epochs, one.tile, pin);
            pin = ga_epoch_enter(&world->epochs, one.tile, thread / width);
        }
        if (below(&one, 8) == 0) {
            tidy(world, &one, hasty);
        }
    }
    ga_epoch_leave(&world->epochs, one.tile, pin);
}

/* The figures are copied without the nodes. */
static bool run_epochs(uint32_t width, bool hasty, epoch_world *said)
{
    epoch_world *world = (epoch_world *)suite_memory(sizeof *world);
    if (!world) {
        return false;
    }
    epoch_kernel<<<EPOCH_BLOCKS, EPOCH_THREADS>>>(world, width, suite.quick ? 20 : 400, hasty);
    bool done = KERNELS_DONE() && CUDA_DONE(cudaMemcpy(said, world, offsetof(epoch_world, nodes),
                                                       cudaMemcpyDeviceToHost));
    cudaFree(world);
    return done;
}

static void expect_epochs(uint32_t width, epoch_world *said)
{
    if (!run_epochs(width, false, said)) {
        return;
    }
    printf("    tiles of %u: %llu looks, %llu epochs closed, %llu nodes given back\n", width,
           (unsigned long long)said->looks, (unsigned long long)said->closed,
           (unsigned long long)said->freed);
    if (said->wrong || !said->looks) {
        FAIL("no node to be wiped while a tile uses it; %llu of %llu were",
             (unsigned long long)said->wrong, (unsigned long long)said->looks);
    }
    if (!suite.quick && (said->closed < 2 || !said->freed)) {
        FAIL("nodes to be given back while the kernel runs; closed %llu epochs, gave back %llu",
             (unsigned long long)said->closed, (unsigned long long)said->freed);
    }
}

void simt_epochs(int device)
{
    epoch_world *said = (epoch_world *)malloc(offsetof(epoch_world, nodes));
    (void)device;
    if (!said) {
        FAIL("memory for figures");
        return;
    }
    expect_epochs(32, said);
    expect_epochs(8, said);
    if (run_epochs(32, true, said) && !said->wrong && !suite.quick) {
        FAIL("a node to be seen wiped where nobody waits for an epoch: this case is blind");
    }
    free(said);
}
