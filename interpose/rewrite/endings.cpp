/* SPDX-License-Identifier: MIT */
#include "endings.h"

#include "function.h"
#include "graph.h"
#include "library.h"
#include "walk.h"

#include <clang/AST/ASTContext.h>
#include <llvm/Support/Casting.h>

#include <algorithm>

using namespace clang;
using llvm::dyn_cast;

namespace rewrite
{
namespace
{

/* A status of which the lowest eight bits are not zero, because others are not seen outside. */
bool is_failure(const Expr *status, const ASTContext &context)
{
    Expr::EvalResult constant;
    return status->EvaluateAsInt(constant, context) &&
           (constant.Val.getInt().getExtValue() & 0xff) != 0;
}

} // namespace

bool endings::ends_all(const CallExpr *call) const
{
    const FunctionDecl *called = call->getDirectCallee();
    const library_function *known =
        called && is_global(called) ? find_library_function(called->getName()) : nullptr;
    if (!known || !(known->effects & (ENDS_ALL | FAILS))) {
        return false;
    }
    bool fails = known->name == llvm::StringRef("MPI_Abort") ||
                 (call->getNumArgs() == 1 && is_failure(call->getArg(0), called->getASTContext()));
    return (known->effects & ENDS_ALL) || (fails && seen.count(call) && !late.count(call));
}

bool endings::finalizes(const callee &called) const
{
    const FunctionDecl *f = called.call->getDirectCallee();
    return called.body ? finalizers.count(called.body)
                       : f && is_global(f) && f->getName() == "MPI_Finalize";
}

/* Find the functions that may return after MPI_Finalize(). A function that ends the rank behind it
 * is none. */
void endings::find_finalizers()
{
    std::map<definition, std::vector<definition>> callers;
    std::vector<definition> open;
    for (const auto &[f, of_f] : calls) {
        for (const callee &called : of_f) {
            callers[called.body].push_back(f);
        }
        open.push_back(f);
    }
    while (!open.empty()) {
        definition f = open.back();
        open.pop_back();
        if (!finalizers.count(f) && follow(f, nullptr)) {
            finalizers.insert(f);
            open.insert(open.end(), callers[f].begin(), callers[f].end());
        }
    }
}

void endings::mark_late(const callee &called)
{
    late.insert(called.call);
    if (called.body && late_functions.insert(called.body).second) {
        waiting.push_back(called.body);
    }
}

/* Follow the paths of the function from its calls that lead to MPI_Finalize(). Calls that are
 * reached are entered in `reached`, unless it is NULL. Returns true if the function may return. */
bool endings::follow(definition f, std::set<const callee *> *reached) const
{
    const std::vector<callee> &of_f = calls.at(f);
    if (std::none_of(of_f.begin(), of_f.end(),
                     [this](const callee &called) { return finalizes(called); })) {
        return false;
    }
    std::map<const Stmt *, const callee *> known;
    for (const callee &called : of_f) {
        known[called.call] = &called;
    }
    auto cfg = CFG::buildCFG(f, f->getBody(), &f->getASTContext(), graph_options());
    std::vector<const CFGBlock *> open;
    std::set<const CFGBlock *> entered;
    std::set<const callee *> visited;
    auto run = [&](const CFGBlock &block, bool after) {
        for (const CFGElement &element : block) {
            auto statement = element.getAs<CFGStmt>();
            auto called = statement ? known.find(statement->getStmt()) : known.end();
            if (called != known.end()) {
                visited.insert(called->second);
                if (after && reached) {
                    reached->insert(called->second);
                }
                after = after || finalizes(*called->second);
            }
        }
        for (const CFGBlock::AdjacentBlock &edge : block.succs()) {
            const CFGBlock *next = edge.getPossiblyUnreachableBlock();
            next = next ? next : edge.getReachableBlock();
            if (after && next && !block.hasNoReturnElement() && entered.insert(next).second) {
                open.push_back(next);
            }
        }
    };
    for (auto block = cfg ? cfg->begin() : CFG::iterator(); cfg && block != cfg->end(); ++block) {
        run(**block, false);
    }
    while (!open.empty()) {
        const CFGBlock *block = open.back();
        open.pop_back();
        run(*block, true);
    }
    bool hidden = !cfg; /* MPI_Finalize() is called at a place that the graph does not have */
    for (const callee &called : of_f) { /* some statements of OpenMP are not in the graph */
        hidden = hidden || (!visited.count(&called) && finalizes(called));
    }
    for (const callee &called : of_f) {
        if (reached && (hidden || !visited.count(&called))) {
            reached->insert(&called);
        }
    }
    return hidden || entered.count(&cfg->getExit());
}

void endings::analyse(const std::vector<definition> &all,
                      const std::function<definition(const FunctionDecl *)> &find,
                      const std::set<definition> &anywhere)
{
    bool is_cxx = false;
    for (definition f : all) {
        std::vector<callee> &of_f = calls[f];
        is_cxx = is_cxx || f->getASTContext().getLangOpts().CPlusPlus;
        each_statement(f->getBody(), nullptr, [&](const Stmt *statement, const Stmt *) {
            if (const auto *call = dyn_cast<CallExpr>(statement)) {
                const FunctionDecl *called = call->getDirectCallee();
                seen.insert(call);
                of_f.push_back({call, called ? find(called) : nullptr});
            }
        });
    }
    find_finalizers();
    bool hidden = is_cxx; /* it may be called at a place that is not seen */
    bool any = false;
    for (const auto &[f, of_f] : calls) {
        hidden = hidden || (finalizers.count(f) && anywhere.count(f));
        for (const callee &called : of_f) {
            any = any || finalizes(called);
        }
    }
    for (definition f : all) {
        if (any && (hidden || anywhere.count(f)) && late_functions.insert(f).second) {
            waiting.push_back(f);
        }
    }
    std::set<const callee *> reached;
    for (definition f : all) {
        follow(f, &reached);
    }
    for (const callee *called : reached) {
        mark_late(*called);
    }
    while (!waiting.empty()) {
        definition f = waiting.back();
        waiting.pop_back();
        for (const callee &called : calls[f]) {
            mark_late(called);
        }
    }
}

} // namespace rewrite
