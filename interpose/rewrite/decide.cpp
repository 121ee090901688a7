/* SPDX-License-Identifier: MIT
 *
 * Which calls get an argument. A call gets it if all threads make the call together wherever they
 * make it, the sizes and all parameters on which that depends are equal, and no message comes
 * between (messages.h). A function that has such a call gets a parameter, which its callers set if
 * they, in turn, meet the conditions of all its calls that use it.
 *
 * All calls that can be collective for themselves have the argument at first. Then calls lose it
 * until the conditions hold for all others, so that recursive functions need no special care.
 *
 * Whether messages come between depends on the callers, too: a call in a function may need that
 * none comes between the call of the function and the barrier before (B), or the one after it (A).
 * The beginning of an entry is a barrier before all its calls. The end of main() is one after them,
 * but that of a kernel is not: a thread that ends no longer keeps others waiting at
 * __syncthreads(), as if it had sent a message.
 *
 * A table of four bits says for each combination if the call is safe: bit 0 for neither, bit 1 for
 * B alone, bit 2 for A alone, bit 3 for both.
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

constexpr unsigned ROWS = 4, ALWAYS = 15;

/* The function has a parameter or a variable of the name that it would get. */
bool names_coalesce(const FunctionDecl *f)
{
    bool found = false;
    for (const ParmVarDecl *parameter : f->parameters()) {
        found = found || parameter->getName() == "coalesce";
    }
    each_statement(f->getBody(), nullptr, [&](const Stmt *statement, const Stmt *) {
        const auto *name = dyn_cast<DeclRefExpr>(statement);
        found = found || (name && name->getDecl()->getNameAsString() == "coalesce");
    });
    return found;
}

/* No exchange comes between this point and the barrier, where B or A (`outside`) holds. */
bool is_clear(const exchange_state &state, bool outside)
{
    return !state.exchange && (!state.at_edge || outside);
}

} // namespace

bool program::has_parameter(const function *f) const
{
    const member &of = member_of(f);
    return !f->is_entry && !of.left_alone &&
           std::any_of(of.decisions.begin(), of.decisions.end(),
                       [this](size_t i) { return decisions[i].gets != flag::none; });
}

/* The variance that must be empty for the call to be collective. */
variance program::needs(const decision &of) const
{
    variance found = of.site->reached;
    if (!of.site->callee) {
        return found | of.site->size;
    }
    uint64_t required = member_of(of.site->callee).required;
    if (required & variance::ALONE) {
        found.join(of.site->alone);
    }
    for (unsigned i = 0; i < variance::PARAMETERS; i++) {
        if (required >> i & 1) {
            found.join(i < of.site->arguments.size()
                           ? of.site->arguments[i]
                           : variance{0, of.in->explain_at(of.site->expression, false,
                                                           "an argument is missing", nullptr)});
        }
    }
    return found;
}

/* The table of a call within its function. */
unsigned program::table_of(const decision &of) const
{
    const message_flow &messages = *member_of(of.in).messages;
    size_t index = of.site - of.in->sites.data();
    unsigned table = 0;
    for (unsigned row = 0; row < ROWS; row++) {
        bool entry = of.in->is_entry;
        bool before = is_clear(messages.before[index], entry || (row & 1));
        bool after = is_clear(messages.after[index], (entry && !cuda) || (row & 2 && !entry));
        bool safe = of.site->callee
                        ? member_of(of.site->callee).tolerates >> (before + 2 * after) & 1
                        : before || after;
        table |= (unsigned)safe << row;
    }
    return table;
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
    auto taken = address_taken.find(key_of(f));
    if (taken != address_taken.end()) {
        return taken->second;
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

/* ---- conditions between functions ----------------------------------------------------------- */

/* Each function's conditions, from its calls that still have the argument. */
void program::summarise()
{
    for (bool grows = true; grows;) {
        grows = false;
        for (auto &m : members) {
            uint64_t required = m->required;
            unsigned tolerates = m->tolerates;
            for (size_t i : m->decisions) {
                if (decisions[i].gets != flag::none) {
                    required |= needs(decisions[i]).parameters;
                    tolerates &= table_of(decisions[i]);
                }
            }
            grows |= required != m->required || tolerates != m->tolerates;
            m->required = required;
            m->tolerates = tolerates;
        }
    }
}

/* The call meets these conditions of its callee, if its own callers do their part. */
bool program::fits(const decision &call, uint64_t required, unsigned tolerates) const
{
    if ((required & variance::ALONE) && call.site->alone.why) {
        return false;
    }
    for (unsigned i = 0; i < variance::PARAMETERS; i++) {
        if ((required >> i & 1) &&
            (i >= call.site->arguments.size() || call.site->arguments[i].why)) {
            return false;
        }
    }
    const message_flow &messages = *member_of(call.in).messages;
    size_t index = call.site - call.in->sites.data();
    bool before = is_clear(messages.before[index], true);
    bool after = is_clear(messages.after[index], true);
    return tolerates >> (before + 2 * after) & 1;
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

/* A call that demands more than any caller of its function has loses the argument, rather than the
 * callers theirs. A function without callers may have some in other files. Returns true if there
 * was such a call. */
bool program::drop_sites()
{
    bool dropped = false;
    for (auto &m : members) {
        if (m->analysis->is_entry || m->calls.empty()) {
            continue;
        }
        for (size_t i : m->decisions) {
            decision &d = decisions[i];
            if (d.gets == flag::none) {
                continue;
            }
            variance needed = needs(d);
            unsigned table = table_of(d);
            bool served = std::any_of(m->calls.begin(), m->calls.end(), [&](size_t call) {
                return decisions[call].gets != flag::none &&
                       fits(decisions[call], needed.parameters, table);
            });
            if (!served) {
                const cause *alone = no_caller(*m);
                const cause *why = alone ? alone : explain_needs(d);
                verdict what = alone && alone->divergent ? verdict::divergent : verdict_of(d, why);
                refuse(d, what, why);
                dropped = true;
            }
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

/* A source that is compiled several times, in a header or a template, gets one text. If one of its
 * uses cannot have the argument, none has. */
bool program::drop_disagreeing()
{
    std::map<place, const decision *> refused;
    bool dropped = false;
    auto at = [](const decision &d) {
        const SourceManager &sources = d.in->definition->getASTContext().getSourceManager();
        return place_of(sources, d.site->expression->getEndLoc());
    };
    for (const decision &d : decisions) {
        if (d.gets == flag::none) {
            refused.emplace(at(d), &d);
        }
    }
    for (decision &d : decisions) {
        auto other = d.gets == flag::none ? refused.end() : refused.find(at(d));
        if (other != refused.end()) {
            const cause *why = d.in->explain_at(d.site->expression, false,
                                                "this source is also compiled with another meaning",
                                                other->second->why);
            refuse(d, verdict::unknown, why);
            dropped = true;
        }
    }
    return dropped;
}

bool program::drop_calls()
{
    bool dropped = false;
    for (decision &d : decisions) {
        if (d.gets == flag::none) {
            continue;
        }
        if (needs(d).why || !table_of(d)) {
            const cause *why = explain_needs(d);
            refuse(d, why->divergent ? verdict::divergent : verdict::unknown, why);
            dropped = true;
        } else if (d.site->callee && !has_parameter(d.site->callee)) {
            refuse(d, verdict::unknown, nullptr); /* it makes no allocation together */
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
    for (const auto &m : members) {
        reached[m->analysis->number] = m->analysis->is_entry || (other_files && m->calls.empty());
    }
    for (bool grows = true; grows;) {
        grows = false;
        for (const decision &d : decisions) {
            if (d.gets != flag::none && d.site->callee && reached[d.in->number] &&
                !reached[d.site->callee->number]) {
                reached[d.site->callee->number] = true;
                grows = true;
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
                refuse(decisions[i], why && why->divergent ? verdict::divergent : verdict::unknown,
                       why);
                dropped = true;
            }
        }
    }
    return dropped;
}

/* ---- the paper's patterns ------------------------------------------------------------------- */

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

/* Without a look at sizes or at the ways by which threads leave. */
void program::decide_by_pattern()
{
    for (auto &m : members) {
        m->left_alone = leave_alone(*m);
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
    /* A call of a function gets the argument if the function allocates, by itself or, in the
     * better of the two grades, through others. */
    for (bool dropped = true; dropped;) {
        dropped = false;
        for (decision &d : decisions) {
            if (d.gets == flag::none || !d.site->callee) {
                continue;
            }
            const member &callee = member_of(d.site->callee);
            bool allocates =
                std::any_of(callee.decisions.begin(), callee.decisions.end(), [&](size_t i) {
                    return decisions[i].gets != flag::none &&
                           (by == grade::call_graph || !decisions[i].site->callee);
                });
            bool around = d.in->is_entry || by == grade::call_graph ||
                          std::any_of(member_of(d.in).decisions.begin(),
                                      member_of(d.in).decisions.end(), [&](size_t i) {
                                          return decisions[i].gets != flag::none &&
                                                 !decisions[i].site->callee;
                                      });
            if (!allocates || !around) {
                refuse(d, verdict::unknown,
                       d.in->explain_at(d.site->expression, false,
                                        "the function makes no such allocation", nullptr));
                dropped = true;
            }
        }
    }
}

void program::decide()
{
    decisions.clear();
    for (auto &m : members) {
        m->decisions.clear();
        m->calls.clear();
        m->left_alone = leave_alone(*m);
        make_decisions(*m);
    }
    for (size_t i = 0; i < decisions.size(); i++) {
        if (decisions[i].site->callee) {
            member_of(decisions[i].site->callee).calls.push_back(i);
        }
    }
    bool dropped = true;
    while (dropped) {
        for (auto &m : members) {
            m->required = 0;
            m->tolerates = ALWAYS;
        }
        summarise();
        dropped = drop_sites() || drop_calls() || drop_unreached() || drop_disagreeing();
    }
}

} // namespace rewrite
