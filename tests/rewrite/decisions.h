/* SPDX-License-Identifier: MIT
 *
 * The decisions of `gpualloc rewrite` for a program that is given as text.
 */
#ifndef GPUALLOC_TESTS_REWRITE_DECISIONS_H
#define GPUALLOC_TESTS_REWRITE_DECISIONS_H

#include "machine.h"

#include "program.h"

#include <map>
#include <string>

namespace fuzz
{

struct decisions {
    std::map<int, argument> arguments; /* by the lines of the calls */
    long allocations = 0, together = 0;
    size_t steps = 0; /* of the analysis */
};

/* Returns false if Clang refuses the text. */
bool decide(const std::string &text, rewrite::grade by, bool trusts_null, bool is_cuda,
            decisions &found);

} // namespace fuzz

#endif
