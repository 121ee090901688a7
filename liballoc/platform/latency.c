/* SPDX-License-Identifier: MIT
 *
 * Times below 8 ns have a size each; from there on a size is the leading bit and the three behind it.
 */
#include "latency.h"

static unsigned size_of(uint64_t ns)
{
    if (ns < 8) {
        return (unsigned)ns;
    }
    unsigned shift =
        60u - (unsigned)__builtin_clzll(ns); /* leaves four bits, the first of them set */
    unsigned size = shift * 8u + (unsigned)(ns >> shift);
    return size < GA_LATENCY_SIZES ? size : GA_LATENCY_SIZES - 1;
}

/* The longest time of that size. */
static uint64_t end_of(unsigned size)
{
    if (size < 16) {
        return size;
    }
    unsigned shift = size / 8u - 1u;
    return ((uint64_t)(size % 8u + 9u) << shift) - 1u;
}

void ga_latency_add(ga_latency *latency, uint64_t ns)
{
    latency->count++;
    latency->most = ns > latency->most ? ns : latency->most;
    latency->sum += ns;
    latency->counts[size_of(ns)]++;
}

void ga_latency_join(ga_latency *latency, const ga_latency *other)
{
    latency->count += other->count;
    latency->most = other->most > latency->most ? other->most : latency->most;
    latency->sum += other->sum;
    for (unsigned size = 0; size < GA_LATENCY_SIZES; size++) {
        latency->counts[size] += other->counts[size];
    }
}

uint64_t ga_latency_quantile(const ga_latency *latency, unsigned per_mille)
{
    /* How many there are at most below the quantile, rounded up, so that one lies there. */
    uint64_t rank = (latency->count * per_mille + 999u) / 1000u;
    uint64_t seen = 0;
    for (unsigned size = 0; size < GA_LATENCY_SIZES - 1; size++) {
        seen += latency->counts[size];
        if (seen >= rank && seen) {
            return end_of(size) < latency->most ? end_of(size) : latency->most;
        }
    }
    return latency->most;
}
