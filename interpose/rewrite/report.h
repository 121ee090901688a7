/* SPDX-License-Identifier: MIT
 *
 * The decisions, as text or as JSON.
 */
#ifndef GPUALLOC_REWRITE_REPORT_H
#define GPUALLOC_REWRITE_REPORT_H

#include "edit.h"
#include "program.h"

#include <llvm/Support/raw_ostream.h>

namespace rewrite
{

/* A part of the program that the port to a GPU leaves to the user. */
struct not_ported {
    place at;
    std::string what;

    bool operator<(const not_ported &other) const
    {
        return std::tie(at, what) < std::tie(other.at, other.what);
    }
    bool operator==(const not_ported &other) const
    {
        return !(*this < other) && !(other < *this);
    }
};

/* One line for each allocation:
 *
 *     a.c:8:15: malloc in main(): uniform and equal: true
 *     a.c:16:18: malloc in main(): divergent because of a.c:15:7 (the condition), from a.c:11:34
 *         (MPI_Comm_rank() gives each rank another value)
 *
 * (of a chain of more than 32 causes the first 31 and the last, with "from ..." between them),
 *
 * one for each change that cannot be made, and one for each part that is not ported:
 *
 *     a.c:20:3: cannot be edited: clean_malloc() cannot come before it: it is in a macro
 *     a.c:30:3: not ported: getenv(), which main() calls, has no version for kernels
 */
void print_text(llvm::raw_ostream &out, const program &all, const left_out &left,
                const std::vector<not_ported> &undone);

/* An object with four arrays. "allocations" has an object for each allocation: file, line, column,
 * function, call, verdict ("uniform and equal", "uniform, sizes differ", "divergent" or "unknown"),
 * argument ("true", "coalesce" or null), reached (whether it is true in some call that main or a
 * kernel leads to) and causes, an array with the reason first and its origin last: file, line,
 * column and text, as many as in the text. "changes" has an object for each change: file, offset
 * and length in bytes, and text. "not_edited" and "not_ported" have file, line, column and text. */
void print_json(llvm::raw_ostream &to, const program &all, const change_set &changes,
                const std::vector<not_ported> &undone);

/* The changes as Clang prints them with -fdiagnostics-parseable-fixits. */
void print_fixits(llvm::raw_ostream &out, const std::vector<change> &changes);

} // namespace rewrite

#endif
