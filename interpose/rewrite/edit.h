/* SPDX-License-Identifier: MIT
 *
 * The changes to the sources that the decisions demand (warp-coalescing-gpumpi-2022, Listing 1):
 * arguments of calls, parameters of functions, and calls at the beginning and the ends of an entry.
 */
#ifndef GPUALLOC_REWRITE_EDIT_H
#define GPUALLOC_REWRITE_EDIT_H

#include <clang/AST/Decl.h>
#include <clang/AST/Expr.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace rewrite
{

class program;

/* `length` bytes of a file from `offset` on are replaced by the text. */
struct change {
    /* Several changes at one place are in this order. */
    enum kind {
        CLOSE, /* the end of a statement or expression that another change begins */
        CAST,
        BEGIN, /* init_malloc(), or clean_malloc() before a statement */
        END,   /* clean_malloc() before the last brace */
        PARAMETER,
        ARGUMENT
    } what;
    std::string file; /* absolute */
    unsigned offset, length, line, column;
    std::string text;

    bool operator<(const change &other) const
    {
        return std::tie(file, offset, what, length, text) <
               std::tie(other.file, other.offset, other.what, other.length, other.text);
    }
};

struct change_set {
    /* Of all files, sorted. A change of a header that several files include is there once. */
    std::vector<change> changes;
    std::map<std::string, std::string> parsed; /* the text of each file that changes */

    /* The second of two changes that exclude each other, or NULL. */
    const change *conflict() const;

    std::string apply(const std::string &file) const;
};

/* The program's contexts must still exist. */
change_set make_changes(const program &all);

/* The absolute name of a file or folder, without links if it exists. */
std::string real_path(llvm::StringRef name);

/* Why the declaration cannot get a parameter, or the call an argument; NULL if it can. `project`:
 * the folder, with a slash at its end, of the files that may be changed. */
const char *obstacle_to_parameter(const clang::FunctionDecl *declaration,
                                  const std::string &project);
const char *obstacle_to_argument(const clang::Expr *call, const clang::ASTContext &context,
                                 const std::string &project);

/* The call has the argument, or the function the parameter, from an earlier run. */
bool has_argument(const clang::CallExpr *call);
bool has_coalesce(const clang::FunctionDecl *declaration);

} // namespace rewrite

#endif
