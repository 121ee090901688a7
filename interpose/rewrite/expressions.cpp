/* SPDX-License-Identifier: MIT
 *
 * Values of expressions (function.h).
 */
#include "function.h"

#include <clang/AST/ASTContext.h>
#include <clang/AST/Attr.h>
#include <clang/AST/ExprCXX.h>
#include <clang/AST/StmtCXX.h>
#include <llvm/Support/Casting.h>

using namespace clang;
using llvm::dyn_cast;
using llvm::isa;

namespace rewrite
{
namespace
{

/* A constant whose value threads cannot change: const, with an initializer in this file. */
bool is_constant(const VarDecl *variable)
{
    ASTContext &context = variable->getASTContext();
    QualType type = context.getBaseElementType(variable->getType());
    const Expr *initial = variable->getAnyInitializer();
    return type.isConstQualified() && !type.isVolatileQualified() && variable->hasGlobalStorage() &&
           initial && initial->isConstantInitializer(context, false) &&
           !differs_at_first(initial, context);
}

/* CUDA's variables of the thread: 1 if they differ in a block, 0 if not, -1 for all others. */
int differs_in_block(const VarDecl *variable)
{
    llvm::StringRef name = variable->getName();
    if (name == "threadIdx") {
        return 1;
    }
    return name == "blockIdx" || name == "blockDim" || name == "gridDim" || name == "warpSize" ? 0
                                                                                               : -1;
}

/* The variable that is named anywhere in the base of a member expression. */
const VarDecl *base_variable(const Expr *base)
{
    base = base->IgnoreParenCasts();
    if (const auto *member = dyn_cast<MemberExpr>(base)) {
        return base_variable(member->getBase());
    }
    const auto *name = dyn_cast<DeclRefExpr>(base);
    return name ? dyn_cast<VarDecl>(name->getDecl()) : nullptr;
}

} // namespace

const cause *function::explain(const void *key, bool divergent, SourceLocation where,
                               const std::string &text, const cause *origin) const
{
    const cause *known = around.explained(key, text);
    const SourceManager &sources = definition->getASTContext().getSourceManager();
    return known ? known : around.explain(key, {divergent, text, place_of(sources, where), origin});
}

const cause *function::explain_at(const Expr *where, bool divergent, const std::string &text,
                                  const cause *origin) const
{
    return explain(where, divergent, where->getBeginLoc(), text, origin);
}

const cause *function::explain_at(const Decl *where, bool divergent, const std::string &text,
                                  const cause *origin) const
{
    return explain(where, divergent, where->getLocation(), text, origin);
}

variance function::because(bool divergent, const Expr *where, const std::string &text,
                           const cause *origin)
{
    return {0, explain(where, divergent, where->getBeginLoc(), text, origin)};
}

/* ---- loads and assignments ------------------------------------------------------------------- */

variance function::load_variable(const VarDecl *variable, const Expr *where)
{
    variable = variable->getCanonicalDecl();
    auto followed = variables.find(variable);
    if (followed != variables.end()) {
        return now->variables[followed->second];
    }
    bool is_parameter = isa<ParmVarDecl>(variable);
    int differs = around.is_cuda() && !is_parameter ? differs_in_block(variable) : -1;
    if (differs == 1) {
        return because(true, where, "threadIdx differs between the threads of a block");
    }
    if (differs == 0 || is_constant(variable)) {
        return {};
    }
    auto shared = escaped.find(variable);
    if (shared != escaped.end()) {
        return {0, shared->second};
    }
    if (variable->hasGlobalStorage() && is_followed(variable)) {
        return around.global(variable);
    }
    return because(false, where,
                   "the analysis does not follow the contents of " + variable->getNameAsString());
}

/* Threads may wait for others by volatile variables. */
void function::note_volatile(const Expr *place)
{
    if (place->getType().isVolatileQualified()) {
        const cause *why = explain(place, false, place->getBeginLoc(),
                                   "threads may wait for each other by a volatile variable");
        events[at].push_back({event::EXCHANGE, why, 0});
    }
}

/* The value at a place in memory. */
variance function::load(const Expr *place)
{
    place = place->IgnoreParens();
    note_volatile(place);
    if (const VarDecl *variable = variable_of(place)) {
        variance found = load_variable(variable, place);
        for (const Expr *index : indices_of(place)) {
            found.join(value(index));
        }
        return found;
    }
    if (const auto *element = dyn_cast<ArraySubscriptExpr>(place)) {
        const Expr *base = element->getBase()->IgnoreParenCasts();
        variance index = value(element->getIdx());
        if (reads_argv(place)) {
            return index;
        }
        if (reads_argv(base)) { /* a character of a string of argv */
            return index | value(llvm::cast<ArraySubscriptExpr>(base)->getIdx());
        }
        const VarDecl *array = variable_of(base);
        if (array && array->getType()->isArrayType() && is_constant(array)) {
            return index;
        }
    }
    if (const auto *made = dyn_cast<MaterializeTemporaryExpr>(place)) {
        return value(made->getSubExpr());
    }
    if (const auto *member = dyn_cast<MemberExpr>(place)) {
        const Expr *whole = member->getBase()->IgnoreParens();
        if (isa<MaterializeTemporaryExpr>(whole)) { /* a member of a result, with Clang 22 */
            return load(whole);
        }
        const VarDecl *base = base_variable(member->getBase());
        if (base && around.is_cuda() && differs_in_block(base) >= 0) {
            return load_variable(base, place);
        }
    }
    return because(false, place, "the analysis does not follow memory");
}

void function::assign_variable(const VarDecl *variable, const variance &value, bool keeps,
                               const Expr *where)
{
    variable = variable->getCanonicalDecl();
    variance all = value | here | now->left;
    auto followed = variables.find(variable);
    if (followed != variables.end()) {
        variance &held = now->variables[followed->second];
        held = keeps ? held | all : all;
        assign_null(variable, value, keeps);
    } else if (variable->hasGlobalStorage()) {
        if (all.why) { /* a value that many statements cause is named by the assignment */
            all.why = explain(where, all.why->divergent, where->getBeginLoc(),
                              variable->getNameAsString() + " is set", all.why);
        }
        around.assign_global(variable, all, *this);
    }
}

/* After assign_variable(), where more is known of the value. */
void function::assign_null(const VarDecl *variable, const variance &null, bool keeps)
{
    auto followed = variables.find(variable->getCanonicalDecl());
    if (followed != variables.end()) {
        variance all = null | here | now->left, &held = now->nulls[followed->second];
        held = keeps ? held | all : all;
    }
}

/* `keeps`: a part of the old value remains, or the old value is used. */
void function::assign(const Expr *target, const variance &value, const variance &null, bool keeps)
{
    target = target->IgnoreParens();
    note_volatile(target);
    const VarDecl *variable = variable_of(target);
    if (variable) {
        variance all = value;
        for (const Expr *index : indices_of(target)) {
            all.join(this->value(index));
        }
        assign_variable(variable, all, keeps || !isa<DeclRefExpr>(target), target);
        if (!keeps && isa<DeclRefExpr>(target)) {
            assign_null(variable, null, false);
        }
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

variance function::of_children(const Stmt *statement)
{
    variance found;
    for (const Stmt *child : statement->children()) {
        if (const auto *part = llvm::dyn_cast_or_null<Expr>(child)) {
            found.join(value(part));
        }
    }
    return found;
}

variance function::value(const Expr *expression)
{
    auto found = values.find(expression);
    return found != values.end() ? found->second : compute(expression);
}

/* The value of an expression from those of its parts; run() handles its effects. */
variance function::compute(const Expr *expression)
{
    if (expression->getType()->isVariablyModifiedType()) { /* as p + 1 for int (*p)[n] */
        return because(false, expression, "the size of an array of variable length");
    }
    if ((isa<IntegerLiteral>(expression) || isa<DeclRefExpr>(expression)) &&
        is_named(expression, "MPI_COMM_SELF", definition->getASTContext())) {
        return because(false, expression, "MPI_COMM_SELF has one rank");
    }
    if (const auto *again = dyn_cast<OpaqueValueExpr>(expression)) { /* x in x ?: y */
        return again->getSourceExpr() ? value(again->getSourceExpr()) : variance();
    }
    if (isa<UnaryExprOrTypeTraitExpr>(expression)) {
        const auto *trait = llvm::cast<UnaryExprOrTypeTraitExpr>(expression);
        bool varies = trait->getTypeOfArgument()->isVariablyModifiedType();
        return varies ? because(false, trait, "the size of an array of variable length")
                      : variance();
    }
    if (const auto *given = dyn_cast<CXXDefaultArgExpr>(expression)) {
        Expr::EvalResult constant;
        bool known = given->getExpr()->EvaluateAsInt(constant, definition->getASTContext());
        return known ? variance() : because(false, given, "the analysis does not follow defaults");
    }
    variance test;
    if (compute_test(expression, test)) {
        return test;
    }
    if (const auto *cast = dyn_cast<CastExpr>(expression)) {
        Expr::EvalResult constant; /* such as an offset in a structure */
        if (cast->getCastKind() == CK_PointerToIntegral &&
            !cast->EvaluateAsInt(constant, definition->getASTContext())) {
            return because(true, cast, "an address differs between threads");
        }
        bool loads = cast->getCastKind() == CK_LValueToRValue ||
                     cast->getCastKind() == CK_LValueToRValueBitCast;
        return loads ? load(cast->getSubExpr()) : value(cast->getSubExpr());
    }
    if (const auto *binary = dyn_cast<BinaryOperator>(expression)) {
        if (binary->isCommaOp() || binary->getOpcode() == BO_Assign) {
            return value(binary->getRHS());
        }
    }
    if (const auto *unary = dyn_cast<UnaryOperator>(expression)) {
        if (unary->isIncrementDecrementOp()) {
            return load(unary->getSubExpr());
        }
        if (unary->getOpcode() == UO_Deref) { /* as a place; load() has its contents */
            return value(unary->getSubExpr());
        }
    }
    if (const auto *compound = dyn_cast<CompoundAssignOperator>(expression)) {
        return load(compound->getLHS()) | value(compound->getRHS());
    }
    if (const auto *name = dyn_cast<DeclRefExpr>(expression)) {
        /* An address, or a C++ reference. */
        const auto *variable = dyn_cast<VarDecl>(name->getDecl());
        return variable && variable->getType()->isReferenceType()
                   ? because(false, name, "the analysis does not follow references")
                   : variance();
    }
    if (isa<CallExpr>(expression) || isa<CXXNewExpr>(expression) || isa<StmtExpr>(expression) ||
        isa<CXXConstructExpr>(expression) || isa<CXXThisExpr>(expression) ||
        isa<LambdaExpr>(expression) || isa<AtomicExpr>(expression) || isa<VAArgExpr>(expression) ||
        isa<CXXDefaultInitExpr>(expression)) {
        return because(false, expression, "the analysis does not follow this expression");
    }
    return of_children(expression);
}

/* Apply the effects of a statement, and record its value. The parts of an expression come before
 * it. */
void function::run(const Stmt *statement)
{
    const auto *pointer = dyn_cast<Expr>(statement);
    pointer = pointer && pointer->getType()->isPointerType() ? pointer->IgnoreParens() : nullptr;
    if (pointer) {
        nulls.erase(pointer);
    }
    run_effects(statement);
    if (pointer && !nulls.count(pointer)) {
        variance found = compute_null(pointer);
        nulls[pointer] = found;
    }
}

void function::run_effects(const Stmt *statement)
{
    if (const auto *declaration = dyn_cast<DeclStmt>(statement)) {
        for (const Decl *declared : declaration->decls()) {
            if (const auto *variable = dyn_cast<VarDecl>(declared)) {
                run_declaration(variable);
            }
        }
    } else if (const auto *result = dyn_cast<ReturnStmt>(statement)) {
        run_return(result->getRetValue());
    } else if (isa<AsmStmt>(statement)) {
        run_anything(explain(statement, false, statement->getBeginLoc(),
                             "the analysis does not follow assembler"));
    } else if (const auto *thrown = dyn_cast<CXXThrowExpr>(statement)) {
        leave(because(false, thrown, "the analysis does not follow exceptions"));
    } else if (const auto *call = dyn_cast<CallExpr>(statement)) {
        run_call(call);
    } else if (const auto *call = dyn_cast<CXXNewExpr>(statement)) {
        run_new(call);
    } else if (const auto *call = dyn_cast<CXXConstructExpr>(statement)) {
        run_construction(call);
    } else if (const auto *expression = dyn_cast<Expr>(statement)) {
        variance result = compute(expression);
        if (const auto *binary = dyn_cast<BinaryOperator>(expression)) {
            if (binary->isAssignmentOp()) {
                assign(binary->getLHS(), value(binary->getRHS()), null(binary->getRHS()),
                       binary->isCompoundAssignmentOp());
            }
        } else if (const auto *unary = dyn_cast<UnaryOperator>(expression)) {
            if (unary->isIncrementDecrementOp()) {
                assign(unary->getSubExpr(), {}, {}, true);
            }
        }
        values[expression] = result;
    }
}

void function::run_declaration(const VarDecl *variable)
{
    if (variable->hasAttr<CleanupAttr>()) {
        run_anything(explain(variable, false, variable->getLocation(),
                             "the analysis does not follow __attribute__((cleanup))"));
    }
    if (!variable->hasLocalStorage()) {
        return; /* static: program.h looks at its initial value */
    }
    auto followed = variables.find(variable->getCanonicalDecl());
    if (followed == variables.end()) {
        return;
    }
    variance &held = now->variables[followed->second];
    if (variable->getInit()) {
        held = value(variable->getInit()) | here | now->left;
        assign_null(variable, null(variable->getInit()), false);
    } else {
        held = {0, explain(variable, false, variable->getLocation(),
                           variable->getNameAsString() + " has no value yet")};
        assign_null(variable, held, false);
    }
}

void function::run_return(const Expr *result)
{
    if (result) {
        found.result.join(value(result) | here | now->left);
        found.null.join(null(result) | here | now->left);
    }
}

} // namespace rewrite
