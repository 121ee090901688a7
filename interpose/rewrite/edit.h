/* SPDX-License-Identifier: MIT
 *
 * The changes to the sources that the decisions demand (warp-coalescing-gpumpi-2022, Listing 1):
 * arguments of calls, parameters of functions, and calls at the beginning and the ends of an entry.
 */
#ifndef GPUALLOC_REWRITE_EDIT_H
#define GPUALLOC_REWRITE_EDIT_H

#include "spelling.h"
#include "variance.h"

#include <clang/AST/Decl.h>
#include <clang/AST/Expr.h>

#include <map>
#include <set>
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
        OWN,      /* .own() after a variable that each rank has */
        CLOSE,    /* the end of a statement or expression that another change begins */
        INCLUDE,  /* of gpualloc/gpu_mpi.cuh */
        VARIABLE, /* declarations of variables that each rank has */
        DEVICE,   /* __device__ */
        CAST,
        BEGIN,  /* init_malloc(), or clean_malloc() before a statement */
        END,    /* clean_malloc() before the last brace */
        RETURN, /* return 0 after that */
        PARAMETER,
        ARGUMENT,
        NAME,   /* of main() */
        PROGRAM /* main() of the host, at the end of a file */
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

/* Changes that cannot be made: their places, and why. */
using left_out = std::set<std::pair<place, std::string>>;

struct change_set {
    /* Of all files, sorted. A change of a header that several files include is there once. */
    std::vector<change> changes;
    std::map<std::string, std::string> parsed; /* the text of each file that changes */
    left_out left;

    /* The second of two changes that exclude each other, or NULL. */
    const change *conflict() const;

    std::string apply(const std::string &file) const;
};

class collector
{
  public:
    void add(change::kind what, const clang::SourceManager &sources, clang::SourceLocation at,
             unsigned length, std::string text);

    /* True if the file changes before that offset. */
    bool changes_before(const std::string &file, unsigned offset) const;

    /* A change is needed there that cannot be made. `what`: "clean_malloc() cannot be called here
     * because it is in a macro". */
    void leave(const clang::SourceManager &sources, clang::SourceLocation at, std::string what);

    std::set<change> changes;
    std::map<std::string, std::string> parsed;
    left_out left;
};

/* Changes for the decisions. `ports`: add_port() follows (port.h). The program's contexts must
 * still exist. */
void add_changes(collector &to, const program &all, bool ports);

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
