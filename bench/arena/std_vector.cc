/* SPDX-License-Identifier: MIT
 *
 * std::vector with its default allocator.
 */
#include "ways.h"

#include <new>
#include <vector>

static void push_all(std::vector<uint64_t> &numbers, uint64_t n, growth_cost *cost)
{
    numbers.reserve(GROWTH_FIRST);
    for (uint64_t i = 0; i < n; i++) {
        if (numbers.size() == numbers.capacity()) {
            double start = growth_now();
            numbers.push_back(i);
            growth_note(cost, growth_now() - start);
        } else {
            numbers.push_back(i);
        }
    }
}

bool growth_fill_std_vector(uint64_t n, growth_cost *cost)
{
    try {
        std::vector<uint64_t> numbers;
        double start = growth_now();
        push_all(numbers, n, cost);
        cost->all = growth_now() - start;
        return growth_holds(numbers.data(), n);
    } catch (const std::bad_alloc &) {
        return false;
    }
}
