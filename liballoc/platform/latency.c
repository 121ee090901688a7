/* SPDX-License-Identifier: MIT
 *
 * A histogram of times. Times below 8 ns have an interval each; from there on the leading bit and
 * the next three bits of a time give its interval.
 */
#include "latency.h"

static unsigned interval_of(uint64_t ns)
{
    if (ns < 8) {
        return (unsigned)ns;
    }
    /* Shifts out all but four bits, of which the first is set. */
    unsigned shift = 60u - (unsigned)__builtin_clzll(ns);
    unsigned interval = shift * 8u + (unsigned)(ns >> shift);
    return interval < GA_LATENCY_INTERVALS ? interval : GA_LATENCY_INTERVALS - 1;
}

/* The longest time of that interval, in ns. */
static uint64_t interval_end(unsigned interval)
{
    if (interval < 16) {
        return interval;
    }
    unsigned shift = interval / 8u - 1u;
    return ((uint64_t)(interval % 8u + 9u) << shift) - 1u;
}

void ga_latency_add(ga_latency *latency, uint64_t ns)
{
    latency->count++;
    latency->max = ns > latency->max ? ns : latency->max;
    latency->sum += ns;
    latency->counts[interval_of(ns)]++;
}

void ga_latency_join(ga_latency *latency, const ga_latency *other)
{
    latency->count += other->count;
    latency->max = other->max > latency->max ? other->max : latency->max;
    latency->sum += other->sum;
    for (unsigned interval = 0; interval < GA_LATENCY_INTERVALS; interval++) {
        latency->counts[interval] += other->counts[interval];
    }
}

uint64_t ga_latency_quantile(const ga_latency *latency, unsigned per_mille)
{
    /* Rank of the quantile, rounded up, so that some time has it. */
    uint64_t rank = (latency->count * per_mille + 999u) / 1000u;
    uint64_t seen = 0;
    for (unsigned interval = 0; interval < GA_LATENCY_INTERVALS - 1; interval++) {
        seen += latency->counts[interval];
        if (seen >= rank && seen) {
            return interval_end(interval) < latency->max ? interval_end(interval) : latency->max;
        }
    }
    return latency->max;
}
