/* SPDX-License-Identifier: MIT
 *
 * Effects and results of calls (function.h).
 */
#include "function.h"

#include <clang/AST/ASTContext.h>
#include <clang/AST/ExprCXX.h>
#include <llvm/Support/Casting.h>

#include <utility>

using namespace clang;
using llvm::dyn_cast;
using llvm::isa;

namespace rewrite
{

/* ---- calls ----------------------------------------------------------------------------------- */

/* Threads may end here by themselves. So the block is not one from which every path ends the whole
 * program. */
void function::note_early_exit()
{
    if (blocks->is_doomed(at) && !early_exits[at]) {
        early_exits.set(at);
        found_early_exit = true;
    }
}

/* Threads end here; `how`: which. */
void function::leave(const variance &how)
{
    note_early_exit();
    found.may_leave = true;
    found.leaves.join(how | here | now->left);
}

/* Threads make a collective call; `how`: which. */
void function::meet(unsigned kinds, const variance &how)
{
    variance all = how | here | now->left;
    found.may_meet |= kinds;
    found.meets.join(all);
    if (all.why) {
        around.meet_apart(kinds, all.why);
    }
}

/* MPI's calls, __syncthreads() and its like are of all threads. */
static meeting kind_of(const library_function &callee)
{
    return callee.communicator >= 0 || (callee.effects & BARRIER) ? OF_ALL : OF_WARP;
}

/* Whether the call gets no argument: in a function, if that one gets none. */
variance function::alone(const Expr *call)
{
    const cause *why = around.stays_alone(call, definition);
    return {why || is_entry ? 0 : variance::ALONE, why};
}

void function::add_site(call_site site)
{
    site.reached = here | now->left;
    site.doomed = blocks->is_doomed(at);
    event::kind what = site.callee ? event::CALL : event::SITE;
    events[at].push_back({what, nullptr, sites.size()});
    sites.push_back(std::move(site));
}

void function::run_call(const CallExpr *call)
{
    const FunctionDecl *called = call->getDirectCallee();
    const auto *method = dyn_cast<CXXMemberCallExpr>(call);
    bool is_virtual = method && method->getMethodDecl() && method->getMethodDecl()->isVirtual();
    bool is_certain = called && !is_virtual && !called->isWeak();
    function *callee = is_certain ? around.find(called) : nullptr;
    if (callee) {
        std::vector<variance> arguments;
        /* An operator that is a member has its object as first argument. */
        unsigned first = isa<CXXOperatorCallExpr>(call) && isa<CXXMethodDecl>(called) ? 1 : 0;
        for (unsigned i = first; i < call->getNumArgs(); i++) {
            arguments.push_back(value(call->getArg(i)));
        }
        run_program_call(call, callee, std::move(arguments));
        return;
    }
    const library_function *known =
        is_certain && is_global(called) ? find_library_function(called->getName()) : nullptr;
    if (known && (known->effects & COMPARES)) {
        run_comparison(call, *known);
    } else if (known) {
        run_library_call(call, *known);
    } else if (called && is_global(called) && around.registered(called->getName())) {
        std::string name = called->getNameAsString();
        run_library_call(call, {name.c_str(), source::unknown, MEETS, -1, source::nothing, -1});
    } else {
        run_unknown_call(call, called ? called->getNameAsString() : std::string());
    }
}

void function::run_program_call(const Expr *call, function *callee, std::vector<variance> arguments)
{
    variance without = alone(call);
    auto in_terms_of_ours = [&](const variance &of) {
        variance ours;
        ours.why = of.why;
        if (of.parameters & variance::ALONE) {
            ours.join(without);
        }
        for (unsigned i = 0; i < variance::PARAMETERS; i++) {
            if (of.parameters >> i & 1) {
                ours.join(i < arguments.size() ? arguments[i]
                                               : because(false, call,
                                                         "the call has fewer arguments than the "
                                                         "function has parameters"));
            }
        }
        return ours;
    };
    values[call] = in_terms_of_ours(callee->found.result);
    nulls[call] = in_terms_of_ours(callee->found.null);
    call_site site;
    site.expression = call;
    site.callee = callee;
    site.arguments = arguments;
    site.alone = without;
    add_site(std::move(site));
    if (callee->found.may_leave) {
        variance how = in_terms_of_ours(callee->found.leaves);
        leave(how);
        now->left.join(how | here);
    }
    if (callee->found.may_meet) {
        meet(callee->found.may_meet, in_terms_of_ours(callee->found.meets));
    }
}

/* qsort() and its like call a function of the program, how often and with which arguments depends
 * on memory. */
void function::run_comparison(const CallExpr *call, const library_function &known)
{
    unsigned last = call->getNumArgs() - 1;
    const Expr *given = call->getArg(last)->IgnoreParenCasts();
    const auto *address = dyn_cast<UnaryOperator>(given); /* of the function, or nothing */
    given = address && address->getOpcode() == UO_AddrOf ? address->getSubExpr()->IgnoreParenCasts()
                                                         : given;
    const auto *name = dyn_cast<DeclRefExpr>(given);
    const auto *called = name ? dyn_cast<FunctionDecl>(name->getDecl()) : nullptr;
    function *compare = called && !called->isWeak() ? around.find(called) : nullptr;
    if (!compare) {
        run_unknown_call(call, known.name);
        return;
    }
    run_library_call(call, known);
    std::string text = std::string(known.name) + "() calls it as memory demands";
    variance how = because(false, name, text);
    call_site site;
    site.expression = name;
    site.callee = compare;
    site.arguments.resize(called->getNumParams(), how);
    site.alone = how;
    add_site(std::move(site));
    sites.back().reached = how;
    if (compare->found.may_leave) {
        leave(how);
        now->left.join(how);
    }
    if (compare->found.may_meet) {
        meet(compare->found.may_meet, how);
    }
}

void function::run_unknown_call(const Expr *call, const std::string &name)
{
    variance all = because(false, call,
                           name.empty() ? "the function that is called here is not known"
                                        : "nothing is known of " + name + "()");
    values[call] = all;
    run_anything(all.why);
}

/* Something of which nothing is known may leave, wait, and set variables of other files. */
void function::run_anything(const cause *why)
{
    leave({0, why});
    now->left.join({0, why});
    events[at].push_back({event::EXCHANGE, why, 0});
    around.call_unknown(why);
}

void function::run_new(const CXXNewExpr *call)
{
    call_site site;
    site.expression = call;
    if (call->isArray() && call->getArraySize()) {
        site.size = value(*call->getArraySize());
    }
    if (call->getNumPlacementArgs() == 0) {
        add_site(std::move(site));
    }
    values[call] = because(true, call, "each thread gets a block of its own");
    const CXXConstructExpr *made = call->getConstructExpr();
    if (made) {
        run_construction(made);
    }
}

void function::run_construction(const CXXConstructExpr *call)
{
    const CXXConstructorDecl *called = call->getConstructor();
    values[call] = because(false, call, "the analysis does not follow objects");
    if (called->isTrivial()) {
        return;
    }
    if (function *callee = around.find(called)) {
        std::vector<variance> arguments;
        for (const Expr *argument : call->arguments()) {
            arguments.push_back(value(argument));
        }
        run_program_call(call, callee, std::move(arguments));
    } else {
        run_unknown_call(call, called->getNameAsString());
    }
    values[call] = because(false, call, "the analysis does not follow objects");
}

/* ---- calls of library functions ------------------------------------------------------------- */

/* The variance of a value that a collective call gives all threads of its communicator. */
variance function::agreed(const CallExpr *call, const library_function &callee)
{
    bool has_communicator =
        callee.communicator >= 0 && (unsigned)callee.communicator < call->getNumArgs();
    if (!has_communicator && !around.is_cuda()) {
        return {};
    }
    const cause *apart = callee.effects & MEETS ? around.meets_apart(kind_of(callee)) : nullptr;
    if (apart) { /* MPI_Comm_size() meets nobody */
        return {0, explain(call, false, call->getBeginLoc(),
                           around.is_cuda() ? "another thread may meet this call by another one"
                                            : "another rank may meet this call by another one",
                           apart)};
    }
    if (!has_communicator) {
        return {};
    }
    /* A communicator that does not vary has all ranks: MPI_COMM_SELF varies, MPI_Comm_dup() keeps
     * the ranks, and no other function gives a communicator which the analysis follows. */
    const Expr *communicator = call->getArg(callee.communicator);
    variance found = value(communicator);
    if (found.why) {
        found.why = explain(communicator, false, communicator->getBeginLoc(),
                            "the communicator may not have all ranks", found.why);
    }
    return found;
}

/* The call sets all bytes of the variable: an integer or a communicator, or, of a collective call,
 * one element of a type of that size. */
bool function::covers(const CallExpr *call, const VarDecl *variable) const
{
    ASTContext &context = definition->getASTContext();
    llvm::StringRef name = call->getDirectCallee()->getName();
    bool collects = name == "MPI_Bcast" || name == "MPI_Allreduce";
    unsigned count = name == "MPI_Bcast" ? 1 : 2;
    if (!variable->getType()->isScalarType()) {
        return false;
    }
    Expr::EvalResult elements;
    uint64_t bytes = context.getTypeSizeInChars(variable->getType()).getQuantity();
    if (!collects || call->getNumArgs() < count + 2) {
        return !collects && (name == "MPI_Comm_dup" || bytes == sizeof(int));
    }
    return bytes_of_datatype(call->getArg(count + 1), context) == bytes &&
           call->getArg(count)->EvaluateAsInt(elements, context) && elements.Val.getInt() == 1;
}

/* The value that the function sets at its argument `i`. */
variance function::output(const CallExpr *call, const library_function &callee, unsigned i)
{
    const Expr *argument = call->getArg(i);
    std::string name = callee.name;
    if ((int)i != callee.out) {
        return because(false, argument,
                       "the analysis does not follow the value that " + name + "() sets");
    }
    if (callee.set == source::divergent) {
        return because(true, argument, name + "() gives each rank another value");
    }
    if (callee.set == source::agreed || callee.set == source::constant) {
        variance set = agreed(call, callee);
        if (!set.why && !covers(call, variable_pointed_to(argument))) {
            set = because(false, argument, name + "() may set a part of the variable");
        }
        bool meets = callee.effects & MEETS;
        for (unsigned other = 0; other < call->getNumArgs(); other++) {
            const Expr *argument = call->getArg(other);
            bool is_handle =
                callee.set == source::constant && other != i; /* Open MPI's: pointers */
            if (is_handle || (meets && !argument->getType()->isPointerType())) {
                set.join(value(call->getArg(other))); /* counts, and the root */
            }
        }
        return set;
    }
    return because(false, argument,
                   "the analysis does not follow the value that " + name + "() sets");
}

/* Set the variables whose addresses the function gets. */
void function::set_outputs(const CallExpr *call, const library_function &callee)
{
    for (unsigned i = 0; i < call->getNumArgs(); i++) {
        const Expr *argument = call->getArg(i);
        const VarDecl *variable = variable_pointed_to(argument);
        bool keeps =
            (callee.effects & KEEPS_ARGUMENTS) ||
            (has_prefix(callee.name, "MPI_") && is_for_reading(call->getDirectCallee(), i));
        if (variable && ((int)i == callee.out || !keeps)) {
            assign_variable(variable, output(call, callee, i), false, argument);
        }
    }
}

/* Messages, barriers and ends. */
void function::note_effects(const CallExpr *call, const library_function &callee)
{
    std::string name = callee.name == llvm::StringRef("MPI_")
                           ? call->getDirectCallee()->getNameAsString()
                           : callee.name;
    if ((callee.effects & LEAVES) && !around.ends_all(call)) {
        leave({});
        now->left.join(here); /* where no declaration says that it does not return */
    }
    if (callee.effects & EXCHANGES) {
        const cause *why =
            explain(call, false, call->getBeginLoc(), name + "() may wait for another rank");
        events[at].push_back({event::EXCHANGE, why, 0});
    }
    if ((callee.effects & MEETS) && (callee.communicator >= 0 || around.is_cuda())) {
        meet(kind_of(callee), {});
    }
    if (callee.effects & MEETS) {
        variance who = here | now->left | agreed(call, callee);
        if (who.why || who.parameters) {
            const cause *why = explain(call, false, call->getBeginLoc(),
                                       name + "() may wait for ranks that are elsewhere", who.why);
            events[at].push_back({event::EXCHANGE, why, 0});
        } else if (callee.effects & BARRIER) {
            const cause *why =
                explain(call, false, call->getBeginLoc(), name + "() waits for all threads");
            events[at].push_back({event::BARRIER, why, 0});
        }
    }
}

void function::run_library_call(const CallExpr *call, const library_function &callee)
{
    variance result;
    for (unsigned i = 0; i < call->getNumArgs() && callee.result == source::arguments; i++) {
        const Expr *argument = call->getArg(i);
        bool reads = argument->getType()->isPointerType() && (callee.effects & KEEPS_ARGV);
        bool known = reads_argv(argument) || isa<StringLiteral>(argument->IgnoreParenCasts()) ||
                     argument->isNullPointerConstant(definition->getASTContext(),
                                                     Expr::NPC_ValueDependentIsNull);
        if (!reads || known) {
            result.join(value(argument));
        } else {
            result.join(because(false, argument, "the analysis does not follow memory"));
        }
    }
    if (callee.result == source::divergent) {
        result = because(true, call, std::string(callee.name) + "() differs between threads");
    } else if (callee.result == source::unknown ||
               (callee.result == source::status && !around.errors_are_fatal())) {
        result = because(false, call,
                         "nothing is known of the value of " + std::string(callee.name) + "()");
    }
    if (around.is_cuda() && (callee.effects & MEETS)) { /* __syncthreads_count() */
        result.join(agreed(call, callee));
    }
    values[call] = result;
    set_outputs(call, callee);
    if (callee.effects & ALLOCATES) {
        call_site site;
        site.expression = call;
        site.allocates = find_allocation_function(callee.name);
        for (int argument : {site.allocates->size, site.allocates->count}) {
            if (argument >= 0 && (unsigned)argument < call->getNumArgs()) {
                site.size.join(value(call->getArg(argument)));
            }
        }
        if (site.allocates->size < 0) {
            site.size = because(false, call, "the size is that of a string");
        }
        site.alone = alone(call);
        variance null = site.alone | site.size | here | now->left;
        bool collective = site.allocates->collective && !null.why;
        add_site(std::move(site));
        values[call] = because(true, call, "each thread gets a block of its own");
        nulls[call] = collective ? null : values[call];
    }
    note_effects(call, callee);
    add_registered(call);
}

/* A library function that allocates together, if sizes are equal: the arguments that are no
 * pointers. */
void function::add_registered(const CallExpr *call)
{
    call_site site;
    site.expression = call;
    site.allocates = around.registered(call->getDirectCallee()->getName());
    if (!site.allocates) {
        return;
    }
    for (const Expr *argument : call->arguments()) {
        if (!argument->getType()->isPointerType()) {
            site.size.join(value(argument));
        }
    }
    add_site(std::move(site));
}

} // namespace rewrite
