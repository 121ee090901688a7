/* SPDX-License-Identifier: MIT
 *
 * The paper's patterns (program.h).
 */
#include "edit.h"
#include "program.h"

#include <llvm/Support/Casting.h>

#include <algorithm>

using namespace clang;
using llvm::isa;

namespace rewrite
{

/* Collect the calls that are below none of the statements that the paper's patterns exclude. */
static void find_unconditional(const Stmt *statement, std::set<const Stmt *> &found)
{
    if (!statement || isa<IfStmt>(statement) || isa<ForStmt>(statement) ||
        isa<WhileStmt>(statement) || isa<DoStmt>(statement) ||
        isa<AbstractConditionalOperator>(statement)) {
        return;
    }
    if (isa<CallExpr>(statement)) {
        found.insert(statement);
    }
    for (const Stmt *child : statement->children()) {
        find_unconditional(child, found);
    }
}

/* A call of a function gets the argument if the function allocates, by itself or, in the better of
 * the two grades, through others. */
bool program::has_pattern(const decision &call) const
{
    auto allocates = [&](const member &of) {
        return std::any_of(of.decisions.begin(), of.decisions.end(), [&](size_t i) {
            return decisions[i].gets != flag::none &&
                   (by == grade::call_graph || !decisions[i].site->callee);
        });
    };
    bool around = call.in->is_entry || by == grade::call_graph || allocates(member_of(call.in));
    return allocates(member_of(call.site->callee)) && around;
}

/* Without a look at sizes or at the ways by which threads leave. */
void program::decide_by_pattern()
{
    for (auto &m : members) {
        make_decisions(*m);
        std::set<const Stmt *> unconditional;
        find_unconditional(m->analysis->definition->getBody(), unconditional);
        for (size_t i : m->decisions) {
            decision &d = decisions[i];
            const Expr *call = d.site->expression;
            bool can =
                !m->left_alone &&
                !obstacle_to_argument(call, m->analysis->definition->getASTContext(), project) &&
                (d.site->callee || (d.site->allocates && d.site->allocates->collective));
            if (can && unconditional.count(call)) {
                d.gets = d.in->is_entry ? flag::always : flag::passed;
                d.what = verdict::together;
            } else {
                const char *text =
                    can ? "the call is below an if, a loop or a ?:" : "it stays as it is";
                refuse(d, verdict::unknown, d.in->explain_at(call, false, text, nullptr));
            }
        }
    }
    find_calls();
    sweep open;
    for (size_t i = 0; i < decisions.size(); i++) {
        open.add(i);
    }
    for (size_t i; open.next(i);) {
        decision &d = decisions[i];
        if (d.gets != flag::none && d.site->callee && !has_pattern(d)) {
            refuse(d, verdict::unknown,
                   d.in->explain_at(d.site->expression, false,
                                    "the function makes no such allocation", nullptr));
            const member &in = member_of(d.in);
            open.add(in.calls.begin(), in.calls.end());
        }
    }
}

} // namespace rewrite
