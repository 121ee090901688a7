/* SPDX-License-Identifier: MIT
 *
 * Calls that end the whole program. MPI_Abort(), and exit() with a constant status other than zero,
 * end all ranks, as under mpirun; but after MPI_Finalize() they end one rank alone. So the analysis
 * needs to know which of these calls may come after MPI_Finalize(): those are late.
 */
#ifndef GPUALLOC_REWRITE_ENDINGS_H
#define GPUALLOC_REWRITE_ENDINGS_H

#include <clang/AST/Decl.h>
#include <clang/AST/Expr.h>

#include <functional>
#include <map>
#include <set>
#include <vector>

namespace rewrite
{

class endings
{
  public:
    using definition = const clang::FunctionDecl *;

    /* Find the late calls of a program that consists of these functions. `find` gives the
     * definition of a function that is called, or NULL if the program has none. `anywhere` has the
     * functions that may be called at places which are not seen. */
    void analyse(const std::vector<definition> &all,
                 const std::function<definition(const clang::FunctionDecl *)> &find,
                 const std::set<definition> &anywhere);

    /* The call ends all ranks. It is of a function that the program does not define. */
    bool ends_all(const clang::CallExpr *call) const;

  private:
    struct callee {
        const clang::CallExpr *call;
        definition body; /* NULL if the program does not define it */
    };

    bool finalizes(const callee &called) const;
    void find_finalizers();
    void mark_late(const callee &called);
    bool follow(definition f, std::set<const callee *> *reached) const;

    std::map<definition, std::vector<callee>> calls; /* of each function */
    std::set<definition> finalizers;                 /* they may return after MPI_Finalize() */
    std::set<definition> late_functions;             /* they may begin after it */
    std::vector<definition> waiting; /* late functions whose calls are to be marked */
    std::set<const clang::CallExpr *> seen, late;
};

} // namespace rewrite

#endif
