/* SPDX-License-Identifier: MIT
 *
 * How a value, or the execution of a statement, varies between the threads of a block (for CUDA)
 * or between all ranks (for MPI). The analysis of one function gives variances in terms of
 * the function's parameters, so that one analysis serves all calls.
 */
#ifndef GPUALLOC_REWRITE_VARIANCE_H
#define GPUALLOC_REWRITE_VARIANCE_H

#include <clang/Basic/SourceLocation.h>

#include <cstdint>
#include <deque>
#include <string>
#include <tuple>

namespace clang
{
class SourceManager;
}

namespace rewrite
{

/* A line of a source file. It outlives the syntax trees. */
struct place {
    std::string file;
    unsigned line = 0, column = 0;

    bool operator<(const place &other) const
    {
        return std::tie(file, line, column) < std::tie(other.file, other.line, other.column);
    }
};

place place_of(const clang::SourceManager &sources, clang::SourceLocation location);

/* Why threads may differ. Divergent: they differ in some run, as ranks do. Unknown: the analysis
 * cannot tell. */
struct cause {
    bool divergent;
    std::string text; /* "MPI_Comm_rank() gives each rank another value" */
    place at;
    const cause *origin;         /* the cause of the value in `text`, or NULL */
    const cause *root = nullptr; /* the last of the origins; surroundings::explain() sets it */
};

/* All causes of a run; none is freed before the end. */
using causes = std::deque<cause>;

/* An element of a lattice: variances only grow in the fixed-point iterations. */
struct variance {
    static constexpr unsigned PARAMETERS = 63;
    static constexpr uint64_t ALONE = uint64_t{1} << PARAMETERS;

    /* Bit i: varies if the function's parameter i varies. ALONE: varies if the call of the function
     * does not get the argument `coalesce`. */
    uint64_t parameters = 0;
    const cause *why = nullptr; /* varies in any case; the cause found first */

    bool join(const variance &other)
    {
        bool grows = (other.parameters & ~parameters) || (other.why && !why);
        parameters |= other.parameters;
        why = why ? why : other.why;
        return grows;
    }
};

inline variance operator|(variance a, const variance &b)
{
    a.join(b);
    return a;
}

} // namespace rewrite

#endif
