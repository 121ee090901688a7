/* SPDX-License-Identifier: MIT
 *
 * Which calls get an argument. A call gets it if all threads make the call together wherever they
 * make it, the sizes and all parameters on which that depends are equal, and no message comes
 * between (messages.h). A function that has such a call gets a parameter, which its callers set if
 * they, in turn, meet the conditions of all its calls that use it.
 *
 * All calls that can be collective for themselves have the argument at first. Then calls lose it
 * until the conditions hold for all others, so that recursive functions need no special care.
 */
#include "edit.h"
#include "program.h"
#include "walk.h"

#include <clang/AST/DeclCXX.h>
#include <clang/Basic/SourceManager.h>

#include <algorithm>

using namespace clang;
using llvm::dyn_cast;
using llvm::dyn_cast_or_null;
using llvm::isa;

namespace rewrite
{
namespace
{

/* The function has a parameter or a variable of the name that it would get. */
bool names_coalesce(const FunctionDecl *f)
{
    bool found = false;
    for (const ParmVarDecl *parameter : f->parameters()) {
        found = found || parameter->getName() == "coalesce";
    }
    each_statement(f->getBody(), nullptr, [&](const Stmt *statement, const Stmt *) {
        const auto *name = dyn_cast<DeclRefExpr>(statement);
        const auto *named = name ? name->getDecl()->getIdentifier() : nullptr;
        found = found || (named && named->isStr("coalesce"));
    });
    return found;
}

} // namespace

bool program::has_parameter(const function *f) const
{
    const member &of = member_of(f);
    return !f->is_entry && !of.left_alone &&
           std::any_of(of.decisions.begin(), of.decisions.end(),
                       [this](size_t i) { return decisions[i].gets != flag::none; });
}

/* Why the function cannot get a parameter, or NULL. */
const cause *program::leave_alone(const member &of) const
{
    const FunctionDecl *f = of.analysis->definition;
    auto because = [&](const char *text) {
        return of.analysis->explain_at(f, false, text, nullptr);
    };
    if (f->isTemplateInstantiation()) {
        return because("the function is a template");
    }
    if (of.analysis->is_entry) {
        return nullptr;
    }
    if (const cause *elsewhere = called_elsewhere(of)) {
        return elsewhere;
    }
    if (f->isVariadic()) {
        return because("the function has a variable number of arguments");
    }
    if (f->getASTContext().getSourceManager().isInSystemHeader(f->getLocation())) {
        return because("the function is in a header of the system");
    }
    if (f->isOverloadedOperator() || isa<CXXConstructorDecl>(f) || isa<CXXDestructorDecl>(f) ||
        isa<CXXConversionDecl>(f)) {
        return because("an operator or a constructor gets no parameter");
    }
    const auto *method = dyn_cast<CXXMethodDecl>(f);
    if (method && (method->isVirtual() || method->getParent()->isLambda())) {
        return because("a virtual function or a lambda gets no parameter");
    }
    if (!has_coalesce(f) && names_coalesce(f)) {
        return because("the function has a name `coalesce` of its own");
    }
    return declarations_obstacle(of);
}

/* Why one of the function's declarations cannot be changed, or NULL. The first in each file gets
 * the default argument. A declaration that is first in one file and not in another, which includes
 * more headers, cannot do both. */
const cause *program::declarations_obstacle(const member &of) const
{
    std::map<place, bool> first;
    const FunctionDecl *definition = of.analysis->definition;
    if (declarations_of(of.analysis.get()).empty()) {
        return of.analysis->explain_at(definition, false,
                                       "it is declared within a class or function", nullptr);
    }
    for (const FunctionDecl *declaration : declarations_of(of.analysis.get())) {
        const char *text = obstacle_to_parameter(declaration, project);
        if (declaration->getNumParams() != definition->getNumParams()) {
            text = "it is declared without its parameters";
        }
        const SourceManager &sources = declaration->getASTContext().getSourceManager();
        place at = place_of(sources, declaration->getLocation());
        auto seen = first.try_emplace(at, declaration->isFirstDecl());
        if (!text && seen.first->second != declaration->isFirstDecl()) {
            text = "it is the first declaration in some files only";
        }
        if (text) {
            return of.analysis->explain_at(declaration, false,
                                           std::string("this declaration stays as it is: ") + text,
                                           nullptr);
        }
    }
    return nullptr;
}

void program::refuse(decision &of, verdict what, const cause *why)
{
    of.gets = flag::none;
    of.what = what;
    of.why = why;
}

/* Likewise, and look again at all that depends on the argument: the conditions of the function
 * around the call, the calls within the function that is called, and, if it was the last one, the
 * calls of the function around it. */
void program::drop(decision &of, verdict what, const cause *why)
{
    refuse(of, what, why);
    const member &in = member_of(of.in);
    unsettled.add(in.component);
    if (of.site->callee) {
        unserved.add(of.site->callee->number);
    }
    if (!has_parameter(of.in)) {
        unfit.add(in.calls.begin(), in.calls.end());
    }
}

/* ---- calls that stay alone ------------------------------------------------------------------- */

/* The value of the argument that the call has already is not that which the analysis would give. */
static bool has_other_argument(const CallExpr *call, const FunctionDecl *in)
{
    const Expr *given = call->getArg(call->getNumArgs() - 1)->IgnoreParenImpCasts();
    const auto *name = dyn_cast<DeclRefExpr>(given);
    const auto *variable = name ? dyn_cast<VarDecl>(name->getDecl()) : nullptr;
    bool is_own = variable && has_coalesce(in) && !in->isMain() &&
                  variable == in->getParamDecl(in->getNumParams() - 1);
    each_statement(is_own ? in->getBody() : nullptr, nullptr,
                   [&](const Stmt *statement, const Stmt *parent) {
                       const auto *use = dyn_cast<DeclRefExpr>(statement);
                       const auto *load = dyn_cast_or_null<ImplicitCastExpr>(parent);
                       bool only_loads = load && load->getCastKind() == CK_LValueToRValue;
                       is_own = is_own && (!use || use->getDecl() != variable || only_loads);
                   });
    const auto *literal = dyn_cast<CXXBoolLiteralExpr>(given);
    return !is_own && !(literal && literal->getValue());
}

const cause *program::stays_alone(const Expr *call, const FunctionDecl *in)
{
    const auto *plain = dyn_cast<CallExpr>(call);
    if (plain && has_argument(plain) && has_other_argument(plain, in)) {
        place at = place_of(in->getASTContext().getSourceManager(), call->getBeginLoc());
        return explain(call, {true, "the call has another argument", at, nullptr});
    }
    auto found = calls_alone.find(call);
    return found == calls_alone.end() ? nullptr : found->second;
}

/* Note the calls that get no argument although the analysis has assumed it. Returns true if there
 * were some: what follows from that assumption is wrong. The analysis goes on from its present
 * state, because all that varied with the assumption varies without it. */
bool program::leave_calls_alone()
{
    bool found = false;
    for (const decision &d : decisions) {
        const Expr *call = d.site->expression;
        if (d.gets == flag::none && !calls_alone.count(call)) {
            calls_alone[call] = d.in->explain_at(
                call, true, "the call is not collective: some threads may get NULL", d.why);
            waiting.insert(d.in->number);
            found = true;
        }
    }
    return found;
}

/* ---- the first decisions -------------------------------------------------------------------- */

void program::make_decisions(member &of)
{
    if (!of.is_decided) {
        of.left_alone = leave_alone(of);
        of.is_decided = true;
    }
    for (const call_site &site : of.analysis->sites) {
        decision made;
        made.site = &site;
        made.in = of.analysis.get();
        made.gets = made.in->is_entry ? flag::always : flag::passed;
        made.what = verdict::together;
        const cause *why = site.reached.why ? site.reached.why : of.left_alone;
        if (site.doomed) {
            why = made.in->explain_at(site.expression, false, "the program ends after it", why);
        }
        if (why) {
            refuse(made, why->divergent ? verdict::divergent : verdict::unknown, why);
        } else if (!site.callee && site.size.why) {
            refuse(made, site.size.why->divergent ? verdict::sizes_differ : verdict::unknown,
                   site.size.why);
        } else if (!site.callee && !(site.allocates && site.allocates->collective)) {
            made.gets = flag::none;
            made.why =
                made.in->explain_at(site.expression, false, "it has no collective form", nullptr);
        } else if (const char *text = obstacle_to_argument(
                       site.expression, of.analysis->definition->getASTContext(), project)) {
            made.gets = flag::none;
            made.why = made.in->explain_at(site.expression, false, text, nullptr);
        }
        of.decisions.push_back(decisions.size());
        decisions.push_back(made);
    }
}

/* Why no call of the function has the argument: the cause of one of its calls. */
const cause *program::no_caller(const member &of) const
{
    for (size_t i : of.calls) {
        const decision &call = decisions[i];
        if (call.gets == flag::none && call.why) {
            const Expr *where = call.site->expression;
            return call.in->explain_at(where, call.why->divergent,
                                       "no call of " + of.analysis->definition->getNameAsString() +
                                           "() is by all threads together",
                                       call.why);
        }
    }
    return nullptr;
}

/* Some call of the function around it meets the conditions of the call. */
bool program::is_served(const decision &of) const
{
    const std::vector<size_t> &calls = member_of(of.in).calls;
    uint64_t required = needs(of).parameters;
    unsigned table = table_of(of);
    return std::any_of(calls.begin(), calls.end(), [&](size_t call) {
        return decisions[call].gets != flag::none && fits(decisions[call], required, table);
    });
}

/* A call that demands more than any caller of its function has loses the argument, rather than the
 * callers theirs. A function without callers may have some in other files. Returns true if there
 * was such a call. */
bool program::drop_sites()
{
    bool dropped = false;
    for (size_t number; unserved.next_here(number);) {
        const member &m = *members[number];
        steps++;
        if (m.analysis->is_entry || m.calls.empty()) {
            continue;
        }
        for (size_t i : m.decisions) {
            decision &d = decisions[i];
            if (d.gets == flag::none || is_served(d)) {
                continue;
            }
            const cause *alone = no_caller(m);
            const cause *why = alone ? alone : explain_needs(d);
            verdict what = alone && alone->divergent ? verdict::divergent : verdict_of(d, why);
            drop(d, what, why);
            dropped = true;
        }
    }
    return dropped;
}

/* Why a call of a function that allocates cannot meet the conditions, or why no call of the
 * function around an allocation does. */
const cause *program::explain_needs(const decision &of) const
{
    const message_flow &messages = *member_of(of.in).messages;
    size_t index = of.site - of.in->sites.data();
    const cause *exchange = messages.before[index].exchange;
    exchange = exchange ? exchange : messages.after[index].exchange;
    variance needed = needs(of);
    if (needed.why) {
        return needed.why;
    }
    if (exchange) {
        return of.in->explain_at(of.site->expression, false,
                                 "a message may come between it and the next barrier", exchange);
    }
    for (size_t i : member_of(of.in).calls) {
        const call_site &call = *decisions[i].site;
        for (unsigned p = 0; p < call.arguments.size() && p < variance::PARAMETERS; p++) {
            const cause *why = call.arguments[p].why;
            if ((needed.parameters >> p & 1) && why) {
                return decisions[i].in->explain_at(call.expression, why->divergent,
                                                   "an argument of this call", why);
            }
        }
    }
    return of.in->explain_at(of.site->expression, false,
                             "a message may come between each call of its function and the next "
                             "barrier",
                             nullptr);
}

/* The verdict on a call for that reason. */
verdict program::verdict_of(const decision &of, const cause *why) const
{
    bool all_reach = !of.site->reached.why && !of.site->reached.parameters;
    if (!why || !why->divergent) {
        return verdict::unknown;
    }
    return all_reach && !of.site->callee && of.site->size.parameters ? verdict::sizes_differ
                                                                     : verdict::divergent;
}

/* Find the decisions for sources that are compiled several times, in a header or a template. */
void program::find_shared()
{
    std::map<place, std::vector<size_t>> known;
    for (size_t i = 0; i < decisions.size(); i++) {
        const decision &d = decisions[i];
        const SourceManager &sources = d.in->definition->getASTContext().getSourceManager();
        known[place_of(sources, d.site->expression->getEndLoc())].push_back(i);
    }
    shared.clear();
    for (const auto &[at, same] : known) {
        for (size_t i = 0; i < same.size() && same.size() > 1; i++) {
            shared.emplace_back(same[i], same.front());
        }
    }
    std::sort(shared.begin(), shared.end());
}

/* Such a source gets one text. If one of its uses cannot have the argument, none has. */
bool program::drop_disagreeing()
{
    std::map<size_t, const decision *> refused; /* by the first decision for the source */
    bool dropped = false;
    for (auto [i, first] : shared) {
        if (decisions[i].gets == flag::none) {
            refused.emplace(first, &decisions[i]);
        }
    }
    for (auto [i, first] : shared) {
        decision &d = decisions[i];
        auto other = d.gets == flag::none ? refused.end() : refused.find(first);
        if (other != refused.end()) {
            const cause *why = d.in->explain_at(d.site->expression, false,
                                                "this source is also compiled with another meaning",
                                                other->second->why);
            drop(d, verdict::unknown, why);
            dropped = true;
        }
    }
    return dropped;
}

bool program::drop_calls()
{
    bool dropped = false;
    for (size_t i; unfit.next_here(i);) {
        decision &d = decisions[i];
        steps++;
        if (d.gets == flag::none) {
            continue;
        }
        if (needs(d).why || !table_of(d)) {
            const cause *why = explain_needs(d);
            drop(d, why->divergent ? verdict::divergent : verdict::unknown, why);
            dropped = true;
        } else if (d.site->callee && !has_parameter(d.site->callee)) {
            drop(d, verdict::unknown, nullptr); /* it makes no allocation together */
            dropped = true;
        }
    }
    return dropped;
}

/* The functions that an entry calls with the argument, directly or through others. `other_files`:
 * functions without callers count as well, because files that are not given may call them. */
std::vector<bool> program::find_reached(bool other_files) const
{
    std::vector<bool> reached(members.size());
    std::vector<const member *> open;
    auto reach = [&](const member &m) {
        if (!reached[m.analysis->number]) {
            reached[m.analysis->number] = true;
            open.push_back(&m);
        }
    };
    for (const auto &m : members) {
        if (m->analysis->is_entry || (other_files && m->calls.empty())) {
            reach(*m);
        }
    }
    while (!open.empty()) {
        const member &next = *open.back();
        open.pop_back();
        for (size_t i : next.decisions) {
            if (decisions[i].gets != flag::none && decisions[i].site->callee) {
                reach(member_of(decisions[i].site->callee));
            }
        }
    }
    return reached;
}

/* Drop the arguments in functions that no entry calls with one, such as a recursive function that
 * only calls itself. */
bool program::drop_unreached()
{
    std::vector<bool> reached = find_reached(true);
    bool dropped = false;
    for (auto &m : members) {
        for (size_t i : m->decisions) {
            if (!reached[m->analysis->number] && decisions[i].gets != flag::none) {
                const cause *why = no_caller(*m);
                drop(decisions[i], why && why->divergent ? verdict::divergent : verdict::unknown,
                     why);
                dropped = true;
            }
        }
    }
    return dropped;
}

/* Find the decisions for the calls of each function. */
void program::find_calls()
{
    for (size_t i = 0; i < decisions.size(); i++) {
        if (decisions[i].site->callee) {
            member_of(decisions[i].site->callee).calls.push_back(i);
        }
    }
}

void program::decide()
{
    decisions.clear();
    for (auto &m : members) {
        m->decisions.clear();
        m->calls.clear();
        make_decisions(*m);
        m->required = 0;
        m->tolerates = ALWAYS;
        unserved.add(m->analysis->number);
    }
    for (size_t i = 0; i < decisions.size(); i++) {
        unfit.add(i);
    }
    find_calls();
    find_shared();
    find_components();
    do {
        summarise();
    } while (drop_sites() || drop_calls() || drop_unreached() || drop_disagreeing());
}

} // namespace rewrite
