/* SPDX-License-Identifier: MIT
 *
 * Times counted by size: quantiles are right to within an eighth, and never below the truth.
 */
#include "platform/latency.h"

#include <criterion/criterion.h>
#include <stdint.h>

Test(latency, nothing_took_no_time)
{
    ga_latency none = {0};
    cr_assert_eq(ga_latency_quantile(&none, 500), 0);
    cr_assert_eq(ga_latency_quantile(&none, 1000), 0);
}

Test(latency, one_time_is_every_quantile)
{
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t ns = UINT64_C(1) << bit;
        ga_latency one = {0};
        ga_latency_add(&one, ns);
        cr_assert_eq(ga_latency_quantile(&one, 1), ns);
        cr_assert_eq(ga_latency_quantile(&one, 999), ns);
        cr_assert_eq(one.max, ns);
    }
}

Test(latency, quantiles_are_rounded_up_by_an_eighth_at_most)
{
    ga_latency all = {0};
    for (uint64_t ns = 1; ns <= 100000; ns++) {
        ga_latency_add(&all, ns);
    }
    for (unsigned per_mille = 1; per_mille <= 1000; per_mille++) {
        uint64_t exact = (uint64_t)per_mille * 100;
        uint64_t found = ga_latency_quantile(&all, per_mille);
        cr_assert(found >= exact && found <= exact + exact / 8, "%u: %lu, exactly %lu", per_mille,
                  (unsigned long)found, (unsigned long)exact);
    }
    cr_assert_eq(ga_latency_quantile(&all, 1000), 100000);
}

Test(latency, small_times_are_exact)
{
    ga_latency small = {0};
    for (uint64_t ns = 0; ns < 16; ns++) {
        ga_latency_add(&small, ns);
    }
    cr_assert_eq(ga_latency_quantile(&small, 500), 7);
    cr_assert_eq(ga_latency_quantile(&small, 1000), 15);
}

Test(latency, joined_they_are_as_if_counted_together)
{
    ga_latency parts[2] = {{0}};
    ga_latency all = {0};
    for (uint64_t ns = 1; ns <= 50000; ns += 7) {
        ga_latency_add(&parts[ns % 3 == 0], ns);
        ga_latency_add(&all, ns);
    }
    cr_assert(parts[0].count && parts[1].count);
    ga_latency_join(&parts[0], &parts[1]);
    cr_assert_arr_eq(&parts[0], &all, sizeof all);
    cr_assert_eq(all.sum, all.count * (1 + all.max) / 2);
}
