/* SPDX-License-Identifier: MIT
 *
 * The CPU's half of coalesce_lone.cu.
 */
#include "coalesce_oracle.h"

#include "../support/coalesce_world.h"

static void note_headers(const coalesce_script *script, char *const *payloads, uint64_t *headers)
{
    for (uint32_t lane = 0; lane < 32; lane++) {
        headers[lane] = script->wanting >> lane & 1u ? ga_segment_read_relaxed(payloads[lane]) : 0;
    }
}

void coalesce_make_script(uint64_t *seed, coalesce_script *script)
{
    static const uint32_t bounds[] = {2, 4, 9, 100, 400, 2000};
    uint32_t bound = bounds[random_below(seed, 6)];
    memset(script, 0, sizeof *script);
    script->form = (uint32_t)random_below(seed, GA_COALESCE_HEADERLESS);
    script->wanting = random_below(seed, 3)
                          ? (uint32_t)random_next(seed) | 1u << random_below(seed, 32)
                          : GA_ALL_BITS;
    uint32_t left = script->wanting & (script->wanting - 1u); /* the lowest stays */
    if (random_below(seed, 2)) {                              /* or another */
        uint32_t stays = ga_bits_nth(script->wanting,
                                     (uint32_t)random_below(seed, ga_bits_count(script->wanting)));
        left = script->wanting & ~(1u << stays);
    }
    for (uint32_t lane = 0; lane < 32; lane++) {
        script->sizes[lane] = random_below(seed, bound + 1);
    }
    for (uint32_t step = 0; step < COALESCE_STEPS; step++) {
        script->giving[step] =
            left & (step + 1 < COALESCE_STEPS ? (uint32_t)random_next(seed) : GA_ALL_BITS);
        left &= ~script->giving[step];
    }
}

void coalesce_expect(const coalesce_script *script, coalesce_outcome *outcome)
{
    coalesce_world *world = world_new(script->form, GA_COALESCE_NO_BARE, 0, 2, 1 << 18);
    char *payloads[32];
    world_malloc(world, script->wanting, script->sizes, payloads);
    char *first = payloads[ga_bits_lowest(script->wanting)];
    memset(outcome, 0, sizeof *outcome);
    for (uint32_t lane = 0; lane < 32; lane++) {
        outcome->place[lane] =
            script->wanting >> lane & 1u ? (uint64_t)(payloads[lane] - first) : 0;
    }
    note_headers(script, payloads, outcome->headers[0]);
    for (uint32_t step = 0; step < COALESCE_STEPS; step++) {
        world_free(world, script->giving[step], payloads);
        note_headers(script, payloads, outcome->headers[step + 1]);
    }
    world_delete(world);
}
