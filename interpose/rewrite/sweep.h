/* SPDX-License-Identifier: MIT
 *
 * A worklist for fixed points: it visits numbers in the order of repeated sweeps over all numbers,
 * but only those that were added, because something has changed for them. The cause that is found
 * first is that of whole sweeps, so verdicts do not depend on the worklist. A chain of n functions
 * takes about n steps instead of up to n sweeps.
 */
#ifndef GPUALLOC_REWRITE_SWEEP_H
#define GPUALLOC_REWRITE_SWEEP_H

#include <cstddef>
#include <set>

namespace rewrite
{

class sweep
{
  public:
    /* Visit the number in this sweep if it is greater than the last one, or else in the next. */
    void add(size_t number)
    {
        waiting.insert(number);
    }

    template <typename Iterator> void add(Iterator begin, Iterator end)
    {
        waiting.insert(begin, end);
    }

    /* The next number of this sweep. False at its end, and the next call begins another sweep. */
    bool next_here(size_t &number)
    {
        auto found = waiting.lower_bound(at);
        if (found == waiting.end()) {
            at = 0;
            return false;
        }
        number = *found;
        at = number + 1;
        waiting.erase(found);
        return true;
    }

    /* The next number of this sweep or of another one. False if none is left. */
    bool next(size_t &number)
    {
        return next_here(number) || next_here(number);
    }

  private:
    std::set<size_t> waiting;
    size_t at = 0;
};

} // namespace rewrite

#endif
